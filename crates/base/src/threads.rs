//! The seam to threads: where work is done that waits, for a disk or for other threads. Code that
//! takes an `Option` of this trait uses threads of the operating system without one. A simulation
//! gives turns to all work on one thread; there, nothing waits but in a future.

use std::fmt;
use std::pin::Pin;

/// Something that a thread does from its start to its end.
pub type Thread = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Threads: fmt::Debug + Send + Sync + 'static {
    /// Does `work` soon.
    fn run(&self, work: Box<dyn FnOnce() + Send>);
    /// Has `thread` run to its end.
    fn spawn(&self, thread: Thread);
}
