//! Tables of the servers' answers.

use std::io::{self, Write};

use super::report::{Slow, Tally, TrafficReport, Waiting};
use crate::failure::Result;
use crate::output::{self, human_bytes};

/// Characters of a name, at most.
const NAME: usize = 60;

/// Clears a terminal that understands ANSI, and moves to its first line.
pub fn clear() -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(b"\x1b[H\x1b[2J\x1b[3J")?;
    Ok(out.flush()?)
}

pub fn print(told: &TrafficReport, rows: usize) -> Result<()> {
    let total: u64 = told.doors.iter().map(|door| door.requests).sum();
    let rate = total as f64 / told.seconds;
    output::line(format!("{rate:.0} requests a second, {} wait", told.waiting))?;
    for (title, tallies) in [
        ("DOOR", &told.doors),
        ("USER", &told.users),
        ("BUCKET", &told.buckets),
        ("OBJECT", &told.objects),
    ] {
        tally(title, tallies, told.seconds, rows)?;
    }
    slowest(&told.slowest, rows)?;
    waiting(&told.in_flight, rows)
}

fn tally(title: &str, tallies: &[Tally], seconds: f64, rows: usize) -> Result<()> {
    if tallies.is_empty() {
        return Ok(());
    }
    let rate = |bytes: u64| human_bytes((bytes as f64 / seconds) as u64);
    let row = |tally: &Tally| {
        let mean = tally.us as f64 / tally.requests.max(1) as f64 / 1e3;
        // Requests that may belong to another name.
        let about = if tally.doubtful > 0 { "~" } else { "" };
        vec![
            name(if tally.name.is_empty() { "(nobody)" } else { &tally.name }),
            format!("{about}{:.1}", tally.requests as f64 / seconds),
            tally.failed.to_string(),
            rate(tally.received_bytes),
            rate(tally.sent_bytes),
            format!("{mean:.1}"),
        ]
    };
    output::line("")?;
    let rows = tallies.iter().take(rows).map(row).collect();
    output::table(&[title, "REQ/S", "FAILED", "IN/S", "OUT/S", "MEAN MS"], rows)
}

fn slowest(slowest: &[Slow], rows: usize) -> Result<()> {
    if slowest.is_empty() {
        return Ok(());
    }
    let row = |slow: &Slow| {
        let place = match (&slow.bucket, &slow.key) {
            (Some(bucket), Some(key)) => format!("{bucket}/{key}"),
            (Some(bucket), None) => bucket.clone(),
            _ => String::new(),
        };
        vec![
            format!("{:.1}", slow.us as f64 / 1e3),
            format!("{} {}", slow.door, slow.operation),
            slow.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            name(&slow.user),
            name(&place),
        ]
    };
    output::line("")?;
    let rows = slowest.iter().take(rows).map(row).collect();
    output::table(&["SLOWEST MS", "OPERATION", "STATUS", "USER", "OBJECT"], rows)
}

fn waiting(waiting: &[Waiting], rows: usize) -> Result<()> {
    if waiting.is_empty() {
        return Ok(());
    }
    let row = |one: &Waiting| {
        let mut what = one.waits_for.join("; ");
        if what.is_empty() {
            what = one.stage.clone().unwrap_or_default();
        }
        vec![
            one.age_ms.to_string(),
            format!("{} {}", one.door, one.operation),
            name(&one.client),
            name(&one.object),
            name(&what),
        ]
    };
    output::line("")?;
    let rows = waiting.iter().take(rows).map(row).collect();
    output::table(&["WAITS MS", "OPERATION", "CLIENT", "OBJECT", "FOR"], rows)
}

/// Shows a name that another user has chosen: on one line, and not too long.
fn name(text: &str) -> String {
    let text = output::name(text);
    if text.chars().count() > NAME {
        text.chars().take(NAME - 1).chain(['…']).collect()
    } else {
        text.into_owned()
    }
}
