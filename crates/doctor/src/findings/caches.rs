//! Caches that lack what is requested.

use super::worth::REQUESTS;
use crate::Finding;
use crate::sample::{Pair, Server};

const MISSED: f64 = 0.5;
/// Remote reads of metadata for each read of an object, from which on leases do not help.
const CALLS: f64 = 0.5;
/// Share of reads among all requests.
const READS: f64 = 0.8;

/// The cache of blocks.
pub fn blocks(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| of_blocks(&server)).collect()
}

fn of_blocks(server: &Server<'_>) -> Option<Finding> {
    let (hits, misses) =
        (server.grew("cairn_cache_hits_total", &[]), server.grew("cairn_cache_misses_total", &[]));
    let (bytes, limit) = (server.is("cairn_cache_bytes"), server.is("cairn_cache_limit_bytes"));
    // A larger cache would also have missed pieces that were never read before.
    let again = server.grew("cairn_cache_misses_again_total", &[]);
    let missed = again / (hits + misses).max(1.0);
    if hits + misses < REQUESTS || missed < MISSED {
        return None;
    }
    let share = server.share(&["read", "peer"]);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let what = match limit {
        0.0 => format!("{}: the cache of blocks is switched off", server.url),
        _ => format!("{}: the cache of blocks is too small", server.url),
    };
    Some(Finding {
        kind: "block cache",
        cost_percent: 100.0 * share,
        what,
        evidence: vec![
            format!(
                "{:.0} % of {:.0} look-ups were of what had been there, and had to go",
                100.0 * missed,
                hits + misses
            ),
            format!("{:.0} MiB of {:.0} MiB are in use", mib(bytes), mib(limit)),
            format!("{:.0} % of the time of requests is reading blocks", 100.0 * share),
        ],
        remedy: "give it more memory: --cache-mib".to_owned(),
    })
}

/// Metadata that are requested again and again.
pub fn chatty(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| of_metadata(&server)).collect()
}

fn of_metadata(server: &Server<'_>) -> Option<Finding> {
    let requests = server.requests();
    let reads: f64 = ["get", "head", "GetObject", "HeadObject"]
        .iter()
        .map(|verb| server.grew("cairn_requests_total", &[&format!("verb=\"{verb}\"")]))
        .sum();
    let calls = server.grew("cairn_session_reads_asked_total", &[])
        + server.grew("cairn_meta_reads_missed_total", &[]);
    if requests < REQUESTS || reads < READS * requests || calls < CALLS * reads {
        return None;
    }
    let share = server.share(&["meta"]);
    Some(Finding {
        kind: "metadata cache",
        cost_percent: 100.0 * share,
        what: format!("{}: reads ask for metadata that are not in memory", server.url),
        evidence: vec![
            format!("{calls:.0} times metadata were read elsewhere for {reads:.0} reads"),
            format!("{:.0} % of the time of requests is waiting for them", 100.0 * share),
        ],
        remedy: "give it more memory: --meta-cache-mib at a gateway; ask for the same objects \
                 through the same gateway"
            .to_owned(),
    })
}
