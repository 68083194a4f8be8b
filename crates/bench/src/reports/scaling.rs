//! An S3 gateway, and two to five of them. Each may use only so little of a CPU that nothing else
//! is busy. Then five can do five times as much as one, if they do not wait for each other.

use clap::Parser as _;
use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{LoadRequests, Paths, make_bucket, plan, put};
use super::lab::{Cluster, Gateway, Lab, Quota};
use super::script::Script;
use super::tables::{axis, by_target, matrix, megabytes, rate, section};
use crate::closed_loop::noise;
use crate::error::{Error, Result};
use crate::load;
use crate::report::Table;
use crate::report::markdown::number;
use crate::report::{Cell, Finding, Report, Section};
use crate::s3;
use crate::session::Session;
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "S3 gateways, one to five",
    about: "The report: an S3 gateway from 1 to 5 instances, multipart PUT and ranged GET of 10 GiB \
            in parts of 64 MiB by 1 to 32 threads, PUT of 1 MiB and HEAD. Here: the same with \
            smaller objects; each gateway has a CPU quota, so that what they share is not busy.",
    kind: "s3",
    needs: |args| {
        let sizes = &args.sizes;
        let uploads = (sizes.gateways * (sizes.threads.len() + 1) * args.rounds) as u64;
        // A gateway with its quota takes 60 MB/s at most.
        let puts = (60_000_000.0 * args.seconds.as_secs_f64() * 1.5) as u64
            * (sizes.gateways * (sizes.gateways + 1) / 2 * args.rounds) as u64;
        (2 << 30) + uploads * sizes.object + (puts as f64 * (sizes.share / 4.0).min(4.0)) as u64
    },
    run,
    sections,
};

const CAIRN: &str = "Cairn";
/// Requests at the same time at each gateway, in loads that are not in parts.
const CONNECTIONS: &str = "4";
/// Objects that are looked up.
const OBJECTS: &str = "32";
/// Rounds of load that warm a gateway up, without its quota.
const WARM_UPS: usize = 2;

/// The command line of `bench s3`.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: s3::S3Args,
}

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    session.say("starting a cluster with gateways");
    let sizes = &lab.args.sizes;
    let cluster = Cluster::start(lab, 3, 1, None)?;
    let gateways: Result<Vec<Gateway>> =
        (0..sizes.gateways).map(|_| cluster.gateway(lab, &[])).collect();
    let gateways = gateways?;
    let origins: Vec<String> = gateways.iter().map(|gateway| gateway.s3.origin()).collect();
    session.target(CAIRN, origins.join(","));
    let quotas: Result<Vec<Quota>> = (0..)
        .zip(&gateways)
        .map(|(number, gateway)| Quota::new(&format!("gateway-{number}"), &[gateway.process.id()]))
        .collect();
    let quotas = match quotas {
        Ok(quotas) => quotas,
        Err(error) => {
            session.absent("quotas", error);
            Vec::new()
        }
    };
    session.say("warming gateways up");
    warm_up(lab, &gateways)?;
    let (part, object) = (sizes.part.to_string(), sizes.object.to_string());
    let lists = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let threads = lists(&sizes.threads);
    let loads = [
        vec!["--ops", "multipart,ranged", "--object", &object, "--parts", &part, "-c", &threads],
        vec!["--ops", "head,put", "--sizes", "1m", "-c", CONNECTIONS, "--objects", OBJECTS],
    ];
    for options in loads {
        if session.is_over() {
            break;
        }
        let args = command(lab, &gateways, &origins, &options)?;
        let prepared = s3::PreparedBench::new(&args)?;
        prepared.begin()?;
        quotas.iter().try_for_each(|quota| quota.limit(Some(sizes.share)))?;
        // The store is thrown away: failed removals do not matter.
        let _ = prepared.measure(session);
        quotas.iter().try_for_each(|quota| quota.limit(None))?;
    }
    let share = quotas.iter().map(Quota::throttled).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    if share.1 > 0 {
        let what =
            "periods of 100 ms with a quota in which gateways were throttled, percent".to_owned();
        let value = Some(100.0 * share.0 as f64 / share.1 as f64);
        session.found(Finding { target: CAIRN.to_owned(), what, value });
    }
    Ok(())
}

/// Lets each gateway answer as fast as it can, so that its memory and its code are warm. Otherwise
/// its first requests would use up its quota for many seconds.
fn warm_up(lab: &Lab, gateways: &[Gateway]) -> Result<()> {
    let targets: Vec<_> = gateways.iter().map(|gateway| gateway.http.clone()).collect();
    let first = targets.first().ok_or_else(|| Error::failed("no gateway runs"))?;
    make_bucket(lab, first)?;
    let path = put(lab, first, "warm", &noise(1 << 20))?;
    for _ in 0..WARM_UPS {
        for method in [Method::HEAD, Method::GET] {
            let work = LoadRequests::new(first, method, Paths::Same(path.clone()))?;
            let sample = load::run(&plan(lab, &targets, work, targets.len() * 4, &[]))?;
            if let Some(why) = sample.broken {
                return Err(Error::failed(why));
            }
        }
    }
    Ok(())
}

fn command(
    lab: &Lab,
    gateways: &[Gateway],
    origins: &[String],
    options: &[&str],
) -> Result<s3::S3Args> {
    let (key, secret) = lab.credentials();
    let duration = format!("{}ms", lab.args.seconds.as_millis());
    let (rounds, half) = (lab.args.rounds.to_string(), lab.args.seconds.as_millis() / 2);
    let (warm_up, pids) = (format!("{half}ms"), gateways.iter().map(|one| one.process.id()));
    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
    let mut line = vec!["s3", "--scale", "--name", CAIRN, "--key", &key, "--secret", &secret];
    line.extend(["--duration", &duration, "--warm-up", &warm_up, "--rounds", &rounds]);
    line.extend(["--timeout", "60s"]);
    pids.iter().for_each(|pid| line.extend(["--pid", pid]));
    line.extend(options);
    line.extend(origins.iter().map(String::as_str));
    let parsed = Line::try_parse_from(line).map_err(|error| Error::usage(error.to_string()))?;
    Ok(parsed.args)
}

fn sections(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let ReportsArgs { sizes, .. } = args;
    let mut found = Vec::new();
    for (start, title) in [
        ("multipart PUT", "multipart PUT"),
        ("ranged GET", "ranged GET"),
        ("PUT ", "PUT of 1 MiB"),
        ("HEAD ", "HEAD"),
    ] {
        let loads: Vec<&str> =
            report.loads().into_iter().filter(|what| what.starts_with(start)).collect();
        let is_rate = start == "HEAD ";
        let mut rows = Vec::new();
        let mut header = Vec::new();
        for what in &loads {
            let each = what.rsplit("c=").next().and_then(|rest| rest.split(' ').next());
            let each = each.unwrap_or_default();
            let show = if is_rate { rate } else { megabytes };
            let mut table = matrix(report, what, "gateways", show);
            table.rows.truncate(1);
            table.rows.iter_mut().for_each(|row| row[0] = format!("{each} threads each"));
            rows.append(&mut table.rows);
            rows.push(linear(report, what));
            header = table.header;
        }
        let size = match loads.first() {
            Some(_) if start.contains(' ') && start != "PUT " && start != "HEAD " => {
                let (object, part) = (human_size(sizes.object), human_size(sizes.part));
                format!("{title} of {object}, {part} each: MB/s")
            }
            _ if is_rate => format!("{title}: replies a second (p99)"),
            _ => format!("{title}: MB/s"),
        };
        if !rows.is_empty() {
            found.push(section(&size, Table { header, rows }, ""));
        }
    }
    let quota = match report.absent.first() {
        Some(named) => format!("Without quotas ({}): gateways share the CPUs.", named.target),
        None => format!("Each gateway has {} % of a CPU.", number(sizes.share)),
    };
    if let Some(last) = found.last_mut() {
        last.note = quota;
    }
    found
}

/// Returns the throughput of each number of gateways, as a share of that number times one.
fn linear(report: &Report, what: &str) -> Vec<String> {
    let mut row = vec!["of linear".to_owned()];
    let cells = by_target(report, what).into_iter().next().map_or(Vec::new(), |(_, cells)| cells);
    let one = cells.first().map(|cell| cell.rate.median / cell.key.axis.value);
    row.extend(axis(report, what).iter().map(|value| {
        let cell: Option<&&Cell> = cells.iter().find(|cell| cell.key.axis.value == *value);
        match cell.zip(one) {
            Some((cell, one)) if one > 0.0 => format!("{:.2}", cell.rate.median / one / value),
            _ => String::new(),
        }
    }));
    row
}
