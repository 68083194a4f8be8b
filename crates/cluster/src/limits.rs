//! Every limit of the connections between nodes, and of moving blocks over them.

use std::time::Duration;

/// The longest payload of a frame, bytes.
pub const PAYLOAD_BYTES: usize = 8 << 20;
/// The longest body of a hello, bytes.
pub const HELLO_BYTES: usize = 4 << 10;
/// The longest payload of a request to join and of its answer, bytes.
pub const JOIN_BYTES: usize = 64 << 10;
/// Payloads up to this length are copied: into the bytes that are written together, and out of the
/// bytes that were read. So a small payload that is kept does not keep a large buffer.
pub const COPY_BYTES: usize = 16 << 10;
/// Bytes that are read from a socket at once.
pub const READ_BYTES: usize = 64 << 10;
/// Bytes waiting to be written above which no further request of the peer is begun.
pub const WRITE_BYTES: usize = 1 << 20;
/// Requests of one side that the other has not answered yet.
pub const WINDOW_CALLS: u32 = 4096;
/// The bytes of these requests, headers included.
pub const WINDOW_BYTES: u32 = 32 << 20;

/// Connections of one listener, and how many of them may be in their handshake; three quarters of
/// these from one address, at most.
pub const CONNECTIONS: usize = 4096;
pub const HANDSHAKES: usize = 256;
/// Nodes that join at the same moment, three quarters of them from one address, at most.
pub const JOINS: usize = 16;
/// Time from the first byte to the end of all handshakes; and the time that each part of a
/// handshake may take while other connections wait for its place.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
pub const HANDSHAKE_WANTED: Duration = Duration::from_secs(2);
/// Deadline of dialing one address, handshakes included.
pub const DIAL: Duration = Duration::from_secs(5);
/// Time without an answer after which the next address is tried as well.
pub const HELD_UP: Duration = Duration::from_secs(1);

/// Deadline of the answer to a message between masters that keep the metadata together; most
/// senders wait for less. After a failed attempt to dial, no new attempt begins until
/// `MEMBER_REDIAL` is over.
pub const MEMBER_CALL: Duration = Duration::from_secs(60);
pub const MEMBER_REDIAL: Duration = Duration::from_millis(100);
/// Deadline of a master's report about its own member. Before the leader refuses to remove a
/// master, it waits equally long for other masters to answer, and checks every `MEMBER_LOOK`.
pub const MEMBER_REPORT: Duration = Duration::from_secs(3);
/// Deadline of the report of a master from which the leader receives no beats: it is likely to be
/// down.
pub const MEMBER_REPORT_AWAY: Duration = Duration::from_millis(500);
pub const MEMBER_LOOK: Duration = Duration::from_millis(100);
/// Entries that a learner may lack when it becomes a voter, and a voter when it becomes the leader.
pub const MEMBER_LAG: u64 = 1000;

/// Longest text of a join token, in characters; the most addresses in it; the longest address, in
/// bytes.
pub const TOKEN_CHARS: usize = 6 << 10;
pub const TOKEN_ADDRESSES: usize = 16;
pub const ADDRESS_BYTES: usize = 255;

/// Validity of a node's certificate. It is renewed after two thirds of this time.
pub const CERTIFICATE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Validity of the certificate of a cluster's authority.
pub const AUTHORITY: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Age that a certificate has when it is issued, since the clocks of nodes differ.
pub const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// Open connections for blocks at a chunkserver, at most.
pub const DATA_CONNECTIONS: usize = 4096;
/// Time after which an idle connection for blocks is closed, at the latest after twice this time.
pub const DATA_IDLE: Duration = Duration::from_secs(60);
/// The size of hyper's read buffer, bytes: the head of a request or answer fits.
pub const DATA_BUFFER_BYTES: usize = 256 << 10;
/// Headers of a request or answer, at most.
pub const DATA_HEADERS: usize = 32;
/// Bytes of blocks that a chunkserver is receiving at one position of their chains, at most.
pub const PUT_BYTES: usize = 64 << 20;
/// Least number of bytes that a block counts for in `PUT_BYTES`: more blocks at once are of no use.
pub const PUT_BYTES_MIN: usize = 256 << 10;
/// Bytes of answers that a chunkserver has read and not sent, at most.
pub const GET_BYTES: usize = 256 << 20;
/// Longest block, in bytes, that is read on the thread of the connection if it is in memory.
pub const GET_INLINE_BYTES: usize = 512 << 10;
/// Blocks in one request to delete, at most.
pub const DELETE_BLOCKS: usize = 1000;
/// Blocks in one page of an inventory, at most.
pub const INVENTORY_BLOCKS: usize = 8192;
/// Longest error in an answer, bytes.
pub const ERROR_BYTES: usize = 16 << 10;

/// Idle connections for blocks that a node keeps to each other node, and how long it keeps them:
/// less than the other side does.
pub const IDLE_CONNECTIONS: usize = 32;
pub const IDLE: Duration = Duration::from_secs(30);
/// Unanswered requests for blocks that one client sends to a node by default, each over a
/// connection of its own. More than `DATA_CONNECTIONS` make no sense.
pub const NODE_REQUESTS: usize = 256;

/// Deadline of writing a block, all attempts together; the number of attempts; deadline of each
/// attempt.
pub const WRITE: Duration = Duration::from_secs(10);
pub const WRITE_ATTEMPTS: usize = 6;
pub const WRITE_ATTEMPT: Duration = Duration::from_secs(4);
/// Difference between the deadlines of two neighbours in a chain: a node gives up on the next node
/// earlier than the previous node gives up on it. So the error names the node that does not answer,
/// and not those that wait for it.
pub const HOP: Duration = Duration::from_millis(300);
/// Longest time that a chunkserver works on one PUT, whatever the writer allows.
pub const PUT: Duration = Duration::from_secs(30);
/// Deadline of one node's answer to a GET; time after which the next node is asked too.
pub const GET: Duration = Duration::from_secs(5);
pub const HEDGE: Duration = Duration::from_millis(500);
/// Deadline of one node's answer to any other request about blocks.
pub const DATA_CALL: Duration = Duration::from_secs(10);
/// Deadline of one node's answer about its scrub: much shorter than that of an operator's call.
pub const SCRUB_CALL: Duration = Duration::from_secs(3);
/// Time for which a node that failed is avoided.
pub const SUSPECT: Duration = Duration::from_secs(2);
/// Longest wait for a newer map before the state is checked again.
pub const REFRESH: Duration = Duration::from_millis(500);
/// Free bytes below which a member gets no writes while other members have more.
pub const ROOM_BYTES: u64 = 1 << 30;

/// Blocks that a member copies at the same time while it catches up.
pub const COPIES: usize = 4;
/// Blocks that could not be copied, after which catching up gives up.
pub const COPIES_FAILED: usize = 1000;
/// Blocks copied for a group that the report lists, at most.
pub const COPIES_NAMED: usize = 250_000;

/// Connections to a master for administration; how many of them one node may have; unanswered calls
/// on one of them.
pub const ADMIN_CONNECTIONS: usize = 64;
pub const ADMIN_NODE_CONNECTIONS: usize = 8;
pub const ADMIN_CALLS: u32 = 4;
/// Longest request, bytes; longest headers of a request; longest answer.
pub const ADMIN_REQUEST_BYTES: usize = 64 << 10;
pub const ADMIN_HEADER_BYTES: u32 = 8 << 10;
pub const ADMIN_ANSWER_BYTES: usize = 8 << 20;
/// The longest text of an error, bytes.
pub const ADMIN_ERROR_BYTES: usize = 2 << 10;
/// Objects that an answer lists as damaged or degraded, and the bytes of all their ranges: they fit
/// in one answer.
pub const DEGRADED_NAMES: usize = 5_000;
pub const DEGRADED_NAMES_BYTES: usize = 4 << 20;
/// Blocks of each kind whose objects are looked up, at most.
pub const DEGRADED_BLOCKS: usize = 100_000;
/// Bodies, files and names that are collected for these blocks in each step, at most.
pub const DEGRADED_HITS: usize = 400_000;
/// Inodes, directories, bodies and uploads that one pass of an fsck over the rows has in memory, at
/// most, at some 150 bytes each.
pub const FSCK_KEPT: usize = 4_000_000;
/// Rows that a master reads per second for an fsck, or to name objects.
pub const PACED_ROWS: u32 = 100_000;
/// Blocks, and rows of extents, that are compared in one step with what chunkservers have.
pub const FSCK_BLOCKS: usize = 500_000;
pub const FSCK_CHUNKS: u64 = 250_000;
/// Number of times that a missing block is looked up before it counts as unknown; the pause
/// between.
pub const FSCK_LOOKS: usize = 5;
pub const FSCK_AGAIN: Duration = Duration::from_secs(2);
/// Bytes of the findings that an fsck lists: they fit in an answer beside the objects.
pub const FSCK_FINDINGS_BYTES: usize = 1 << 20;
/// Longest name of the user for whom a node orders an fsck, bytes.
pub const FSCK_USER_BYTES: usize = 255;
/// Least number of blocks that a member is asked to list.
pub const COMPARE_PAGE_LEAST: usize = 64;
/// Time for which the names of objects are kept for all callers that ask for them.
pub const DEGRADED_KEPT: Duration = Duration::from_secs(5);
/// Longest time that a master works on one call.
pub const ADMIN_CALL: Duration = Duration::from_secs(10);
/// Age at which a connection takes no more calls, whether it was used or not.
pub const ADMIN_AGE: Duration = Duration::from_secs(300);
/// Time of silence after which a side is pinged; it is dead after the same time again.
pub const ADMIN_KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Duration from which a request for blocks is logged as slow.
pub const SLOW: Duration = Duration::from_secs(1);

/// Bytes that the mounts of one user may have written here as blocks and not published. For an
/// honest mount these are what it has just written back, and what it wrote of files that were
/// removed meanwhile.
pub const UNPUBLISHED_BYTES: u64 = 16 << 30;
/// Least number of bytes that each such block counts for.
pub const UNPUBLISHED_LEAST: u64 = 16 << 10;
/// Mounts whose sessions a gateway relays to the master, at most, each over a connection of its
/// own; three quarters of them may belong to one user.
pub const MOUNTS: usize = 512;
/// Connections of mounts at a gateway or server, at most; three quarters of them may belong to one
/// user.
pub const MOUNT_CONNECTIONS: usize = 4096;
/// Queries of the metadata that run at the same time for one connection of a mount, counted until
/// their answers are sent: each answer has up to 8 MiB.
pub const MOUNT_READS: usize = 16;
/// Memory for running requests of all mounts, bytes, and as much for their posted operations; one
/// user gets at most three quarters of it. The bytes of a request count `MOUNT_ASKED_TIMES` times:
/// it is decoded, kept to be run again, and answered.
pub const MOUNTS_ASKED_BYTES: usize = 128 << 20;
pub const MOUNT_ASKED_TIMES: usize = 4;
/// Memory for requests of all mounts that have arrived and are not answered, bytes, whether they
/// run or wait for room; one user gets at most three quarters of it. A connection that sends more
/// is closed.
pub const MOUNTS_HELD_BYTES: usize = 512 << 20;
/// Bytes of blocks of all mounts that have arrived and are not written, at most; one user gets at
/// most three quarters of them. A block counts for `MOUNT_PUT_LEAST_BYTES` at least.
pub const MOUNTS_PUT_BYTES: usize = 256 << 20;
pub const MOUNT_PUT_LEAST_BYTES: u64 = 16 << 10;
/// A block that finds no room is dropped. Its mount waits at most `MOUNT_PUT_PAUSE` for its turn
/// before it gets the error; then room is reserved for `MOUNT_PUT_TURN`, so that it can send the
/// block again.
pub const MOUNT_PUT_PAUSE: Duration = Duration::from_secs(2);
pub const MOUNT_PUT_TURN: Duration = Duration::from_secs(10);
/// Longest request, in bytes, that waits for no room if it lets other requests go on.
pub const MOUNT_SHORT_BYTES: usize = 4 << 10;
/// Bytes of blocks that were read and not sent, for one connection of a mount and for all of them;
/// one user gets at most three quarters of the latter.
pub const MOUNT_GET_BYTES: usize = 32 << 20;
pub const MOUNTS_GET_BYTES: usize = 256 << 20;
