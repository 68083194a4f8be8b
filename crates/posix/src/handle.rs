//! The open files, by number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_auth::Caller;
use cairn_base::{Error, Party, Result, SessionId};

use crate::dirt::{Account, Dirt};
use crate::intent::Intent;
use crate::node::Node;
use crate::owners::{Lockers, lost};

/// Names something that is open. None is used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor(pub u64);

/// A file that somebody has open.
pub struct Handle {
    /// No other one of this session ever had it.
    pub number: u64,
    pub node: Arc<Node>,
    pub caller: Caller,
    /// The account that written bytes count for, once there are any.
    account: OnceLock<Arc<Account>>,
    /// It was opened so, and nobody keeps pages of what is written by it.
    pub appends: bool,
    pub writes: bool,
    /// The state of the file that it writes over: the number of the last change of its bytes.
    pub base: Option<u64>,
    /// Written bytes are durable before the program hears that they are written.
    pub syncs: bool,
    pub lockers: Lockers,
    heard: Heard,
    /// Of what was dropped of its file, by whomever it was written.
    heard_losses: Heard,
}

impl Handle {
    /// `lost`: operations that have come to nothing by now.
    pub fn new(
        number: u64,
        node: Arc<Node>,
        caller: Caller,
        (intent, base): (Intent, Option<u64>),
        lost: u64,
    ) -> Handle {
        let Intent { appends, writes, syncs, .. } = intent;
        let (lockers, heard) = (Lockers::default(), Heard::new(lost));
        let heard_losses = Heard::new(node.losses());
        let account = OnceLock::new();
        Handle {
            number,
            node,
            caller,
            account,
            appends,
            writes,
            base,
            syncs,
            lockers,
            heard,
            heard_losses,
        }
    }

    /// Of what is written by it.
    pub fn account(&self, dirt: &Dirt) -> &Arc<Account> {
        self.account.get_or_init(|| {
            let source = self.caller.origin().source;
            dirt.account(source.map_or(Party::Other, Party::at))
        })
    }

    /// # Errors
    /// Once, if anything came to nothing that was done before: operations, of which `lost` are by
    /// now, or what was written to the file.
    pub fn hear(&self, lost: u64) -> Result<()> {
        let (operations, bytes) =
            (self.heard.hear(lost), self.heard_losses.hear(self.node.losses()));
        operations.and(bytes)
    }

    /// # Errors
    /// `Io` when locks that were taken by this descriptor are lost.
    pub fn check_locks(&self, now: SessionId) -> Result<()> {
        match self.lockers.any(|owners| self.node.locks.lost(owners, now)) {
            false => Ok(()),
            true => Err(lost(self.node.ino)),
        }
    }

    /// It is closed: the owners whose locks go with it.
    pub fn leave_locks(&self) -> Vec<u64> {
        self.lockers.left(&self.node.locks, self.number)
    }
}

/// How many operations that were lost with a server whoever has something open was told of.
pub struct Heard(AtomicU64);

impl Heard {
    pub fn new(lost: u64) -> Heard {
        Heard(AtomicU64::new(lost))
    }

    /// # Errors
    /// Once, if more are lost by now.
    pub fn hear(&self, lost: u64) -> Result<()> {
        if self.0.fetch_max(lost, Ordering::SeqCst) >= lost {
            return Ok(());
        }
        Err(Error::Io(std::io::Error::other(
            "a change that was answered before it was durable is lost: see the log of the mount",
        )))
    }
}
