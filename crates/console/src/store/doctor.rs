//! What slows the store, and what to do: the findings of `cairn doctor`, of this process and this
//! machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Result};
use cairn_doctor::collect::Kernel;
use cairn_doctor::{Finding, Metrics, Node, Pair, Report, Sample, findings};
use maud::{Markup, html};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::screen::{self, Parts, Screen};
use super::{admit, say};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::reply::Reply;

/// How often the page is made anew while somebody looks at it.
pub const PERIOD: Duration = Duration::from_secs(10);
/// A look serves for so long.
const FRESH: Duration = Duration::from_secs(8);
/// Findings are of at least so long a time.
const LEAST: Duration = Duration::from_secs(5);
/// Looks that are kept lie so far apart, and are forgotten when they are so old.
const APART: Duration = Duration::from_secs(60);
const OLDEST: Duration = Duration::from_secs(300);
/// The name of this process where the findings name servers.
const HERE: &str = "this server";

/// Looks of the last minutes, the oldest first.
pub struct Doctor {
    began: Instant,
    looks: Mutex<VecDeque<Arc<Sample>>>,
}

impl Default for Doctor {
    fn default() -> Doctor {
        Doctor { began: Instant::now(), looks: Mutex::default() }
    }
}

impl Doctor {
    /// Two looks: the oldest of the last minutes, and one of now.
    async fn pair(&self, inner: &Inner) -> Result<(Arc<Sample>, Arc<Sample>)> {
        let now = self.began.elapsed();
        let is_fresh = |look: &Arc<Sample>| now.saturating_sub(look.at) < FRESH;
        if !self.looks.lock().back().is_some_and(is_fresh) {
            let sample = Arc::new(take(inner, self.began).await?);
            keep(&mut self.looks.lock(), sample);
        }
        let looks = self.looks.lock();
        let ends = looks.front().zip(looks.back());
        let (first, last) = ends.ok_or_else(|| Error::Unavailable("no look was taken".into()))?;
        Ok((Arc::clone(first), Arc::clone(last)))
    }
}

async fn take(inner: &Inner, began: Instant) -> Result<Sample> {
    let text = inner.store.metrics.text(false).await;
    let looked = spawn_blocking(move || {
        let kernel = Kernel::with_own();
        let metrics = Ok(Metrics::parse(&text));
        Sample {
            at: began.elapsed(),
            nodes: vec![Node { url: HERE.to_owned(), metrics, clock_ahead: None }],
            processes: kernel.processes(),
            host: kernel.host(),
            cluster: None,
        }
    });
    looked.await.map_err(|error| Error::Unavailable(format!("looking at this machine: {error}")))
}

/// Keeps few looks: they are large.
fn keep(looks: &mut VecDeque<Arc<Sample>>, sample: Arc<Sample>) {
    let age = |look: &Arc<Sample>| sample.at.saturating_sub(look.at);
    // The last one is kept for good only if it is far enough from the one before.
    if let [.., before, last] = looks.make_contiguous()
        && last.at.saturating_sub(before.at) < APART
    {
        looks.pop_back();
    }
    while looks.front().is_some_and(|first| age(first) > OLDEST) {
        looks.pop_front();
    }
    looks.push_back(sample);
}

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    let below = html! {
        p class="hint" {
            "Findings are of this process and this machine, and costs are estimates. Of several servers, of "
            "mounts, and of a time you choose: " code { "cairn doctor" } " (docs/doctor.md)."
        }
    };
    Ok(screen::page(of, Screen::Doctor, &parts, &below))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let (first, last) = inner.store.doctor.pair(inner).await?;
    let pair = Pair { before: &first, after: &last };
    let shown = match last.at.saturating_sub(first.at) >= LEAST {
        true => report(&findings::report(&pair)),
        false => html! {
            p { "Looking. The first findings are here in about 10 seconds." }
            p class="hint" { "Without scripts, load the page again then." }
        },
    };
    Ok(vec![("findings", shown)])
}

fn report(report: &Report) -> Markup {
    let Report { seconds, requests, findings, limit, blind } = report;
    let time = say::span(Duration::from_secs_f64(*seconds));
    html! {
        p class="hint" { "Of the last " (time) ", with " (say::rate(*requests)) " requests." }
        @if findings.is_empty() {
            p class="state good" { "Nothing slows the store." }
        } @else {
            ol class="findings" {
                @for finding in findings { li { (one(finding)) } }
            }
        }
        section class="group" aria-labelledby="limit" {
            h2 id="limit" { "What limits the rest" }
            p { (limit.what) }
            @for what in blind { p class="hint" { "Not seen: " (what) } }
        }
    }
}

fn one(finding: &Finding) -> Markup {
    html! {
        h2 { (finding.what) }
        p class="hint" { "Costs about " (say::share(finding.cost_percent / 100.0)) " of the time or throughput." }
        ul { @for evidence in &finding.evidence { li { (evidence) } } }
        p { strong { "To do: " } (finding.remedy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_looks_are_kept_of_the_last_minutes() {
        let mut looks = VecDeque::new();
        for at in (0..=900).step_by(10) {
            let at = Duration::from_secs(at);
            keep(&mut looks, Arc::new(Sample { at, ..Sample::default() }));
            assert!(looks.len() <= 7, "{}", looks.len());
        }
        let (first, last) = (looks.front().unwrap().at, looks.back().unwrap().at);
        assert_eq!(last, Duration::from_secs(900));
        assert!(last - first >= Duration::from_secs(240) && last - first <= OLDEST);
    }
}
