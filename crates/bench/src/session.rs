//! A run of several loads on several targets, alternately, so that changes of the machine meanwhile
//! affect all targets.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::client::without_secret;
use crate::error::{Error, Result};
use crate::load::Sample;
use crate::machine::Machine;
use crate::progress;
use crate::report::{Cell, Finding, Key, NamedTarget, Report, Round, SCHEMA, Tick, html, markdown};
use crate::stats::Spread;
use crate::stop;

/// Where results go.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Save the result as JSON, for `cairn bench diff` and programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Save the result as a page of HTML with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A load that can be run repeatedly.
pub struct Case<'a> {
    pub key: Key,
    pub run: Box<dyn FnMut() -> Result<Sample> + 'a>,
}

pub struct Session {
    report: Report,
    output: Output,
    found: Vec<(Key, Vec<Sample>)>,
    bar: ProgressBar,
    /// Returns the reason why there is nothing more to measure, if so.
    watch: Box<dyn Fn() -> Option<String>>,
}

impl Session {
    /// Begins a session. Fails if its results could not be saved.
    pub fn begin(kind: &str, targets: Vec<NamedTarget>, output: &Output) -> Result<Session> {
        let session = Session::start(kind, targets, output)?;
        [&output.json, &output.html].into_iter().flatten().try_for_each(|path| writable(path))?;
        Ok(session)
    }

    fn start(kind: &str, targets: Vec<NamedTarget>, output: &Output) -> Result<Session> {
        for (number, named) in targets.iter().enumerate() {
            if targets.iter().take(number).any(|other| other.name == named.name) {
                let name = &named.name;
                return Err(Error::usage(format!("two targets are named {name}: rename one")));
            }
        }
        let started = OffsetDateTime::now_utc();
        let report = Report {
            schema: SCHEMA.to_owned(),
            kind: kind.to_owned(),
            command: command_line(env::args()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.format(&Rfc3339).unwrap_or_default(),
            machine: Machine::this(),
            targets,
            cells: Vec::new(),
            findings: Vec::new(),
            incomplete: None,
            absent: Vec::new(),
            scenarios: Vec::new(),
        };
        let bar = progress::bar(0);
        let (output, watch) = (output.clone(), Box::new(|| None));
        Ok(Session { report, output, found: Vec::new(), bar, watch })
    }

    /// Begins a session of a run of several, whose result is shown with the others.
    pub fn of_scenario(name: &str) -> Result<Session> {
        Session::start(name, Vec::new(), &Output { json: None, html: None })
    }

    /// Asks `watch` before and after each load whether the run is over, and why.
    pub fn watch(&mut self, watch: impl Fn() -> Option<String> + 'static) {
        self.watch = Box::new(watch);
    }

    /// Adds a target.
    pub fn target(&mut self, name: &str, target: impl Display) {
        self.report.targets.push(NamedTarget { name: name.to_owned(), target: target.to_string() });
    }

    /// Notes a target that is not there to be measured, and the reason.
    pub fn absent(&mut self, name: &str, why: impl Display) {
        self.report.absent.push(NamedTarget { name: name.to_owned(), target: why.to_string() });
    }

    /// Shows the current step to a person at the terminal.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Runs all cases `rounds` times; the targets of one load in turn, in an order that rotates.
    pub fn run(&mut self, mut cases: Vec<Case>, rounds: usize) {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (number, Case { key, .. }) in cases.iter().enumerate() {
            let same = |group: &&mut Vec<usize>| {
                let first = &cases[group[0]].key;
                (&first.what, &first.axis) == (&key.what, &key.axis)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(number),
                None => groups.push(vec![number]),
            }
        }
        self.bar.inc_length((cases.len() * rounds) as u64);
        for round in 0..rounds {
            for group in &groups {
                for turn in 0..group.len() {
                    let case = &mut cases[group[(turn + round) % group.len()]];
                    if !self.measure(case.key.clone(), &mut case.run) {
                        return;
                    }
                }
            }
        }
    }

    /// Announces `steps` more steps.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Runs one load. Returns false if the run is over, and no other may follow.
    pub fn measure(&mut self, key: Key, load: &mut dyn FnMut() -> Result<Sample>) -> bool {
        self.look();
        if self.is_over() {
            return false;
        }
        let (name, value) = (&key.axis.name, key.axis.value);
        self.bar.set_message(format!("{}: {}, {name} {value}", key.target, key.what));
        match load() {
            Ok(sample) => {
                let broken = sample.broken.as_ref().map(|why| format!("{}: {why}", key.target));
                self.report.incomplete = broken;
                match self.found.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, samples)) => samples.push(sample),
                    None => self.found.push((key, vec![sample])),
                }
            }
            Err(error) => self.report.incomplete = Some(format!("{}: {error}", key.target)),
        }
        self.bar.inc(1);
        self.look();
        !self.is_over()
    }

    /// Checks the targets: a target may be gone without a failed request, if another program has
    /// its port, or no request was sent to it.
    fn look(&mut self) {
        if self.report.incomplete.is_none() {
            self.report.incomplete = (self.watch)();
        }
    }

    /// Returns the latest sample of a load.
    pub fn latest(&self, key: &Key) -> Option<&Sample> {
        self.found.iter().find(|(known, _)| known == key)?.1.last()
    }

    pub fn found(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    pub fn is_over(&self) -> bool {
        self.report.incomplete.is_some() || stop::is_stopped()
    }

    /// Prints and saves the results. Fails if they are incomplete.
    pub fn end(self) -> Result<()> {
        let output = self.output.clone();
        let report = self.finish();
        progress::line(&markdown::page(&report));
        if let Some(path) = &output.json {
            report.save(path)?;
        }
        if let Some(path) = &output.html {
            write(path, &html::page(&report))?;
        }
        outcome(&report)
    }

    /// Returns the report of all findings.
    pub fn finish(mut self) -> Report {
        self.bar.finish_and_clear();
        if stop::is_stopped() {
            self.report.incomplete = Some("stopped by a signal".to_owned());
        }
        self.report.cells = self.found.iter().filter_map(|(key, found)| cell(key, found)).collect();
        // A search measures in a different order.
        if self.report.kind == "rate" {
            self.report.cells.sort_by(|a, b| a.key.axis.value.total_cmp(&b.key.axis.value));
        }
        self.report
    }
}

/// Returns an error if a result is incomplete.
pub fn outcome(report: &Report) -> Result<()> {
    match &report.incomplete {
        Some(why) if report.cells.is_empty() => Err(Error::failed(why)),
        Some(why) => Err(Error::failed(format!("{why}: the results measured until then are kept"))),
        None => Ok(()),
    }
}

/// Fails if a result could not be saved at `path`.
pub fn writable(path: &Path) -> Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| Error::file(path, error))
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::file(path, error))
}

/// Returns the command line in the form in which it may be saved.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for (number, arg) in args.enumerate() {
        let before = shown.last().map(String::as_str);
        let text = match before {
            _ if number == 0 => "cairn".to_owned(),
            Some("-H" | "--header" | "--secret") => "...".to_owned(),
            _ => match arg.split_once('=') {
                Some((option @ ("--header" | "--secret"), _)) => format!("{option}=..."),
                Some((name, url)) if url.contains("://") => {
                    format!("{name}={}", without_secret(url))
                }
                _ if arg.starts_with("-H") && arg.len() > 2 => "-H...".to_owned(),
                _ => without_secret(&arg),
            },
        };
        shown.push(text);
    }
    shown.join(" ")
}

fn cell(key: &Key, samples: &[Sample]) -> Option<Cell> {
    let mut all = samples.first()?.tally.clone();
    samples.iter().skip(1).for_each(|sample| all.add(&sample.tally));
    let spread = |number: fn(&Sample) -> f64| Spread::of(samples.iter().map(number));
    let median = |number: fn(&Sample) -> f64| spread(number).map(|spread| spread.median);
    let rounds = samples.iter().map(|sample| Round {
        rate: sample.rate(),
        bytes_per_second: sample.bytes_rate(),
        p50_us: sample.tally.latency.us_at(50.0),
        p99_us: sample.tally.latency.us_at(99.0),
    });
    let phases = [
        ("dns", &all.phases.dns),
        ("connect", &all.phases.connect),
        ("tls", &all.phases.tls),
        ("first_byte", &all.phases.first_byte),
        ("transfer", &all.phases.transfer),
    ];
    let phases = phases.into_iter().filter(|(_, times)| times.count() > 0);
    let first = samples.first()?;
    let ticks = first.tally.seconds.iter().map(|second| Tick {
        replies: second.replies,
        p50_us: second.latency.us_at(50.0),
        p99_us: second.latency.us_at(99.0),
        statuses: second.statuses.clone(),
        errors: second.errors,
    });
    Some(Cell {
        key: key.clone(),
        rate: spread(Sample::rate)?,
        bytes_per_second: spread(Sample::bytes_rate)?,
        latency: all.latency.times(),
        rounds: rounds.collect(),
        phases: phases.map(|(name, times)| (name.to_owned(), times.times())).collect(),
        statuses: all.statuses.clone(),
        errors: all.errors.clone(),
        connections: all.connections,
        late: all.late,
        unsent: samples.iter().map(|sample| sample.unsent).sum(),
        client_cores: median(|sample| sample.client_cores)?,
        server_cores: Spread::of(samples.iter().filter_map(|sample| sample.server_cores))
            .map(|spread| spread.median),
        timeline: ticks.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_shown_without_secrets() {
        let args = "/bin/cairn bench s3 http://key:hidden@host/ --compare a=http://k:hidden@b/ \
                    --secret hidden --secret=hidden -H hidden -Hhidden --header=hidden";
        let shown = command_line(args.split_whitespace().map(str::to_owned));
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(shown.starts_with("cairn bench s3 http://host/ --compare a=http://b/ "), "{shown}");
    }
}
