//! Open files and directories, by number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_auth::Caller;
use cairn_base::{Error, Party, Result, SessionId};

use crate::dirt::{Account, Dirt};
use crate::intent::Intent;
use crate::node::Node;
use crate::owners::{Lockers, lost};

/// The number of an open file or directory. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor(pub u64);

/// An open file.
pub struct Handle {
    /// Number of the handle, unique in this session.
    pub number: u64,
    pub node: Arc<Node>,
    pub caller: Caller,
    /// The account that written bytes count for, once there are any.
    account: OnceLock<Arc<Account>>,
    /// True if all writes go to the end of the file, and no client caches pages of them.
    pub appends: bool,
    pub writes: bool,
    /// Base of its writes: the number of the last change of the file's bytes when it was opened.
    pub base: Option<u64>,
    /// True if written bytes are durable before the write returns.
    pub syncs: bool,
    pub lockers: Lockers,
    heard: Heard,
    /// Number of losses of the file's written bytes, by any writer, that were reported to this
    /// handle.
    heard_losses: Heard,
}

impl Handle {
    /// Returns a handle. `lost` is the number of operations that are lost by now.
    pub fn new(
        number: u64,
        node: Arc<Node>,
        caller: Caller,
        intent: Intent,
        base: Option<u64>,
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

    /// Returns the account for bytes that are written through this handle.
    pub fn account(&self, dirt: &Dirt) -> &Arc<Account> {
        self.account.get_or_init(|| {
            let source = self.caller.origin().source;
            dirt.account(source.map_or(Party::Other, Party::at))
        })
    }

    /// Reports losses, each of them once.
    ///
    /// # Errors
    /// `Io` if operations (of which `lost` are lost by now) or bytes written to the file were lost
    /// since the last call.
    pub fn hear(&self, lost: u64) -> Result<()> {
        let (operations, bytes) =
            (self.heard.hear(lost), self.heard_losses.hear(self.node.losses()));
        operations.and(bytes)
    }

    /// Checks that the locks taken through this handle still exist.
    ///
    /// # Errors
    /// `Io` if they are lost.
    pub fn check_locks(&self, now: SessionId) -> Result<()> {
        if self.lockers.any(|owners| self.node.locks.lost(owners, now)) {
            Err(lost(self.node.ino))
        } else {
            Ok(())
        }
    }

    /// Returns the owners whose locks must be released when this handle is closed.
    pub fn leave_locks(&self) -> Vec<u64> {
        self.lockers.left(&self.node.locks, self.number)
    }
}

/// Number of lost operations that were reported through an open file or directory.
pub struct Heard(AtomicU64);

impl Heard {
    pub fn new(lost: u64) -> Heard {
        Heard(AtomicU64::new(lost))
    }

    /// Reports a loss, once.
    ///
    /// # Errors
    /// `Io` if more operations are lost than were reported.
    pub fn hear(&self, lost: u64) -> Result<()> {
        if self.0.fetch_max(lost, Ordering::SeqCst) >= lost {
            return Ok(());
        }
        Err(Error::Io(std::io::Error::other(
            "a change that was answered before it was durable is lost: see the log of the mount",
        )))
    }
}
