//! Orders of an fsck of the cluster, and questions about it.

use std::sync::Arc;

use cairn_base::fsck::{FsckFound, FsckPhase, FsckState, Orderer};
use cairn_base::scrub::RunOrder;
use cairn_base::{Error, Result};

use super::controller::Controller;
use super::fsck::Fsck;
use super::paced_snapshot::Going;
use super::scrubbing::check_number;
use crate::limits::FSCK_USER_BYTES;

impl Controller {
    /// Begins an fsck, stops it, or returns its state. `run` is its number; 0 stands for the fsck
    /// that runs or ended last. While an fsck runs no other begins: the answer is then the state of
    /// the running fsck.
    ///
    /// # Errors
    /// `Unavailable` if this master serves no longer.
    pub fn fsck(self: &Arc<Self>, run: u64, order: RunOrder, by: Orderer) -> Result<FsckState> {
        check_number("an fsck", run, order)?;
        if by.user.len() > FSCK_USER_BYTES {
            let text = format!("the name of the user has more than {FSCK_USER_BYTES} bytes");
            return Err(Error::Invalid(text));
        }
        self.chunkserver_pool()?;
        self.master.check_serving()?;
        let mut latest = self.fsck.lock();
        match &*latest {
            Some(fsck) if order == RunOrder::Begin => {
                if fsck.is_under_way() || fsck.state().run == run {
                    return Ok(fsck.state());
                }
            }
            Some(fsck) if run == 0 || fsck.state().run == run => {
                if order == RunOrder::Stop {
                    fsck.going.stop();
                }
                return Ok(fsck.state());
            }
            None if order == RunOrder::Begin => {}
            known => return Ok(unknown(run, known.is_some())),
        }
        let state = FsckState { run, phase: FsckPhase::Rows, by, ..FsckState::default() };
        let state = FsckState { begun: self.clock.now(), ..state };
        let going = Going::new(self.master.clone());
        let fsck = Arc::new(Fsck::new(going, state.clone()));
        *latest = Some(Arc::clone(&fsck));
        tokio::spawn(Arc::clone(self).carry_out(fsck));
        Ok(state)
    }

    /// Returns the results of an fsck; `None` while it runs, or if it did not reach its end.
    ///
    /// # Errors
    /// `NotFound` if this master does not know it; `Unavailable` if it serves no longer.
    pub fn fsck_found(&self, run: u64) -> Result<Option<Arc<FsckFound>>> {
        self.master.check_serving()?;
        let latest = self.fsck.lock();
        match &*latest {
            Some(fsck) if run == 0 || fsck.state().run == run => Ok(fsck.found.get().cloned()),
            known => Err(Error::NotFound(unknown(run, known.is_some()).failure)),
        }
    }
}

/// Returns the state of an fsck that this master does not know. The former master may have made it.
fn unknown(run: u64, knows_another: bool) -> FsckState {
    let (phase, failure) = match (run, knows_another) {
        (0, _) => (FsckPhase::Unknown, "no fsck was made since this master serves"),
        (_, true) => (FsckPhase::Unknown, "it ended, and another fsck followed"),
        (_, false) => (FsckPhase::Replaced, "it ended because another master serves now"),
    };
    FsckState { run, phase, failure: failure.to_owned(), ..FsckState::default() }
}
