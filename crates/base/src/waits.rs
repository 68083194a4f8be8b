//! How long Cairn waits: for somebody before it gives up, and between two attempts.
//!
//! Times that belong to a protocol are beside its other limits (`limits.rs` of `cluster` and of
//! `doors`); what a user may set is where it is read.

use std::time::Duration;

// For a master.

/// An operation or a read of a session, for any master that answers. Then it is `Unavailable`.
pub const MASTER: Duration = Duration::from_secs(30);
/// An answer to a beat, to a wish for a certificate or for the map.
pub const BEAT: Duration = Duration::from_secs(3);
/// An answer to a message of a session: a change waits for sessions that have to let go, at most
/// for a lease.
pub const SESSION_ANSWER: Duration = Duration::from_secs(20);
/// A gateway, for the master that serves, before it tells a mount that there is none.
pub const MOUNT_MASTER: Duration = Duration::from_secs(2);
/// `cairn cluster ...`, for all masters together.
pub const ADMIN: Duration = Duration::from_secs(10);
/// Between two attempts to find the master that serves.
pub const MASTER_RETRY: Duration = Duration::from_millis(100);
/// Between two rounds of an operator's request in which no master served.
pub const ADMIN_RETRY: Duration = Duration::from_millis(100);
/// A master that does not serve, before it waits for its turn again.
pub const TURN_RETRY: Duration = Duration::from_secs(1);
/// How soon a node has to beat again whose connection has ended.
pub const BEAT_AGAIN: Duration = Duration::from_millis(1500);

// For a server, by a mount.

/// A request, for a server that is there and does not answer: its disk may have stalled.
pub const SLOW_SERVER: Duration = Duration::from_secs(90);
/// Connecting to a door, and its answer.
pub const MOUNT_DIAL: Duration = Duration::from_secs(5);
/// The answer that a server is there.
pub const MOUNT_SERVES: Duration = Duration::from_secs(3);
/// A read or a write of a block, while the server is gone. Then it fails.
pub const MOUNT_BLOCKS: Duration = Duration::from_secs(30);
/// One server of several, before the next one is tried: the session may be elsewhere by then.
pub const MOUNT_BLOCKS_TRY: Duration = Duration::from_secs(2);
/// Between two attempts to read or write a block.
pub const MOUNT_BLOCKS_RETRY: Duration = Duration::from_millis(100);
/// Between two attempts to reach the server, at most.
pub const MOUNT_RETRY_MAX: Duration = Duration::from_millis(500);

// For blocks, and room for them.

/// Between two looks at a block that somebody else is writing.
pub const BUSY_BLOCK_RETRY: Duration = Duration::from_millis(20);
/// Between two looks at a map that did not change, when no group takes a block.
pub const MAP_RETRY: Duration = Duration::from_millis(50);
/// Before the block of an append is written once more.
pub const APPEND_RETRY: Duration = Duration::from_millis(200);
/// Half of the time before the second attempt to complete an upload, at most; twice as long before
/// each further one.
pub const COMPLETE_RETRY: Duration = Duration::from_millis(10);
/// A writer of a file, for room in the memory of what is not written back. Then it fails.
pub const DIRTY_ROOM: Duration = SLOW_SERVER;
/// Between two looks at that room.
pub const DIRTY_ROOM_LOOK: Duration = Duration::from_secs(1);
/// A mount that was told to end and writes nothing back for so long ends without the rest.
pub const WRITTEN_BACK: Duration = Duration::from_mins(10);
/// A member that did not catch up, before it looks again.
pub const CATCH_UP_RETRY: Duration = Duration::from_secs(1);
/// Between the first look at the blocks of a session that has ended, and the second one.
pub const LATE_BLOCKS: Duration = Duration::from_mins(1);

// For PostgreSQL.

/// Between two attempts to connect, or to renew the lease.
pub const DATABASE_RETRY: Duration = Duration::from_millis(100);

// For clients, and by them.

/// An S3 client, for a reply without a sign of life; then it gets white space.
pub const S3_SILENCE: Duration = Duration::from_secs(5);
/// A loop that accepts connections, after an accept failed: other connections end meanwhile.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// A node that is refused for its version, between two lines of the log that say the same.
pub const REFUSED_AGAIN: Duration = Duration::from_mins(1);
/// A command, for the connection to a server.
pub const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// A command, from the last byte of its request to the first one of the reply: collecting garbage
/// takes longest.
pub const CLIENT_REPLY: Duration = Duration::from_secs(300);
/// `cairn doctor`, for what a server has counted.
pub const DOCTOR: Duration = Duration::from_secs(10);
/// `cairn inflight`, for what a process says of itself.
pub const INFLIGHT: Duration = Duration::from_secs(5);
/// A process, for whoever asked that to take the answer.
pub const INFLIGHT_TAKEN: Duration = Duration::from_secs(1);
/// A collector of traces, for each batch. Then the batch is dropped.
pub const TRACES: Duration = Duration::from_secs(5);

// For backups.

/// A request of a backup to its source or target, for a server that could be reached before and
/// cannot be reached now: then the backup fails, and the next one goes on.
pub const BACKUP_AGAIN: Duration = Duration::from_mins(2);
/// Before the second attempt; twice as long before each further one, at most
/// [`BACKUP_RETRY_MAX`].
pub const BACKUP_RETRY: Duration = Duration::from_millis(250);
pub const BACKUP_RETRY_MAX: Duration = Duration::from_secs(10);
/// A request of a backup, to its end: then it counts as cut.
pub const BACKUP_REQUEST: Duration = Duration::from_mins(15);
