//! Requests to each master about its own member, whether one of them serves or none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use cairn_meta::wire;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::control::MemberReport;
use crate::control::messages::ControlMethod;
use crate::limits::{MEMBER_REPORT, MEMBER_REPORT_AWAY};
use crate::wire::{Dial, NoService, Peer, Terms, connect};

/// A master's answer, or the reason why there is none. The node is that of its certificate, if it
/// showed one.
#[derive(Debug)]
pub struct MasterAnswer {
    pub address: String,
    pub node: Option<NodeId>,
    pub answer: Result<MemberReport>,
}

/// Returns how long to wait for a master's report, which depends on whether the leader hears that
/// master.
pub fn patience(is_up: bool) -> Duration {
    if is_up { MEMBER_REPORT } else { MEMBER_REPORT_AWAY }
}

/// Returns the addresses of the masters of `map`, and how long to wait for each.
pub fn masters_of(map: &ClusterMap) -> Vec<(String, Duration)> {
    let masters = map.masters().filter(|(_, node)| !node.address.is_empty());
    masters.map(|(_, node)| (node.address.clone(), patience(node.is_up))).collect()
}

/// Asks the masters at all `addresses` at the same time, and waits for each as long as given with
/// its address. The answers have the order of the addresses.
pub async fn ask_all(
    dialer: Arc<dyn Dial>,
    mut terms: Terms,
    addresses: &[(String, Duration)],
) -> Vec<MasterAnswer> {
    terms.expects = Some(Role::Master);
    let mut asking = JoinSet::new();
    for (address, patience) in addresses.iter().cloned() {
        let (dialer, terms) = (Arc::clone(&dialer), terms.clone());
        asking.spawn(async move {
            let mut node = None;
            let asked = timeout(patience, ask(&*dialer, &terms, &address, &mut node)).await;
            let late = || Error::Unavailable(format!("no answer within {patience:?}"));
            let answer = asked.unwrap_or_else(|_| Err(late()));
            MasterAnswer { address, node, answer }
        });
    }
    let mut answers: Vec<MasterAnswer> = Vec::new();
    while let Some(answer) = asking.join_next().await {
        answers.extend(answer.ok());
    }
    answers.sort_by_key(|one| addresses.iter().position(|(address, _)| *address == one.address));
    answers
}

async fn ask(
    dialer: &dyn Dial,
    terms: &Terms,
    address: &str,
    node: &mut Option<NodeId>,
) -> Result<MemberReport> {
    let link = dialer.dial(address).await?;
    *node = Some(link.peer.node);
    let peer = connect(link, terms, NoService).await?;
    let method = ControlMethod::MemberReport as u16;
    let report: MemberReport =
        wire::decode(&peer.call(method, Bytes::new(), MEMBER_REPORT).await?)?;
    let stalls = ask_more(&peer, ControlMethod::MemberStalls).await?;
    let damage = ask_more(&peer, ControlMethod::MemberDamage).await?;
    Ok(MemberReport { stalls, damage, ..report })
}

/// Asks for a report that masters of earlier versions do not have; returns nothing for those.
async fn ask_more<T: DeserializeOwned>(peer: &Peer, method: ControlMethod) -> Result<Vec<T>> {
    match peer.call(method as u16, Bytes::new(), MEMBER_REPORT).await {
        Ok(told) => wire::decode(&told),
        Err(Error::NotImplemented(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
