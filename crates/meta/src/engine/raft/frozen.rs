//! The rows of a member whose process does not run, for who only reads them.

use std::sync::Arc;

use cairn_base::{Disk, Error, Result};

use super::super::config::Config;
use super::super::{Change, CommitError, Engine, Fence, Snapshot};
use super::store::MemberStore;

/// An engine that only reads.
pub struct FrozenMember(MemberStore);

impl FrozenMember {
    /// Opens the member's disk and applies all entries of its log. So everything is there that was
    /// acknowledged by masters of which this one was the only voter, and of several masters what
    /// this one has: maybe less, and maybe changes that were never acknowledged.
    ///
    /// # Errors
    /// As [`MemberStore::open`].
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
