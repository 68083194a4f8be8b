//! The limits of the intake, all in one place.

use std::time::Duration;

/// Bytes of the body of a request, as it is sent and as it is unpacked.
pub const BODY_BYTES: usize = 16 << 20;
/// Bytes of the lines that one request may become: labels are repeated in each line.
pub const LINES_BYTES: usize = 32 << 20;
/// Number of records in one request: the reply names each that is refused.
pub const RECORDS: usize = 1 << 16;
/// Bytes of one line.
pub const RECORD_BYTES: usize = 1 << 20;
/// Bytes of memory that a zstd stream may use as its window: the most that RFC 8878 recommends.
pub const ZSTD_WINDOW_BYTES: u64 = 8 << 20;
/// Bytes of a source's name, encoded: names of directories have 255 at most.
pub const SOURCE_BYTES: usize = 200;
/// Bytes of the `_id` of an item of `_bulk`, as in Elasticsearch.
pub const ID_BYTES: usize = 512;
/// Bytes of memory for an item of `_bulk` beyond its own bytes: its state and its part of the
/// reply.
pub const ITEM_BYTES: usize = 256;
/// Number of sources of one bucket, and of one request.
pub const SOURCES: usize = 1000;
/// Number of sources whose records are counted by level; the others are counted together.
pub const LEVEL_SOURCES: usize = 1000;
/// Time for which a full list of sources is trusted.
pub const SOURCES_FRESH: Duration = Duration::from_secs(10);
/// Bytes of the labels of a stream, and of the metadata of an entry, as JSON.
pub const LABELS_BYTES: usize = 64 << 10;
/// Depth of nested values: of OpenTelemetry, and of JSON.
pub const DEPTH: u32 = 32;
pub const JSON_DEPTH: u32 = 128;
/// Number of files that one request appends to at the same time.
pub const FILES_AT_ONCE: usize = 16;
/// Number of users whose names are remembered, and of buckets whose sources are.
pub const REMEMBERED: usize = 4096;
/// Bytes read from a syslog connection at once, and bytes of memory for all bytes that wait, which
/// all connections share: no network takes the last quarter of it.
pub const SYSLOG_READ_BYTES: usize = 64 << 10;
pub const SYSLOG_BYTES: u64 = 128 << 20;
/// Deadlines for receiving a whole syslog message, once it has begun, and for a handshake.
pub const SYSLOG_MESSAGE: Duration = Duration::from_secs(60);
pub const SYSLOG_HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause before syslog messages that could not be stored are tried again.
pub const SYSLOG_RETRY: Duration = Duration::from_secs(1);
/// Time that syslog connections get to end when the server stops.
pub const SYSLOG_DRAIN: Duration = Duration::from_secs(10);
/// Time for which the user of the syslog door is trusted to be allowed to store records.
pub const SYSLOG_CALLER: Duration = Duration::from_secs(10);
/// Bytes kept of the end of a followed file, of the ends of all files, and of one piece. The end
/// holds at least the bytes of one append.
pub const TAIL_BYTES: usize = 4 << 20;
pub const TAILS_BYTES: u64 = 64 << 20;
pub const TAIL_PIECE_BYTES: usize = 64 << 10;
/// Period at which a followed file is looked at without notice of a change, and the period for
/// files whose changes cause no notice.
pub const TAIL_LOOK: Duration = Duration::from_secs(5);
pub const TAIL_LOOK_UNLEASED: Duration = Duration::from_millis(500);
/// Pause before a followed file is looked at again after an error.
pub const TAIL_RETRY: Duration = Duration::from_millis(500);
/// Bytes sent to a follower at once: as they are, and as events.
pub const FOLLOW_BYTES: usize = 256 << 10;
pub const FOLLOW_EVENTS_BYTES: usize = 16 << 10;
/// Bytes of an event; a longer line is sent as several events.
pub const EVENT_BYTES: usize = 64 << 10;
/// Limits of the lines that a follower may begin with: their number, the bytes searched backwards
/// for them, and the bytes of one step of the search.
pub const LAST_LINES: usize = 10_000;
pub const LAST_LINES_BYTES: u64 = 16 << 20;
pub const LAST_LINES_STEP: u64 = 128 << 10;
/// Period between two checks whether a source has the file of another day.
pub const DAY_LOOK: Duration = Duration::from_secs(1);
/// Time for which the file of a day is still followed after the day's end: requests on their way,
/// and clocks that are behind, may add to it.
pub const DAY_LATE: Duration = Duration::from_secs(600);
/// Bytes of the settings of retention.
pub const RETENTION_BYTES: u64 = 64 << 10;
/// Number of names that one step of retention lists: it deletes no more files than that.
pub const RETENTION_NAMES: usize = 100;
/// Time between the end of a day and the compression of its file as a whole.
pub const SETTLE_AFTER: Duration = Duration::from_secs(3600);
/// Shortest pause after a block of a file was considered for compression.
pub const SETTLE_REST: Duration = Duration::from_millis(1);
/// Number of files whose compressed length is remembered.
pub const SETTLED_FILES: usize = 200_000;
/// Time between two looks from which on the clock is not trusted.
pub const CLOCK_JUMP: Duration = Duration::from_secs(24 * 3600);
