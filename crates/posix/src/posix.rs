//! A file system: its open files, and the parts of it that callers may cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Ino, Result, Shares};
use cairn_fs::ops::for_call::{Callable, FindCall, ForCall, Once, SettleCall, SettleOutcome};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::rows::Inode;
use cairn_fs::{Fs, MetadataChange, WireVerb};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use crate::ahead::Ahead;
use crate::dirt::Dirt;
use crate::files::Files;
use crate::handle::{Descriptor, Handle};
use crate::keeper::Keeper;
use crate::kernel_view::{KernelView, Moment};
use crate::makers::Makers;
use crate::removed_directories::RemovedDirectories;
use crate::watches::Watches;
use crate::who::{Attempt, Step, Who};
use crate::whole::Whole;

/// Attempts at an operation for a call, while its outcome is unknown.
const TRIES: u32 = 3;

/// Settings of a file system.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes written and not written back, of all files: beyond this, writers wait.
    pub dirty_bytes: u64,
    /// Bytes written and not written back that come from one address: beyond this, its writers
    /// wait, and others go on.
    pub dirty_bytes_each: u64,
    /// True if clients open, close and lock files elsewhere, and write nothing: files are read by
    /// their inodes only.
    pub opens_nothing: bool,
}

/// Counters of the work so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub files_open: u64,
    pub bytes_dirty: u64,
    /// Inodes that the kernel knows, and removed directories among them.
    pub inodes_known: u64,
    pub removed_directories: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub bytes_written_back: u64,
}

/// The store as a file system of one session. It alone receives the changes for the session: two of
/// them never share a session.
pub struct Posix {
    pub(crate) fs: Fs,
    /// The user whose rights the store applies.
    pub(crate) user: Caller,
    pub(crate) runtime: Runtime,
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) known: KernelView,
    pub(crate) makers: Makers,
    pub(crate) whole: Whole,
    pub(crate) gone: RemovedDirectories,
    pub(crate) watches: Watches,
    pub(crate) ahead: Ahead,
    /// Room for listings that need a pass over a whole directory: they run one after the other.
    pub(crate) passes: Arc<Shares>,
    pub(crate) files: Files,
    pub(crate) dirt: Dirt,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    /// Notified when a lock may have become free.
    pub(crate) locks_changed: Notify,
}

impl Posix {
    /// Returns a file system. Background work runs in tasks of `runtime`.
    pub fn new(
        fs: Fs,
        user: Caller,
        runtime: Runtime,
        keeper: Arc<dyn Keeper>,
        options: Options,
    ) -> Arc<Posix> {
        Arc::new(Posix {
            files: Files::new(fs.clone(), options.opens_nothing),
            fs,
            user,
            runtime,
            keeper,
            known: KernelView::default(),
            makers: Makers::default(),
            whole: Whole::default(),
            gone: RemovedDirectories::default(),
            watches: Watches::default(),
            ahead: Ahead::default(),
            passes: Shares::new(1),
            dirt: Dirt::new(options.dirty_bytes, options.dirty_bytes_each),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            locks_changed: Notify::new(),
        })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// From now on, written bytes overwrite nothing that others have written since: they are
    /// dropped, and `dropped` is called before. Applies to files that are opened after this call.
    pub fn never_overwrite(&self, dropped: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.files.dropped.set(Arc::new(dropped));
    }

    /// Receives changes from elsewhere from now on, and invalidates them at the keeper.
    pub fn follow_changes(self: &Arc<Posix>) {
        let posix = Arc::downgrade(self);
        self.fs.on_change(move |changed| {
            if let Some(posix) = posix.upgrade() {
                posix.changed(changed);
            }
        });
    }

    /// Invalidates what has changed. Must not wait for anything, as the change waits for this.
    fn changed(&self, changed: MetadataChange) {
        match changed {
            MetadataChange::All => {
                for ino in self.known.change_all() {
                    self.keeper.forget_attributes(ino);
                }
                self.whole.end_all();
                self.watches.change_all();
                self.keeper.forget_names();
                self.locks_changed.notify_waiters();
            }
            MetadataChange::Inode(ino) | MetadataChange::Tally(ino) => {
                self.known.change(ino, matches!(changed, MetadataChange::Tally(_)));
                self.whole.end(ino);
                self.watches.change(ino);
                // An inode that is just on its way to the keeper is found by its name.
                if !self.keeper.forget_attributes(ino) {
                    self.keeper.forget_names();
                }
            }
            MetadataChange::Entry(_) => {
                self.known.change_other();
                self.keeper.forget_names();
            }
            MetadataChange::OurInode(ino) | MetadataChange::OurTally(ino) => {
                self.known.change_here(ino, matches!(changed, MetadataChange::OurTally(_)));
                self.keeper.forget_attributes(ino);
            }
            MetadataChange::OurEntry(parent, name) => {
                self.known.change_other();
                self.whole.make(parent, &name);
                if !self.makers.make(parent) {
                    self.keeper.forget_names();
                }
            }
            MetadataChange::Locks => self.locks_changed.notify_waiters(),
            MetadataChange::Other => self.known.change_other(),
        }
    }

    /// Notes that the keeper forgets an inode some times.
    pub fn forget(&self, ino: Ino, times: u64) {
        if self.known.leave(ino, times) {
            self.gone.forget(ino);
        }
    }

    /// Returns the caller of an operation that changes something.
    pub(crate) fn caller(&self, who: &Who) -> Caller {
        who.caller_in_groups(&self.user)
    }

    /// Runs an operation; if it is for a call, the operation takes effect once. It is run again if
    /// its outcome may have been lost.
    pub(crate) async fn run<V: Callable + WireVerb + Clone>(
        &self,
        who: &Who,
        step: Step,
        verb: V,
    ) -> Result<Once<V::Reply>>
    where
        ForCall<V>: WireVerb<Reply = Once<V::Reply>>,
    {
        let caller = self.caller(who);
        let Some(call) = who.call(step) else {
            return Ok(Once::Done(self.fs.run(&caller, verb).await?));
        };
        let most = if is_planted(Bug::UnknownAnswered) { 1 } else { TRIES };
        let mut tries = 0;
        loop {
            tries += 1;
            who.begin()?;
            match self.fs.run(&caller, ForCall { call, verb: verb.clone() }).await {
                Err(error @ Error::Unavailable(_)) if tries < most => {
                    tracing::debug!(%error, "tried again");
                }
                ran => {
                    if ran.is_ok() {
                        who.has_done(step);
                    }
                    return ran;
                }
            }
        }
    }

    /// Records the outcome of an attempt before the client receives it: `status`, 0 if the
    /// requested result exists. No other attempt at the same call can have another outcome then. If
    /// the last step succeeded, its outcome is recorded already.
    ///
    /// # Errors
    /// The error if the outcome could not be recorded, or it is unknown whether it was.
    pub async fn settle(&self, attempt: &Attempt, status: u32) -> Result<SettleOutcome> {
        let call = attempt.next();
        if status == 0 && call.step > 0 {
            return Ok(SettleOutcome::Kept);
        }
        self.fs.run(&Caller::system(), SettleCall { call, status, found: attempt.found() }).await
    }

    /// Returns whether the changes of a call were made before.
    ///
    /// # Errors
    /// The error if that cannot be found out now.
    pub async fn was_set(&self, who: &Who) -> Result<bool> {
        match who.call(Step::Size) {
            Some(call) => self.fs.read(&Caller::system(), FindCall { call }).await,
            None => Ok(false),
        }
    }

    /// Returns an inode that was made, now or by an earlier attempt.
    pub(crate) async fn made(&self, who: &Who, made: Once<(Ino, Inode)>) -> Result<(Ino, Inode)> {
        match made {
            Once::Done(made) => Ok(made),
            Once::Before(ino) => {
                Ok((ino, self.fs.read(&self.caller(who), Getattr { ino }).await?.0))
            }
        }
    }

    /// Returns the time for which rows read under leases since `moment` may be kept.
    pub(crate) fn keeps(&self, moment: Moment) -> Duration {
        if self.known.moment() == moment { self.fs.lease_left() } else { Duration::ZERO }
    }

    pub(crate) fn keeps_name(&self, keeps: Duration) -> Duration {
        if self.keeper.keeps_names() { keeps } else { Duration::ZERO }
    }

    /// Returns an open file that can be used.
    ///
    /// # Errors
    /// `Invalid` for a number that is not open; `Io` if its locks are lost.
    pub(crate) fn usable(&self, file: Descriptor) -> Result<Arc<Handle>> {
        let handle = self.files.handle(file)?;
        handle.check_locks(self.fs.session())?;
        Ok(handle)
    }

    /// Returns whether a file is open and can be used.
    pub fn is_usable(&self, file: Descriptor) -> bool {
        self.usable(file).is_ok()
    }

    /// Returns whether a file is open, can be used, and was opened for writing.
    pub fn is_writable(&self, file: Descriptor) -> bool {
        self.usable(file).is_ok_and(|handle| handle.writes)
    }

    pub fn stats(&self) -> Stats {
        Stats {
            files_open: self.files.count(),
            bytes_dirty: self.dirt.bytes(),
            inodes_known: self.known.count(),
            removed_directories: self.gone.count(),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            bytes_written_back: self.dirt.written_back(),
        }
    }
}
