//! Every limit of the intake, in one place.

use std::time::Duration;

/// The body of a request, as it is sent and as it is unpacked, bytes.
pub const BODY_BYTES: usize = 16 << 20;
/// The lines that one request may become, bytes: labels are repeated in each of them.
pub const LINES_BYTES: usize = 32 << 20;
/// Records of one request: each that is refused is named in the answer.
pub const RECORDS: usize = 1 << 16;
/// One line, bytes.
pub const RECORD_BYTES: usize = 1 << 20;
/// Memory that a zstd stream may ask for to look back at, bytes: the most that RFC 8878 recommends.
pub const ZSTD_WINDOW_BYTES: u64 = 8 << 20;
/// The name of a source, encoded, bytes: names of directories have 255 at most.
pub const SOURCE_BYTES: usize = 200;
/// The `_id` of an item of `_bulk`, bytes, as Elasticsearch has it.
pub const ID_BYTES: usize = 512;
/// What an item of `_bulk` takes besides its bytes: what is known of it, and its answer.
pub const ITEM_BYTES: usize = 256;
/// Sources of one bucket, and of one request.
pub const SOURCES: usize = 1000;
/// Sources whose records are counted by level; the others are counted together.
pub const LEVEL_SOURCES: usize = 1000;
/// How long a full list of sources is believed.
pub const SOURCES_FRESH: Duration = Duration::from_secs(10);
/// Labels of a stream and metadata of an entry, as JSON, bytes.
pub const LABELS_BYTES: usize = 64 << 10;
/// Values within values: of OpenTelemetry, and of JSON.
pub const DEPTH: u32 = 32;
pub const JSON_DEPTH: u32 = 128;
/// Files of one request that are appended to at the same time.
pub const FILES_AT_ONCE: usize = 16;
/// Users whose names are remembered, and buckets whose sources are.
pub const REMEMBERED: usize = 4096;
/// Bytes that are read of a connection of syslog at once. All connections share the memory for
/// bytes that wait: no network takes the last quarter of it.
pub const SYSLOG_READ_BYTES: usize = 64 << 10;
pub const SYSLOG_BYTES: u64 = 128 << 20;
/// How long a message of syslog may take to come, once it has begun, and a handshake.
pub const SYSLOG_MESSAGE: Duration = Duration::from_secs(60);
pub const SYSLOG_HANDSHAKE: Duration = Duration::from_secs(10);
/// After how long messages of syslog that could not be stored are tried again.
pub const SYSLOG_RETRY: Duration = Duration::from_secs(1);
/// How long connections of syslog may take to end.
pub const SYSLOG_DRAIN: Duration = Duration::from_secs(10);
/// How long it is believed that the user of the syslog door may store records.
pub const SYSLOG_CALLER: Duration = Duration::from_secs(10);
/// What is kept of the end of a file that is followed, and of all of them, bytes: at least all that
/// comes with one append.
pub const TAIL_BYTES: usize = 4 << 20;
pub const TAILS_BYTES: u64 = 64 << 20;
pub const TAIL_PIECE_BYTES: usize = 64 << 10;
/// How often a file that is followed is looked at although nobody said that it changed, and the
/// same where nobody would.
pub const TAIL_LOOK: Duration = Duration::from_secs(5);
pub const TAIL_LOOK_UNLEASED: Duration = Duration::from_millis(500);
/// After how long it is looked at again where that failed.
pub const TAIL_RETRY: Duration = Duration::from_millis(500);
/// Bytes that a follower is given at once: as they are, and as events.
pub const FOLLOW_BYTES: usize = 256 << 10;
pub const FOLLOW_EVENTS_BYTES: usize = 16 << 10;
/// A longer line is sent as several events, bytes.
pub const EVENT_BYTES: usize = 64 << 10;
/// Lines that a follower may begin with, and how far it is looked back for them, bytes, in steps.
pub const LAST_LINES: usize = 10_000;
pub const LAST_LINES_BYTES: u64 = 16 << 20;
pub const LAST_LINES_STEP: u64 = 128 << 10;
/// How often it is looked whether a source has the file of another day.
pub const DAY_LOOK: Duration = Duration::from_secs(1);
/// How long after its end the file of a day is followed: requests on their way, and clocks that are
/// behind, may add to it.
pub const DAY_LATE: Duration = Duration::from_secs(600);
/// The settings of retention, bytes.
pub const RETENTION_BYTES: u64 = 64 << 10;
/// Names that one step of retention lists: it deletes no more files than that.
pub const RETENTION_NAMES: usize = 100;
/// How long after its end the file of a day is compressed as a whole.
pub const SETTLE_AFTER: Duration = Duration::from_secs(3600);
/// The shortest rest after a block of a file was looked at to be compressed.
pub const SETTLE_REST: Duration = Duration::from_millis(1);
/// Files of which it is remembered how far they are compressed.
pub const SETTLED_FILES: usize = 200_000;
/// The time between two looks from which on a clock is not believed.
pub const CLOCK_JUMP: Duration = Duration::from_secs(24 * 3600);
