//! `cairn logs ls`

use std::collections::BTreeMap;
use std::process::ExitCode;

use cairn_logs::day;
use serde::Serialize;

use super::place::{DayFile, files, files_of};
use super::times::Range;
use crate::connection::Server;
use crate::failure::Result;
use crate::output;

/// List log sources, or the days of one source
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs ls
  cairn logs ls nginx --json | jq .bytes")]
pub struct LsArgs {
    /// List the days of this log source; without it, all sources
    source: Option<String>,
    /// Print one line of JSON for each source or day
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Source {
    source: String,
    days: u64,
    first: String,
    last: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Day {
    day: String,
    bytes: u64,
}

pub fn run(server: &Server, bucket: &str, args: &LsArgs) -> Result<ExitCode> {
    match &args.source {
        Some(source) => {
            let files = files_of(server, bucket, source, &Range::default())?;
            let days = files.into_iter().map(|DayFile { day, size, .. }| {
                let day = Day { day: day::name(day), bytes: size };
                (vec![day.day.clone(), output::human_bytes(size)], day)
            });
            show(&["DAY", "SIZE"], days.collect(), args.json)?;
        }
        None => {
            let sources = sources(files(server, bucket, None)?).into_iter().map(|source| {
                let Source { source: name, days, first, last, bytes } = &source;
                let size = output::human_bytes(*bytes);
                let name = output::name(name).into_owned();
                (vec![name, days.to_string(), first.clone(), last.clone(), size], source)
            });
            show(&["SOURCE", "DAYS", "FIRST", "LAST", "SIZE"], sources.collect(), args.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the sources of these files, which are in order.
fn sources(files: Vec<DayFile>) -> Vec<Source> {
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    for DayFile { source, day, size } in files {
        let day = day::name(day);
        let new = |source: &String| Source {
            source: source.clone(),
            days: 0,
            first: day.clone(),
            last: String::new(),
            bytes: 0,
        };
        let known = sources.entry(source).or_insert_with_key(new);
        known.days += 1;
        known.bytes += size;
        known.last = day;
    }
    sources.into_values().collect()
}

fn show(header: &[&str], rows: Vec<(Vec<String>, impl Serialize)>, is_json: bool) -> Result<()> {
    if is_json {
        rows.iter().try_for_each(|(_, value)| output::json(value))
    } else {
        output::table(header, rows.into_iter().map(|(row, _)| row).collect())
    }
}
