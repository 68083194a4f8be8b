//! A store on a simulated disk, and the shortest ways to use it.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Disk, Error, Result, Rng, UserId};
use cairn_blocks::{Blocks, Store};
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::multipart::{CreateUpload, TakenPart, UploadName};
use cairn_fs::ops::sessions::Format;
use cairn_fs::rows::{BucketKind, ObjectAttributes};
use cairn_fs::{CompletedUpload, Config, Digester, Fs, PutRequest};
use cairn_meta::Master;
use cairn_meta::engine::embedded::{self, EmbeddedEngine};
use cairn_sim::SimDisk;

use crate::watched::Watched;

pub const BUCKET: &str = "bucket";

pub struct World {
    pub disk: SimDisk,
    pub fs: Fs,
    pub store: Store,
}

/// Runs a test on a runtime of two threads, as a server has.
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

pub fn root() -> Caller {
    Caller::verified(UserId::ROOT)
}

/// Reproducible bytes.
pub fn data(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    SeededRng::new(seed).fill(&mut bytes);
    bytes.into()
}

impl World {
    pub async fn new(seed: u64) -> World {
        let world = World::on(SimDisk::new(seed), seed).await.unwrap();
        world.make_bucket().await;
        world
    }

    async fn make_bucket(&self) {
        let (name, kind) = (BUCKET.into(), BucketKind::S3);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        self.fs.run(&root(), bucket).await.unwrap();
    }

    /// One whose blocks are watched.
    pub async fn watched(seed: u64, config: Config) -> (World, Arc<Watched>) {
        let (world, blocks) = World::watched_on(SimDisk::new(seed), seed, config).await;
        world.make_bucket().await;
        (world, blocks)
    }

    async fn watched_on(disk: SimDisk, seed: u64, config: Config) -> (World, Arc<Watched>) {
        let mut watched = None;
        let over =
            |store| -> Arc<dyn Blocks> { Arc::clone(watched.insert(Watched::new(store))) as _ };
        let world = World::over(disk, seed, config, over).await.unwrap();
        (world, watched.unwrap())
    }

    /// Opens what is on a disk.
    pub async fn on(disk: SimDisk, seed: u64) -> Result<World> {
        World::over(disk, seed, Config::default(), |store| Arc::new(store)).await
    }

    async fn over(
        disk: SimDisk,
        seed: u64,
        of_fs: Config,
        over: impl FnOnce(Store) -> Arc<dyn Blocks>,
    ) -> Result<World> {
        let rng = Arc::new(SeededRng::new(seed));
        let clock = Arc::new(RealClock::default());
        let config = embedded::Config {
            memtable_bytes: 256 << 10,
            log_segments: 3,
            log_segment_bytes: 1 << 20,
            reserve_bytes: 64 << 10,
            background: false,
            rng: rng.clone(),
            ..embedded::Config::default()
        };
        let engine = EmbeddedEngine::open(disk.sub("meta")?, config)?;
        let master = Master::start(Arc::new(engine), clock.clone(), Default::default())?;
        let format = Format { cluster: 1 };
        master.run(&Caller::system(), format).await?;
        let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
        config.segment_bytes = 8 << 20;
        config.reserve_bytes = 64 << 10;
        config.rng = rng.clone();
        let store = Store::open(disk.sub("blocks")?, config)?;
        let blocks = over(store.clone());
        let fs = Fs::start(master, blocks, clock, &*rng, of_fs).await?;
        Ok(World { disk, fs, store })
    }

    /// The store after the death of the process.
    pub async fn killed(self, seed: u64) -> World {
        let disk = self.disk.kill();
        World::on(disk, seed).await.unwrap()
    }

    /// As [`World::killed`], and its blocks are watched.
    pub async fn killed_and_watched(self, seed: u64) -> (World, Arc<Watched>) {
        World::watched_on(self.disk.kill(), seed, Config::default()).await
    }

    pub async fn put(&self, key: &str, bytes: &Bytes) -> Result<()> {
        let mut writer = self.fs.begin(&root(), BUCKET).await?;
        for piece in bytes.chunks(100_000) {
            writer.push(Bytes::copy_from_slice(piece)).await?;
        }
        let written = writer.finish().await?;
        let request = PutRequest { bucket: BUCKET.into(), key: key.into(), ..Default::default() };
        self.fs.put_object(&root(), request, written).await.map(|_| ())
    }

    pub async fn get(&self, key: &str) -> Result<Bytes> {
        let object = self.fs.open(&root(), BUCKET, key).await?;
        object.read_all(0..object.size()).await
    }

    /// As `get`, `None` where there is no such object.
    pub async fn find(&self, key: &str) -> Result<Option<Bytes>> {
        match self.get(key).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn delete(&self, key: &str) -> Result<bool> {
        let (bucket, key) = (BUCKET.into(), key.into());
        self.fs.run(&root(), DeleteObject { bucket, key, conditions: Default::default() }).await
    }

    pub async fn create_upload(&self, key: &str) -> UploadName {
        let verb = CreateUpload {
            bucket: BUCKET.into(),
            key: key.into(),
            object: ObjectAttributes::default(),
            tags: Vec::new(),
            checksum: None,
        };
        let upload = self.fs.run(&root(), verb).await.unwrap();
        UploadName { bucket: BUCKET.into(), key: key.into(), upload }
    }

    pub async fn put_part(&self, name: &UploadName, number: u32, bytes: &Bytes) -> TakenPart {
        let mut writer = self.fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(bytes.clone()).await.unwrap();
        let written = writer.finish().await.unwrap();
        let mut digester = Digester::new(true, &[]);
        digester.update(bytes);
        let etag = digester.finish().md5_hex();
        let (name, part) = (name.clone(), etag.clone());
        self.fs.put_part(&root(), name, number, written, part, Vec::new()).await.unwrap();
        TakenPart { number, etag, checksum: None }
    }

    pub async fn complete(
        &self,
        name: &UploadName,
        parts: &[TakenPart],
    ) -> Result<CompletedUpload> {
        let conditions = Default::default();
        self.fs.complete_upload(&root(), name.clone(), parts.to_vec(), conditions).await
    }

    /// Collects garbage until there is none.
    pub async fn collect(&self) {
        for _ in 0..10 {
            let report = self.fs.collect_garbage(&root(), false).await.unwrap();
            assert_eq!(report.blocks_unknown, 0);
            if report == Default::default() {
                return;
            }
        }
        panic!("garbage without end");
    }

    pub async fn blocks(&self) -> u64 {
        self.fs.blocks().usage().await.unwrap().blocks
    }
}
