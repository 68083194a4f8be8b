//! Requests: those that wait now, those that were slow, and how the time of all divides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::inflight::{self, RequestSnapshot};
use cairn_base::{Result, Stage, Stages, UserId};
use cairn_doors::observe::EndedRequest;
use cairn_fs::ops::credentials::UserName;
use maud::{Markup, html};

use super::screen::{self, Parts, Screen};
use super::{admit, say};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::limits;
use crate::looks::sampler::Moment;
use crate::reply::Reply;
use crate::sheet::{self, Column, column};
use crate::words;

const FLIGHTS: [Column; 6] = [
    column("Request", "name"),
    column("Who", ""),
    column("Since", "number"),
    column("Is in", ""),
    column("For", "number"),
    column("Waits for", "words"),
];
const SLOW: [Column; 6] = [
    column("Request", "name"),
    column("Ended", "number"),
    column("Status", "number"),
    column("Took", "number"),
    column("Where", "words"),
    column("Trace", ""),
];
const STAGES: [Column; 3] =
    [column("Door", "name"), column("Time of requests", "number"), column("Where", "words")];

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    Ok(screen::page(of, Screen::Requests, &parts, &html! {}))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let mut seen = inflight::seen();
    let all = seen.len();
    seen.truncate(limits::SHOWN);
    let mut names = HashMap::new();
    for user in seen.iter().filter_map(|one| one.about.user) {
        if let Entry::Vacant(vacant) = names.entry(user) {
            let name = inner.fs().read(&Caller::system(), UserName { user }).await?;
            vacant.insert(name.unwrap_or_else(|| user.to_string()));
        }
    }
    let observer = inner.looks.metrics.observer();
    let (moments, _) = inner.looks.sampler.look();
    Ok(vec![
        ("flights", flights(&seen, all, &names)),
        ("slow", slow(&observer.recent(), observer.slow())),
        ("stages", stages(&moments)),
    ])
}

/// Returns the words for a stage.
fn say_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Send => "sending to the client",
        Stage::Receive => "receiving from the client",
        Stage::Admit => "checking credentials",
        Stage::Meta => "metadata",
        Stage::Cache => "blocks in memory",
        Stage::Write => "writing to disk",
        Stage::Read => "reading from disk",
        Stage::Peer => "other nodes",
        Stage::Sync => "making durable",
    }
}

fn flights(seen: &[RequestSnapshot], all: usize, names: &HashMap<UserId, String>) -> Markup {
    let rows = html! {
        @for RequestSnapshot { about, stage, age, stage_age, waits, .. } in seen {
            tr {
                td class="name" {
                    span class="tag" { (about.door) } " " (about.operation) " " code { (about.object) }
                }
                td {
                    @if let Some(name) = about.user.as_ref().and_then(|user| names.get(user)) { (name) " " }
                    (about.client)
                    @if let Some(process) = about.process { " process " (process) }
                }
                td class="number" { (say::span(*age)) }
                td { (stage.map_or("", say_stage)) }
                td class="number" { (say::span(*stage_age)) }
                td class="words" {
                    @for (at, (what, _)) in waits.iter().enumerate() {
                        @if at > 0 { "; " } (what)
                    }
                }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="flights" {
            h2 id="flights" { "In flight" }
            @if seen.is_empty() {
                p class="hint" { "No request waits." }
            } @else {
                (sheet::scrolling("Requests in flight", &FLIGHTS, &rows))
            }
            @if all > seen.len() {
                p class="hint" {
                    "The oldest " (words::count(seen.len() as u64)) " of " (words::count(all as u64)) "."
                }
            }
            p class="hint" {
                "Of this process. A mount's own requests: " code { "cairn inflight MOUNTPOINT" } "."
            }
        }
    }
}

/// Shows how the time of a request, or of many, divides into stages, the largest share first.
fn wheres(total: Duration, spent: impl Fn(Stage) -> Duration) -> Markup {
    let mut parts: Vec<(&str, Duration)> =
        Stage::ALL.iter().map(|stage| (say_stage(*stage), spent(*stage))).collect();
    let known: Duration = parts.iter().map(|(_, time)| *time).sum();
    parts.push(("elsewhere", total.saturating_sub(known)));
    let is_worth = |time: Duration| time.as_secs_f64() >= total.as_secs_f64() * 0.01;
    parts.retain(|(_, time)| !time.is_zero() && is_worth(*time));
    parts.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    html! {
        @for (at, (what, time)) in parts.iter().enumerate() {
            @if at > 0 { ", " }
            (what) " " (say::share(time.as_secs_f64() / total.as_secs_f64().max(1e-9)))
        }
    }
}

fn slow(recent: &[(Duration, EndedRequest)], limit: Duration) -> Markup {
    let rows = html! {
        @for (ago, EndedRequest { door, verb, status, stages }) in recent {
            tr {
                td class="name" { span class="tag" { (door) } " " (verb) }
                td class="number" { (say::span(*ago)) " ago" }
                td class="number" { (status) }
                td class="number" { (say::span(stages.total())) }
                td class="words" { (of_one(stages)) }
                td { code { (stages.trace) } }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="slow" {
            h2 id="slow" { "Slow or failed" }
            @if recent.is_empty() {
                p class="hint" { "No request took longer than " (say::span(limit)) ", and none failed." }
            } @else {
                (sheet::scrolling("Requests that were slow or failed", &SLOW, &rows))
                p class="hint" {
                    "The last " (words::count(recent.len() as u64)) " that took longer than "
                    (say::span(limit)) " or failed here (5xx). The log has each by its trace."
                }
            }
        }
    }
}

fn of_one(stages: &Stages) -> Markup {
    wheres(stages.total(), |stage| stages.spent(stage))
}

fn stages(moments: &[Moment]) -> Markup {
    let mut doors: Vec<(&str, Duration, [Duration; Stage::ALL.len()])> = Vec::new();
    for rates in moments.iter().flat_map(|moment| &moment.doors) {
        let at = doors.iter().position(|(door, ..)| *door == rates.door);
        let at = at.unwrap_or_else(|| {
            doors.push((rates.door, Duration::ZERO, Default::default()));
            doors.len() - 1
        });
        let Some((_, time, sums)) = doors.get_mut(at) else { continue };
        *time += rates.time;
        for (sum, spent) in sums.iter_mut().zip(rates.stages) {
            *sum += spent;
        }
    }
    doors.retain(|(_, time, _)| !time.is_zero());
    let rows = html! {
        @for (door, time, sums) in &doors {
            tr {
                td class="name" { (door) }
                td class="number" { (say::span(*time)) }
                td class="words" { (wheres(*time, |stage| sums.get(stage as usize).copied().unwrap_or_default())) }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="stages" {
            h2 id="stages" { "Where the time goes" }
            @if doors.is_empty() {
                p class="hint" {
                    "Nothing was measured yet: this begins when a page of the store is open."
                }
            } @else {
                (sheet::scrolling("Where the time of requests goes, by door", &STAGES, &rows))
                p class="hint" { "Of all requests in the last 5 minutes in which a page of the store was open." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_comes_first() {
        let millis = Duration::from_millis;
        let spent = |stage| match stage {
            Stage::Meta => millis(30),
            Stage::Sync => millis(50),
            Stage::Cache => millis(0),
            Stage::Send => Duration::from_micros(10),
            _ => Duration::ZERO,
        };
        let shown = wheres(millis(100), spent).into_string();
        assert_eq!(shown, "making durable 50 %, metadata 30 %, elsewhere 20 %");
        assert_eq!(wheres(Duration::ZERO, |_| Duration::ZERO).into_string(), "");
    }
}
