//! A result as Markdown, which commands print.

use std::fmt::Write as _;

use super::{Cell, Report, Table};
use crate::stats::Spread;

/// Seconds of a timeline that are shown, at most.
const TICKS: usize = 60;

pub fn page(report: &Report) -> String {
    let mut out = heading(report);
    for (title, table) in tables(report) {
        let _ = write!(out, "\n{title}\n\n{}", render(&table));
    }
    for line in closing(report) {
        let _ = writeln!(out, "\n{line}");
    }
    out.trim_end().to_owned()
}

pub fn heading(report: &Report) -> String {
    let machine = &report.machine;
    let gib = machine.memory_bytes >> 30;
    let mut out = format!(
        "`{}` on {}, {} cores, {gib} GiB, Linux {}; cairn {}; {}\n",
        report.command, machine.cpu, machine.cores, machine.kernel, report.version, report.started,
    );
    for named in &report.targets {
        let _ = write!(out, "\n- {}: {}", named.name, named.target);
    }
    out + "\n"
}

/// Returns the lines below the tables.
pub fn closing(report: &Report) -> Vec<String> {
    let findings = report.findings.iter().map(|finding| {
        let value = finding.value.map_or("none".to_owned(), number);
        format!("{}: {}: {value}", finding.target, finding.what)
    });
    let incomplete = report.incomplete.iter().map(|why| format!("Incomplete: {why}"));
    findings.chain(incomplete).collect()
}

/// Returns all tables that are not empty, with their titles.
pub fn tables(report: &Report) -> Vec<(String, Table)> {
    let loads = report.loads().into_iter().map(|what| (what.to_owned(), load(report, what)));
    let mut all: Vec<_> = loads.collect();
    all.push(("Phases".to_owned(), phases(report)));
    all.push(("Failures".to_owned(), troubles(report)));
    all.extend(timelines(report));
    all.retain(|(_, table)| !table.rows.is_empty());
    all
}

/// Makes the table of one load.
fn load(report: &Report, what: &str) -> Table {
    let cells: Vec<&Cell> = report.cells.iter().filter(|cell| cell.key.what == what).collect();
    let axis = cells.first().map_or("", |cell| cell.key.axis.name.as_str());
    let is_open = report.kind == "rate";
    let has_server = cells.iter().any(|cell| cell.server_cores.is_some());
    let is_compared = report.targets.len() > 1;
    let mut header = vec![axis, "target", "a second (worst to best)", "MB/s"];
    header.extend(["p50", "p90", "p99", "p99.9", "max", "failed"]);
    if is_open {
        header.extend(["late", "unsent"]);
    }
    header.push("client CPU");
    if has_server {
        header.push("server CPU");
    }
    if is_compared {
        header.extend(["rate, ratio", "p50, ratio", "p99, ratio"]);
    }
    let rows = cells.iter().map(|cell| {
        let times = &cell.latency;
        let mut row = vec![
            number(cell.key.axis.value),
            cell.key.target.clone(),
            spread(&cell.rate, cell.rounds.len()),
            number(cell.bytes_per_second.median / 1e6),
        ];
        let shown = [times.p50_us, times.p90_us, times.p99_us, times.p999_us, times.max_us];
        row.extend(shown.map(|us| if times.count == 0 { String::new() } else { time(us) }));
        row.push(cell.failed().to_string());
        if is_open {
            row.extend([cell.late.to_string(), cell.unsent.to_string()]);
        }
        row.push(format!("{:.2}", cell.client_cores));
        if has_server {
            row.push(cell.server_cores.map_or(String::new(), |cores| format!("{cores:.2}")));
        }
        if is_compared {
            row.extend(ratios(report, cell));
        }
        row
    });
    Table::new(&header, rows.collect())
}

/// Returns the medians of a cell's rounds, divided by those of the first target.
fn ratios(report: &Report, cell: &Cell) -> [String; 3] {
    let Some(base) = report.base(cell) else { return Default::default() };
    let ratio = |number: &dyn Fn(&Cell) -> f64| {
        let ratio = number(cell) / number(base);
        if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() }
    };
    let median = |cell: &Cell, number: fn(&super::Round) -> f64| {
        Spread::of(cell.rounds.iter().map(number)).map_or(f64::NAN, |spread| spread.median)
    };
    [
        ratio(&|cell| cell.rate.median),
        ratio(&|cell| median(cell, |round| round.p50_us)),
        ratio(&|cell| median(cell, |round| round.p99_us)),
    ]
}

fn name(cell: &Cell) -> String {
    let (key, axis) = (&cell.key, &cell.key.axis);
    format!("{}: {}, {} {}", key.target, key.what, axis.name, number(axis.value))
}

fn phases(report: &Report) -> Table {
    let order = ["dns", "connect", "tls", "first_byte", "transfer"];
    let cells = report.cells.iter().filter(|cell| !cell.phases.is_empty());
    let rows: Vec<Vec<String>> = cells
        .map(|cell| {
            let one = |phase| match cell.phases.get(phase) {
                Some(times) => format!("{} / {}", time(times.p50_us), time(times.p99_us)),
                None => String::new(),
            };
            let mut row = vec![name(cell)];
            row.extend(order.map(one));
            row.push(cell.connections.to_string());
            row
        })
        .collect();
    let header = ["p50 / p99", "DNS", "connect", "TLS", "first byte", "transfer", "connections"];
    Table::new(&header, rows)
}

/// Returns the statuses and errors of loads that did not go well.
fn troubles(report: &Report) -> Table {
    let rows: Vec<Vec<String>> = report
        .cells
        .iter()
        .filter(|cell| cell.failed() > 0)
        .map(|cell| {
            let statuses = cell.statuses.iter().map(|(status, n)| format!("{status}: {n}"));
            let errors = cell.errors.iter().map(|(cause, n)| format!("{cause}: {n}"));
            let join = |parts: Vec<String>| parts.join(", ");
            vec![name(cell), join(statuses.collect()), join(errors.collect())]
        })
        .collect();
    Table::new(&["", "statuses", "errors"], rows)
}

/// Returns each second of the highest rate of each target.
fn timelines(report: &Report) -> Vec<(String, Table)> {
    let mut found = Vec::new();
    for named in &report.targets {
        let cells = report
            .cells
            .iter()
            .filter(|cell| cell.key.target == named.name && !cell.timeline.is_empty());
        let highest = cells.max_by(|a, b| a.key.axis.value.total_cmp(&b.key.axis.value));
        let Some(cell) = highest else { continue };
        let rows = cell.timeline.iter().take(TICKS).enumerate().map(|(second, tick)| {
            let statuses = tick.statuses.iter().map(|(status, n)| format!("{status}: {n}"));
            vec![
                (second + 1).to_string(),
                tick.replies.to_string(),
                time(tick.p50_us),
                time(tick.p99_us),
                statuses.collect::<Vec<_>>().join(", "),
                tick.errors.to_string(),
            ]
        });
        let header = ["second", "replies", "p50", "p99", "statuses", "errors"];
        found.push((name(cell), Table::new(&header, rows.collect())));
    }
    found
}

/// Renders a table whose columns line up even if it is shown as plain text.
pub fn render(Table { header, rows }: &Table) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count().max(3)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, &width)| format!(" {cell:width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let mut out = line(&mut header.iter().map(String::as_str));
    let rules: String = widths.iter().map(|width| "-".repeat(width + 2) + "|").collect();
    let _ = writeln!(out, "|{rules}");
    for row in rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// Shows a number with as many digits as matter.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v == v.trunc() || v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

/// Shows microseconds in the unit that suits them.
pub fn time(us: f64) -> String {
    match us {
        _ if us < 1e3 => format!("{us:.0} us"),
        _ if us < 1e4 => format!("{:.2} ms", us / 1e3),
        _ if us < 1e6 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

fn spread(spread: &Spread, rounds: usize) -> String {
    let Spread { median, min, max } = *spread;
    match rounds {
        1 => number(median),
        _ => format!("{} ({} to {})", number(median), number(min), number(max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.12345, 1.239, 12.34, 999.96, 1234.5, 1_234_567.0, -1234.5];
        let wanted = ["0", "0.123", "1.24", "12.3", "1,000.0", "1,234", "1,234,567", "-1,234"];
        assert_eq!(numbers.map(number), wanted);
        let times = [12.0, 1234.0, 12_345.0, 2_000_000.0].map(time);
        assert_eq!(times, ["12 us", "1.23 ms", "12.3 ms", "2.00 s"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["wider".to_owned(), "x".to_owned()]];
        let text = render(&Table::new(&["a", "long one"], rows));
        assert_eq!(text, "| a     | long one |\n|-------|----------|\n| wider | x        |\n");
    }
}
