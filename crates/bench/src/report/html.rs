//! A result as one page with plots, which loads nothing from elsewhere.

use std::fmt::Write as _;

use super::markdown;
use super::svg::{self, Line, Plot, escape};
use super::{Cell, Report, Table};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:84rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fff}table{border-collapse:collapse;font-size:13px;\
font-variant-numeric:tabular-nums}th,td{border-bottom:1px solid #ddd;padding:.2rem .6rem;\
text-align:left;white-space:nowrap}.wide{overflow-x:auto}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1.5rem}\
svg{width:100%;font:12px system-ui,sans-serif}svg .title{font-size:15px;font-weight:600}\
svg .grid{stroke:#e5e5e5}svg .axis{stroke:#666}.note{font-weight:600}code{font-size:13px}";

/// Axes along which the rate should grow in proportion.
const SCALING: [&str; 4] = ["concurrency", "endpoints", "threads", "processes"];
/// Position at which a percentile of 100 is drawn.
const LAST_NINE: f64 = 99.995;

pub fn page(report: &Report) -> String {
    let mut out = head(report);
    out += "<div class=\"plots\">\n";
    plots(report).iter().for_each(|plot| out += &svg::render(plot));
    out += "</div>\n";
    for (title, table) in markdown::tables(report) {
        let _ = writeln!(out, "<h2>{}</h2>{}", escape(&title), element(&table));
    }
    out + "</body></html>\n"
}

/// Makes the start of a page: what was run, where, and the results.
pub fn head(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>cairn bench {kind}</title><style>{STYLE}</style></head><body>\n\
         <h1>cairn bench {kind}</h1>\n",
        kind = escape(&report.kind)
    );
    let machine = &report.machine;
    let _ = writeln!(
        out,
        "<p><code>{}</code></p><p>{}, {} cores, {} GiB, Linux {}; cairn {}; {}</p><ul>",
        escape(&report.command),
        escape(&machine.cpu),
        machine.cores,
        machine.memory_bytes >> 30,
        escape(&machine.kernel),
        escape(&report.version),
        escape(&report.started)
    );
    for named in &report.targets {
        let _ = writeln!(out, "<li>{}: {}</li>", escape(&named.name), escape(&named.target));
    }
    out += "</ul>\n";
    for line in markdown::closing(report) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&line));
    }
    out
}

pub fn element(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!("<div class=\"wide\"><table>{}{rows}</table></div>", row(&table.header, "th"))
}

pub fn plots(report: &Report) -> Vec<Plot> {
    let mut plots = Vec::new();
    for what in report.loads() {
        let cells: Vec<&Cell> = report.cells.iter().filter(|cell| cell.key.what == what).collect();
        plots.push(throughput(report, what, &cells));
        if cells.iter().any(|cell| cell.latency.count > 0) {
            plots.push(distribution(report, what, &cells));
        }
        if report.kind == "rate" {
            plots.push(times_over_rate(report, &cells));
        }
    }
    plots.extend(report.targets.iter().filter_map(|named| over_time(report, &named.name)));
    plots
}

/// Returns the cells of each target, with its number.
fn by_target<'a>(report: &'a Report, cells: &[&'a Cell]) -> Vec<(usize, &'a str, Vec<&'a Cell>)> {
    let targets = report.targets.iter().enumerate().map(|(number, named)| {
        let own = cells.iter().copied().filter(|cell| cell.key.target == named.name);
        (number, named.name.as_str(), own.collect::<Vec<_>>())
    });
    targets.filter(|(_, _, own)| !own.is_empty()).collect()
}

/// Plots throughput over concurrency, or the quantity that grows; with the values of linear growth.
fn throughput(report: &Report, what: &str, cells: &[&Cell]) -> Plot {
    let axis = cells.first().map_or("", |cell| cell.key.axis.name.as_str());
    let is_bytes = report.kind == "fs" && cells.iter().all(|cell| cell.bytes_per_second.max > 0.0);
    let y =
        |cell: &Cell| if is_bytes { cell.bytes_per_second.median / 1e6 } else { cell.rate.median };
    let mut lines = Vec::new();
    for (color, name, own) in by_target(report, cells) {
        let points: Vec<_> = own.iter().map(|cell| (cell.key.axis.value, y(cell))).collect();
        let (first, last) = (points[0], points[points.len() - 1]);
        lines.push(Line { name: name.to_owned(), points, color, is_dashed: false });
        let ideal = match axis {
            "rate" => Some(vec![(first.0, first.0), (last.0, last.0)]),
            _ if SCALING.contains(&axis) && last.0 > first.0 => {
                // Limits the plot to the part that is worth looking at.
                let top = own.iter().map(|cell| y(cell)).fold(0.0, f64::max) * 1.5;
                let end = (first.0 * top / first.1.max(1e-9)).min(last.0);
                Some(vec![first, (end, first.1 * end / first.0)])
            }
            _ => None,
        };
        let title = if axis == "rate" { "asked for" } else { "ideal" };
        let name = format!("{name}, {title}");
        lines.extend(ideal.map(|points| Line { name, points, color, is_dashed: true }));
    }
    Plot {
        title: format!("{what}: throughput"),
        x_label: axis.to_owned(),
        y_label: if is_bytes { "MB/s" } else { "a second" }.to_owned(),
        lines,
        ..Plot::default()
    }
}

/// Plots times over percentiles, at the highest load of each target.
pub fn distribution(report: &Report, what: &str, cells: &[&Cell]) -> Plot {
    let nines = |percentile: f64| -(1.0 - percentile.min(LAST_NINE) / 100.0).log10();
    let lines = by_target(report, cells).into_iter().filter_map(|(color, name, own)| {
        let cell = own.last()?;
        let curve = &cell.latency.curve_us;
        let points = curve.iter().map(|(percentile, us)| (nines(*percentile), us / 1e3)).collect();
        let axis = &cell.key.axis;
        let name = format!("{name}, {} {}", axis.name, markdown::number(axis.value));
        Some(Line { name, points, color, is_dashed: false })
    });
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];
    Plot {
        title: format!("{what}: distribution of times"),
        x_label: "percentile".to_owned(),
        y_label: "ms".to_owned(),
        x_ticks: ticks.map(|percentile| (nines(percentile), percentile.to_string())).to_vec(),
        is_y_log: true,
        lines: lines.collect(),
    }
}

/// Plots a ramp of rates.
fn times_over_rate(report: &Report, cells: &[&Cell]) -> Plot {
    let mut lines = Vec::new();
    for (number, name, own) in by_target(report, cells) {
        for (offset, kind) in ["p50", "p99"].into_iter().enumerate() {
            let us = |cell: &Cell| match kind {
                "p50" => cell.latency.p50_us,
                _ => cell.latency.p99_us,
            };
            let points = own.iter().map(|cell| (cell.key.axis.value, us(cell) / 1e3)).collect();
            let name = format!("{name}, {kind}");
            lines.push(Line { name, points, color: number * 2 + offset, is_dashed: false });
        }
    }
    Plot {
        title: "Reply times over the rate".to_owned(),
        x_label: "requests a second, planned".to_owned(),
        y_label: "ms".to_owned(),
        is_y_log: true,
        lines,
        ..Plot::default()
    }
}

/// Plots statuses over the seconds of all steps of a ramp.
fn over_time(report: &Report, target: &str) -> Option<Plot> {
    let cells = report.cells.iter().filter(|cell| cell.key.target == target);
    let ticks: Vec<_> = cells.flat_map(|cell| &cell.timeline).collect();
    let mut statuses: Vec<u16> =
        ticks.iter().flat_map(|tick| tick.statuses.keys().copied()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let line = |color: usize, name: String, count: &dyn Fn(&super::Tick) -> u64| {
        let numbered = ticks.iter().enumerate();
        let points = numbered.map(|(second, tick)| ((second + 1) as f64, count(tick) as f64));
        Line { name, points: points.collect(), color, is_dashed: false }
    };
    let mut lines = Vec::new();
    for (color, status) in statuses.iter().enumerate() {
        let count = |tick: &super::Tick| tick.statuses.get(status).copied().unwrap_or(0);
        lines.push(line(color, format!("status {status}"), &count));
    }
    if ticks.iter().any(|tick| tick.errors > 0) {
        lines.push(line(lines.len(), "errors".to_owned(), &|tick| tick.errors));
    }
    if lines.is_empty() {
        return None;
    }
    Some(Plot {
        title: format!("{target}: replies over the seconds of the ramp"),
        x_label: "second".to_owned(),
        y_label: "replies".to_owned(),
        lines,
        ..Plot::default()
    })
}
