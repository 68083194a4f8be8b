//! What every process that serves does before all else.

use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

use super::log;
use crate::failure::Result;

/// Threads for calls that wait for a disk.
const BLOCKING_THREADS: usize = 128;

/// Starts logging, and runs `work` to its end.
pub fn run<T>(log: &log::LogArgs, work: impl Future<Output = Result<T>>) -> Result<T> {
    log.start()?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(work);
    // What still waits for a disk is not waited for: all that was acknowledged is durable.
    runtime.shutdown_background();
    ended
}

/// The mask of the shell that started this process.
static CALLERS: OnceLock<Mode> = OnceLock::new();

/// What is stored is for this user's eyes alone. The first thing that any command does.
pub fn keep_private() {
    let _ = CALLERS.set(umask(Mode::RWXG | Mode::RWXO));
}

/// From here on files are made for the caller, as other programs make them.
pub fn write_for_caller() {
    if let Some(mask) = CALLERS.get() {
        umask(*mask);
    }
}

/// Each connection and each segment is an open file.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}
