//! `cairn cluster status`: shows which nodes are there, and whether everything is whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_base::map::Node;
use cairn_base::{ClusterMap, NodeId};
use cairn_cluster::control::{NodeStatus, Status};
use serde_json::{Value, json};

use super::copies::{self, Copies};
use super::members::{self, MastersSaid, MembersShown};
use super::{fsck, reach};
use crate::failure::{Failure, Result};
use crate::output;

/// Show nodes, groups and sessions of a cluster
///
/// Also the fsck that runs, and the masters that keep the metadata: who serves, votes or learns,
/// and how far each is. If no master serves, it says which of them are missing.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0  a master serves, every node is up, every group is whole, and all masters have caught up
  1  something is wrong: a node is down, a group lacks a replica, a disk is full, no master serves
  3  nothing is wrong, and it is not whole yet: no group takes writes, or masters still learn.
     There are two masters, which are no safer than one

Examples:
  cairn cluster status /srv/cairn-master
  cairn cluster status /srv/cairn-master --wait=60
  cairn cluster status /srv/cairn-master --json | jq .groups")]
pub struct StatusArgs {
    /// The directory of any node
    dir: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Wait until all is whole, for so many seconds [default: 300]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "300")]
    wait: Option<u64>,
}

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(500);

/// Number of groups by their state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Health {
    whole: u64,
    /// Fewer replicas than wanted, or members that are away or catching up; all can be read.
    degraded: u64,
    /// No member with all blocks is up.
    unreadable: u64,
    /// Groups, of any of these states, that take writes.
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

/// Condition of a cluster, which the exit code reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    /// Everything is there and whole.
    Whole,
    /// Something is away, degraded or full, or no master serves.
    Wrong,
    /// Nothing is wrong, but not everything is whole yet: no group takes writes, or a master has
    /// not caught up or does not vote yet.
    Settling,
}

impl Condition {
    fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Condition::Whole => 0,
            Condition::Wrong => 1,
            // Exit code 2 is for a command line that makes no sense.
            Condition::Settling => 3,
        })
    }
}

/// Returns the number of copies of the metadata that this many masters will keep.
fn copies_of(masters: usize) -> usize {
    match masters {
        // A third master makes all three voters.
        0..=3 => masters,
        4 => 3,
        _ => 5,
    }
}

/// Facts of one moment.
enum Look {
    Served {
        status: Box<Status>,
        said: MastersSaid,
        copies: Copies,
    },
    /// No master serves. The members may say why.
    Unserved {
        said: MastersSaid,
    },
}

impl Look {
    /// Asks for the status.
    ///
    /// # Errors
    /// No master answers at all.
    fn take(dir: &Path) -> Result<Look> {
        match reach::status(dir) {
            Ok(status) => {
                let said = members::ask(dir, Some(&status.map))?;
                let copies = Copies::of(dir, &status.map, &said)?;
                Ok(Look::Served { status: Box::new(status), said, copies })
            }
            Err(failure) => match members::ask(dir, None) {
                Ok(said) if said.members().is_some() => Ok(Look::Unserved { said }),
                _ => Err(failure),
            },
        }
    }

    fn condition(&self) -> Condition {
        let Look::Served { status, said, .. } = self else { return Condition::Wrong };
        let map = &status.map;
        let (health, members) = (health(map), said.members());
        let all_up = map.nodes.values().all(|node| node.is_up);
        let is_full = status.nodes.iter().any(|said| said.store.is_full);
        let is_faulty = members.is_some_and(MembersShown::is_faulty);
        if !all_up || health.degraded + health.unreadable > 0 || is_full || is_faulty {
            return Condition::Wrong;
        }
        let wanted = copies_of(map.masters().count());
        let learns = members.is_some_and(|members| members.copies() < wanted);
        if learns || health.writable == 0 { Condition::Settling } else { Condition::Whole }
    }

    fn show(&self, json: bool) -> Result<()> {
        match self {
            Look::Served { status, said, copies } => {
                let (health, members) = (health(&status.map), said.members());
                if json {
                    print_json(&to_json(status, health, *copies, members))
                } else {
                    print(status, health, *copies, members)
                }
            }
            Look::Unserved { said } => said.members().map_or(Ok(()), |one| none_serves(one, json)),
        }
    }
}

pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let end = args.wait.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        let look = Look::take(&args.dir);
        let condition = look.as_ref().map_or(Condition::Wrong, Look::condition);
        let is_over = end.is_none_or(|end| Instant::now() >= end);
        if is_over || condition == Condition::Whole {
            look?.show(args.json)?;
            return Ok(condition.code());
        }
        sleep(POLL);
    }
}

/// Shows the members of the masters, none of which serves.
fn none_serves(members: &MembersShown, json: bool) -> Result<()> {
    if json {
        return print_json(&json!({"master": null, "members": members.to_json()}));
    }
    output::line("no master serves")?;
    members.warnings().into_iter().try_for_each(output::line)?;
    output::line("")?;
    members.print()
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
    copies: Copies,
    members: Option<&MembersShown>,
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
        "full": said.map(is_full),
        "failure": said.and_then(|one| one.failure.as_deref()),
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
    copies: Copies,
    members: Option<&MembersShown>,
) -> Result<()> {
    let map = &status.map;
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
    failure_warnings(status).try_for_each(output::line)?;
    full_warning(status).into_iter().try_for_each(output::line)?;
    output::line("")?;
    print_nodes(status)?;
    if let Some(members) = members {
        output::line("")?;
        members.print()?;
    }
    Ok(())
}

/// Returns true if a disk is full. A failing disk reports that it is full too.
fn is_full(said: &NodeStatus) -> bool {
    said.store.is_full && said.failure.is_none()
}

/// Returns lines about nodes whose disks take no writes, each with a remedy.
fn failure_warnings(status: &Status) -> impl Iterator<Item = String> {
    let failing = status.nodes.iter().filter_map(|said| Some((said.node, said.failure.as_ref()?)));
    failing.map(|(node, error)| {
        format!(
            "DISK FAILS: the disk of node {node} takes no writes ({error}): other groups get what \
             is written, and its blocks are copied to other nodes if there are enough. See the \
             kernel's log of its machine. When the disk is mounted again, restart the node. To \
             replace the disk, let another chunkserver join (cairn cluster token DIR --role \
             chunkserver), stop this one, and run cairn cluster remove DIR {node}"
        )
    })
}

/// Returns a line about nodes whose disks are full, and the consequence.
fn full_warning(status: &Status) -> Option<String> {
    let full = status.nodes.iter().filter(|said| is_full(said));
    let names: Vec<String> = full.map(|said| said.node.to_string()).collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "FULL: the disk of node {} takes no more blocks: other groups get what is written, if \
         there are others. Delete something, or let another chunkserver join (cairn cluster token \
         DIR --role chunkserver) and move groups to it (cairn cluster rebalance DIR)",
        names.join(", ")
    ))
}

fn print_nodes(status: &Status) -> Result<()> {
    let map = &status.map;
    let said: BTreeMap<NodeId, &NodeStatus> =
        status.nodes.iter().map(|one| (one.node, one)).collect();
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
        let state = match said {
            _ if !node.is_up => "DOWN",
            Some(said) if said.failure.is_some() => "FAILS",
            Some(said) if is_full(said) => "FULL",
            _ if node.is_draining => "draining",
            _ => "up",
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::map::{Group, Member};
    use cairn_base::{GroupId, KeyHash, Pin, Redundancy, Role};
    use cairn_cluster::control::messages::StoreState;

    use super::*;

    /// Makes a cluster of this many masters and the chunkservers 11 to 13, which have one group.
    fn status(masters: u64) -> Status {
        let pin = |role: Role| Pin { key: KeyHash([0; 32]), roles: role.into() };
        let node = |role| Node { is_up: true, ..Node::new(pin(role)) };
        let masters = (1..=masters).map(|id| (NodeId(id), node(Role::Master)));
        let disks = (11..=13).map(|id| (NodeId(id), node(Role::Chunkserver)));
        let members = (11..=13).map(|id| Member::new(NodeId(id), true)).collect();
        let group = Group { members, redundancy: Redundancy::Copies(3), ..Group::default() };
        let map = ClusterMap {
            replicas: 3,
            minimum: 2,
            nodes: masters.chain(disks).collect(),
            groups: [(GroupId(1), group)].into(),
            ..ClusterMap::default()
        };
        Status { map, ..Status::default() }
    }

    fn condition(status: Status, copies: usize) -> Condition {
        let masters = status.map.masters().count() as u64;
        let said = MastersSaid::Members(MembersShown::of_voters(masters, copies as u64));
        Look::Served { status: Box::new(status), said, copies: Copies::Unknown }.condition()
    }

    #[test]
    fn one_master_is_whole_and_more_are_when_all_have_caught_up() {
        assert_eq!(condition(status(1), 1), Condition::Whole);
        assert_eq!(condition(status(2), 1), Condition::Settling);
        assert_eq!(condition(status(3), 1), Condition::Settling);
        assert_eq!(condition(status(3), 3), Condition::Whole);
        assert_eq!(copies_of(4), 3);
        let mut empty = status(1);
        empty.map.groups.clear();
        assert_eq!(condition(empty, 1), Condition::Settling);
        assert_eq!(Look::Unserved { said: MastersSaid::Nothing }.condition(), Condition::Wrong);
    }

    #[test]
    fn what_is_down_or_full_is_wrong() {
        let mut down = status(1);
        down.map.nodes.get_mut(&NodeId(11)).unwrap().is_up = false;
        assert_eq!(condition(down, 1), Condition::Wrong);
        let mut full = status(1);
        let store = StoreState { is_full: true, ..StoreState::default() };
        full.nodes.push(NodeStatus { node: NodeId(12), store, ..NodeStatus::default() });
        let text = full_warning(&full).unwrap();
        assert!(text.starts_with("FULL: the disk of node 12 "), "{text}");
        assert_eq!(condition(full, 1), Condition::Wrong);
        let mut failing = status(1);
        let failure = Some("no disk".to_owned());
        failing.nodes.push(NodeStatus {
            node: NodeId(13),
            store,
            failure,
            ..NodeStatus::default()
        });
        assert_eq!(full_warning(&failing), None);
        let text = failure_warnings(&failing).collect::<String>();
        assert!(
            text.starts_with("DISK FAILS: the disk of node 13 takes no writes (no disk)"),
            "{text}"
        );
        assert_eq!(condition(failing, 1), Condition::Wrong);
    }
}
