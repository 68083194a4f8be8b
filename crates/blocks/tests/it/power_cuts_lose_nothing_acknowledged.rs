//! Random workloads are recorded at every sync call and acknowledgement, and power cuts are drawn
//! from each such moment. After each cut the store must hold all that was acknowledged, and nothing
//! that was deleted. Its contents then must also outlast the next power cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::rng::SeededRng;
use cairn_blocks::{Blocks, Store};
use cairn_sim::{SimDisk, Snapshot};
use tokio::task::JoinSet;

use crate::support::{GROUP, TEXT, config, id, is_there, put, run};

/// The knowledge of a block at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Live,
    Dead,
    /// A put or delete of it is under way.
    Unknown,
}

/// Fate and length of every block that was ever begun.
type Model = BTreeMap<u64, (Fate, usize)>;

struct Workload {
    rng: SeededRng,
    disk: SimDisk,
    snapshots: Vec<Snapshot>,
    store: Store,
    /// The models of which one must hold while step `n` is under way.
    during: Vec<Model>,
    model: Model,
    next_id: u64,
}

fn open(disk: &SimDisk, seed: u64) -> Store {
    let mut config = config();
    config.segment_bytes = 24 << 10;
    config.reserve_bytes = 12 << 10;
    config.rng = Arc::new(SeededRng::new(seed));
    Store::open(Arc::new(disk.clone()), config).unwrap()
}

impl Workload {
    fn new(seed: u64, disk: SimDisk, model: Model) -> Workload {
        let next_id = model.keys().map(|id| (id & !TEXT) + 1).max().unwrap_or(0);
        let store = open(&disk, seed);
        disk.record();
        let (during, snapshots) = (Vec::new(), Vec::new());
        Workload { rng: SeededRng::new(seed), disk, snapshots, store, during, model, next_id }
    }

    fn ids(&self, fate: Fate) -> Vec<u64> {
        let with = self.model.iter().filter(|(_, (got, _))| *got == fate);
        with.map(|(id, _)| *id).collect()
    }

    fn len(&self) -> usize {
        match self.rng.below(12) {
            0 => 18_000,
            1..4 => 1 + self.rng.below(6000) as usize,
            _ => 1 + self.rng.below(900) as usize,
        }
    }

    async fn step(&mut self) {
        let mut during = self.model.clone();
        match self.rng.below(20) {
            0..11 => self.put_some(&mut during).await,
            11..17 => self.delete_some(&mut during).await,
            17 | 18 => {
                self.during.push(during);
                self.store.compact(false).unwrap();
            }
            _ => {
                self.during.push(during);
                if self.rng.below(2) == 0 {
                    self.store.close().unwrap();
                }
                // The old store may still be at work: it must not reach the new one's disk.
                self.snapshots.extend(self.disk.recorded());
                self.disk = self.disk.kill();
                self.disk.record();
                self.disk.mark(self.during.len() as u64 - 1);
                self.store = open(&self.disk, self.rng.below(1 << 40));
            }
        }
        self.disk.mark(self.during.len() as u64);
    }

    async fn put_some(&mut self, during: &mut Model) {
        let count = 1 + self.rng.below(4);
        let kind = |id| if id % 3 == 0 { id | TEXT } else { id };
        let new = (0..count).map(|at| (kind(self.next_id + at), self.len()));
        let new: Vec<(u64, usize)> = new.collect();
        self.next_id += count;
        during.extend(new.iter().map(|&(id, len)| (id, (Fate::Unknown, len))));
        self.during.push(std::mem::take(during));
        let mut tasks = JoinSet::new();
        for &(id, len) in &new {
            let store = self.store.clone();
            tasks.spawn(async move { put(&store, id, len).await.unwrap() });
        }
        tasks.join_all().await;
        self.model.extend(new.iter().map(|&(id, len)| (id, (Fate::Live, len))));
    }

    async fn delete_some(&mut self, during: &mut Model) {
        let live = self.ids(Fate::Live);
        let odds = 1 + self.rng.below(4);
        let gone: Vec<u64> = live.into_iter().filter(|_| self.rng.below(4) < odds).collect();
        for id in &gone {
            during.entry(*id).and_modify(|block| block.0 = Fate::Unknown);
        }
        self.during.push(std::mem::take(during));
        let ids: Vec<_> = gone.iter().map(|gone| id(*gone)).collect();
        self.store.delete(GROUP, &ids).await.unwrap();
        for id in &gone {
            self.model.entry(*id).and_modify(|block| block.0 = Fate::Dead);
        }
    }

    fn record(mut self, steps: usize) -> (Vec<Snapshot>, Vec<Model>) {
        let models = run(async {
            for _ in 0..steps {
                self.step().await;
            }
            let mut models = std::mem::take(&mut self.during);
            models.push(self.model.clone());
            models
        });
        drop(self.store);
        self.snapshots.extend(self.disk.recorded());
        (self.snapshots, models)
    }
}

/// Checks a disk against what is known and returns what it turned out to hold.
fn check(disk: &SimDisk, model: &Model, seed: u64) -> Model {
    let store = open(disk, seed);
    assert_eq!(store.open_report().damaged_segments, 0, "a power cut is no damage");
    let mut found = Model::new();
    for (&id, &(fate, len)) in model {
        let there = is_there(&store, id, len);
        match fate {
            Fate::Live => assert!(there, "block {id} was acknowledged and is lost"),
            Fate::Dead => assert!(!there, "block {id} was deleted and is back"),
            Fate::Unknown => {}
        }
        found.insert(id, (if there { Fate::Live } else { Fate::Dead }, len));
    }
    let live = found.values().filter(|(fate, _)| *fate == Fate::Live).count();
    assert_eq!(store.inventory_now(GROUP, None, usize::MAX).len(), live);
    found
}

/// Draws `images` power cuts from each moment. Returns how many there were.
fn cut(seed: u64, snapshots: &[Snapshot], models: &[Model], images: u64, deeper: bool) -> u64 {
    let mut cuts = 0;
    for (at, snapshot) in snapshots.iter().enumerate() {
        for image in 0..images {
            let image_seed = seed * 1_000_003 + at as u64 * 1009 + image;
            let disk = snapshot.crash_image(image_seed);
            let model = &models[snapshot.mark as usize];
            let checked = std::panic::catch_unwind(|| check(&disk, model, image_seed));
            let Ok(found) = checked else {
                panic!("workload {seed}, moment {at} of {}, image {image}", snapshots.len());
            };
            cuts += 1;
            if deeper && image_seed.is_multiple_of(61) {
                let again = Workload::new(image_seed, disk, found);
                let (snapshots, models) = again.record(8);
                cuts += cut(image_seed, &snapshots, &models, 2, false);
            }
        }
    }
    cuts
}

#[test]
fn whenever_they_come() {
    let workloads = 60 * cairn_sim::scale();
    let next = AtomicU64::new(0);
    let cuts = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= workloads {
                return;
            }
            let workload = Workload::new(seed, SimDisk::new(seed), Model::new());
            let (snapshots, models) = workload.record(24);
            cuts.fetch_add(cut(seed, &snapshots, &models, 4, true), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let cuts = cuts.into_inner();
    println!("{cuts} power cuts");
    assert!(cuts >= 500 * workloads, "only {cuts} power cuts");
}
