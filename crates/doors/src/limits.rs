//! Every limit of the doors, in one place. What a request may hold is bounded before memory is
//! taken for it.

use std::time::Duration;

/// Connections waiting to be accepted.
pub const BACKLOG: u32 = 4096;
/// The request line and all headers, bytes.
pub const HEADER_BYTES: usize = 64 << 10;
/// What of one connection is read ahead and buffered at most, bytes.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Requests that one HTTP/2 connection may have open.
pub const STREAMS: u32 = 128;
/// Flow control windows of HTTP/2, bytes: of one upload and of a connection.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
pub const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Ranges of one request that are answered one by one; more than that get the whole object.
pub const RANGES: usize = 16;
/// The body of a request that is JSON, bytes.
pub const JSON_BYTES: usize = 64 << 10;
/// What is left of a refused upload is read and thrown away if it is no longer than this, bytes,
/// and takes no longer: a client that is still sending gets to see why, and the connection lives.
pub const LINGER_BYTES: u64 = 16 << 20;
pub const LINGER: Duration = Duration::from_secs(5);
/// Memory for the records of all appends in progress, KiB.
pub const APPEND_KIB: usize = 64 << 10;
/// Bytes of an object that are looked at to find out its type.
pub const SNIFF_BYTES: usize = 512;
/// User metadata of an object: how many.
pub const USER_METADATA: usize = 64;

/// Wrong credentials of one source within [`FAILURES_WINDOW`], before it has to wait.
pub const FAILURES: u32 = 100;
pub const FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Sources whose failures are remembered.
pub const FAILURE_SOURCES: usize = 4096;

/// The path of a link to an object, bytes: with the host still far below what clients and proxies
/// take.
pub const LINK_BYTES: usize = 7 << 10;
/// Extents of an object that one link can name.
pub const LINK_EXTENTS: usize = 1000;
/// How long a link opens if nothing is said, and how long the blocks it names are kept.
pub const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// How long a link opens at most.
pub const LINK_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Extents of an object whose parts are listed.
pub const INFO_EXTENTS: usize = 16 << 10;
/// Blocks of one part in that list.
pub const PART_BLOCKS: usize = 64;

/// What an operator may want to change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time, of one listener; more wait to be accepted.
    pub connections: usize,
    /// TLS handshakes at the same time.
    pub handshakes: usize,
    pub handshake: Duration,
    /// A connection without a request in progress, on which nothing is sent, is closed: so is one
    /// that sends its headers too slowly or does not read its reply.
    pub idle: Duration,
    /// How long the next bytes of an upload may take to come.
    pub upload_idle: Duration,
    /// How long requests in progress may take when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            handshakes: 64,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            upload_idle: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}
