//! `cairn cluster upgrade-check`: shows which nodes may be stopped now, to be upgraded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::map::Group;
use cairn_base::{Capability, NodeId, Role};
use cairn_cluster::control::Status;
use cairn_cluster::wire::{
    FormatRange, NodeProgram, VERSION_MAX, VERSION_MIN, lowest, own_program,
};
use serde_json::{Value, json};

use super::members::{self, MastersSaid};
use super::reach;
use crate::failure::{Failure, Result};
use crate::output;

/// Tell which nodes may be stopped now, to be upgraded, and in which order
///
/// Run it with the program that is to be installed: it compares itself with the programs of all
/// nodes. A node may be stopped if the others go on without it: all nodes are up, all groups are
/// whole, and a majority of the masters remains that has caught up. An older program is named that
/// would refuse a directory. Nothing is changed. Exit code 1 if any node must not be stopped now.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster upgrade-check /srv/cairn
  cairn cluster upgrade-check /srv/cairn --json | jq '.order[] | select(.may_stop)'
  until cairn cluster upgrade-check /srv/cairn; do sleep 1; done   (before the next machine)")]
pub struct UpgradeCheckArgs {
    /// The directory of any node, or of a machine
    dir: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Nodes that stop and start together: those of a machine, or one.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Unit {
    /// Host of a machine; empty for a single node.
    host: String,
    nodes: BTreeSet<NodeId>,
    /// Reasons why it must not be stopped now; none if it may.
    reasons: Vec<String>,
}

/// State of the cluster, and the program to be installed.
struct Check<'a> {
    status: &'a Status,
    own: NodeProgram,
    masters: Masters<'a>,
}

/// Place of the metadata.
#[derive(Clone, Copy)]
enum Masters<'a> {
    /// The masters keep them together; the function says whether a majority without some has caught
    /// up.
    Members(&'a dyn Fn(&BTreeSet<NodeId>) -> bool),
    /// The metadata are in a database, or on the disk of one master.
    Elsewhere,
    /// No master answered.
    Silent,
}

pub fn run(args: &UpgradeCheckArgs) -> Result<ExitCode> {
    let status = reach::status(&args.dir)?;
    let said = members::ask(&args.dir, Some(&status.map))?;
    let without = |away: &BTreeSet<NodeId>| {
        said.members().is_some_and(|members| members.has_majority_without(away))
    };
    let masters = match said {
        MastersSaid::Members(_) => Masters::Members(&without),
        MastersSaid::Elsewhere => Masters::Elsewhere,
        MastersSaid::Nothing => Masters::Silent,
    };
    let check = Check { status: &status, own: own_program(VERSION_MIN), masters };
    let units = check.units();
    if args.json {
        let text = serde_json::to_string_pretty(&check.to_json(&units));
        output::line(text.map_err(|error| Failure::new(error.to_string()))?)?;
    } else {
        check.print(&units)?
    }
    Ok(if is_ready(&units) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn is_ready(units: &[Unit]) -> bool {
    units.iter().all(|unit| unit.reasons.is_empty())
}

impl Check<'_> {
    fn has(&self, node: NodeId, role: Role) -> bool {
        self.status.map.nodes.get(&node).is_some_and(|node| node.pin.roles.contains(role))
    }

    /// Returns all nodes in the order of an upgrade: masters, the serving one last; then
    /// chunkservers, then gateways.
    fn units(&self) -> Vec<Unit> {
        let mut by_host: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
        for (id, node) in &self.status.map.nodes {
            by_host.entry(host_of(&node.address)).or_default().insert(*id);
        }
        let mut units = Vec::new();
        for (host, nodes) in by_host {
            let has = |role| nodes.iter().any(|node| self.has(*node, role));
            let is_machine = !is_this_host(&host) && has(Role::Master) && has(Role::Chunkserver);
            if is_machine {
                units.push((host, nodes))
            } else {
                units.extend(nodes.into_iter().map(|node| (String::new(), BTreeSet::from([node]))))
            }
        }
        units.sort_by_key(|(_, nodes)| {
            let has = |role| nodes.iter().any(|node| self.has(*node, role));
            let serves = nodes.contains(&self.status.master);
            (!has(Role::Master), serves, !has(Role::Chunkserver), nodes.clone())
        });
        let unit = |(host, nodes): (String, BTreeSet<NodeId>)| {
            let reasons = self.reasons(&nodes);
            Unit { host, nodes, reasons }
        };
        units.into_iter().map(unit).collect()
    }

    /// Returns the reasons why these nodes must not be stopped now and run this program afterwards.
    fn reasons(&self, away: &BTreeSet<NodeId>) -> Vec<String> {
        let mut reasons = self.not_whole(away);
        reasons.extend(self.without_masters(away));
        reasons.extend(self.without_blocks(away));
        reasons.extend(self.without_gateways(away));
        for node in away {
            reasons.extend(self.not_understood(*node, away));
            reasons.extend(self.refused_formats(*node));
        }
        reasons
    }

    fn not_whole(&self, away: &BTreeSet<NodeId>) -> Vec<String> {
        let map = &self.status.map;
        let down = map.nodes.iter().filter(|(id, node)| !node.is_up && !away.contains(id));
        let mut reasons: Vec<String> =
            down.map(|(id, _)| format!("node {id} is down: start it, or remove it")).collect();
        let whole = |group: &Group| {
            let present = group.in_sync().filter(|node| map.is_up(*node)).count();
            present >= group.redundancy.members()
        };
        let degraded = map.groups.values().filter(|group| !whole(group)).count();
        if degraded > 0 {
            reasons.push(format!("{degraded} groups are not whole: wait until they are"));
        }
        reasons
    }

    fn without_masters(&self, away: &BTreeSet<NodeId>) -> Option<String> {
        if !away.iter().any(|node| self.has(*node, Role::Master)) {
            return None;
        }
        match self.masters {
            Masters::Silent => Some("no master says whether a majority would be left".into()),
            Masters::Members(majority_without) if majority_without(away) => None,
            Masters::Members(_) => Some(
                "no majority of masters that have caught up would be left: nothing is served until \
                 it is back"
                    .into(),
            ),
            Masters::Elsewhere if self.is_left(Role::Master, away) => None,
            Masters::Elsewhere => Some("no other master is up: nothing is served until it is back".into()),
        }
    }

    fn without_blocks(&self, away: &BTreeSet<NodeId>) -> Vec<String> {
        let map = &self.status.map;
        let lost = |group: &&Group| {
            let mut left = group.in_sync().filter(|node| map.is_up(*node));
            let is_concerned = away.iter().any(|node| group.has(*node));
            is_concerned && !left.any(|node| !away.contains(&node))
        };
        let lost = map.groups.values().filter(lost).count();
        let mut reasons = Vec::new();
        if lost > 0 {
            reasons.push(format!("{lost} groups cannot be read without it"));
        }
        let is_concerned = away.iter().any(|node| self.has(*node, Role::Chunkserver));
        let is_full =
            |node| self.status.nodes.iter().any(|said| said.node == node && said.store.is_full);
        let places = map.places().filter(|(node, _)| !away.contains(node) && !is_full(*node));
        let left = places.count();
        if is_concerned && left < usize::from(map.minimum) {
            let minimum = map.minimum;
            reasons.push(format!(
                "{left} chunkservers with room would be left, and writes need {minimum}: they wait until it \
                 is back"
            ));
        }
        reasons
    }

    fn without_gateways(&self, away: &BTreeSet<NodeId>) -> Option<String> {
        let nodes = &self.status.map.nodes;
        let has = |role| away.iter().any(|node| self.has(*node, role));
        if has(Role::Gateway) {
            let text = "no other gateway is up: clients wait until it is back";
            return (!self.is_left(Role::Gateway, away)).then(|| text.into());
        }
        // It is unknown on which machine a gateway without an address runs.
        let gateways = || nodes.iter().filter(|(id, _)| self.has(**id, Role::Gateway));
        let is_machine = has(Role::Master) && has(Role::Chunkserver);
        let may_be_here = gateways().any(|(_, node)| node.address.is_empty());
        let up = gateways().filter(|(_, node)| node.is_up).count();
        (is_machine && may_be_here && up <= 1).then(|| {
            "no two gateways are up: if the one is on this machine, clients wait until it is back"
                .into()
        })
    }

    fn is_left(&self, role: Role, away: &BTreeSet<NodeId>) -> bool {
        let map = &self.status.map;
        map.nodes
            .iter()
            .any(|(id, node)| node.is_up && node.pin.roles.contains(role) && !away.contains(id))
    }

    fn program(&self, node: NodeId) -> Option<&NodeProgram> {
        self.status.programs.get(&node).map(|program| &**program)
    }

    /// Returns nodes that would not understand this program at `node`. All nodes that connect
    /// connect to masters.
    fn not_understood(&self, node: NodeId, away: &BTreeSet<NodeId>) -> Vec<String> {
        let mut reasons = Vec::new();
        for other in self.status.map.nodes.keys().filter(|other| !away.contains(other)) {
            let versions = self.program(*other).map_or((0, 0), |program| program.versions);
            let roles = Role::ALL.into_iter().filter(|role| self.has(node, *role));
            let ours = roles.filter_map(|role| {
                let is_connected = role == Role::Master || self.has(*other, Role::Master);
                let as_gateway = self.has(*other, Role::Gateway).then_some(Role::Gateway);
                is_connected.then(|| lowest(role, as_gateway))
            });
            let Some(oldest) = ours.max() else { continue };
            if versions != (0, 0) && VERSION_MAX.min(versions.1) < oldest.max(versions.0) {
                reasons.push(format!(
                    "this cairn speaks versions {oldest} to {VERSION_MAX} of the protocol, node \
                     {other} versions {} to {}: node {node} would not be understood, upgrade both \
                     at the same time",
                    versions.0, versions.1
                ));
            }
        }
        reasons
    }

    /// Returns formats in the directory of `node` that this program does not read.
    fn refused_formats(&self, node: NodeId) -> Vec<String> {
        let formats = self.program(node).map(|program| &program.formats[..]).unwrap_or_default();
        let refused = formats.iter().filter_map(|theirs| {
            let FormatRange { name, oldest, newest } = theirs;
            let ours = self.own.formats.iter().find(|ours| ours.name == *name);
            let reads = match ours {
                Some(ours) if ours.oldest <= *oldest && *newest <= ours.newest => return None,
                Some(ours) => format!("reads {}", shown(ours)),
                None => "does not know it".into(),
            };
            Some(format!(
                "node {node} may have written {}, this cairn {reads}: it would refuse the \
                 directory, use a newer one",
                shown(theirs)
            ))
        });
        refused.collect()
    }

    fn release_of(&self, node: NodeId) -> String {
        let release = self.program(node).map(|program| program.release.clone());
        let said = || self.status.nodes.iter().find(|said| said.node == node);
        let of_beat = || said().map(|said| format!("cairn {}", said.version));
        release.filter(|release| !release.is_empty()).or_else(of_beat).unwrap_or_default()
    }

    fn print(&self, units: &[Unit]) -> Result<()> {
        output::line(format!("this program: {}, {}", self.own.release, told(&self.own)))?;
        output::line("")?;
        let row = |cells: [&str; 5]| {
            let [node, state, roles, release, says] = cells;
            format!("{node:>5} {state:<5} {roles:<12} {release:<14} {says}")
        };
        output::line(row(["node", "state", "role", "release", ""]))?;
        for (id, node) in &self.status.map.nodes {
            let state = if node.is_up { "up" } else { "DOWN" };
            let says = self.program(*id).filter(|program| !program.formats.is_empty());
            let says = says.map(|program| self.compared(program));
            let says = says.unwrap_or_else(|| "says nothing of versions and formats".into());
            let (number, roles) = (id.to_string(), node.pin.roles.to_string());
            output::line(row([&number, state, &roles, &self.release_of(*id), &says]))?;
        }
        output::line("")?;
        for one in Capability::ALL {
            output::line(format!("capability {one}: {}", self.state_of(*one)))?;
        }
        output::line("\nin this order, and after each check again:")?;
        for (at, unit) in units.iter().enumerate() {
            let at = at + 1;
            let may = if unit.reasons.is_empty() { "may be stopped" } else { "NOT NOW" };
            output::line(format!("{at:>5}. {}: {may}", unit.shown()))?;
            for reason in &unit.reasons {
                output::line(format!("       {reason}"))?;
            }
        }
        output::line(
            "\nThere is no way back to a program that does not read these formats: it refuses to \
             start. Make a backup first.",
        )
    }

    /// Returns whether a capability is on, or can be turned on, in words.
    fn state_of(&self, capability: Capability) -> String {
        if self.status.map.capabilities.contains(capability) {
            return "on: a program without it is refused".into();
        }
        let lacking = self.lacking(capability);
        if lacking.is_empty() {
            format!("off; all nodes have it: cairn cluster enable DIR {capability}")
        } else {
            format!("off; nodes {} lack it or are away", lacking.join(", "))
        }
    }

    /// Returns nodes that are not up with a program that has a capability.
    fn lacking(&self, capability: Capability) -> Vec<String> {
        let (old, away) = self.status.nodes_without(capability);
        let nodes: BTreeSet<NodeId> = old.into_iter().chain(away).collect();
        nodes.iter().map(NodeId::to_string).collect()
    }

    fn compared(&self, program: &NodeProgram) -> String {
        let (oldest, newest) = program.versions;
        if program.formats == self.own.formats {
            format!("protocol {oldest} to {newest}; the same formats")
        } else {
            told(program)
        }
    }

    fn capabilities_json(&self) -> Value {
        let one = |capability: &Capability| {
            let is_on = self.status.map.capabilities.contains(*capability);
            let state = json!({ "on": is_on, "lacking": self.lacking(*capability) });
            (capability.name().to_owned(), state)
        };
        Value::Object(Capability::ALL.iter().map(one).collect())
    }

    fn to_json(&self, units: &[Unit]) -> Value {
        let names = |nodes: &BTreeSet<NodeId>| {
            nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>()
        };
        let nodes = self.status.map.nodes.iter().map(|(id, node)| {
            json!({
                "node": id.to_string(),
                "roles": node.pin.roles.iter().map(|role| role.word()).collect::<Vec<_>>(),
                "up": node.is_up,
                "release": self.release_of(*id),
                "program": self.program(*id).map(program_json),
            })
        });
        let order = units.iter().map(|unit| {
            json!({
                "nodes": names(&unit.nodes),
                "host": (!unit.host.is_empty()).then_some(&unit.host),
                "may_stop": unit.reasons.is_empty(),
                "reasons": unit.reasons,
            })
        });
        json!({
            "ready": is_ready(units),
            "program": program_json(&self.own),
            "capabilities": self.capabilities_json(),
            "master": self.status.master.to_string(),
            "nodes": nodes.collect::<Vec<_>>(),
            "order": order.collect::<Vec<_>>(),
        })
    }
}

impl Unit {
    fn shown(&self) -> String {
        let names: Vec<String> = self.nodes.iter().map(|node| node.to_string()).collect();
        if self.host.is_empty() {
            format!("node {}", names.join(", "))
        } else {
            format!("machine {} (nodes {})", self.host, names.join(", "))
        }
    }
}

fn program_json(program: &NodeProgram) -> Value {
    let formats = program.formats.iter();
    let formats: serde_json::Map<String, Value> =
        formats.map(|one| (one.name.clone(), json!([one.oldest, one.newest]))).collect();
    json!({
        "release": program.release,
        "protocol": [program.versions.0, program.versions.1],
        "formats": formats,
        "capabilities": program.capabilities.iter().map(Capability::name).collect::<Vec<_>>(),
    })
}

fn told(program: &NodeProgram) -> String {
    let formats: Vec<String> = program.formats.iter().map(shown).collect();
    let (oldest, newest) = program.versions;
    format!("protocol {oldest} to {newest}; {}", formats.join(", "))
}

fn shown(format: &FormatRange) -> String {
    let FormatRange { name, oldest, newest } = format;
    if oldest == newest {
        format!("{name} {newest}")
    } else {
        format!("{name} {oldest} to {newest}")
    }
}

/// Returns the host of `host:port`, without brackets.
fn host_of(address: &str) -> String {
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}

/// Returns true for nodes without an address, or with an address that says nothing of the machine.
fn is_this_host(host: &str) -> bool {
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    host.is_empty() || host == "localhost" || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cairn_base::map::{Member, Node};
    use cairn_base::{CapabilitySet, ClusterMap, GroupId, KeyHash, Pin, Redundancy};
    use cairn_cluster::control::NodeStatus;
    use cairn_cluster::control::messages::StoreState;

    use super::*;

    /// Three machines: masters 1 to 3, chunkservers 4 to 6, gateways 7 to 9; 2 serves.
    fn three_machines() -> Status {
        let mut map = ClusterMap { replicas: 3, minimum: 2, ..ClusterMap::default() };
        for number in 1..=9 {
            let role = [Role::Master, Role::Chunkserver, Role::Gateway][(number - 1) / 3];
            let port = [7400, 7401, 0][(number - 1) / 3];
            let pin = Pin { key: KeyHash([0; 32]), roles: role.into() };
            let address = match role {
                Role::Gateway => String::new(),
                _ => format!("[fd00::{}]:{port}", (number - 1) % 3 + 1),
            };
            let node = Node { address, is_up: true, ..Node::new(pin) };
            map.nodes.insert(NodeId(number as u64), node);
        }
        let members = (4..=6).map(|node| Member::new(NodeId(node), true)).collect();
        let redundancy = Redundancy::Copies(3);
        map.groups.insert(GroupId(1), Group { redundancy, members, ..Group::default() });
        let programs = map.nodes.keys().map(|node| {
            let lowest = if node.0 > 6 { 2 } else { 1 };
            (*node, Arc::new(own_program(lowest)))
        });
        let programs = programs.collect();
        Status { master: NodeId(2), programs, map, ..Status::default() }
    }

    /// Returns the units if these masters have caught up.
    fn check(status: &Status, caught_up: &[u64]) -> Vec<Unit> {
        let without = |away: &BTreeSet<NodeId>| {
            caught_up.iter().filter(|node| !away.contains(&NodeId(**node))).count() >= 2
        };
        let own = own_program(VERSION_MIN);
        Check { status, own, masters: Masters::Members(&without) }.units()
    }

    fn reasons(units: &[Unit]) -> String {
        units.iter().flat_map(|unit| unit.reasons.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn whole_machines_stop_one_after_another_and_the_one_that_serves_last() {
        let units = check(&three_machines(), &[1, 2, 3]);
        let shown: Vec<String> = units.iter().map(Unit::shown).collect();
        assert_eq!(
            shown,
            [
                "machine fd00::1 (nodes 1, 4)",
                "machine fd00::3 (nodes 3, 6)",
                "machine fd00::2 (nodes 2, 5)",
                "node 7",
                "node 8",
                "node 9"
            ]
        );
        assert!(is_ready(&units), "{}", reasons(&units));
    }

    #[test]
    fn a_majority_must_be_left_that_has_caught_up() {
        let units = check(&three_machines(), &[1, 2]);
        // The master that lags may be stopped, and no other.
        let may: Vec<bool> = units.iter().take(3).map(|unit| unit.reasons.is_empty()).collect();
        assert_eq!(may, [false, true, false]);
        assert!(reasons(&units).contains("no majority of masters"), "{}", reasons(&units));
    }

    #[test]
    fn what_is_down_or_not_whole_is_waited_for() {
        let mut status = three_machines();
        status.map.nodes.get_mut(&NodeId(9)).unwrap().is_up = false;
        let units = check(&status, &[1, 2, 3]);
        assert!(
            units[..5]
                .iter()
                .all(|unit| unit.reasons == ["node 9 is down: start it, or remove it"])
        );
        // It is stopped already.
        assert!(units[5].reasons.is_empty());
        let mut status = three_machines();
        status.map.groups.get_mut(&GroupId(1)).unwrap().members[2].in_sync = false;
        let units = check(&status, &[1, 2, 3]);
        assert!(units.iter().all(|unit| unit.reasons[0].contains("1 groups are not whole")));
    }

    #[test]
    fn the_only_one_of_a_role_is_missed() {
        let mut status = three_machines();
        for node in [2, 3, 5, 6, 8, 9] {
            status.map.nodes.remove(&NodeId(node));
        }
        let group = status.map.groups.get_mut(&GroupId(1)).unwrap();
        group.redundancy = Redundancy::Copies(1);
        group.members.truncate(1);
        (status.map.minimum, status.master) = (1, NodeId(1));
        let own = own_program(VERSION_MIN);
        let units = Check { status: &status, own, masters: Masters::Elsewhere }.units();
        let said = reasons(&units);
        for part in [
            "no other master is up",
            "1 groups cannot be read without it",
            "0 chunkservers with room would be left, and writes need 1",
            "no other gateway is up",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }

    #[test]
    fn masters_that_say_nothing_are_a_reason() {
        let status = three_machines();
        let own = own_program(VERSION_MIN);
        let units = Check { status: &status, own, masters: Masters::Silent }.units();
        let may: Vec<bool> = units.iter().map(|unit| unit.reasons.is_empty()).collect();
        assert_eq!(may, [false, false, false, true, true, true], "{}", reasons(&units));
        assert!(reasons(&units).contains("no master says"));
    }

    #[test]
    fn chunkservers_that_are_full_take_no_writes() {
        let mut status = three_machines();
        let full = StoreState { is_full: true, ..StoreState::default() };
        let said = NodeStatus { node: NodeId(4), store: full, ..NodeStatus::default() };
        status.nodes.push(said);
        let units = check(&status, &[1, 2, 3]);
        let may: Vec<bool> = units.iter().take(3).map(|unit| unit.reasons.is_empty()).collect();
        // The one that is full is not missed.
        assert_eq!(may, [true, false, false]);
        assert!(reasons(&units).contains("1 chunkservers with room would be left"));
    }

    #[test]
    fn the_only_gateway_may_be_on_any_machine() {
        let mut status = three_machines();
        status.map.nodes.remove(&NodeId(9));
        assert!(is_ready(&check(&status, &[1, 2, 3])));
        status.map.nodes.remove(&NodeId(8));
        let units = check(&status, &[1, 2, 3]);
        assert!(units.iter().all(|unit| !unit.reasons.is_empty()));
        assert!(units[0].reasons[0].contains("if the one is on this machine"));
        let gateway = status.map.nodes.get_mut(&NodeId(7)).unwrap();
        gateway.address = "[fd00::7]:9000".into();
        let units = check(&status, &[1, 2, 3]);
        let may: Vec<bool> = units.iter().map(|unit| unit.reasons.is_empty()).collect();
        assert_eq!(may, [true, true, true, false], "{}", reasons(&units));
    }

    #[test]
    fn programs_that_do_not_understand_each_other_are_named() {
        let mut status = three_machines();
        let former = NodeProgram { versions: (1, 1), ..own_program(1) };
        status.programs.insert(NodeId(1), Arc::new(former));
        let said = reasons(&check(&status, &[1, 2, 3]));
        // Chunkservers and masters understand the first version, and gateways do not.
        assert!(said.contains("node 7 would not be understood"), "{said}");
        assert!(!said.contains("node 3 would") && !said.contains("node 6 would"), "{said}");
    }

    #[test]
    fn a_program_that_is_older_than_a_directory_would_refuse_it() {
        let mut status = three_machines();
        let mut newer = own_program(1);
        newer.formats[0].newest += 1;
        newer.formats.push(FormatRange { name: "later".into(), oldest: 1, newest: 1 });
        status.programs.insert(NodeId(6), Arc::new(newer));
        let own = own_program(VERSION_MIN);
        let one = Check { status: &status, own, masters: Masters::Silent };
        let compared = |node| one.compared(one.program(NodeId(node)).unwrap());
        assert!(compared(5).ends_with("the same formats"), "{}", compared(5));
        assert!(compared(6).contains("directory 1 to 2"), "{}", compared(6));
        let units = check(&status, &[1, 2, 3]);
        assert_eq!(units.iter().filter(|unit| !unit.reasons.is_empty()).count(), 1);
        let said = reasons(&units);
        assert!(
            said.contains("node 6 may have written directory 1 to 2, this cairn reads"),
            "{said}"
        );
        assert!(said.contains("later 1, this cairn does not know it"), "{said}");
    }

    #[test]
    fn a_capability_is_on_or_can_be_turned_on_when_all_have_it() {
        let mut status = three_machines();
        let own = || own_program(VERSION_MIN);
        let state = |status: &Status| {
            let check = Check { status, own: own(), masters: Masters::Silent };
            check.state_of(Capability::RequiredFields)
        };
        assert!(state(&status).contains("cairn cluster enable"), "{}", state(&status));
        let former = NodeProgram { capabilities: CapabilitySet::NONE, ..own() };
        status.programs.insert(NodeId(5), Arc::new(former));
        status.map.nodes.get_mut(&NodeId(8)).unwrap().is_up = false;
        assert_eq!(state(&status), "off; nodes 5, 8 lack it or are away");
        status.map.capabilities = CapabilitySet::own();
        assert!(state(&status).starts_with("on"), "{}", state(&status));
    }

    #[test]
    fn releases_that_say_nothing_are_no_reason() {
        let mut status = three_machines();
        status.programs.clear();
        assert!(is_ready(&check(&status, &[1, 2, 3])));
    }
}
