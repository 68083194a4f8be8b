//! Chunkservers that have more than their share, or are away; metadata with too few copies, or
//! without progress.

use super::worth::WORTH_PERCENT;
use crate::Finding;
use crate::sample::{Pair, Store};

/// Excess over its share from which on a node is uneven.
const UNEVEN: f64 = 0.3;
/// Bytes below which shares say nothing.
const BYTES: u64 = 1 << 30;

pub fn uneven(pair: &Pair<'_>) -> Vec<Finding> {
    let Some(cluster) = &pair.after.cluster else { return Vec::new() };
    let mut found: Vec<Finding> = fullest(&cluster.stores).into_iter().collect();
    let down = cluster.stores.iter().filter(|store| !store.up).map(|store| store.node.as_str());
    let down: Vec<&str> = down.collect();
    if cluster.degraded_groups > 0 || !down.is_empty() {
        found.push(Finding {
            kind: "degraded",
            cost_percent: 100.0 * down.len().max(1) as f64 / cluster.stores.len().max(1) as f64,
            what: "chunkservers are missing, or groups lack replicas".to_owned(),
            evidence: vec![
                format!("{} groups lack replicas", cluster.degraded_groups),
                format!("down: {}", if down.is_empty() { "none".into() } else { down.join(", ") }),
            ],
            remedy:
                "start what is down; remove what is lost (cairn cluster remove DIR NODE); `cairn \
                     cluster status` says when copies are made"
                    .to_owned(),
        });
    }
    found
}

/// Chunkservers whose disks take no writes.
pub fn failing_disks(pair: &Pair<'_>) -> Vec<Finding> {
    let stores = pair.after.cluster.iter().flat_map(|cluster| &cluster.stores);
    let failing = |store: &Store| Some(format!("node {}: {}", store.node, store.failure.as_ref()?));
    let evidence: Vec<String> = stores.filter_map(failing).collect();
    if evidence.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        kind: "failing disk",
        cost_percent: 100.0,
        what: "disks of chunkservers take no writes, others get them".to_owned(),
        evidence,
        remedy: "see the kernel's log of that machine; restart the node when the disk is mounted \
                 again, or replace the disk as `cairn cluster status` says"
            .to_owned(),
    }]
}

/// Names and small objects that are lost sooner than the contents of blocks.
pub fn few_copies(pair: &Pair<'_>) -> Vec<Finding> {
    let cluster = pair.after.cluster.as_ref();
    let Some((cluster, copies)) = cluster.and_then(|one| Some((one, one.metadata_copies?))) else {
        return Vec::new();
    };
    if copies >= cluster.replicas {
        return Vec::new();
    }
    let (has, replicas) = (if copies == 1 { "copy" } else { "copies" }, cluster.replicas);
    vec![Finding {
        kind: "few copies",
        // It costs no time, and stays below findings that do.
        cost_percent: WORTH_PERCENT,
        what: "names and small objects have fewer copies than blocks".to_owned(),
        evidence: vec![format!(
            "{copies} {has} of names and of objects up to 16 KiB, {replicas} replicas of blocks"
        )],
        remedy: "start masters that are down, or let more join, three or five in all: cairn \
                 cluster token DIR --role master"
            .to_owned(),
    }]
}

/// Masters that answer and make no progress.
pub fn stalls(pair: &Pair<'_>) -> Vec<Finding> {
    let stalls = pair.after.cluster.as_ref().map(|cluster| cluster.stalls.clone());
    let Some(evidence) = stalls.filter(|stalls| !stalls.is_empty()) else { return Vec::new() };
    vec![Finding {
        kind: "no progress",
        cost_percent: 100.0,
        what: "masters answer, and the metadata make no progress".to_owned(),
        evidence,
        remedy: "do what each line says; `cairn cluster status` shows when it is over".to_owned(),
    }]
}

/// Masters whose metadata are damaged.
pub fn damage(pair: &Pair<'_>) -> Vec<Finding> {
    let damage = pair.after.cluster.as_ref().map(|cluster| cluster.damage.clone());
    let Some(evidence) = damage.filter(|damage| !damage.is_empty()) else { return Vec::new() };
    vec![Finding {
        kind: "damaged metadata",
        cost_percent: 100.0,
        what: "the metadata of a master are damaged".to_owned(),
        evidence,
        remedy: "do what each line says; `cairn cluster status` shows when it is over".to_owned(),
    }]
}

fn fullest(stores: &[Store]) -> Option<Finding> {
    let up = stores.iter().filter(|store| store.up && store.weight > 0);
    let (bytes, weights) = up.clone().fold((0, 0), |(bytes, weights), store| {
        (bytes + store.live_bytes, weights + u64::from(store.weight))
    });
    if bytes < BYTES || up.clone().count() < 2 {
        return None;
    }
    let share = |store: &Store| {
        let due = bytes as f64 * f64::from(store.weight) / weights as f64;
        store.live_bytes as f64 / due.max(1.0) - 1.0
    };
    let fullest = up.max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let over = share(fullest);
    (over >= UNEVEN).then(|| Finding {
        kind: "uneven groups",
        // A node that has more gets more requests, and the others wait.
        cost_percent: 100.0 * over / (1.0 + over),
        what: format!("node {} has {:.0} % more than its share", fullest.node, 100.0 * over),
        evidence: vec![format!(
            "{} of {} MiB in the cluster",
            fullest.live_bytes >> 20,
            bytes >> 20
        )],
        remedy: "cairn cluster rebalance DIR".to_owned(),
    })
}
