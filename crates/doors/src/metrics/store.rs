//! Metrics of metadata and of blocks.

use std::time::Duration;

use cairn_auth::Caller;
use cairn_fs::ops::buckets::ListBuckets;
use cairn_fs::rows::Usage as BucketUsage;
use cairn_fs::{Fs, MasterStats, MetaStats, SessionStats, Usage};

use super::number::{Number, counter, counter_seconds, gauge, gauge_seconds};

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) async fn of_store(fs: &Fs) -> Vec<Number> {
    let cache = fs.stats();
    let mut numbers = vec![
        counter("cache_hits", "Pieces of blocks found in memory", cache.cache_hits),
        counter("cache_misses", "Pieces of blocks not found in memory", cache.cache_misses),
        counter("cache_misses_again", "Of them, evicted before", cache.cache_misses_again),
        gauge("cache_bytes", "Bytes of blocks in memory", cache.cache_bytes),
        gauge("cache_limit_bytes", "Bytes there may be at most", cache.cache_limit_bytes),
        gauge("memo_bytes", "Memory of replies and objects used again", fs.memo_bytes()),
        gauge("sending_bytes", "Bytes of bodies that wait for clients", fs.sending().waiting()),
    ];
    numbers.extend(match fs.meta().stats() {
        MetaStats::Local(master) => of_master(&master),
        MetaStats::Remote(session) => of_session(&session),
    });
    let limits = fs.throttled();
    let help = "Requests refused as their user had used up a limit";
    numbers.push(counter("limited_requests", help, limits.refused()));
    let help = "Pauses of bodies and of calls as their user had used up a limit";
    numbers.push(counter("limited_pauses", help, limits.delayed()));
    if let Ok(usage) = fs.blocks().usage().await {
        numbers.extend(of_blocks(&usage));
    }
    numbers
}

/// Most buckets that are shown.
const BUCKETS: usize = 1000;

type OfBucket = fn(&BucketUsage) -> u64;

/// Returns the usage of buckets: the first ones by name.
pub(super) async fn of_buckets(fs: &Fs) -> Vec<Number> {
    let all = ListBuckets { prefix: String::new(), after: String::new(), limit: BUCKETS };
    let Ok((found, next)) = fs.read(&Caller::system(), all).await else { return Vec::new() };
    let help = "Buckets are left out, as there are too many";
    let mut numbers = vec![gauge("bucket_numbers_cut", help, u64::from(next.is_some()))];
    let kinds: [(_, _, OfBucket); 5] = [
        ("bucket_bytes", "Bytes of the objects of a bucket", |usage| usage.bytes),
        ("bucket_objects", "Objects of a bucket", |usage| usage.objects),
        ("bucket_uploads", "Uploads in parts that have begun", |usage| usage.uploads.into()),
        ("bucket_quota_bytes", "Bytes a bucket may have, 0 for any", |usage| usage.quota_bytes),
        ("bucket_quota_objects", "Objects it may have, 0 for any", |usage| usage.quota_objects),
    ];
    for (name, help, of) in kinds {
        numbers.extend(found.iter().map(|(opened, usage)| {
            gauge(name, help, of(usage)).of("bucket", opened.bucket.name.clone())
        }));
    }
    numbers
}

/// Returns the usage of a block store.
pub fn of_blocks(usage: &Usage) -> Vec<Number> {
    vec![
        gauge("blocks", "Blocks on disk", usage.blocks),
        gauge("blocks_live_bytes", "Bytes of blocks that exist", usage.live_bytes),
        gauge("blocks_dead_bytes", "Bytes compaction may win", usage.dead_bytes),
        gauge("blocks_free_bytes", "Bytes free on the file system", usage.free_bytes),
        gauge("blocks_segments", "Segment files", usage.segments),
        gauge("blocks_poisoned_segments", "Segments that failed", usage.poisoned_segments),
        gauge("blocks_damaged_segments", "Segments read in part", usage.damaged_segments),
        counter("blocks_corrupt_reads", "Reads that fail checks", usage.corrupt_reads),
    ]
}

/// Returns the counters of a master.
pub fn of_master(master: &MasterStats) -> Vec<Number> {
    let checkpoints = master.checkpoints;
    let (took, longest) = (micros(checkpoints.took_us), micros(checkpoints.longest_us));
    vec![
        counter("meta_batches", "Metadata batches committed", master.batches),
        counter("meta_ops", "Metadata operations", master.ops),
        counter("meta_rows", "Metadata rows changed", master.rows),
        counter_seconds("meta_commit_seconds", "Time in commits", micros(master.commit_us)),
        counter("meta_commits_failed", "Commits that failed", master.commits_failed),
        counter("meta_op_misses", "Operations that waited for rows", master.op_misses),
        counter("meta_reads_cached", "Reads answered from memory", master.reads_cached),
        counter("meta_reads_missed", "Reads answered by the engine", master.reads_missed),
        gauge("meta_in_flight", "Operations not answered yet", master.in_flight),
        gauge("meta_cache_rows", "Rows in the row cache", master.cache_rows),
        gauge("meta_cache_bytes", "Bytes in the row cache", master.cache_bytes),
        gauge("meta_leases", "Leases of sessions on rows", master.leases),
        gauge("meta_lease_bytes", "Memory of leases", master.lease_bytes),
        gauge("meta_recalls", "Recalls that sessions have not acknowledged", master.recalls),
        gauge("meta_delegated_directories", "Directories of mounts", master.delegated_directories),
        gauge("meta_delegated_files", "Files made there", master.delegated_files),
        gauge("meta_memtable_bytes", "Memory of rows not at rest yet", master.memory_bytes),
        gauge("meta_durable_batch", "The last durable batch", master.durable_batch),
        counter("meta_checkpoints", "Moves of rows from the log to the table", checkpoints.count),
        counter_seconds("meta_checkpoint_seconds", "Time in checkpoints", took),
        gauge_seconds("meta_checkpoint_longest_seconds", "Time of the longest one", longest),
        counter("meta_checkpoint_bytes", "Bytes written to the table", checkpoints.bytes),
    ]
}

fn of_session(session: &SessionStats) -> Vec<Number> {
    vec![
        counter("session_reads_leased", "Reads answered from leased rows", session.reads_leased),
        counter("session_calls", "Calls to a master", session.calls),
        counter("session_reads_asked", "Of them, reads", session.reads_asked),
        counter("session_recalls", "Rows recalled by a master", session.recalls),
        gauge("session_rows", "Leased rows", session.rows),
        gauge("session_bytes", "Bytes of leased rows", session.bytes),
        gauge("session_posted", "Operations not sent yet", session.posted),
        gauge("session_kept", "Operations that may have to be sent again", session.kept),
        gauge("master_silence_seconds", "Since a master answered", session.silence.as_secs()),
    ]
}
