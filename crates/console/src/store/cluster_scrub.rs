//! Scrubs of a cluster: their form, the progress at each chunkserver, and the objects that are
//! damaged or lack replicas.

use std::sync::Arc;

use cairn_base::scrub::{NodeScrub, RunOrder, ScrubPhase};
use cairn_base::{NodeId, Result};
use maud::{Markup, html};

use super::screen::{Parts, Screen};
use super::{cluster_fsck, degraded_objects, masters};
use crate::fields;
use crate::inner::Inner;
use crate::insight::lookup::NamedObjects;
use crate::insight::nodes::Nodes;
use crate::sheet::{self, Column, column};
use crate::words;

const NODES: [Column; 6] = [
    column("Node", "name"),
    column("State", ""),
    column("Blocks", "number"),
    column("Read", "number"),
    column("Damaged", "number"),
    column("Replaced", "number"),
];

/// State of a scrub at all chunkservers.
pub type ScrubAnswers = Result<Vec<(NodeId, NodeScrub)>>;

pub async fn look(inner: &Inner) -> ScrubAnswers {
    let said = masters::soon(inner, |nodes| nodes.scrub(RunOrder::Look)).await;
    if let (Ok(said), Some(nodes)) = (&said, &inner.insight.nodes) {
        let scrubs = said.iter().any(|(_, said)| said.phase.is_under_way() || said.pending > 0);
        inner.lookup.watch(scrubs, nodes, inner.fs().clock());
    }
    said
}

pub async fn parts(inner: &Inner) -> Parts {
    let (said, fsck) = tokio::join!(look(inner), cluster_fsck::look(inner));
    let (is_looking, last) = inner.lookup.look();
    vec![
        ("state", html! { (sum(&said)) (table(&said)) }),
        ("order", order_form(runs(&said))),
        ("objects", objects(is_looking, last)),
        ("fsck", cluster_fsck::part(&fsck)),
    ]
}

/// Carries out an order of a form.
///
/// # Errors
/// Those of the masters, for instance if none answers.
pub async fn order(inner: &Inner, nodes: &Arc<dyn Nodes>, order: RunOrder) -> Result<()> {
    nodes.scrub(order).await?;
    if order == RunOrder::Begin {
        // It may end before a page shows it.
        inner.lookup.watch(true, nodes, inner.fs().clock());
    }
    Ok(())
}

pub fn runs(said: &ScrubAnswers) -> bool {
    said.as_ref().is_ok_and(|said| said.iter().any(|(_, said)| said.phase.is_under_way()))
}

/// Shows the sentence about it, and a bar while it runs.
pub fn sum(said: &ScrubAnswers) -> Markup {
    let said = match said {
        Ok(said) => said,
        Err(error) => {
            return html! { p class="hint" { "How scrubs stand is not known: " (error) "." } };
        }
    };
    let count = |of: fn(&NodeScrub) -> bool| said.iter().filter(|(_, said)| of(said)).count();
    let all = words::counted(said.len() as u64, "chunkserver");
    let under_way = count(|said| said.phase.is_under_way());
    let ended = count(|said| said.phase == ScrubPhase::Ended);
    let total = |of: fn(&NodeScrub) -> u64| said.iter().map(|(_, said)| of(said)).sum::<u64>();
    let (blocks, total_blocks) = (total(|said| said.blocks), total(|said| said.total_blocks));
    html! {
        p class="state" {
            @if under_way > 0 { "A scrub runs at " (under_way) " of " (all) "." }
            @else if total(|said| said.pending) > 0 { "The scrub has ended: damaged blocks are being replaced." }
            @else if ended > 0 { "No scrub runs. The last one reached its end at " (ended) " of " (all) "." }
            @else { "No scrub runs." }
        }
        @if under_way > 0 {
            progress max=(total_blocks.max(1)) value=(blocks) aria-label="Progress of the scrub" {}
        }
        @if under_way + ended > 0 {
            p {
                (words::count(blocks)) " of " (words::counted(total_blocks, "block")) ", "
                (words::size(total(|said| said.bytes))) " read, "
                (words::count(total(|said| said.damaged))) " damaged, "
                (words::count(total(|said| said.repaired))) " replaced."
            }
        }
    }
}

fn state_of(said: &NodeScrub) -> (&'static str, &'static str) {
    match said.phase {
        ScrubPhase::Unknown => ("tag", "none since its start"),
        ScrubPhase::Waits => ("tag", "waits"),
        ScrubPhase::Runs => ("tag", "runs"),
        ScrubPhase::Ended if said.damaged > said.repaired => ("tag warn", "ended"),
        ScrubPhase::Ended => ("tag good", "ended"),
        ScrubPhase::Stopped => ("tag warn", "stopped"),
        ScrubPhase::Failed => ("tag bad", "failed"),
        ScrubPhase::Silent => ("tag bad", "does not answer"),
    }
}

fn table(said: &ScrubAnswers) -> Markup {
    let rows = html! {
        @for (node, said) in said.iter().flatten() {
            @let (class, state) = state_of(said);
            tr {
                td class="name" {
                    (node)
                    @if !said.failure.is_empty() { " " span class="of" { (said.failure) } }
                }
                td { span class=(class) { (state) } }
                td class="number" { (words::count(said.blocks)) " of " (words::count(said.total_blocks)) }
                td class="number" { (words::size(said.bytes)) }
                td class="number" { (words::count(said.damaged)) }
                td class="number" { (words::count(said.repaired)) }
            }
        }
    };
    html! {
        @if said.is_ok() { (sheet::scrolling("Scrubs of chunkservers", &NODES, &rows)) }
        p class="hint" {
            "Each chunkserver reads and verifies all its blocks, slowly, so that requests go on, and replaces "
            "those that are damaged by what other nodes have. Every " code { "--scrub-days" } " it does so by itself."
        }
    }
}

/// Makes the form that begins or stops a scrub; it leads to the page of scrubs.
pub fn order_form(runs: bool) -> Markup {
    html! {
        form method="post" action=(Screen::Scrub.place()) class="line" {
            (fields::hidden(&[("order", if runs { "stop" } else { "begin" })]))
            @if runs { button type="submit" { "Stop the scrub" } }
            @else { button type="submit" class="primary" { "Scrub now" } }
        }
    }
}

fn objects(is_under_way: bool, last: Option<Arc<NamedObjects>>) -> Markup {
    html! {
        section class="group" aria-labelledby="objects" {
            h2 id="objects" { "Damaged and degraded objects" }
            p class="hint" {
                "Lost: no good replica is left. Degraded: fewer replicas than there should be, as where a node is "
                "down. Repaired: damaged replicas were replaced. They are listed after each scrub. To list them "
                "reads all metadata."
            }
            @if is_under_way {
                p role="status" { "The objects are being looked up…" }
            } @else {
                form method="post" action=(Screen::Scrub.place()) class="line" {
                    (fields::hidden(&[("order", "list")]))
                    button type="submit" { "List them now" }
                }
            }
            @match last.as_deref() {
                None => {}
                Some((at, Ok(named))) => {
                    @let [lost, degraded, repaired] = named.blocks;
                    p {
                        "At " (words::time(*at)) " (UTC): " (words::counted(lost, "lost block"))
                        ", " (words::count(degraded)) " degraded, " (words::count(repaired)) " repaired."
                    }
                    (degraded_objects::list(named, "cairn cluster scrub --look"))
                    @for (node, why) in &named.silent {
                        p class="error" { "Node " (node) " did not say which blocks it found damaged: " (why) "." }
                    }
                }
                Some((at, Err(error))) => {
                    p class="error" { "At " (words::time(*at)) " (UTC) the objects could not be looked up: " (error) "." }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::scrub::{DegradedObject, DegradedObjects, Wholeness};
    use cairn_base::{Error, Timestamp};

    use super::*;

    fn node(phase: ScrubPhase, blocks: u64) -> (NodeId, NodeScrub) {
        let said = NodeScrub { phase, blocks, total_blocks: 10, ..NodeScrub::default() };
        (NodeId(blocks), said)
    }

    #[test]
    fn the_sentence_is_of_all_chunkservers() {
        let of = |said: ScrubAnswers| sum(&said).into_string();
        let running = of(Ok(vec![node(ScrubPhase::Runs, 3), node(ScrubPhase::Ended, 10)]));
        assert!(running.contains("A scrub runs at 1 of 2 chunkservers."), "{running}");
        assert!(running.contains("<progress max=\"20\" value=\"13\""), "{running}");
        let ended = of(Ok(vec![node(ScrubPhase::Ended, 9), node(ScrubPhase::Silent, 0)]));
        assert!(ended.contains("reached its end at 1 of 2") && !ended.contains("progress"));
        let mut busy = node(ScrubPhase::Ended, 9);
        busy.1.pending = 1;
        assert!(of(Ok(vec![busy])).contains("are being replaced"));
        assert!(of(Err(Error::Unavailable("nobody".into()))).contains("is not known"));
    }

    #[test]
    fn objects_are_listed_with_what_to_do() {
        let object = |number: u64| DegradedObject {
            wholeness: if number == 0 { Wholeness::Lost } else { Wholeness::Degraded },
            object: format!("photos/<{number}>.jpg"),
            start: 0,
            end: 4096,
        };
        let objects_of = |named: DegradedObjects| {
            let named = (Timestamp::default(), Ok(Arc::new(named)));
            objects(false, Some(Arc::new(named))).into_string()
        };
        let all = (0..300).map(object).collect();
        let named =
            DegradedObjects { objects: all, blocks: [1, 0, 0], ..DegradedObjects::default() };
        let text = objects_of(named);
        assert!(text.contains("photos/&lt;0&gt;.jpg") && text.contains("0 to 4,096"), "{text}");
        assert!(text.contains("The first 200") && text.contains("from a backup"), "{text}");
        assert!(objects_of(DegradedObjects::default()).contains("none lacks replicas"));
        let silent = vec![(NodeId(3), "it is away".to_owned())];
        let text = objects_of(DegradedObjects { silent, ..DegradedObjects::default() });
        assert!(text.contains("Node 3 did not say") && !text.contains("none lacks"), "{text}");
        assert!(objects(true, None).into_string().contains("being looked up"));
    }
}
