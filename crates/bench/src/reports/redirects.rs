//! Look-ups that are answered with a redirect, at a rate. The report found one front process that
//! used all of a CPU and capped look-ups at 5,000 a second, while a hundred workers were idle.

use std::time::Duration;

use super::arguments::ReportsArgs;
use super::ask::{Asked, make_bucket, plan, put};
use super::lab::{Cluster, Lab, Lighttpd, Nginx, Threads, wait};
use super::script::{Script, peer};
use super::tables::{absent, by_target, section};
use crate::client::Target;
use crate::closed::noise;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Plan};
use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Axis, Finding, Key, Report, Section};
use crate::session::Session;

pub const SCRIPT: Script = Script {
    title: "look-ups answered with a redirect, at a rate",
    about: "The report: elliptics behind lighttpd, where one front process at 100 % of a CPU capped \
            redirects at 5,000 a second while a hundred workers were idle. Here: an open loop \
            with a ramp; a Cairn gateway that answers ?redirect with a link to a chunkserver (it \
            looks the object up and encrypts the link), beside fixed answers of nginx and \
            lighttpd.",
    kind: "rate",
    needs: |args| (1 << 30) + 4 * args.sizes.size,
    run,
    sections,
};

const CAIRN: &str = "Cairn gateway";
const NGINX: &str = "nginx";
const ONE: &str = "nginx, one worker";
const LIGHTTPD: &str = "lighttpd";
const CONNECTIONS: usize = 64;
const WHAT: &str = "redirects at a rate";
/// Of findings; the rate stands between it and what was found.
const BUSIEST: &str = "cores of the busiest thread at ";
const WORKING: &str = "threads that work at ";
/// A percentile that a rate must keep, and how.
const GOAL: (f64, Duration) = (99.0, Duration::from_millis(20));
/// A target that answers less than this share of what was planned is asked for no more.
const LOST: f64 = 0.5;
/// The share of requests that may be missing at a rate that was answered.
const MISSING: f64 = 0.01;

struct Front {
    name: &'static str,
    target: Target,
    path: String,
    pids: Vec<u32>,
}

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    session.say("starting a cluster");
    let cluster = Cluster::start(lab, 3, 3, None)?;
    let gateway = cluster.gateway(lab, &[])?;
    make_bucket(lab, &gateway.http)?;
    let size = lab.args.sizes.size.max(MIN_BYTES);
    let path = put(lab, &gateway.http, "object", &noise(size as usize))?;
    let nginx = peer(session, NGINX, || Nginx::start(lab, "auto"));
    let one = peer(session, ONE, || Nginx::start(lab, "1"));
    let lighttpd = peer(session, LIGHTTPD, || Lighttpd::start(lab));
    let mut fronts = vec![Front {
        name: CAIRN,
        target: gateway.http.clone(),
        path: format!("{path}?redirect"),
        pids: vec![gateway.process.id()],
    }];
    let fixed = |name, target: &Target, pid| Front {
        name,
        target: target.clone(),
        path: "/redirect".to_owned(),
        pids: vec![pid],
    };
    fronts.extend(nginx.iter().map(|it| fixed(NGINX, &it.plain, it.process.id())));
    fronts.extend(one.iter().map(|it| fixed(ONE, &it.plain, it.process.id())));
    fronts.extend(lighttpd.iter().map(|it| fixed(LIGHTTPD, &it.plain, it.process.id())));
    for front in &fronts {
        front.wait(lab)?;
        session.target(front.name, &front.target);
    }
    for _ in 0..lab.args.rounds {
        ramp(lab, session, &fronts)?;
    }
    Ok(())
}

/// An object that has blocks: others are sent by the gateway itself.
const MIN_BYTES: u64 = 32 << 10;

impl Front {
    /// Waits until it redirects: a gateway sends itself what it could redirect, as long as it has
    /// not heard of a chunkserver's door.
    fn wait(&self, lab: &Lab) -> Result<()> {
        let patience = Duration::from_secs(10);
        wait(&format!("{} redirects", self.name), || {
            let request = load::Work::request(&Asked::get(&self.target, &self.path)?, 0, 0);
            let request = request
                .ok_or_else(|| Error::failed("the path of the redirect cannot be requested"))?;
            let reply = load::ask(&self.target, &lab.connector, patience, request, 0)?;
            Ok(reply.head.status.is_redirection().then_some(()))
        })
    }

    fn plan(&self, lab: &Lab, rate: f64) -> Result<Plan> {
        let work = Asked::get(&self.target, &self.path)?;
        let all = std::slice::from_ref(&self.target);
        let plan = plan(lab, all, work, CONNECTIONS, &self.pids);
        Ok(Plan { pace: Pace::Open { rate, duration: lab.args.seconds }, ..plan })
    }
}

fn ramp(lab: &Lab, session: &mut Session, fronts: &[Front]) -> Result<()> {
    let mut rates = lab.args.sizes.rates.clone();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    session.expect((rates.len() * fronts.len()) as u64);
    let mut lost: Vec<&str> = Vec::new();
    for rate in rates {
        for front in fronts {
            if lost.contains(&front.name) {
                continue;
            }
            let axis = Axis { name: "rate".to_owned(), value: rate };
            let key = Key { target: front.name.to_owned(), what: WHAT.to_owned(), axis };
            let plan = front.plan(lab, rate)?;
            let mut busy = None;
            let load = &mut || {
                let mark = Threads::mark(&front.pids);
                let sample = load::run(&plan);
                busy = mark.since();
                sample
            };
            if !session.measure(key.clone(), load) {
                return Ok(());
            }
            if let Some(busy) = busy {
                let target = || front.name.to_owned();
                let what = format!("{BUSIEST}{rate} a second: {}", busy.name);
                session.found(Finding { target: target(), what, value: Some(busy.cores) });
                let what = format!("{WORKING}{rate} a second, of {}", busy.threads);
                let value = Some(busy.working as f64);
                session.found(Finding { target: target(), what, value });
            }
            if session.latest(&key).is_some_and(|sample| sample.rate() < rate * LOST) {
                lost.push(front.name);
            }
        }
    }
    Ok(())
}

fn sections(_: &ReportsArgs, report: &Report) -> Vec<Section> {
    let mut rows = Vec::new();
    let mut highest = Vec::new();
    for (target, cells) in by_target(report, WHAT) {
        let mut best: Option<f64> = None;
        for cell in cells {
            let (rate, times) = (cell.key.axis.value, &cell.latency);
            let answered = cell.rate.median >= rate * (1.0 - MISSING) && cell.failed() == 0;
            if answered && times.p99_us <= GOAL.1.as_secs_f64() * 1e6 {
                best = Some(rate.max(best.unwrap_or(0.0)));
            }
            let (name, cores) = busiest(report, target, rate);
            rows.push(vec![
                target.to_owned(),
                number(rate),
                number(cell.rate.median),
                time(times.p50_us),
                time(times.p99_us),
                (cell.failed() + cell.unsent).to_string(),
                cell.server_cores.map_or_else(String::new, |cores| format!("{cores:.2}")),
                cores.map_or_else(String::new, |cores| format!("{cores:.2}")),
                name,
                working(report, target, rate),
                format!("{:.2}", cell.client_cores),
            ]);
        }
        let shown = best.map_or("none of them".to_owned(), number);
        highest.push(vec![target.to_owned(), shown]);
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let header = [
        "",
        "asked a second",
        "answered",
        "p50",
        "p99",
        "failed",
        "its CPUs",
        "busiest thread",
        "name",
        "threads that work",
        "client CPUs",
    ];
    let mut table = Table::new(&header, rows);
    absent(report, &mut table, |_| true);
    let goal = "p99 of at most 20 ms, 99 % answered";
    let mut best = Table::new(&["", goal], highest);
    absent(report, &mut best, |_| true);
    let note = "Times count from when a request was due. CPUs are cores in use; a thread that uses \
                1.00 is the limit, whatever else is idle.";
    vec![
        section("Redirects over the rate", table, note),
        section("The highest rate that was met", best, "Of those asked for."),
    ]
}

/// Of the latest round.
fn latest<'a>(report: &'a Report, target: &str, start: &str) -> Option<(&'a str, f64)> {
    let of = |finding: &&Finding| finding.target == target && finding.what.starts_with(start);
    let finding = report.findings.iter().rfind(of)?;
    Some((finding.what.get(start.len()..)?, finding.value?))
}

fn busiest(report: &Report, target: &str, rate: f64) -> (String, Option<f64>) {
    match latest(report, target, &format!("{BUSIEST}{rate} a second: ")) {
        Some((name, cores)) => (name.to_owned(), Some(cores)),
        None => (String::new(), None),
    }
}

fn working(report: &Report, target: &str, rate: f64) -> String {
    let found = latest(report, target, &format!("{WORKING}{rate} a second, of "));
    found.map_or_else(String::new, |(all, count)| format!("{count} of {all}"))
}
