//! The trait of operations.

use bytes::Bytes;
use cairn_auth::{Action, Caller, Principal, Resource, authorize, is_allowed};
use cairn_base::{Error, Party, Timestamp};

use crate::needs::VerbNeeds;
use crate::rows::decode_number;
use crate::{Stop, View, keys};

/// The inputs of an operation in addition to its own fields.
#[derive(Clone, Debug)]
pub struct Context {
    pub caller: Caller,
    /// Time when the operation was accepted. Goes back only if the clock was set back.
    pub now: Timestamp,
    /// Batch that will make it durable; for a read, the batch that it sees.
    pub batch: u64,
}

impl Context {
    /// Checks that the caller may do this, and notes in the view that it was decided.
    ///
    /// # Errors
    /// `Denied` if not; `ReadOnly` if only a read-only bucket or store forbids it.
    pub fn authorize(
        &self,
        view: &mut View<'_>,
        action: Action,
        resource: Resource<'_>,
    ) -> Result<(), Stop> {
        authorize(&self.caller, action, resource, &self.caller.context(self.now))?;
        if action.changes_contents() && self.caller.principal() != Principal::System {
            let row = view.get(&keys::read_only())?;
            if row.as_ref().map(decode_number).transpose()?.is_some_and(|value| value != 0) {
                return Err(Error::ReadOnly("the store takes no changes now".into()).into());
            }
        }
        view.note_allowed(action);
        Ok(())
    }

    /// Returns whether the caller may do this: for a choice among many things.
    pub fn allows(&self, action: Action, resource: Resource<'_>) -> bool {
        is_allowed(&self.caller, action, resource, &self.caller.context(self.now))
    }
}

/// One operation on the metadata: a pure function of the rows that it sees, its own fields and the
/// context. It may run several times before it takes effect, so it must not keep any state.
pub trait Verb: VerbNeeds + Send + Sync + 'static {
    type Reply: Send + 'static;

    /// Name for metrics and traces.
    const NAME: &'static str;

    /// Runs even if the disk is full: it frees space, or nothing could be freed without it.
    const RUNS_WHEN_FULL: bool = false;

    /// Lets a session that reads ranges by it keep their rows, one by one. A range itself is never
    /// leased.
    const LEASES_RANGES: bool = false;

    /// Lets a session that runs it keep the changed rows of names and inodes, and of extents in its
    /// own blocks. These must not tell more than the caller may know.
    const LEASES_CHANGES: bool = false;

    /// Lets a session run it on its own on rows of a directory that is delegated to it, and have
    /// the master run it later.
    const POSTS: bool = false;

    /// Returns the rows that it changes, as far as its fields determine them. A session gives them
    /// up when it sends the operation, so that nobody has to wait for a recall.
    fn changes(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// Returns the party whose part of the reserve it takes, if it runs on a full disk and frees no
    /// space.
    fn takes_reserve_of(&self) -> Option<Party> {
        None
    }

    /// Runs the operation. It first checks the rights that it needs ([`VerbNeeds`]), unless that
    /// was done before. If it fails, its changes are dropped.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop>;
}
