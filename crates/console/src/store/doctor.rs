//! Findings of `cairn doctor` about this process and this machine: what slows the store, and what
//! to do.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Result;
use cairn_doctor::{Finding, Pair, Report, findings};
use maud::{Markup, html};

use super::screen::{self, Parts, Screen};
use super::{admit, say};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::page::document;
use crate::reply::Reply;

/// Interval at which the page is made anew while a browser shows it.
pub const PERIOD: Duration = Duration::from_secs(10);
/// Least time that findings cover.
const LEAST: Duration = Duration::from_secs(5);

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    let below = html! {
        p class="hint" {
            "Findings are of this process and this machine, and costs are estimates. Of several servers, of "
            "mounts, and of a time you choose: " code { "cairn doctor" } " (" (document("doctor.md")) ")."
        }
    };
    Ok(screen::page(of, Screen::Doctor, &parts, &below))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let (first, last) = inner.looks.samples.pair(&inner.looks.metrics).await?;
    let pair = Pair { before: &first, after: &last };
    let shown = if last.at.saturating_sub(first.at) >= LEAST {
        report(&findings::report(&pair))
    } else {
        html! {
            p { "Looking. The first findings are here in about 10 seconds." }
            p class="hint" { "Without scripts, load the page again then." }
        }
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
