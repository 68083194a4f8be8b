//! Tables of scenarios, from their results.

use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Cell, Finding, Key, Report, Section};

pub fn section(title: &str, table: Table, note: &str) -> Section {
    Section { title: title.to_owned(), table, note: note.to_owned() }
}

/// Returns the targets of a load, each with its cells in the order of the axis.
pub fn by_target<'a>(report: &'a Report, what: &str) -> Vec<(&'a str, Vec<&'a Cell>)> {
    let targets = report.targets.iter().map(|named| {
        let of = |cell: &&Cell| cell.key.what == what && cell.key.target == named.name;
        (named.name.as_str(), report.cells.iter().filter(of).collect::<Vec<_>>())
    });
    targets.filter(|(_, cells)| !cells.is_empty()).collect()
}

/// Returns the values of the axis of a load.
pub fn axis(report: &Report, what: &str) -> Vec<f64> {
    let cells = report.cells.iter().filter(|cell| cell.key.what == what);
    let mut values: Vec<f64> = cells.map(|cell| cell.key.axis.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

pub fn find<'a>(report: &'a Report, target: &str, what: &str, value: f64) -> Option<&'a Cell> {
    report.cells.iter().find(|cell| {
        let Key { target: known, what: load, axis } = &cell.key;
        (known.as_str(), load.as_str(), axis.value) == (target, what, value)
    })
}

/// Makes a table like [`grid`], with the absent targets.
pub fn matrix(report: &Report, what: &str, unit: &str, show: impl Fn(&Cell) -> String) -> Table {
    let mut table = grid(report, what, unit, show);
    absent(report, &mut table, |_| true);
    table
}

/// Makes a table with one row for each target and one column for each value of the axis.
pub fn grid(report: &Report, what: &str, unit: &str, show: impl Fn(&Cell) -> String) -> Table {
    let values = axis(report, what);
    let mut header = vec![String::new()];
    header.extend(values.iter().map(|value| format!("{} {unit}", number(*value))));
    let rows = by_target(report, what).into_iter().map(|(target, _)| {
        let mut row = vec![target.to_owned()];
        let cells = values.iter().map(|value| find(report, target, what, *value));
        row.extend(cells.map(|cell| cell.map_or_else(String::new, &show)));
        row
    });
    Table { header, rows: rows.collect() }
}

/// Adds a row for each target that was not there, with the reason.
pub fn absent(report: &Report, table: &mut Table, belongs: impl Fn(&str) -> bool) {
    for named in report.absent.iter().filter(|named| belongs(&named.name)) {
        let mut row = vec![named.name.clone(), named.target.clone()];
        row.resize(table.header.len().max(2), String::new());
        table.rows.push(row);
    }
}

/// Adds a column about all cells of a target together.
pub fn column(
    report: &Report,
    what: &str,
    table: &mut Table,
    name: &str,
    show: impl Fn(&[&Cell]) -> String,
) {
    table.header.push(name.to_owned());
    let found = by_target(report, what);
    for row in &mut table.rows {
        let cells =
            found.iter().find(|(target, _)| Some(*target) == row.first().map(String::as_str));
        row.push(cells.map_or_else(String::new, |(_, cells)| show(cells)));
    }
}

/// Shows the replies per second, and the time that one in a hundred exceeds.
pub fn rate(cell: &Cell) -> String {
    let failed = match cell.failed() {
        0 => String::new(),
        failed => format!("; {failed} failed"),
    };
    format!("{} ({}){failed}", number(cell.rate.median), time(cell.latency.p99_us))
}

/// Returns the last finding whose name begins with `start`: the rest of its name, and its value.
pub fn latest<'a>(report: &'a Report, target: &str, start: &str) -> Option<(&'a str, f64)> {
    let of = |finding: &&Finding| finding.target == target && finding.what.starts_with(start);
    let finding = report.findings.iter().rfind(of)?;
    Some((finding.what.get(start.len()..)?, finding.value?))
}

/// Shows the times that half of the replies and one in ten exceed.
pub fn quantiles(cell: &Cell) -> String {
    format!("{} / {}", time(cell.latency.p50_us), time(cell.latency.p90_us))
}

pub fn megabytes(cell: &Cell) -> String {
    number(cell.bytes_per_second.median / 1e6)
}

pub fn ratio(of: f64, to: f64) -> String {
    let ratio = of / to;
    if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() }
}
