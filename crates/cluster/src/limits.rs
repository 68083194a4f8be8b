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
/// Read from a socket at once, bytes.
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
/// From the first byte to the end of all handshakes; and how long each part of one may take while
/// others wait for its place.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
pub const HANDSHAKE_WANTED: Duration = Duration::from_secs(2);
/// Dialing one address, handshakes included.
pub const DIAL: Duration = Duration::from_secs(5);
/// After so long without an answer the next address is tried as well.
pub const HELD_UP: Duration = Duration::from_secs(1);

/// A message between masters that keep metadata together, until its answer; mostly its sender waits
/// for less. After a dialing failed, no other one begins for so long.
pub const MEMBER_CALL: Duration = Duration::from_secs(60);
pub const MEMBER_REDIAL: Duration = Duration::from_millis(100);
/// A master's answer about its own member. As long the master that serves waits for others to
/// answer before it refuses to remove one; it looks that often.
pub const MEMBER_REPORT: Duration = Duration::from_secs(3);
/// The same of a master that the one that serves does not hear: it is likely to be down.
pub const MEMBER_REPORT_AWAY: Duration = Duration::from_millis(500);
pub const MEMBER_LOOK: Duration = Duration::from_millis(100);
/// Entries that a learner may lack when it becomes a voter, and a voter when it becomes the leader.
pub const MEMBER_LAG: u64 = 1000;

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

/// Connections for blocks that a chunkserver has open.
pub const DATA_CONNECTIONS: usize = 4096;
/// A connection for blocks over which no byte went for that long ends, at the latest after twice
/// that.
pub const DATA_IDLE: Duration = Duration::from_secs(60);
/// The size of hyper's read buffer, bytes: the head of a request or answer fits.
pub const DATA_BUFFER_BYTES: usize = 256 << 10;
/// Headers of a request or answer.
pub const DATA_HEADERS: usize = 32;
/// Blocks that a chunkserver is receiving at one place of their chains, bytes.
pub const PUT_BYTES: usize = 64 << 20;
/// The least that one of them counts for: more at once are of no use.
pub const PUT_BYTES_MIN: usize = 256 << 10;
/// Answers that a chunkserver has read and not sent, bytes.
pub const GET_BYTES: usize = 256 << 20;
/// Up to this length a block is read on the thread of the connection if it is in memory, bytes.
pub const GET_INLINE_BYTES: usize = 512 << 10;
/// Blocks in one request to delete.
pub const DELETE_BLOCKS: usize = 1000;
/// Blocks in one page of an inventory.
pub const INVENTORY_BLOCKS: usize = 8192;
/// An error as an answer, bytes.
pub const ERROR_BYTES: usize = 16 << 10;

/// Connections for blocks that a node keeps to each other one while it has no use for them, and
/// for how long: less than the other side keeps them.
pub const IDLE_CONNECTIONS: usize = 32;
pub const IDLE: Duration = Duration::from_secs(30);
/// Requests for blocks of one client that a node has not answered yet, each over a connection of
/// its own, unless something else is said. No more than `DATA_CONNECTIONS` make sense.
pub const NODE_REQUESTS: usize = 256;

/// Writing a block, all attempts together; how many these are, and each of them.
pub const WRITE: Duration = Duration::from_secs(10);
pub const WRITE_ATTEMPTS: usize = 6;
pub const WRITE_ATTEMPT: Duration = Duration::from_secs(4);
/// By this much sooner than the node before it, a node gives up the node after it. So the node that
/// does not answer is named, and not those that wait for it.
pub const HOP: Duration = Duration::from_millis(300);
/// A chunkserver works on one PUT at most that long, whatever the writer says.
pub const PUT: Duration = Duration::from_secs(30);
/// One node's time to answer a GET, and when the next node is asked too.
pub const GET: Duration = Duration::from_secs(5);
pub const HEDGE: Duration = Duration::from_millis(500);
/// One node's time to answer any other request about blocks.
pub const DATA_CALL: Duration = Duration::from_secs(10);
/// One node's time to answer about its scrub: much less than a call of an operator has.
pub const SCRUB_CALL: Duration = Duration::from_secs(3);
/// How long a node that failed is avoided.
pub const SUSPECT: Duration = Duration::from_secs(2);
/// Waiting for a newer map, before looking again.
pub const REFRESH: Duration = Duration::from_millis(500);
/// A member with less space is not written to while there are others, bytes.
pub const ROOM_BYTES: u64 = 1 << 30;

/// Blocks copied at the same time by a member that catches up.
pub const COPIES: usize = 4;
/// Blocks that could not be copied after which catching up gives up.
pub const COPIES_FAILED: usize = 1000;
/// Of the blocks that were copied for a group, those that are named in the report.
pub const COPIES_NAMED: usize = 250_000;

/// Connections over which a master is administered, and how many of them one node may have; calls
/// over one of them that are not answered yet.
pub const ADMIN_CONNECTIONS: usize = 64;
pub const ADMIN_NODE_CONNECTIONS: usize = 8;
pub const ADMIN_CALLS: u32 = 4;
/// The longest request, bytes; the headers of one; the longest answer.
pub const ADMIN_REQUEST_BYTES: usize = 64 << 10;
pub const ADMIN_HEADER_BYTES: u32 = 8 << 10;
pub const ADMIN_ANSWER_BYTES: usize = 8 << 20;
/// The longest text of an error, bytes.
pub const ADMIN_ERROR_BYTES: usize = 2 << 10;
/// Objects that are named as damaged or degraded, and the bytes of all their ranges: they fit in
/// one answer.
pub const DEGRADED_NAMES: usize = 5_000;
pub const DEGRADED_NAMES_BYTES: usize = 4 << 20;
/// Blocks of which the objects are looked up, of each kind.
pub const DEGRADED_BLOCKS: usize = 100_000;
/// Bodies, files and names that are collected for them in each step.
pub const DEGRADED_HITS: usize = 400_000;
/// Inodes, directories, bodies and uploads that one pass of an fsck over the rows has in memory,
/// some 150 bytes each.
pub const FSCK_KEPT: usize = 4_000_000;
/// Rows that a master reads a second for an fsck, or to name objects.
pub const PACED_ROWS: u32 = 100_000;
/// Blocks, and rows of extents, that are compared at a time with what chunkservers have.
pub const FSCK_BLOCKS: usize = 500_000;
pub const FSCK_CHUNKS: u64 = 250_000;
/// How often a block that is missing is looked up before that is not decided, and the time between.
pub const FSCK_LOOKS: usize = 5;
pub const FSCK_AGAIN: Duration = Duration::from_secs(2);
/// The findings of an fsck that are named, bytes: they fit in an answer beside the objects.
pub const FSCK_FINDINGS_BYTES: usize = 1 << 20;
/// The name of the user for whom a node orders an fsck, bytes.
pub const FSCK_USER_BYTES: usize = 255;
/// The least blocks that a member is asked to list.
pub const COMPARE_PAGE_LEAST: usize = 64;
/// So long the names of objects are kept for all who ask for them.
pub const DEGRADED_KEPT: Duration = Duration::from_secs(5);
/// A master works on one call at most that long.
pub const ADMIN_CALL: Duration = Duration::from_secs(10);
/// A connection gets no more calls after that long, whether it was used or not.
pub const ADMIN_AGE: Duration = Duration::from_secs(300);
/// A side that was silent for so long is pinged, and dead when it is silent for as long again.
pub const ADMIN_KEEP_ALIVE: Duration = Duration::from_secs(2);
/// From when on a request for blocks is logged as slow.
pub const SLOW: Duration = Duration::from_secs(1);

/// Bytes that the mounts of one user may have written as blocks and not published, here. An honest
/// mount has there what it has just written back, and what it wrote of files that went meanwhile.
pub const UNPUBLISHED_BYTES: u64 = 16 << 30;
/// So many bytes each such block counts at least.
pub const UNPUBLISHED_LEAST: u64 = 16 << 10;
/// Mounts whose sessions a gateway brings to the master, each with a connection of its own there;
/// three quarters of them of one user, at most.
pub const MOUNTS: usize = 512;
/// Connections of mounts at a gateway or server; three quarters of them of one user, at most.
pub const MOUNT_CONNECTIONS: usize = 4096;
/// Questions about the metadata that are asked at the same time for a connection of a mount, until
/// the answers are sent: each up to 8 MiB.
pub const MOUNT_READS: usize = 16;
/// Memory for running requests of all mounts, bytes, and as much for their posted operations; three
/// quarters of it for one user, at most. The bytes of a request count that many times: it is
/// decoded, kept to be run again, and answered.
pub const MOUNTS_ASKED_BYTES: usize = 128 << 20;
pub const MOUNT_ASKED_TIMES: usize = 4;
/// Memory for requests of all mounts that arrived and are not answered, bytes, whether they run or
/// wait for room; three quarters of it for one user, at most. A connection that brings more ends.
pub const MOUNTS_HELD_BYTES: usize = 512 << 20;
/// Blocks of all mounts that came and are not written, bytes; three quarters of them of one user,
/// at most. A block counts as that many at least.
pub const MOUNTS_PUT_BYTES: usize = 256 << 20;
pub const MOUNT_PUT_LEAST_BYTES: u64 = 16 << 10;
/// A block that finds no room is dropped. It waits that long for its turn before its mount is told,
/// and room is then kept that long for the mount to send the block again.
pub const MOUNT_PUT_PAUSE: Duration = Duration::from_secs(2);
pub const MOUNT_PUT_TURN: Duration = Duration::from_secs(10);
/// Up to this length a request that lets others go on waits for no room, bytes.
pub const MOUNT_SHORT_BYTES: usize = 4 << 10;
/// Blocks that were read for a connection of a mount, and for all of them, and not sent, bytes;
/// three quarters of them for one user, at most.
pub const MOUNT_GET_BYTES: usize = 32 << 20;
pub const MOUNTS_GET_BYTES: usize = 256 << 20;
