//! A store behind an HTTP service and a TLS gateway. The report found throughput that collapsed at
//! 5 clients. A CPU quota throttled the component between the store and its database, and each read
//! made two metadata calls.

use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{self, LoadRequests, Paths, make_bucket, metric, plan, put};
use super::lab::{Cluster, Gateway, Lab, Nginx, Postgres, Process, Quota, Server};
use super::script::{Script, peer};
use super::tables::{absent, column, find, grid, megabytes, quantiles, rate, ratio, section};
use crate::client::Target;
use crate::closed_loop::noise;
use crate::error::{Error, Result};
use crate::load;
use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Axis, Cell, Finding, Key, Report, Section};
use crate::session::{Case, Session};
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "a store behind HTTP and TLS gateways",
    about: "The report: a GFS-like store behind an HTTP service and a TLS gateway; throughput fell \
            off a cliff at 5 clients because what was before the database was throttled by its CPU \
            quota, and each read cost two metadata calls. Here: each layer alone, the same object \
            from each; connections kept or not, with TLS or not; PostgreSQL with and without a CPU \
            quota; metadata calls of each read.",
    kind: "http",
    needs: |args| (2 << 30) + 800 * args.sizes.size,
    run,
    sections,
};

const NGINX: &str = "nginx alone";
const SERVER: &str = "cairn server";
const UNCACHED: &str = "gateway, no cache of blocks";
const CACHED: &str = "gateway";
const TLS: &str = "gateway with TLS";
const FREE: &str = "without a quota";
/// Requests that a gateway answers without metadata and blocks.
const HEALTH: &str = "GET /healthz";
const READS: &str = "GET through a gateway";
const WRITES: &str = "PUT of 4 KiB through a gateway";
/// Clients of a comparison of connections.
const CLIENTS: usize = 10;
/// Objects whose metadata calls are counted.
const OBJECTS: u64 = 100;
const CALLS: &str = "metadata calls a read, ";

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    let body = noise(lab.args.sizes.size as usize);
    let nginx = peer(session, NGINX, || {
        let nginx = Nginx::start(lab, "auto")?;
        nginx.put("object", &body)?;
        Ok(nginx)
    });
    session.say("starting a server and a cluster");
    let server = Server::start(lab, &[])?;
    make_bucket(lab, &server.http)?;
    let path = put(lab, &server.http, "object", &body)?;
    let postgres = peer(session, "PostgreSQL", || Postgres::start(lab));
    let meta = postgres.as_ref().map(|postgres| postgres.url.as_str());
    let cluster = Cluster::start(lab, 3, 3, meta)?;
    let uncached = cluster.gateway(lab, &["--cache-mib", "0"])?;
    let cached = cluster.gateway(lab, &[])?;
    make_bucket(lab, &cached.http)?;
    put(lab, &cached.http, "object", &body)?;

    let below = cluster.pids();
    let with = |process: &Process| [&below[..], &[process.id()]].concat();
    let mut layers = Vec::new();
    if let Some(nginx) = &nginx {
        layers.push(Layer::new(NGINX, &nginx.plain, "/object", vec![nginx.process.id()]));
    }
    layers.push(Layer::new(SERVER, &server.http, &path, vec![server.process.id()]));
    layers.push(Layer::new(UNCACHED, &uncached.http, &path, with(&uncached.process)));
    layers.push(Layer::new(CACHED, &cached.http, &path, with(&cached.process)));
    let health = Layer::new(CACHED, &cached.http, "/healthz", vec![cached.process.id()]);
    layers.iter().for_each(|layer| session.target(layer.name, &layer.target));
    let what = reads(lab.args);
    let mut cases =
        layers.iter().map(|layer| layer.cases(lab, &what)).collect::<Result<Vec<_>>>()?;
    cases.push(health.cases(lab, HEALTH)?);
    session.run(cases.into_iter().flatten().collect(), lab.args.rounds);
    drop(server);
    drop(uncached);
    connections(lab, session, &cluster, &cached, &path, nginx.as_ref())?;
    let throttled = postgres.as_ref().map_or(&cluster.master, |postgres| &postgres.process);
    quota(lab, session, &cached, &path, throttled)?;
    calls(lab, session, &cluster, &cached)
}

/// One layer of the stack, as its clients see it.
struct Layer<'a> {
    name: &'a str,
    target: Target,
    path: String,
    pids: Vec<u32>,
}

impl<'a> Layer<'a> {
    fn new(name: &'a str, target: &Target, path: &str, pids: Vec<u32>) -> Layer<'a> {
        Layer { name, target: target.clone(), path: path.to_owned(), pids }
    }

    fn cases(&self, lab: &Lab, what: &str) -> Result<Vec<Case<'static>>> {
        let case = |clients: &usize| {
            let work = LoadRequests::get(&self.target, &self.path)?;
            let plan = plan(lab, std::slice::from_ref(&self.target), work, *clients, &self.pids);
            let key = key(self.name, what, *clients);
            Ok(Case { key, run: Box::new(move || load::run(&plan)) })
        };
        lab.args.sizes.clients.iter().map(case).collect()
    }
}

fn reads(args: &ReportsArgs) -> String {
    format!("GET {}", human_size(args.sizes.size))
}

fn key(target: &str, what: &str, clients: usize) -> Key {
    let axis = Axis { name: "concurrency".to_owned(), value: clients as f64 };
    Key { target: target.to_owned(), what: what.to_owned(), axis }
}

/// Use of connections, and whether they are encrypted.
const MANNERS: [(&str, bool, bool); 4] = [
    ("connections kept", true, false),
    ("a connection each", false, false),
    ("connections kept, TLS", true, true),
    ("a TLS handshake each", false, true),
];

fn connections(
    lab: &Lab,
    session: &mut Session,
    cluster: &Cluster,
    cached: &Gateway,
    path: &str,
    nginx: Option<&Nginx>,
) -> Result<()> {
    if session.is_over() {
        return Ok(());
    }
    let tls = lab.directory("tls")?;
    let (certificate, private) = super::lab::certify(&tls)?;
    let (certificate, private) = (certificate.to_string_lossy(), private.to_string_lossy());
    let options = ["--tls-cert", &*certificate, "--tls-key", &*private];
    let with_tls = cluster.gateway(lab, &options)?;
    session.target(TLS, &with_tls.http);
    let mut cases = Vec::new();
    for (what, keep_alive, is_tls) in MANNERS {
        let gateway = if is_tls { &with_tls.http } else { &cached.http };
        let peer = nginx.map(|nginx| if is_tls { &nginx.tls } else { &nginx.plain });
        let both = [(NGINX, peer, "/object"), (CACHED, Some(gateway), path)];
        for (name, target, path) in both {
            let Some(target) = target else { continue };
            let mut work = LoadRequests::get(target, path)?;
            if !keep_alive {
                work = work.closing();
            }
            let mut plan = plan(lab, std::slice::from_ref(target), work, CLIENTS, &[]);
            plan.keep_alive = keep_alive;
            let key = key(name, &format!("{}, {what}", reads(lab.args)), CLIENTS);
            cases.push(Case { key, run: Box::new(move || load::run(&plan)) });
        }
    }
    session.run(cases, lab.args.rounds);
    Ok(())
}

fn limited(args: &ReportsArgs) -> String {
    format!("with {} % of a CPU", number(args.sizes.database_quota))
}

/// Measures reads, and writes, which need the database, while the database may use all or little of
/// a CPU.
fn quota(
    lab: &Lab,
    session: &mut Session,
    gateway: &Gateway,
    path: &str,
    throttled: &Process,
) -> Result<()> {
    if session.is_over() {
        return Ok(());
    }
    let made = Quota::new("database", &[throttled.id()]);
    let with_quota = limited(lab.args);
    let quota = match made {
        Ok(quota) => Some(quota),
        Err(error) => {
            session.absent(&with_quota, error);
            None
        }
    };
    session.target(FREE, &throttled.name);
    session.target(&with_quota, &throttled.name);
    let quota = quota.as_ref();
    let mut cases = Vec::new();
    for what in [READS, WRITES] {
        for (name, limit) in [(FREE, None), (&*with_quota, quota)] {
            if name != FREE && limit.is_none() {
                continue;
            }
            for &clients in &lab.args.sizes.clients {
                let run = move || {
                    let prefix = lab.path("put");
                    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy();
                    let prefix = format!("/storage/{}/{prefix}-", ask::BUCKET);
                    let work = match what {
                        READS => LoadRequests::get(&gateway.http, path)?,
                        _ => LoadRequests::new(&gateway.http, Method::PUT, Paths::New(prefix))?
                            .sending(lab, 4096),
                    };
                    let endpoints = std::slice::from_ref(&gateway.http);
                    let plan = plan(lab, endpoints, work, clients, &[throttled.id()]);
                    let percent = lab.args.sizes.database_quota;
                    limit.map_or(Ok(()), |quota| quota.limit(Some(percent)))?;
                    let sample = load::run(&plan);
                    limit.map_or(Ok(()), |quota| quota.limit(None))?;
                    sample
                };
                cases.push(Case { key: key(name, what, clients), run: Box::new(run) });
            }
        }
    }
    session.run(cases, lab.args.rounds);
    if let Some(quota) = quota {
        let (throttled, periods) = quota.throttled();
        let what = "periods of 100 ms with a quota in which it was throttled, percent".to_owned();
        let value = (periods > 0).then(|| 100.0 * throttled as f64 / periods as f64);
        session.found(Finding { target: with_quota, what, value });
    }
    Ok(())
}

/// Counts the calls to the master of a gateway that has just started, for each object that it
/// reads.
fn calls(lab: &Lab, session: &mut Session, cluster: &Cluster, cached: &Gateway) -> Result<()> {
    if session.is_over() {
        return Ok(());
    }
    session.say("counting metadata calls");
    let body = noise(lab.args.sizes.size as usize);
    let paths: Result<Vec<String>> = (0..OBJECTS)
        .map(|number| put(lab, &cached.http, &format!("many/{number}"), &body))
        .collect();
    let paths = paths?;
    let fresh = cluster.gateway(lab, &[])?;
    for (what, times) in [("first read of each object", 1), ("the same again, 100 times each", 100)]
    {
        let count = || metric(lab, &fresh.http, "cairn_session_calls_total");
        let work = LoadRequests::new(&fresh.http, Method::GET, Paths::Each(paths.clone(), times))?;
        let mut plan = plan(lab, std::slice::from_ref(&fresh.http), work, 1, &[]);
        plan.pace = load::Pace::Closed { warm_up: std::time::Duration::ZERO, duration: None };
        let before = count()?;
        let sample = load::run(&plan)?;
        if let Some(why) = sample.broken {
            return Err(Error::failed(why));
        }
        let calls = (count()? - before) / sample.tally.replies().max(1) as f64;
        let what = format!("{CALLS}{what}");
        session.found(Finding { target: CACHED.to_owned(), what, value: Some(calls) });
    }
    Ok(())
}

fn sections(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let what = reads(args);
    let is_peer = |name: &str| name == NGINX;
    let mut layers = with_health(report, grid(report, &what, "clients", rate), rate);
    let last = |cells: &[&Cell]| cells.last().copied().cloned();
    column(report, &what, &mut layers, "MB/s at most clients", |cells| {
        last(cells).map_or_else(String::new, |cell| megabytes(&cell))
    });
    column(report, &what, &mut layers, "its CPUs", |cells| {
        let cores = last(cells).and_then(|cell| cell.server_cores);
        cores.map_or_else(String::new, |cores| format!("{cores:.2}"))
    });
    absent(report, &mut layers, is_peer);
    let title = format!("{what} over clients, layer by layer: replies a second (p99)");
    let note = format!("{HEALTH} has no metadata and no blocks: what HTTP alone costs a gateway.");
    let mut found = vec![section(&title, layers, &note)];
    let times = with_health(report, grid(report, &what, "clients", quantiles), quantiles);
    let title = format!("{what} over clients, layer by layer: p50 / p90");
    found.push(section(&title, times, ""));
    let mut ways = manners(args, report);
    absent(report, &mut ways, is_peer);
    found.push(section(
        &format!("{what}, {CLIENTS} clients: replies a second (p99)"),
        ways,
        "Each TLS handshake is a full one.",
    ));
    let mut database = Table { header: Vec::new(), rows: Vec::new() };
    for load in [READS, WRITES] {
        let mut table = grid(report, load, "clients", rate);
        table.rows.iter_mut().for_each(|row| row.insert(0, load.to_owned()));
        table.header.insert(0, String::new());
        database.header = if table.header.len() > 2 { table.header } else { database.header };
        database.rows.extend(table.rows);
    }
    absent(report, &mut database, |name| !is_peer(name));
    let of = report.targets.iter().find(|named| named.name == FREE);
    let of = of.map_or("the database", |named| named.target.as_str());
    let title = format!("{of} with and without a CPU quota: replies a second (p99)");
    let share = report.findings.iter().find(|finding| finding.what.starts_with("periods"));
    let share = share.and_then(|finding| finding.value).map_or(String::new(), |value| {
        format!(" With a quota it was throttled in {value:.0} % of all periods of 100 ms.")
    });
    let note = format!("Reads ask nobody; each write is a commit there.{share}");
    found.push(section(&title, database, &note));
    found.push(section("Metadata calls of a gateway that has just started", counted(report), ""));
    found.retain(|section| !section.table.rows.is_empty());
    found
}

/// Makes a table of layers, with a row for what a gateway answers on its own.
fn with_health(report: &Report, mut table: Table, show: impl Fn(&Cell) -> String) -> Table {
    let health = grid(report, HEALTH, "clients", show);
    table.rows.extend(health.rows.into_iter().map(|mut row| {
        if let Some(name) = row.first_mut() {
            *name = format!("{name}, {HEALTH}");
        }
        row
    }));
    table
}

fn manners(args: &ReportsArgs, report: &Report) -> Table {
    let rows = MANNERS.iter().filter_map(|(what, ..)| {
        let what_all = format!("{}, {what}", reads(args));
        let of = |target| find(report, target, &what_all, CLIENTS as f64);
        let (peer, own) = (of(NGINX), of(CACHED));
        if peer.is_none() && own.is_none() {
            return None;
        }
        let handshake = own.and_then(|cell| cell.phases.get("tls"));
        let handshake = handshake.filter(|times| times.count > CLIENTS as u64);
        Some(vec![
            (*what).to_owned(),
            peer.map_or_else(String::new, rate),
            own.map_or_else(String::new, rate),
            peer.zip(own)
                .map_or_else(String::new, |(peer, own)| ratio(own.rate.median, peer.rate.median)),
            handshake.map_or_else(String::new, |times| time(times.p50_us)),
        ])
    });
    Table::new(&["", NGINX, CACHED, "ratio", "TLS handshake, p50"], rows.collect())
}

fn counted(report: &Report) -> Table {
    let rows = report.findings.iter().filter_map(|finding| {
        let what = finding.what.strip_prefix(CALLS)?;
        Some(vec![what.to_owned(), format!("{:.2}", finding.value?)])
    });
    Table::new(&["", "calls a read"], rows.collect())
}
