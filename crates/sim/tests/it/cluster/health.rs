//! Waits until all is well: every object is read through every gateway, every block is on every
//! member of its group, and there is no block that nothing names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::{BlockId, ClusterMap, GroupId, NodeId, Owner};
use cairn_meta::check::{check, each_chunk};
use cairn_meta::engine::Snapshot;
use cairn_meta::keys;
use cairn_meta::rows::Place;
use parking_lot::Mutex;

use super::client::{APPEND_KEYS, Op, PATIENCE, PUT_KEYS, key};
use super::world::World;

/// Turns between two looks.
const LOOK_TURNS: u64 = 125;

type Named = BTreeMap<(GroupId, BlockId), Owner>;

/// Waits for health. Returns the faults that are left at the end of the allowed time; see `look`.
pub fn await_health(world: &mut World, secs: u64, clean: bool) -> Vec<String> {
    let end_us = world.now_us + secs * 1_000_000;
    let mut reads = Reads::default();
    loop {
        (0..LOOK_TURNS).for_each(|_| world.turn());
        reads.begin(world);
        let ill = match reads.unread().or_else(|| world.unfinished()) {
            Some(ill) => Some(ill),
            None => look(world, clean).err(),
        };
        match ill {
            None => return Vec::new(),
            Some(ill) if world.now_us > end_us => return vec![format!("not well: {ill}")],
            Some(_) => {}
        }
    }
}

/// A client reads every key through every gateway, and writes those that hostile mounts hold.
#[derive(Default)]
struct Reads {
    begun: bool,
    unread: Arc<Mutex<BTreeSet<(usize, String)>>>,
}

impl Reads {
    fn begin(&mut self, world: &mut World) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let client = world.client();
        let doors = world.layout.gateways.len();
        let unread = Arc::clone(&self.unread);
        let objects = (0..PUT_KEYS + APPEND_KEYS).map(key);
        let files = world.history.lock().keys().into_iter().filter(|key| key.contains('/'));
        let is_hostile = world.all.hostile.load(Ordering::Relaxed);
        let keys: Vec<String> = objects.chain(files).collect();
        let all = (0..doors).flat_map(|door| keys.iter().map(move |key| (door, key.clone())));
        let all: Vec<_> = all.collect();
        let puts: Vec<String> = (0..if is_hostile { PUT_KEYS } else { 0 }).map(key).collect();
        unread.lock().extend(all.iter().cloned());
        unread.lock().extend(puts.iter().map(|key| (0, format!("{key}, written"))));
        world.inside_clients(|| {
            for key in puts {
                let (client, unread) = (client.clone(), Arc::clone(&unread));
                tokio::spawn(async move {
                    client.put_at_last(0, &key).await;
                    unread.lock().remove(&(0, format!("{key}, written")));
                });
            }
            for (door, key) in all {
                let (client, unread) = (client.clone(), Arc::clone(&unread));
                tokio::spawn(async move {
                    let ask = || client.ask(door, key.clone(), Op::Get, Duration::ZERO, PATIENCE);
                    while !ask().await.is_some_and(|outcome| outcome.is_known()) {}
                    unread.lock().remove(&(door, key));
                });
            }
        });
    }

    fn unread(&self) -> Option<String> {
        let unread = self.unread.lock();
        let first = unread.first()?;
        Some(format!("gateway {} does not read {}", first.0, first.1))
    }
}

/// Checks that a member that is in sync has every named block, at any time.
pub fn check_members(world: &World) -> Result<(), String> {
    // A broken block is taken out of the index while it is replaced.
    if world.history.lock().flipped {
        return Ok(());
    }
    // Between two masters there are no rows that are surely the newest.
    let Ok(snapshot) = world.rows() else { return Ok(()) };
    let map = map_of(&*snapshot)?;
    let named = named(&*snapshot);
    for (id, group) in &map.groups {
        for node in group.in_sync() {
            let serving = world.serving[&node].lock();
            let Some(serving) = serving.as_ref() else { continue };
            // An empty disk was put in, and the master does not know of it yet.
            if map.nodes[&node].disk != world.drives[&node].id {
                continue;
            }
            let has = |block| serving.store.stat(*id, block).is_ok();
            let of_group = named.keys().filter(|(group, _)| group == id);
            if let Some((_, block)) = of_group.into_iter().find(|(_, block)| !has(*block)) {
                return Err(format!("{node} is in sync in group {id}, and lacks block {block}"));
            }
        }
    }
    Ok(())
}

/// Checks that all is well; with `clean`, also that there is no block that nothing names.
fn look(world: &mut World, clean: bool) -> Result<(), String> {
    let snapshot = world.rows()?;
    let map = map_of(&*snapshot)?;
    check_groups(&map)?;
    let report = check(&*snapshot, &mut |_| {}).map_err(|error| error.to_string())?;
    if report.finding_count > 0 {
        return Err(format!("metadata: {:?}", report.findings));
    }
    let named = named(&*snapshot);
    for ((group, block), owner) in &named {
        check_block(world, &map, *group, *block, *owner)?;
    }
    for node in world.layout.chunkservers.clone() {
        check_inventory(world, node, &map, clean.then_some(&named))?;
    }
    Ok(())
}

fn map_of(snapshot: &dyn Snapshot) -> Result<ClusterMap, String> {
    let rows = snapshot.get(&[keys::map()]).map_err(|error| error.to_string())?;
    let row = rows.into_iter().flatten().next().ok_or("no map")?;
    ClusterMap::decode(&row).map_err(|error| error.to_string())
}

fn check_groups(map: &ClusterMap) -> Result<(), String> {
    if let Some((node, _)) = map.nodes.iter().find(|(_, node)| !node.is_up) {
        return Err(format!("node {node} is not up"));
    }
    if map.groups.is_empty() {
        return Err("there are no groups".into());
    }
    for (id, group) in &map.groups {
        if !map.takes_writes(group) || group.members.len() < group.redundancy.members() {
            return Err(format!("group {id} is not whole: {group:?}"));
        }
    }
    Ok(())
}

fn named(snapshot: &dyn Snapshot) -> Named {
    let mut named = Named::new();
    let all = each_chunk(snapshot, &mut |chunk| {
        let owner = Owner { body: chunk.body, chunk: chunk.chunk };
        for extent in &chunk.extents.extents {
            if let Place::Block { group, block, .. } = extent.place {
                named.insert((group, block), owner);
            }
        }
        Ok(())
    });
    all.unwrap();
    named
}

fn check_block(
    world: &mut World,
    map: &ClusterMap,
    group: GroupId,
    block: BlockId,
    owner: Owner,
) -> Result<(), String> {
    let members = map.groups.get(&group).map(|group| &group.members[..]);
    let members = members.ok_or_else(|| format!("block {block}: no group {group}"))?;
    for member in members {
        let node = member.node;
        let (found, length, served) = {
            let serving = world.serving[&node].lock();
            let serving = serving.as_ref().ok_or_else(|| format!("{node} does not serve"))?;
            let length = serving.store.stat(group, block).map_or(0, |info| info.length);
            (serving.store.verify(group, block), length, Arc::clone(&serving.served))
        };
        match found {
            Ok(info) if info.owner == owner => {}
            Ok(info) => return Err(format!("block {block} on {node}: {info:?}, not {owner:?}")),
            Err(error) => {
                // As a reader would: that is how it is found and healed.
                world.inside(node, || {
                    tokio::spawn(async move { served.read(group, block, 0..length).await });
                });
                return Err(format!("block {block} of group {group} on {node}: {error}"));
            }
        }
    }
    Ok(())
}

fn check_inventory(
    world: &World,
    node: NodeId,
    map: &ClusterMap,
    named: Option<&Named>,
) -> Result<(), String> {
    let serving = world.serving[&node].lock();
    let serving = serving.as_ref().ok_or_else(|| format!("{node} does not serve"))?;
    for group in serving.store.groups() {
        let is_member = map.groups.get(&group).is_some_and(|group| group.has(node));
        for info in serving.store.inventory_now(group, None, usize::MAX) {
            if !is_member {
                return Err(format!("{node} has block {} of group {group}, not its", info.block));
            }
            let is_known = |named: &Named| named.contains_key(&(group, info.block));
            if named.is_some_and(|named| !is_known(named)) {
                return Err(format!("{node} has {} of {group}, which nothing names", info.block));
            }
        }
    }
    Ok(())
}
