//! Masters that keep the metadata together. Each master is asked about itself, so there is
//! something to show even if none serves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{ClusterMap, NodeId, Role};
use cairn_cluster::members::{
    DamageReport, MasterAnswer, MemberReport, StallKind, StallReport, ask_all, best, copies,
    masters_of, patience,
};
use cairn_cluster::wire::Terms;
use cairn_cluster::wire::tls::{TlsDialer, Trust};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::node::ThisNode;
use crate::output;

/// Most entries that a master that has caught up may lack: some are always on their way.
const LAG_MOST: u64 = 10_000;

/// Answers of all masters.
#[derive(Debug, Default)]
pub struct MembersShown {
    reports: BTreeMap<u64, MemberReport>,
    /// Masters that did not answer, by node if it is known: address, and reason.
    silent: Vec<(Option<u64>, String, String)>,
}

/// Place of the metadata, according to the masters.
#[derive(Debug)]
pub enum MastersSaid {
    /// The masters keep them together.
    Members(MembersShown),
    /// They are in a database, or one master has them alone.
    Elsewhere,
    /// No master answered.
    Nothing,
}

/// Asks, as the node of `dir`, the masters of `map`, which the master that serves has sent just
/// now, or those that the directory remembers.
pub fn ask(dir: &Path, map: Option<&ClusterMap>) -> Result<MastersSaid> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut node = ThisNode::open(dir, Role::Master);
        let mut as_role = Role::Master;
        for role in Role::ALL {
            if node.is_ok() {
                break;
            }
            (node, as_role) = (ThisNode::open(dir, role), role);
        }
        let node = node?;
        if let Some(map) = map {
            node.view.adopt_rows(&Arc::new(map.clone()));
        }
        ask_as(&node, as_role, map).await
    })
}

/// Asks the masters as [`ask`] does, in the name of `node`.
async fn ask_as(node: &ThisNode, role: Role, map: Option<&ClusterMap>) -> Result<MastersSaid> {
    let remembered = || node.loaded.addresses.iter().map(|one| (one.clone(), patience(true)));
    let addresses = map.map_or_else(|| remembered().collect(), masters_of);
    let asked = ask_at(node, node.trust(), role, &addresses).await?;
    let masters = map.into_iter().flat_map(ClusterMap::masters);
    let nodes = masters.map(|(id, master)| (master.address.clone(), id)).collect();
    Ok(MastersSaid::of(asked, &nodes))
}

/// Asks, as the master `node`, all masters of `map`, all that it gave up, and all that the
/// directory remembers, except itself.
pub async fn ask_everywhere(node: &ThisNode, map: &ClusterMap) -> Result<Vec<MasterAnswer>> {
    let own = node.loaded.identity.node();
    let of_map = map.nodes.iter().chain(&map.former).filter(|(_, one)| one.is_master());
    let nodes: BTreeMap<&String, NodeId> = of_map.map(|(id, one)| (&one.address, *id)).collect();
    let all = nodes.keys().copied().chain(&node.loaded.addresses);
    let all: BTreeSet<&String> = all.filter(|address| !address.is_empty()).collect();
    let others = all.into_iter().filter(|address| nodes.get(address) != Some(&own));
    // The map may be as old as the metadata here: nodes that are down in it may be up now.
    let addresses: Vec<_> = others.map(|address| (address.clone(), patience(true))).collect();
    let asked = ask_at(node, node.trust_with_former(), Role::Master, &addresses).await?;
    let named = asked.into_iter().map(|asked| {
        let node = asked.node.or_else(|| nodes.get(&asked.address).copied());
        MasterAnswer { node, ..asked }
    });
    Ok(named.collect())
}

async fn ask_at(
    node: &ThisNode,
    trust: Trust,
    role: Role,
    addresses: &[(String, Duration)],
) -> Result<Vec<MasterAnswer>> {
    let dialer = Arc::new(TlsDialer::new(trust)?);
    let identity = &node.loaded.identity;
    let terms = Terms::new(identity.cluster(), identity.node(), role);
    Ok(ask_all(dialer, terms, addresses).await)
}

impl MastersSaid {
    /// Makes the result from the answers. The nodes of addresses are known as far as a map has
    /// them.
    fn of(asked: Vec<MasterAnswer>, nodes: &BTreeMap<String, NodeId>) -> MastersSaid {
        let (mut shown, mut is_elsewhere) = (MembersShown::default(), false);
        for MasterAnswer { address, node, answer } in asked {
            match answer {
                Ok(report) => drop(shown.reports.insert(report.member, report)),
                Err(error) => {
                    is_elsewhere |= matches!(error, cairn_base::Error::NotImplemented(_));
                    let node = node.or_else(|| nodes.get(&address).copied()).map(|node| node.0);
                    shown.silent.push((node, address, error.to_string()));
                }
            }
        }
        match (shown.reports.is_empty(), is_elsewhere) {
            (false, _) => MastersSaid::Members(shown),
            (true, true) => MastersSaid::Elsewhere,
            (true, false) => MastersSaid::Nothing,
        }
    }

    pub fn members(&self) -> Option<&MembersShown> {
        match self {
            MastersSaid::Members(shown) => Some(shown),
            MastersSaid::Elsewhere | MastersSaid::Nothing => None,
        }
    }
}

impl MembersShown {
    /// Makes the result for this number of masters, the first of which vote.
    #[cfg(test)]
    pub fn of_voters(masters: u64, voters: u64) -> MembersShown {
        let report = |member| MemberReport {
            member,
            leader: 1,
            voters: vec![(1..=voters).collect()],
            learners: (voters + 1..=masters).collect(),
            lags: (2..=masters).map(|id| (id, Some(0))).collect(),
            ..MemberReport::default()
        };
        let reports = (1..=masters).map(|id| (id, report(id))).collect();
        MembersShown { reports, silent: Vec::new() }
    }

    /// Returns the report of the newest generation and term, preferably of the leader.
    fn best(&self) -> Option<&MemberReport> {
        best(self.reports.values())
    }

    fn voters(&self) -> BTreeSet<u64> {
        self.best().map(MemberReport::all_voters).unwrap_or_default()
    }

    /// Returns the current number of copies of the metadata.
    pub fn copies(&self) -> usize {
        copies(self.reports.values())
    }

    fn is_there(&self, member: u64) -> bool {
        let generation = self.best().map(|best| best.generation);
        let report = self.reports.get(&member);
        report.is_some_and(|report| {
            Some(report.generation) == generation && report.failure.is_empty()
        })
    }

    /// Returns true if enough voters answer.
    pub fn has_majority(&self) -> bool {
        self.best().is_some_and(|best| best.is_majority(|member| self.is_there(member)))
    }

    /// Returns true if a voter does not answer, or a member has failed, makes no progress, or has
    /// older or damaged metadata.
    pub fn is_faulty(&self) -> bool {
        let is_away = self.voters().iter().any(|id| !self.is_there(*id));
        is_away
            || self.reports.keys().any(|id| !self.is_there(*id))
            || self.reports.values().any(|one| !one.stalls.is_empty() || !one.damage.is_empty())
    }

    /// Returns true if enough voters other than `away` answer and have caught up.
    pub fn has_majority_without(&self, away: &BTreeSet<NodeId>) -> bool {
        let caught_up = |member| self.lag_of(member).is_some_and(|lag| lag <= LAG_MOST);
        let is_left =
            |member| !away.contains(&NodeId(member)) && self.is_there(member) && caught_up(member);
        self.best().is_some_and(|best| best.is_majority(is_left))
    }

    /// Returns warnings about the members for an operator; none if all is well.
    pub fn warnings(&self) -> Vec<String> {
        let Some(best) = self.best() else { return Vec::new() };
        let mut out = Vec::new();
        let voters = self.voters();
        let away: Vec<u64> = voters.iter().filter(|id| !self.is_there(**id)).copied().collect();
        let names = |ids: &[u64]| {
            let names: Vec<String> = ids.iter().map(|id| NodeId(*id).to_string()).collect();
            names.join(", ")
        };
        let (count, there) = (voters.len(), voters.len() - away.len());
        if !self.has_majority() {
            let silence = self.reports.values().map(|report| report.silence_ms).min();
            let seconds = silence.unwrap_or(0) / 1000;
            out.push(format!(
                "NO MAJORITY: {there} of {count} voters answer, for {seconds} s or more; missing: \
                 node {}. No master can serve. Start the missing masters. If their disks are lost, \
                 stop one that is left: `cairn cluster recover DIR` with its directory says how it \
                 goes on, and what may be lost",
                names(&away)
            ));
        } else if !away.is_empty() {
            out.push(format!(
                "voters that do not answer: node {}; {there} of {count} are there. Start them. \
                 If one is lost, remove it (cairn cluster remove DIR NODE), and let another master \
                 join (cairn cluster token DIR --role master)",
                names(&away)
            ));
        }
        match count {
            1 => out.push(
                "WARNING: one copy of the metadata: all names, and objects of up to 16 KiB, are on \
                 the disk of one master alone; let two more masters join (cairn cluster token DIR \
                 --role master)"
                    .into(),
            ),
            2 => out.push(
                "WARNING: two voters: if either dies, no master can serve; let another master join \
                 (cairn cluster token DIR --role master)"
                    .into(),
            ),
            _ => {}
        }
        for report in self.reports.values() {
            let node = NodeId(report.member);
            if report.generation != best.generation {
                let (its, now) = (report.generation, best.generation);
                out.push(format!(
                    "node {node} has metadata of generation {its}, and the cluster is at {now}: \
                     it was given up. Stop it, and let a new directory join in its place (cairn \
                     cluster token DIR --role master)"
                ));
            }
            if !report.failure.is_empty() {
                out.push(format!(
                    "node {node} has failed: {}. If that is its disk, see the kernel's log, and \
                     start it again. If the disk is lost, remove it (cairn cluster remove DIR \
                     {node}), and let another master join (cairn cluster token DIR --role master)",
                    report.failure
                ));
            }
        }
        out.extend(self.stalls().into_iter().map(|text| format!("NO PROGRESS: {text}")));
        out.extend(self.damage().into_iter().map(|text| format!("DAMAGED: {text}")));
        out
    }

    /// Returns sentences about members that make no progress, each with a remedy.
    pub fn stalls(&self) -> Vec<String> {
        let texts = |report: &MemberReport| {
            let member = report.member;
            report.stalls.iter().map(|stall| stall.text(member)).collect::<Vec<_>>()
        };
        self.reports.values().flat_map(texts).collect()
    }

    /// Returns sentences about members whose metadata are damaged, each with a remedy.
    pub fn damage(&self) -> Vec<String> {
        let texts = |report: &MemberReport| {
            let member = report.member;
            report.damage.iter().map(|damage| damage.text(member)).collect::<Vec<_>>()
        };
        self.reports.values().flat_map(texts).collect()
    }

    pub fn print(&self) -> Result<()> {
        let row = |cells: [&str; 7]| {
            let [node, role, state, term, index, lag, heard] = cells;
            format!("{node:>6} {role:<8} {state:<10} {term:>6} {index:>10} {lag:>7} {heard}")
        };
        output::line(row(["master", "as", "state", "term", "index", "lag", ""]))?;
        for report in self.reports.values() {
            let state = match (report.serves, report.leader == report.member) {
                (true, _) => "serves",
                (false, true) => "leads",
                (false, false) => "follows",
            };
            let lag = self.lag_of(report.member).map_or(String::new(), |lag| lag.to_string());
            let heard = match report.silence_ms {
                0..2000 => String::new(),
                silence => format!("no majority heard for {} s", silence / 1000),
            };
            output::line(row([
                &NodeId(report.member).to_string(),
                self.role_of(report.member),
                state,
                &report.term.to_string(),
                &report.last.1.to_string(),
                &lag,
                &heard,
            ]))?;
        }
        for (node, address, why) in &self.silent {
            let role = node.map_or("", |node| self.role_of(node));
            let node = node.map_or("?".into(), |node| NodeId(node).to_string());
            output::line(row([
                &node,
                role,
                "NO ANSWER",
                "",
                "",
                "",
                &format!("{address}: {why}"),
            ]))?;
        }
        Ok(())
    }

    fn role_of(&self, member: u64) -> &'static str {
        match self.best() {
            Some(best) if best.is_voter(member) => "voter",
            Some(best) if best.learners.contains(&member) => "learner",
            _ => "none",
        }
    }

    fn lag_of(&self, member: u64) -> Option<u64> {
        self.best().filter(|best| best.leader == best.member)?.lag_of(member)
    }

    pub fn to_json(&self) -> Value {
        let there = self.reports.values().map(|report| {
            json!({
                "node": NodeId(report.member).to_string(),
                "as": self.role_of(report.member),
                "answers": true,
                "serves": report.serves,
                "leads": report.leader == report.member,
                "generation": report.generation,
                "term": report.term,
                "index": report.last.1,
                "applied": report.applied.1,
                "lag": self.lag_of(report.member),
                "silence_ms": report.silence_ms,
                "damage": report.damage.iter().map(damage_to_json).collect::<Vec<_>>(),
                "stalls": report.stalls.iter().map(stall_to_json).collect::<Vec<_>>(),
                "failure": (!report.failure.is_empty()).then_some(&report.failure),
            })
        });
        let away = self.silent.iter().map(|(node, address, why)| {
            json!({
                "node": node.map(|node| NodeId(node).to_string()),
                "as": node.map(|node| self.role_of(node)),
                "address": address,
                "answers": false,
                "why": why,
            })
        });
        json!({
            "majority": self.has_majority(),
            "voters": self.voters().len(),
            "masters": there.chain(away).collect::<Vec<_>>(),
        })
    }
}

fn damage_to_json(report: &DamageReport) -> Value {
    json!({ "what": report.what, "since_ms": report.since_ms, "heals": report.heals })
}

fn stall_to_json(report: &StallReport) -> Value {
    let node = match report.stall {
        StallKind::Follower(member) => Some(NodeId(member).to_string()),
        _ => None,
    };
    json!({ "stall": report.stall.to_string(), "node": node, "lasts_ms": report.lasts_ms })
}

#[cfg(test)]
mod tests {
    use cairn_base::Error;

    use super::*;

    #[test]
    fn masters_that_do_not_answer_are_not_a_database() {
        let asked = |answer| MasterAnswer { address: "10.0.0.1:7400".into(), node: None, answer };
        let silent = || asked(Err(Error::Unavailable("no route".into())));
        let elsewhere = || asked(Err(Error::NotImplemented("no members".into())));
        let member = || asked(Ok(MemberReport { member: 3, ..MemberReport::default() }));
        let nodes = BTreeMap::from([("10.0.0.1:7400".to_owned(), NodeId(9))]);
        let said = |asked| MastersSaid::of(asked, &nodes);
        assert!(matches!(said(vec![silent(), silent()]), MastersSaid::Nothing));
        assert!(matches!(said(Vec::new()), MastersSaid::Nothing));
        assert!(matches!(said(vec![silent(), elsewhere()]), MastersSaid::Elsewhere));
        let said = said(vec![elsewhere(), member()]);
        let shown = said.members().unwrap();
        assert!(shown.reports.contains_key(&3), "one that knows nothing of members hides none");
        assert_eq!(shown.silent[0].0, Some(9));
    }
}
