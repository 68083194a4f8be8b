//! First steps of every process that serves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cairn_doors::limits::Limits;
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

use super::log;
use crate::failure::Result;

/// Connections that a door takes at least, however few files may be open.
const CONNECTIONS_MIN: usize = 8;
/// Threads for calls that wait for a disk.
const BLOCKING_THREADS: usize = 128;

/// Starts logging, and runs `work` to its end.
pub fn run<T>(log: &log::LogArgs, work: impl Future<Output = Result<T>>) -> Result<T> {
    log.start()?;
    run_started(work)
}

/// Runs `work` to its end on a new runtime, after logging has started.
pub fn run_started<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(work);
    // Work that still waits for a disk is not awaited: all that was acknowledged is durable.
    runtime.shutdown_background();
    ended
}

/// File mode mask of the shell that started this process.
static CALLERS: OnceLock<Mode> = OnceLock::new();

/// Makes stored files readable by this user only. It is the first step of any command.
pub fn keep_private() {
    let _ = CALLERS.set(umask(Mode::RWXG | Mode::RWXO));
}

/// From here on files are made with the caller's mask, as other programs make them.
pub fn write_for_caller() {
    if let Some(mask) = CALLERS.get() {
        umask(*mask);
    }
}

/// Returns the number of connections that each of this many doors may have. A quarter of the files
/// that this process may have open is for segments and the like, and the rest is divided.
pub fn connections_of(doors: u64) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = Limits::default().connections;
    let each = (files - files / 4) / doors;
    usize::try_from(each).map_or(most, |each| each.clamp(CONNECTIONS_MIN, most))
}

/// Returns the memory that this process may have, bytes: that of the machine, or of its control
/// group if that is less.
pub fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_machine = memory_total(&machine).unwrap_or(u64::MAX);
    memory_of_groups(Path::new("/sys/fs/cgroup"), &own).map_or(of_machine, |of| of.min(of_machine))
}

/// Returns the memory in `/proc/meminfo`, bytes.
fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the least limit of the control groups of a process, by its `/proc/self/cgroup`.
fn memory_of_groups(root: &Path, own: &str) -> Option<u64> {
    let limit = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let groups = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers.split(',').any(|name| name == "memory") {
            true => Some((root.join("memory"), path, "memory.limit_in_bytes")),
            false if controllers.is_empty() => Some((root.to_owned(), path, "memory.max")),
            false => None,
        }
    });
    groups
        .flat_map(|(root, path, file)| {
            let path = Path::new(path.trim_start_matches('/'));
            // In a container the path may be that of the host, which does not exist here.
            let all: Vec<_> = path.ancestors().map(|path| root.join(path).join(file)).collect();
            all.into_iter().filter_map(limit)
        })
        .min()
}

/// Raises the limit of open files: each connection and each segment is an open file.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_tightest_group() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/cairn.service");
        fs::create_dir_all(&group).unwrap();
        let own = "0::/system.slice/cairn.service\n";
        assert_eq!(memory_of_groups(root.path(), own), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), own), None);
        fs::write(root.path().join("system.slice/memory.max"), "1073741824\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), own), Some(1 << 30));
        fs::create_dir_all(root.path().join("memory/a")).unwrap();
        fs::write(root.path().join("memory/a/memory.limit_in_bytes"), "4096\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), "5:cpu:/a\n4:memory:/a\n"), Some(4096));
        assert_eq!(memory_total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
    }
}
