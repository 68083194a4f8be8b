//! Small files, served from file systems and by HTTP. The report served the same files of 430 bytes
//! and 93 KB from a local file system, an NFS server and Gluster. Gluster was served through FUSE
//! (18 times slower) and NFS, with 100 notifications a file.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{self, BUCKET, Paths, plan};
use super::lab::{Ganesha, Gluster, Lab, Nginx};
use super::script::{Script, peer};
use super::tables::{absent, by_target, ratio, section};
use super::writers::{CAIRN, LOCAL, MeasuredPlace, beside, mounted, place};
use crate::client::Target;
use crate::closed_loop::noise;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Sample, Tally};
use crate::nfs::client::{Export, open_again, read_first};
use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Axis, Cell, Finding, Key, Report, Section};
use crate::session::{Case, Session};
use crate::stop;
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "small files, served",
    about: "The report: files of 430 bytes and 93 KB, served from a local file system, a NetApp, \
            Gluster over FUSE (18 times slower) and Gluster over NFS, with 100 notifications a \
            file. Here: each file opened, read and closed, or fetched over a connection that is \
            kept, by one client: once each, and then 100 times each.",
    kind: "fs",
    needs: |args| {
        let sizes = &args.sizes;
        let one: u64 = sizes.file_sizes.iter().map(|size| size + 8192).sum();
        (1 << 30) + one * sizes.files as u64 * (5 + sizes.beside.len() as u64)
    },
    run,
    sections,
};

const HTTP: &str = "Cairn HTTP";
const GLUSTER: &str = "GlusterFS, FUSE";
const NFS: &str = "Cairn NFS";
const GANESHA: &str = "nfs-ganesha";
const WEB: &str = "nginx over ";
/// Calls of Linux' client for a file that it reads for the first time, and that it opens again.
const CALLS: (f64, f64) = (3.0, 1.0);

/// An export and its client.
struct ServedExport {
    name: &'static str,
    export: Export,
    pid: u32,
}

/// Number of calls for a file, by target and load.
type CountFindings = RefCell<Vec<Finding>>;

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    let local = lab.directory("local")?;
    let mut places = vec![MeasuredPlace { name: LOCAL.to_owned(), path: local, pids: Vec::new() }];
    session.target(LOCAL, lab.args.dir.display());
    let cairn = peer(session, CAIRN, || mounted(lab, &["--nfs", "127.0.0.1:0"]));
    let (mut door, mut exports) = (None, Vec::new());
    if let Some((mount, server)) = &cairn {
        let pids = vec![server.process.id(), mount.process.id()];
        session.target(CAIRN, &server.http);
        session.target(HTTP, &server.http);
        let path = mount.path().join(BUCKET);
        places.push(MeasuredPlace { name: CAIRN.to_owned(), path, pids });
        door = Some((server.http.clone(), server.process.id()));
        let export = peer(session, NFS, || Export::parse(&server.export(lab, BUCKET)?));
        let pid = server.process.id();
        exports.extend(export.map(|export| ServedExport { name: NFS, export, pid }));
    } else {
        for name in [HTTP, NFS] {
            session.absent(name, "not measured: its files are made through the mount");
        }
    }
    let gluster = Gluster::start(lab);
    let volume = peer(session, GLUSTER, || match &gluster {
        Ok(gluster) => gluster.volume(lab, 1, &[], &[]),
        Err(error) => Err(Error::failed(error.to_string())),
    });
    if let Some(volume) = &volume {
        session.target(GLUSTER, volume.path().display());
        places.push(place(GLUSTER, volume));
    }
    let others = beside(lab, session)?;
    places.extend(others.iter().map(|(name, scratch)| MeasuredPlace {
        name: name.clone(),
        path: scratch.path().to_owned(),
        pids: Vec::new(),
    }));
    let web = peer(session, "nginx", || Nginx::start(lab, "auto"));
    if let Some(web) = &web {
        for (number, place) in places.iter().enumerate() {
            web.serve(&number.to_string(), &place.path)?;
        }
    }
    session.say("making files");
    let made = |place: &MeasuredPlace| {
        lab.args.sizes.file_sizes.iter().try_for_each(|&size| make(lab.args, place, size))
    };
    places.iter().try_for_each(made)?;
    let ganesha = peer(session, GANESHA, || Ganesha::start(lab));
    if let Some(ganesha) = &ganesha {
        let (name, path) = (GANESHA.to_owned(), ganesha.root.clone());
        made(&MeasuredPlace { name, path, pids: Vec::new() })?;
        let (export, pid) = (Export::parse(&ganesha.url)?, ganesha.process.id());
        exports.push(ServedExport { name: GANESHA, export, pid });
    }
    for served in &exports {
        session.target(served.name, &served.export);
    }
    for place in places.iter().filter(|_| web.is_some()) {
        session.target(&format!("{WEB}{}", place.name), place.path.display());
    }
    let counted = CountFindings::default();
    let scene = Scene { lab, places: &places, door, exports: &exports, web: web.as_ref() };
    session.run(scene.cases(&counted), lab.args.rounds);
    counted.into_inner().into_iter().for_each(|finding| session.found(finding));
    others.into_iter().try_for_each(|(_, scratch)| scratch.remove())
}

/// Everything that is measured.
struct Scene<'a> {
    lab: &'a Lab<'a>,
    places: &'a [MeasuredPlace],
    door: Option<(Target, u32)>,
    exports: &'a [ServedExport],
    web: Option<&'a Nginx>,
}

impl<'a> Scene<'a> {
    fn cases(&self, counted: &'a CountFindings) -> Vec<Case<'a>> {
        let mut cases = Vec::new();
        for &size in &self.lab.args.sizes.file_sizes {
            for times in [1, self.lab.args.sizes.notifications] {
                self.of_places(size, times, counted, &mut cases);
                self.of_web(size, times, &mut cases);
                for served in self.exports {
                    let files = self.lab.args.sizes.files;
                    let run = move || serve_nfs(served, files, size, times, counted);
                    cases.push(Case { key: key(served.name, size, times), run: Box::new(run) });
                }
            }
        }
        cases
    }

    fn of_places(
        &self,
        size: u64,
        times: usize,
        counted: &'a CountFindings,
        cases: &mut Vec<Case<'a>>,
    ) {
        let (lab, files) = (self.lab, self.lab.args.sizes.files);
        for place in self.places {
            let paths: Vec<_> = (0..files).map(|n| place.path.join(file(size, n))).collect();
            let run = move || {
                let is_cairn = place.name == CAIRN;
                let before = is_cairn.then(|| Requests::of(lab, place)).flatten();
                let sample = serve(&paths, size, times, &place.pids);
                let after = is_cairn.then(|| Requests::of(lab, place)).flatten();
                if let (Some(before), Some(after)) = (before, after) {
                    let all = (files * times) as f64;
                    let mut counted = counted.borrow_mut();
                    for (kind, spent) in [
                        (KERNEL, after.kernel - before.kernel),
                        (SERVER, after.server - before.server),
                    ] {
                        counted.push(finding(kind, CAIRN, size, times, spent / all));
                    }
                }
                Ok(sample)
            };
            cases.push(Case { key: key(&place.name, size, times), run: Box::new(run) });
        }
    }

    /// Adds the HTTP door, and a web server over each file system.
    fn of_web(&self, size: u64, times: usize, cases: &mut Vec<Case<'a>>) {
        let (lab, files) = (self.lab, self.lab.args.sizes.files);
        let mut asked = Vec::new();
        if let Some((target, pid)) = &self.door {
            asked.push((HTTP.to_owned(), target.clone(), vec![*pid], format!("/storage/{BUCKET}")));
        }
        for (number, place) in self.places.iter().enumerate() {
            let Some(web) = self.web else { continue };
            let pids = [place.pids.as_slice(), &[web.process.id()]].concat();
            let name = format!("{WEB}{}", place.name);
            asked.push((name, web.plain.clone(), pids, format!("/live/{number}")));
        }
        for (name, target, pids, base) in asked {
            let paths = (0..files).map(|n| format!("{base}/{}", file(size, n)));
            let paths: Vec<String> = paths.collect();
            let run = move || {
                let paths = Paths::Each(paths.clone(), times as u64);
                let work = ask::LoadRequests::new(&target, Method::GET, paths)?;
                let mut plan = plan(lab, std::slice::from_ref(&target), work, 1, &pids);
                plan.pace = Pace::Closed { warm_up: Duration::ZERO, duration: None };
                load::run(&plan)
            };
            cases.push(Case { key: key(&name, size, times), run: Box::new(run) });
        }
    }
}

const KERNEL: &str = "requests of the kernel";
const SERVER: &str = "calls to the server";

/// Number of requests that a mount got, and of calls that it made.
struct Requests {
    kernel: f64,
    server: f64,
}

impl Requests {
    fn of(lab: &Lab, place: &MeasuredPlace) -> Option<Requests> {
        let mount = place.path.parent()?.to_str()?;
        let said = lab.run_cairn(&["stats", mount]).ok()?;
        let mut asked = Requests { kernel: 0.0, server: 0.0 };
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = words.get(1).and_then(|word| word.parse::<f64>().ok());
            match (words.as_slice(), number) {
                (["session_calls", _], Some(count)) => asked.server = count,
                // Lines of operations have times beside their counts.
                ([_, _, _, ..], Some(count)) => asked.kernel += count,
                _ => {}
            }
        }
        Some(asked)
    }
}

fn finding(kind: &str, target: &str, size: u64, times: usize, value: f64) -> Finding {
    let what = format!("{kind}: {}", what(size, times));
    Finding { target: target.to_owned(), what, value: Some(value) }
}

fn file(size: u64, number: usize) -> String {
    format!("served-{size}-{number}")
}

fn what(size: u64, times: usize) -> String {
    let size = human_size(size);
    match times {
        1 => format!("files of {size}, once each"),
        _ => format!("files of {size}, {times} times each"),
    }
}

fn key(target: &str, size: u64, times: usize) -> Key {
    let axis = Axis { name: "threads".to_owned(), value: 1.0 };
    Key { target: target.to_owned(), what: what(size, times), axis }
}

fn make(args: &ReportsArgs, place: &MeasuredPlace, size: u64) -> Result<()> {
    let body = noise(size as usize);
    for number in 0..args.sizes.files {
        if stop::is_stopped() {
            break;
        }
        let path = place.path.join(file(size, number));
        fs::write(&path, &body).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::StorageFull => ": free some space, or give fewer --files",
                _ => "",
            };
            Error::failed(format!("{}: {}: {error}{why}", place.name, path.display()))
        })?;
    }
    Ok(())
}

/// Opens, reads and closes each file `times` times.
fn serve(paths: &[PathBuf], size: u64, times: usize, server: &[u32]) -> Sample {
    let mut body = vec![0; size as usize];
    measure(paths.len(), size, times, server, |number, _| {
        let Some(path) = paths.get(number) else { return Ok(()) };
        let done = read(path, &mut body);
        done.map_err(|error| Error::file(path, error))
    })
}

/// Makes the calls of Linux' client when each file is opened and read `times` times: it remembers
/// the bytes.
fn serve_nfs(
    served: &ServedExport,
    files: usize,
    size: u64,
    times: usize,
    counted: &CountFindings,
) -> Result<Sample> {
    let directory = served.export.mount()?;
    let mut connection = served.export.connect()?;
    let mut handle = Vec::new();
    let (first, again) = CALLS;
    let calls = (first + again * (times - 1) as f64) / times as f64;
    counted.borrow_mut().push(finding(SERVER, served.name, size, times, calls));
    Ok(measure(files, size, times, &[served.pid], |number, turn| match turn {
        0 => {
            let name = file(size, number);
            handle = read_first(&mut connection, &directory, &name, size as u32)?;
            Ok(())
        }
        _ => open_again(&mut connection, &handle),
    }))
}

/// Does something with each file `times` times.
fn measure(
    files: usize,
    size: u64,
    times: usize,
    server: &[u32],
    mut work: impl FnMut(usize, usize) -> Result<()>,
) -> Sample {
    let mut tally = Tally::default();
    let (client, server_pids) = (Processes::this(), Processes::of(server));
    let (client_mark, server_mark) = (client.mark(), server_pids.mark());
    let began = Instant::now();
    let mut broken = None;
    for number in 0..files {
        for turn in 0..times {
            if stop::is_stopped() || broken.is_some() {
                break;
            }
            let begun = Instant::now();
            match work(number, turn) {
                Ok(()) => {
                    tally.latency.record(begun.elapsed());
                    tally.in_time += 1;
                    tally.bytes_in_time += size;
                }
                Err(error) => broken = Some(error.to_string()),
            }
        }
    }
    Sample {
        began,
        seconds: began.elapsed().as_secs_f64().max(1e-9),
        asked: tally.replies(),
        unsent: 0,
        tally,
        client_cores: client.cores_since(&client_mark),
        server_cores: (!server.is_empty()).then(|| server_pids.cores_since(&server_mark)),
        broken,
    }
}

fn read(path: &Path, body: &mut [u8]) -> io::Result<()> {
    File::open(path)?.read_exact(body)
}

fn sections(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let mut found = Vec::new();
    for &size in &args.sizes.file_sizes {
        for times in [1, args.sizes.notifications] {
            let what = what(size, times);
            let targets = by_target(report, &what);
            let first = targets.first().and_then(|(_, cells)| cells.first());
            let local = first.map(|cell| cell.latency.mean_us);
            let rows = targets.iter().filter_map(|(target, cells)| {
                let cell = cells.first()?;
                Some(row(report, target, cell, local))
            });
            let mut table = Table::new(&HEADER, rows.collect());
            if table.rows.is_empty() {
                continue;
            }
            absent(report, &mut table, |_| true);
            let note = match times {
                1 => {
                    "Read for the first time since they were made; where they are cached then \
                      differs. Over NFS a client in user space makes the calls of Linux' client: \
                      LOOKUP, ACCESS and READ."
                }
                _ => {
                    "Over NFS a client in user space makes the calls of Linux' client: GETATTR, \
                     when a file is opened again."
                }
            };
            found.push(section(&what, table, note));
        }
    }
    found
}

const HEADER: [&str; 11] = [
    "",
    "avg",
    "min",
    "p50",
    "p99",
    "max",
    "files a second",
    "of local, avg",
    "calls a file",
    "CPU of servers",
    "CPU of the client",
];
/// Least CPU time that says anything: the kernel counts it in ticks.
const LEAST_CPU_SECONDS: f64 = 0.05;

/// Shows the CPU time for a file if this many cores were in use.
fn cpu(cell: &Cell, cores: Option<f64>) -> String {
    let Some(cores) = cores else { return String::new() };
    let files = cell.latency.count as f64 / cell.rounds.len().max(1) as f64;
    let seconds = files / cell.rate.median;
    if cores * seconds < LEAST_CPU_SECONDS {
        return String::new();
    }
    exact(cores / cell.rate.median * 1e6)
}

/// Shows the number of calls for a file; for a mount, those of its kernel and its own.
fn calls(report: &Report, target: &str, cell: &Cell) -> String {
    let of = |kind: &str| {
        let what = format!("{kind}: {}", cell.key.what);
        let mut all = report.findings.iter();
        all.find(|found| found.target == target && found.what == what)?.value
    };
    match (of(KERNEL), of(SERVER)) {
        (Some(kernel), Some(server)) => format!("{kernel:.2} of the kernel, {server:.2}"),
        (None, Some(server)) => format!("{server:.2}"),
        _ if target == HTTP => "1.00".to_owned(),
        _ => String::new(),
    }
}

fn row(report: &Report, target: &str, cell: &Cell, local: Option<f64>) -> Vec<String> {
    let times = &cell.latency;
    let min = times.curve_us.first().map_or(0.0, |(_, us)| *us);
    let mut row = vec![target.to_owned()];
    row.extend([times.mean_us, min, times.p50_us, times.p99_us, times.max_us].map(exact));
    row.push(number(cell.rate.median));
    row.push(local.map_or_else(String::new, |local| ratio(times.mean_us, local)));
    row.push(calls(report, target, cell));
    row.push(cpu(cell, cell.server_cores));
    row.push(cpu(cell, Some(cell.client_cores)));
    row
}

/// Shows a time of which tenths of a microsecond matter.
fn exact(us: f64) -> String {
    if us < 100.0 { format!("{us:.1} us") } else { time(us) }
}
