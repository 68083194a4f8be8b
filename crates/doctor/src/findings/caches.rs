//! Caches that lack what is requested.

use super::worth::REQUESTS;
use crate::Finding;
use crate::sample::{Pair, Server};

const MISSED: f64 = 0.5;
/// Remote reads of metadata for each read of an object, from which on leases do not help.
const CALLS: f64 = 0.5;
/// Share of a cache in use from which on it evicts.
const FULL: f64 = 0.9;
/// Share of the memory of a process up to which caches may grow.
const GROWS: f64 = 0.75;
/// Memory for which it is worth to change an option, bytes.
const STEP: f64 = (64 << 20) as f64;
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
        remedy: remedy(server, "--cache-mib", limit),
    })
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Returns the remedy for a cache of `limit` bytes that is too small: the option with a size for
/// which there is memory, if there is any.
fn remedy(server: &Server<'_>, option: &str, limit: f64) -> String {
    let (memory, used) =
        (server.is("cairn_memory_limit_bytes"), server.is("process_resident_memory_bytes"));
    if memory == 0.0 {
        return format!("give it more memory: {option}");
    }
    let free = memory * GROWS - used;
    if free < STEP {
        return format!(
            "its process has {:.0} MiB of the {:.0} MiB that it may have: give it more memory, and \
             {option} a larger size if it is set",
            mib(used),
            mib(memory)
        );
    }
    let larger = limit + free.min(limit.max(STEP));
    format!("there is memory for a larger one: {option} {:.0}", mib(larger).floor())
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
    let remedy = match rows(server) {
        RowCache::Full { option, limit } => remedy(server, option, limit),
        RowCache::NotFull => return None,
        RowCache::OfGateway => "ask for the same objects through the same gateway: its cache of \
                                metadata is not full"
            .to_owned(),
        RowCache::Unknown => "give it more memory: --meta-cache-mib at a gateway, --row-cache-mib \
                              at others; ask for the same objects through the same gateway"
            .to_owned(),
    };
    Some(Finding {
        kind: "metadata cache",
        cost_percent: 100.0 * share,
        what: format!("{}: reads ask for metadata that are not in memory", server.url),
        evidence: vec![
            format!("{calls:.0} times metadata were read elsewhere for {reads:.0} reads"),
            format!("{:.0} % of the time of requests is waiting for them", 100.0 * share),
        ],
        remedy,
    })
}

/// State of the cache from which a server answers reads of metadata.
enum RowCache {
    Full {
        option: &'static str,
        limit: f64,
    },
    /// A larger one would have missed the same: rows were read for the first time.
    NotFull,
    /// The one of a gateway that is not full: rows change, or were not asked for before.
    OfGateway,
    /// The server does not say.
    Unknown,
}

fn rows(server: &Server<'_>) -> RowCache {
    let limit = |part: &str| server.is_of("cairn_memory_part_limit_bytes", &[part]);
    let (leased, rows) = (limit("part=\"leased-rows\""), limit("part=\"rows\""));
    let is_full = |name: &str, limit: f64| server.is(name) >= FULL * limit;
    // A gateway may show the parts of the master in the same process too.
    if leased > 0.0 {
        if is_full("cairn_session_bytes", leased) {
            RowCache::Full { option: "--meta-cache-mib", limit: leased }
        } else {
            RowCache::OfGateway
        }
    } else if rows > 0.0 {
        if is_full("cairn_meta_cache_bytes", rows) {
            RowCache::Full { option: "--row-cache-mib", limit: rows }
        } else {
            RowCache::NotFull
        }
    } else {
        RowCache::Unknown
    }
}
