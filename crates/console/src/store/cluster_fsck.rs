//! The fsck of a cluster: one now, its progress on the master that serves, and what it found.

use std::sync::Arc;

use cairn_base::{Result, Timestamp};
use maud::{Markup, html};

use super::screen::Screen;
use super::{cluster_scrub, masters};
use crate::fields;
use crate::inner::Inner;
use crate::insight::nodes::{ClusterFsck, FsckFindings, FsckStage, Nodes, RunOrder};
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
/// Where no master answers.
pub async fn order(nodes: &Arc<dyn Nodes>, order: RunOrder, user: &str) -> Result<()> {
    nodes.fsck(order, user).await.map(drop)
}

fn runs(stage: FsckStage) -> bool {
    matches!(stage, FsckStage::Rows | FsckStage::Blocks | FsckStage::Names)
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
                Ok(fsck) => { (state(fsck)) (form(runs(fsck.stage))) (found(fsck)) }
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

/// The sentence about it, and a bar while it is under way.
fn state(fsck: &ClusterFsck) -> Markup {
    html! {
        p class="state" {
            @match fsck.stage {
                FsckStage::None => "No check runs, and none was made since the master that serves began.",
                FsckStage::Rows | FsckStage::Blocks => "A check runs.",
                FsckStage::Names => "A check runs: objects are being named.",
                FsckStage::Ended => "No check runs. The last one reached its end.",
                FsckStage::Stopped => "No check runs. The last one was stopped.",
                FsckStage::Failed => "No check runs. The last one failed.",
                FsckStage::Replaced => "No check runs. The last one ended because another master serves now.",
            }
        }
        @if fsck.stage == FsckStage::Failed { p class="error" { (fsck.failure) } }
        @if runs(fsck.stage) {
            progress max=(fsck.total_rows.max(1)) value=(fsck.rows.min(fsck.total_rows)) aria-label="Progress of the check" {}
        }
        @if fsck.begun != Timestamp::default() {
            p {
                "Ordered by " @if !fsck.user.is_empty() { (fsck.user) " at " } "node " (fsck.node) ", "
                (words::time(fsck.begun)) " (UTC)"
                @if fsck.ended != Timestamp::default() { ", over at " (words::time(fsck.ended)) " (UTC)" }
                ": " (words::count(fsck.rows)) " of about " (words::counted(fsck.total_rows, "row")) ", "
                (words::counted(fsck.blocks, "block")) " compared"
                @if fsck.stage == FsckStage::Blocks {
                    ", " (words::count(fsck.groups)) " of " (words::counted(fsck.total_groups, "group"))
                }
                "."
            }
        }
    }
}

fn found(fsck: &ClusterFsck) -> Markup {
    let Some(found) = &fsck.found else { return html! {} };
    let FsckFindings { findings, harmed } = &**found;
    let shown = findings.len().min(limits::SHOWN);
    let rows = html! {
        @for (about, what) in findings.iter().take(shown) {
            tr { td class="name" { (about) } td class="words" { (what) } }
        }
    };
    let further = fsck.finding_count.saturating_sub(shown as u64);
    html! {
        @if fsck.finding_count == 0 { p { "The metadata fits together." } }
        @else { (sheet::scrolling("Findings in the metadata", &FINDINGS, &rows)) }
        @if further > 0 {
            p class="hint" { "And " (words::counted(further, "more finding")) "." }
        }
        p {
            (words::counted(harmed.lost_blocks, "lost block")) ", " (words::count(harmed.degraded_blocks)) " degraded, "
            (words::count(fsck.unknown_blocks)) " not compared."
        }
        (cluster_scrub::list(harmed, "cairn cluster fsck --look"))
        @for (node, why) in &harmed.silent {
            p class="error" { "Node " (node) " did not say which blocks it has: " (why) "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::{Error, NodeId};

    use super::*;
    use crate::insight::nodes::{Harm, HarmedObject, HarmedObjects};

    fn ended(finding_count: u64, found: FsckFindings) -> ClusterFsck {
        let begun = Timestamp::from_secs(60);
        let (found, user) = (Some(Arc::new(found)), "<root>".to_owned());
        let stage = FsckStage::Ended;
        ClusterFsck { stage, begun, user, finding_count, found, ..ClusterFsck::default() }
    }

    #[test]
    fn what_it_found_is_shown_with_who_ordered_it() {
        let object = "photos/<a>.jpg".to_owned();
        let objects = vec![HarmedObject { harm: Harm::Lost, object, start: 0, end: 4096 }];
        let harmed = HarmedObjects {
            objects,
            lost_blocks: 1,
            unnamed: 7,
            is_cut: true,
            ..Default::default()
        };
        let findings = vec![("photos/<b>".to_owned(), "counts 2 names, found 1".to_owned())];
        let text = part(&Ok(ended(3, FsckFindings { findings, harmed }))).into_string();
        for said in [
            "photos/&lt;a&gt;.jpg",
            "photos/&lt;b&gt;",
            "counts 2 names",
            "And 2 more findings",
            "There are 7 more",
            "1 lost block",
            "&lt;root&gt; at node 0",
            "Check now",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let silent = vec![(NodeId(3), "it is away".to_owned())];
        let harmed = HarmedObjects { silent, ..HarmedObjects::default() };
        let text = part(&Ok(ended(0, FsckFindings { harmed, ..Default::default() }))).into_string();
        assert!(text.contains("Node 3 did not say which blocks it has"), "{text}");
        assert!(text.contains("The metadata fits together."), "{text}");
    }

    #[test]
    fn how_it_stands_is_a_sentence() {
        let of = |stage| {
            let fsck = ClusterFsck { stage, rows: 3, total_rows: 10, ..ClusterFsck::default() };
            part(&Ok(fsck)).into_string()
        };
        let running = of(FsckStage::Blocks);
        assert!(
            running.contains("A check runs.") && running.contains("Stop the check"),
            "{running}"
        );
        assert!(running.contains("<progress max=\"10\" value=\"3\""), "{running}");
        assert!(of(FsckStage::Replaced).contains("because another master serves now"));
        assert!(of(FsckStage::None).contains("none was made"));
        let text = part(&Err(Error::Unavailable("nobody".into()))).into_string();
        assert!(text.contains("is not known") && !text.contains("Check now"), "{text}");
    }
}
