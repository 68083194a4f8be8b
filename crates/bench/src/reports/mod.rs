//! `cairn bench reports`: repeats five public reports that examined storage systems.
//!
//! ```text
//!   a scenario ──► lab: starts Cairn and its peers, as processes ──► loads of this crate
//!        └──► a session of its own ──► sections of tables ──► page: JSON, Markdown, HTML
//! ```

mod arguments;
mod ask;
mod files;
mod gateway;
mod lab;
mod page;
mod redirects;
mod scaling;
mod script;
mod tables;
mod writers;

use std::time::Instant;

use clap::ValueEnum;

use crate::error::Result;
use crate::progress;
use crate::report::{Report, Scenario};
use crate::session::{Session, outcome, writable, write};
use crate::stop;
use arguments::Name;
use lab::Lab;
use page::ScenarioRun;
use script::Script;

pub use arguments::ReportsArgs;

pub fn run(args: &ReportsArgs) -> Result<()> {
    args.check()?;
    let names = match args.only.as_slice() {
        [] => Name::value_variants().to_vec(),
        some => Name::value_variants().iter().copied().filter(|name| some.contains(name)).collect(),
    };
    // Output files are opened before anything is measured.
    let saved = [&args.json, &args.html, &args.markdown];
    saved.into_iter().flatten().try_for_each(|path| writable(path))?;
    let needed = names.iter().map(|name| (script(*name).needs)(args)).max().unwrap_or(0);
    Lab::new(args, needed)?.remove()?;
    let mut whole = Session::of_scenario("reports")?.finish();
    let mut done = Vec::new();
    for name in names {
        if stop::is_stopped() {
            break;
        }
        let one = perform(args, name)?;
        merge(args, &mut whole, &one);
        done.push(one);
        save(args, &whole, &done)?;
    }
    if stop::is_stopped() {
        whole.incomplete = Some("stopped by a signal".to_owned());
        save(args, &whole, &done)?;
    }
    progress::line(&page::markdown(&whole));
    outcome(&whole)
}

fn script(name: Name) -> &'static Script {
    match name {
        Name::Gateway => &gateway::SCRIPT,
        Name::Writers => &writers::SCRIPT,
        Name::Scaling => &scaling::SCRIPT,
        Name::Files => &files::SCRIPT,
        Name::Redirects => &redirects::SCRIPT,
    }
}

/// Runs one scenario to its end, successful or not, and removes what it has made.
fn perform(args: &ReportsArgs, name: Name) -> Result<ScenarioRun> {
    let (script, began) = (script(name), Instant::now());
    let mut session = Session::of_scenario(script.kind)?;
    let lab = Lab::new(args, (script.needs)(args))?;
    let running = lab.running.clone();
    session.watch(move || running.ended().map(|name| format!("{name} has ended")));
    session.say(&format!("{}: starting", name.text()));
    let ran = (script.run)(&lab, &mut session);
    let mut report = session.finish();
    if !stop::is_stopped() {
        let failed = ran.err().map(|error| error.to_string());
        let why: Vec<String> =
            report.incomplete.take().into_iter().chain(failed).chain(lab.fallen()).collect();
        report.incomplete = (!why.is_empty()).then(|| why.join("; "));
    }
    if let Err(error) = lab.remove() {
        report.incomplete.get_or_insert(error.to_string());
    }
    Ok(ScenarioRun { name, report, seconds: began.elapsed().as_secs_f64() })
}

/// Adds the results of a scenario to the whole result.
fn merge(args: &ReportsArgs, whole: &mut Report, done: &ScenarioRun) {
    let (name, script, report) = (done.name.text(), script(done.name), &done.report);
    let within = |what: &str| format!("{name}: {what}");
    whole.scenarios.push(Scenario {
        name: name.clone(),
        title: script.title.to_owned(),
        about: script.about.to_owned(),
        seconds: done.seconds,
        sections: (script.sections)(args, report),
        incomplete: report.incomplete.clone(),
    });
    for cell in &report.cells {
        let mut cell = cell.clone();
        cell.key.what = within(&cell.key.what);
        whole.cells.push(cell);
    }
    for finding in &report.findings {
        let mut finding = finding.clone();
        finding.what = within(&finding.what);
        whole.findings.push(finding);
    }
    for named in report.targets.iter() {
        if !whole.targets.iter().any(|known| known.name == named.name) {
            whole.targets.push(named.clone());
        }
    }
    for named in &report.absent {
        let mut named = named.clone();
        named.name = within(&named.name);
        whole.absent.push(named);
    }
    if let Some(why) = &report.incomplete {
        let before = whole.incomplete.take().map_or(String::new(), |before| before + "; ");
        whole.incomplete = Some(format!("{before}{name}: {why}"));
    }
}

/// Saves the results so far, so that they are kept even if the next scenario ends the program.
fn save(args: &ReportsArgs, whole: &Report, done: &[ScenarioRun]) -> Result<()> {
    if let Some(path) = &args.json {
        whole.save(path)?;
    }
    if let Some(path) = &args.markdown {
        write(path, &(page::markdown(whole) + "\n"))?;
    }
    if let Some(path) = &args.html {
        write(path, &page::html(whole, done))?;
    }
    Ok(())
}
