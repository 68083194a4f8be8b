//! `cairn bench reports`: five public reports that took storage systems apart, repeated.
//!
//! ```text
//!   a scenario ──► lab: starts Cairn and its peers, as processes ──► loads of this crate
//!        └──► a session of its own ──► sections of tables ──► page: JSON, Markdown, HTML
//! ```

mod ask;
mod files;
mod gateway;
mod lab;
mod page;
mod redirects;
mod scaling;
mod tables;
mod writers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::progress;
use crate::report::{Report, Scenario, Section};
use crate::session::{Session, outcome, writable, write};
use crate::stop;
use crate::values;
use lab::Lab;

/// Repeat five public reports on storage systems, with Cairn and with its peers
///
/// Each scenario starts what it measures on this machine, in a directory of its own below --dir,
/// and removes it: clusters of Cairn, and nginx, lighttpd, GlusterFS and PostgreSQL where they are
/// installed. Mounts and CPU quotas need root; what cannot be had is named in the tables.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench reports --dir /var/tmp --html reports.html --markdown reports.md
  cairn bench reports --only gateway,redirects --seconds 5 --rounds 3
  cairn bench reports --only files --beside nfs=/mnt/nfs
  cairn bench reports --only scaling --object 10g --part 64m --threads 1,8,32 --share 100")]
pub struct Args {
    /// Only these of the scenarios
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    only: Vec<Name>,
    /// Where data and sockets are kept meanwhile: on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The program of Cairn to start [default: this one]
    #[arg(long, value_name = "PATH")]
    cairn: Option<PathBuf>,
    /// How long each load runs that has no end of its own, each time
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// How often each load runs; results are medians
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = values::count)]
    rounds: usize,
    #[command(flatten)]
    sizes: Sizes,
    /// Save all of it, for `cairn bench diff` and programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Save it as a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save what is printed
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// How large everything is.
#[derive(clap::Args)]
struct Sizes {
    /// gateway: clients at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,5,10,20")]
    #[arg(value_parser = values::count)]
    clients: Vec<usize>,
    /// gateway, redirects: bytes of the object
    #[arg(long, value_name = "SIZE", default_value = "155k", value_parser = some_size)]
    size: u64,
    /// gateway: the quota of PostgreSQL, percent of a CPU
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    database_quota: f64,
    /// writers: writers and readers at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = values::count)]
    writers: Vec<usize>,
    /// writers: bytes of the file of each
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = some_size)]
    file: u64,
    /// scaling: gateways
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count)]
    gateways: usize,
    /// scaling: what each of them may use, percent of a CPU
    #[arg(long, value_name = "PERCENT", default_value = "4", value_parser = percent)]
    share: f64,
    /// scaling: bytes of the object that is sent in parts and read in ranges
    #[arg(long, value_name = "SIZE", default_value = "120m", value_parser = some_size)]
    object: u64,
    /// scaling: bytes of a part or range
    #[arg(long, value_name = "SIZE", default_value = "5m", value_parser = some_size)]
    part: u64,
    /// scaling: requests at the same time, of each gateway
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16")]
    #[arg(value_parser = values::count)]
    threads: Vec<usize>,
    /// files: how many of each size
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count)]
    files: usize,
    /// files: how often each is served
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count)]
    notifications: usize,
    /// files: their sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "430,93k")]
    #[arg(value_parser = some_size)]
    file_sizes: Vec<u64>,
    /// writers, files: another directory to be measured with the others, such as a mount of NFS
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    beside: Vec<(String, PathBuf)>,
    /// redirects: look-ups a second, one step after another
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::rate)]
    #[arg(default_value = "1000,2000,5000,10000,20000,40000,60000,80000")]
    rates: Vec<f64>,
}

/// S3's limit, but for the last part.
const PART_MIN: u64 = 5 << 20;

/// A public report.
#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Name {
    /// A store behind an HTTP service and a TLS gateway: reads over clients, layer by layer
    Gateway,
    /// A mount: whether several writers are faster than one
    Writers,
    /// S3 gateways, from one to five
    Scaling,
    /// Small files served from file systems and by HTTP
    Files,
    /// Look-ups that are answered with a redirect, at a rate
    Redirects,
}

/// What makes a scenario.
struct Script {
    title: &'static str,
    about: &'static str,
    /// What of [`Report::kind`] its loads are.
    kind: &'static str,
    /// Bytes on the disk, about.
    needs: fn(&Args) -> u64,
    run: fn(&Lab, &mut Session) -> Result<()>,
    sections: fn(&Args, &Report) -> Vec<Section>,
}

impl Name {
    fn text(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn script(self) -> &'static Script {
        match self {
            Name::Gateway => &gateway::SCRIPT,
            Name::Writers => &writers::SCRIPT,
            Name::Scaling => &scaling::SCRIPT,
            Name::Files => &files::SCRIPT,
            Name::Redirects => &redirects::SCRIPT,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches('s').parse::<f64>().ok();
    match number.filter(|number| (0.05..=3600.0).contains(number)) {
        Some(number) => Ok(Duration::from_secs_f64(number)),
        None => Err(format!("{text:?} is not a number of seconds from 0.05 to 3600")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (1.0..=10_000.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a percentage from 1 to 10000 (100 is one CPU)")),
    }
}

fn some_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("must be more than nothing: for example 1m".to_owned()),
        some => Ok(some),
    }
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(dir)))
        }
        _ => Err(format!("{text:?}: write NAME=DIR")),
    }
}

/// One scenario that ran.
struct Done {
    name: Name,
    report: Report,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<()> {
    args.check()?;
    let names = match args.only.as_slice() {
        [] => Name::value_variants().to_vec(),
        some => Name::value_variants().iter().copied().filter(|name| some.contains(name)).collect(),
    };
    // Whatever is to be saved is made sure of before anything is measured.
    let saved = [&args.json, &args.html, &args.markdown];
    saved.into_iter().flatten().try_for_each(|path| writable(path))?;
    let needed = names.iter().map(|name| (name.script().needs)(args)).max().unwrap_or(0);
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

impl Args {
    fn check(&self) -> Result<()> {
        let sizes = &self.sizes;
        if sizes.part > sizes.object {
            return Err(Error::usage("--part is larger than --object: make it smaller"));
        }
        if sizes.part < PART_MIN && sizes.part < sizes.object {
            return Err(Error::usage("--part: S3 takes parts of at least 5m: make it larger"));
        }
        if sizes.size > 1 << 30 || sizes.file_sizes.iter().any(|size| *size > 1 << 30) {
            return Err(Error::usage("--size and --file-sizes are at most 1g: make them smaller"));
        }
        if sizes.gateways > 64 {
            return Err(Error::usage("--gateways: at most 64"));
        }
        Ok(())
    }

    /// The largest of a list.
    fn most(list: &[usize]) -> usize {
        list.iter().copied().max().unwrap_or(1)
    }
}

/// Starts a peer; where it is not there, the result says why.
fn peer<T>(session: &mut Session, name: &str, start: impl FnOnce() -> Result<T>) -> Option<T> {
    session.say(&format!("starting {name}"));
    match start() {
        Ok(started) => Some(started),
        Err(error) => {
            session.absent(name, error);
            None
        }
    }
}

/// Runs one scenario to its end, whatever that is, and removes what it has made.
fn perform(args: &Args, name: Name) -> Result<Done> {
    let (script, began) = (name.script(), Instant::now());
    let mut session = Session::of_scenario(script.kind)?;
    let lab = Lab::new(args, (script.needs)(args))?;
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
    Ok(Done { name, report, seconds: began.elapsed().as_secs_f64() })
}

/// Adds what a scenario found to the result of all.
fn merge(args: &Args, whole: &mut Report, done: &Done) {
    let (name, script, report) = (done.name.text(), done.name.script(), &done.report);
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

/// Saves what there is, so that it is there also if all ends in the next scenario.
fn save(args: &Args, whole: &Report, done: &[Done]) -> Result<()> {
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
