//! Calls of a mount, whose answers go back to the kernel when they are ready.

use std::ffi::OsStr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use cairn_base::Ino;
use cairn_posix::{Answer, Descriptor, Posix, Source};
use fuser::{Errno, FileHandle, Generation};
use tokio::runtime::Handle as Runtime;

use crate::paths::Paths;
use crate::stats::{Stats, Timer};

/// Inode numbers are never reused, so there is one generation.
pub const GENERATION: Generation = Generation(0);

pub struct Desk {
    pub posix: Arc<Posix>,
    runtime: Runtime,
    pub stats: Arc<Stats>,
    pub paths: Arc<Paths>,
    /// Set if the kernel opens, closes and locks files on its own.
    pub opens_nothing: bool,
}

/// Tasks have one type, so that the code around a task is compiled once, and not for each call.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns the open file of a handle of the kernel.
pub fn open(handle: FileHandle) -> Descriptor {
    Descriptor(handle.0)
}

/// Checks a name that is to be made: new names are in UTF-8 only.
pub fn text(name: &OsStr) -> Result<&str, Errno> {
    name.to_str().ok_or(Errno::EILSEQ)
}

impl Desk {
    pub fn new(posix: Arc<Posix>, runtime: Runtime, opens_nothing: bool) -> Desk {
        let (stats, paths) = (Arc::default(), Arc::default());
        Desk { posix, runtime, stats, paths, opens_nothing }
    }

    pub fn time(&self, operation: &str) -> Timer {
        Timer::start(&self.stats, operation)
    }

    /// Replies when the answer is ready. A longer call goes on in a task, so that this thread takes
    /// the next request.
    pub fn answer<T: Send + 'static>(
        &self,
        timer: Timer,
        answer: Answer<T>,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        self.answer_of(None, timer, answer, reply);
    }

    /// Answers like [`Desk::answer`] a request about this name in the directory that the request
    /// names.
    pub fn answer_of<T: Send + 'static>(
        &self,
        name: Option<&OsStr>,
        timer: Timer,
        answer: Answer<T>,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        match answer {
            Answer::Now(answer) => reply(answer),
            Answer::Soon(work) => {
                let request = timer.in_flight(&self.paths, name);
                let mut work: Work = Box::pin(timer.during(request, work, reply));
                let begun = {
                    let _runtime = self.runtime.enter();
                    work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                };
                if begun.is_pending() {
                    self.runtime.spawn(work);
                }
            }
            Answer::Later(work) => {
                let request = timer.in_flight(&self.paths, name);
                let work: Work = Box::pin(timer.during(request, work, reply));
                self.runtime.spawn(work);
            }
        }
    }

    /// Returns the source of a read: the opening, if there was one.
    pub fn source(&self, ino: Ino, handle: FileHandle) -> Source {
        if self.opens_nothing { Source::Unopened(ino) } else { Source::File(open(handle)) }
    }
}
