//! Conclusions from two samples. There is a file for each subject; all are pure.
//!
//! Costs are estimates of the share of time or throughput, in percent. A finding that explains
//! others goes first: a server that gets too little CPU waits for its disk too.

mod balance;
mod caches;
mod connections;
mod cpu;
mod disk;
mod limit;
mod limits;
mod network;
mod nfs;
mod peers;
mod worth;

use crate::Report;
use crate::sample::Pair;
use worth::WORTH_PERCENT;

/// Returns all findings.
pub fn report(pair: &Pair<'_>) -> Report {
    let mut throttled = cpu::throttled(pair);
    throttled.extend(cpu::throttled_elsewhere(pair));
    // Other findings can cost only a share of the remaining time.
    let left = 1.0 - throttled.iter().map(|found| found.cost_percent).fold(0.0, f64::max) / 100.0;
    let others = [
        disk::slow(pair),
        peers::slow_replicas(pair),
        peers::few_connections(pair),
        connections::not_kept(pair),
        connections::handshakes(pair),
        caches::blocks(pair),
        caches::chatty(pair),
        cpu::one_thread(pair),
        cpu::few_readers(pair),
        cpu::stolen(pair),
        network::resent(pair),
        nfs::storms(pair),
        nfs::small_writes(pair),
        nfs::few_connections(pair),
    ];
    let mut findings = throttled;
    findings.extend(others.into_iter().flatten().map(|mut found| {
        found.cost_percent *= left;
        found
    }));
    // These threaten to cost everything, whatever else there is.
    findings.extend(limits::near(pair));
    findings.extend(balance::uneven(pair));
    findings.extend(balance::failing_disks(pair));
    findings.extend(balance::few_copies(pair));
    findings.extend(balance::stalls(pair));
    findings.extend(balance::damage(pair));
    findings.extend(network::clocks(pair));
    findings.retain(|found| found.cost_percent >= WORTH_PERCENT);
    findings.sort_by(|one, other| other.cost_percent.total_cmp(&one.cost_percent));
    Report {
        seconds: pair.seconds(),
        // The sum of nothing is -0.
        requests: pair.servers().map(|server| server.requests()).sum::<f64>() + 0.0,
        findings,
        limit: limit::of(pair),
        blind: blind(pair),
    }
}

fn blind(pair: &Pair<'_>) -> Vec<String> {
    let nodes = pair.after.nodes.iter().chain(&pair.before.nodes);
    let why = nodes.filter_map(|node| node.metrics.as_ref().err().map(|why| (&node.url, why)));
    let mut blind: Vec<String> = why.map(|(url, why)| format!("{url}: {why}")).collect();
    if pair.after.processes.is_empty() {
        blind.push("no process of Cairn runs on this machine: its kernel says nothing".to_owned());
    }
    blind.sort();
    blind.dedup();
    blind
}

#[cfg(test)]
mod tests;
