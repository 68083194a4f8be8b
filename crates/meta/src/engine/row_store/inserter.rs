//! Puts a batch into the memtable while the disk makes it durable: meanwhile the committing thread
//! waits for the disk, and a core is idle.

#![expect(
    clippy::disallowed_methods,
    reason = "its thread fills a table that is made anew at each start"
)]

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::super::Change;
use super::memtable::Memtable;

/// Number of rows below which inserting takes less time than waking a thread.
const ROWS_MIN: usize = 32;

struct Job {
    memtable: Arc<Memtable>,
    batch: u64,
    changes: Vec<Change>,
}

/// A thread that inserts one batch at a time.
pub struct Inserter {
    jobs: Sender<Job>,
    done: Receiver<usize>,
    thread: JoinHandle<()>,
}

/// A batch that is being inserted.
#[must_use]
pub enum Insert<'a> {
    Done(usize),
    Running(&'a Inserter),
}

impl Inserter {
    pub fn spawn() -> io::Result<Inserter> {
        let (jobs, todo) = channel::<Job>();
        let (report, done) = channel();
        let thread = std::thread::Builder::new().name("memtable".into()).spawn(move || {
            for job in todo {
                let bytes = job.memtable.insert(job.batch, job.changes);
                if report.send(bytes).is_err() {
                    break;
                }
            }
        })?;
        Ok(Inserter { jobs, done, thread })
    }

    pub fn join(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the memtable thread panicked");
        }
    }
}

/// Starts to insert `changes`. Nobody sees them before their batch is published.
pub fn start<'a>(
    inserter: Option<&'a Inserter>,
    memtable: &Arc<Memtable>,
    batch: u64,
    changes: Vec<Change>,
) -> Insert<'a> {
    let Some(inserter) = inserter.filter(|_| changes.len() >= ROWS_MIN) else {
        return Insert::Done(memtable.insert(batch, changes));
    };
    match inserter.jobs.send(Job { memtable: Arc::clone(memtable), batch, changes }) {
        Ok(()) => Insert::Running(inserter),
        Err(back) => Insert::Done(memtable.insert(batch, back.0.changes)),
    }
}

impl Insert<'_> {
    /// Waits for the end; returns the bytes of memory that the batch took.
    ///
    /// # Panics
    /// If the thread panicked: rows would be missing.
    pub fn finish(self) -> usize {
        match self {
            Insert::Done(bytes) => bytes,
            Insert::Running(inserter) => inserter.done.recv().expect("the memtable thread lives"),
        }
    }
}
