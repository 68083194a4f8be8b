//! Requests of a gateway's console to the masters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::fsck::{FsckFound, FsckPhase};
use cairn_base::rng::RealRng;
use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder};
use cairn_base::{Error, NodeId, Role, waits};
use cairn_cluster::admin::AdminClient;
use cairn_cluster::control::{NodeStatus, forecast};
use cairn_cluster::members::{MasterAnswer, MemberReport, ask_all, copies, masters_of};
use cairn_cluster::wire::Terms;
use cairn_cluster::wire::tls::TlsDialer;
use cairn_console::{Asking, ClusterFsck, Emptying, MetadataKeepers, NodeReport, Nodes};
use parking_lot::Mutex;

use super::ThisNode;
use crate::failure::Result;

/// Time for which the masters' answers about their members are reused.
const MEMBERS_FRESH: Duration = Duration::from_secs(20);

pub struct Masters {
    admin: Arc<AdminClient>,
    dialer: Arc<TlsDialer>,
    terms: Terms,
    known: Arc<Mutex<Option<KnownMembers>>>,
    fsck: Arc<Mutex<FsckSeen>>,
}

/// The last answers of the masters about their members.
#[derive(Clone)]
struct KnownMembers {
    at: Instant,
    keepers: MetadataKeepers,
    stalls: Vec<String>,
    damage: Vec<String>,
}

/// Latest state of an fsck.
#[derive(Default)]
struct FsckSeen {
    runs: bool,
    /// Number and results of the last fsck that ended.
    found: Option<(u64, Arc<FsckFound>)>,
}

impl FsckSeen {
    /// Returns the phase to show for the phase that a master reports. If the master no longer knows
    /// a running fsck, another master has taken over.
    fn see(&mut self, phase: FsckPhase) -> FsckPhase {
        let is_lost = self.runs && phase == FsckPhase::Unknown;
        self.runs = is_lost || phase.is_under_way();
        if is_lost { FsckPhase::Replaced } else { phase }
    }
}

impl Masters {
    /// Makes the access of a gateway to its masters.
    pub fn of(node: &ThisNode) -> Result<Masters> {
        let (addresses, identity) = (node.loaded.addresses.clone(), &node.loaded.identity);
        Ok(Masters {
            admin: Arc::new(AdminClient::new(node.trust(), addresses, waits::ADMIN)?),
            dialer: Arc::new(TlsDialer::new(node.trust())?),
            terms: Terms::new(identity.cluster(), identity.node(), Role::Gateway),
            known: Arc::default(),
            fsck: Arc::default(),
        })
    }

    /// Asks all masters about their members, unless they have answered recently.
    fn members(&self) -> Asking<KnownMembers> {
        let (admin, known) = (Arc::clone(&self.admin), Arc::clone(&self.known));
        let (dialer, terms) = (Arc::clone(&self.dialer), self.terms.clone());
        Box::pin(async move {
            let fresh = known.lock().clone().filter(|one| one.at.elapsed() < MEMBERS_FRESH);
            if let Some(fresh) = fresh {
                return Ok(fresh);
            }
            let map = admin.status().await?.map;
            let masters = masters_of(&map);
            let asked = ask_all(dialer, terms, &masters).await;
            let (stalls, damage) = (stalls_of(&asked), damage_of(&asked));
            let keepers = keepers_of(asked, masters.len())?;
            let members = KnownMembers { at: Instant::now(), keepers, stalls, damage };
            *known.lock() = Some(members.clone());
            Ok(members)
        })
    }
}

impl Nodes for Masters {
    fn own(&self) -> NodeId {
        self.terms.node
    }

    fn reports(&self) -> Asking<BTreeMap<NodeId, NodeReport>> {
        let admin = Arc::clone(&self.admin);
        Box::pin(async move {
            let nodes = admin.status().await?.nodes.into_iter();
            Ok(nodes.map(|said| (said.node, report(said))).collect())
        })
    }

    fn emptying(&self, node: NodeId) -> Asking<Emptying> {
        let admin = Arc::clone(&self.admin);
        Box::pin(async move {
            let forecast = forecast::emptying(&admin.status().await?, node)?;
            Ok(Emptying {
                groups: forecast.groups as u64,
                bytes: forecast.bytes,
                takes: forecast.takes(forecast::RATE),
                rate: forecast::RATE,
                targets: forecast.targets,
            })
        })
    }

    fn keepers(&self) -> Asking<MetadataKeepers> {
        let members = self.members();
        Box::pin(async move { Ok(members.await?.keepers) })
    }

    fn stalls(&self) -> Asking<Vec<String>> {
        let members = self.members();
        Box::pin(async move { Ok(members.await?.stalls) })
    }

    fn damage(&self) -> Asking<Vec<String>> {
        let members = self.members();
        Box::pin(async move { Ok(members.await?.damage) })
    }

    fn scrub(&self, order: RunOrder) -> Asking<Vec<(NodeId, NodeScrub)>> {
        let (admin, run) = (Arc::clone(&self.admin), order.number(&RealRng));
        Box::pin(async move { admin.scrub(run, order).await })
    }

    fn degraded(&self) -> Asking<Option<DegradedObjects>> {
        let admin = Arc::clone(&self.admin);
        Box::pin(async move { admin.degraded(0).await })
    }

    fn fsck(&self, order: RunOrder, user: &str) -> Asking<ClusterFsck> {
        let (admin, run) = (Arc::clone(&self.admin), order.number(&RealRng));
        let (known, user) = (Arc::clone(&self.fsck), user.to_owned());
        Box::pin(async move {
            let mut state = admin.fsck(run, order, user).await?;
            state.phase = known.lock().see(state.phase);
            if state.phase != FsckPhase::Ended {
                return Ok(ClusterFsck { state, found: None });
            }
            let found = known.lock().found.clone().filter(|(run, _)| *run == state.run);
            let found = match found {
                Some((_, found)) => Some(found),
                None => admin.fsck_found(state.run).await?.map(Arc::new),
            };
            known.lock().found = found.clone().map(|found| (state.run, found));
            Ok(ClusterFsck { state, found })
        })
    }
}

/// Returns sentences about members that make no progress.
fn stalls_of(asked: &[MasterAnswer]) -> Vec<String> {
    let reports = asked.iter().filter_map(|one| one.answer.as_ref().ok());
    let texts = reports.flat_map(|report| {
        report.stalls.iter().map(|stall| stall.text(report.member)).collect::<Vec<_>>()
    });
    texts.collect()
}

/// Returns sentences about members whose metadata are damaged.
fn damage_of(asked: &[MasterAnswer]) -> Vec<String> {
    let reports = asked.iter().filter_map(|one| one.answer.as_ref().ok());
    let texts = reports.flat_map(|report| {
        report.damage.iter().map(|damage| damage.text(report.member)).collect::<Vec<_>>()
    });
    texts.collect()
}

/// Returns the keepers, from the masters' answers about their members. `masters` is the number of
/// masters.
fn keepers_of(asked: Vec<MasterAnswer>, masters: usize) -> cairn_base::Result<MetadataKeepers> {
    let mut reports: Vec<MemberReport> = Vec::new();
    let mut failure = Error::Unavailable("no master says who keeps the metadata".into());
    for MasterAnswer { answer, .. } in asked {
        match answer {
            Ok(report) => reports.push(report),
            Err(Error::NotImplemented(_)) if masters > 1 => return Ok(MetadataKeepers::Database),
            Err(Error::NotImplemented(_)) => return Ok(MetadataKeepers::OneMaster),
            Err(error) => failure = error,
        }
    }
    match copies(reports.iter()) {
        0 => Err(failure),
        copies => Ok(MetadataKeepers::Voters(copies)),
    }
}

fn report(said: NodeStatus) -> NodeReport {
    let copying = said.copying.iter().map(|one| (one.group, one.blocks, one.bytes));
    NodeReport {
        silent: Duration::from_millis(said.silent_ms),
        copying: copying.collect(),
        version: said.version,
        blocks: said.store.blocks,
        live_bytes: said.store.live_bytes,
        free_bytes: said.store.free_bytes,
        corrupt: said.store.corrupt,
        healed: said.store.healed,
        disk_fails: said.failure.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(answer: cairn_base::Result<MemberReport>) -> MasterAnswer {
        MasterAnswer { address: String::new(), node: None, answer }
    }

    #[test]
    fn a_master_that_does_not_know_the_fsck_that_ran_is_another_one() {
        let mut seen = FsckSeen::default();
        assert_eq!(seen.see(FsckPhase::Unknown), FsckPhase::Unknown);
        assert_eq!(seen.see(FsckPhase::Rows), FsckPhase::Rows);
        for _ in 0..2 {
            assert_eq!(seen.see(FsckPhase::Unknown), FsckPhase::Replaced);
        }
        assert_eq!(seen.see(FsckPhase::Ended), FsckPhase::Ended);
        assert_eq!(seen.see(FsckPhase::Unknown), FsckPhase::Unknown);
    }

    #[test]
    fn the_keepers_of_the_metadata_are_those_that_the_leader_names() {
        let report = |member, term, voters: &[u64]| {
            let voters = vec![voters.to_vec()];
            asked(Ok(MemberReport { member, term, voters, ..MemberReport::default() }))
        };
        let none = || asked(Err(Error::NotImplemented(String::new())));
        let silent = || asked(Err(Error::Unavailable("it is away".into())));
        let of = |asked, masters| keepers_of(asked, masters).ok();
        let voters = |number| Some(MetadataKeepers::Voters(number));
        let (one, all) = (report(1, 1, &[1]), report(2, 2, &[1, 2, 3]));
        assert_eq!(of(vec![one, all, silent()], 3), voters(2), "one of three is away");
        assert_eq!(of(vec![silent(), report(1, 2, &[1])], 2), voters(1));
        assert_eq!(of(vec![none(), silent()], 2), Some(MetadataKeepers::Database));
        assert_eq!(of(vec![none()], 1), Some(MetadataKeepers::OneMaster));
        assert_eq!(of(vec![silent()], 1), None);
    }
}
