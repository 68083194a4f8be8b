//! First steps of every process that serves.

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

/// Raises the limit of open files: each connection and each segment is an open file.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}
