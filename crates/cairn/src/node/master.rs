//! `cairn master`: owns the namespace, or stands by for the one that does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, LinkKey, SealKey};
use cairn_base::{Role, Secret, SessionId};
use cairn_cluster::admin::AdminServer;
use cairn_cluster::control::messages::{Method, Secrets};
use cairn_cluster::control::{ControlService, Controller, Keeper, Settings};
use cairn_cluster::data::{Pool, Replicated};
use cairn_cluster::identity::Desk;
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener};
use cairn_cluster::wire::{Terms, serve};
use cairn_fs::Fs;
use cairn_meta::engine::postgres;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::sessions::Format;
use cairn_meta::session::LEASE;
use cairn_meta::{Master, Meta};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::ThisNode;
use super::listen;
use super::this::beat_of;
use crate::dir::DataDir;
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::metadata::{MetaArgs, Metadata};
use crate::server::{duties, log, open::require_opened, process, signals::Signals};

/// How long requests in progress have when the master stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Before this master tries to serve again.
const PAUSE: Duration = Duration::from_secs(1);

/// Serve the metadata of a cluster, or stand by for the master that does
///
/// DIR is what `cairn cluster init` made, or `cairn cluster join` with a token for a master. With
/// --meta several masters share one PostgreSQL database: one serves, the others take over within
/// seconds when it fails. Without, the metadata are in DIR and there is one master.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn master /srv/cairn-master --listen 10.0.0.1:7400
  cairn master /srv/cairn-master --listen 10.0.0.1:7400 \\
      --meta postgres://cairn:password@db/cairn")]
pub struct Args {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    listen: listen::ListenArgs,
    #[command(flatten)]
    meta: MetaArgs,
    /// Serve although the database has standbys to which a failover may lose acknowledged changes
    #[arg(long)]
    accept_lossy_failover: bool,
    /// Seconds that a chunkserver may be away before its blocks are copied elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    repair_after: u64,
    #[command(flatten)]
    log: log::LogArgs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    process::run(&args.log, run_master(args))
}

async fn run_master(args: &Args) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let node = ThisNode::open(&args.dir, Role::Master)?;
    let cluster = node.loaded.identity.cluster();
    let dir = DataDir::of_node(&args.dir, cluster, args.meta.place(), &*node.rng)?;
    let _inflight = inflight::Serving::start(inflight::Role::Master, &args.dir);
    let (tcp, address) = args.listen.bind().await?;
    node.beat(move || beat_of(address.clone()));
    let secrets = tokio::select! {
        secrets = secrets(&node, &dir) => secrets?,
        () = signals.stop(None) => return Ok(ExitCode::SUCCESS),
    };
    let service = ControlService::default();
    let desk = Arc::new(Desk {
        ca: node.directory.load_ca(cluster)?,
        tokens: Arc::new(service.clone()),
        pins: node.trust().pins,
        clock: Arc::clone(&node.clock),
        rng: Arc::clone(&node.rng),
    });
    let admin = AdminServer::new(service.clone());
    let takers = Takers { admin: Some(admin.taker()), ..Takers::default() };
    let known = Some(Arc::clone(&desk));
    let listener = Arc::new(TlsListener::with_takers(tcp, node.trust(), known, takers)?);
    let terms = Terms::new(cluster, node.loaded.identity.node(), Role::Master);
    let (stop, stopped) = watch::channel(false);
    let served = tokio::spawn(serve(listener, terms, service.clone(), DRAIN, stopped.clone()));
    let office = Office { args, node: &node, dir: &dir, service: &service, desk, secrets };
    let ended = tokio::select! {
        ended = office.take_turns() => ended,
        () = signals.stop(None) => Ok(()),
        lost = dir.lost() => Err(lost),
    };
    tracing::info!("stopping");
    service.serve(None);
    let _ = stop.send(true);
    let _ = tokio::join!(tokio::time::timeout(DRAIN, served), admin.stop(DRAIN));
    ended.map(|()| ExitCode::SUCCESS)
}

/// The keys of the cluster: those in the directory, or, the first time, those of the master that
/// serves.
async fn secrets(node: &ThisNode, dir: &DataDir) -> Result<Secrets> {
    let cluster = node.loaded.identity.cluster();
    if node.directory.load_ca(cluster).is_err() || dir.seal_bytes()?.is_none() {
        tracing::info!("asking the master that serves for the keys of the cluster");
        let told: Secrets = loop {
            match node.agent.call(Method::Secrets, &()).await {
                Ok(secrets) => break secrets,
                Err(error @ cairn_base::Error::Unavailable(_)) => {
                    tracing::warn!(%error, "no master serves yet");
                }
                Err(error) => return Err(error.into()),
            }
        };
        let (Some(seal), Some(authority)) = (told.seal, told.authority) else {
            return Err(Failure::new("the master that serves gives no keys to this node"));
        };
        node.directory.keep_authority(&node.loaded.identity, &Secret::new(authority))?;
        if dir.seal_bytes()?.is_none() {
            dir.keep_seal(&Secret::new(seal))?;
        }
    }
    let seal = dir.seal_bytes()?.map(|seal| *seal.expose());
    let authority = node.directory.load_ca(cluster)?.to_pem().expose().clone();
    let links = seal.map(|seal| *LinkKey::derive(&Secret::new(seal)).expose());
    Ok(Secrets { seal, authority: Some(authority), links })
}

/// What a master needs to serve.
struct Office<'a> {
    args: &'a Args,
    node: &'a ThisNode,
    dir: &'a DataDir,
    service: &'a ControlService,
    desk: Arc<Desk>,
    secrets: Secrets,
}

impl Office<'_> {
    /// Serves whenever it is this master's turn.
    async fn take_turns(&self) -> Result<()> {
        let mut has_served = false;
        loop {
            let ended = self.serve_once().await;
            self.service.serve(None);
            if self.args.meta.database().is_none() {
                // What is in the directory is read again by the next process only.
                let reason = ended?;
                return Err(Failure::new(format!("the master stopped: {reason}")));
            }
            match ended {
                Ok(reason) => tracing::error!(reason, "this master serves no longer, it stands by"),
                Err(failure) if has_served || failure.is_passing() => {
                    tracing::warn!(%failure, "not serving");
                    sleep(PAUSE).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            has_served = true;
            sleep(PAUSE).await;
        }
    }

    /// Serves until it cannot; says why.
    async fn serve_once(&self) -> Result<String> {
        let metadata = self.open().await?;
        let (engine, config) = (Arc::clone(&metadata.engine), metadata.config.clone());
        let clock = Arc::clone(&self.node.clock);
        let starting = tokio::task::spawn_blocking(move || Master::start(engine, clock, config));
        let ended = |error| Failure::new(format!("starting: {error}"));
        let master = starting.await.map_err(ended)??;
        if let Some(seal) = &self.secrets.seal {
            let seal = SealKey::new(&Secret::new(*seal));
            require_opened(self.dir, &master, &seal).await?;
        }
        let controller = self.controller(&master).await?;
        self.service.serve(Some(Arc::clone(&controller)));
        tracing::info!(metadata = metadata.shown, "this master serves");
        let mut duties = JoinSet::new();
        duties.spawn(look_around(Arc::clone(&controller)));
        duties.spawn(tick(Arc::clone(&controller)));
        duties.spawn(collect_garbage(self.fs(&controller)?, controller));
        let reason = master.wait_failed().await;
        duties.shutdown().await;
        self.service.serve(None);
        let stopping = tokio::task::spawn_blocking(move || master.stop());
        stopping.await.map_err(ended)?;
        Ok(reason)
    }

    async fn open(&self) -> Result<Metadata> {
        let opened = match self.args.meta.database() {
            None => Metadata::in_directory(self.dir)?,
            Some(config) => {
                let accept_lossy_failover = self.args.accept_lossy_failover;
                let config = postgres::Config { accept_lossy_failover, ..config };
                let turn = wait_for_turn(config.clone()).await?;
                let config = postgres::Config { turn: Some(turn), ..config };
                tokio::task::block_in_place(|| Metadata::in_known_database(&config))?
            }
        };
        match tokio::task::block_in_place(|| opened.has_store(self.dir))? {
            true => Ok(opened),
            false => Err(opened.foreign("has no metadata of this cluster")),
        }
    }

    /// The store as this master sees it, to collect garbage: it writes no blocks, and so needs no
    /// session.
    fn fs(&self, controller: &Controller) -> Result<Fs> {
        let node = self.node;
        let pool = Pool::new(Arc::new(TlsDialer::for_blocks(node.trust())?));
        let map = Arc::clone(&controller.keeper) as _;
        let blocks =
            Arc::new(Replicated::new(map, pool, node.agent.loads(), Arc::clone(&node.rng)));
        let meta = Meta::Local {
            master: controller.master.clone(),
            session: SessionId(0),
            sessions: None,
        };
        let config = cairn_fs::Config { cache_bytes: 0, ..cairn_fs::Config::default() };
        let fs = Fs::over(meta, blocks, Arc::clone(&node.clock), config);
        let sessions = Arc::clone(&controller.sessions);
        fs.set_reads_floor(move || sessions.reads_from());
        Ok(fs)
    }

    async fn controller(&self, master: &Master) -> Result<Arc<Controller>> {
        let clock = Arc::clone(&self.node.clock);
        let format = Format { cluster: self.dir.format.cluster_number() };
        master.run(&Caller::system(), format).await?;
        let sessions = Sessions::start(master.clone(), Arc::clone(&clock), LEASE).await?;
        let keeper = Keeper::start(master.clone(), Arc::clone(&self.node.view)).await?;
        let patience = Duration::from_secs(self.args.repair_after);
        let is_alone = self.args.meta.database().is_none();
        Ok(Arc::new(Controller::new(
            self.node.loaded.identity.node(),
            (master.clone(), sessions),
            keeper,
            Arc::clone(&self.desk),
            self.secrets.clone(),
            clock,
            Settings { patience, is_alone, ..Settings::default() },
        )))
    }
}

/// Tells a thread that nobody waits for it any more.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until no other master serves.
async fn wait_for_turn(config: postgres::Config) -> Result<postgres::Turn> {
    let stop = Stop::default();
    let stopped = Arc::clone(&stop.0);
    let waiting = tokio::task::spawn_blocking(move || {
        let told = |state: postgres::Standby| match state {
            postgres::Standby::Waiting { epoch } => {
                tracing::info!(epoch, "another master serves, this one stands by");
            }
            postgres::Standby::Unreachable(error) => {
                tracing::warn!(%error, "the database does not answer");
            }
        };
        postgres::wait_for_turn(&config, &|| stopped.load(Ordering::Relaxed), &told)
    });
    let turn = waiting.await.map_err(|error| Failure::new(format!("waiting: {error}")))??;
    turn.ok_or_else(|| Failure::new("stopped"))
}

async fn look_around(controller: Arc<Controller>) {
    let mut timer = interval(Duration::from_millis(500));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if let Err(error) = controller.look_around().await {
            tracing::warn!(%error, "the cluster map was not brought up to date");
        }
    }
}

async fn tick(controller: Arc<Controller>) {
    let mut timer = interval(Duration::from_millis(250));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if let Err(error) = controller.sessions.tick().await {
            tracing::warn!(%error, "sessions that lapsed were not ended");
        }
    }
}

/// Once changes may be made: sessions of a former master may hold leases until then.
async fn collect_garbage(fs: Fs, controller: Arc<Controller>) {
    controller.sessions.opened().await;
    duties::collect_garbage(fs).await;
}
