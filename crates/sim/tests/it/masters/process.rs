//! A process of a master: its member, and the master whenever it is its turn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::rng::SeededRng;
use cairn_base::{Error, Result};
use cairn_cluster::members::Seating;
use cairn_meta::Master;
use cairn_meta::engine::Engine;
use cairn_meta::engine::raft::Seams;
use cairn_meta::master;
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::seating::{Duties, MasterList, Served};
use super::wires::{Port, Wires};
use crate::cluster::host::Given;
use crate::member::{MemberShown, config};

/// The state of a process that others see.
#[derive(Clone, Default)]
pub struct ProcessShown {
    pub member: MemberShown,
    /// Master, if it claims to serve, and the number of masters that began before it.
    pub master: Arc<Mutex<Option<(u64, Master)>>>,
}

impl ProcessShown {
    pub fn clear(&self) {
        let master = self.master.lock().take();
        drop(master);
        self.member.clear();
    }
}

pub struct Start {
    pub id: u64,
    pub disk: SimDisk,
    pub wires: Wires,
    pub rng: Arc<SeededRng>,
    /// The members with which it makes the log, if it does.
    pub founds: BTreeSet<u64>,
    /// It asks first whether it may begin.
    pub enters: bool,
    /// Members that were given up, as its map says.
    pub former: BTreeSet<u64>,
    /// An operator has masters come and go.
    pub changes: bool,
    pub list: MasterList,
    pub shown: ProcessShown,
    /// Number of masters that have begun.
    pub masters: Arc<AtomicU64>,
}

pub fn start(start: Start, given: Given) {
    tokio::spawn(async move {
        let (id, shown, list) = (start.id, start.shown.clone(), start.list.clone());
        if let Err(error) = run(start, given).await {
            tracing::warn!(id, %error, "a process of a master has ended");
            // No bit of a disk is flipped here.
            if error.to_string().contains("corrupt") {
                list.with(|state| state.violations.push(format!("member {id}: {error}")));
            }
        }
        shown.clear();
        shown.member.end();
    });
}

async fn run(start: Start, given: Given) -> Result<()> {
    let seams = Seams {
        peers: Arc::new(Port { from: start.id, wires: start.wires, former: start.former }),
        clock: Arc::clone(&given.clock),
        rng: Arc::clone(&start.rng) as _,
        threads: Some(Arc::clone(&given.threads)),
    };
    if start.enters {
        let generation = start.list.enter(start.id).await?;
        start.shown.member.make(&start.disk, &config(&start.rng), start.id, generation)?;
    }
    let config = config(&start.rng);
    let engine = start.shown.member.open(&start.disk, config, start.id, seams).await?;
    let member = Arc::clone(engine.member());
    let generation = member.status().await?.generation;
    tokio::spawn(start.list.clone().watch(Arc::clone(&member), generation));
    if !start.founds.is_empty() {
        match member.found(&start.founds).await {
            // An earlier process of it did so.
            Ok(()) | Err(Error::Exists(_)) => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        engine.wait_for_turn().await?;
        let config =
            master::Config { threads: Some(Arc::clone(&given.threads)), ..master::Config::far() };
        let clock = Arc::clone(&given.clock);
        let master =
            Master::start_later(Arc::clone(&engine) as Arc<dyn Engine>, clock, config).await?;
        let number = start.masters.fetch_add(1, Ordering::Relaxed);
        *start.shown.master.lock() = Some((number, master.clone()));
        tracing::info!(id = start.id, "serves");
        let seating = Arc::new(Seating::new(Arc::clone(&member)));
        let served = Arc::new(Served { list: start.list.clone(), master: master.clone() });
        let duties = Duties { served, seating: Arc::clone(&seating), changes: start.changes };
        let mut work = JoinSet::new();
        work.spawn(duties.attend());
        let next = tokio::select! {
            biased;
            reason = master.wait_failed() => {
                tracing::info!(id = start.id, reason, "serves no longer");
                None
            }
            next = seating.hands_over() => Some(next.to.0),
        };
        work.shutdown().await;
        *start.shown.master.lock() = None;
        drop(master);
        engine.give_up();
        if let Some(next) = next {
            let handed_over = member.hand_over(next).await;
            tracing::info!(id = start.id, next, handed_over, "serves no longer");
        }
    }
}
