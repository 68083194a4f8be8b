//! A master: it serves when it is its turn, and is a standby otherwise.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cairn_audit::LineLog;
use cairn_auth::Caller;
use cairn_base::{ClusterId, NodeId, Result, SessionId, waits};
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{
    ControlService, Controller, HandOver, MapKeeper, ServingMaster, Settings,
};
use cairn_cluster::identity::Desk;
use cairn_cluster::limits::NODE_REQUESTS;
use cairn_cluster::wire::{Listen, serve};
use cairn_fs::Fs;
use cairn_meta::engine::raft::Member;
use cairn_meta::master::host::{Export, Sessions};
use cairn_meta::ops::sessions::Format;
use cairn_meta::session::LEASE;
use cairn_meta::session::OwnMaster;
use cairn_meta::{Master, Meta};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::duties::{self, Pace};
use crate::node::Node;

/// Time that requests in progress get to finish when the master stops.
pub const DRAIN: Duration = Duration::from_secs(5);

/// The place where a master keeps its metadata.
#[async_trait]
pub trait Source: Send + Sync {
    type Failure: fmt::Display + From<cairn_base::Error> + Send;

    /// Waits until no other master serves, and starts one. Also returns a description of where its
    /// metadata are, for the log.
    async fn start(&self) -> Result<(Master, String), Self::Failure>;

    /// Stops a master that has failed or handed over.
    async fn stop(&self, master: Master) -> Result<(), Self::Failure>;

    /// Returns whether a start that failed in this way may succeed later.
    fn is_passing(&self, failure: &Self::Failure) -> bool;
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Time that a session lives without being renewed.
    pub lease: Duration,
    pub settings: Settings,
    /// See [`cairn_fs::Config::late`].
    pub late: Duration,
    pub pace: Pace,
    /// Takes audit records of operations of mounts.
    pub audit: Option<LineLog>,
    /// The member of this master, where several masters keep the metadata together.
    pub member: Option<Arc<Member>>,
    /// Notified when this master serves, for a gateway in the same process.
    pub own: Arc<OwnMaster>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            lease: LEASE,
            settings: Settings::default(),
            late: cairn_fs::Config::default().late,
            pace: Pace::default(),
            audit: None,
            member: None,
            own: Arc::default(),
        }
    }
}

/// A node with everything it needs to serve as the master.
pub struct MasterNode {
    pub node: Node,
    /// Answers as a standby until this master serves.
    pub service: ControlService,
    pub desk: Arc<Desk>,
    pub secrets: Secrets,
    pub config: Config,
    /// Takes spans.
    pub export: Option<Export>,
}

impl MasterNode {
    /// Serves whenever it is this master's turn, indefinitely. If no other master could take over
    /// ([`Settings::is_alone`]), returns the reason when it no longer serves.
    ///
    /// # Errors
    /// The error that kept it from serving the first time, unless the error is passing.
    pub async fn take_turns<S: Source>(&self, source: &S) -> Result<String, S::Failure> {
        let mut has_served = false;
        loop {
            let mut handed_over = false;
            let ended = self.serve_once(source, &mut handed_over).await;
            self.service.serve(None);
            if self.config.settings.is_alone {
                // Only the next process may read its metadata again.
                return ended;
            }
            match ended {
                Ok(reason) if handed_over => {
                    tracing::info!(reason, "this master stands by");
                    has_served = true;
                }
                Ok(reason) => {
                    tracing::error!(reason, "this master serves no longer, it stands by");
                    has_served = true;
                }
                Err(failure) if has_served || source.is_passing(&failure) => {
                    tracing::warn!(%failure, "not serving");
                }
                Err(failure) => return Err(failure),
            }
            sleep(waits::TURN_RETRY).await;
        }
    }

    /// Serves until it cannot, or hands over. Returns the reason.
    async fn serve_once<S: Source>(
        &self,
        source: &S,
        handed_over: &mut bool,
    ) -> Result<String, S::Failure> {
        let (master, shown) = source.start().await?;
        let controller = self.controller(&master).await?;
        self.service.serve(Some(Arc::clone(&controller)));
        self.config.own.set(Some(master.serving()));
        tracing::info!(metadata = shown, "this master serves");
        let mut work = JoinSet::new();
        work.spawn(duties::look_around(Arc::clone(&controller)));
        work.spawn(duties::seat_members(Arc::clone(&controller)));
        work.spawn(duties::end_sessions(Arc::clone(&controller.sessions)));
        let fs = self.fs(&controller);
        work.spawn(clean_up(fs, Arc::clone(&controller), self.config.pace));
        let (reason, next) = tokio::select! {
            biased;
            reason = master.wait_failed() => (reason, None),
            HandOver { to, why } = controller.hands_over() => (why, Some(to)),
        };
        work.shutdown().await;
        self.service.serve(None);
        self.config.own.set(None);
        let Some(next) = next else {
            source.stop(master).await?;
            return Ok(reason);
        };
        *handed_over = true;
        let ending = master.clone();
        source.stop(master).await?;
        ending.end(&reason);
        drop(ending);
        self.hand_over(next).await;
        Ok(reason)
    }

    /// Hands the lead to another master. This master has given up by now, and no request waits for
    /// it.
    async fn hand_over(&self, to: NodeId) {
        let Some(member) = &self.config.member else { return };
        if member.hand_over(to.0).await {
            tracing::info!(%to, "this member leads no longer")
        } else {
            tracing::warn!(%to, "no other member leads: this one goes on")
        }
    }

    async fn controller(&self, master: &Master) -> Result<Arc<Controller>> {
        let node = &self.node;
        let clock = Arc::clone(&node.clock);
        let format = Format { cluster: cluster_number(node.terms.cluster) };
        master.run(&Caller::system(), format).await?;
        let lease = self.config.lease;
        let sessions = Sessions::start(master.clone(), Arc::clone(&clock), lease).await?;
        self.export.iter().for_each(|export| sessions.export_to(Arc::clone(export)));
        if let Some(log) = &self.config.audit {
            sessions.audit_to(log.clone());
        }
        let keeper = MapKeeper::start(master.clone(), Arc::clone(&node.view)).await?;
        let controller = Controller::new(
            node.id(),
            ServingMaster { master: master.clone(), sessions },
            keeper,
            Arc::clone(&self.desk),
            self.secrets.clone(),
            clock,
            self.config.settings,
        );
        let controller = controller.with_member(self.config.member.clone());
        Ok(Arc::new(controller.with_pool(node.pool())))
    }

    /// Returns the store as this master sees it, to collect garbage: it writes no blocks, and so
    /// needs no session.
    fn fs(&self, controller: &Controller) -> Fs {
        let node = &self.node;
        let map = Arc::clone(&controller.keeper) as _;
        let blocks = Arc::new(node.replicated(map, node.pool(), NODE_REQUESTS));
        let meta = Meta::Local {
            master: controller.master.clone(),
            session: SessionId(0),
            sessions: None,
        };
        let late = self.config.late;
        let config = cairn_fs::Config { cache_bytes: 0, late, ..cairn_fs::Config::default() };
        let fs = Fs::over(meta, blocks, Arc::clone(&node.clock), config);
        let sessions = Arc::clone(&controller.sessions);
        fs.set_reads_floor(move || sessions.reads_from());
        fs
    }

    /// Answers other nodes, whether this master serves or stands by, until `stopped`.
    pub fn answer(
        &self,
        listener: Arc<dyn Listen>,
        stopped: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let (terms, service) = (self.node.terms.clone(), self.service.clone());
        tokio::spawn(serve(listener, terms, service, DRAIN, stopped))
    }
}

/// Returns the number by which the metadata know a cluster.
pub fn cluster_number(cluster: ClusterId) -> u64 {
    (cluster.0 >> 64) as u64
}

/// Collects garbage and deletes old logs, once changes may be made: sessions of a former master may
/// hold leases until then.
async fn clean_up(fs: Fs, controller: Arc<Controller>, pace: Pace) {
    controller.sessions.opened().await;
    tokio::join!(duties::collect_garbage(fs.clone(), pace), duties::delete_old_logs(fs, pace));
}
