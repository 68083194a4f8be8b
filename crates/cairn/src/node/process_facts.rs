//! State of masters and chunkservers, as conditions and numbers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::map::{Group, Node};
use cairn_base::{ClusterMap, Role};
use cairn_blocks::{Blocks, Store};
use cairn_cluster::control::{Agent, ControlService, NodeStatus, Status};
use cairn_cluster::data::Chunkserver;
use cairn_cluster::members::{StallKind, StallReport};
use cairn_doors::http::Condition;
use cairn_doors::metrics::{
    MoreNumbers, Number, counter, gauge, gauge_seconds, of_blocks, of_master,
};

use cairn_meta::engine::raft::Member;

use super::status::ProcessFacts;
use crate::server::space;

/// Returns the facts about a master. It is ready even if chunkservers are away: that prevents
/// nothing.
pub fn of_a_master(service: ControlService, agent: Arc<Agent>, directory: &Path) -> ProcessFacts {
    let (served, heard) = (service.clone(), Arc::clone(&agent));
    let readiness = move || vec![turn(served.serving().is_ok(), heard.hears_master())];
    let numbers = move || {
        let serving = service.serving().ok();
        let help = "Whether this master serves (1) or stands by (0)";
        let mut all =
            vec![gauge("master_serving", help, u64::from(serving.is_some())), hears(&agent)];
        all.extend(service.member().into_iter().flat_map(|member| of_member(&member)));
        if let Some(controller) = serving {
            all.extend(of_master(&controller.master.stats()));
            all.extend(of_cluster(&controller.status()));
        }
        all
    };
    let numbers: Vec<MoreNumbers> = vec![Arc::new(numbers), space::numbers(directory)];
    ProcessFacts { role: "master", readiness: Arc::new(readiness), numbers }
}

/// Returns the numbers of a member, if masters keep the metadata together.
fn of_member(member: &Member) -> Vec<Number> {
    let stalls = StallReport::of(&member.stalls());
    let kinds =
        [StallKind::Follower(0), StallKind::Commits, StallKind::Applying, StallKind::Elections];
    let stalled = kinds.map(|kind| {
        let same = |report: &&StallReport| report.stall.to_string() == kind.to_string();
        let longest = stalls.iter().filter(same).map(|report| report.lasts_ms).max().unwrap_or(0);
        let help = "How long this master has made no progress, 0 where it does";
        gauge_seconds("master_stalled_seconds", help, Duration::from_millis(longest))
            .of("what", kind.to_string())
    });
    let help = "Transfers of entries that began anew, since the first entry was overwritten";
    let overwritten = counter("master_transfers_overwritten", help, member.ranges_overwritten());
    let help =
        "Since when the metadata of this master are known to be damaged, Unix seconds; 0: no";
    let since = member.damage().map_or(0, |damage| damage.since.0 / 1_000_000_000);
    let damaged = gauge("master_damaged_since", help, u64::try_from(since).unwrap_or(0));
    let help = "Passes of the scrub over the metadata of this master";
    let passes = counter("master_scrub_passes", help, member.scrub_passes());
    let help = "Damaged records of the log that were found, and are needed no more";
    let healed = counter("master_log_records_healed", help, member.records_healed());
    stalled.into_iter().chain([overwritten, damaged, passes, healed]).collect()
}

fn turn(serves: bool, hears: bool) -> Condition {
    let state = match (serves, hears) {
        (true, _) => "this master serves",
        (false, true) => "this master stands by, another one serves",
        (false, false) => "this master does not serve, and no other one answers",
    };
    Condition { name: "metadata", met: serves || hears, state: state.to_owned() }
}

/// Returns the facts about a chunkserver. It is ready even if it is full: that prevents no reads.
pub fn of_a_chunkserver(
    store: Store,
    served: Arc<Chunkserver>,
    agent: Arc<Agent>,
    directory: &Path,
) -> ProcessFacts {
    let (stored, heard) = (store.clone(), Arc::clone(&agent));
    let readiness = move || {
        let unheard = (!heard.hears_master()).then(|| "no master answers".to_owned());
        vec![Condition::unless("master", unheard), Condition::unless("blocks", failed(&stored))]
    };
    let numbers = move || {
        let mut all = store.usage_now().map(|usage| of_blocks(&usage)).unwrap_or_default();
        let help = "Blocks that were replaced by what another node has";
        all.push(counter("blocks_healed", help, served.healed()));
        let help = "Whether there is hardly any room for further blocks";
        all.push(gauge("blocks_full", help, u64::from(store.is_short_of_space())));
        let help = "Whether the disk takes no writes, since it fails";
        all.push(gauge("blocks_disk_fails", help, u64::from(store.disk_failure().is_some())));
        all.push(hears(&agent));
        all
    };
    let numbers: Vec<MoreNumbers> = vec![Arc::new(numbers), space::numbers(directory)];
    ProcessFacts { role: "chunkserver", readiness: Arc::new(readiness), numbers }
}

fn failed(store: &Store) -> Option<String> {
    match store.usage_now() {
        Ok(usage) if usage.poisoned_segments > 0 => {
            Some(format!("{} segments of blocks failed", usage.poisoned_segments))
        }
        Ok(_) => store.available().err().map(|error| error.to_string()),
        Err(error) => {
            tracing::error!(%error, "not ready: the block store");
            Some(format!("the block store: {}", error.kind()))
        }
    }
}

fn hears(agent: &Agent) -> Number {
    let help = "Whether a master answers this node";
    gauge("node_hears_master", help, u64::from(agent.hears_master()))
}

/// Returns the numbers of the cluster, as the master that serves sees it.
fn of_cluster(status: &Status) -> Vec<Number> {
    let map = &status.map;
    let of_nodes = map.nodes.iter().flat_map(|(id, node)| {
        let help = "Whether a node is up";
        let up = gauge("node_up", help, u64::from(node.is_up)).of("node", id.to_string());
        roles(node).map(move |role| up.clone().of("role", role.to_string()))
    });
    let mut all: Vec<Number> = of_nodes.collect();
    let known: Vec<&NodeStatus> = status.nodes.iter().collect();
    let stores: Vec<&NodeStatus> = known.iter().copied().filter(|one| one.disk != 0).collect();
    let of = |nodes: &[&NodeStatus], number: &dyn Fn(&NodeStatus) -> Number| {
        nodes.iter().map(|one| number(one).of("node", one.node.to_string())).collect::<Vec<_>>()
    };
    all.extend(of(&known, &|one| {
        let help = "Time since the last beat of a node";
        gauge_seconds("node_silent_seconds", help, Duration::from_millis(one.silent_ms))
    }));
    all.extend(of(&stores, &|one| {
        gauge("node_live_bytes", "Bytes of blocks of a node", one.store.live_bytes)
    }));
    all.extend(of(&stores, &|one| {
        gauge("node_free_bytes", "Bytes free on the disk of a node", one.store.free_bytes)
    }));
    all.extend(of(&stores, &|one| {
        counter("node_corrupt_reads", "Damaged blocks found on a node", one.store.corrupt)
    }));
    all.extend(of(&stores, &|one| {
        let help = "Whether the disk of a node takes no writes, since it fails";
        gauge("node_disk_fails", help, u64::from(one.failure.is_some()))
    }));
    all.extend(of_groups(map));
    let mounts = status.sessions.iter().filter(|one| one.user.is_some()).count();
    for (kind, count) in [("mount", mounts), ("node", status.sessions.len() - mounts)] {
        all.push(gauge("sessions", "Sessions", count as u64).of("kind", kind));
    }
    all
}

fn roles(node: &Node) -> impl Iterator<Item = Role> {
    let roles = node.pin.roles;
    Role::ALL.into_iter().filter(move |role| roles.contains(*role))
}

fn of_groups(map: &ClusterMap) -> [Number; 3] {
    let whole = |count: usize, members: usize| count >= members;
    let up = |group: &Group| group.in_sync().filter(|node| map.is_up(*node)).count();
    let groups = map.groups.values();
    let degraded =
        groups.clone().filter(|group| !whole(up(group), group.redundancy.members())).count();
    let lost = groups.clone().filter(|group| up(group) == 0).count();
    [
        gauge("groups", "Groups of chunkservers", groups.len() as u64),
        gauge("groups_degraded", "Groups without all their members", degraded as u64),
        gauge("groups_unreadable", "Groups of which no member is up", lost as u64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_ready_if_some_master_serves() {
        for (serves, hears, met) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            assert_eq!(turn(serves, hears).met, met);
        }
    }
}
