//! The seam to threads, where blocking work is done, for a disk or for other threads. Code that
//! takes an `Option` of this trait uses threads of the operating system without one. A simulation
//! runs all work on one thread, in turns; there, only futures wait.

use std::fmt;
use std::pin::Pin;

/// The work of a thread from its start to its end.
pub type Thread = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Threads: fmt::Debug + Send + Sync + 'static {
    /// Runs `work` soon.
    fn run(&self, work: Box<dyn FnOnce() + Send>);
    /// Runs `thread` to its end.
    fn spawn(&self, thread: Thread);
}
