//! State of the store, in words.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::ClusterMap;
use cairn_base::map::Group;
use cairn_fs::Usage as BlocksUsage;
use cairn_fs::ops::cluster::GetMap;
use cairn_fs::ops::read_only::IsReadOnly;
use maud::{Markup, html};

use super::masters;
use crate::inner::Inner;
use crate::insight::nodes::MetadataKeepers;
use crate::looks::sampler::Moment;
use crate::words;

/// Shares of the space from which on there is a warning, and from which on it is urgent.
const FULL_SOON: f64 = 0.85;
const FULL: f64 = 0.95;

/// Severity of a concern.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Note,
    Warning,
    Failure,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Failure => "failure",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Level::Note => "tag",
            Level::Warning => "tag warn",
            Level::Failure => "tag bad",
        }
    }
}

/// A fact that an operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concern {
    pub level: Level,
    pub text: String,
}

fn concern(level: Level, text: impl Into<String>) -> Concern {
    Concern { level, text: text.into() }
}

/// Returns the share of the space that blocks take, from 0 to 1, of what they take and what is
/// free.
pub fn taken(usage: &BlocksUsage) -> f64 {
    let taken = usage.live_bytes.saturating_add(usage.dead_bytes);
    let all = taken.saturating_add(usage.free_bytes);
    if all == 0 { 0.0 } else { taken as f64 / all as f64 }
}

/// Returns all that an operator should know, the worst first.
pub async fn concerns(
    inner: &Arc<Inner>,
    usage: &Result<BlocksUsage, String>,
    moments: &[Moment],
) -> Vec<Concern> {
    let fs = inner.fs();
    let mut all = Vec::new();
    if let Some(failure) = fs.meta().failed() {
        all.push(concern(Level::Failure, format!("The metadata cannot be used: {failure}.")));
    }
    if let Err(error) = fs.blocks().available() {
        all.push(concern(Level::Failure, format!("Blocks cannot be used: {error}.")));
    }
    match usage {
        Ok(usage) => all.extend(of_usage(usage)),
        Err(error) => {
            all.push(concern(Level::Failure, format!("The block store does not answer: {error}.")));
        }
    }
    let system = Caller::system();
    if matches!(fs.read(&system, IsReadOnly).await, Ok(true)) {
        let text = "The store is read-only: it refuses all changes of what is in it.";
        all.push(concern(Level::Note, text));
    }
    if let Ok(Some(row)) = fs.read(&system, GetMap).await
        && let Ok(map) = ClusterMap::decode(&row)
    {
        all.extend(of_map(&map));
        // If the keepers are unknown, other concerns say why.
        if let Ok(keepers) = masters::soon(inner, |nodes| nodes.keepers()).await {
            all.extend(of_keepers(&map, keepers));
        }
        if let Ok(stalls) = masters::soon(inner, |nodes| nodes.stalls()).await {
            let says = |text| concern(Level::Failure, format!("No progress: {text}."));
            all.extend(stalls.into_iter().map(says));
        }
        if let Ok(damage) = masters::soon(inner, |nodes| nodes.damage()).await {
            let says = |text| concern(Level::Failure, format!("Damaged: {text}."));
            all.extend(damage.into_iter().map(says));
        }
    }
    all.extend(of_requests(moments));
    all.sort_by_key(|one| std::cmp::Reverse(one.level));
    all
}

fn of_usage(usage: &BlocksUsage) -> Vec<Concern> {
    let mut all = Vec::new();
    let (taken, free) = (taken(usage), words::size(usage.free_bytes));
    let percent = (taken * 100.0).floor();
    if taken >= FULL {
        let text = format!(
            "The space is {percent} % taken, {free} are free: soon all writes are refused. Delete \
             objects, or add disks."
        );
        all.push(concern(Level::Failure, text));
    } else if taken >= FULL_SOON {
        let text = format!(
            "The space is {percent} % taken, {free} are free: delete objects, or add disks."
        );
        all.push(concern(Level::Warning, text));
    }
    if usage.poisoned_segments > 0 {
        let segments = words::counted(usage.poisoned_segments, "segment");
        let text = format!(
            "A write to {segments} of blocks failed since the start: look at the disk, then start \
             the server again."
        );
        all.push(concern(Level::Failure, text));
    }
    if usage.damaged_segments > 0 {
        let segments = words::counted(usage.damaged_segments, "segment");
        let text = format!(
            "{segments} of blocks could only be read in part: stop the server, and run cairn fsck \
             DIR. In a cluster, drain the node and replace its disk."
        );
        all.push(concern(Level::Failure, text));
    }
    if usage.corrupt_reads > 0 {
        let reads = words::counted(usage.corrupt_reads, "read");
        let text =
            format!("{reads} of blocks failed their checks since the start: scrub the store.");
        all.push(concern(Level::Failure, text));
    }
    all
}

fn of_map(map: &ClusterMap) -> Vec<Concern> {
    let mut all = Vec::new();
    for (id, node) in map.nodes.iter().filter(|(_, node)| !node.is_up) {
        let roles = node.pin.roles;
        let remedy = "start it, or remove it if it is lost";
        let text = format!("Node {id} ({roles}) does not answer: {remedy}.");
        all.push(concern(Level::Warning, text));
    }
    let in_sync = |group: &Group| group.in_sync().filter(|node| map.is_up(*node)).count();
    let lacking = |group: &&Group| (1..group.redundancy.members()).contains(&in_sync(group));
    let lost = map.groups.values().filter(|group| in_sync(group) == 0).count() as u64;
    let degraded = map.groups.values().filter(lacking).count() as u64;
    if lost > 0 {
        let groups = words::counted(lost, "group");
        let text = format!("{groups} of blocks cannot be read: start chunkservers that are down.");
        all.push(concern(Level::Failure, text));
    }
    if degraded > 0 {
        let groups = words::counted(degraded, "group");
        let text =
            format!("{groups} of blocks have fewer replicas than wanted: they are repaired.");
        all.push(concern(Level::Warning, text));
    }
    all
}

/// Returns true if the metadata have fewer copies than blocks.
pub fn are_few(map: &ClusterMap, copies: usize) -> bool {
    copies < usize::from(map.most_replicas())
}

fn of_keepers(map: &ClusterMap, keepers: MetadataKeepers) -> Option<Concern> {
    match keepers {
        MetadataKeepers::Voters(copies) if are_few(map, copies) => {
            let (word, blocks) = (if copies == 1 { "copy" } else { "copies" }, map.most_replicas());
            let text = format!(
                "Few copies: names, and objects of up to 16 KiB, have {copies} {word}, and blocks \
                 have {blocks}. Start masters that are down, or let more of them join."
            );
            Some(concern(Level::Warning, text))
        }
        MetadataKeepers::OneMaster => {
            let text = "There is one master: unless it uses a database, all names, and objects of \
                        up to 16 KiB, are on its disk alone.";
            Some(concern(Level::Note, text))
        }
        MetadataKeepers::Voters(_) | MetadataKeepers::Database => None,
    }
}

fn of_requests(moments: &[Moment]) -> Option<Concern> {
    let failed = |moment: &Moment| {
        let a_second: f64 = moment.doors.iter().map(|door| door.failed).sum();
        a_second * moment.over.as_secs_f64()
    };
    let failed = moments.iter().map(failed).sum::<f64>().round() as u64;
    let text = || {
        let requests = words::counted(failed, "request");
        format!(
            "{requests} failed while these pages were open in the last 5 minutes: the log has the \
             reason of each."
        )
    };
    (failed > 0).then(|| concern(Level::Warning, text()))
}

/// Summarizes the concerns in a sentence that stays the same while nothing happens.
pub fn sentence(concerns: &[Concern]) -> Markup {
    let worst = concerns.iter().map(|one| one.level).max().unwrap_or(Level::Note);
    let count = concerns.iter().filter(|one| one.level == worst).count() as u64;
    let (class, text) = match worst {
        Level::Note => ("state good", "All is well.".to_owned()),
        Level::Warning => {
            ("state warn", format!("It works, with {}.", words::counted(count, "warning")))
        }
        Level::Failure => {
            ("state bad", format!("It needs help: {}.", words::counted(count, "failure")))
        }
    };
    html! { p class=(class) { (text) } }
}

pub fn list(concerns: &[Concern]) -> Markup {
    html! {
        @if !concerns.is_empty() {
            ul class="concerns" {
                @for one in concerns {
                    li { span class=(one.level.class()) { (one.level.word()) } " " (one.text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(live: u64, free: u64) -> BlocksUsage {
        BlocksUsage { live_bytes: live, free_bytes: free, ..BlocksUsage::default() }
    }

    #[test]
    fn a_disk_that_fills_is_told_of_in_time() {
        let levels = |live, free| -> Vec<Level> {
            of_usage(&usage(live, free)).iter().map(|one| one.level).collect()
        };
        assert_eq!(levels(84, 16), []);
        assert_eq!(levels(85, 15), [Level::Warning]);
        assert_eq!(levels(95, 5), [Level::Failure]);
        assert_eq!(levels(0, 0), [], "nothing is known");
    }

    #[test]
    fn names_with_fewer_copies_than_blocks_are_told_of() {
        let map = |replicas| ClusterMap { replicas, ..ClusterMap::default() };
        let of = |replicas, copies| {
            let found = of_keepers(&map(replicas), MetadataKeepers::Voters(copies));
            found.map(|one| one.level)
        };
        assert_eq!([of(3, 1), of(3, 2)], [Some(Level::Warning); 2]);
        assert_eq!([of(3, 3), of(1, 1)], [None; 2]);
        let text = of_keepers(&map(3), MetadataKeepers::Voters(1)).unwrap().text;
        assert!(text.contains("have 1 copy, and blocks have 3"), "{text}");
        assert_eq!(of_keepers(&map(3), MetadataKeepers::Database), None);
        let one = of_keepers(&map(3), MetadataKeepers::OneMaster).map(|one| one.level);
        assert_eq!(one, Some(Level::Note));
    }

    #[test]
    fn the_sentence_is_of_the_worst() {
        let all = [concern(Level::Warning, "w"), concern(Level::Note, "n")];
        let said = |all: &[Concern]| sentence(all).into_string();
        assert!(said(&[]).contains("All is well") && said(&all[1..]).contains("All is well"));
        assert!(said(&all).contains("with 1 warning"));
        let damaged = of_usage(&BlocksUsage { corrupt_reads: 3, ..usage(1, 9) });
        assert!(said(&damaged).contains("1 failure") && damaged[0].text.starts_with("3 reads"));
    }
}
