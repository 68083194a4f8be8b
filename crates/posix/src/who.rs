//! The user or client on whose behalf a request is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Posix};
use cairn_base::{Error, Ino, Party, Result};
use cairn_fs::ops::for_call::CallId;
use tokio::time::Instant;

/// Time after the arrival of a call within which work may begin for it. Work that has begun ends
/// within the same time again, and a call is remembered for longer than both.
const BEGINS: Duration = Duration::from_secs(80);

/// The process or client that makes a call.
#[derive(Clone, Debug)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    groups: Groups,
    /// The user whose rights the store applies, if it is not the user of the file system.
    user: Option<Caller>,
    /// The attempt at the call, if the request may be sent again and takes effect once.
    call: Option<Attempt>,
}

/// An attempt at a call, and its progress.
#[derive(Clone, Debug)]
pub struct Attempt {
    call: CallId,
    came: Instant,
    come: Arc<Come>,
}

#[derive(Default, Debug)]
struct Come {
    /// Number of the next step: all steps before it were done, by any attempt.
    next: AtomicU8,
    /// The inode that turned out to be the result of the call.
    found: AtomicU64,
}

impl Attempt {
    /// Returns an attempt at a call that arrived at `came`.
    pub fn new(call: CallId, came: Instant) -> Attempt {
        Attempt { call, came, come: Arc::default() }
    }

    fn done(&self, step: u8) {
        self.come.next.fetch_max(step.saturating_add(1), Ordering::SeqCst);
    }

    /// Returns the call at its next step: all steps before it were done.
    pub(crate) fn next(&self) -> CallId {
        CallId { step: self.come.next.load(Ordering::SeqCst), ..self.call }
    }

    pub(crate) fn found(&self) -> Ino {
        Ino(self.come.found.load(Ordering::SeqCst))
    }
}

/// Number of the last step of a call that is known to end with it.
const LAST_STEP: u8 = 128;

/// The steps of the work for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Makes an inode, or changes names.
    Names,
    /// Truncates it.
    Size,
    /// Sets its attributes.
    Attributes,
}

/// The supplementary groups of a user.
#[derive(Clone, Debug)]
enum Groups {
    Known(Arc<[u32]>),
    /// Groups that are looked up when they matter.
    Sought {
        process: u32,
        find: fn(u32) -> Vec<u32>,
    },
}

impl Who {
    pub fn root() -> Who {
        Who::new(0, 0, &[])
    }

    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Who {
        Who { uid, gid, groups: Groups::Known(groups.into()), user: None, call: None }
    }

    /// Sets the user whose rights the store applies: needed if clients of several users share a
    /// file system.
    pub fn for_user(self, user: Caller) -> Who {
        Who { user: Some(user), ..self }
    }

    /// Returns the party of its source address, if it has one.
    pub(crate) fn party(&self) -> Party {
        let source = self.user.as_ref().and_then(|user| user.origin().source);
        source.map_or(Party::Other, Party::at)
    }

    /// Returns the user whose rights the store applies, if it is not the user of the file system.
    pub fn user(&self) -> Option<&Caller> {
        self.user.as_ref()
    }

    /// Sets the attempt at a call. If a request has several steps, those that were not done before
    /// are done, in this order: making an inode, truncating it, setting its attributes. They are
    /// counted from the step of the call on.
    pub fn for_call(self, attempt: Attempt) -> Who {
        Who { call: Some(attempt), ..self }
    }

    /// Makes `last` the last step of the call: whatever else an attempt does before, no other
    /// attempt does its own last step after that.
    pub fn ending_with(self, last: Step) -> Who {
        let ending = |attempt: Attempt| Attempt {
            call: CallId { step: LAST_STEP - last as u8, ..attempt.call },
            ..attempt
        };
        Who { call: self.call.map(ending), ..self }
    }

    pub(crate) fn call(&self, step: Step) -> Option<CallId> {
        let call = self.call.as_ref()?.call;
        Some(CallId { step: call.step.saturating_add(step as u8), ..call })
    }

    /// Checks that work may begin for the call.
    ///
    /// # Errors
    /// `Unavailable` if the call is so old that it may be forgotten before the work is done.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.call.as_ref().is_some_and(|attempt| attempt.came.elapsed() > BEGINS) {
            Err(Error::Unavailable("the call came too long ago to be done".into()))
        } else {
            Ok(())
        }
    }

    /// Notes that a step of the call was done, now or before.
    pub(crate) fn has_done(&self, step: Step) {
        if let (Some(attempt), Some(call)) = (&self.call, self.call(step)) {
            attempt.done(call.step);
        }
    }

    /// Notes that the result of the call exists, though it was not made by this call.
    pub fn has_found(&self, ino: Ino) {
        if let Some(attempt) = &self.call {
            attempt.come.found.store(ino.0, Ordering::SeqCst);
        }
    }

    /// Returns the superuser of the same user.
    pub(crate) fn as_root(&self) -> Who {
        Who { user: self.user.clone(), ..Who::root() }
    }

    /// Returns a process: `find` returns its groups, if they matter. Mode bits were checked before.
    pub fn process(uid: u32, gid: u32, process: u32, find: fn(u32) -> Vec<u32>) -> Who {
        Who { uid, gid, groups: Groups::Sought { process, find }, user: None, call: None }
    }

    /// Returns the caller in the groups that are known. That is enough for most, since mode bits
    /// were checked if the groups are unknown.
    pub(crate) fn caller(&self, user: &Caller) -> Caller {
        let groups = match &self.groups {
            Groups::Known(groups) => groups.to_vec(),
            Groups::Sought { .. } => Vec::new(),
        };
        self.of(user).clone().with_posix(Posix { uid: self.uid, gid: self.gid, groups })
    }

    fn of<'a>(&'a self, user: &'a Caller) -> &'a Caller {
        self.user.as_ref().unwrap_or(user)
    }

    /// Returns the caller in all of its groups.
    pub(crate) fn caller_in_groups(&self, user: &Caller) -> Caller {
        match &self.groups {
            Groups::Sought { process, find } if self.uid != 0 => {
                let groups = find(*process);
                self.of(user).clone().with_posix(Posix { uid: self.uid, gid: self.gid, groups })
            }
            _ => self.caller(user),
        }
    }

    /// Returns whether the store may decide otherwise once all groups are known.
    pub(crate) fn has_more_groups(&self) -> bool {
        self.uid != 0 && matches!(self.groups, Groups::Sought { .. })
    }

    /// Returns whether both are the same process or client.
    pub(crate) fn is(&self, other: &Who) -> bool {
        let are_same = match (&self.groups, &other.groups) {
            (Groups::Known(one), Groups::Known(other)) => one == other,
            (Groups::Sought { process: one, .. }, Groups::Sought { process: other, .. }) => {
                one == other
            }
            _ => false,
        };
        let is_same_user = match (&self.user, &other.user) {
            (Some(one), Some(other)) => one.acts_as(other),
            (None, None) => true,
            _ => false,
        };
        are_same && is_same_user && (self.uid, self.gid) == (other.uid, other.gid)
    }
}
