//! Every limit of the doors, in one place. The size of a request is bounded before memory is taken
//! for it.

use std::time::Duration;

/// Connections waiting to be accepted.
pub const BACKLOG: u32 = 4096;
/// A connection on which nothing comes is probed after so long, then so often, and is gone where so
/// many probes are not answered. So is one where nothing that was sent is acknowledged for so long.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub const KEEPALIVE_PROBES: u32 = 4;
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(120);
/// The request line and all headers, bytes.
pub const HEADER_BYTES: usize = 64 << 10;
/// The most that is read ahead and buffered of one connection, bytes.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of files that wait for all clients who were led to their blocks: beyond that, one piece of
/// each waits, and not two.
pub const SENDING_BYTES: u64 = 64 << 20;
/// Requests that one HTTP/2 connection may have open.
pub const STREAMS: u32 = 64;
/// Requests in progress in a process, at least and at most: as many as one in
/// [`REQUESTS_PART`] of the memory has room for, if each takes [`REQUEST_BYTES`].
pub const REQUESTS_MIN: u64 = 1024;
pub const REQUESTS_MAX: u64 = 16 << 10;
pub const REQUESTS_PART: u64 = 8;
pub const REQUEST_BYTES: u64 = 16 << 10;
/// How long a client waits that found no place for its request, seconds.
pub const NO_PLACE_SECS: u64 = 1;
/// One in so many connections of a door waits for a place, beyond those that have one.
pub const WAITING_PART: usize = 8;
/// Looks in a row at which a client was slow, after which its connection ends where others wait for
/// its place.
pub const SLOW_LOOKS: u32 = 2;
/// Flow control windows of HTTP/2, bytes: of one upload and of a connection.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
pub const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Ranges of one request that are answered one by one; more than that get the whole object.
pub const RANGES: usize = 16;
/// The body of a request that is JSON, bytes.
pub const JSON_BYTES: usize = 64 << 10;
/// The rest of a refused upload is read and thrown away if it is no longer than this, bytes, and
/// takes no longer. A client that is still sending then sees why, and the connection lives.
pub const LINGER_BYTES: u64 = 16 << 20;
pub const LINGER: Duration = Duration::from_secs(5);
/// Memory for all bodies that are read whole, bytes: records to append and JSON; XML. No user takes
/// the last quarter of it.
pub const APPEND_BYTES: u64 = 64 << 20;
pub const XML_BYTES: u64 = 64 << 20;
/// The same for records of logs, and how long a shipper waits for it before it is told to come
/// later.
pub const LOGS_BYTES: u64 = 128 << 20;
pub const LOGS_PATIENCE: Duration = Duration::from_secs(5);
/// Memory for all archives that are sent, and for one of them, bytes: for each object six times
/// its key, and 256.
pub const ZIPS_BYTES: u64 = 64 << 20;
pub const ZIP_BYTES: usize = 16 << 20;
/// Followers at the same time: no user and no network has more than three quarters of them, and all
/// together they hold at most one in so many connections of the door.
pub const FOLLOWERS: u64 = 4096;
pub const FOLLOWERS_PART: u64 = 2;
/// How often it is decided again whether one may go on, and after how long a silence the client is
/// shown that the connection is alive.
pub const FOLLOW_CHECK: Duration = Duration::from_secs(2);
pub const FOLLOW_ALIVE: Duration = Duration::from_secs(15);
/// An `Idempotency-Key`, bytes.
pub const IDEMPOTENCY_KEY_BYTES: usize = 256;
/// It is taken as bytes come: as much again as there is, but no less and no more at once, bytes.
pub const BODY_STEP_MIN: usize = 16 << 10;
pub const BODY_STEP_MAX: usize = 256 << 10;
/// An upload that holds room while others wait for it comes at least this fast, bytes a second, by
/// what came within [`Limits::upload_window`].
pub const UPLOAD_LEAST_RATE: u64 = 16 << 10;
/// Parameters of a query, and headers that a signature covers.
pub const QUERY_PARAMETERS: usize = 64;
pub const SIGNED_HEADERS: usize = 100;
/// Bytes of an object that are looked at to find out its type.
pub const SNIFF_BYTES: usize = 512;
/// Headers that a page asks to send at once.
pub const PREFLIGHT_HEADERS: usize = 64;
/// User metadata of an object: how many.
pub const USER_METADATA: usize = 64;

/// Wrong credentials with one key id from one network within [`FAILURES_WINDOW`], after which the
/// reply to each further one is held back for [`FAILURES_DELAY`]. Right ones never wait.
pub const FAILURES: u32 = 100;
pub const FAILURES_WINDOW: Duration = Duration::from_secs(60);
pub const FAILURES_DELAY: Duration = Duration::from_secs(2);
/// The secret of an access key that is made here, characters at least. Those of before stay.
pub const NEW_SECRET_BYTES: usize = 16;
/// How many networks and key ids are remembered.
pub const FAILURE_SOURCES: usize = 4096;
/// The part of a key id that is remembered, characters: existing ids are no longer.
pub const FAILURE_ID_CHARS: usize = 64;

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

/// How long a share link opens if nothing is said, and at most.
pub const SHARE_LINK_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
pub const SHARE_LINK_LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Passwords of share links that are checked at the same time, and those that are remembered.
pub const PASSWORDS: u64 = 4;
pub const PASSWORDS_KNOWN: usize = 1024;
/// How long a password waits to be checked.
pub const PASSWORDS_PATIENCE: Duration = Duration::from_secs(20);
/// Wrong passwords of one link, after which so many of it are decided on at a time, and each of
/// them only after so long; after twice as many wrong ones it is twice as long, and so on up to so
/// many times. How long it takes without a wrong one until they are forgotten.
pub const LINK_FAILURES: u32 = 100;
pub const LINK_DELAYS: u32 = 5;
pub const LINK_PASSWORDS: u64 = 8;
pub const LINK_PASSWORD_DELAY: Duration = Duration::from_secs(2);
pub const LINK_FAILURES_WINDOW: Duration = Duration::from_secs(600);
/// A password, bytes.
pub const PASSWORD_BYTES: usize = 256;

/// The name of a file that comes by a share link, bytes.
pub const SHARED_NAME_BYTES: usize = 200;
/// Files, and their bytes, that a share link takes by default.
pub const SHARED_FILES: u64 = 100;
pub const SHARED_BYTES: u64 = 10 << 30;
/// How long a resumable upload waits for its next bytes.
pub const RESUMABLE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Its bytes become durable in stretches of this size, or larger ones if it is very long, and no
/// stretch but the last is smaller than the least, bytes.
pub const RESUMABLE_STRETCH: u64 = 16 << 20;
pub const RESUMABLE_LEAST: u64 = 128 << 10;

/// Limits that an operator may want to change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time, of one listener. No address has more than three times what is
    /// free of them; more wait.
    pub connections: usize,
    /// TLS handshakes at the same time; no network takes the last quarter of them.
    pub handshakes: usize,
    pub handshake: Duration,
    /// The same while others wait for its place.
    pub handshake_wanted: Duration,
    /// A connection without a request in progress, on which nothing is sent, is closed: so is one
    /// that sends its headers too slowly or does not read its reply.
    pub idle: Duration,
    /// The same while others wait to be accepted.
    pub idle_wanted: Duration,
    /// How long the next bytes of an upload may take to come.
    pub upload_idle: Duration,
    /// The time over which it is looked whether an upload comes fast enough while others wait.
    pub upload_window: Duration,
    /// How long requests in progress may take when the server stops.
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
