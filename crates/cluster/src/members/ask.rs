//! Asking each master for its own member, whether one of them serves or none.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, NodeId, Result, Role};
use cairn_meta::wire;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::control::MemberReport;
use crate::control::messages::ControlMethod;
use crate::limits::MEMBER_REPORT;
use crate::wire::{Dial, NoService, Terms, connect};

/// A master's answer, or why there is none. The node is that of its certificate, if it showed one.
#[derive(Debug)]
pub struct Asked {
    pub address: String,
    pub node: Option<NodeId>,
    pub answer: Result<MemberReport>,
}

/// Asks the masters at all `addresses` at the same time; answers in the order of these.
pub async fn ask_all(dialer: Arc<dyn Dial>, mut terms: Terms, addresses: &[String]) -> Vec<Asked> {
    terms.expects = Some(Role::Master);
    let mut asking = JoinSet::new();
    for (at, address) in addresses.iter().cloned().enumerate() {
        let (dialer, terms) = (Arc::clone(&dialer), terms.clone());
        asking.spawn(async move {
            let (mut node, shown) = (None, address.clone());
            let asked = timeout(MEMBER_REPORT, ask(&*dialer, &terms, &address, &mut node)).await;
            let late = || Error::Unavailable(format!("no answer within {MEMBER_REPORT:?}"));
            let answer = asked.unwrap_or_else(|_| Err(late()));
            (at, Asked { address: shown, node, answer })
        });
    }
    let mut answers: Vec<(usize, Asked)> = asking.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, asked)| asked).collect()
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
    wire::decode(&peer.call(method, Bytes::new(), MEMBER_REPORT).await?)
}
