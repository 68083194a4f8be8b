//! Patterns in the calls of NFS clients.

use super::worth::REQUESTS;
use crate::Finding;
use crate::sample::{Pair, Server};

const DOOR: &str = "door=\"nfs\"";
/// Calls that ask for what a client could remember.
const ASKING: [&str; 3] = ["getattr", "lookup", "access"];
/// Share of such calls from which on they are a storm.
const STORM: f64 = 0.8;
/// Average number of bytes of a WRITE below which it is small.
const SMALL_BYTES: f64 = 16.0 * 1024.0;
/// COMMITs for each WRITE, or changes that wait for a disk, from which on writes are not gathered.
const SYNCED: f64 = 0.5;

/// Average number of connections of a client from which on it has several.
const FEW: f64 = 2.0;
/// Share of the time from which on one connection is not enough.
const FULL: f64 = 0.1;

/// Attributes that are requested again and again.
pub fn storms(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| storm(&server)).collect()
}

fn grew(server: &Server<'_>, name: &str, verb: &str) -> f64 {
    server.grew(name, &[DOOR, &format!("verb=\"{verb}\"")])
}

fn storm(server: &Server<'_>) -> Option<Finding> {
    let calls = server.grew("cairn_requests_total", &[DOOR]);
    let sum = |name| ASKING.iter().map(|verb| grew(server, name, verb)).sum::<f64>();
    let asking = sum("cairn_requests_total");
    if calls < REQUESTS || asking < STORM * calls {
        return None;
    }
    let share = sum("cairn_request_seconds_sum") / server.request_seconds().max(1e-9);
    Some(Finding {
        kind: "nfs attributes",
        cost_percent: 100.0 * share.min(1.0),
        what: format!("{}: clients of NFS ask for attributes again and again", server.url),
        evidence: vec![
            format!("{asking:.0} of {calls:.0} calls are GETATTR, LOOKUP or ACCESS"),
            format!("{:.0} % of the time of requests goes there", 100.0 * share),
        ],
        remedy: "where files change rarely, mount with actimeo=60, and with nocto where none \
                 changes while it is read"
            .to_owned(),
    })
}

/// Small writes, each of which is made durable separately.
pub fn small_writes(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| of_small_writes(&server)).collect()
}

fn of_small_writes(server: &Server<'_>) -> Option<Finding> {
    let writes = grew(server, "cairn_requests_total", "write");
    let commits = grew(server, "cairn_requests_total", "commit");
    let bytes = grew(server, "cairn_received_bytes_total", "write") / writes.max(1.0);
    let spent = |verb| grew(server, "cairn_request_seconds_sum", verb);
    let synced = server.grew("cairn_stage_seconds_sum", &[DOOR, "stage=\"sync\""]);
    let share = (spent("write") + spent("commit")) / server.request_seconds().max(1e-9);
    let are_synced = commits >= SYNCED * writes || synced >= SYNCED * spent("write");
    if writes < REQUESTS || bytes > SMALL_BYTES || !are_synced {
        return None;
    }
    Some(Finding {
        kind: "nfs small writes",
        cost_percent: 100.0 * share.min(1.0),
        what: format!(
            "{}: clients of NFS write little at a time, and wait for the disk",
            server.url
        ),
        evidence: vec![
            format!("{writes:.0} WRITEs of {bytes:.0} bytes on average, {commits:.0} COMMITs"),
            format!("{:.0} % of the time of requests goes there", 100.0 * share),
        ],
        remedy: "mount without sync, and have programs write more between two fsync".to_owned(),
    })
}

/// Clients with one connection each, which is too little for their calls.
pub fn few_connections(pair: &Pair<'_>) -> Vec<Finding> {
    let seconds = pair.seconds();
    pair.servers().filter_map(|server| of_few_connections(&server, seconds)).collect()
}

fn of_few_connections(server: &Server<'_>, seconds: f64) -> Option<Finding> {
    let (clients, connections) =
        (server.is("cairn_nfs_clients"), server.is("cairn_nfs_connections"));
    let full = server.grew("cairn_nfs_full_seconds_total", &[]);
    let share = full / seconds.max(1e-9) / connections.max(1.0);
    if clients < 1.0 || connections >= FEW * clients || share < FULL {
        return None;
    }
    Some(Finding {
        kind: "nfs few connections",
        cost_percent: 100.0 * share.min(1.0),
        what: format!("{}: clients of NFS ask for more than their connections take", server.url),
        evidence: vec![
            format!("{clients:.0} clients have {connections:.0} connections"),
            format!(
                "{:.0} % of the time, a connection had as many calls at work as one may",
                100.0 * share
            ),
        ],
        remedy: "mount with nconnect=4 (Linux 5.3 and later)".to_owned(),
    })
}
