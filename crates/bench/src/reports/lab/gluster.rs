//! GlusterFS as a peer: a separate `glusterd`, which knows nothing of any other on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::process::Process;
use super::site::Lab;
use super::system::{LOOK, installed, is_listening, is_mounted, processes_with, run, unmount};
use crate::error::{Error, Result};

const PACKAGE: &str = "glusterfs-server";
/// Its port, which cannot be chosen; so it listens at a separate address.
const PORT: u16 = 24007;
/// Time to end for processes that others have started.
const GOODBYE: Duration = Duration::from_secs(5);

pub struct Gluster {
    daemon: Process,
    work: PathBuf,
    /// A separate address of this machine.
    host: String,
}

/// A mounted volume; unmounted and deleted when it is dropped.
pub struct Volume<'a> {
    gluster: &'a Gluster,
    client: Option<Process>,
    name: String,
    mounted: PathBuf,
    bricks: Vec<PathBuf>,
}

impl Gluster {
    pub fn start(lab: &Lab) -> Result<Gluster> {
        let program = installed("glusterd", PACKAGE)?;
        let work = lab.directory("gluster")?;
        for name in ["state", "run", "log"] {
            let path = work.join(name);
            fs::create_dir(&path).map_err(|error| Error::file(&path, error))?;
        }
        let pid = std::process::id();
        let host = format!("127.83.{}.{}", pid / 250 % 250 + 1, pid % 250 + 1);
        let mut command = Command::new(program);
        let shown = work.display();
        for option in [
            format!("working-directory={shown}/state"),
            format!("run-directory={shown}/run"),
            format!("glusterd-sockfile={shown}/socket"),
            format!("transport.socket.bind-address={host}"),
            // Its name for the directory of logs.
            format!("cluster-test-mode={shown}/log"),
        ] {
            command.args(["--xlator-option", &format!("management.{option}")]);
        }
        command.arg(format!("--log-file={shown}/log/glusterd.log"));
        command.arg(format!("--pid-file={shown}/pid")).arg("-N");
        let daemon = Process::start(lab, "glusterd", Signal::TERM, command)?;
        let mut gluster = Gluster { daemon, work, host };
        let (host, socket) = (gluster.host.clone(), gluster.work.join("socket"));
        let address = format!("{host}:{PORT}");
        gluster.daemon.wait(|_| Ok((is_listening(&address) && socket.exists()).then_some(())))?;
        Ok(gluster)
    }

    /// Makes a volume of `bricks` bricks, and mounts it. `kind` is, for example, `replica 2`.
    /// Bricks are here and in the directories `disks` in turn.
    pub fn volume(
        &self,
        lab: &Lab,
        bricks: usize,
        kind: &[&str],
        disks: &[PathBuf],
    ) -> Result<Volume<'_>> {
        let program = installed("glusterfs", PACKAGE)?;
        let mounted = lab.directory("gluster-mount")?;
        let name = format!("v{}", self.count() + 1);
        let mut create = vec!["volume", "create", &name];
        create.extend(kind);
        let parents = [&self.work].into_iter().chain(disks).cycle();
        let brick = |(number, parent): (usize, &PathBuf)| {
            let path = parent.join(format!("{name}-brick{number}"));
            let made = fs::create_dir(&path).map_err(|error| Error::file(&path, error));
            made.map(|()| path)
        };
        let made = (1..=bricks).zip(parents).map(brick).collect::<Result<Vec<PathBuf>>>()?;
        let shown = |path: &PathBuf| format!("{}:{}", self.host, path.display());
        let paths: Vec<String> = made.iter().map(shown).collect();
        create.extend(paths.iter().map(String::as_str));
        create.push("force");
        self.command(&create)?;
        let mut volume = Volume { gluster: self, client: None, name, mounted, bricks: made };
        self.command(&["volume", "start", &volume.name])?;
        let mut client = Command::new(program);
        client.args(["-s", &self.host, "--volfile-id", &volume.name, "-N"]);
        let log = self.work.join(format!("log/{}.log", volume.name));
        client.arg(format!("--log-file={}", log.display())).arg(&volume.mounted);
        let mut client = Process::start(lab, "glusterfs", Signal::TERM, client)?;
        let at = volume.mounted.clone();
        client.wait(|_| Ok((is_mounted(&at) && fs::read_dir(&at).is_ok()).then_some(())))?;
        volume.client = Some(client);
        Ok(volume)
    }

    fn count(&self) -> usize {
        fs::read_dir(self.work.join("state/vols")).into_iter().flatten().count()
    }

    fn command(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(installed("gluster", PACKAGE)?);
        command.args(["--mode=script", "--wignore"]);
        command.arg(format!("--glusterd-sock={}/socket", self.work.display()));
        command.arg(format!("--log-file={}/log/cli.log", self.work.display()));
        command.args(arguments);
        run(command)
    }

    /// Returns files that bricks make elsewhere, and leave behind.
    fn sockets(&self) -> Vec<PathBuf> {
        let lines = processes_with(&self.work).into_values();
        let sockets = lines.filter_map(|words| {
            let socket = words.iter().skip_while(|word| *word != "-S").nth(1)?;
            socket.ends_with(".socket").then(|| PathBuf::from(socket))
        });
        sockets.collect()
    }
}

impl Volume<'_> {
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Returns the client's process and those of its bricks.
    pub fn pids(&self) -> Vec<u32> {
        let of = |brick: &PathBuf| processes_with(brick).into_keys();
        let mut pids: Vec<u32> = self.bricks.iter().flat_map(of).collect();
        pids.extend(self.client.as_ref().map(Process::id));
        pids
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        // The mount is unmounted when its process ends; if it ended in another way, the mount point
        // is dead.
        self.client = None;
        unmount(&self.mounted);
        let sockets = self.gluster.sockets();
        // Processes that remain are killed with the daemon.
        let _ = self.gluster.command(&["volume", "stop", &self.name, "force"]);
        let _ = self.gluster.command(&["volume", "delete", &self.name]);
        sockets.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

impl Drop for Gluster {
    /// Ends the processes that the daemon has started: it does not end them, and itself ends after
    /// this.
    fn drop(&mut self) {
        let began = Instant::now();
        let daemon = self.daemon.id();
        loop {
            let mut left = processes_with(&self.work);
            left.remove(&daemon);
            self.sockets().iter().for_each(|path| drop(fs::remove_file(path)));
            if left.is_empty() || began.elapsed() > GOODBYE {
                return;
            }
            let pids = left.keys().filter_map(|pid| i32::try_from(*pid).ok());
            for pid in pids.filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            thread::sleep(LOOK);
        }
    }
}
