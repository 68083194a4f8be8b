//! Metadata that begin anew with one master: the other masters that may have them are asked first,
//! and are given up.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cairn_base::map::Node;
use cairn_base::{ClusterMap, Error, NodeId, Role};
use cairn_cluster::identity::KnownNode;
use cairn_cluster::members::{MasterAnswer, MemberReport};

use super::members;
use crate::failure::{Failure, Result};
use crate::node::ThisNode;

/// Warning to the operator: the program cannot keep unreachable masters from serving.
pub const KEEP_OFF: &str = "Keep the machines of the other masters switched off until they can \
     reach this one while it runs: then they hear that they were given up, and never serve again. \
     Where they reach other nodes and not this one, they would serve those, and what they \
     acknowledge would be lost.";

/// The one master, and the others.
pub struct Beginning {
    own: NodeId,
    /// Masters that the directory of the one master knows.
    known: Vec<KnownNode>,
    /// Masters that are to be given up.
    others: BTreeSet<NodeId>,
    asked: Vec<MasterAnswer>,
}

impl Beginning {
    /// Asks, as the master whose directory is `dir`, all others that `map` or the directory knows.
    pub fn of(dir: &Path, map: &ClusterMap) -> Result<Beginning> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let node = ThisNode::open(dir, Role::Master)?;
            node.view.adopt_rows(&Arc::new(map.clone()));
            let asked = members::ask_everywhere(&node, map).await?;
            let (own, known) = (node.loaded.identity.node(), node.loaded.masters.clone());
            Ok(Beginning { own, others: others(map, own, &known), known, asked })
        })
    }

    /// Returns the reports of other masters on their members.
    pub fn reports(&self) -> impl Iterator<Item = &MemberReport> {
        self.asked.iter().filter_map(|asked| asked.answer.as_ref().ok())
    }

    /// Returns the masters that do not answer, and the reasons.
    pub fn silent(&self) -> impl Iterator<Item = (&MasterAnswer, &Error)> {
        self.asked.iter().filter_map(|asked| Some((asked, asked.answer.as_ref().err()?)))
    }

    /// Checks that this master has the newest metadata.
    ///
    /// # Errors
    /// If a master is there whose metadata began later than `generation`.
    pub fn check_newest(&self, generation: u64) -> Result<()> {
        if let Some(newer) = self.reports().find(|report| report.generation > generation) {
            let (node, its) = (NodeId(newer.member), newer.generation);
            return Err(Failure::new(format!(
                "node {node} has metadata of generation {its}, which began without this master: \
                 this one was given up. Let a new directory join with a new token"
            )));
        }
        Ok(())
    }

    /// Checks that no master that is there refuses this one.
    ///
    /// # Errors
    /// If a master is there that refuses this one, or that this one does not know.
    pub fn check_not_denied(&self) -> Result<()> {
        for (MasterAnswer { address, .. }, error) in self.silent() {
            if matches!(error, Error::Denied(_)) {
                return Err(Failure::new(format!(
                    "the master at {address} is there, and is not known to this one or refuses it \
                     ({error}): this one may have been removed or given up. If it is that one that \
                     is lost, stop it first"
                )));
            }
        }
        Ok(())
    }

    /// Checks that no other master is there.
    ///
    /// # Errors
    /// If any other master is there, whatever it has.
    pub fn check_nobody_answers(&self) -> Result<()> {
        let elsewhere = |error: &Error| matches!(error, Error::NotImplemented(_));
        let is_there = |asked: &&MasterAnswer| asked.answer.as_ref().err().is_none_or(elsewhere);
        let Some(MasterAnswer { address, .. }) = self.asked.iter().find(is_there) else {
            return Ok(());
        };
        Err(Failure::new(format!(
            "the master at {address} runs, and has metadata that are newer than a dump: let a new \
             directory join in place of this one (cairn cluster token DIR --role master), or stop \
             that one and let it go on alone (cairn cluster recover DIR with its directory). To \
             load the dump nevertheless, stop it first"
        )))
    }

    /// Checks which masters an option gives up.
    ///
    /// # Errors
    /// Unless exactly those are `named` that are to be given up.
    pub fn check_named(&self, named: &[NodeId], option: &str) -> Result<()> {
        if self.others == named.iter().copied().collect() {
            return Ok(());
        }
        let names = self.names();
        let text = "name all other masters, which are given up and must never serve again";
        Err(Failure::new(format!("{text}: {option} {names}")))
    }

    /// Returns the masters that are to be given up, in the form of an option.
    pub fn names(&self) -> String {
        let names: Vec<String> = self.others.iter().map(NodeId::to_string).collect();
        names.join(",")
    }

    /// Returns the map with which the one master begins.
    ///
    /// # Errors
    /// Those of [`ClusterMap::anew`].
    pub fn map(&self, map: &ClusterMap, generation: u64) -> cairn_base::Result<ClusterMap> {
        let mut next = map.clone();
        for KnownNode { node, pin } in self.known.iter().filter(|known| known.node != self.own) {
            if !next.nodes.contains_key(node) {
                next.former.entry(*node).or_insert_with(|| Node::new(*pin));
            }
            next.next_node = next.next_node.max(node.0 + 1);
        }
        let next = next.anew(Some(self.own), generation)?;
        next.check()?;
        Ok(next)
    }
}

/// Returns all masters but `own`, and those that were given up before.
fn others(map: &ClusterMap, own: NodeId, known: &[KnownNode]) -> BTreeSet<NodeId> {
    let of_map = map.masters().map(|(id, _)| id);
    let mut others: BTreeSet<NodeId> = of_map.chain(known.iter().map(|one| one.node)).collect();
    others.retain(|id| *id != own && !map.former.contains_key(id));
    others
}

#[cfg(test)]
mod tests {
    use cairn_base::{KeyHash, Pin};

    use super::*;

    fn beginning(asked: Vec<MasterAnswer>) -> (Beginning, ClusterMap) {
        let pin = Pin { key: KeyHash([1; 32]), roles: Role::Master.into() };
        let nodes = [1, 2, 3].map(|id| (NodeId(id), Node::new(pin))).into();
        let map = ClusterMap {
            replicas: 1,
            minimum: 1,
            nodes,
            former: [(NodeId(4), Node::new(pin))].into(),
            next_node: 5,
            ..ClusterMap::default()
        };
        let known: Vec<KnownNode> =
            [1, 3, 4, 9].map(|id| KnownNode { node: NodeId(id), pin }).into();
        let own = NodeId(1);
        (Beginning { own, others: others(&map, own, &known), known, asked }, map)
    }

    #[test]
    fn all_others_are_named_and_nobody_else() {
        let (beginning, map) = beginning(Vec::new());
        let check = |ids: &[u64]| {
            let named: Vec<NodeId> = ids.iter().map(|id| NodeId(*id)).collect();
            beginning.check_named(&named, "--option")
        };
        check(&[9, 3, 2]).unwrap();
        for wrong in [&[][..], &[2, 3], &[2, 3, 9, 1], &[2, 3, 4, 9]] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("--option 2,3,9"), "{error}");
        }
        let next = beginning.map(&map, 1 << 50).unwrap();
        let former: Vec<u64> = next.former.keys().map(|id| id.0).collect();
        assert_eq!(former, [2, 3, 4, 9]);
        assert!(next.next_node > 9);
    }

    #[test]
    fn a_master_that_knows_better_is_heeded() {
        let asked = |answer| MasterAnswer { address: "h:1".into(), node: None, answer };
        let report = |generation| asked(Ok(MemberReport { generation, ..MemberReport::default() }));
        let newest = |asked| beginning(vec![asked]).0.check_newest(7);
        newest(report(7)).unwrap();
        assert!(newest(report(8)).unwrap_err().to_string().contains("generation 8"));
        let there = |error| {
            let (beginning, _) = beginning(vec![asked(Err(error))]);
            beginning.check_not_denied().and_then(|()| beginning.check_nobody_answers())
        };
        there(Error::Unavailable("no route".into())).unwrap();
        let text = |error| there(error).unwrap_err().to_string();
        assert!(text(Error::Denied("not in the map".into())).contains("stop it first"));
        assert!(text(Error::NotImplemented("in a database".into())).contains("runs"));
        assert!(beginning(vec![report(1)]).0.check_nobody_answers().is_err());
    }
}
