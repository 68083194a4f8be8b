//! The page of scrubs: those of a single server are here, those of a cluster in `cluster_scrub`,
//! and its fsck in `cluster_fsck`.

use std::sync::Arc;

use cairn_base::scrub::RunOrder;
use cairn_base::{Error, Result};
use maud::{Markup, html};

use super::screen::{self, Parts, Screen};
use super::{admit, cluster_fsck, cluster_scrub};
use crate::failure::Failure;
use crate::fields;
use crate::inner::{For, Inner};
use crate::insight::scrubs::{DamagedObject, ScrubState, Scrubs};
use crate::limits;
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::words;

const DAMAGED: [Column; 3] =
    [column("Object", "name"), column("Bytes", "number"), column("Why", "words")];

fn scrubs(inner: &Inner) -> Result<&Arc<dyn Scrubs>> {
    let found = inner.insight.scrubs.as_ref();
    found
        .ok_or_else(|| Error::Invalid("this process keeps no blocks: nodes scrub their own".into()))
}

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await;
    Ok(screen::page(of, Screen::Scrub, &parts, &html! {}))
}

/// Answers `POST /store/scrub`.
pub async fn order(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let form = of.asked.form()?;
    let order = form.get("order");
    of.asked.witness.note(|facts| facts.resource = Some(format!("scrub {order:?}")));
    let (scrubs, nodes) = (scrubs(of.inner), &of.inner.insight.nodes);
    match (order, scrubs, nodes) {
        ("begin", Err(_), Some(nodes)) => {
            cluster_scrub::order(of.inner, nodes, RunOrder::Begin).await?;
        }
        ("stop", Err(_), Some(nodes)) => {
            cluster_scrub::order(of.inner, nodes, RunOrder::Stop).await?;
        }
        ("check", Err(_), Some(nodes)) => {
            cluster_fsck::order(nodes, RunOrder::Begin, &of.login.name).await?;
        }
        ("stop-check", Err(_), Some(nodes)) => {
            cluster_fsck::order(nodes, RunOrder::Stop, &of.login.name).await?;
        }
        ("list", Err(_), Some(nodes)) => of.inner.lookup.begin(nodes, of.inner.fs().clock()),
        ("begin", scrubs, _) => scrubs?.begin(),
        ("stop", scrubs, _) => scrubs?.stop(),
        _ => {
            let text = "order: use begin or stop; of a cluster also list, check or stop-check";
            return Err(Error::Invalid(text.into()).into());
        }
    }
    Ok(reply::see_other(Screen::Scrub.place()))
}

pub async fn parts(inner: &Inner) -> Parts {
    match scrubs(inner) {
        Ok(scrubs) => {
            let state = scrubs.state();
            vec![
                ("state", running(&state)),
                ("order", form(state.running.is_some())),
                ("last", last(&state)),
            ]
        }
        Err(_) if inner.insight.nodes.is_some() => cluster_scrub::parts(inner).await,
        Err(_) => vec![(
            "state",
            html! {
                p {
                    "Each chunkserver scrubs its own blocks (" code { "--scrub-days" } ") and replaces those "
                    "that are damaged by what other nodes have. " a href=(Screen::Cluster.place()) { "Cluster" }
                    " shows how many each has found and replaced."
                }
            },
        )],
    }
}

fn form(is_running: bool) -> Markup {
    html! {
        form method="post" action=(Screen::Scrub.place()) class="line" {
            @if is_running {
                (fields::hidden(&[("order", "stop")]))
                button type="submit" { "Stop the scrub" }
            } @else {
                (fields::hidden(&[("order", "begin")]))
                button type="submit" class="primary" { "Scrub now" }
            }
        }
    }
}

fn running(state: &ScrubState) -> Markup {
    let ScrubState { every_days, rate, .. } = state;
    html! {
        @match &state.running {
            Some(run) => {
                p class="state" role="status" { "A scrub runs." }
                progress max=(run.total_blocks.max(1)) value=(run.blocks) aria-label="Progress of the scrub" {}
                p {
                    (words::count(run.blocks)) " of " (words::counted(run.total_blocks, "block")) ", "
                    (words::size(run.bytes)) " read, "
                    (words::counted(run.damaged_blocks, "damaged block")) ". It began at "
                    (words::time(run.began)) " (UTC)."
                }
            }
            None => p class="state" role="status" { "No scrub runs." },
        }
        p class="hint" {
            "A scrub reads and verifies every block, at most " (words::size(*rate)) " a second, and rests "
            "in between, so that requests go on. "
            @if *every_days > 0 { "One begins on its own every " (words::counted(u64::from(*every_days), "day")) "." }
            @else { "None begins on its own (" code { "--scrub-days 0" } ")." }
        }
    }
}

fn last(state: &ScrubState) -> Markup {
    let Some(end) = &state.last else {
        return html! {
            @if let Some(noted) = state.noted {
                p class="hint" { "The last one ended before this process began, at " (words::time(noted)) " (UTC)." }
            }
        };
    };
    let rows = html! {
        @for DamagedObject { object, start, end, why } in end.damaged.iter().take(limits::SHOWN) {
            tr {
                td class="name" { (object) }
                td class="number" { (words::count(*start)) " to " (words::count(*end)) }
                td class="words" { (why) }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="last" {
            h2 id="last" { "The last scrub" }
            p {
                @if end.is_stopped { "It was stopped at " } @else { "It ended at " }
                (words::time(end.ended)) " (UTC): " (words::counted(end.blocks, "block")) ", "
                (words::size(end.bytes)) " read, " (words::counted(end.damaged_blocks, "damaged block")) "."
            }
            @if let Some(failure) = &end.failure { p class="error" { (failure) } }
            @if !end.damaged.is_empty() {
                (sheet::scrolling("Damaged objects", &DAMAGED, &rows))
                @if end.damaged.len() > limits::SHOWN {
                    p class="hint" {
                        "The first " (words::count(limits::SHOWN as u64)) " of "
                        (words::count(end.damaged.len() as u64)) "; the log has all."
                    }
                }
                p { "Reads of these bytes fail. Restore the objects from a backup, or write them again." }
            } @else if end.damaged_blocks > 0 && end.failure.is_none() {
                p class="hint" { "No object needs the damaged blocks." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::scrubs::ScrubEnd;

    #[test]
    fn damaged_objects_are_listed_with_what_to_do() {
        let object = |number| DamagedObject {
            object: format!("photos/<{number}>.jpg"),
            start: 0,
            end: 4096,
            why: "checksum".to_owned(),
        };
        let damaged: Vec<DamagedObject> = (0..300).map(object).collect();
        let end = ScrubEnd { blocks: 10, damaged_blocks: 2, damaged, ..ScrubEnd::default() };
        let state = ScrubState { last: Some(end), ..ScrubState::default() };
        let text = last(&state).into_string();
        assert!(text.contains("photos/&lt;0&gt;.jpg") && text.contains("0 to 4,096"), "{text}");
        assert!(text.contains("The first 200 of 300") && text.contains("from a backup"));
    }
}
