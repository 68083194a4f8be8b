//! On whose behalf a request is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Posix};
use cairn_base::{Error, Ino, Party, Result};
use cairn_fs::ops::for_call::CallId;
use tokio::time::Instant;

/// For how long after a call came something is begun for it. What was begun ends within as much
/// again, and a call is known for longer than both.
const BEGINS: Duration = Duration::from_secs(80);

/// The process or client that makes a call.
#[derive(Clone, Debug)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    groups: Groups,
    /// As whom the store knows it, if not as the user of the file system.
    user: Option<Caller>,
    /// The request may be sent again, and is done once.
    call: Option<Attempt>,
}

/// An attempt at a call, and how far it has come.
#[derive(Clone, Debug)]
pub struct Attempt {
    call: CallId,
    came: Instant,
    come: Arc<Come>,
}

#[derive(Default, Debug)]
struct Come {
    /// The step after the last one that was done, by whichever attempt.
    next: AtomicU8,
    /// The inode that was found to be what the call asks for.
    found: AtomicU64,
}

impl Attempt {
    /// At a call that came at `came`.
    pub fn new(call: CallId, came: Instant) -> Attempt {
        Attempt { call, came, come: Arc::default() }
    }

    fn done(&self, step: u8) {
        self.come.next.fetch_max(step.saturating_add(1), Ordering::SeqCst);
    }

    /// The call, with the step after the last one that was done.
    pub(crate) fn next(&self) -> CallId {
        CallId { step: self.come.next.load(Ordering::SeqCst), ..self.call }
    }

    pub(crate) fn found(&self) -> Ino {
        Ino(self.come.found.load(Ordering::SeqCst))
    }
}

/// The last step of a call of which it is said how many come before.
const LAST_STEP: u8 = 128;

/// Steps of what is done for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Making an inode, or changing names.
    Names,
    /// Truncating it.
    Size,
    /// Setting its attributes.
    Attributes,
}

/// The supplementary groups of a user.
#[derive(Clone, Debug)]
enum Groups {
    Known(Arc<[u32]>),
    /// To be looked for where they matter.
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

    /// The same for the store as `user`: where clients of several users share a file system.
    pub fn for_user(self, user: Caller) -> Who {
        Who { user: Some(user), ..self }
    }

    /// The address that it comes from, if it is one.
    pub(crate) fn party(&self) -> Party {
        let source = self.user.as_ref().and_then(|user| user.origin().source);
        source.map_or(Party::Other, Party::at)
    }

    /// As whom the store knows it, if not as the user of the file system.
    pub fn user(&self) -> Option<&Caller> {
        self.user.as_ref()
    }

    /// The same with an attempt at a call. Of a request in several steps, the steps are done that
    /// were not done before, in this order: making an inode, truncating it, setting its attributes.
    /// They are counted from the step of the call on.
    pub fn for_call(self, attempt: Attempt) -> Who {
        Who { call: Some(attempt), ..self }
    }

    /// The same where what comes last for its call is `last`: whatever else an attempt does before,
    /// no other attempt does its own last step after that.
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

    /// # Errors
    /// `Unavailable` where the call came so long ago that it may be forgotten before something that
    /// is begun for it now is done.
    pub(crate) fn begin(&self) -> Result<()> {
        match self.call.as_ref().is_some_and(|attempt| attempt.came.elapsed() > BEGINS) {
            true => Err(Error::Unavailable("the call came too long ago to be done".into())),
            false => Ok(()),
        }
    }

    /// A step of the call was done, now or before.
    pub(crate) fn has_done(&self, step: Step) {
        if let (Some(attempt), Some(call)) = (&self.call, self.call(step)) {
            attempt.done(call.step);
        }
    }

    /// What the call asks for is there, though not made for it.
    pub fn has_found(&self, ino: Ino) {
        if let Some(attempt) = &self.call {
            attempt.come.found.store(ino.0, Ordering::SeqCst);
        }
    }

    /// The superuser of the same user.
    pub(crate) fn as_root(&self) -> Who {
        Who { user: self.user.clone(), ..Who::root() }
    }

    /// A process: `find` says in which groups it is, where that matters. Somebody has checked
    /// mode bits before.
    pub fn process(uid: u32, gid: u32, process: u32, find: fn(u32) -> Vec<u32>) -> Who {
        Who { uid, gid, groups: Groups::Sought { process, find }, user: None, call: None }
    }

    /// In those groups that are known: enough for most, since mode bits were checked where groups
    /// are not.
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

    /// In all groups.
    pub(crate) fn caller_in_groups(&self, user: &Caller) -> Caller {
        match &self.groups {
            Groups::Sought { process, find } if self.uid != 0 => {
                let groups = find(*process);
                self.of(user).clone().with_posix(Posix { uid: self.uid, gid: self.gid, groups })
            }
            _ => self.caller(user),
        }
    }

    /// Whether the store may decide otherwise once all groups are known.
    pub(crate) fn has_more_groups(&self) -> bool {
        self.uid != 0 && matches!(self.groups, Groups::Sought { .. })
    }

    /// The same who asks.
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
