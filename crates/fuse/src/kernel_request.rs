//! Requests that threads have taken from the kernel: who asks, and about what. The table of
//! requests in flight shows them.

use std::cell::Cell;

use cairn_base::Ino;
use fuser::{INodeNo, Request};

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelRequest {
    /// Process that asks; 0 if it has no number here.
    pub process: u32,
    pub uid: u32,
    /// Inode of the request, or the directory of its name.
    pub ino: Ino,
}

thread_local! {
    static TAKEN: Cell<KernelRequest> =
        const { Cell::new(KernelRequest { process: 0, uid: 0, ino: Ino(0) }) };
}

impl KernelRequest {
    pub fn new(request: &Request, ino: INodeNo) -> KernelRequest {
        KernelRequest { process: request.pid(), uid: request.uid(), ino: Ino(ino.0) }
    }

    /// Notes that this thread answers the request from now on.
    pub fn take(self) {
        TAKEN.set(self);
    }

    /// Returns the request that this thread took last.
    pub fn taken() -> KernelRequest {
        TAKEN.get()
    }
}
