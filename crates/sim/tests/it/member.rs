//! The member of a master that keeps its metadata together with others, on a simulated disk: its
//! files, its start, and what a world sees of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_base::rng::SeededRng;
use cairn_base::{Disk, Result};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::{Member, MemberStore, RaftEngine, Seams, Timing};
use cairn_sim::SimDisk;
use parking_lot::Mutex;

/// The state of a member that others see. Clones share it.
#[derive(Clone, Default)]
pub struct MemberShown {
    pub engine: Arc<Mutex<Option<Arc<RaftEngine>>>>,
    ended: Arc<AtomicBool>,
    /// Set once its files are made: it was allowed to begin.
    pub entered: Arc<AtomicBool>,
}

impl MemberShown {
    pub fn clear(&self) {
        let engine = self.engine.lock().take();
        self.ended.store(false, Ordering::Relaxed);
        drop(engine);
    }

    /// Its process has ended by itself.
    pub fn end(&self) {
        self.clear();
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Its scrub has found nothing, since no disk of a member rots here, and its rows are those of
    /// the others.
    pub fn assert_whole(&self) {
        let engine = self.engine.lock();
        let Some(member) = engine.as_ref().map(|engine| engine.member()) else { return };
        let found = [member.damage(), member.undecided()];
        assert_eq!(found, [None, None]);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub fn has_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }

    /// Makes the files of a new member. What an earlier attempt has left that did not begin is
    /// removed.
    pub fn make(&self, disk: &SimDisk, config: &Config, id: u64, generation: u64) -> Result<()> {
        for name in disk.list()? {
            disk.remove(&name)?;
        }
        MemberStore::make(disk, config, id, generation)?;
        self.entered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Starts the member whose files are on `disk`. Must be called within its host.
    pub async fn open(
        &self,
        disk: &SimDisk,
        config: Config,
        id: u64,
        seams: Seams,
    ) -> Result<Arc<RaftEngine>> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let member = Member::open(disk, config, id, seams, Timing::default()).await?;
        let engine = Arc::new(RaftEngine::new(member));
        *self.engine.lock() = Some(Arc::clone(&engine));
        Ok(engine)
    }
}

/// So small that logs come round and snapshots are needed.
pub fn config(rng: &Arc<SeededRng>) -> Config {
    Config {
        memtable_bytes: 6 << 10,
        cache_bytes: 256 << 10,
        log_segments: 3,
        log_segment_bytes: 32 << 10,
        reserve_bytes: 0,
        idle: Duration::from_secs(3600),
        background: false,
        rng: Arc::clone(rng) as _,
    }
}
