//! The fsck of the cluster that runs, or ended last.

use std::sync::{Arc, OnceLock};

use cairn_base::fsck::{FsckFound, FsckState};
use parking_lot::Mutex;

use super::paced_snapshot::Going;

pub(super) struct Fsck {
    pub going: Going,
    pub found: OnceLock<Arc<FsckFound>>,
    state: Mutex<FsckState>,
}

impl Fsck {
    pub(super) fn new(going: Going, state: FsckState) -> Fsck {
        Fsck { going, found: OnceLock::new(), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> FsckState {
        self.state.lock().clone()
    }

    pub(super) fn note<R>(&self, change: impl FnOnce(&mut FsckState) -> R) -> R {
        change(&mut self.state.lock())
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.state.lock().phase.is_under_way()
    }
}
