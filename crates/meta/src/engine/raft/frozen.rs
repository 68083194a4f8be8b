//! The rows of a member whose process does not run, for read-only use.

use std::sync::Arc;

use cairn_base::{Disk, Error, Result};

use super::super::config::Config;
use super::super::{Change, CommitError, Engine, Fence, Snapshot};
use super::store::MemberStore;

/// A read-only engine.
pub struct FrozenMember(MemberStore);

impl FrozenMember {
    /// Opens the member's disk and applies all entries of its log. So it has everything that was
    /// acknowledged by masters of which this one was the only voter. Of several masters, it has
    /// this one's state: that may be less, and may include changes that were never acknowledged.
    ///
    /// # Errors
    /// Same errors as [`MemberStore::open`].
    pub fn open(disk: Arc<dyn Disk>, config: Config) -> Result<FrozenMember> {
        let store = MemberStore::open_any(disk, config)?;
        store.apply_all()?;
        Ok(FrozenMember(store))
    }
}

fn read_only() -> Error {
    Error::NotImplemented("changes of metadata that are only read".into())
}

impl Engine for FrozenMember {
    fn fence(&self) -> Result<Fence> {
        Ok(self.0.fence())
    }

    fn take_over_at(&self, _: u64) -> Result<Fence> {
        Err(read_only())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.0.snapshot())
    }

    fn commit(&self, _: Fence, _: Vec<Change>) -> Result<(), CommitError> {
        Err(CommitError::Failed(read_only()))
    }
}
