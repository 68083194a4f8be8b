//! Look-ups that are answered with a redirect, at a rate. The report found one front process that
//! used all of a CPU and capped look-ups at 5,000 a second, while a hundred workers were idle.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{BUCKET, LoadRequests, Paths, make_bucket, plan, put};
use super::lab::{Cluster, Lab, Lighttpd, Nginx, Threads, wait};
use super::script::{Script, peer};
use super::tables::{absent, by_target, grid, latest, quantiles, rate, section};
use crate::client::Target;
use crate::closed_loop::noise;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Plan};
use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Axis, Cell, Finding, Key, Report, Section};
use crate::session::{Case, Session};
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "look-ups answered with a redirect, at a rate",
    about: "The report: elliptics behind lighttpd, where one front process at 100 % of a CPU capped \
            redirects at 5,000 a second while a hundred workers were idle. Here: an open loop \
            with a ramp; a Cairn gateway that answers ?redirect with a link to a chunkserver (it \
            looks the object up and encrypts the link), for one key and for many, beside fixed \
            answers of nginx and lighttpd; and a closed loop of PUT and GET of small bodies \
            through the gateway.",
    kind: "rate",
    needs: |args| {
        let (_, most) = args.body_bytes();
        // Bodies are stored again and again, and overwritten blocks are freed later.
        (1 << 30) + 4 * args.sizes.size + args.sizes.keys as u64 * (3 * MIN_BYTES + 10 * most)
    },
    run,
    sections,
};

const CAIRN: &str = "Cairn gateway";
const MANY: &str = "Cairn gateway, many keys";
const NGINX: &str = "nginx";
const ONE: &str = "nginx, one worker";
const LIGHTTPD: &str = "lighttpd";
const CONNECTIONS: usize = 64;
const WHAT: &str = "redirects at a rate";
const PUTS: &str = "PUT of small bodies";
const GETS: &str = "GET of small bodies";
/// Connections used to create the objects.
const PREPARING: usize = 16;
/// Prefix of a finding's key; the rate follows.
const BUSIEST: &str = "cores of the busiest thread at ";
const WORKING: &str = "threads that work at ";
/// A percentile that a rate must keep, and its limit.
const GOAL: (f64, Duration) = (99.0, Duration::from_millis(20));
/// Share of the planned answers below which a target gets no more load.
const LOST: f64 = 0.5;
/// Share of the requests that may be missing at a rate that counts as answered.
const MISSING: f64 = 0.01;

struct Front {
    name: &'static str,
    target: Target,
    paths: Arc<Vec<String>>,
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
    session.say("making objects");
    let many = fill(lab, &gateway.http, "many", (MIN_BYTES, MIN_BYTES))?;
    let small = Arc::new(fill(lab, &gateway.http, "small", lab.args.body_bytes())?);
    let own = |name, paths: &[String]| Front {
        name,
        target: gateway.http.clone(),
        paths: Arc::new(paths.iter().map(|path| format!("{path}?redirect")).collect()),
        pids: vec![gateway.process.id()],
    };
    let mut fronts = vec![own(CAIRN, &[path]), own(MANY, &many)];
    let fixed = |name, target: &Target, pid| Front {
        name,
        target: target.clone(),
        paths: Arc::new(vec!["/redirect".to_owned()]),
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
    if session.is_over() {
        return Ok(());
    }
    let pids = [&cluster.pids()[..], &[gateway.process.id()]].concat();
    let cases = bodies(lab, &gateway.http, &pids, nginx.as_ref(), &small)?;
    session.run(cases, lab.args.rounds);
    Ok(())
}

/// Makes as many objects as there are keys, each once, of sizes within `bytes`.
fn fill(lab: &Lab, target: &Target, name: &str, bytes: (u64, u64)) -> Result<Vec<String>> {
    let path = |number: usize| format!("/storage/{BUCKET}/{name}/{number}");
    let paths: Vec<String> = (0..lab.args.sizes.keys).map(path).collect();
    let work = LoadRequests::new(target, Method::PUT, Paths::Each(paths.clone(), 1))?;
    let (least, most) = bytes;
    let work = work.sending_some(lab, least, most);
    let mut plan = plan(lab, std::slice::from_ref(target), work, PREPARING, &[]);
    plan.pace = Pace::Closed { warm_up: Duration::ZERO, duration: None };
    let sample = load::run(&plan)?;
    let wrong = sample.tally.statuses.keys().find(|status| !(200..300).contains(*status));
    let wrong = wrong.map(|status| format!("status {status}"));
    let failed = sample.broken.or(sample.tally.errors.into_keys().next()).or(wrong);
    failed.map_or(Ok(paths), |why| Err(Error::failed(format!("{name}: objects: {why}"))))
}

/// Runs a closed loop of PUT and GET of small bodies, over all keys.
fn bodies(
    lab: &Lab,
    gateway: &Target,
    pids: &[u32],
    nginx: Option<&Nginx>,
    paths: &Arc<Vec<String>>,
) -> Result<Vec<Case<'static>>> {
    let (least, most) = lab.args.body_bytes();
    let mut beside = None;
    if let Some(nginx) = nginx {
        let step = |number: usize| least + (most - least) * (number as u64 % 11) / 10;
        let all = noise(most as usize);
        for (number, path) in paths.iter().enumerate() {
            let body = all.get(..step(number) as usize).unwrap_or(&all);
            nginx.put(path.trim_start_matches('/'), body)?;
        }
        beside = Some((NGINX, &nginx.plain, GETS, vec![nginx.process.id()]));
    }
    let own = [PUTS, GETS].map(|what| (CAIRN, gateway, what, pids.to_vec()));
    let mut cases = Vec::new();
    for (name, target, what, pids) in own.into_iter().chain(beside) {
        for &clients in &lab.args.sizes.clients {
            let among = || Paths::Among(Arc::clone(paths));
            let work = match what {
                PUTS => {
                    LoadRequests::new(target, Method::PUT, among())?.sending_some(lab, least, most)
                }
                _ => LoadRequests::new(target, Method::GET, among())?,
            };
            let plan = plan(lab, std::slice::from_ref(target), work, clients, &pids);
            let axis = Axis { name: "concurrency".to_owned(), value: clients as f64 };
            let key = Key { target: name.to_owned(), what: what.to_owned(), axis };
            cases.push(Case { key, run: Box::new(move || load::run(&plan)) });
        }
    }
    Ok(cases)
}

/// Least size of an object with blocks: a gateway sends smaller ones itself.
const MIN_BYTES: u64 = 32 << 10;

impl Front {
    /// Waits until the gateway redirects: until it learns of a chunkserver's door, it sends
    /// everything itself.
    fn wait(&self, lab: &Lab) -> Result<()> {
        let patience = Duration::from_secs(10);
        wait(&format!("{} redirects", self.name), || {
            let request = load::Work::request(&self.asked()?, 0, 0);
            let request = request
                .ok_or_else(|| Error::failed("the path of the redirect cannot be requested"))?;
            let reply = load::ask(&self.target, &lab.connector, patience, request, 0)?;
            Ok(reply.head.status.is_redirection().then_some(()))
        })
    }

    fn asked(&self) -> Result<LoadRequests> {
        LoadRequests::new(&self.target, Method::GET, Paths::Among(Arc::clone(&self.paths)))
    }

    fn plan(&self, lab: &Lab, rate: f64) -> Result<Plan> {
        let work = self.asked()?;
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

fn sections(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let mut found = redirects(report);
    found.extend(small_bodies(args, report));
    found
}

fn small_bodies(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let (least, most) = args.body_bytes();
    let bodies = format!("bodies of {} to {}", human_size(least), human_size(most));
    let table = |show: fn(&Cell) -> String| {
        let mut all = Table { header: Vec::new(), rows: Vec::new() };
        for what in [PUTS, GETS] {
            let mut table = grid(report, what, "clients", show);
            let method = what.split(' ').next().unwrap_or_default();
            table.rows.iter_mut().for_each(|row| row.insert(0, method.to_owned()));
            table.header.insert(0, String::new());
            all.header = if table.header.len() > 2 { table.header } else { all.header };
            all.rows.extend(table.rows);
        }
        all
    };
    let note = format!("{} keys, one after the other. Each PUT is durable.", args.sizes.keys);
    let mut found = vec![
        section(&format!("PUT and GET, {bodies}: replies a second (p99)"), table(rate), &note),
        section(&format!("PUT and GET, {bodies}: p50 / p90"), table(quantiles), ""),
    ];
    found.retain(|section| !section.table.rows.is_empty());
    found
}

fn redirects(report: &Report) -> Vec<Section> {
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
