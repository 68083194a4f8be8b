//! Capabilities that are on in a store, and how those of one server are turned on. A cluster turns
//! them on by an edit of its map.

use bytes::Bytes;
use cairn_base::{Capability, CapabilitySet, ClusterMap, Error, Result};

use crate::engine::{Engine, SoleWriter};
use crate::keys;
use crate::rows::{Row, StoreIdentity};

const CLUSTER: &str = "cluster";

/// Returns the capabilities that are on in the store of an engine.
///
/// # Errors
/// Those of the engine and of the rows.
pub fn enabled(engine: &dyn Engine) -> Result<CapabilitySet> {
    let StoreRows { identity, map } = find(engine)?;
    let of_map = map.map(|map| ClusterMap::decode(&map)).transpose()?;
    let of_store = identity.map_or(CapabilitySet::NONE, |identity| identity.capabilities);
    Ok(of_map.map_or(of_store, |map| map.capabilities))
}

/// Turns a capability on, for good, in the store of one server. No server may be using it.
///
/// # Errors
/// `Invalid` if the store is a cluster's; `NotFound` if there is no store; those of the engine.
pub fn enable(engine: &dyn Engine, capability: Capability) -> Result<()> {
    // Refused before anybody is cut off, and looked at again once nobody else writes.
    identity_of_server(engine)?;
    let mut writer = SoleWriter::take_over(engine, 0)?;
    let mut identity = identity_of_server(engine)?;
    identity.capabilities = identity.capabilities.with(capability);
    writer.commit(vec![(keys::config(CLUSTER), Some(identity.encode()))])
}

/// The rows that can name capabilities of the whole store.
struct StoreRows {
    identity: Option<StoreIdentity>,
    map: Option<Bytes>,
}

fn find(engine: &dyn Engine) -> Result<StoreRows> {
    let (_, mut rows) = engine.read(&[keys::config(CLUSTER), keys::map()])?;
    let map = rows.pop().flatten();
    let identity = rows.pop().flatten().as_ref().map(StoreIdentity::decode).transpose()?;
    Ok(StoreRows { identity, map })
}

/// Reads the identity of the store of one server.
fn identity_of_server(engine: &dyn Engine) -> Result<StoreIdentity> {
    let StoreRows { identity, map } = find(engine)?;
    if map.is_some() {
        let text = "these are the metadata of a cluster: use cairn cluster enable";
        return Err(Error::Invalid(text.to_owned()));
    }
    identity.ok_or_else(|| Error::NotFound("these metadata hold no store".to_owned()))
}
