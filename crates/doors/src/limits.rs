//! Every limit of the doors, in one place. The size of a request is bounded before memory is taken
//! for it.

use std::time::Duration;

/// Number of connections that wait to be accepted.
pub const BACKLOG: u32 = 4096;
/// TCP keepalive: time without traffic before the first probe, time between probes, and number of
/// unanswered probes after which a connection is dead. It is also dead if sent data stays
/// unacknowledged for the last of these times.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub const KEEPALIVE_PROBES: u32 = 4;
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(120);
/// Bytes of the request line and all headers.
pub const HEADER_BYTES: usize = 64 << 10;
/// Most bytes that are read ahead and buffered for one connection.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of files that wait for all clients of links: beyond this, only one piece of each file
/// waits, and not two.
pub const SENDING_BYTES: u64 = 64 << 20;
/// Number of requests that one HTTP/2 connection may have open.
pub const STREAMS: u32 = 64;
/// Requests in progress in a process, at least and at most: the number for which one
/// [`REQUESTS_PART`] of the memory has room, if each takes [`REQUEST_BYTES`].
pub const REQUESTS_MIN: u64 = 1024;
pub const REQUESTS_MAX: u64 = 16 << 10;
pub const REQUESTS_PART: u64 = 8;
pub const REQUEST_BYTES: u64 = 16 << 10;
/// Seconds after which a client whose request found no place should try again.
pub const NO_PLACE_SECS: u64 = 1;
/// Fraction of a door's connections that may wait for a place, in addition to those that have one:
/// one of this many.
pub const WAITING_PART: usize = 8;
/// Number of looks in a row at which a client was slow after which its connection ends, if others
/// wait for its place.
pub const SLOW_LOOKS: u32 = 2;
/// Flow control windows of HTTP/2, bytes: of one upload and of a connection.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
pub const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Number of ranges of one request that are answered one by one; a request with more gets the whole
/// object.
pub const RANGES: usize = 16;
/// Bytes of a JSON body.
pub const JSON_BYTES: usize = 64 << 10;
/// Limits of the rest of a refused upload that is read and thrown away: bytes and time. A client
/// that is still sending then sees the reason, and the connection lives.
pub const LINGER_BYTES: u64 = 16 << 20;
pub const LINGER: Duration = Duration::from_secs(5);
/// Bytes of memory for all bodies that are read whole: records to append and JSON; XML. No user
/// takes the last quarter of it.
pub const APPEND_BYTES: u64 = 64 << 20;
pub const XML_BYTES: u64 = 64 << 20;
/// Bytes of memory for all bodies with records of logs, and the time that a shipper waits for it
/// before it is asked to come later.
pub const LOGS_BYTES: u64 = 128 << 20;
pub const LOGS_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of memory for all archives in progress, and for one of them: for each object six times its
/// key, and 256.
pub const ZIPS_BYTES: u64 = 64 << 20;
pub const ZIP_BYTES: usize = 16 << 20;
/// Longest wait of an archive for its memory.
pub const ZIP_WAIT: Duration = Duration::from_secs(20);
/// Limits on followers at the same time: their number, of which no user and no network has more
/// than three quarters, and the fraction of the door's connections that all of them together may
/// hold (one of this many).
pub const FOLLOWERS: u64 = 4096;
pub const FOLLOWERS_PART: u64 = 2;
/// Period at which it is decided again whether a follower may go on, and time without bytes after
/// which the client gets a sign that the connection is alive.
pub const FOLLOW_CHECK: Duration = Duration::from_secs(2);
pub const FOLLOW_ALIVE: Duration = Duration::from_secs(15);
/// Bytes of an `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES: usize = 256;
/// Bytes of memory that a body takes at once, as its bytes arrive: as much as it already has,
/// within these limits.
pub const BODY_STEP_MIN: usize = 16 << 10;
pub const BODY_STEP_MAX: usize = 256 << 10;
/// Slowest rate, bytes per second, of an upload that holds room while others wait for it, measured
/// over [`Limits::upload_window`].
pub const UPLOAD_LEAST_RATE: u64 = 16 << 10;
/// Number of parameters of a query, and of headers that a signature covers.
pub const QUERY_PARAMETERS: usize = 64;
pub const SIGNED_HEADERS: usize = 100;
/// Bytes of an object that are examined to find its type.
pub const SNIFF_BYTES: usize = 512;
/// Number of headers that a page may ask to send in one preflight.
pub const PREFLIGHT_HEADERS: usize = 64;
/// Number of user metadata of an object.
pub const USER_METADATA: usize = 64;

/// Number of wrong credentials with one key id from one network within [`FAILURES_WINDOW`] after
/// which the reply to each further one is delayed by [`FAILURES_DELAY`]. Right credentials never
/// wait.
pub const FAILURES: u32 = 100;
pub const FAILURES_WINDOW: Duration = Duration::from_secs(60);
pub const FAILURES_DELAY: Duration = Duration::from_secs(2);
/// Shortest secret of an access key that is made here, characters. Older secrets stay valid.
pub const NEW_SECRET_BYTES: usize = 16;
/// Number of sources of wrong credentials that are remembered: pairs of network and key id, and
/// share links.
pub const FAILURE_SOURCES: usize = 4096;
/// Number of characters of a key id that are remembered: existing ids are no longer.
pub const FAILURE_ID_CHARS: usize = 64;

/// Bytes of the path of a link to an object: with the host, far below the limits of clients and
/// proxies.
pub const LINK_BYTES: usize = 7 << 10;
/// Number of extents of an object that one link can name.
pub const LINK_EXTENTS: usize = 1000;
/// Default lifetime of a link, and time for which the blocks that it names are kept.
pub const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Longest lifetime of a link.
pub const LINK_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Number of extents of an object whose parts are listed.
pub const INFO_EXTENTS: usize = 16 << 10;
/// Number of blocks of one part in that list.
pub const PART_BLOCKS: usize = 64;

/// Default and longest lifetime of a share link.
pub const SHARE_LINK_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
pub const SHARE_LINK_LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Number of passwords of share links that are checked at the same time, and number of those that
/// are remembered.
pub const PASSWORDS: u64 = 4;
pub const PASSWORDS_KNOWN: usize = 1024;
/// Longest wait of a password to be checked.
pub const PASSWORDS_PATIENCE: Duration = Duration::from_secs(20);
/// Protection of a share link against guessing. After `LINK_FAILURES` wrong passwords, only
/// `LINK_PASSWORDS` are checked at a time, each after `LINK_PASSWORD_DELAY`. Each further
/// `LINK_FAILURES` wrong passwords add the same delay, up to `LINK_DELAYS` times. They are
/// forgotten after `LINK_FAILURES_WINDOW` without a wrong one.
pub const LINK_FAILURES: u32 = 100;
pub const LINK_DELAYS: u32 = 5;
pub const LINK_PASSWORDS: u64 = 8;
pub const LINK_PASSWORD_DELAY: Duration = Duration::from_secs(2);
pub const LINK_FAILURES_WINDOW: Duration = Duration::from_secs(600);
/// Bytes of a password.
pub const PASSWORD_BYTES: usize = 256;

/// Bytes of the name of a file that is added by a share link.
pub const SHARED_NAME_BYTES: usize = 200;
/// Default number of files, and of their bytes, that a share link takes.
pub const SHARED_FILES: u64 = 100;
pub const SHARED_BYTES: u64 = 10 << 30;
/// Time for which a resumable upload waits for its next bytes.
pub const RESUMABLE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sizes of the stretches in which a resumable upload becomes durable, bytes: the usual size
/// (larger for very long uploads), and the smallest, except for the last stretch.
pub const RESUMABLE_STRETCH: u64 = 16 << 20;
pub const RESUMABLE_LEAST: u64 = 128 << 10;

/// Limits that an operator may want to change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time, of one listener. No address has more than three times as many
    /// as are free; further ones wait.
    pub connections: usize,
    /// TLS handshakes at the same time; no network takes the last quarter of them.
    pub handshakes: usize,
    pub handshake: Duration,
    /// Longest handshake while others wait for its place.
    pub handshake_wanted: Duration,
    /// Time after which a connection is closed that has no request in progress and sends nothing,
    /// sends its headers too slowly, or does not read its reply.
    pub idle: Duration,
    /// Idle time after which such a connection is closed while others wait to be accepted.
    pub idle_wanted: Duration,
    /// Longest wait for the next bytes of an upload.
    pub upload_idle: Duration,
    /// Period over which the rate of an upload is measured while others wait.
    pub upload_window: Duration,
    /// Time that requests in progress get to finish when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            handshakes: 64,
            handshake: Duration::from_secs(10),
            handshake_wanted: Duration::from_secs(2),
            idle: Duration::from_secs(75),
            idle_wanted: Duration::from_secs(5),
            upload_idle: Duration::from_secs(60),
            upload_window: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}
