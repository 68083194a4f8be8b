//! A mount, and whether several writers are faster than one. The report found a client of which one
//! thread read all requests of the kernel: two writers were no faster than one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;

use super::arguments::ReportsArgs;
use super::ask::{BUCKET, send};
use super::lab::{Gluster, Lab, Mount, Server, Volume};
use super::script::{Script, peer};
use super::tables::{by_target, column, matrix, megabytes, ratio, section};
use crate::error::{Error, Result};
use crate::fs::Scratch;
use crate::fs::loads::{self, Load};
use crate::report::markdown::number;
use crate::report::{Axis, Cell, Key, Report, Section};
use crate::session::{Case, Session};
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "writers and readers of a mount",
    about: "The report: Gluster's FUSE client, where two writers together were no faster than one \
            because one thread read all requests of the kernel, and a replicated volume that did \
            not scale at all. Here: writers and readers, 128 KiB at a time, each its own file, \
            which writers sync before they close it; everything on one disk.",
    kind: "fs",
    needs: |args| {
        // Local, Cairn twice (what is overwritten is freed later), five bricks, and others.
        let each = ReportsArgs::most(&args.sizes.writers) as u64 * args.sizes.file;
        (1 << 30) + each * (8 + args.sizes.beside.len() as u64)
    },
    run,
    sections,
};

/// The kernel counts CPU time in ticks.
const LEAST_CORES: f64 = 0.02;
const BLOCK: u64 = 128 << 10;
pub const LOCAL: &str = "local";
pub const CAIRN: &str = "Cairn mount";

/// A directory that is measured.
pub struct MeasuredPlace {
    pub name: String,
    pub path: PathBuf,
    /// The processes that work for it.
    pub pids: Vec<u32>,
}

/// Names of volumes, with their bricks and kinds.
const VOLUMES: [(&str, u32, &[&str]); 3] = [
    ("GlusterFS, one brick", 1, &[]),
    ("GlusterFS, two bricks", 2, &[]),
    ("GlusterFS, replica 2", 2, &["replica", "2"]),
];

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    let local = lab.directory("local")?;
    let mut places = vec![MeasuredPlace { name: LOCAL.to_owned(), path: local, pids: Vec::new() }];
    session.target(LOCAL, lab.args.dir.display());
    let cairn = peer(session, CAIRN, || mounted(lab, &[]));
    if let Some((mount, server)) = &cairn {
        let pids = vec![server.process.id(), mount.process.id()];
        session.target(CAIRN, &server.http);
        places.push(MeasuredPlace {
            name: CAIRN.to_owned(),
            path: mount.path().join(BUCKET),
            pids,
        });
    }
    let gluster = Gluster::start(lab);
    let mut volumes = Vec::new();
    for (name, bricks, kind) in VOLUMES {
        let volume = peer(session, name, || match &gluster {
            Ok(gluster) => gluster.volume(lab, bricks, kind),
            Err(error) => Err(Error::failed(error.to_string())),
        });
        volumes.extend(volume.map(|volume| (name, volume)));
    }
    for (name, volume) in &volumes {
        session.target(name, volume.path().display());
        places.push(place(name, volume));
    }
    let others = beside(lab, session)?;
    let named = others.iter().map(|(name, scratch)| (name, scratch.path()));
    places.extend(named.map(|(name, path)| MeasuredPlace {
        name: name.clone(),
        path: path.to_owned(),
        pids: Vec::new(),
    }));
    let sizes = sizes(lab.args);
    let mut cases = Vec::new();
    for load in [Load::Write, Load::Read] {
        for &threads in &lab.args.sizes.writers {
            for place in &places {
                let axis = Axis { name: "threads".to_owned(), value: threads as f64 };
                let (target, what) = (place.name.clone(), load.name(&sizes));
                let key = Key { target, what, axis };
                let sizes = &sizes;
                let run = move || loads::run(load, &place.path, sizes, threads, &place.pids);
                cases.push(Case { key, run: Box::new(run) });
            }
        }
    }
    session.run(cases, lab.args.rounds);
    others.into_iter().try_for_each(|(_, scratch)| scratch.remove())
}

/// A mount that has a bucket, and its server, which is to end after it.
pub fn mounted(lab: &Lab, arguments: &[&str]) -> Result<(Mount, Server)> {
    let server = Server::start(lab, arguments)?;
    let path = format!("/storage/{BUCKET}?visibility=public");
    send(lab, &server.http, Method::PUT, &path, &[])?;
    let mount = Mount::start(lab, &server)?;
    Ok((mount, server))
}

pub fn place(name: &str, volume: &Volume) -> MeasuredPlace {
    let (name, path) = (name.to_owned(), volume.path().to_owned());
    MeasuredPlace { name, path, pids: volume.pids() }
}

/// Directories of --beside, each with one of our own in it.
pub fn beside(lab: &Lab, session: &mut Session) -> Result<Vec<(String, Scratch)>> {
    let mut made = Vec::new();
    for (name, directory) in &lab.args.sizes.beside {
        let taken = made.iter().any(|(known, _): &(String, Scratch)| known == name);
        if taken || [LOCAL, CAIRN].contains(&name.as_str()) {
            return Err(Error::usage(format!(
                "--beside {name}: the name is taken: use another name"
            )));
        }
        session.target(name, directory.display());
        made.push((name.clone(), scratch(lab, directory)?));
    }
    Ok(made)
}

fn scratch(lab: &Lab, directory: &Path) -> Result<Scratch> {
    let needed = ReportsArgs::most(&lab.args.sizes.writers) as u64 * lab.args.sizes.file;
    Scratch::with_remedy(directory, needed, "free some, or give a smaller --file")
}

fn sizes(args: &ReportsArgs) -> loads::Sizes {
    let block = BLOCK.min(args.sizes.file);
    loads::Sizes {
        file: args.sizes.file,
        block,
        random_block: block,
        small: 1,
        files: 0,
        duration: Duration::ZERO,
    }
}

fn sections(args: &ReportsArgs, report: &Report) -> Vec<Section> {
    let sizes = sizes(args);
    let (writing, reading) = (Load::Write.name(&sizes), Load::Read.name(&sizes));
    let mut found = Vec::new();
    let file = human_size(args.sizes.file);
    for (what, who) in [(&writing, "writers"), (&reading, "readers")] {
        let mut table = matrix(report, what, who, megabytes);
        column(report, what, &mut table, "2 of 1", |cells| scaled(cells, 2.0));
        column(report, what, &mut table, "of local, 1", |cells| {
            let local = by_target(report, what).into_iter().find(|(name, _)| *name == LOCAL);
            let first = |cells: &[&Cell]| cells.first().map(|cell| cell.bytes_per_second.median);
            let both = first(cells).zip(local.and_then(|(_, cells)| first(&cells)));
            both.map_or_else(String::new, |(own, local)| ratio(own, local))
        });
        let note = match who {
            "writers" => "",
            _ => "The kernel is asked to forget the files before; servers may remember them.",
        };
        found.push(section(&format!("{who} of files of {file}: MB/s"), table, note));
    }
    for (what, who) in [(writing, "writers"), (reading, "readers")] {
        let table = matrix(report, &what, who, per_cpu_second);
        let note =
            "CPU of the program that writes or reads, of the client and of servers together.";
        found.push(section(&format!("{who}: MB for each second of CPU time"), table, note));
    }
    found.retain(|section| section.table.header.len() > 2);
    found
}

/// The throughput of this number as a multiple of one.
fn scaled(cells: &[&Cell], count: f64) -> String {
    let of = |count: f64| {
        let found = cells.iter().find(|cell| cell.key.axis.value == count);
        found.map(|cell| cell.bytes_per_second.median)
    };
    of(count).zip(of(1.0)).map_or_else(String::new, |(many, one)| ratio(many, one))
}

/// Megabytes for each second of CPU time; nothing where that was too little to be seen.
fn per_cpu_second(cell: &Cell) -> String {
    let cores = cell.client_cores + cell.server_cores.unwrap_or(0.0);
    match cores {
        _ if cores < LEAST_CORES => String::new(),
        _ => number(cell.bytes_per_second.median / 1e6 / cores),
    }
}
