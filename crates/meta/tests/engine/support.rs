//! Small things that the tests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::Disk;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{Change, EmbeddedEngine, Engine, Fence};
use cairn_sim::SimDisk;

pub type Rows = BTreeMap<Bytes, Bytes>;

/// Everything small, nothing in the background: each run does the same calls.
pub fn small(seed: u64) -> Config {
    Config {
        memtable_bytes: 6 << 10,
        cache_bytes: 256 << 10,
        log_segments: 3,
        log_segment_bytes: 32 << 10,
        reserve_bytes: 0,
        idle: Duration::from_secs(3600),
        background: false,
        rng: Arc::new(SeededRng::new(seed)),
    }
}

/// Returns the config of `small`, with a log that runs out before memory does.
pub fn short_log(seed: u64) -> Config {
    Config { memtable_bytes: 1 << 20, log_segment_bytes: 28 << 10, ..small(seed) }
}

pub fn open(disk: &SimDisk, config: Config) -> cairn_base::Result<EmbeddedEngine> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    EmbeddedEngine::open(disk, config)
}

/// All rows of an engine.
pub fn all(engine: &dyn Engine) -> Rows {
    let snapshot = engine.snapshot().unwrap();
    snapshot.scan(b"", &[0xff; 40], usize::MAX).unwrap().into_iter().collect()
}

pub fn apply(rows: &mut Rows, changes: &[Change]) {
    for (key, value) in changes {
        match value {
            Some(value) => rows.insert(key.clone(), value.clone()),
            None => rows.remove(key),
        };
    }
}

pub fn put(key: &str, value: &str) -> Change {
    (Bytes::copy_from_slice(key.as_bytes()), Some(Bytes::copy_from_slice(value.as_bytes())))
}

pub fn delete(key: &str) -> Change {
    (Bytes::copy_from_slice(key.as_bytes()), None)
}

/// Changes of a few of `keys` rows, a quarter of them deletes; each key at most once.
pub fn random_changes(rng: &SeededRng, keys: u64) -> Vec<Change> {
    let mut changes = BTreeMap::new();
    for _ in 0..rng.below(8) {
        let key = Bytes::from(format!("key-{:04}", rng.below(keys)));
        let fill = rng.below(256) as u8;
        let len = [10, 100, 600, 3000][rng.below(4) as usize];
        let value = (rng.below(4) > 0).then(|| Bytes::from(vec![fill; len]));
        changes.insert(key, value);
    }
    changes.into_iter().collect()
}

/// Commits and follows the fence.
pub fn commit(engine: &dyn Engine, changes: Vec<Change>) -> Fence {
    let fence = engine.fence().unwrap();
    engine.commit(fence, changes).unwrap();
    engine.fence().unwrap()
}
