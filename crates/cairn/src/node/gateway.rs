//! `cairn gateway`: serves the doors of a cluster. It stores nothing but caches.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cairn_auth::{HandleKey, LinkKey, SealKey};
use cairn_base::{Role, Secret, waits};
use cairn_cluster::limits::{DATA_CONNECTIONS, NODE_REQUESTS};
use cairn_cluster::mount::MountHost;
use cairn_console::Insight;
use cairn_doors::admit::Admit;
use cairn_doors::http::Redirects;
use cairn_fs::Fs;
use cairn_meta::session::OwnMaster;
use cairn_meta::session::client;
use cairn_roles::gateway::Config;
use cairn_roles::{Pace, beat_of, duties};
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::ThisNode;
use super::insight::Masters;
use crate::config::ConfigArgs;
use crate::dir::DirectoryUse;
use crate::dir::lock::Lock;
use crate::disk_cache::DiskCacheArgs;
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::memory::{Part, ProcessSizes, SizeRequest};
use crate::server::{doors, log, mounts, process, signals::Signals};

/// Serve the S3, HTTP and NFS doors of a cluster
///
/// Any number of gateways may run; they keep nothing but caches, and each shows what any other has
/// acknowledged. DIR is what `cairn cluster join` made with a token for a gateway.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Example:
  cairn gateway /srv/cairn-gateway --s3 0.0.0.0:9000 --http 0.0.0.0:8080 \\
      --tls-cert fullchain.pem --tls-key privkey.pem")]
pub struct GatewayArgs {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    doors: doors::DoorArgs,
    /// Memory for blocks that are read often, MiB [default: by the memory of the process, at least
    /// 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..1 << 24))]
    cache_mib: Option<u64>,
    /// Memory for metadata that may be used without asking the master, MiB [default: by the memory
    /// of the process, at least 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    meta_cache_mib: Option<u64>,
    /// Most connections in use to each chunkserver; a request that finds none waits
    #[arg(long, value_name = "N", default_value_t = NODE_REQUESTS as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=DATA_CONNECTIONS as u64))]
    peer_connections: u64,
    #[command(flatten)]
    disk_cache: DiskCacheArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

impl GatewayArgs {
    /// Returns the parts of memory that a gateway needs.
    pub fn requests(&self) -> Vec<SizeRequest> {
        vec![
            SizeRequest::new(Part::Blocks, self.cache_mib),
            SizeRequest::new(Part::LeasedRows, self.meta_cache_mib),
        ]
    }

    fn sizes(&self, memory: &ProcessSizes, own: Option<Arc<OwnMaster>>) -> Sizes {
        Sizes {
            cache_bytes: memory.bytes(Part::Blocks),
            meta_cache_bytes: memory.bytes(Part::LeasedRows),
            connections: self.peer_connections as usize,
            hasty: false,
            own,
        }
    }
}

/// Resources that a gateway may use.
#[derive(Clone)]
pub struct Sizes {
    /// Bytes of the cache of blocks, and of leased rows.
    pub cache_bytes: u64,
    pub meta_cache_bytes: u64,
    /// Connections to each chunkserver, at most.
    pub connections: usize,
    /// Set if operations count as done when they have run: see [`client::Config`].
    pub hasty: bool,
    /// The master in the same process, if there is one: see [`client::Config`].
    pub own: Option<Arc<OwnMaster>>,
}

/// A store that a gateway has reached.
pub struct GatewayStore {
    pub fs: Fs,
    pub admit: Arc<Admit>,
    pub redirects: Redirects,
    pub handles: HandleKey,
    /// Lock of the disk cache in front of its blocks.
    pub lock: Option<Lock>,
}

pub fn run(args: &GatewayArgs) -> Result<ExitCode> {
    args.doors.records.keep_own_log();
    let memory = ProcessSizes::divide(&args.requests())?;
    process::run(&args.log, async {
        args.config.announce();
        memory.announce();
        run_gateway(args, &memory, None).await
    })
}

/// Runs the role until the process gets a signal to stop. `own` is the master in the same process,
/// if there is one.
pub async fn run_gateway(
    args: &GatewayArgs,
    memory: &ProcessSizes,
    own: Option<Arc<OwnMaster>>,
) -> Result<ExitCode> {
    DirectoryUse::Role(Role::Gateway).require(&args.dir)?;
    let mut signals = Signals::new()?;
    let (tls, acme) = args.doors.load_tls()?;
    let sockets = args.doors.listen(inflight::Role::Gateway)?;
    let node = ThisNode::open(&args.dir, Role::Gateway)?;
    let lock = Lock::take(&args.dir)?;
    let _inflight = inflight::Serving::start(inflight::Role::Gateway, &args.dir);
    let url = sockets.shown(&doors::http::DOOR).to_owned();
    node.running()?.beat(move || super::this::with_url(beat_of(String::new()), &url));
    let sizes = args.sizes(memory, own);
    let GatewayStore { fs, admit, redirects, handles, lock: _kept } = tokio::select! {
        opened = open(&node, sizes, &args.disk_cache) => opened?,
        () = signals.stop(tls.as_deref()) => return Ok(ExitCode::SUCCESS),
    };
    let (stop, stopped) = watch::channel(false);
    let (agent, blocks) = (Arc::clone(&node.agent), Arc::clone(fs.blocks()));
    let view = Arc::clone(&node.view);
    let required = Arc::new(move || view.newest().capabilities);
    let host = MountHost::of_gateway(agent, fs.meta().clone(), blocks);
    let mounts = mounts::take(Arc::clone(&host), required);
    let (redirects, mounts, handles) = (Some(redirects), Some(mounts), Some(handles));
    let source = format!("gateway-{}", node.loaded.identity.node());
    let (records, sinks) = args.doors.records.start(&fs, &source)?;
    let lines = sinks.queues().to_vec();
    let insight = Insight { nodes: Some(Arc::new(Masters::of(&node)?)), ..Insight::default() };
    let numbers = vec![mounts::numbers(&host), memory.numbers()];
    let offers = doors::Offers { redirects, mounts, handles, records, lines, numbers, insight };
    let served = doors::start(&fs, &admit, offers, &sockets, tls.clone(), acme, &stopped)?;
    sockets.announce()?;
    tracing::info!("serving");
    let (view, own) = (Arc::clone(&node.view), node.loaded.identity.node());
    let mine = move |ino| duties::is_of_gateway(&view.map(), own, ino);
    let ended = tokio::select! {
        () = signals.stop(tls.as_deref()) => Ok(()),
        () = duties::settle_logs(fs.clone(), mine, Pace::default()) => Ok(()),
        () = duties::drop_abandoned(fs.clone(), Pace::default()) => Ok(()),
        () = node.agent.watch_masters() => Ok(()),
        lost = lock.lost() => Err(lost),
    };
    tracing::info!("stopping");
    let _ = stop.send(true);
    tokio::select! {
        () = served.join() => {}
        () = signals.again() => tracing::warn!("stopping at once"),
    }
    sinks.close().await;
    cairn_roles::gateway::close(&fs).await;
    tracing::info!("stopped");
    ended.map(|()| ExitCode::SUCCESS)
}

/// Opens a session with the serving master; keeps trying until there is one. The lock of the node's
/// directory must be held.
pub async fn open(node: &ThisNode, sizes: Sizes, disk: &DiskCacheArgs) -> Result<GatewayStore> {
    let Sizes { cache_bytes: for_blocks, meta_cache_bytes, connections, hasty, own } = sizes;
    let told = cairn_roles::secrets(&node.agent).await?;
    let (Some(seal), Some(links)) = (told.seal.map(Secret::new), told.links.map(Secret::new))
    else {
        return Err(Failure::new(
            "the master gives this node no keys of the cluster: was it joined with the role \
                gateway?",
        ));
    };
    let handles = HandleKey::derive(&seal);
    let (seal, links) = (SealKey::new(&seal), LinkKey::new(&links));
    let cache_bytes = meta_cache_bytes as usize;
    let patience = if hasty { waits::SLOW_SERVER } else { waits::MASTER };
    let alone = client::Config::default().alone;
    let session = client::Config { cache_bytes, patience, alone, hasty, own, is_sole: true };
    let of_fs = cairn_fs::Config { cache_bytes: for_blocks, ..cairn_fs::Config::default() };
    let config = Config { session, fs: of_fs, connections };
    let mut lock = None;
    let before = |blocks| {
        let (blocks, taken) = block_in_place(|| disk.before(blocks))?;
        lock = taken;
        Ok::<_, Failure>(blocks)
    };
    let fs = cairn_roles::gateway::open(&node.running()?, config, before).await?;
    let admit = Arc::new(Admit::new(fs.clone(), seal, Arc::clone(&node.rng)));
    Ok(GatewayStore { fs, admit, redirects: redirects(node, links), handles, lock })
}

/// Makes redirects of clients to any chunkserver of a group.
fn redirects(node: &ThisNode, key: LinkKey) -> Redirects {
    let (view, rng) = (Arc::clone(&node.view), Arc::clone(&node.rng));
    Redirects::new(key, Arc::clone(&node.rng), move |group| {
        let map = view.map();
        let urls: Vec<&str> = map.urls_of(group).collect();
        let turn = rng.next_u64().checked_rem(urls.len() as u64)?;
        urls.get(turn as usize).map(|url| (*url).to_owned())
    })
}
