//! Chunkservers as a gateway sees them.

use std::collections::BTreeMap;

use crate::Finding;
use crate::sample::{Pair, Server};

/// Number of blocks from which on a node can be judged.
const BLOCKS: f64 = 5.0;
/// Factor, and difference in seconds, by which a slow node is slower than the others.
const TIMES: f64 = 3.0;
const SLOWER: f64 = 0.01;
/// Number of connections to a node above which more of them would not help: requests then wait for
/// the node itself.
const FEW: f64 = 16.0;
/// Share of the requests for blocks that wait.
const WAITING: f64 = 0.1;

const REMEDY: &str = "`cairn cluster status` says where it is: look at its disk (iostat, SMART, \
                      io.max of its cgroup) and its CPU; `cairn cluster drain DIR NODE` moves its \
                      blocks to others";

/// Work of a node, of one kind.
#[derive(Clone, Copy, Debug)]
struct NodeWork {
    count: f64,
    seconds: f64,
}

impl NodeWork {
    fn mean(self) -> f64 {
        self.seconds / self.count.max(1.0)
    }
}

/// Nodes that take much longer than other nodes with the same blocks.
pub fn slow_replicas(pair: &Pair<'_>) -> Vec<Finding> {
    let servers = pair.servers();
    servers
        .flat_map(|server| {
            let writes = slow(&server, "write", "make blocks durable");
            writes.into_iter().chain(slow(&server, "read", "read blocks"))
        })
        .collect()
}

fn slow(server: &Server<'_>, what: &str, means: &str) -> Vec<Finding> {
    let done = done(server, what);
    let found = done.iter().filter_map(|(node, own)| {
        let usual = usual(&done, node)?;
        let more = own.mean() - usual;
        let is_slow = own.mean() >= TIMES * usual && more >= SLOWER;
        is_slow.then(|| Finding {
            kind: "slow replica",
            cost_percent: 100.0 * of_peers(server, more * own.count),
            what: format!("node {node} takes long to {means}"),
            evidence: evidence(server, node, *own, usual),
            remedy: REMEDY.to_owned(),
        })
    });
    found.collect()
}

/// Returns the median of the others' means; the smaller of two.
fn usual(done: &BTreeMap<String, NodeWork>, but: &str) -> Option<f64> {
    let others = done.iter().filter(|(node, _)| *node != but);
    let mut means: Vec<f64> = others.map(|(_, done)| done.mean()).collect();
    means.sort_by(f64::total_cmp);
    means.get(means.len().saturating_sub(1) / 2).copied()
}

fn evidence(server: &Server<'_>, node: &str, own: NodeWork, usual: f64) -> Vec<String> {
    let failed = server.grew("cairn_peer_failed_total", &[&format!("node=\"{node}\"")]);
    let (url, count, own, usual) = (server.url, own.count, own.mean() * 1e3, usual * 1e3);
    let mut evidence = vec![format!(
        "{url}: {count:.0} blocks took {own:.1} ms on average, of others {usual:.1} ms"
    )];
    if failed > 0.0 {
        evidence.push(format!("it failed {failed:.0} requests"));
    }
    evidence
}

/// Returns the work by node, for the nodes that can be judged.
fn done(server: &Server<'_>, what: &str) -> BTreeMap<String, NodeWork> {
    let nodes = server.labels("cairn_peer_requests_total", "node").into_iter();
    let all = nodes.map(|node| {
        let labels = [format!("node=\"{node}\""), format!("what=\"{what}\"")];
        let labels = [&labels[0][..], &labels[1]];
        let count = server.grew("cairn_peer_requests_total", &labels);
        let seconds = server.grew("cairn_peer_seconds_total", &labels);
        (node, NodeWork { count, seconds })
    });
    all.filter(|(_, done)| done.count >= BLOCKS).collect()
}

/// Returns the share of the requests' time that `seconds` are, if several blocks of one request may
/// be on their way at once.
fn of_peers(server: &Server<'_>, seconds: f64) -> f64 {
    let share = seconds / server.request_seconds().max(1e-9);
    share.min(server.share(&["peer"]))
}

/// Returns the share of the requests' time in which blocks become durable on other nodes: each
/// block waits for all of its nodes at once.
pub fn durable(server: &Server<'_>) -> f64 {
    let seconds = done(server, "write").into_values().map(|done| done.seconds);
    of_peers(server, seconds.fold(0.0, f64::max))
}

/// Requests for blocks that wait at the gateway for a connection to a chunkserver.
pub fn few_connections(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| few(&server)).collect()
}

fn few(server: &Server<'_>) -> Option<Finding> {
    let limit = server.is("cairn_peer_connections_limit");
    let sum = |name: &str, what: &str| server.grew(name, &[&format!("what=\"{what}\"")]);
    let asked = |what: &str| sum("cairn_peer_requests_total", what);
    // A write is counted at each of its nodes, and waits for a connection to one.
    let (waits, seconds) = (asked("wait"), sum("cairn_peer_seconds_total", "wait"));
    if limit > FEW || waits < BLOCKS || waits < WAITING * (asked("read") + asked("write")) {
        return None;
    }
    let connections = if limit == 1.0 { "connection" } else { "connections" };
    Some(Finding {
        kind: "few connections",
        cost_percent: 100.0 * of_peers(server, seconds),
        what: format!(
            "{}: requests for blocks wait for {limit:.0} {connections} to a chunkserver",
            server.url
        ),
        evidence: vec![
            format!(
                "{waits:.0} requests for blocks waited for it, {:.1} ms on average",
                1e3 * seconds / waits
            ),
            format!(
                "{:.0} % of the time of requests is for blocks",
                100.0 * server.share(&["peer"])
            ),
        ],
        remedy: "give the gateway more: --peer-connections (256 if it is left out)".to_owned(),
    })
}
