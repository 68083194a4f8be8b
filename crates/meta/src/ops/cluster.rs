//! The cluster map and join tokens.
//!
//! The code that makes a change of the map (`cluster`) decides its meaning. The operations here
//! check that the change is based on the current map, and that the result is a valid map.

use bytes::Bytes;
use cairn_base::map::Node;
use cairn_base::{
    Applicant, ClusterMap, Error, JoinGrant, KeyHash, NodeId, Pin, Role, Roles, Timestamp,
    TokenHash, TokenId,
};
use serde::{Deserialize, Serialize};

use super::namespace::{load, store};
use crate::rows::IssuedToken;
use crate::{Context, Stop, Verb, View, keys};

/// Reads the encoded map; `None` if the store is not a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetMap;

impl Verb for GetMap {
    type Reply = Option<Bytes>;
    const NAME: &'static str = "get_map";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        view.get(&keys::map())
    }
}

fn load_map(view: &mut View<'_>) -> Result<Option<ClusterMap>, Stop> {
    let row = view.get(&keys::map())?;
    Ok(row.as_ref().map(ClusterMap::decode).transpose()?)
}

/// Notes in the map that a bucket asks for this number of replicas, so that groups for it are made.
pub fn want_replicas(view: &mut View<'_>, replicas: u8) -> Result<(), Stop> {
    let Some(former) = load_map(view)? else {
        let text = "replicas: this store is one process on one machine, and keeps one";
        return Err(Error::Invalid(text.into()).into());
    };
    if replicas == 0 || replicas == former.replicas || former.replica_counts.contains(&replicas) {
        return Ok(());
    }
    let mut map = former.clone();
    map.replica_counts.insert(replicas);
    map.follow(&former);
    map.check()?;
    view.put(keys::map(), map.encode());
    Ok(())
}

/// Starts moving the blocks of a chunkserver elsewhere, or stops that. The masters see it in the
/// map.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainNode {
    pub node: NodeId,
    pub is_draining: bool,
}

impl Verb for DrainNode {
    type Reply = ();
    const NAME: &'static str = "drain_node";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let Some(former) = load_map(view)? else {
            let text = "drain: this store is one process on one machine";
            return Err(Error::Invalid(text.into()).into());
        };
        let mut map = former.clone();
        let missing = || Error::NotFound(format!("node {}", self.node));
        let node = map.nodes.get_mut(&self.node).ok_or_else(missing)?;
        if !node.pin.roles.contains(Role::Chunkserver) {
            let text = format!("node {} keeps no blocks: there is nothing to drain", self.node);
            return Err(Error::Invalid(text).into());
        }
        if node.is_draining == self.is_draining {
            return Ok(());
        }
        node.is_draining = self.is_draining;
        map.follow(&former);
        view.put(keys::map(), map.encode());
        Ok(())
    }
}

/// Removes a node that is in no group; it is refused from then on. Masters are removed by the
/// serving master, since they keep the metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveNode {
    pub node: NodeId,
}

impl Verb for RemoveNode {
    type Reply = ();
    const NAME: &'static str = "remove_node";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let Some(former) = load_map(view)? else {
            let text = "remove: this store is one process on one machine";
            return Err(Error::Invalid(text.into()).into());
        };
        let mut map = former.clone();
        if map.pin(self.node).is_some_and(|pin| pin.roles.contains(Role::Master)) {
            return Err(Error::Invalid(format!(
                "node {} is a master: `cairn cluster remove` removes it, with the directory of a \
                 master",
                self.node
            ))
            .into());
        }
        map.forget(self.node)?;
        if map.nodes.len() < former.nodes.len() {
            map.follow(&former);
            view.put(keys::map(), map.encode());
        }
        Ok(())
    }
}

/// Replaces the map by its successor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutMap {
    /// Encoded map. Its epoch is one more than that of the current map, or 1 for the first map.
    pub map: Bytes,
}

impl Verb for PutMap {
    type Reply = ();
    const NAME: &'static str = "put_map";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let map = ClusterMap::decode(&self.map)?;
        map.check()?;
        let former = load_map(view)?.unwrap_or_default();
        if map.epoch != former.epoch + 1 {
            let (new, old) = (map.epoch, former.epoch);
            let text = format!("cluster map: epoch {new} does not follow {old}");
            return Err(Error::Conflict(text).into());
        }
        if map.next_node < former.next_node || map.next_group < former.next_group {
            let text = "cluster map: numbers would be given twice";
            return Err(Error::Invalid(text.into()).into());
        }
        view.put(keys::map(), self.map.clone());
        Ok(())
    }
}

/// Stores a join token that was issued.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssueToken {
    pub id: TokenId,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// Bits of [`Roles`].
    pub roles: u16,
    pub expires: Timestamp,
}

impl Verb for IssueToken {
    type Reply = ();
    const NAME: &'static str = "issue_token";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::join_token(self.id);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(format!("join token {}", self.id)).into());
        }
        let hash = TokenHash::from_bytes(self.hash);
        let roles = Roles::from_bits(self.roles);
        let grant = JoinGrant { hash, roles, expires: self.expires, used: None };
        store(view, key, &IssuedToken { grant, unknown: Vec::new() });
        Ok(())
    }
}

/// Admits a node by its join token: checks the token, assigns an id, pins the node's key. A node
/// that asks again with the same key and the same roles gets the id that it had before, whichever
/// token it shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RedeemToken {
    pub id: TokenId,
    /// SHA-256 of the secret that the node has shown.
    pub hash: [u8; 32],
    /// SHA-256 of the node's public key.
    pub key: [u8; 32],
    pub roles: u16,
}

impl Verb for RedeemToken {
    type Reply = NodeId;
    const NAME: &'static str = "redeem_token";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<NodeId, Stop> {
        let key = keys::join_token(self.id);
        view.get_all(&[key.clone(), keys::map()])?;
        let unknown = || Error::Denied("join token: this cluster did not issue it".into());
        let IssuedToken { mut grant, unknown: kept } =
            load::<IssuedToken>(view, &key)?.ok_or_else(unknown)?;
        let roles = Roles::from_bits(self.roles);
        let hash = TokenHash::from_bytes(self.hash);
        let applicant = Applicant { hash, key: KeyHash(self.key), roles };
        if let Some(node) = grant.decide(&applicant, context.now)? {
            return Ok(node);
        }
        let former = load_map(view)?;
        let former = former.ok_or_else(|| Error::Invalid("there is no cluster map".into()))?;
        let node = match former.nodes.iter().find(|(_, known)| known.pin.key == applicant.key) {
            // It joined with another token, and was interrupted before it received the answer.
            Some((node, known)) if known.pin.roles == roles => *node,
            Some((node, known)) => {
                let former = known.pin.roles;
                return Err(Error::Exists(format!(
                    "a node with this key has joined before: node {node}, as {former}: join from \
                     a new directory"
                ))
                .into());
            }
            None => {
                let mut map = former.clone();
                let node = NodeId(map.next_node);
                map.next_node += 1;
                map.nodes.insert(node, Node::new(Pin { key: applicant.key, roles }));
                map.follow(&former);
                map.check()?;
                view.put(keys::map(), map.encode());
                node
            }
        };
        grant.used = Some((applicant.key, node));
        store(view, key, &IssuedToken { grant, unknown: kept });
        Ok(node)
    }
}
