//! The fsck of a cluster: its form, its progress on the master that serves, and its findings.

use std::sync::Arc;

use cairn_base::fsck::{FsckFound, FsckPhase, FsckState};
use cairn_base::scrub::RunOrder;
use cairn_base::{Result, Timestamp};
use maud::{Markup, html};

use super::degraded_objects::list;
use super::masters;
use super::screen::Screen;
use crate::fields;
use crate::inner::Inner;
use crate::insight::nodes::{ClusterFsck, Nodes};
use crate::limits;
use crate::sheet::{self, Column, column};
use crate::words;

const FINDINGS: [Column; 2] = [column("About", "name"), column("What does not fit", "words")];

pub async fn look(inner: &Inner) -> Result<ClusterFsck> {
    masters::soon(inner, |nodes| nodes.fsck(RunOrder::Look, "")).await
}

/// Carries out an order of a form, for a user.
///
/// # Errors
/// Those of the masters, for instance if none answers.
pub async fn order(nodes: &Arc<dyn Nodes>, order: RunOrder, user: &str) -> Result<()> {
    nodes.fsck(order, user).await.map(drop)
}

pub fn part(asked: &Result<ClusterFsck>) -> Markup {
    html! {
        section class="group" aria-labelledby="fsck" {
            h2 id="fsck" { "Metadata and replicas" }
            p class="hint" {
                "The master that serves compares the rows of the metadata with each other, and the blocks that they name "
                "with what chunkservers have. It finds blocks that a node lacks, which no scrub looks for. It reads no blocks, "
                "and rests in between, so that requests go on."
            }
            @match asked {
                Ok(fsck) => {
                    (standing(&fsck.state))
                    (form(fsck.state.phase.is_under_way()))
                    (found(fsck))
                }
                Err(error) => p class="hint" { "How checks stand is not known: " (error) "." },
            }
        }
    }
}

fn form(runs: bool) -> Markup {
    html! {
        form method="post" action=(Screen::Scrub.place()) class="line" {
            (fields::hidden(&[("order", if runs { "stop-check" } else { "check" })]))
            @if runs { button type="submit" { "Stop the check" } }
            @else { button type="submit" class="primary" { "Check now" } }
        }
    }
}

/// Shows the sentence about it, and a bar while it runs.
fn standing(state: &FsckState) -> Markup {
    html! {
        p class="state" {
            @match state.phase {
                FsckPhase::Unknown => "No check runs, and none was made since the master that serves began.",
                FsckPhase::Rows | FsckPhase::Blocks => "A check runs.",
                FsckPhase::Names => "A check runs: objects are being named.",
                FsckPhase::Ended => "No check runs. The last one reached its end.",
                FsckPhase::Stopped => "No check runs. The last one was stopped.",
                FsckPhase::Failed => "No check runs. The last one failed.",
                FsckPhase::Replaced => "No check runs. The last one ended because another master serves now.",
            }
        }
        @if state.phase == FsckPhase::Failed { p class="error" { (state.failure) } }
        @if state.phase.is_under_way() {
            progress max=(state.total_rows.max(1)) value=(state.rows.min(state.total_rows)) aria-label="Progress of the check" {}
        }
        @if state.begun != Timestamp::default() {
            p {
                "Ordered by " @if !state.by.user.is_empty() { (state.by.user) " at " } "node " (state.by.node) ", "
                (words::time(state.begun)) " (UTC)"
                @if state.ended != Timestamp::default() { ", over at " (words::time(state.ended)) " (UTC)" }
                ": " (words::count(state.rows)) " of about " (words::counted(state.total_rows, "row")) ", "
                (words::counted(state.blocks, "block")) " compared"
                @if state.phase == FsckPhase::Blocks {
                    ", " (words::count(state.groups)) " of " (words::counted(state.total_groups, "group"))
                }
                "."
            }
        }
    }
}

fn found(fsck: &ClusterFsck) -> Markup {
    let Some(found) = &fsck.found else { return html! {} };
    let (state, FsckFound { findings, degraded }) = (&fsck.state, &**found);
    let [lost, fewer, _] = degraded.blocks;
    let shown = findings.len().min(limits::SHOWN);
    let rows = html! {
        @for (about, what) in findings.iter().take(shown) {
            tr { td class="name" { (about) } td class="words" { (what) } }
        }
    };
    let further = state.findings.saturating_sub(shown as u64);
    html! {
        @if state.findings == 0 { p { "The metadata fits together." } }
        @else { (sheet::scrolling("Findings in the metadata", &FINDINGS, &rows)) }
        @if further > 0 {
            p class="hint" { "And " (words::counted(further, "more finding")) "." }
        }
        p {
            (words::counted(lost, "lost block")) ", " (words::count(fewer)) " degraded, "
            (words::count(state.unknown_blocks)) " not compared."
        }
        // Nothing good is known of blocks that were not compared.
        @if !degraded.objects.is_empty() || state.unknown_blocks == 0 {
            (list(degraded, "cairn cluster fsck --look"))
        }
        @for (node, why) in &degraded.silent {
            p class="error" { "Node " (node) " did not say which blocks it has: " (why) "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::fsck::Orderer;
    use cairn_base::scrub::{DegradedObject, DegradedObjects, Wholeness};
    use cairn_base::{Error, NodeId};

    use super::*;

    fn ended(findings: u64, found: FsckFound) -> ClusterFsck {
        let by = Orderer { node: NodeId(0), user: "<root>".to_owned() };
        let (phase, begun) = (FsckPhase::Ended, Timestamp::from_secs(60));
        let state = FsckState { phase, begun, by, findings, ..FsckState::default() };
        ClusterFsck { state, found: Some(Arc::new(found)) }
    }

    #[test]
    fn what_it_found_is_shown_with_who_ordered_it() {
        let (wholeness, object) = (Wholeness::Lost, "photos/<a>.jpg".to_owned());
        let objects = vec![DegradedObject { wholeness, object, start: 0, end: 4096 }];
        let blocks = [1, 0, 0];
        let degraded = DegradedObjects {
            objects,
            blocks,
            unnamed: 7,
            is_cut: true,
            ..DegradedObjects::default()
        };
        let findings = vec![("photos/<b>".to_owned(), "counts 2 names, found 1".to_owned())];
        let text = part(&Ok(ended(3, FsckFound { findings, degraded }))).into_string();
        for said in [
            "photos/&lt;a&gt;.jpg",
            "photos/&lt;b&gt;",
            "counts 2 names",
            "And 2 more findings",
            "It leaves out 7 objects.",
            "1 lost block",
            "&lt;root&gt; at node 0",
            "Check now",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let silent = vec![(NodeId(3), "it is away".to_owned())];
        let degraded = DegradedObjects { silent, ..DegradedObjects::default() };
        let text = part(&Ok(ended(0, FsckFound { degraded, ..Default::default() }))).into_string();
        assert!(text.contains("Node 3 did not say which blocks it has"), "{text}");
        assert!(text.contains("The metadata fits together."), "{text}");
        let mut clean = ended(0, FsckFound::default());
        let says_whole = |fsck: &ClusterFsck| {
            part(&Ok(fsck.clone())).into_string().contains("none lacks replicas")
        };
        assert!(says_whole(&clean));
        clean.state.unknown_blocks = 1;
        assert!(!says_whole(&clean), "a block was not compared");
    }

    #[test]
    fn how_it_stands_is_a_sentence() {
        let of = |phase| {
            let state = FsckState { phase, rows: 3, total_rows: 10, ..FsckState::default() };
            part(&Ok(ClusterFsck { state, found: None })).into_string()
        };
        let running = of(FsckPhase::Blocks);
        assert!(
            running.contains("A check runs.") && running.contains("Stop the check"),
            "{running}"
        );
        assert!(running.contains("<progress max=\"10\" value=\"3\""), "{running}");
        assert!(of(FsckPhase::Replaced).contains("because another master serves now"));
        assert!(of(FsckPhase::Unknown).contains("none was made"));
        let text = part(&Err(Error::Unavailable("nobody".into()))).into_string();
        assert!(text.contains("is not known") && !text.contains("Check now"), "{text}");
    }
}
