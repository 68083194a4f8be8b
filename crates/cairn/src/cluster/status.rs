//! `cairn cluster status`: who is there, and whether everything is whole.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::map::Node;
use cairn_base::{ClusterMap, NodeId};
use cairn_cluster::control::{NodeStatus, Status};
use serde_json::{Value, json};

use super::copies::{self, Copies};
use super::members::{self, MembersShown};
use super::{fsck, reach};
use crate::failure::{Failure, Result};
use crate::output;

/// Show nodes, groups and sessions of a cluster
///
/// Also the fsck that runs, and the masters that keep the metadata: who serves, votes or learns,
/// and how far each is. If no master serves, it says which of them are missing. Exit code 1 if
/// anything is not as it should be: a node is down, a group lacks a replica, no master serves.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster status /srv/cairn-master
  cairn cluster status /srv/cairn-master --json | jq .groups")]
pub struct StatusArgs {
    /// The directory of any node
    dir: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Groups by how they fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Health {
    whole: u64,
    /// Fewer replicas than wanted, or members that are away or catching up; all can be read.
    degraded: u64,
    /// No member with all blocks is up.
    unreadable: u64,
    /// Of all, those that take writes.
    writable: u64,
}

fn health(map: &ClusterMap) -> Health {
    let mut health = Health::default();
    for group in map.groups.values() {
        let present = group.in_sync().filter(|node| map.is_up(*node)).count();
        health.writable += u64::from(map.takes_writes(group));
        match present {
            0 => health.unreadable += 1,
            _ if present >= group.redundancy.members() => health.whole += 1,
            _ => health.degraded += 1,
        }
    }
    health
}

pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let status = match reach::status(&args.dir) {
        Ok(status) => status,
        Err(failure) => return none_serves(args, failure),
    };
    let map = &status.map;
    let health = health(map);
    let said = members::ask(&args.dir, Some(map))?;
    let (copies, members) = (Copies::of(&args.dir, map, &said)?, said.members());
    match args.json {
        true => print_json(&to_json(&status, health, (copies, members)))?,
        false => print(&status, health, (copies, members))?,
    }
    let all_up = map.nodes.values().all(|node| node.is_up);
    let good = all_up && health.degraded == 0 && health.unreadable == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Shows the members of the masters, none of which serves.
fn none_serves(args: &StatusArgs, failure: Failure) -> Result<ExitCode> {
    let Ok(said) = members::ask(&args.dir, None) else { return Err(failure) };
    let Some(members) = said.members() else { return Err(failure) };
    match args.json {
        true => print_json(&json!({"master": null, "members": members.to_json()}))?,
        false => {
            output::line("no master serves")?;
            members.warnings().into_iter().try_for_each(output::line)?;
            output::line("")?;
            members.print()?;
        }
    }
    Ok(ExitCode::from(1))
}

fn print_json(value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value);
    output::line(text.map_err(|error| Failure::new(error.to_string()))?)
}

fn groups_of(map: &ClusterMap, node: NodeId) -> usize {
    map.groups.values().filter(|group| group.has(node)).count()
}

fn to_json(
    status: &Status,
    health: Health,
    (copies, members): (Copies, Option<&MembersShown>),
) -> Value {
    let map = &status.map;
    let said: BTreeMap<NodeId, &NodeStatus> =
        status.nodes.iter().map(|one| (one.node, one)).collect();
    let nodes: Vec<Value> = map
        .nodes
        .iter()
        .map(|(id, node)| node_json(map, *id, node, said.get(id).copied()))
        .collect();
    let groups: Vec<Value> = map
        .groups
        .iter()
        .map(|(id, group)| {
            let catching = group.members.iter().filter(|member| !member.in_sync);
            json!({
                "group": id.0,
                "wanted": group.redundancy.number(),
                "in_sync": group.in_sync().map(|node| node.to_string()).collect::<Vec<_>>(),
                "catching_up": catching.map(|one| one.node.to_string()).collect::<Vec<_>>(),
                "takes_writes": map.takes_writes(group),
            })
        })
        .collect();
    let sessions: Vec<Value> = status
        .sessions
        .iter()
        .map(|one| {
            let session = format!("{:x}", one.session);
            let (node, user) = (one.node.to_string(), one.user.map(|user| user.0));
            json!({"session": session, "node": node, "user": user, "silent_ms": one.silent_ms})
        })
        .collect();
    json!({
        "epoch": map.epoch,
        "replicas": map.replicas,
        "minimum": map.minimum,
        "master": status.master.to_string(),
        "batch": status.batch,
        "metadata_copies": copies.word(),
        "metadata_copies_number": copies.number(),
        "few_copies": copies.are_few(map),
        "fsck": status.fsck.as_ref().map(fsck::state_json),
        "members": members.map(MembersShown::to_json),
        "health": {
            "whole": health.whole,
            "degraded": health.degraded,
            "unreadable": health.unreadable,
            "writable": health.writable,
        },
        "nodes": nodes,
        "groups": groups,
        "sessions": sessions,
    })
}

fn node_json(map: &ClusterMap, id: NodeId, node: &Node, said: Option<&NodeStatus>) -> Value {
    let store = said.map(|one| &one.store);
    let copying = said.map(|one| &one.copying[..]).unwrap_or_default().iter();
    let copying: Vec<Value> = copying
        .map(|one| json!({"group": one.group.0, "blocks": one.blocks, "bytes": one.bytes}))
        .collect();
    json!({
        "node": id.to_string(),
        "roles": node.pin.roles.iter().map(|role| role.word()).collect::<Vec<_>>(),
        "address": node.address,
        "zone": node.zone,
        "up": node.is_up,
        "draining": node.is_draining,
        "disk": (node.disk != 0).then(|| format!("{:032x}", node.disk)),
        "groups": groups_of(map, id),
        "silent_ms": said.map(|one| one.silent_ms),
        "blocks": store.map(|store| store.blocks),
        "live_bytes": store.map(|store| store.live_bytes),
        "free_bytes": store.map(|store| store.free_bytes),
        "corrupt": store.map(|store| store.corrupt),
        "healed": store.map(|store| store.healed),
        "copying": copying,
    })
}

fn print(
    status: &Status,
    health: Health,
    (copies, members): (Copies, Option<&MembersShown>),
) -> Result<()> {
    let map = &status.map;
    let said: BTreeMap<NodeId, &NodeStatus> =
        status.nodes.iter().map(|one| (one.node, one)).collect();
    output::line(format!(
        "epoch {}, {} replicas, at least {}; node {} serves as master",
        map.epoch, map.replicas, map.minimum, status.master
    ))?;
    output::line(format!(
        "groups: {} whole, {} degraded, {} unreadable; {} take writes",
        health.whole, health.degraded, health.unreadable, health.writable
    ))?;
    output::line(format!("sessions: {}", status.sessions.len()))?;
    if let Some(state) = status.fsck.as_ref().filter(|state| state.phase.is_under_way()) {
        output::line(fsck::standing(state))?;
    }
    match (members, copies.warning()) {
        (Some(members), _) => members.warnings().into_iter().try_for_each(output::line)?,
        (None, Some(warning)) => output::line(warning)?,
        (None, None) => {}
    }
    copies::warning(copies, map).into_iter().try_for_each(output::line)?;
    output::line("")?;
    let row = |cells: [&str; 8]| {
        let [node, state, roles, address, groups, blocks, free, copying] = cells;
        format!(
            "{node:>5} {state:<9} {roles:<12} {address:<22} {groups:>6} {blocks:>9} {free:>9} \
             {copying}"
        )
    };
    output::line(row(["node", "state", "role", "address", "groups", "blocks", "free GiB", ""]))?;
    for (id, node) in &map.nodes {
        let said = said.get(id).filter(|said| said.disk != 0);
        let state = match (node.is_up, node.is_draining) {
            (false, _) => "DOWN",
            (true, true) => "draining",
            (true, false) => "up",
        };
        let number = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
        let copying: u64 = said.map_or(0, |said| said.copying.iter().map(|one| one.blocks).sum());
        let copying = match said.map_or(0, |said| said.copying.len()) {
            0 => String::new(),
            groups => format!("copying {groups} groups, {copying} blocks done"),
        };
        output::line(row([
            &id.to_string(),
            state,
            &node.pin.roles.to_string(),
            &node.address,
            &groups_of(map, *id).to_string(),
            &number(said.map(|said| said.store.blocks)),
            &number(said.map(|said| said.store.free_bytes >> 30)),
            &copying,
        ]))?;
    }
    if let Some(members) = members {
        output::line("")?;
        members.print()?;
    }
    Ok(())
}
