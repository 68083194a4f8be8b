//! `cairn chunkserver`: keeps blocks on a disk, and sees to it that they are whole.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::{RealDisk, Role};
use cairn_blocks::Store;
use cairn_cluster::control::messages::{Beat, StoreState};
use cairn_cluster::data::{Chunkserver, MapSource, Pool, Replicated, Sick};
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener};
use cairn_cluster::wire::{NoService, Terms, serve};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::ThisNode;
use super::copies::Copies;
use super::files::{self, Files, Near};
use super::listen;
use super::this::beat_of;
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::server::{duties, log, process, signals::Signals};

/// How long requests in progress have when the chunkserver stops.
const DRAIN: Duration = Duration::from_secs(10);
/// Corrupt blocks that wait to be healed.
const SICK: usize = 1000;

/// Keep blocks of a cluster on a disk
///
/// DIR is what `cairn cluster join` made with a token for a chunkserver; it should be on a disk of
/// its own. Blocks that do not check out are replaced by what other replicas have.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn chunkserver /srv/disk1/cairn --listen 10.0.0.2:7400 --zone rack1
  cairn chunkserver /srv/disk1/cairn --listen 10.0.0.2:7400 --http 10.0.0.2:8081")]
pub struct Args {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    listen: listen::ListenArgs,
    #[command(flatten)]
    files: files::FilesArgs,
    /// Nodes of one zone may fail together: replicas are put in different ones
    #[arg(long, value_name = "NAME", default_value = "")]
    zone: String,
    /// How much of the data it gets, compared with others; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1)]
    weight: u32,
    /// Days between two scrubs, which read and verify every block slowly; 0 for never
    #[arg(long, value_name = "N", default_value_t = 7)]
    scrub_days: u32,
    #[command(flatten)]
    log: log::LogArgs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    process::run(&args.log, run_chunkserver(args))
}

async fn run_chunkserver(args: &Args) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let node = ThisNode::open(&args.dir, Role::Chunkserver)?;
    let cluster = node.loaded.identity.cluster();
    let dir = DataDir::of_node(&args.dir, cluster, MetaPlace::Directory, &*node.rng)?;
    let _inflight = inflight::Serving::start(inflight::Role::Chunkserver, &args.dir);
    let (tcp, address) = args.listen.bind().await?;
    let files = args.files.bind()?;
    let store = open(&dir).await?;
    let pool = Pool::new(Arc::new(TlsDialer::for_blocks(node.trust())?));
    let (sick, to_heal) = mpsc::channel::<Sick>(SICK);
    let own = node.loaded.identity.node();
    let map = Arc::clone(&node.agent) as Arc<dyn MapSource>;
    let served =
        Chunkserver::new(own, store.clone(), Arc::clone(&map), pool.clone(), Some(sick.clone()));
    let copies = Arc::new(Copies::new(Arc::clone(&node.agent), Arc::clone(&served), store.clone()));
    let url = files.as_ref().map(Files::shown).unwrap_or_default();
    beat(args, &node, &dir, (address, url), &store, &served, &copies);

    let takers = Takers { blocks: Some(served.taker()), ..Takers::default() };
    let listener = Arc::new(TlsListener::with_takers(tcp, node.trust(), None, takers)?);
    let terms = Terms::new(cluster, own, Role::Chunkserver);
    let (stop, stopped) = watch::channel(false);
    let listening = tokio::spawn(serve(listener, terms, NoService, DRAIN, stopped.clone()));
    let mut work = JoinSet::new();
    let healed = duties::OnDamage::Heal(sick);
    duties::look_after(&mut work, &store, healed, &dir, args.scrub_days, &stopped);
    work.spawn(duties::until(stopped.clone(), Arc::clone(&copies).keep_up()));
    work.spawn(duties::until(stopped.clone(), Arc::clone(&copies).heal(to_heal)));
    let tls = files.as_ref().and_then(|files| files.tls.clone());
    if let Some(files) = files {
        let near = Near::new(
            Arc::clone(&served),
            Replicated::new(map, pool, node.agent.loads(), Arc::clone(&node.rng)),
        );
        let (agent, clock) = (Arc::clone(&node.agent), Arc::clone(&node.clock));
        work.spawn(files.serve(agent, clock, near, stopped.clone()));
    }
    tracing::info!(node = %own, "serving blocks");
    let ended = tokio::select! {
        () = signals.stop(tls.as_deref()) => Ok(()),
        lost = dir.lost() => Err(lost),
    };
    tracing::info!("stopping");
    let _ = stop.send(true);
    let drained = async {
        served.stop(DRAIN).await;
        let _ = listening.await;
        while work.join_next().await.is_some() {}
    };
    tokio::select! {
        () = drained => {}
        () = signals.again() => tracing::warn!("stopping at once"),
    }
    let closing = tokio::task::spawn_blocking(move || store.close());
    closing.await.map_err(|error| Failure::new(format!("closing: {error}")))??;
    tracing::info!("stopped");
    ended.map(|()| ExitCode::SUCCESS)
}

async fn open(dir: &DataDir) -> Result<Store> {
    let path = dir.blocks();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let config = dir.sizes.of_blocks(dir.format.cluster, dir.format.disk);
    let opening = tokio::task::spawn_blocking(move || Store::open(Arc::new(disk), config));
    let opened = opening.await.map_err(|error| Failure::new(format!("opening: {error}")))?;
    let store = opened.map_err(|error| of(&path, error))?;
    let report = store.open_report();
    if report.damaged_segments > 0 {
        let segments = report.damaged_segments;
        tracing::error!(segments, "segments are damaged: drain this node and replace its disk");
    }
    tracing::info!(blocks = report.blocks, segments = report.segments, "store opened");
    Ok(store)
}

fn of(path: &Path, error: cairn_base::Error) -> Failure {
    Failure::from(error).of(path.display())
}

/// Says twice a second how the store fares.
fn beat(
    args: &Args,
    node: &ThisNode,
    dir: &DataDir,
    (address, url): (String, Arc<OnceLock<String>>),
    store: &Store,
    served: &Arc<Chunkserver>,
    copies: &Arc<Copies>,
) {
    let (zone, weight) = (args.zone.clone(), args.weight);
    let disk = u128::from_be_bytes(dir.format.disk);
    let (store, served, copies) = (store.clone(), Arc::clone(served), Arc::clone(copies));
    node.beat(move || {
        let usage = store.usage_now().unwrap_or_default();
        let state = StoreState {
            blocks: usage.blocks,
            live_bytes: usage.live_bytes,
            free_bytes: usage.free_bytes,
            corrupt: usage.corrupt_reads,
            healed: served.healed(),
            is_full: store.is_short_of_space(),
        };
        let (zone, copying) = (zone.clone(), copies.progress());
        let groups = store.bytes_by_group();
        let url = url.get().cloned().unwrap_or_default();
        Beat { zone, weight, disk, url, store: state, copying, groups, ..beat_of(address.clone()) }
    });
}
