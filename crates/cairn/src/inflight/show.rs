//! Requests in flight, as a table.

use std::time::Duration;

use super::form::{Flight, Report};
use crate::failure::Result;
use crate::output;

const HEADER: [&str; 7] = ["OPERATION", "OBJECT", "WHO", "STAGE", "AGE", "WAITS", "FOR"];

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
        flight.stage.clone().unwrap_or_else(|| "-".to_owned()),
        time(flight.age_ms),
        time(flight.stage_ms),
        own(&flight.awaited()),
    ]
}

fn time(ms: u64) -> String {
    format!("{:.1} s", Duration::from_millis(ms).as_secs_f64())
}
