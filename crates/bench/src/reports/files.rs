//! Small files, served from file systems and by HTTP. The report served the same files of 430 bytes
//! and 93 KB from a local file system, an NFS server and Gluster. Gluster was served through FUSE
//! (18 times slower) and NFS, with 100 notifications a file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{Asked, BUCKET, Paths, plan};
use super::lab::{Gluster, Lab};
use super::script::{Script, peer};
use super::tables::{absent, by_target, ratio, section};
use super::writers::{CAIRN, LOCAL, MeasuredPlace, beside, mounted, place};
use crate::client::Target;
use crate::closed::noise;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Sample, Tally};
use crate::report::Table;
use crate::report::markdown::{number, time};
use crate::report::{Axis, Cell, Key, Report, Section};
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
        (1 << 30) + one * sizes.files as u64 * (4 + sizes.beside.len() as u64)
    },
    run,
    sections,
};

const HTTP: &str = "Cairn HTTP";
const GLUSTER: &str = "GlusterFS, FUSE";
const NFS: &str = "Cairn NFS";

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    let local = lab.directory("local")?;
    let mut places = vec![MeasuredPlace { name: LOCAL.to_owned(), path: local, pids: Vec::new() }];
    session.target(LOCAL, lab.args.dir.display());
    let cairn = peer(session, CAIRN, || mounted(lab));
    let mut door = None;
    if let Some((mount, server)) = &cairn {
        let pids = vec![server.process.id(), mount.process.id()];
        session.target(CAIRN, &server.http);
        session.target(HTTP, &server.http);
        places.push(MeasuredPlace {
            name: CAIRN.to_owned(),
            path: mount.path().join(BUCKET),
            pids,
        });
        door = Some((server.http.clone(), server.process.id()));
    } else {
        session.absent(HTTP, "not measured: its files are made through the mount");
    }
    let gluster = Gluster::start(lab);
    let volume = peer(session, GLUSTER, || match &gluster {
        Ok(gluster) => gluster.volume(lab, 1, &[]),
        Err(error) => Err(Error::failed(error.to_string())),
    });
    if let Some(volume) = &volume {
        session.target(GLUSTER, volume.path().display());
        places.push(place(GLUSTER, volume));
    }
    session.absent(NFS, "not measured yet");
    let others = beside(lab, session)?;
    places.extend(others.iter().map(|(name, scratch)| MeasuredPlace {
        name: name.clone(),
        path: scratch.path().to_owned(),
        pids: Vec::new(),
    }));
    session.say("making files");
    for place in &places {
        for &size in &lab.args.sizes.file_sizes {
            make(lab.args, place, size)?;
        }
    }
    session.run(cases(lab, &places, door.as_ref()), lab.args.rounds);
    others.into_iter().try_for_each(|(_, scratch)| scratch.remove())
}

fn cases<'a>(
    lab: &'a Lab,
    places: &'a [MeasuredPlace],
    door: Option<&'a (Target, u32)>,
) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for &size in &lab.args.sizes.file_sizes {
        for times in [1, lab.args.sizes.notifications] {
            let files = lab.args.sizes.files;
            for place in places {
                let paths: Vec<_> = (0..files).map(|n| place.path.join(file(size, n))).collect();
                let run = move || Ok(serve(&paths, size, times, &place.pids));
                cases.push(Case { key: key(&place.name, size, times), run: Box::new(run) });
            }
            if let Some((target, pid)) = door {
                let paths = (0..files).map(|n| format!("/storage/{BUCKET}/{}", file(size, n)));
                let paths: Vec<String> = paths.collect();
                let run = move || {
                    let paths = Paths::Each(paths.clone(), times as u64);
                    let work = Asked::new(target, Method::GET, paths)?;
                    let mut plan = plan(lab, std::slice::from_ref(target), work, 1, &[*pid]);
                    plan.pace = Pace::Closed { warm_up: Duration::ZERO, duration: None };
                    load::run(&plan)
                };
                cases.push(Case { key: key(HTTP, size, times), run: Box::new(run) });
            }
        }
    }
    cases
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

/// Opens, reads and closes each file so many times.
fn serve(paths: &[PathBuf], size: u64, times: usize, server: &[u32]) -> Sample {
    let mut tally = Tally::default();
    let mut body = vec![0; size as usize];
    let (client, server_pids) = (Processes::this(), Processes::of(server));
    let (client_mark, server_mark) = (client.mark(), server_pids.mark());
    let began = Instant::now();
    let mut broken = None;
    for path in paths {
        for _ in 0..times {
            if stop::is_stopped() || broken.is_some() {
                break;
            }
            let begun = Instant::now();
            match read(path, &mut body) {
                Ok(()) => {
                    tally.latency.record(begun.elapsed());
                    tally.in_time += 1;
                    tally.bytes_in_time += size;
                }
                Err(error) => broken = Some(format!("{}: {error}", path.display())),
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
                Some(row(target, cell, local))
            });
            let header = ["", "avg", "min", "p50", "p99", "max", "files a second", "of local, avg"];
            let mut table = Table::new(&header, rows.collect());
            if table.rows.is_empty() {
                continue;
            }
            absent(report, &mut table, |_| true);
            let note = match times {
                1 => {
                    "Read for the first time since they were made; where they are cached then \
                      differs."
                }
                _ => "",
            };
            found.push(section(&what, table, note));
        }
    }
    found
}

fn row(target: &str, cell: &Cell, local: Option<f64>) -> Vec<String> {
    let times = &cell.latency;
    let min = times.curve_us.first().map_or(0.0, |(_, us)| *us);
    let mut row = vec![target.to_owned()];
    row.extend([times.mean_us, min, times.p50_us, times.p99_us, times.max_us].map(exact));
    row.push(number(cell.rate.median));
    row.push(local.map_or_else(String::new, |local| ratio(times.mean_us, local)));
    row
}

/// A time of which tenths of a microsecond matter.
fn exact(us: f64) -> String {
    if us < 100.0 { format!("{us:.1} us") } else { time(us) }
}
