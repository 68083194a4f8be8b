//! Limit of the throughput if nothing is wrong.

use super::{cpu, disk};
use crate::report::Limit;
use crate::sample::{Pair, Program};

const BUSY: f64 = 0.85;
const WAITING: f64 = 0.5;
const FUSE: &str = "door=\"fuse\"";

pub fn of(pair: &Pair<'_>) -> Limit {
    if pair.servers().next().is_none() {
        return Limit { kind: "none", what: "no server could be looked at".to_owned() };
    }
    let requests: f64 = pair.servers().map(|server| server.requests()).sum();
    // One of these is the request for the metrics.
    if requests <= 2.0 * pair.after.nodes.len() as f64 {
        return Limit { kind: "none", what: "nothing was asked meanwhile".to_owned() };
    }
    let rate = requests / pair.seconds();
    let idle = pair.idle();
    if idle < 1.0 - BUSY {
        return Limit { kind: "cpu", what: of_cpu(pair, idle) };
    }
    if let Some(what) = network(pair) {
        return Limit { kind: "network", what };
    }
    let waits = pair.servers().map(|server| disk::waits(&server)).fold(0.0, f64::max);
    if waits > WAITING {
        let disk = disk::busiest(pair).unwrap_or_default();
        let what = format!("the disk: {:.0} % of the time of requests; {disk}", 100.0 * waits);
        return Limit { kind: "disk", what };
    }
    if let Some(what) = behind(pair) {
        return Limit { kind: "server", what };
    }
    let what = format!(
        "the clients: they ask for {rate:.0} requests/s and no more; {:.0} % of this machine's \
         cores do nothing",
        100.0 * idle
    );
    Limit { kind: "client", what }
}

fn of_cpu(pair: &Pair<'_>, idle: f64) -> String {
    let all = pair.seconds() * pair.after.host.cores.max(1) as f64;
    let used = |program: Program| {
        let of = pair.processes().filter(|(_, _, process)| process.program == program);
        let running = of.map(|(_, before, after)| {
            let sum = |process: &crate::Process| -> f64 {
                process.threads.values().map(|thread| thread.running.as_secs_f64()).sum()
            };
            (sum(after) - sum(before)).max(0.0)
        });
        100.0 * running.sum::<f64>() / all
    };
    let (ours, database, proxies) =
        (used(Program::Cairn), used(Program::Postgres), used(Program::Proxy));
    let others = (100.0 * (1.0 - idle) - ours - database - proxies).max(0.0);
    let mut text = format!("the CPU of this machine: Cairn uses {ours:.0} % of it");
    if database >= 1.0 {
        text += &format!(", PostgreSQL {database:.0} %");
    }
    if proxies >= 1.0 {
        text += &format!(", proxies {proxies:.0} %");
    }
    text += &format!(", the kernel and other programs (clients, too) {others:.0} %");
    text + &format!("; {:.1} threads of Cairn wait for a core on average", cpu::queued(pair))
}

/// Returns the processes that gateways and mounts wait for.
fn behind(pair: &Pair<'_>) -> Option<String> {
    pair.servers().find_map(|server| {
        let url = server.url;
        let (meta, blocks) = (server.share(&["meta"]), server.share(&["peer"]));
        let share = || {
            let (meta, blocks) = (100.0 * meta, 100.0 * blocks);
            format!("{meta:.0} % for metadata, {blocks:.0} % for blocks")
        };
        if server.grew("cairn_requests_total", &[FUSE]) > 0.0 {
            let waiting = (meta + blocks) * server.request_seconds() / pair.seconds();
            let text = || {
                let share = share();
                format!("the server behind {url}: {waiting:.1} requests wait for it; {share}")
            };
            return (waiting > WAITING).then(text);
        }
        let is_gateway = server.is("cairn_peer_connections_limit") > 0.0;
        let text = || format!("the nodes behind {url}: of the time of requests {}", share());
        (is_gateway && meta + blocks > WAITING).then(text)
    })
}

fn network(pair: &Pair<'_>) -> Option<String> {
    pair.after.host.links.iter().find_map(|(name, after)| {
        let before = pair.before.host.links.get(name)?;
        let speed = after.speed? as f64 * 1e6 / 8.0;
        let rate = after.bytes.saturating_sub(before.bytes) as f64 / pair.seconds();
        let text = || format!("the network: {name} carries {:.0} MB/s", rate / 1e6);
        (rate > BUSY * speed).then(text)
    })
}
