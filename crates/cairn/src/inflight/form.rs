//! A process's report of its requests in flight: JSON, written to each client that connects.

use std::fs;
use std::time::Duration;

use cairn_base::inflight::RequestSnapshot;
use serde::{Deserialize, Serialize};

/// Requests that are listed, the oldest first; further ones are only counted.
const TOLD: usize = 10_000;
/// Longest answer, bytes; a longer one is refused.
pub const ANSWER_BYTES: u64 = 64 << 20;

/// All requests in flight of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    /// `server`, `master`, `chunkserver`, `gateway` or `mount`.
    pub role: String,
    /// Directory or mount point of the process.
    pub of: String,
    pub pid: u32,
    pub requests: Vec<Flight>,
    /// Number of further requests, which are not listed.
    pub further: usize,
}

/// A request in flight.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flight {
    pub door: String,
    pub operation: String,
    pub object: String,
    /// Number of the user, in hexadecimal.
    pub user: Option<String>,
    /// Machine, node or uid of the client.
    pub client: String,
    pub process: Option<Process>,
    pub stage: Option<String>,
    pub age_ms: u64,
    /// Time that it has been in that stage.
    pub stage_ms: u64,
    pub waits_for: Vec<Wait>,
    pub trace: Option<String>,
}

/// A process of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// Name of the process; empty if it is gone.
    pub name: String,
}

/// Something for which a request waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wait {
    pub what: String,
    pub ms: u64,
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Process {
    pub fn find(pid: u32) -> Process {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Process { pid, name: name.trim_end().to_owned() }
    }
}

impl Flight {
    pub fn of(seen: &RequestSnapshot) -> Flight {
        let wait =
            |(what, time): &(String, Duration)| Wait { what: what.clone(), ms: millis(*time) };
        Flight {
            door: seen.about.door.to_owned(),
            operation: seen.about.operation.clone().into_owned(),
            object: seen.about.object.clone(),
            user: seen.about.user.map(|user| user.to_string()),
            client: seen.about.client.clone(),
            process: seen.about.process.map(Process::find),
            stage: seen.stage.map(|stage| stage.name().to_owned()),
            age_ms: millis(seen.age),
            stage_ms: millis(seen.stage_age),
            waits_for: seen.waits.iter().map(wait).collect(),
            trace: seen.trace.map(|trace| trace.to_string()),
        }
    }

    /// Returns the caller, in words.
    pub fn who(&self) -> String {
        let process = self.process.as_ref().map(|Process { pid, name }| {
            if name.is_empty() {
                format!("process {pid}")
            } else {
                format!("process {pid} ({name})")
            }
        });
        let user = self.user.as_ref().map(|user| format!("user {user}"));
        let client = Some(self.client.clone()).filter(|client| !client.is_empty());
        let all: Vec<String> = [process, user, client].into_iter().flatten().collect();
        all.join(", ")
    }

    /// Returns what it waits for, in words.
    pub fn awaited(&self) -> String {
        let all: Vec<&str> = self.waits_for.iter().map(|wait| &wait.what[..]).collect();
        all.join("; ")
    }
}

impl Report {
    pub fn new(role: &str, of: &str, seen: &[RequestSnapshot]) -> Report {
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role.to_owned(),
            of: of.to_owned(),
            pid: std::process::id(),
            requests: seen.iter().take(TOLD).map(Flight::of).collect(),
            further: seen.len().saturating_sub(TOLD),
        }
    }
}
