//! Every limit of the connections between nodes.

use std::time::Duration;

/// The longest payload of a frame, bytes.
pub const PAYLOAD_BYTES: usize = 8 << 20;
/// The longest body of a hello, bytes.
pub const HELLO_BYTES: usize = 4 << 10;
/// The longest payload of a request to join and of its answer, bytes.
pub const JOIN_BYTES: usize = 64 << 10;
/// Payloads up to this length are copied: into what is written together, and out of what was read,
/// so that a small payload that is kept does not keep a large buffer.
pub const COPY_BYTES: usize = 16 << 10;
/// Read from a socket at once, bytes.
pub const READ_BYTES: usize = 64 << 10;
/// Bytes waiting to be written above which no further request of the peer is begun.
pub const WRITE_BYTES: usize = 1 << 20;
/// Requests of one side that the other has not answered yet.
pub const WINDOW_CALLS: u32 = 4096;
/// The bytes of these requests, headers included.
pub const WINDOW_BYTES: u32 = 32 << 20;

/// Connections of one listener, and how many of them may be in their handshake.
pub const CONNECTIONS: usize = 4096;
pub const HANDSHAKES: usize = 256;
/// Nodes that join at the same moment.
pub const JOINS: usize = 16;
/// From the first byte to the end of all handshakes.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// Dialing one address, handshakes included.
pub const DIAL: Duration = Duration::from_secs(5);

/// A join token as text, characters; the addresses in it, and the length of each.
pub const TOKEN_CHARS: usize = 6 << 10;
pub const TOKEN_ADDRESSES: usize = 16;
pub const ADDRESS_BYTES: usize = 255;

/// How long a node's certificate is valid. Renewed after two thirds of that.
pub const CERTIFICATE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a cluster's authority is valid.
pub const AUTHORITY: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates begin that much in the past: clocks of nodes differ.
pub const CLOCK_SKEW: Duration = Duration::from_secs(3600);
