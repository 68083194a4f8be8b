//! The limits of clients: the number and sizes of their calls, and the memory that these take.

use std::time::Duration;

/// Numbers of the RPC programs, and the version of NFS and MOUNT that is served.
pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const VERSION: u32 = 3;

/// Bytes of one READ or WRITE, and of a part of a listing.
pub const IO_BYTES: u32 = 1 << 20;
/// Preferred size of a listing, bytes.
pub const LIST_BYTES: u32 = 64 << 10;
/// Bytes of a call: the data of a WRITE, and everything before the data.
pub const RECORD_BYTES: usize = IO_BYTES as usize + (8 << 10);
/// Bytes of a call that is a datagram.
pub const DATAGRAM_BYTES: usize = 8 << 10;
/// Bytes that are read from a connection at once, if the size of the next call is unknown.
pub const READ_BYTES: usize = 16 << 10;

/// Number of calls of a connection that are worked on at the same time.
pub const CALLS: usize = 64;
/// Bytes of calls and replies of one connection. No call is taken while there are more.
pub const CONNECTION_BYTES: usize = 8 << 20;
/// Bytes of calls and replies of all connections from one address, or /64 of IPv6, beyond one call
/// of each connection.
pub const PARTY_BYTES: usize = 64 << 20;
/// Bytes of all calls longer than [`COPIED_BYTES`] that arrive or are at work, of all clients. One
/// address, or /64 of IPv6, has three quarters of it at most, and takes turns with others.
pub const LONG_BYTES: u64 = 128 << 20;
/// Bytes that may be read for clients at the same time. One address has three quarters of it at
/// most.
pub const READING_BYTES: u64 = 16 << 20;
/// Longest time that a READ may hold its part of `READING_BYTES`. A longer READ waits for a part of
/// the store that does not answer, and must not delay those of other clients.
pub const ROOM_HELD: Duration = Duration::from_millis(250);
/// Factor by which a byte of a listing costs more than a byte of a file, in `READING_BYTES`.
pub const LISTING_COST: u64 = 4;
/// Deadline for receiving a whole call.
pub const COMES: Duration = Duration::from_secs(300);
/// Deadline for receiving a call longer than [`COPIED_BYTES`] while others wait for the memory that
/// it holds.
pub const COMES_WANTED: Duration = Duration::from_secs(30);
/// Limits of one turn of a connection: calls answered, bytes of these calls and their replies, and
/// time. Then other connections have their turn.
pub const TURN_CALLS: usize = 64;
pub const TURN_BYTES: usize = 256 << 10;
pub const TURN: Duration = Duration::from_millis(1);
/// Number of turns at the same time, per thread. Addresses, or /64 of IPv6, that want a turn get it
/// one after the other, however many connections they have.
pub const TURNS: u64 = 2;
/// Calls longer than this, bytes, keep the memory that they were read into; shorter calls are
/// copied.
pub const COPIED_BYTES: usize = 64 << 10;
/// A client that takes no byte of its replies for this long is disconnected.
pub const STALLED: Duration = Duration::from_secs(60);
/// A connection without calls for this long is closed. Clients make another one.
pub const IDLE: Duration = Duration::from_secs(900);
/// Time that calls and replies get to finish when the server stops.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Bytes of credentials, and of a verifier.
pub const AUTH_BYTES: usize = 400;
/// Bytes of a machine's name in credentials.
pub const MACHINE_BYTES: usize = 255;
/// Number of groups in credentials.
pub const GROUPS: usize = 16;
/// Bytes of a handle in a call, wherever the handle comes from.
pub const HANDLE_BYTES: usize = 64;
/// Bytes of a name in a call. Names up to this size that the store does not take are refused by a
/// status.
pub const NAME_BYTES: usize = 4096;
/// Bytes of the target of a symbolic link; targets up to this size are refused by a status, too.
pub const TARGET_BYTES: usize = 8192;
/// Bytes of the path of a mount.
pub const MOUNT_BYTES: usize = 1024;

/// Number of files with bytes that are not written back and that a client may COMMIT.
pub const HELD_FILES: usize = 4096;
/// Bytes written and not written back, of all files: beyond this, writers wait.
pub const DIRTY_BYTES: u64 = 128 << 20;
/// Bytes written and not written back, of one address, or /64 of IPv6.
pub const DIRTY_BYTES_EACH: u64 = DIRTY_BYTES / 4;

/// Number of calls in datagrams that are worked on at the same time, and those of one address.
pub const DATAGRAMS: usize = 64;
pub const DATAGRAMS_EACH: usize = 16;

/// Time for which a reply is kept: the time for which the store remembers, at least, that a call
/// was done.
pub const REPLY_KEPT: Duration = Duration::from_secs(180);
/// Number of replies that are kept for a client, and number of clients with kept replies.
pub const REPLIES: usize = 2048;
pub const REPLIED_CLIENTS: usize = 1024;
