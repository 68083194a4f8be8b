//! The overview: health in words, the doors and their work, and space.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_fs::Usage as BlocksUsage;
use maud::{Markup, html};

use super::plot::{self, COLOURS, Line, Plot};
use super::screen::{self, Parts, Screen};
use super::{admit, health, read_only, say};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::looks::sampler::{Moment, Rates};
use crate::reply::Reply;
use crate::sheet::{self, Column, column};
use crate::words;

/// Least value at the top of a plot of bytes.
const KIB: f64 = 1024.0;

const DOORS: [Column; 7] = [
    column("Door", "name"),
    column("Requests/s", "number"),
    column("Failed/s", "number"),
    column("In", "number"),
    column("Out", "number"),
    column("Half within", "number"),
    column("99 % within", "number"),
];

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await;
    let below = read_only::of_store(of.login.is_read_only);
    Ok(screen::page(of, Screen::Overview, &parts, &below))
}

pub async fn parts(inner: &Arc<Inner>) -> Parts {
    let looks = &inner.looks;
    let (moments, current) = looks.sampler.look();
    let usage = looks.sampler.usage(inner.fs()).await;
    let concerns = health::concerns(inner, &usage, &moments).await;
    vec![
        ("health", health::sentence(&concerns)),
        ("concerns", health::list(&concerns)),
        ("plots", plots(&moments, &current)),
        ("doors", doors(&current)),
        ("space", space(&usage)),
    ]
}

/// Returns the position of each door among all, which selects its colour.
fn colours(current: &Moment) -> BTreeMap<&'static str, usize> {
    let doors = current.doors.iter().enumerate();
    doors.map(|(at, rates)| (rates.door, at % COLOURS)).collect()
}

/// Returns the lines of one number for each door that did anything.
fn lines(moments: &[Moment], current: &Moment, of: fn(&Rates) -> Option<f64>) -> Vec<Line> {
    let now = moments.last().map_or(Duration::ZERO, |last| last.at);
    let line = |(door, colour): (&str, usize)| {
        let mut runs: Vec<Vec<(Duration, f64)>> = Vec::new();
        let mut any = 0.0;
        for moment in moments {
            let rates = moment.doors.iter().find(|rates| rates.door == door);
            let value = rates.and_then(of);
            any += rates.map_or(0.0, |rates| rates.requests);
            // The moment that began the run may be older than what is shown.
            if moment.is_first || value.is_none() || runs.is_empty() {
                runs.push(Vec::new());
            }
            if let (Some(value), Some(run)) = (value, runs.last_mut()) {
                run.push((now.saturating_sub(moment.at), value));
            }
        }
        runs.retain(|run| !run.is_empty());
        (any > 0.0).then_some(Line { colour, runs })
    };
    colours(current).into_iter().filter_map(line).collect()
}

fn plots(moments: &[Moment], current: &Moment) -> Markup {
    let plot = |title, say, least, of| {
        let (is_bytes, lines) = (least >= KIB, lines(moments, current, of));
        plot::show(&Plot { title, say, is_bytes, least, lines })
    };
    html! {
        div class="plots" {
            (plot("Requests a second", say::rate, 1.0, |rates| Some(rates.requests)))
            (plot("Bytes in and out", say::bytes_rate, KIB, |rates| {
                Some(rates.received_bytes + rates.sent_bytes)
            }))
            (plot("99 % of requests within", seconds, 1e-3, |rates| {
                rates.most.map(|most| most.as_secs_f64())
            }))
        }
    }
}

fn seconds(seconds: f64) -> String {
    say::span(Duration::from_secs_f64(seconds.max(0.0)))
}

fn doors(current: &Moment) -> Markup {
    let colours = colours(current);
    let span = |time: Option<Duration>| time.map_or("–".to_owned(), say::span);
    let rows = html! {
        @for rates in &current.doors {
            tr {
                td class="name" {
                    @let colour = colours.get(rates.door).copied().unwrap_or_default();
                    span class={ "key c" (colour) } {} (rates.door)
                }
                td class="number" { (say::rate(rates.requests)) }
                td class="number" { (say::rate(rates.failed)) }
                td class="number" { (say::bytes_rate(rates.received_bytes)) }
                td class="number" { (say::bytes_rate(rates.sent_bytes)) }
                td class="number" { (span(rates.half)) }
                td class="number" { (span(rates.most)) }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="doors" {
            h2 id="doors" { "Doors" }
            (sheet::scrolling("Doors and their work", &DOORS, &rows))
            p class="hint" { "Of the last " (say::span(current.over)) "." }
        }
    }
}

fn space(usage: &Result<BlocksUsage, String>) -> Markup {
    let Ok(usage) = usage else { return html! {} };
    let share = health::taken(usage);
    html! {
        section class="group" aria-labelledby="space" {
            h2 id="space" { "Space" }
            meter class="space" min="0" max="100" low="85" high="95" optimum="0"
                value=(format!("{:.1}", share * 100.0)) aria-label="Share of the space that is taken" {
                (say::share(share))
            }
            dl class="facts" {
                div { dt { "Taken" } dd { (say::share(share)) " of what blocks can have" } }
                div {
                    dt { "Blocks" }
                    dd { (words::size(usage.live_bytes)) " in " (words::counted(usage.blocks, "block")) }
                }
                div { dt { "To be reclaimed" } dd { (words::size(usage.dead_bytes)) } }
                div { dt { "Free" } dd { (words::size(usage.free_bytes)) } }
            }
            p class="hint" { "With all replicas. A warning comes at 85 %, and another at 95 %." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: u64, is_first: bool, requests: f64) -> Moment {
        let rates = |door, requests| Rates {
            door,
            requests,
            failed: 0.0,
            received_bytes: 0.0,
            sent_bytes: 0.0,
            half: None,
            most: None,
            time: Duration::ZERO,
            stages: Default::default(),
        };
        let doors = vec![rates("s3", requests), rates("http", 0.0)];
        Moment { at: Duration::from_secs(at), over: Duration::from_secs(2), is_first, doors }
    }

    #[test]
    fn lines_are_of_doors_that_did_something() {
        let moments = [moment(2, true, 1.0), moment(4, false, 2.0), moment(60, true, 3.0)];
        let found = lines(&moments, &moments[2], |rates| Some(rates.requests));
        let [line] = &found[..] else { panic!("http did nothing") };
        let ago = Duration::from_secs;
        assert_eq!(line.runs, [vec![(ago(58), 1.0), (ago(56), 2.0)], vec![(ago(0), 3.0)]]);
        assert!(lines(&moments, &moments[2], |rates| rates.most.map(|_| 1.0))[0].runs.is_empty());
    }

    #[test]
    fn a_line_goes_on_when_its_beginning_is_no_longer_shown() {
        let moments = [moment(402, false, 1.0), moment(404, false, 2.0), moment(500, true, 3.0)];
        let found = lines(&moments, &moments[2], |rates| Some(rates.requests));
        let ago = Duration::from_secs;
        assert_eq!(found[0].runs, [vec![(ago(98), 1.0), (ago(96), 2.0)], vec![(ago(0), 3.0)]]);
    }
}
