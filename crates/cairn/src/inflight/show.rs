//! Requests in flight, as a table.

use std::time::Duration;

use super::form::{Flight, Report};
use crate::failure::Result;
use crate::output;

const HEADER: [&str; 8] = ["OPERATION", "OBJECT", "WHO", "STAGE", "AGE", "WAITS", "TRACE", "FOR"];

pub fn table(report: &Report) -> Result<()> {
    if report.requests.is_empty() {
        return output::line(format!("{} {}: nothing waits", report.role, report.of));
    }
    output::table(&HEADER, report.requests.iter().map(row).collect())?;
    match report.further {
        0 => Ok(()),
        further => output::line(format!("and {further} more")),
    }
}

fn row(flight: &Flight) -> Vec<String> {
    let own = |text: &str| output::name(text).into_owned();
    vec![
        format!("{} {}", flight.door, flight.operation),
        own(&flight.object),
        own(&flight.who()),
        or_dash(&flight.stage),
        time(flight.age_ms),
        time(flight.stage_ms),
        or_dash(&flight.trace),
        own(&flight.awaited()),
    ]
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}

fn time(ms: u64) -> String {
    format!("{:.1} s", Duration::from_millis(ms).as_secs_f64())
}
