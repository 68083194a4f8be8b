//! `cairn cluster scrub`: makes all chunkservers verify their blocks, and names the objects that
//! are damaged or lack replicas.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_base::NodeId;
use cairn_base::rng::RealRng;
use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder, ScrubPhase, Wholeness};
use cairn_cluster::data::FOUND;
use serde_json::{Value, json};

use super::{objects, reach};
use crate::failure::{Failure, Result};
use crate::output;

/// Pause between two questions about its state.
const POLL: Duration = Duration::from_millis(500);
/// Number of times that the scrub is begun again at a node that was restarted meanwhile.
const AGAIN: u32 = 3;

/// Have all chunkservers read and verify their blocks now, and name damaged objects
///
/// Waits, and shows the progress. Damaged replicas are replaced by copies from other nodes. Names
/// objects of which no good replica is left (lost), those that have fewer replicas than they should
/// (degraded), and those that were repaired. A scrub reads what is there: `cairn cluster fsck`
/// looks for blocks that a node lacks. The scrub goes on if this command is ended. Exit code 1 if a
/// node was not scrubbed or may lack blocks, or if an object is lost or degraded.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster scrub /srv/cairn-master
  cairn cluster scrub /srv/cairn-master --json | jq .objects
  cairn cluster scrub /srv/cairn-master --look
  cairn cluster scrub /srv/cairn-master --stop")]
pub struct ClusterScrubArgs {
    /// The directory of a master or a gateway
    dir: PathBuf,
    /// Begin no scrub: show the progress of the one that runs, or the results of the last one
    #[arg(long, conflicts_with = "stop")]
    look: bool,
    /// Stop the scrub that runs
    #[arg(long)]
    stop: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Seconds after which the command goes on without a node or a master that does not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

/// State of the scrub at every chunkserver.
type Nodes = BTreeMap<NodeId, NodeScrub>;

pub fn run(args: &ClusterScrubArgs) -> Result<ExitCode> {
    if args.stop {
        let nodes = reach::scrub(&args.dir, 0, RunOrder::Stop)?.into_iter().collect();
        return show(args, &nodes, None);
    }
    if args.look {
        let nodes: Nodes = reach::scrub(&args.dir, 0, RunOrder::Look)?.into_iter().collect();
        return if nodes.values().any(|scrub| scrub.phase.is_under_way()) {
            show(args, &nodes, None)
        } else {
            show_named(args, &nodes, names(args, 0))
        };
    }
    let run = RunOrder::Begin.number(&RealRng);
    let nodes = watch(args, run)?;
    show_named(args, &nodes, names(args, run))
}

/// Shows the reports of the nodes, even if the damaged objects are unknown.
fn show_named(
    args: &ClusterScrubArgs,
    nodes: &Nodes,
    named: Result<DegradedObjects>,
) -> Result<ExitCode> {
    match named {
        Ok(named) => show(args, nodes, Some(&named)),
        Err(failure) => {
            show(args, nodes, None)?;
            Err(failure)
        }
    }
}

/// Begins a scrub and waits until it has ended everywhere, or no further wait makes sense.
fn watch(args: &ClusterScrubArgs, run: u64) -> Result<Nodes> {
    let mut watched = ScrubWatch::new(Duration::from_secs(args.patience));
    let mut order = RunOrder::Begin;
    let bar = output::count_bar(1, "blocks");
    loop {
        match reach::scrub(&args.dir, run, order) {
            Ok(nodes) => order = watched.look(nodes, Instant::now()),
            Err(failure) if failure.is_passing() && !watched.is_too_late(Instant::now()) => {}
            Err(failure) => return Err(watched.lost(args, failure)),
        }
        let total: u64 = watched.nodes.values().map(|scrub| scrub.total_blocks).sum();
        bar.set_length(total.max(1));
        bar.set_position(watched.nodes.values().map(|scrub| scrub.blocks).sum());
        bar.set_message(watched.progress());
        if watched.is_over() {
            bar.finish_and_clear();
            return Ok(watched.nodes);
        }
        sleep(POLL);
    }
}

/// Answers to a scrub so far.
struct ScrubWatch {
    patience: Duration,
    nodes: Nodes,
    /// Time since which the answer of a node has not changed, if the node is not done.
    since: BTreeMap<NodeId, Instant>,
    again: BTreeMap<NodeId, u32>,
    /// For each node, true if it is done or was given up.
    done: BTreeMap<NodeId, bool>,
    heard: Option<Instant>,
}

impl ScrubWatch {
    fn new(patience: Duration) -> ScrubWatch {
        let (nodes, since, again, done) = Default::default();
        ScrubWatch { patience, nodes, since, again, done, heard: None }
    }

    /// Takes the master's answer, and returns the next request.
    fn look(&mut self, said: Vec<(NodeId, NodeScrub)>, now: Instant) -> RunOrder {
        self.heard = Some(now);
        self.forget_others(&said);
        let mut next = RunOrder::Look;
        for (node, scrub) in said {
            if self.done.get(&node) == Some(&true) {
                continue;
            }
            let is_same = self.nodes.get(&node).is_some_and(|known| match scrub.phase {
                // The reason why it does not answer may have other words each time.
                ScrubPhase::Silent => known.phase == ScrubPhase::Silent,
                _ => *known == scrub,
            });
            let since = *self.since.entry(node).or_insert(now);
            let is_late = is_same && now.saturating_duration_since(since) >= self.patience;
            if !is_same {
                self.since.insert(node, now);
            }
            let done = match scrub.phase {
                ScrubPhase::Unknown => {
                    let again = self.again.entry(node).or_default();
                    *again += 1;
                    next = RunOrder::Begin;
                    *again > AGAIN
                }
                ScrubPhase::Silent => is_late,
                // It rests a lot, and may wait for a disk: it is not given up.
                ScrubPhase::Waits | ScrubPhase::Runs => false,
                ScrubPhase::Ended | ScrubPhase::Stopped | ScrubPhase::Failed => {
                    scrub.pending == 0 || is_late
                }
            };
            self.done.insert(node, done);
            self.nodes.insert(node, scrub);
        }
        next
    }

    /// Forgets nodes that were removed from the cluster meanwhile.
    fn forget_others(&mut self, said: &[(NodeId, NodeScrub)]) {
        let is_said = |node: &NodeId| said.iter().any(|(said, _)| said == node);
        self.nodes.retain(|node, _| is_said(node));
        self.since.retain(|node, _| is_said(node));
        self.again.retain(|node, _| is_said(node));
        self.done.retain(|node, _| is_said(node));
    }

    /// Makes the failure for a master that answered before and no longer does.
    fn lost(&self, args: &ClusterScrubArgs, failure: Failure) -> Failure {
        let dir = args.dir.display();
        match self.heard {
            None => failure,
            Some(_) => failure.and(&format!(
                "the scrub goes on, and cairn cluster scrub {dir} --look shows it once a master \
                 serves"
            )),
        }
    }

    fn is_over(&self) -> bool {
        self.heard.is_some() && self.done.values().all(|done| *done)
    }

    /// Returns true if no master was heard for too long.
    fn is_too_late(&self, now: Instant) -> bool {
        self.heard.is_none_or(|heard| now.saturating_duration_since(heard) >= self.patience)
    }

    /// Shows the progress of each node that is not done.
    fn progress(&self) -> String {
        let left = self.nodes.iter().filter(|(node, _)| self.done.get(node) != Some(&true));
        let one = |(node, scrub): (&NodeId, &NodeScrub)| {
            let part = scrub.blocks * 100 / scrub.total_blocks.max(1);
            let read = output::human_bytes(scrub.bytes);
            match scrub.phase {
                ScrubPhase::Runs => format!("node {node}: {part} %, {read}"),
                phase => format!("node {node}: {}", phase.word()),
            }
        };
        left.map(one).collect::<Vec<_>>().join("; ")
    }
}

/// Waits until the master has named the objects.
fn names(args: &ClusterScrubArgs, run: u64) -> Result<DegradedObjects> {
    let bar = output::count_bar(0, "naming objects");
    let mut begun = Instant::now();
    loop {
        match reach::degraded(&args.dir, run) {
            Ok(Some(named)) => {
                bar.finish_and_clear();
                return Ok(named);
            }
            Ok(None) => begun = Instant::now(),
            Err(failure) => {
                let patience = Duration::from_secs(args.patience);
                if !failure.is_passing() || begun.elapsed() >= patience {
                    return Err(failure);
                }
            }
        }
        bar.tick();
        sleep(POLL);
    }
}

/// Returns true if all blocks were verified, and those of objects have all their replicas.
fn is_good(nodes: &Nodes, named: Option<&DegradedObjects>) -> bool {
    let garbage = named.map_or(0, |named| named.garbage);
    // For more damaged blocks than these, a node does not say whether they were repaired. No other
    // node replaces garbage.
    let is_good = |scrub: &NodeScrub| {
        scrub.phase == ScrubPhase::Ended
            && scrub.damaged_segments == 0
            && scrub.damaged <= FOUND as u64
            && scrub.damaged <= scrub.repaired + garbage
    };
    let [lost, degraded, _] = named.map_or([0; 3], |named| named.blocks);
    let is_heard = named.is_none_or(|named| named.silent.is_empty());
    nodes.values().all(is_good) && is_heard && lost == 0 && degraded == 0
}

fn show(
    args: &ClusterScrubArgs,
    nodes: &Nodes,
    named: Option<&DegradedObjects>,
) -> Result<ExitCode> {
    let is_whole = named.is_some() && is_good(nodes, named);
    if args.json {
        output::json(&to_json(nodes, named, is_whole))?
    } else {
        print(nodes, named)?
    }
    Ok(if is_success(args, nodes, named) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns true if no damage is known, also while the scrub goes on. A scrub counts as stopped if
/// every node got the order.
fn is_success(args: &ClusterScrubArgs, nodes: &Nodes, named: Option<&DegradedObjects>) -> bool {
    if args.stop {
        nodes.values().all(|scrub| scrub.phase != ScrubPhase::Silent)
    } else {
        named.is_none() || is_good(nodes, named)
    }
}

fn to_json(nodes: &Nodes, named: Option<&DegradedObjects>, is_whole: bool) -> Value {
    let nodes = nodes.iter().map(|(node, scrub)| {
        json!({
            "node": node.to_string(),
            "state": scrub.phase.word(),
            "blocks": scrub.blocks,
            "total_blocks": scrub.total_blocks,
            "bytes": scrub.bytes,
            "damaged": scrub.damaged,
            "repaired": scrub.repaired,
            "failure": scrub.failure,
            "damaged_segments": scrub.damaged_segments,
        })
    });
    let mut shown = json!({"whole": is_whole, "nodes": nodes.collect::<Vec<_>>()});
    let Some(named) = named else { return shown };
    objects::add_json(&mut shown, named);
    shown["repaired_blocks"] = named.blocks[Wholeness::Repaired as usize].into();
    shown["garbage_blocks"] = named.garbage.into();
    shown
}

fn print(nodes: &Nodes, named: Option<&DegradedObjects>) -> Result<()> {
    for (node, scrub) in nodes {
        let NodeScrub { blocks, total_blocks, damaged, repaired, .. } = scrub;
        let read = output::human_bytes(scrub.bytes);
        let state = match (scrub.phase, scrub.failure.as_str()) {
            (ScrubPhase::Unknown, _) => "no scrub since it was started".to_owned(),
            (ScrubPhase::Silent, why) => format!("NOT SCRUBBED, it does not answer: {why}"),
            (phase, "") => phase.word().to_owned(),
            (phase, why) => format!("{}: {why}", phase.word()),
        };
        output::line(format!(
            "node {node}: {state}; {blocks} of {total_blocks} blocks, {read} read, {damaged} \
             damaged, {repaired} repaired"
        ))?;
        if scrub.damaged_segments > 0 {
            let segments = scrub.damaged_segments;
            output::line(format!(
                "node {node}: {segments} segments of its store are damaged, and it may lack blocks: \
                 drain it, and replace its disk"
            ))?;
        }
    }
    let Some(named) = named else { return Ok(()) };
    objects::print(named)?;
    for (node, why) in &named.silent {
        output::line(format!("node {node} did not say which blocks it found damaged: {why}"))?;
    }
    let counts = Wholeness::ALL.iter().zip(named.blocks);
    let counts: Vec<String> =
        counts.map(|(one, blocks)| format!("{blocks} {}", one.word())).collect();
    output::line(format!("blocks: {}", counts.join(", ")))?;
    if named.garbage > 0 {
        let garbage = named.garbage;
        output::line(format!("{garbage} more are in no object any more: they will be deleted"))?;
    }
    objects::print_remedy(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(4);

    fn said(phase: ScrubPhase) -> Vec<(NodeId, NodeScrub)> {
        vec![(NODE, NodeScrub { phase, ..NodeScrub::default() })]
    }

    #[test]
    fn a_node_that_was_restarted_is_told_again_but_not_forever() {
        let (mut watched, now) = (ScrubWatch::new(Duration::from_secs(60)), Instant::now());
        assert_eq!(watched.look(said(ScrubPhase::Runs), now), RunOrder::Look);
        for _ in 0..AGAIN {
            assert_eq!(watched.look(said(ScrubPhase::Unknown), now), RunOrder::Begin);
            assert!(!watched.is_over());
        }
        watched.look(said(ScrubPhase::Unknown), now);
        assert!(watched.is_over() && !is_good(&watched.nodes, None));
    }

    #[test]
    fn a_node_that_does_not_answer_is_given_up_after_a_while() {
        let (patience, now) = (Duration::from_secs(60), Instant::now());
        let mut watched = ScrubWatch::new(patience);
        watched.look(said(ScrubPhase::Silent), now);
        let mut otherwise = said(ScrubPhase::Silent);
        otherwise[0].1.failure = "no route".into();
        watched.look(otherwise.clone(), now + patience / 2);
        assert!(!watched.is_over());
        watched.look(said(ScrubPhase::Runs), now + patience);
        watched.look(said(ScrubPhase::Silent), now + patience);
        assert!(!watched.is_over(), "it answered meanwhile");
        watched.look(otherwise, now + patience * 2);
        assert!(watched.is_over(), "whatever it says of why");
    }

    #[test]
    fn a_node_that_leaves_the_cluster_is_not_waited_for() {
        let (mut watched, now) = (ScrubWatch::new(Duration::from_secs(60)), Instant::now());
        let other = (NodeId(5), said(ScrubPhase::Ended)[0].1.clone());
        watched.look([said(ScrubPhase::Runs), vec![other.clone()]].concat(), now);
        assert!(!watched.is_over());
        watched.look(vec![other], now);
        assert!(watched.is_over() && is_good(&watched.nodes, None));
        assert_eq!(watched.nodes.keys().copied().collect::<Vec<_>>(), [NodeId(5)]);
    }

    /// Makes one node that has found this many damaged blocks, some of which were repaired.
    fn ended(damaged: u64, repaired: u64) -> Nodes {
        let phase = ScrubPhase::Ended;
        Nodes::from([(NODE, NodeScrub { phase, damaged, repaired, ..NodeScrub::default() })])
    }

    #[test]
    fn damage_that_nobody_has_repaired_is_not_good() {
        let named = DegradedObjects::default();
        assert!(is_good(&ended(2, 2), Some(&named)));
        assert!(!is_good(&ended(2, 1), Some(&named)), "the node was restarted, or scrubbed again");
        let silent = vec![(NODE, "another one followed".to_owned())];
        assert!(!is_good(&ended(2, 2), Some(&DegradedObjects { silent, ..named.clone() })));
        let most = FOUND as u64;
        assert!(is_good(&ended(most, most), Some(&named)));
        assert!(!is_good(&ended(most + 1, most + 1), Some(&named)), "not all are known");
        let mut torn = ended(0, 0);
        torn.values_mut().for_each(|scrub| scrub.damaged_segments = 1);
        assert!(!is_good(&torn, Some(&named)), "it may lack blocks");
        // No object holds it: it does no harm, and no node can repair it.
        let garbage = DegradedObjects { garbage: 1, ..named.clone() };
        assert!(is_good(&ended(2, 1), Some(&garbage)) && !is_good(&ended(2, 0), Some(&garbage)));
        for blocks in [[1, 0, 0], [0, 1, 0]] {
            let named = DegradedObjects { blocks, ..garbage.clone() };
            assert!(!is_good(&ended(2, 2), Some(&named)));
        }
    }

    #[test]
    fn a_scrub_is_stopped_if_every_node_was_told() {
        let args = |stop| ClusterScrubArgs {
            dir: PathBuf::new(),
            look: false,
            stop,
            json: false,
            patience: 60,
        };
        let nodes = |phase| said(phase).into_iter().collect::<Nodes>();
        assert!(is_success(&args(true), &nodes(ScrubPhase::Stopped), None));
        assert!(is_success(&args(true), &nodes(ScrubPhase::Unknown), None), "none was there");
        assert!(!is_success(&args(true), &nodes(ScrubPhase::Silent), None));
        assert!(is_success(&args(false), &nodes(ScrubPhase::Runs), None));
        let named = DegradedObjects::default();
        assert!(!is_success(&args(false), &nodes(ScrubPhase::Silent), Some(&named)));
    }

    #[test]
    fn repairs_are_waited_for() {
        let (mut watched, now) = (ScrubWatch::new(Duration::from_secs(60)), Instant::now());
        let ended = NodeScrub { phase: ScrubPhase::Ended, ..NodeScrub::default() };
        watched.look(vec![(NODE, NodeScrub { pending: 1, ..ended.clone() })], now);
        assert!(!watched.is_over());
        watched.look(vec![(NODE, ended)], now);
        assert!(watched.is_over() && is_good(&watched.nodes, None));
        // A later scrub of another caller changes nothing.
        watched.look(said(ScrubPhase::Unknown), now);
        assert!(watched.is_over() && is_good(&watched.nodes, None));
    }

    #[test]
    fn a_master_that_was_never_heard_is_not_waited_for() {
        let now = Instant::now();
        let mut watched = ScrubWatch::new(Duration::from_secs(60));
        assert!(watched.is_too_late(now));
        watched.look(Vec::new(), now);
        assert!(!watched.is_too_late(now) && watched.is_over(), "a cluster without chunkservers");
        assert!(watched.is_too_late(now + Duration::from_secs(60)));
    }
}
