//! `cairn master`: owns the namespace, or stands by for the one that does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cairn_audit::Names;
use cairn_auth::{LinkKey, SealKey};
use cairn_base::{Role, Secret};
use cairn_cluster::admin::AdminServer;
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{ControlService, Settings};
use cairn_cluster::identity::Desk;
use cairn_cluster::wire::tls::{Takers, TlsListener};
use cairn_meta::Master;
use cairn_meta::engine::postgres;
use cairn_roles::beat_of;
use cairn_roles::master::{Config, DRAIN, MasterNode, Source};
use tokio::sync::watch;

use super::ThisNode;
use super::listen;
use crate::dir::DataDir;
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::metadata::{MetaArgs, Metadata};
use crate::server::records::{AuditArgs, Sinks};
use crate::server::{log, open::require_opened, otlp, process, signals::Signals};

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
pub struct MasterArgs {
    /// The directory of this node
    dir: PathBuf,
    #[command(flatten)]
    listen: listen::ListenArgs,
    #[command(flatten)]
    meta: MetaArgs,
    /// Serve even if a failover of the database to one of its standbys may lose acknowledged
    /// changes
    #[arg(long)]
    accept_lossy_failover: bool,
    /// Seconds that a chunkserver may be away until its blocks are copied to others
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    repair_after: u64,
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP: the part of the master in
    /// those requests that gateways with --otlp send
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

pub fn run(args: &MasterArgs) -> Result<ExitCode> {
    process::run(&args.log, run_master(args))
}

async fn run_master(args: &MasterArgs) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let node = ThisNode::open(&args.dir, Role::Master)?;
    let export = args.otlp.as_deref().map(|url| otlp::of_sessions(url, &*node.rng)).transpose()?;
    let cluster = node.loaded.identity.cluster();
    let dir = DataDir::of_node(&args.dir, cluster, args.meta.place(), &*node.rng)?;
    let _inflight = inflight::Serving::start(inflight::Role::Master, &args.dir);
    let (tcp, address) = args.listen.bind().await?;
    node.running()?.beat(move || beat_of(address.clone()));
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
    let (mut sinks, names) = (Sinks::default(), Arc::new(|_| None) as Names);
    let audit = args.audit.start(&mut sinks, (&node.clock, &names), Vec::new())?;
    let admin = AdminServer::new(service.clone(), audit.clone());
    let takers = Takers { admin: Some(admin.taker()), ..Takers::default() };
    let known = Some(Arc::clone(&desk));
    let listener = Arc::new(TlsListener::with_takers(tcp, node.trust(), known, takers)?);
    let patience = Duration::from_secs(args.repair_after);
    let is_alone = args.meta.database().is_none();
    let settings = Settings { patience, is_alone, ..Settings::default() };
    let config = Config { settings, audit, ..Config::default() };
    let stored = Stored { args, node: &node, dir: &dir, seal: secrets.seal };
    let master = MasterNode { node: node.running()?, service, desk, secrets, config, export };
    let (stop, stopped) = watch::channel(false);
    let served = master.answer(listener, stopped);
    let ended = tokio::select! {
        ended = master.take_turns(&stored) => ended.and_then(ended_alone),
        () = signals.stop(None) => Ok(()),
        lost = dir.lost() => Err(lost),
    };
    tracing::info!("stopping");
    master.service.serve(None);
    let _ = stop.send(true);
    let _ = tokio::join!(tokio::time::timeout(DRAIN, served), admin.stop(DRAIN));
    sinks.close().await;
    ended.map(|()| ExitCode::SUCCESS)
}

fn ended_alone(reason: String) -> Result<()> {
    Err(Failure::new(format!("the master stopped: {reason}: start it again")))
}

/// The keys of the cluster: those in the directory, or, the first time, those of the master that
/// serves.
async fn secrets(node: &ThisNode, dir: &DataDir) -> Result<Secrets> {
    let cluster = node.loaded.identity.cluster();
    if node.directory.load_ca(cluster).is_err() || dir.seal_bytes()?.is_none() {
        tracing::info!("asking the master that serves for the keys of the cluster");
        let told = cairn_roles::secrets(&node.agent).await?;
        let (Some(seal), Some(authority)) = (told.seal, told.authority) else {
            return Err(Failure::new(
                "the master that serves gives this node no keys of the cluster: was it \
                    joined with the role master?",
            ));
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

/// The metadata of a master: in its directory, or in a database that it shares.
struct Stored<'a> {
    args: &'a MasterArgs,
    node: &'a ThisNode,
    dir: &'a DataDir,
    seal: Option<[u8; 32]>,
}

#[async_trait]
impl Source for Stored<'_> {
    type Failure = Failure;

    async fn start(&self) -> Result<(Master, String)> {
        let metadata = self.open().await?;
        let (engine, config) = (Arc::clone(&metadata.engine), metadata.config.clone());
        let clock = Arc::clone(&self.node.clock);
        let starting = tokio::task::spawn_blocking(move || Master::start(engine, clock, config));
        let master = starting.await.map_err(ended)??;
        if let Some(seal) = &self.seal {
            let seal = SealKey::new(&Secret::new(*seal));
            require_opened(self.dir, &master, &seal).await?;
        }
        Ok((master, metadata.shown))
    }

    async fn stop(&self, master: Master) -> Result<()> {
        tokio::task::spawn_blocking(move || master.stop()).await.map_err(ended)
    }

    fn is_passing(&self, failure: &Failure) -> bool {
        failure.is_passing()
    }
}

/// A join that failed.
fn ended(error: tokio::task::JoinError) -> Failure {
    Failure::new(format!("starting: {error}"))
}

impl Stored<'_> {
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
            false => Err(opened.foreign("holds no metadata of this cluster")),
        }
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
