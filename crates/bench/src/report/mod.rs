//! Results of a run in the form in which they are saved: docs/bench.md has the schema.

pub mod html;
pub mod markdown;
pub mod svg;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use table::Table;

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::stats::{Spread, Times};

pub const SCHEMA: &str = "cairn-bench/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`]
    pub schema: String,
    /// `http`, `rate`, `s3`, `fs`, `reports`, or the name of another session.
    pub kind: String,
    /// Command line, without secrets.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Start time, RFC 3339, UTC.
    pub started: String,
    pub machine: Machine,
    /// Measured targets; the others are compared with the first.
    pub targets: Vec<NamedTarget>,
    pub cells: Vec<Cell>,
    /// The findings of a search.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Reason why it ended before its time, if it did.
    #[serde(default)]
    pub incomplete: Option<String>,
    /// Systems that were not there to be measured; `target` has the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<NamedTarget>,
    /// Sections of `bench reports`, for people to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<Scenario>,
}

/// One of the reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    pub name: String,
    pub title: String,
    /// Finding of the report, and the measurement that answers it.
    pub about: String,
    /// Duration of the scenario.
    pub seconds: f64,
    pub sections: Vec<Section>,
    #[serde(default)]
    pub incomplete: Option<String>,
}

/// A table with the texts above and below it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    #[serde(flatten)]
    pub table: Table,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedTarget {
    pub name: String,
    /// A URL without credentials, or a path.
    pub target: String,
}

/// Key of a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Key {
    pub target: String,
    /// Name of the load, such as `GET, keep-alive`.
    pub what: String,
    pub axis: Axis,
}

/// Quantity that grows from cell to cell: `concurrency`, `rate`, `endpoints`, `threads`, `in
/// flight`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Axis {
    pub name: String,
    pub value: f64,
}

/// One load on one target, in all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    #[serde(flatten)]
    pub key: Key,
    /// Successes per second.
    pub rate: Spread,
    pub bytes_per_second: Spread,
    /// Times of the requests of all rounds together.
    pub latency: Times,
    pub rounds: Vec<Round>,
    #[serde(default)]
    pub phases: BTreeMap<String, Times>,
    /// Number of answers by status.
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// Number of failed requests by cause.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    #[serde(default)]
    pub connections: u64,
    /// Requests of an open loop that were sent more than 1 ms after the plan; that were never sent.
    #[serde(default)]
    pub late: u64,
    #[serde(default)]
    pub unsent: u64,
    pub client_cores: f64,
    #[serde(default)]
    pub server_cores: Option<f64>,
    /// Seconds of the first round of an open loop.
    #[serde(default)]
    pub timeline: Vec<Tick>,
}

/// One round of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    pub rate: f64,
    pub bytes_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// One second of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tick {
    pub replies: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub statuses: BTreeMap<u16, u64>,
    pub errors: u64,
}

/// Result of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub target: String,
    pub what: String,
    /// Value that was found; none if nothing met it.
    pub value: Option<f64>,
}

impl Report {
    pub fn load(path: &Path) -> Result<Report> {
        let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        let wrong = |why: &str| {
            Error::file(path, format!("{why}: give a file that was written with --json"))
        };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| wrong(&format!("not JSON, {error}")))?;
        match value.get("schema").and_then(|schema| schema.as_str()) {
            Some(SCHEMA) => {}
            Some(other) => return Err(wrong(&format!("its schema is {other}, not {SCHEMA}"))),
            None => return Err(wrong("it is not the result of a benchmark")),
        }
        serde_json::from_value(value).map_err(|error| wrong(&error.to_string()))
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Error::file(path, error))?;
        fs::write(path, text + "\n").map_err(|error| Error::file(path, error))
    }

    /// Returns all loads, each once, in order.
    pub fn loads(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !found.contains(&cell.key.what.as_str()) {
                found.push(&cell.key.what);
            }
        }
        found
    }

    pub fn cell(&self, key: &Key) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.key == *key)
    }

    /// Returns the cell of the same load on the first target; none for the first target itself.
    pub fn base(&self, cell: &Cell) -> Option<&Cell> {
        let first = &self.targets.first()?.name;
        let key = Key { target: first.clone(), ..cell.key.clone() };
        if *first == cell.key.target { None } else { self.cell(&key) }
    }
}

impl Cell {
    pub fn failed(&self) -> u64 {
        let wrong = self.statuses.iter().filter(|(status, _)| !(200..400).contains(*status));
        self.errors.values().sum::<u64>() + wrong.map(|(_, count)| count).sum::<u64>()
    }
}
