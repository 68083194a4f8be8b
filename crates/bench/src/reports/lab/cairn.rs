//! Cairn as processes: a server, a cluster, a mount.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use super::ports::free_address;
use super::process::Process;
use super::site::Lab;
use super::system::{run, unmount, wait};
use crate::client::Target;
use crate::error::{Error, Result};

/// Options by which doors listen at free ports.
const ANYWHERE: [&str; 4] = ["--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// A `cairn server`.
pub struct Server {
    pub process: Process,
    pub http: Target,
    /// Address of the NFS door, with `--nfs`.
    pub nfs: Option<String>,
}

/// A gateway of a cluster.
pub struct Gateway {
    pub process: Process,
    pub http: Target,
    pub s3: Target,
}

/// A mount of a server or gateway, unmounted when it is dropped.
pub struct Mount {
    pub process: Process,
    path: PathBuf,
}

/// A master and chunkservers.
pub struct Cluster {
    pub chunkservers: Vec<Process>,
    pub master: Process,
    directory: PathBuf,
}

impl Server {
    pub fn start(lab: &Lab, arguments: &[&str]) -> Result<Server> {
        let directory = lab.path("server");
        let mut all = vec!["server", text(&directory)?];
        all.extend(ANYWHERE);
        all.extend(arguments);
        let mut process = Process::start(lab, "cairn server", Signal::KILL, lab.cairn(&all))?;
        let (http, _) = process.wait(doors)?;
        let has_nfs = arguments.contains(&"--nfs");
        let nfs = has_nfs.then(|| process.wait(|process| Ok(address(process, "nfs"))));
        Ok(Server { process, http, nfs: nfs.transpose()? })
    }

    /// Exports a bucket to clients on this machine; returns the URL for them.
    pub fn export(&self, lab: &Lab, bucket: &str) -> Result<String> {
        let add = ["export", "add", bucket, "--client", "127.0.0.0/8", "--as", "root"];
        let mut command = lab.cairn(&add);
        command.args(["--squash", "none"]).env("CAIRN_SERVER", self.http.origin());
        run(command)?;
        let address = self.nfs.as_deref().unwrap_or_default();
        let port = address.rsplit(':').next().unwrap_or_default();
        Ok(format!("nfs://127.0.0.1/{bucket}?nfsport={port}"))
    }
}

impl Cluster {
    /// Starts a cluster with this many replicas of a block; `meta` is the URL of a database.
    pub fn start(
        lab: &Lab,
        chunkservers: usize,
        replicas: u32,
        meta: Option<&str>,
    ) -> Result<Cluster> {
        let places = (0..chunkservers).map(|_| lab.path("chunkserver")).collect::<Vec<_>>();
        Cluster::start_at(lab, &places, replicas, meta)
    }

    /// Starts a cluster with a chunkserver in each of these directories, which do not exist yet.
    pub fn start_at(
        lab: &Lab,
        places: &[PathBuf],
        replicas: u32,
        meta: Option<&str>,
    ) -> Result<Cluster> {
        let directory = lab.path("master");
        let (shown, address) = (text(&directory)?, free_address()?);
        let database = meta.map_or(Vec::new(), |url| vec!["--meta", url]);
        let replicas = replicas.to_string();
        let mut init = vec!["cluster", "init", shown, "--address", &address];
        init.extend(["--replicas", &replicas]);
        init.extend(&database);
        lab.run_cairn(&init)?;
        let mut serve = vec!["master", shown, "--listen", &address];
        serve.extend(&database);
        let master = Process::start(lab, "cairn master", Signal::KILL, lab.cairn(&serve))?;
        let mut cluster = Cluster { chunkservers: Vec::new(), master, directory };
        let directory = cluster.directory.clone();
        cluster.master.wait(|_| Ok(status(lab, &directory)))?;
        for joined in places {
            cluster.join(lab, "chunkserver", joined)?;
            let (address, door) = (free_address()?, free_address()?);
            let all = ["chunkserver", text(joined)?, "--listen", &address, "--http", &door];
            let started = Process::start(lab, "cairn chunkserver", Signal::KILL, lab.cairn(&all));
            cluster.chunkservers.push(started?);
        }
        wait("the cluster is whole", || {
            Ok(status(lab, &directory).filter(|status| is_whole(status, places.len())))
        })?;
        Ok(cluster)
    }

    fn join(&self, lab: &Lab, role: &str, directory: &Path) -> Result<()> {
        let token = ["cluster", "token", text(&self.directory)?, "--role", role];
        let token = lab.run_cairn(&token)?;
        lab.run_cairn(&["cluster", "join", text(directory)?, token.trim()]).map(drop)
    }

    pub fn gateway(&self, lab: &Lab, arguments: &[&str]) -> Result<Gateway> {
        let directory = lab.path("gateway");
        self.join(lab, "gateway", &directory)?;
        let mut all = vec!["gateway", text(&directory)?];
        all.extend(ANYWHERE);
        all.extend(arguments);
        let mut process = Process::start(lab, "cairn gateway", Signal::KILL, lab.cairn(&all))?;
        let (http, s3) = process.wait(doors)?;
        Ok(Gateway { process, http, s3 })
    }

    /// Returns the processes of the cluster, without gateways.
    pub fn pids(&self) -> Vec<u32> {
        let all = self.chunkservers.iter().chain([&self.master]);
        all.map(Process::id).collect()
    }
}

impl Mount {
    /// Mounts the store whose HTTP door is at `http`.
    pub fn start(lab: &Lab, http: &Target) -> Result<Mount> {
        if let Err(error) = fs::File::open("/dev/fuse") {
            return Err(Error::failed(format!("cannot mount: /dev/fuse: {error}")));
        }
        let path = lab.directory("mount")?;
        let all = ["mount", &http.origin(), text(&path)?, "--foreground"];
        let process = Process::start(lab, "cairn mount", Signal::TERM, lab.cairn(&all))?;
        let mut mount = Mount { process, path };
        mount.process.wait(|process| {
            Ok(process.printed().lines().any(|line| line.starts_with("mounted ")).then_some(()))
        })?;
        Ok(mount)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    /// The mount is unmounted when its process ends; if it ended in another way, the mount point is
    /// dead.
    fn drop(&mut self) {
        self.process.end();
        unmount(&self.path);
    }
}

/// Returns the addresses of the HTTP and the S3 door, once they are announced.
fn doors(process: &Process) -> Result<Option<(Target, Target)>> {
    match (address(process, "http"), address(process, "s3")) {
        (Some(http), Some(s3)) => Ok(Some((Target::parse(&http)?, Target::parse(&s3)?))),
        _ => Ok(None),
    }
}

/// Returns the address of a door, once it is announced.
fn address(process: &Process, door: &str) -> Option<String> {
    let printed = process.printed();
    let mut lines = printed.lines().filter_map(|line| line.split_once(' '));
    let is_address = |text: &str| text.starts_with("http") || text.starts_with("127.0.0.1:");
    let found = lines.find(|(name, address)| *name == door && is_address(address));
    found.map(|(_, address)| address.to_owned())
}

/// Returns the masters' status of a cluster; none while they report nothing.
fn status(lab: &Lab, directory: &Path) -> Option<Value> {
    let mut command = lab.cairn(&["cluster", "status"]);
    command.arg(directory).arg("--json");
    // Its exit code says whether all is well, which does not matter yet.
    let said = command.output().ok()?;
    serde_json::from_slice(&said.stdout).ok()
}

/// Returns true if all nodes are up, and all groups are whole and take writes.
fn is_whole(status: &Value, chunkservers: usize) -> bool {
    let list =
        |name: &str| status.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let count = |name: &str| {
        let number = status.get("health").and_then(|health| health.get(name));
        number.and_then(Value::as_u64).unwrap_or(0)
    };
    let up = list("nodes").iter().filter(|node| node.get("up") == Some(&Value::Bool(true)));
    let groups = list("groups").len() as u64;
    up.count() > chunkservers && groups > 0 && [count("whole"), count("writable")] == [groups; 2]
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::file(path, "not UTF-8: give another --dir"))
}
