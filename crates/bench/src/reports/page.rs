//! All scenarios on one page.

use std::fmt::Write as _;

use super::arguments::Name;
use crate::report::html::{distribution, element, head, plots};
use crate::report::markdown::{heading, render};
use crate::report::svg::{self, Plot, escape};
use crate::report::{Report, Scenario, Section};

/// A scenario that ran.
pub struct ScenarioRun {
    pub name: Name,
    pub report: Report,
    pub seconds: f64,
}

pub fn markdown(whole: &Report) -> String {
    let mut out = heading(&Report { targets: Vec::new(), ..whole.clone() });
    for scenario in &whole.scenarios {
        let Scenario { name, title, about, seconds, .. } = scenario;
        let _ = write!(out, "\n## {name}: {title}\n\n{about} ({seconds:.0} s)\n");
        for Section { title, table, note } in &scenario.sections {
            let _ = write!(out, "\n{title}\n\n{}", render(table));
            if !note.is_empty() {
                let _ = write!(out, "\n{note}\n");
            }
        }
        if let Some(why) = &scenario.incomplete {
            let _ = write!(out, "\nIncomplete: {why}\n");
        }
    }
    if let Some(why) = &whole.incomplete {
        let _ = write!(out, "\nIncomplete: {why}\n");
    }
    out.trim_end().to_owned()
}

pub fn html(whole: &Report, done: &[ScenarioRun]) -> String {
    // Facts in its tables are not repeated.
    let bare = Report { targets: Vec::new(), findings: Vec::new(), ..whole.clone() };
    let mut out = head(&bare);
    for (scenario, one) in whole.scenarios.iter().zip(done) {
        let Scenario { name, title, about, seconds, .. } = scenario;
        let (title, about) = (escape(title), escape(about));
        let _ =
            writeln!(out, "<h2 id=\"{name}\">{name}: {title}</h2><p>{about} ({seconds:.0} s)</p>");
        if let Some(why) = &scenario.incomplete {
            let _ = writeln!(out, "<p class=\"note\">Incomplete: {}</p>", escape(why));
        }
        for Section { title, table, note } in &scenario.sections {
            let _ = writeln!(out, "<h3>{}</h3>{}", escape(title), element(table));
            if !note.is_empty() {
                let _ = writeln!(out, "<p>{}</p>", escape(note));
            }
        }
        out += "<div class=\"plots\">\n";
        drawn(&one.report).iter().for_each(|plot| out += &svg::render(plot));
        out += "</div>\n";
    }
    out + "</body></html>\n"
}

/// Plots the loads of which something grows; if there are none, the distribution of times.
fn drawn(report: &Report) -> Vec<Plot> {
    let mut kept = report.clone();
    let grows = |what: &str| {
        let mut values = report.cells.iter().filter(|cell| cell.key.what == what);
        let first = values.next().map(|cell| cell.key.axis.value);
        values.any(|cell| Some(cell.key.axis.value) != first)
    };
    kept.cells.retain(|cell| grows(&cell.key.what));
    if !kept.cells.is_empty() {
        return plots(&kept);
    }
    let of = |what: &str| {
        let cells = report.cells.iter().filter(|cell| cell.key.what == what);
        distribution(report, what, &cells.collect::<Vec<_>>())
    };
    report.loads().into_iter().map(of).collect()
}
