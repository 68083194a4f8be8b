//! What every process that serves does before all else.

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

use super::log;
use crate::failure::Result;

/// Threads for calls that wait for a disk.
const BLOCKING_THREADS: usize = 128;

/// Starts logging, and runs `work` to its end.
pub fn run<T>(log: &log::LogArgs, work: impl Future<Output = Result<T>>) -> Result<T> {
    log.start()?;
    keep_private();
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

/// What is stored is for this user's eyes alone.
pub fn keep_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Each connection and each segment is an open file.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}
