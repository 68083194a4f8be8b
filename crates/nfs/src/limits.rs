//! The limits of clients: their calls, how much of each, and how much memory that takes.

use std::time::Duration;

/// Programs, and the version in which both are here.
pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const VERSION: u32 = 3;

/// Bytes of one READ or WRITE, and of a part of a listing.
pub const IO_BYTES: u32 = 1 << 20;
/// Bytes that a listing is best asked for in.
pub const LIST_BYTES: u32 = 64 << 10;
/// Bytes of a call: those of a WRITE, and what is before them.
pub const RECORD_BYTES: usize = IO_BYTES as usize + (8 << 10);
/// Bytes of a datagram that is a call.
pub const DATAGRAM_BYTES: usize = 8 << 10;
/// Bytes that are read from a connection at once, where it is not known how many come.
pub const READ_BYTES: usize = 16 << 10;

/// Calls of a connection that are worked on at the same time.
pub const CALLS: usize = 64;
/// Bytes of calls and of replies that one connection takes. No call is taken while there are more.
pub const CONNECTION_BYTES: usize = 8 << 20;
/// The same of all connections from one address, or /64 of IPv6, beyond one call of each.
pub const PARTY_BYTES: usize = 64 << 20;
/// Bytes of all calls longer than [`COPIED_BYTES`] that come or are at work, of all clients. One
/// address, or /64 of IPv6, has three quarters of it at most, and others take turns with it.
pub const LONG_BYTES: u64 = 128 << 20;
/// Bytes that are read for clients at the same time, of which one address has three quarters.
pub const READING_BYTES: u64 = 16 << 20;
/// A call that reads has that room for so long at most: a longer one waits for a part of the store
/// that does not answer, and the reads of others do not wait for that.
pub const ROOM_HELD: Duration = Duration::from_millis(250);
/// An entry of a listing costs so much more than as many bytes of a file.
pub const LISTING_COST: u64 = 4;
/// A call has to come to its end within.
pub const COMES: Duration = Duration::from_secs(300);
/// The same of a call longer than [`COPIED_BYTES`], while others wait for the room that it holds.
pub const COMES_WANTED: Duration = Duration::from_secs(30);
/// A turn of a connection: so many calls that it answers, so many bytes of these and of their
/// replies, and the time for which it does so, before others have their turn.
pub const TURN_CALLS: usize = 64;
pub const TURN_BYTES: usize = 256 << 10;
pub const TURN: Duration = Duration::from_millis(1);
/// Turns at the same time, for each thread. Addresses, or /64 of IPv6, that want one have it one
/// after the other, however many connections they have.
pub const TURNS: u64 = 2;
/// A longer call keeps the memory that it was read into.
pub const COPIED_BYTES: usize = 64 << 10;
/// A client that takes no byte of its replies for so long is gone.
pub const STALLED: Duration = Duration::from_secs(60);
/// A connection on which nobody asks for so long is closed. Clients make another one.
pub const IDLE: Duration = Duration::from_secs(900);
/// How long replies may still be on their way when the server stops.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Bytes of credentials, and of a verifier.
pub const AUTH_BYTES: usize = 400;
/// Bytes of the name of a machine in credentials.
pub const MACHINE_BYTES: usize = 255;
/// Groups in credentials.
pub const GROUPS: usize = 16;
/// Bytes of a handle in a call, whoever made it.
pub const HANDLE_BYTES: usize = 64;
/// Bytes of a name in a call. Longer names than the store takes get an answer that says so.
pub const NAME_BYTES: usize = 4096;
/// Bytes of the target of a symbolic link, likewise.
pub const TARGET_BYTES: usize = 8192;
/// Bytes of a path to mount.
pub const MOUNT_BYTES: usize = 1024;

/// Files with bytes that are not written back and that a client may COMMIT.
pub const HELD_FILES: usize = 4096;
/// Bytes written and not written back, of all files: beyond that writers wait.
pub const DIRTY_BYTES: u64 = 128 << 20;
/// Of what one address, or /64 of IPv6, has written.
pub const DIRTY_BYTES_EACH: u64 = DIRTY_BYTES / 4;

/// Calls by datagrams that are worked on at the same time, and those of one address.
pub const DATAGRAMS: usize = 64;
pub const DATAGRAMS_EACH: usize = 16;

/// How long a reply is kept: as long as the store knows at least that a call was done.
pub const REPLY_KEPT: Duration = Duration::from_secs(180);
/// Replies that are kept for a client, and clients of which some are.
pub const REPLIES: usize = 2048;
pub const REPLIED_CLIENTS: usize = 1024;
