//! The trait of operations.

use bytes::Bytes;
use cairn_auth::{Action, Caller, Principal, Resource, authorize, is_allowed};
use cairn_base::{Error, Party, Timestamp};

use crate::needs::Declared;
use crate::rows::decode_number;
use crate::{Stop, View, keys};

/// The inputs of an operation besides its own fields.
#[derive(Clone, Debug)]
pub struct Context {
    pub caller: Caller,
    /// When the operation was accepted. Goes back only where the clock was set back.
    pub now: Timestamp,
    /// The batch that will make it durable; for a read, the batch it sees.
    pub batch: u64,
}

impl Context {
    /// Decides whether the caller may do this, and notes in the view that it was decided.
    ///
    /// # Errors
    /// `Denied` if not; `ReadOnly` if only the bucket or the store stands against it.
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

    /// Whether the caller may: for a choice among many things.
    pub fn allows(&self, action: Action, resource: Resource<'_>) -> bool {
        is_allowed(&self.caller, action, resource, &self.caller.context(self.now))
    }
}

/// One operation on the metadata: a pure function of the rows it sees, its own fields and the
/// context. It may run several times before it takes effect, so it must not keep anything.
pub trait Verb: Declared + Send + Sync + 'static {
    type Reply: Send + 'static;

    /// For metrics and traces.
    const NAME: &'static str;

    /// Whether it is run when the disk is full: it frees space, or nothing could be freed without.
    const RUNS_WHEN_FULL: bool = false;

    /// Whether a session that reads ranges by it keeps their rows, one by one. A range itself is
    /// never leased.
    const LEASES_RANGES: bool = false;

    /// Whether a session that runs it keeps the rows of names and inodes that it changed, as they
    /// are then, and those of extents in its own blocks. They must not tell more than the caller
    /// may know.
    const LEASES_CHANGES: bool = false;

    /// Whether a session may run it on its own on rows of a directory that is delegated to it, and
    /// have the master run it later.
    const POSTS: bool = false;

    /// Rows that it changes, as far as its fields say. A session lets go of them when it sends the
    /// operation, so that nobody has to wait until it was told to.
    fn changes(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// The party whose part of the reserve it takes, if it is run when the disk is full and frees
    /// no space.
    fn takes_reserve_of(&self) -> Option<Party> {
        None
    }

    /// Asks for what it needs ([`Declared`]) first, where that is not done before. Fails without
    /// having changed anything that matters: the changes of an operation that fails are dropped.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop>;
}
