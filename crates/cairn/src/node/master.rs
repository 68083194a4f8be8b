//! `cairn master`: owns the namespace, or stands by for the master that does.

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
use cairn_cluster::members::{EnterReply, WirePeers};
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener};
use cairn_cluster::wire::{Listen, Terms, serve};
use cairn_meta::Master;
use cairn_meta::engine::postgres;
use cairn_meta::engine::raft::RaftEngine;
use cairn_meta::session::OwnMaster;
use cairn_roles::beat_of;
use cairn_roles::master::{Config, DRAIN, MasterNode, Source};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ThisNode;
use super::listen;
use super::process_facts;
use super::refill;
use super::status::{Status, StatusArgs};
use crate::config::ConfigArgs;
use crate::dir::{self, DataDir, MetaPlace};
use crate::failure::{DAMAGED_MASTER, Failure, Result};
use crate::inflight;
use crate::members;
use crate::memory::{MetadataMemoryArgs, ProcessSizes, SizeRequest};
use crate::metadata::{MetaArgs, Metadata};
use crate::server::records::{AuditArgs, Memory, Sinks};
use crate::server::{log, open::require_opened, otlp, process, signals::Signals, space};

/// Attempts to bind a socket that is in use, and the pause between them.
const BIND_ATTEMPTS: usize = 20;
const BIND_RETRY: Duration = Duration::from_millis(100);

/// Serve the metadata of a cluster, or stand by for the master that does
///
/// DIR is what `cairn cluster init` made, or `cairn cluster join` with a token for a master. Three
/// or five masters keep the metadata together, each in its DIR: one serves, and another takes over
/// within seconds when it fails. With --meta several masters share one PostgreSQL database instead.
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
    status: StatusArgs,
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
    memory: MetadataMemoryArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

impl MasterArgs {
    /// Returns the parts of memory that a master needs.
    pub fn requests(&self) -> Vec<SizeRequest> {
        self.memory.requests(self.meta.place() == MetaPlace::Postgres)
    }
}

pub fn run(args: &MasterArgs) -> Result<ExitCode> {
    let memory = ProcessSizes::divide(&args.requests())?;
    process::run(&args.log, async {
        args.config.announce();
        memory.announce();
        run_master(args, &memory, Arc::default()).await
    })
}

/// Reason why a run of a master ended.
enum RunEnd {
    Stopped,
    /// It goes on under a new number.
    Renumbered,
}

/// Runs the role until the process gets a signal to stop. `own` is notified when this master
/// serves.
pub async fn run_master(
    args: &MasterArgs,
    memory: &ProcessSizes,
    own: Arc<OwnMaster>,
) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    while let RunEnd::Renumbered = run_one(args, memory, &own, &mut signals).await? {}
    Ok(ExitCode::SUCCESS)
}

/// Runs the role as one node.
async fn run_one(
    args: &MasterArgs,
    memory: &ProcessSizes,
    own: &Arc<OwnMaster>,
    signals: &mut Signals,
) -> Result<RunEnd> {
    let node = ThisNode::to_run(&args.dir, Role::Master)?;
    refill::end_renumbering(&node, &args.dir)?;
    let export = args.otlp.as_deref().map(|url| otlp::of_sessions(url, &*node.rng)).transpose()?;
    let cluster = node.loaded.identity.cluster();
    let ((tcp, address), status) = bind(args).await?;
    let (stop, stopped) = watch::channel(false);
    let service = ControlService::default();
    let told = process_facts::of_a_master(service.clone(), Arc::clone(&node.agent), &args.dir);
    status.open(told.and(memory.numbers()), &stopped)?;
    let mut work = JoinSet::new();
    space::start(&mut work, &args.dir, &stopped);
    let entering = tokio::select! {
        place = place(args, &node) => place?,
        () = signals.stop(None) => return Ok(RunEnd::Stopped),
    };
    let dir = DataDir::of_node(&args.dir, cluster, entering.place, &*node.rng)?;
    let _inflight = inflight::Serving::start(inflight::Role::Master, &args.dir);
    let (agent, here) = (Arc::clone(&node.agent), address.clone());
    work.spawn(async move { agent.beat(move || beat_of(here.clone())).await });
    let begun = tokio::select! {
        begun = begin(&node, &dir, memory, entering.generation) => begun?,
        () = signals.stop(None) => return Ok(RunEnd::Stopped),
    };
    let (secrets, engine) = match begun {
        (secrets, Ok(engine)) => (secrets, engine),
        (_, Err(failure)) if failure.is_damage() && has_others(&node, &address) => {
            return tokio::select! {
                ended = lack(&node, &service, tcp, &stopped, failure) => ended,
                () = signals.stop(None) => Ok(RunEnd::Stopped),
            };
        }
        (_, Err(failure)) if failure.is_damage() => return Err(failure.and(DAMAGED_MASTER)),
        (_, Err(failure)) => return Err(failure),
    };
    let member = engine.as_ref().map(|engine| Arc::clone(engine.member()));
    member.iter().for_each(|member| service.keep(Arc::clone(member)));
    let desk = desk(&node, &service)?;
    let (mut sinks, names) = (Sinks::default(), Arc::new(|_| None) as Names);
    let audit = args.audit.start(&mut sinks, &node.clock, &names, Vec::new(), Memory::Never)?;
    let admin = AdminServer::new(service.clone(), audit.clone());
    let listener = listener(&node, tcp, &desk, &admin)?;
    let settings = settings(args, &dir);
    let config = Config { settings, audit, member, own: Arc::clone(own), ..Config::default() };
    let (seal, kept) = (secrets.seal, engine.clone());
    let stored = MasterStorage { args, memory, node: &node, dir: &dir, seal, engine: kept };
    let master = MasterNode { node: node.running()?, service, desk, secrets, config, export };
    let served = master.answer(listener, stopped);
    let ended = tokio::select! {
        ended = master.take_turns(&stored) => ended.and_then(ended_alone),
        () = signals.stop(None) => Ok(RunEnd::Stopped),
        lost = dir.lost() => Err(lost),
        ended = attend(engine.as_ref(), &node, &master.service) => ended,
    };
    tracing::info!("stopping");
    master.service.serve(None);
    if let Some(engine) = &engine {
        members::end(engine).await;
    }
    let _ = stop.send(true);
    let _ = tokio::join!(tokio::time::timeout(DRAIN, served), admin.stop(DRAIN));
    sinks.close().await;
    ended
}

/// Makes the listener for other nodes and for operators.
fn listener(
    node: &ThisNode,
    tcp: TcpListener,
    desk: &Arc<Desk>,
    admin: &Arc<AdminServer>,
) -> Result<Arc<TlsListener>> {
    let takers = Takers { admin: Some(admin.taker()), ..Takers::default() };
    let (known, trust) = (Some(Arc::clone(desk)), node.trust_with_former());
    Ok(Arc::new(TlsListener::with_takers(tcp, trust, known, takers)?))
}

/// Makes the desk at which this master admits nodes.
fn desk(node: &ThisNode, service: &ControlService) -> Result<Arc<Desk>> {
    Ok(Arc::new(Desk {
        ca: node.directory.load_ca(node.loaded.identity.cluster())?,
        tokens: Arc::new(service.clone()),
        pins: node.trust().pins,
        clock: Arc::clone(&node.clock),
        rng: Arc::clone(&node.rng),
    }))
}

fn settings(args: &MasterArgs, dir: &DataDir) -> Settings {
    let patience = Duration::from_secs(args.repair_after);
    let is_alone = dir.format.meta == MetaPlace::Directory;
    Settings { patience, is_alone, ..Settings::default() }
}

/// Prepares the keys of the cluster and the member of this master, or the reason why it cannot
/// begin.
async fn begin(
    node: &ThisNode,
    dir: &DataDir,
    memory: &ProcessSizes,
    generation: Option<u64>,
) -> Result<(Secrets, Result<Option<Arc<RaftEngine>>>)> {
    let secrets = secrets(node, dir).await?;
    Ok((secrets, member(node, dir, memory, generation).await))
}

/// Binds the sockets of a master. The sockets of the same master under its former number may be
/// about to close.
async fn bind(args: &MasterArgs) -> Result<((TcpListener, String), Status)> {
    let mut left = BIND_ATTEMPTS;
    loop {
        let tcp = args.listen.bind().await;
        match tcp.and_then(|tcp| Ok((tcp, args.status.bind()?))) {
            Err(_) if left > 0 => left -= 1,
            bound => return bound,
        }
        sleep(BIND_RETRY).await;
    }
}

/// Returns true if this node, which others reach at `address`, knows of other masters.
fn has_others(node: &ThisNode, address: &str) -> bool {
    let others = node.loaded.masters.iter().any(|known| known.node != node.loaded.identity.node());
    others || node.loaded.addresses.iter().any(|other| other != address)
}

/// Runs a master whose member does not start, since a part of it is damaged or gone: tells that to
/// nodes that ask, until it has got a new number.
async fn lack(
    node: &ThisNode,
    service: &ControlService,
    tcp: TcpListener,
    stopped: &watch::Receiver<bool>,
    failure: Failure,
) -> Result<RunEnd> {
    let damage = failure.to_string();
    tracing::error!(
        damage,
        "the metadata of this master are damaged: it fills itself again once the others are up"
    );
    service.lack(format!("its metadata are damaged, and it fills itself again: {damage}"));
    let trust = node.trust_with_former();
    let listener: Arc<dyn Listen> =
        Arc::new(TlsListener::with_takers(tcp, trust, None, Takers::default())?);
    let terms = node.running()?.terms;
    let answering = serve(listener, terms, service.clone(), DRAIN, stopped.clone());
    let mut work = JoinSet::new();
    work.spawn(answering);
    refill::until_renumbered(node, &damage).await?;
    Ok(RunEnd::Renumbered)
}

fn ended_alone(reason: String) -> Result<RunEnd> {
    Err(Failure::new(format!("the master stopped: {reason}: start it again")))
}

/// Place of this master's metadata, and for a new member the generation of its messages.
struct Entering {
    place: MetaPlace,
    generation: Option<u64>,
}

/// Finds the place of the metadata. A master that starts for the first time learns it from the
/// master that serves.
async fn place(args: &MasterArgs, node: &ThisNode) -> Result<Entering> {
    let known = dir::place(&args.dir)?.map(|(place, _)| place);
    let begun = args.dir.join("member").exists();
    if let Some(place) = place_without_asking(args.meta.place(), known, begun) {
        return Ok(Entering { place, generation: None });
    }
    tracing::info!("asking the master that serves how metadata are kept");
    let EnterReply { generation } = cairn_roles::enter(&node.agent).await?;
    Ok(Entering { place: MetaPlace::Members, generation: Some(generation) })
}

/// Decides where a master keeps the metadata, from the place that it was `given` and the place that
/// its directory has `known`. `None`: it is to be a new member, and must ask first. `begun`: the
/// directory says that its member has taken part.
fn place_without_asking(
    given: MetaPlace,
    known: Option<MetaPlace>,
    begun: bool,
) -> Option<MetaPlace> {
    match (given, known) {
        (MetaPlace::Postgres, _) => Some(MetaPlace::Postgres),
        (_, Some(MetaPlace::Members)) if !begun => None,
        (_, known) => known,
    }
}

/// Starts the member of this master, if it has one.
async fn member(
    node: &ThisNode,
    dir: &DataDir,
    memory: &ProcessSizes,
    generation: Option<u64>,
) -> Result<Option<Arc<RaftEngine>>> {
    if dir.format.meta != MetaPlace::Members {
        return Ok(None);
    }
    let own = node.loaded.identity.node();
    if let Some(generation) = generation {
        members::make(dir, own, generation)?;
    }
    let terms = Terms::new(node.loaded.identity.cluster(), own, Role::Master);
    let dialer = Arc::new(TlsDialer::new(node.trust_with_former())?);
    let former = node.loaded.addresses.clone();
    let peers = Arc::new(WirePeers::new(dialer, terms, Arc::clone(&node.view), former));
    let (clock, rng) = (Arc::clone(&node.clock), Arc::clone(&node.rng));
    let config = memory.engine(dir.sizes.of_meta());
    let member = members::open(dir, config, own, peers, clock, rng).await?;
    let engine = Arc::new(RaftEngine::new(member));
    if let Some(map) = tokio::task::block_in_place(|| members::map_of(&*engine))? {
        node.view.adopt_rows(&Arc::new(map));
    }
    Ok(Some(engine))
}

/// Attends to the member, if there is one. Ends when it can take no further part, and, if its
/// metadata are damaged, when it has got a new number.
async fn attend(
    engine: Option<&Arc<RaftEngine>>,
    node: &ThisNode,
    service: &ControlService,
) -> Result<RunEnd> {
    let Some(engine) = engine else { return std::future::pending().await };
    let failed = tokio::select! {
        failed = members::attend(engine, &node.view) => failed,
        renumbered = refill::when_damaged(engine, node) => {
            return renumbered.map(|()| RunEnd::Renumbered);
        }
    };
    let Some(damage) = engine.member().damage() else { return Err(failed) };
    tracing::error!(%failed, "its metadata are damaged: it fills itself once the others are up");
    service.lack(format!("its metadata are damaged, and it fills itself again: {}", damage.what));
    refill::until_renumbered(node, &damage.what).await?;
    Ok(RunEnd::Renumbered)
}

/// Returns the keys of the cluster: those in the directory, or, the first time, those of the master
/// that serves.
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

/// Metadata of a master: in its directory, or in a database that masters share.
struct MasterStorage<'a> {
    args: &'a MasterArgs,
    memory: &'a ProcessSizes,
    node: &'a ThisNode,
    dir: &'a DataDir,
    seal: Option<[u8; 32]>,
    /// Engine that it shares with other masters.
    engine: Option<Arc<RaftEngine>>,
}

#[async_trait]
impl Source for MasterStorage<'_> {
    type Failure = Failure;

    async fn start(&self) -> Result<(Master, String)> {
        let metadata = self.open().await?;
        let engine = Arc::clone(&metadata.engine);
        let config = self.memory.master(metadata.config.clone());
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
        tokio::task::spawn_blocking(move || master.stop()).await.map_err(ended)?;
        if let Some(engine) = &self.engine {
            engine.given_up().await;
        }
        Ok(())
    }

    fn is_passing(&self, failure: &Failure) -> bool {
        failure.is_passing()
    }
}

/// Makes the failure for a join of tasks that failed.
fn ended(error: tokio::task::JoinError) -> Failure {
    Failure::new(format!("starting: {error}"))
}

impl MasterStorage<'_> {
    async fn open(&self) -> Result<Metadata> {
        let opened = match (self.args.meta.database(), &self.engine) {
            (None, Some(engine)) => {
                engine.wait_for_turn().await?;
                Metadata::of_member(self.dir, Arc::clone(engine))
            }
            (None, None) => Metadata::to_serve(self.dir, self.memory)?,
            (Some(config), _) => {
                let accept_lossy_failover = self.args.accept_lossy_failover;
                let config = postgres::Config { accept_lossy_failover, ..config };
                let turn = wait_for_turn(config.clone()).await?;
                let config = postgres::Config { turn: Some(turn), ..config };
                tokio::task::block_in_place(|| Metadata::in_known_database(&config))?
            }
        };
        if tokio::task::block_in_place(|| opened.has_store(self.dir))? {
            Ok(opened)
        } else {
            Err(opened.foreign("holds no metadata of this cluster"))
        }
    }
}

/// Tells a thread that its result is no longer awaited.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_master_that_begins_as_a_member_asks_first() {
        let (alone, members, postgres) =
            (MetaPlace::Directory, MetaPlace::Members, MetaPlace::Postgres);
        for begun in [false, true] {
            for known in [None, Some(alone), Some(members), Some(postgres)] {
                assert_eq!(place_without_asking(postgres, known, begun), Some(postgres));
            }
            assert_eq!(place_without_asking(alone, None, begun), None);
            // The directory decides. A database that is not named is a separate error.
            for known in [alone, postgres] {
                assert_eq!(place_without_asking(alone, Some(known), begun), Some(known));
            }
        }
        assert_eq!(place_without_asking(alone, Some(members), false), None);
        assert_eq!(place_without_asking(alone, Some(members), true), Some(members));
    }
}
