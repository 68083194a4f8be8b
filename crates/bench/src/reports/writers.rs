//! A mount, and whether several writers are faster than one. The report found a client of which one
//! thread read all requests of the kernel: two writers were no faster than one.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::arguments::ReportsArgs;
use super::ask::{BUCKET, make_bucket};
use super::lab::{Cluster, Disks, Gateway, Gluster, Lab, Mount, Server, Threads, Volume};
use super::script::{Script, peer};
use super::tables::{by_target, column, latest, matrix, megabytes, ratio, section};
use crate::error::{Error, Result};
use crate::fs::Scratch;
use crate::fs::loads::{self, Load};
use crate::load::Sample;
use crate::report::markdown::number;
use crate::report::{Axis, Cell, Finding, Key, Report, Section, Table};
use crate::session::{Case, Session};
use crate::values::human_size;

pub const SCRIPT: Script = Script {
    title: "writers and readers of a mount",
    about: "The report: Gluster's FUSE client, where two writers together were no faster than one \
            because one thread read all requests of the kernel, and a replicated volume that did \
            not scale at all. Here: writers and readers, 128 KiB at a time, each its own file, \
            which writers sync before they close it; a server, clusters with one and two \
            replicas, and volumes. Everything is on one disk, unless --disk names others.",
    kind: "fs",
    needs: |args| {
        // Local, Cairn twice (overwritten blocks are freed later) with four replicas, five bricks,
        // and others.
        let each = ReportsArgs::most(&args.sizes.writers) as u64 * args.sizes.file;
        (1 << 30) + each * (14 + args.sizes.beside.len() as u64)
    },
    run,
    sections,
};

/// Least number of cores that says anything: the kernel counts CPU time in ticks.
const LEAST_CORES: f64 = 0.02;
const BLOCK: u64 = 128 << 10;
/// Copies of all writers' files that another disk may get: a replica twice, and two bricks.
const DISK_TIMES: u64 = 4;
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
const VOLUMES: [(&str, usize, &[&str]); 3] = [
    ("GlusterFS, one brick", 1, &[]),
    ("GlusterFS, two bricks", 2, &[]),
    ("GlusterFS, replica 2", 2, &["replica", "2"]),
];
/// Names of clusters, with their replicas, each on a chunkserver of its own.
const CLUSTERS: [(&str, usize); 2] =
    [("Cairn cluster, replica 1", 1), ("Cairn cluster, replica 2", 2)];
/// Keys of findings; the number of threads stands between the first two parts.
const BUSY_DISK: &str = "busy share of the busiest disk";
const WRITTEN: &str = "bytes written to disks for each byte";
const BUSIEST: &str = "cores of the busiest thread: ";

/// A cluster that is mounted through a gateway. The first fields end first.
struct MountedCluster {
    mount: Mount,
    gateway: Gateway,
    cluster: Cluster,
}

impl MountedCluster {
    fn start(lab: &Lab, replicas: usize, disks: &[PathBuf]) -> Result<MountedCluster> {
        let own = lab.directory("disk")?;
        let parents = [&own].into_iter().chain(disks).cycle();
        let places = (1..=replicas).zip(parents);
        let place = |(number, parent): (usize, &PathBuf)| {
            parent.join(format!("replica-{number}-of-{replicas}"))
        };
        let places: Vec<PathBuf> = places.map(place).collect();
        let cluster = Cluster::start_at(lab, &places, replicas as u32, None)?;
        let gateway = cluster.gateway(lab, &[])?;
        make_bucket(lab, &gateway.http)?;
        let mount = Mount::start(lab, &gateway.http)?;
        Ok(MountedCluster { mount, gateway, cluster })
    }

    fn place(&self, name: &str) -> MeasuredPlace {
        let mut pids = self.cluster.pids();
        pids.extend([self.gateway.process.id(), self.mount.process.id()]);
        MeasuredPlace { name: name.to_owned(), path: self.mount.path().join(BUCKET), pids }
    }
}

fn run(lab: &Lab, session: &mut Session) -> Result<()> {
    let needed = lab.args.sizes.file * ReportsArgs::most(&lab.args.sizes.writers) as u64;
    let remedy = "free some, give another --disk, or a smaller --file";
    let given = lab.args.sizes.disk.iter();
    let disks = given.map(|disk| Scratch::with_remedy(disk, DISK_TIMES * needed, remedy));
    let disks = disks.collect::<Result<Vec<Scratch>>>()?;
    let paths: Vec<PathBuf> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    let measured = measure(lab, session, &paths);
    // Removed after the processes that use them have ended.
    let removed = disks.into_iter().try_for_each(Scratch::remove);
    measured.and(removed)
}

fn measure(lab: &Lab, session: &mut Session, disks: &[PathBuf]) -> Result<()> {
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
    let mut clusters = Vec::new();
    for (name, replicas) in CLUSTERS {
        let cluster = peer(session, name, || MountedCluster::start(lab, replicas, disks));
        clusters.extend(cluster.map(|cluster| (name, cluster)));
    }
    for (name, cluster) in &clusters {
        session.target(name, &cluster.gateway.http);
        places.push(cluster.place(name));
    }
    let gluster = Gluster::start(lab);
    let mut volumes = Vec::new();
    for (name, bricks, kind) in VOLUMES {
        let volume = peer(session, name, || match &gluster {
            Ok(gluster) => gluster.volume(lab, bricks, kind, disks),
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
    take_turns(lab, session, &places, disks);
    others.into_iter().try_for_each(|(_, scratch)| scratch.remove())
}

/// Writes, then reads, at each place in turn.
fn take_turns(lab: &Lab, session: &mut Session, places: &[MeasuredPlace], disks: &[PathBuf]) {
    let (sizes, limits) = (sizes(lab.args), RefCell::new(Vec::new()));
    let mut all = vec![lab.args.dir.clone()];
    all.extend(disks.iter().cloned());
    let mut cases = Vec::new();
    for load in [Load::Write, Load::Read] {
        for &threads in &lab.args.sizes.writers {
            for place in places {
                let axis = Axis { name: "threads".to_owned(), value: threads as f64 };
                let (target, what) = (place.name.clone(), load.name(&sizes));
                let key = Key { target, what, axis };
                let (sizes, limits, all) = (&sizes, &limits, &all);
                let run = move || {
                    let (disks, busy) = (Disks::mark(all), Threads::mark(&place.pids));
                    let sample = loads::run(load, &place.path, sizes, threads, &place.pids)?;
                    if load == Load::Write {
                        let found = limits_of(&place.name, threads, &sample, &disks, &busy);
                        limits.borrow_mut().extend(found);
                    }
                    Ok(sample)
                };
                cases.push(Case { key, run: Box::new(run) });
            }
        }
    }
    session.run(cases, lab.args.rounds);
    limits.into_inner().into_iter().for_each(|finding| session.found(finding));
}

/// Measures what may explain why writers are not faster.
fn limits_of(
    name: &str,
    threads: usize,
    sample: &Sample,
    disks: &Disks,
    busy: &Threads,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |what: &str, value: f64| {
        let what = format!("{threads} writers: {what}");
        found.push(Finding { target: name.to_owned(), what, value: Some(value) });
    };
    if let Some(work) = disks.since() {
        add(BUSY_DISK, work.busy);
        add(WRITTEN, work.written as f64 / sample.tally.bytes_in_time.max(1) as f64);
    }
    if let Some(busy) = busy.since() {
        add(&format!("{BUSIEST}{}", busy.name), busy.cores);
    }
    found
}

/// Starts a mount that has a bucket, and its server, which must end after it.
pub fn mounted(lab: &Lab, arguments: &[&str]) -> Result<(Mount, Server)> {
    let server = Server::start(lab, arguments)?;
    make_bucket(lab, &server.http)?;
    let mount = Mount::start(lab, &server.http)?;
    Ok((mount, server))
}

pub fn place(name: &str, volume: &Volume) -> MeasuredPlace {
    let (name, path) = (name.to_owned(), volume.path().to_owned());
    MeasuredPlace { name, path, pids: volume.pids() }
}

/// Makes a directory in each directory of --beside.
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
    found.extend(limits(report, &sizes));
    found
}

/// Shows the resource that limits writers: their disks, one thread, or all CPUs.
fn limits(report: &Report, sizes: &loads::Sizes) -> Option<Section> {
    let header =
        ["", "writers", "MB/s", "written, times", "busiest disk", "busiest thread", "name", "CPUs"];
    let mut rows = Vec::new();
    for (target, cells) in by_target(report, &Load::Write.name(sizes)) {
        for cell in cells {
            let start = format!("{} writers: ", cell.key.axis.value);
            let of = |what: &str| latest(report, target, &format!("{start}{what}"));
            let shown = |what: &str, show: fn(f64) -> String| {
                of(what).map_or_else(String::new, |(_, value)| show(value))
            };
            let cores = cell.client_cores + cell.server_cores.unwrap_or(0.0);
            rows.push(vec![
                target.to_owned(),
                number(cell.key.axis.value),
                megabytes(cell),
                shown(WRITTEN, |times| format!("{times:.2}")),
                shown(BUSY_DISK, |share| format!("{:.0} %", share * 100.0)),
                shown(BUSIEST, |cores| format!("{cores:.2}")),
                of(BUSIEST).map_or_else(String::new, |(name, _)| name.to_owned()),
                format!("{cores:.2} of {}", report.machine.cores),
            ]);
        }
    }
    let note = "A second writer gains nothing where a disk is busy all the time, where one thread \
                uses a whole CPU, or where all CPUs are in use. What is written is counted with \
                journals, and with all else that writes to these disks.";
    let is_found = !rows.is_empty();
    is_found.then(|| section("What limits writers", Table::new(&header, rows), note))
}

/// Returns the throughput of this number as a multiple of one.
fn scaled(cells: &[&Cell], count: f64) -> String {
    let of = |count: f64| {
        let found = cells.iter().find(|cell| cell.key.axis.value == count);
        found.map(|cell| cell.bytes_per_second.median)
    };
    of(count).zip(of(1.0)).map_or_else(String::new, |(many, one)| ratio(many, one))
}

/// Shows megabytes for each second of CPU time; nothing if the time was too short to measure.
fn per_cpu_second(cell: &Cell) -> String {
    let cores = cell.client_cores + cell.server_cores.unwrap_or(0.0);
    match cores {
        _ if cores < LEAST_CORES => String::new(),
        _ => number(cell.bytes_per_second.median / 1e6 / cores),
    }
}
