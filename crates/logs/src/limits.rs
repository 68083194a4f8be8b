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
/// Sources of one user.
pub const SOURCES: usize = 1000;
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
/// What is read of a connection of syslog at once, bytes.
pub const SYSLOG_READ_BYTES: usize = 256 << 10;
/// After how long messages of syslog that could not be stored are tried again.
pub const SYSLOG_RETRY: Duration = Duration::from_secs(1);
/// How long connections of syslog may take to end.
pub const SYSLOG_DRAIN: Duration = Duration::from_secs(10);
/// How long it is believed that the user of the syslog door may store records.
pub const SYSLOG_CALLER: Duration = Duration::from_secs(10);
