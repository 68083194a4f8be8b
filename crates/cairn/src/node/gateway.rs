//! `cairn gateway`: serves the doors of a cluster. Keeps nothing but caches.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{HandleKey, LinkKey, SealKey};
use cairn_base::{Error, Role, Secret};
use cairn_blocks::Blocks;
use cairn_cluster::control::messages::{Method, Secrets};
use cairn_cluster::data::{Pool, Replicated};
use cairn_cluster::limits::{DATA_CONNECTIONS, NODE_REQUESTS};
use cairn_cluster::mount::MountHost;
use cairn_cluster::wire::tls::TlsDialer;
use cairn_doors::admit::Admit;
use cairn_doors::http::Redirects;
use cairn_fs::Fs;
use cairn_meta::Meta;
use cairn_meta::session::client::{self, Client};
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval};

use super::ThisNode;
use super::this::beat_of;
use crate::dir::lock::Lock;
use crate::disk_cache::DiskCacheArgs;
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::server::{doors, log, mounts, process, signals::Signals};

/// Between two looks for blocks that were written and not published.
const CLEAN_PERIOD: Duration = Duration::from_secs(10);

/// Serve the S3, HTTP and NFS doors of a cluster
///
/// Any number of gateways may run; they keep nothing but caches, and each shows what any other has
/// acknowledged. DIR is what `cairn cluster join` made with a token for a gateway.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Example:
  cairn gateway /srv/cairn-gateway --s3 0.0.0.0:9000 --http 0.0.0.0:8080 \\
      --tls-cert fullchain.pem --tls-key privkey.pem")]
pub struct Args {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    doors: doors::DoorArgs,
    /// Memory for blocks that are read often, MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..1 << 24))]
    cache_mib: u64,
    /// Memory for metadata that may be used without asking the master, MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    meta_cache_mib: u64,
    /// Connections in use to each chunkserver at the same time, at most: a request for a block that
    /// finds none waits
    #[arg(long, value_name = "N", default_value_t = NODE_REQUESTS as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=DATA_CONNECTIONS as u64))]
    peer_connections: u64,
    #[command(flatten)]
    disk_cache: DiskCacheArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

/// What a gateway may use.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub cache_mib: u64,
    pub meta_cache_mib: u64,
    /// To each chunkserver.
    pub connections: usize,
    /// Whether operations are done when they have run: see [`client::Config`].
    pub hasty: bool,
}

/// A store that a gateway has reached.
pub struct Opened {
    pub fs: Fs,
    pub admit: Arc<Admit>,
    pub redirects: Redirects,
    pub handles: HandleKey,
    pub blocks: Arc<dyn Blocks>,
    /// Of the disk in front of it.
    pub lock: Option<Lock>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    process::run(&args.log, run_gateway(args))
}

async fn run_gateway(args: &Args) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let tls = args.doors.load_tls()?;
    let sockets = args.doors.listen(tls.is_some())?;
    let node = ThisNode::open(&args.dir, Role::Gateway)?;
    let lock = Lock::take(&args.dir)?;
    let _inflight = inflight::Serving::start(inflight::Role::Gateway, &args.dir);
    let url = sockets.http_url();
    node.beat(move || super::this::with_url(beat_of(String::new()), &url));
    let sizes = Sizes {
        cache_mib: args.cache_mib,
        meta_cache_mib: args.meta_cache_mib,
        connections: args.peer_connections as usize,
        hasty: false,
    };
    let Opened { fs, admit, redirects, handles, blocks, lock: _kept } = tokio::select! {
        opened = open(&node, sizes, &args.disk_cache) => opened?,
        () = signals.stop(tls.as_deref()) => return Ok(ExitCode::SUCCESS),
    };
    let (stop, stopped) = watch::channel(false);
    let mounts =
        mounts::take(MountHost::of_gateway(Arc::clone(&node.agent), fs.meta().clone(), blocks));
    let (redirects, mounts, handles) = (Some(redirects), Some(mounts), Some(handles));
    let offers = doors::Offers { redirects, mounts, handles };
    let served = doors::start((&fs, &admit), offers, &sockets, tls.clone(), &stopped)?;
    sockets.announce()?;
    tracing::info!("serving");
    let ended = tokio::select! {
        () = signals.stop(tls.as_deref()) => Ok(()),
        () = clean(&fs) => Ok(()),
        lost = lock.lost() => Err(lost),
    };
    tracing::info!("stopping");
    let _ = stop.send(true);
    tokio::select! {
        () = served.join() => {}
        () = signals.again() => tracing::warn!("stopping at once"),
    }
    if let Err(error) = fs.drop_abandoned().await {
        tracing::debug!(%error, "blocks that were not published stay for the garbage collector");
    }
    if let Meta::Remote(session) = fs.meta() {
        session.close().await;
    }
    tracing::info!("stopped");
    ended.map(|()| ExitCode::SUCCESS)
}

/// Opens a session with whatever master serves; goes on trying until there is one.
pub async fn open(node: &ThisNode, sizes: Sizes, disk: &DiskCacheArgs) -> Result<Opened> {
    let Sizes { cache_mib, meta_cache_mib, connections, hasty } = sizes;
    let (seal, links, handles) = loop {
        match node.agent.call::<_, Secrets>(Method::Secrets, &()).await {
            Ok(Secrets { seal: Some(seal), links: Some(links), .. }) => {
                let seal = Secret::new(seal);
                let handles = HandleKey::derive(&seal);
                break (SealKey::new(&seal), LinkKey::new(&Secret::new(links)), handles);
            }
            Ok(_) => return Err(Failure::new("the master gives no keys to this node")),
            Err(error @ Error::Unavailable(_)) => tracing::warn!(%error, "no master serves yet"),
            Err(error) => return Err(error.into()),
        }
    };
    node.agent.has_map().await;
    let cache_bytes = (meta_cache_mib << 20) as usize;
    let config = client::Config { cache_bytes, hasty, ..client::Config::default() };
    let client = loop {
        let (clock, rng) = (Arc::clone(&node.clock), Arc::clone(&node.rng));
        let dialer = Arc::clone(&node.agent) as _;
        match Client::start(dialer, clock, rng, config.clone()).await {
            Ok(client) => break client,
            Err(error) => tracing::warn!(%error, "no session with a master yet"),
        }
    };
    let pool = Pool::new(Arc::new(TlsDialer::for_blocks(node.trust())?));
    let map = Arc::clone(&node.agent) as _;
    let (loads, rng) = (node.agent.loads(), Arc::clone(&node.rng));
    let blocks = Replicated::limited(map, pool, loads, rng, connections);
    let config = cairn_fs::Config { cache_bytes: cache_mib << 20, ..cairn_fs::Config::default() };
    let (blocks, lock) = block_in_place(|| disk.before(Arc::new(blocks)))?;
    let kept = Arc::clone(&blocks);
    let fs = Fs::over(Meta::Remote(client), kept, Arc::clone(&node.clock), config);
    let admit = Arc::new(Admit::new(fs.clone(), seal, Arc::clone(&node.rng)));
    Ok(Opened { fs, admit, redirects: redirects(node, links), handles, blocks, lock })
}

/// Sends clients to any chunkserver of a group.
fn redirects(node: &ThisNode, key: LinkKey) -> Redirects {
    let (view, rng) = (Arc::clone(&node.view), Arc::clone(&node.rng));
    Redirects::new(key, Arc::clone(&node.rng), move |group| {
        let map = view.map();
        let urls: Vec<&str> = map.urls_of(group).collect();
        let turn = rng.next_u64().checked_rem(urls.len() as u64)?;
        urls.get(turn as usize).map(|url| (*url).to_owned())
    })
}

/// Deletes what was written and will not be published, for ever.
async fn clean(fs: &Fs) {
    let mut timer = interval(CLEAN_PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if let Err(error) = fs.drop_abandoned().await {
            tracing::debug!(%error, "blocks that were not published stay for the garbage collector");
        }
    }
}
