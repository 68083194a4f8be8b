//! `cairn chunkserver`: keeps blocks on a disk, and keeps them whole.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::{GroupId, RealDisk, Role};
use cairn_blocks::Store;
use cairn_cluster::control::messages::Beat;
use cairn_cluster::data::ReplicatedBlocks;
use cairn_cluster::wire::tls::{Takers, TlsListener};
use cairn_roles::chunkserver::ChunkserverNode;
use cairn_roles::{Pace, beat_of};
use tokio::sync::watch;

use super::ThisNode;
use super::files::{self, Files, Near};
use super::listen;
use super::{process_facts, status};
use crate::config::ConfigArgs;
use crate::dir::{DataDir, MetaPlace, adoption};
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::server::scrub::{self, OnDamage};
use crate::server::{log, process, signals::Signals, space};

/// Keep blocks of a cluster on a disk
///
/// DIR is what `cairn cluster join` made with a token for a chunkserver; it should be on a disk of
/// its own. Blocks that do not check out are replaced by what other replicas have.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn chunkserver /srv/disk1/cairn --listen 10.0.0.2:7400 --zone rack1
  cairn chunkserver /srv/disk1/cairn --listen 10.0.0.2:7400 --http 10.0.0.2:8081")]
pub struct ChunkserverArgs {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    listen: listen::ListenArgs,
    #[command(flatten)]
    status: status::StatusArgs,
    #[command(flatten)]
    files: files::FilesArgs,
    /// Zone of this node, such as its rack: replicas are put in different zones [default: its own]
    #[arg(long, value_name = "NAME", default_value = "")]
    zone: String,
    /// Share of the data that this node gets, relative to others; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1)]
    weight: u32,
    /// Days between two scrubs, which slowly read and verify every block; 0 for no scrubs
    #[arg(long, value_name = "N", default_value_t = 7)]
    scrub_days: u32,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

impl ChunkserverArgs {
    /// Returns the options for one of several disks of a machine: in the machine's zone unless
    /// another is given, and with doors at its own ports, `further` after the first.
    pub fn beside(mut self, zone: &str, further: u16) -> Result<ChunkserverArgs> {
        if self.zone.is_empty() {
            zone.clone_into(&mut self.zone);
        }
        self.status.shift(further)?;
        self.files.shift(further)?;
        Ok(self)
    }
}

pub fn run(args: &ChunkserverArgs) -> Result<ExitCode> {
    process::run(&args.log, async {
        args.config.announce();
        run_chunkserver(args).await
    })
}

/// Runs the role until the process gets a signal to stop.
pub async fn run_chunkserver(args: &ChunkserverArgs) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let node = ThisNode::to_run(&args.dir, Role::Chunkserver)?;
    let cluster = node.loaded.identity.cluster();
    let dir = DataDir::of_node(&args.dir, cluster, MetaPlace::Directory, &*node.rng)?;
    let _inflight = inflight::Serving::start(inflight::Role::Chunkserver, &args.dir);
    let (tcp, address) = args.listen.bind().await?;
    let (files, status) = (args.files.bind()?, args.status.bind()?);
    let store = open(&dir).await?;
    let own = node.loaded.identity.node();
    let ready = ChunkserverNode::new(node.running()?, store.clone());
    let place = args.dir.clone();
    ready.keep(move |group| group == GroupId::LOCAL && adoption::may_be_undone(&place));
    let url = files.as_ref().map(Files::shown).unwrap_or_default();
    let (zone, weight) = (args.zone.clone(), args.weight);
    ready.beat(u128::from_be_bytes(dir.format.disk), move || {
        let url = url.get().cloned().unwrap_or_default();
        Beat { zone: zone.clone(), weight, url, ..beat_of(address.clone()) }
    });
    let takers = Takers { blocks: Some(ready.taker()), ..Takers::default() };
    let listener = Arc::new(TlsListener::with_takers(tcp, node.trust(), None, takers)?);
    let (stop, stopped) = watch::channel(false);
    let (served, agent) = (Arc::clone(&ready.served), Arc::clone(&node.agent));
    let told = process_facts::of_a_chunkserver(store.clone(), served, agent, &args.dir);
    status.open(told.clone(), &stopped)?;
    let (healed, scrubbed) = (OnDamage::Heal(ready.sick.clone()), Arc::clone(&ready.served));
    let near = files.as_ref().map(|_| near(&node, &ready));
    let mut running = ready.start(listener, Pace::default(), &stopped);
    space::start(&mut running.work, &args.dir, &stopped);
    let days = args.scrub_days;
    scrubbed.scrub_by(scrub::start(&mut running.work, &store, healed, &dir, days, &stopped));
    let tls = files.as_ref().and_then(|files| files.tls.clone());
    if let Some((files, near)) = files.zip(near) {
        let (agent, clock) = (Arc::clone(&node.agent), Arc::clone(&node.clock));
        running.work.spawn(files.serve(agent, clock, near, told, stopped.clone()));
    }
    tracing::info!(node = %own, "serving blocks");
    let ended = tokio::select! {
        () = signals.stop(tls.as_deref()) => Ok(()),
        lost = dir.lost() => Err(lost),
    };
    tracing::info!("stopping");
    let _ = stop.send(true);
    tokio::select! {
        () = running.drain() => {}
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

/// Makes the blocks for clients that a gateway sent here.
fn near(node: &ThisNode, ready: &ChunkserverNode) -> Near {
    let (map, pool) = (Arc::clone(&node.agent) as _, Arc::clone(&ready.pool));
    let others = ReplicatedBlocks::new(map, pool, node.agent.loads(), Arc::clone(&node.rng));
    Near::new(Arc::clone(&ready.served), others)
}
