//! Conversions between messages of the interface and our types. All that is read comes from others.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::fsck::{FsckFound, FsckPhase, FsckState, Orderer};
use cairn_base::map::{Group, Member, Node};
use cairn_base::scrub::{
    DegradedObject, DegradedObjects, NodeScrub, RunOrder, ScrubPhase, Wholeness,
};
use cairn_base::{
    Capability, CapabilitySet, ClusterMap, Error, GroupId, KeyHash, NodeId, Pin, Redundancy,
    Result, Role, Roles, Timestamp, UserId,
};

use super::proto;
use crate::control::messages::{Copying, StoreState};
use crate::control::{NodeStatus, SessionStatus, Status};
use crate::wire::{FormatRange, NodeProgram};

pub fn write(status: &Status) -> proto::Status {
    let map = &status.map;
    let sessions = status.sessions.iter().map(|one| proto::Session {
        id: one.session,
        node: one.node.0,
        silent_ms: one.silent_ms,
        user: one.user.map_or(0, |user| user.0),
    });
    proto::Status {
        epoch: map.epoch,
        replicas: map.replicas.into(),
        minimum: map.minimum.into(),
        replica_counts: map.replica_counts.iter().map(|count| (*count).into()).collect(),
        next_node: map.next_node,
        next_group: map.next_group,
        nodes: map.nodes.iter().map(|(id, node)| write_node(*id, node, status)).collect(),
        groups: map.groups.iter().map(|(id, group)| write_group(*id, group)).collect(),
        sessions: sessions.collect(),
        master: status.master.0,
        batch: status.batch,
        fsck: status.fsck.as_ref().map(write_fsck),
        capabilities: write_capabilities(map.capabilities),
    }
}

pub fn write_scrub(nodes: Vec<(NodeId, NodeScrub)>) -> proto::OrderScrubResponse {
    let nodes = nodes.into_iter().map(|(node, scrub)| proto::NodeScrub {
        node: node.0,
        phase: scrub.phase.number(),
        blocks: scrub.blocks,
        total_blocks: scrub.total_blocks,
        bytes: scrub.bytes,
        damaged: scrub.damaged,
        repaired: scrub.repaired,
        pending: scrub.pending,
        failure: scrub.failure,
        damaged_segments: scrub.damaged_segments,
    });
    proto::OrderScrubResponse { nodes: nodes.collect() }
}

pub fn read_scrub(said: proto::OrderScrubResponse) -> Vec<(NodeId, NodeScrub)> {
    let one = |said: proto::NodeScrub| {
        let scrub = NodeScrub {
            phase: ScrubPhase::from_number(said.phase.into()),
            blocks: said.blocks,
            total_blocks: said.total_blocks,
            bytes: said.bytes,
            damaged: said.damaged,
            repaired: said.repaired,
            pending: said.pending,
            failure: said.failure,
            damaged_segments: said.damaged_segments,
        };
        (NodeId(said.node), scrub)
    };
    said.nodes.into_iter().map(one).collect()
}

pub fn write_order(order: RunOrder) -> u32 {
    match order {
        RunOrder::Look => 0,
        RunOrder::Begin => 1,
        RunOrder::Stop => 2,
    }
}

pub fn order(number: u32) -> Result<RunOrder> {
    let all = [RunOrder::Look, RunOrder::Begin, RunOrder::Stop];
    let found = all.into_iter().find(|order| write_order(*order) == number);
    found.ok_or_else(|| Error::Invalid(format!("{number} is no order: use 0 to 2")))
}

pub fn write_degraded(named: Option<&DegradedObjects>) -> proto::ListDegradedResponse {
    let Some(named) = named else { return proto::ListDegradedResponse::default() };
    let objects = named.objects.iter().map(|one| proto::DegradedObject {
        object: one.object.clone(),
        start: one.start,
        end: one.end,
        wholeness: one.wholeness as u32,
    });
    let silent = named.silent.iter();
    let silent = silent.map(|(node, why)| proto::SilentNode { node: node.0, why: why.clone() });
    let [lost_blocks, degraded_blocks, repaired_blocks] = named.blocks;
    proto::ListDegradedResponse {
        is_done: true,
        objects: objects.collect(),
        is_cut: named.is_cut,
        lost_blocks,
        degraded_blocks,
        repaired_blocks,
        garbage_blocks: named.garbage,
        silent: silent.collect(),
        unnamed_objects: named.unnamed,
    }
}

pub fn read_degraded(said: proto::ListDegradedResponse) -> Option<DegradedObjects> {
    let wholeness = |number: u32| {
        let found = Wholeness::ALL.into_iter().find(|one| *one as u32 == number);
        found.unwrap_or(Wholeness::Degraded)
    };
    let objects = said.objects.into_iter().map(|one| DegradedObject {
        wholeness: wholeness(one.wholeness),
        object: one.object,
        start: one.start,
        end: one.end,
    });
    said.is_done.then(|| DegradedObjects {
        objects: objects.collect(),
        is_cut: said.is_cut,
        blocks: [said.lost_blocks, said.degraded_blocks, said.repaired_blocks],
        garbage: said.garbage_blocks,
        silent: said.silent.into_iter().map(|one| (NodeId(one.node), one.why)).collect(),
        unnamed: said.unnamed_objects,
    })
}

pub fn write_fsck(state: &FsckState) -> proto::Fsck {
    proto::Fsck {
        run: state.run,
        phase: state.phase.number(),
        begun_unix_ns: state.begun.0,
        ended_unix_ns: state.ended.0,
        node: state.by.node.0,
        user: state.by.user.clone(),
        rows: state.rows,
        total_rows: state.total_rows,
        blocks: state.blocks,
        groups: state.groups,
        total_groups: state.total_groups,
        buckets: state.buckets,
        directories: state.directories,
        files: state.files,
        findings: state.findings,
        lost_blocks: state.lost_blocks,
        degraded_blocks: state.degraded_blocks,
        unknown_blocks: state.unknown_blocks,
        failure: state.failure.clone(),
    }
}

pub fn read_fsck(said: proto::Fsck) -> FsckState {
    FsckState {
        run: said.run,
        phase: FsckPhase::from_number(said.phase),
        begun: Timestamp(said.begun_unix_ns),
        ended: Timestamp(said.ended_unix_ns),
        by: Orderer { node: NodeId(said.node), user: said.user },
        rows: said.rows,
        total_rows: said.total_rows,
        blocks: said.blocks,
        groups: said.groups,
        total_groups: said.total_groups,
        buckets: said.buckets,
        directories: said.directories,
        files: said.files,
        findings: said.findings,
        lost_blocks: said.lost_blocks,
        degraded_blocks: said.degraded_blocks,
        unknown_blocks: said.unknown_blocks,
        failure: said.failure,
    }
}

pub fn write_found(found: Option<&FsckFound>) -> proto::ListFsckResponse {
    let Some(found) = found else { return proto::ListFsckResponse::default() };
    let findings = found
        .findings
        .iter()
        .map(|(about, what)| proto::FsckFinding { about: about.clone(), what: what.clone() });
    proto::ListFsckResponse {
        is_done: true,
        findings: findings.collect(),
        degraded: Some(write_degraded(Some(&found.degraded))),
    }
}

pub fn read_found(said: proto::ListFsckResponse) -> Option<FsckFound> {
    let findings = said.findings.into_iter().map(|one| (one.about, one.what));
    said.is_done.then(|| FsckFound {
        findings: findings.collect(),
        degraded: said.degraded.and_then(read_degraded).unwrap_or_default(),
    })
}

fn write_node(id: NodeId, node: &Node, status: &Status) -> proto::Node {
    let said = status.nodes.iter().find(|said| said.node == id);
    proto::Node {
        id: id.0,
        roles: write_roles(node.pin.roles),
        key_sha256: node.pin.key.0.to_vec(),
        address: node.address.clone(),
        url: node.url.clone(),
        zone: node.zone.clone(),
        weight: node.weight,
        disk: write_disk(node.disk),
        is_up: node.is_up,
        is_draining: node.is_draining,
        beat: said.map(write_beat),
        program: status.programs.get(&id).map(|program| write_program(program)),
    }
}

fn write_capabilities(capabilities: CapabilitySet) -> Vec<String> {
    capabilities.iter().map(|one| one.name().to_owned()).collect()
}

/// Reads the names of capabilities. Names of a later release are left out.
fn read_capabilities(names: &[String]) -> CapabilitySet {
    names.iter().filter_map(|name| name.parse::<Capability>().ok()).collect()
}

fn write_program(program: &NodeProgram) -> proto::Program {
    let formats = program.formats.iter().map(|one| proto::Format {
        name: one.name.clone(),
        oldest: one.oldest.into(),
        newest: one.newest.into(),
    });
    proto::Program {
        release: program.release.clone(),
        protocol_lowest: program.versions.0.into(),
        protocol_highest: program.versions.1.into(),
        formats: formats.collect(),
        capabilities: write_capabilities(program.capabilities),
    }
}

/// Reads the facts about a program.
///
/// # Errors
/// `Invalid` for numbers that no program has.
fn read_program(said: &proto::Program) -> Result<NodeProgram> {
    let number = |number: u32| {
        u16::try_from(number).map_err(|_| Error::Invalid(format!("{number} is no version")))
    };
    let formats = said.formats.iter().map(|one| {
        let (oldest, newest) = (number(one.oldest)?, number(one.newest)?);
        Ok(FormatRange { name: one.name.clone(), oldest, newest })
    });
    let versions = (number(said.protocol_lowest)?, number(said.protocol_highest)?);
    let formats = formats.collect::<Result<Vec<FormatRange>>>()?;
    let (release, capabilities) = (said.release.clone(), read_capabilities(&said.capabilities));
    Ok(NodeProgram { release, versions, formats, capabilities })
}

fn write_beat(said: &NodeStatus) -> proto::Beat {
    let StoreState { blocks, live_bytes, free_bytes, corrupt, healed, is_full } = said.store;
    let store = proto::Store {
        disk: write_disk(said.disk),
        blocks,
        live_bytes,
        free_bytes,
        corrupt,
        healed,
        is_full,
        failure: said.failure.clone().unwrap_or_default(),
    };
    let copying = said.copying.iter().map(|one| proto::Copying {
        group: one.group.0,
        blocks: one.blocks,
        bytes: one.bytes,
    });
    let groups = said.groups.iter();
    let groups = groups.map(|(group, bytes)| proto::GroupBytes { group: group.0, bytes: *bytes });
    proto::Beat {
        silent_ms: said.silent_ms,
        version: said.version.clone(),
        store: (said.disk != 0).then_some(store),
        copying: copying.collect(),
        groups: groups.collect(),
    }
}

fn write_group(id: GroupId, group: &Group) -> proto::Group {
    let members = group.members.iter().map(|member| proto::Member {
        node: member.node.0,
        in_sync: member.in_sync,
        is_leaving: member.is_leaving,
    });
    let (wanted, changed) = (group.redundancy.number().into(), group.changed);
    proto::Group { id: id.0, wanted, changed, members: members.collect() }
}

pub fn write_roles(roles: Roles) -> Vec<i32> {
    let role = |role| match role {
        Role::Master => proto::Role::Master,
        Role::Chunkserver => proto::Role::Chunkserver,
        Role::Gateway => proto::Role::Gateway,
    };
    roles.iter().map(|one| role(one).into()).collect()
}

fn write_disk(disk: u128) -> Vec<u8> {
    if disk == 0 { Vec::new() } else { disk.to_be_bytes().to_vec() }
}

/// Reads the status of a cluster.
///
/// # Errors
/// `Invalid` for what no master says.
pub fn read(status: proto::Status) -> Result<Status> {
    let mut map = ClusterMap {
        epoch: status.epoch,
        replicas: narrow(status.replicas)?,
        minimum: narrow(status.minimum)?,
        next_node: status.next_node,
        next_group: status.next_group,
        capabilities: read_capabilities(&status.capabilities),
        ..ClusterMap::default()
    };
    for count in status.replica_counts {
        map.replica_counts.insert(narrow(count)?);
    }
    let (mut nodes, mut programs) = (Vec::new(), BTreeMap::new());
    for node in status.nodes {
        let id = NodeId(node.id);
        nodes.extend(node.beat.as_ref().map(|beat| read_beat(id, beat)).transpose()?);
        if let Some(program) = &node.program {
            programs.insert(id, Arc::new(read_program(program)?));
        }
        map.nodes.insert(id, read_node(node)?);
    }
    for group in status.groups {
        let members = group.members.into_iter().map(|member| Member {
            node: NodeId(member.node),
            in_sync: member.in_sync,
            is_leaving: member.is_leaving,
        });
        let (redundancy, changed) = (Redundancy::Copies(narrow(group.wanted)?), group.changed);
        let read = Group { redundancy, changed, members: members.collect(), ..Group::default() };
        map.groups.insert(GroupId(group.id), read);
    }
    map.check()?;
    let sessions = status.sessions.into_iter().map(|one| SessionStatus {
        session: one.id,
        node: NodeId(one.node),
        user: (one.user != 0).then_some(UserId(one.user)),
        silent_ms: one.silent_ms,
    });
    let (sessions, master) = (sessions.collect(), NodeId(status.master));
    let fsck = status.fsck.map(read_fsck);
    Ok(Status { map, nodes, sessions, master, batch: status.batch, programs, fsck })
}

fn read_node(node: proto::Node) -> Result<Node> {
    // A role that this version does not know is left out.
    let roles = node.roles.iter().filter_map(|number| role(*number)).collect();
    let pin = Pin { key: KeyHash(hash(&node.key_sha256)?), roles };
    Ok(Node {
        pin,
        address: node.address,
        url: node.url,
        zone: node.zone,
        weight: node.weight,
        disk: read_disk(&node.disk)?,
        is_up: node.is_up,
        is_draining: node.is_draining,
        unknown: Vec::new(),
    })
}

fn read_beat(node: NodeId, beat: &proto::Beat) -> Result<NodeStatus> {
    let copying = beat.copying.iter().map(|one| Copying {
        group: GroupId(one.group),
        blocks: one.blocks,
        bytes: one.bytes,
    });
    let store = beat.store.as_ref();
    Ok(NodeStatus {
        node,
        silent_ms: beat.silent_ms,
        version: beat.version.clone(),
        disk: store.map_or(Ok(0), |store| read_disk(&store.disk))?,
        store: store.map_or_else(StoreState::default, |store| StoreState {
            blocks: store.blocks,
            live_bytes: store.live_bytes,
            free_bytes: store.free_bytes,
            corrupt: store.corrupt,
            healed: store.healed,
            is_full: store.is_full,
        }),
        failure: store.map(|store| store.failure.clone()).filter(|error| !error.is_empty()),
        copying: copying.collect(),
        groups: beat.groups.iter().map(|one| (GroupId(one.group), one.bytes)).collect(),
    })
}

fn role(number: i32) -> Option<Role> {
    match proto::Role::try_from(number).ok()? {
        proto::Role::Unspecified => None,
        proto::Role::Master => Some(Role::Master),
        proto::Role::Chunkserver => Some(Role::Chunkserver),
        proto::Role::Gateway => Some(Role::Gateway),
    }
}

/// Reads roles: at least one, and all of them known.
pub fn roles(numbers: &[i32]) -> Result<Roles> {
    let unknown =
        |number| Error::Invalid(format!("{number} is not the number of a role: use 1 to 3"));
    let roles = numbers.iter().map(|number| role(*number).ok_or_else(|| unknown(*number)));
    let roles: Roles = roles.collect::<Result<_>>()?;
    if roles.is_empty() {
        Err(Error::Invalid("no role is named: name at least one".into()))
    } else {
        Ok(roles)
    }
}

pub fn hash(bytes: &[u8]) -> Result<[u8; 32]> {
    let other =
        |_| Error::Invalid(format!("a hash of {} bytes; a SHA-256 is 32 bytes", bytes.len()));
    <[u8; 32]>::try_from(bytes).map_err(other)
}

pub fn narrow(number: u32) -> Result<u8> {
    u8::try_from(number)
        .map_err(|_| Error::Invalid(format!("{number} replicas; must be at most 255")))
}

fn read_disk(bytes: &[u8]) -> Result<u128> {
    match <[u8; 16]>::try_from(bytes) {
        Ok(bytes) => Ok(u128::from_be_bytes(bytes)),
        Err(_) if bytes.is_empty() => Ok(0),
        Err(_) => {
            Err(Error::Invalid(format!("the id of a store has {} bytes; must be 16", bytes.len())))
        }
    }
}
