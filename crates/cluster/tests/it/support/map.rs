//! The cluster map in memory, as the metadata will keep it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use cairn_base::{
    Applicant, CapabilitySet, Error, JoinGrant, NodeId, Pin, Result, Role, Timestamp, TokenId,
};
use cairn_cluster::identity::{Pins, Tokens};
use parking_lot::Mutex;

#[derive(Default)]
pub struct Map(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    nodes: BTreeMap<NodeId, Pin>,
    tokens: BTreeMap<TokenId, JoinGrant>,
    last: u64,
}

impl Map {
    pub fn set(&self, node: NodeId, pin: Pin) {
        self.0.lock().nodes.insert(node, pin);
    }

    pub fn remove(&self, node: NodeId) {
        self.0.lock().nodes.remove(&node);
    }

    pub fn len(&self) -> usize {
        self.0.lock().nodes.len()
    }
}

impl Pins for Map {
    fn pin(&self, node: NodeId) -> Option<Pin> {
        self.0.lock().nodes.get(&node).copied()
    }

    fn nodes(&self, role: Role) -> Vec<(NodeId, Pin)> {
        let inner = self.0.lock();
        let all = inner.nodes.iter().map(|(node, pin)| (*node, *pin));
        all.filter(|(_, pin)| pin.roles.contains(role)).collect()
    }

    fn required(&self) -> CapabilitySet {
        CapabilitySet::NONE
    }
}

#[async_trait]
impl Tokens for Map {
    async fn issue(&self, id: TokenId, grant: JoinGrant) -> Result<()> {
        self.0.lock().tokens.insert(id, grant);
        Ok(())
    }

    async fn redeem(&self, id: TokenId, applicant: Applicant, now: Timestamp) -> Result<NodeId> {
        let mut inner = self.0.lock();
        let unknown = || Error::Denied("join token: this cluster did not issue it".into());
        let grant = inner.tokens.get(&id).ok_or_else(unknown)?;
        if let Some(node) = grant.decide(&applicant, now)? {
            return Ok(node);
        }
        inner.last += 1;
        let node = NodeId(1000 + inner.last);
        inner.tokens.get_mut(&id).unwrap().used = Some((applicant.key, node));
        inner.nodes.insert(node, Pin { key: applicant.key, roles: applicant.roles });
        Ok(node)
    }
}
