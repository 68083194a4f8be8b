//! Requests that threads have taken from the kernel: who asks, and about what. The table of
//! requests in flight shows them.

use std::cell::Cell;

use cairn_base::Ino;
use fuser::{INodeNo, Request};

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Process that asks; 0 if it has no number here.
    pub process: u32,
    pub uid: u32,
    /// Inode of the request, or the directory of its name.
    pub ino: Ino,
}

thread_local! {
    static TAKEN: Cell<Asked> = const { Cell::new(Asked { process: 0, uid: 0, ino: Ino(0) }) };
}

impl Asked {
    pub fn new(request: &Request, ino: INodeNo) -> Asked {
        Asked { process: request.pid(), uid: request.uid(), ino: Ino(ino.0) }
    }

    /// Notes that this thread answers the request from now on.
    pub fn take(self) {
        TAKEN.set(self);
    }

    /// Returns the request that this thread took last.
    pub fn taken() -> Asked {
        TAKEN.get()
    }
}
