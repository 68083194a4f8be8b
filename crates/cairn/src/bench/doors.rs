//! `cairn bench doors`: measures the doors of a server over nothing.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::SealKey;
use cairn_base::clock::RealClock;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::rng::RealRng;
use cairn_base::{BlockId, Clock, GroupId, Owner, Rng, Secret};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};
use cairn_doors::admit::{Admit, ensure_root};
use cairn_fs::Fs;
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use tokio::sync::watch;

use crate::failure::Result;
use crate::server::{doors, log, process, signals, welcome};

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Cairn's doors alone: a server that has its metadata in memory and keeps no blocks
///
/// It answers as `cairn server` does, so that any client can measure the cost of the doors. It
/// forgets the contents of objects, and answers a GET with as many zeros. Only contents of up to
/// 16 KiB are kept, in memory. Everything is gone when it ends. Its memory grows with each object.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn bench doors --s3 127.0.0.1:9100 --http 127.0.0.1:8100
  CAIRN_ROOT_KEY=bench CAIRN_ROOT_SECRET=... cairn bench doors
  CAIRN_KEY=... CAIRN_SECRET=... cairn bench s3 http://127.0.0.1:9100 --compare full=http://127.0.0.1:9000")]
pub struct DoorsBenchArgs {
    #[command(flatten)]
    doors: doors::DoorArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

pub fn run(args: &DoorsBenchArgs) -> Result<ExitCode> {
    let preset = welcome::preset()?;
    process::run(&args.log, serve(args, preset))
}

async fn serve(args: &DoorsBenchArgs, preset: welcome::Preset) -> Result<ExitCode> {
    let mut signals = signals::Signals::new()?;
    let (tls, acme) = args.doors.load_tls()?;
    let sockets = args.doors.listen(crate::inflight::Role::Gateway)?;
    let rng: Arc<dyn Rng> = Arc::new(RealRng);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let engine = Arc::new(Memory::new());
    let master = Master::start(engine, Arc::clone(&clock), Default::default())?;
    let config = cairn_fs::Config::default();
    let fs = Fs::start(master.clone(), Arc::new(Nothing), clock, &*rng, config).await?;
    let mut key = [0; 32];
    rng.fill(&mut key);
    let admit = Arc::new(Admit::new(fs.clone(), SealKey::new(&Secret::new(key)), rng));
    let new = ensure_root(&admit, preset).await?;
    let (stop, stopped) = watch::channel(false);
    let offers = doors::Offers::default();
    let served = doors::start(&fs, &admit, offers, &sockets, tls.clone(), acme, &stopped)?;
    sockets.announce()?;
    if let Some(credential) = new {
        welcome::show(&credential, &sockets)?;
    }
    signals.stop(tls.as_deref()).await;
    let _ = stop.send(true);
    tokio::select! {
        () = served.join() => {}
        () = signals.again() => {}
    }
    master.stop();
    Ok(ExitCode::SUCCESS)
}

/// Takes every block and keeps none.
struct Nothing;

#[async_trait]
impl Blocks for Nothing {
    async fn write(&self, _: Wish, _: BlockId, _: Owner, _: Bytes) -> cairn_base::Result<GroupId> {
        Ok(GroupId::LOCAL)
    }

    async fn get(
        &self,
        _: GroupId,
        _: BlockId,
        range: std::ops::Range<u32>,
    ) -> cairn_base::Result<Bytes> {
        Ok(Bytes::from_static(&ZEROS).slice(..range.len()))
    }

    fn get_now(
        &self,
        _: GroupId,
        _: BlockId,
        range: std::ops::Range<u32>,
    ) -> cairn_base::Result<Option<Bytes>> {
        Ok(Some(Bytes::from_static(&ZEROS).slice(..range.len())))
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> cairn_base::Result<()> {
        Ok(())
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GroupId::LOCAL]
    }

    async fn inventory(
        &self,
        _: GroupId,
        _: Option<BlockId>,
        _: usize,
    ) -> cairn_base::Result<Vec<BlockInfo>> {
        Ok(Vec::new())
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> cairn_base::Result<bool> {
        Ok(false)
    }

    async fn usage(&self) -> cairn_base::Result<Usage> {
        Ok(Usage::default())
    }

    async fn room(&self) -> cairn_base::Result<Usage> {
        self.usage().await
    }

    fn available(&self) -> cairn_base::Result<()> {
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}
