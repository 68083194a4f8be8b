//! Waits of Cairn: timeouts, and pauses between two attempts.
//!
//! Times that belong to a protocol are beside its other limits (`limits.rs` of `cluster` and of
//! `doors`). A time that users may set is defined where it is read.

use std::time::Duration;

// Waits for masters.

/// Timeout of a session's operation or read, until some master answers; then it is `Unavailable`.
pub const MASTER: Duration = Duration::from_secs(30);
/// Timeout of a beat, and of a request for a certificate or for the map.
pub const BEAT: Duration = Duration::from_secs(3);
/// Timeout of a session's message: a change waits for sessions that must give up rows, at most for
/// one lease.
pub const SESSION_ANSWER: Duration = Duration::from_secs(20);
/// Time that a gateway looks for the serving master before it reports to a mount that there is
/// none.
pub const MOUNT_MASTER: Duration = Duration::from_secs(2);
/// Timeout of `cairn cluster ...` for all masters together.
pub const ADMIN: Duration = Duration::from_secs(10);
/// Pause between two attempts to find the serving master.
pub const MASTER_RETRY: Duration = Duration::from_millis(100);
/// Pause between two rounds of an operator's request in which no master served.
pub const ADMIN_RETRY: Duration = Duration::from_millis(100);
/// Pause of a master that does not serve, before it waits for its turn again.
pub const TURN_RETRY: Duration = Duration::from_secs(1);
/// Time within which a node whose connection has ended must beat again.
pub const BEAT_AGAIN: Duration = Duration::from_millis(1500);

// Waits of mounts for a server.

/// Timeout of a request to a server that is reachable and does not answer: its disk may have
/// stalled.
pub const SLOW_SERVER: Duration = Duration::from_secs(90);
/// Timeout for connecting to a door, and for its answer.
pub const MOUNT_DIAL: Duration = Duration::from_secs(5);
/// Timeout for the answer that a server is reachable.
pub const MOUNT_SERVES: Duration = Duration::from_secs(3);
/// Time for which a read or a write of a block is retried while the server is gone; then it fails.
pub const MOUNT_BLOCKS: Duration = Duration::from_secs(30);
/// Time for one of several servers, before the next one is tried: the session may have moved.
pub const MOUNT_BLOCKS_TRY: Duration = Duration::from_secs(2);
/// Pause between two attempts to read or write a block.
pub const MOUNT_BLOCKS_RETRY: Duration = Duration::from_millis(100);
/// Longest pause between two attempts to reach the server.
pub const MOUNT_RETRY_MAX: Duration = Duration::from_millis(500);

// Waits for blocks, and for room for them.

/// Pause between two looks at a block that somebody else is writing.
pub const BUSY_BLOCK_RETRY: Duration = Duration::from_millis(20);
/// Pause between two looks at an unchanged map, when no group takes a block.
pub const MAP_RETRY: Duration = Duration::from_millis(50);
/// Pause before the block of an append is written once more.
pub const APPEND_RETRY: Duration = Duration::from_millis(200);
/// Upper bound of half the pause before the second attempt to complete an upload. It doubles for
/// each further attempt.
pub const COMPLETE_RETRY: Duration = Duration::from_millis(10);
/// Time that a writer of a file waits for room for dirty data; then the write fails.
pub const DIRTY_ROOM: Duration = SLOW_SERVER;
/// Pause between two looks at that room.
pub const DIRTY_ROOM_LOOK: Duration = Duration::from_secs(1);
/// Time without any write-back after which a mount that was ordered to end gives up the rest.
pub const WRITTEN_BACK: Duration = Duration::from_mins(10);
/// Pause of a member that did not catch up, before it looks again.
pub const CATCH_UP_RETRY: Duration = Duration::from_secs(1);
/// Time between the first and the second look at the blocks of an ended session.
pub const LATE_BLOCKS: Duration = Duration::from_mins(1);

// Waits for PostgreSQL.

/// Pause between two attempts to connect, or to renew the lease.
pub const DATABASE_RETRY: Duration = Duration::from_millis(100);

// Waits for clients, and of clients.

/// Time without a reply after which an S3 client gets white space as a sign of life.
pub const S3_SILENCE: Duration = Duration::from_secs(5);
/// Pause of a loop that accepts connections, after a failed accept: other connections end
/// meanwhile.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time between two equal log lines about a node that is refused for its version.
pub const REFUSED_AGAIN: Duration = Duration::from_mins(1);
/// Timeout of a command for connecting to a server.
pub const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// Timeout of a command from the last byte of its request to the first byte of the reply. Garbage
/// collection takes longest.
pub const CLIENT_REPLY: Duration = Duration::from_secs(300);
/// Timeout of `cairn doctor` for the counters of a server.
pub const DOCTOR: Duration = Duration::from_secs(10);
/// Timeout of `cairn inflight` for the report of a process.
pub const INFLIGHT: Duration = Duration::from_secs(5);
/// Timeout of a process for a reader of its report to take it.
pub const INFLIGHT_TAKEN: Duration = Duration::from_secs(1);
/// Timeout for sending one batch to a collector of traces; then the batch is dropped.
pub const TRACES: Duration = Duration::from_secs(5);

// Waits of backups.

/// Time for which a backup retries a request to a server that could be reached before; then the
/// backup fails, and the next one goes on.
pub const BACKUP_AGAIN: Duration = Duration::from_mins(2);
/// Pause before the second attempt; it doubles before each further one, up to [`BACKUP_RETRY_MAX`].
pub const BACKUP_RETRY: Duration = Duration::from_millis(250);
pub const BACKUP_RETRY_MAX: Duration = Duration::from_secs(10);
/// Timeout of a whole request of a backup; then it counts as cut.
pub const BACKUP_REQUEST: Duration = Duration::from_mins(15);
