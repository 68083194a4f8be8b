//! A file system: what is open, and what of it others may keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Ino, Result, Shares};
use cairn_fs::ops::for_call::{Callable, FindCall, ForCall, Once, SettleCall, Settled};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::rows::Inode;
use cairn_fs::{Changed, Fs, WireVerb};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use crate::ahead::Ahead;
use crate::cookies::Cookies;
use crate::dirt::Dirt;
use crate::files::Files;
use crate::gone::Gone;
use crate::handle::{Descriptor, Handle};
use crate::keeper::Keeper;
use crate::known::{Known, Moment};
use crate::makers::Makers;
use crate::watches::Watches;
use crate::who::{Attempt, Step, Who};
use crate::whole::Whole;

/// Attempts at an operation for a call, where it is not known what became of it.
const TRIES: u32 = 3;

/// How a file system behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes written and not written back, of all files: beyond that writers wait.
    pub dirty_bytes: u64,
    /// The same of what is written from one address: others go on.
    pub dirty_bytes_each: u64,
    /// Somebody else opens, closes and locks files, and nothing is written: they are read by their
    /// inodes only.
    pub opens_nothing: bool,
}

/// The work done so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub files_open: u64,
    pub bytes_dirty: u64,
    pub inodes_known: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub bytes_written_back: u64,
}

/// The store as a file system of one session. It hears alone of what changes in the session: no two
/// of them share one.
pub struct Posix {
    pub(crate) fs: Fs,
    /// As whom the store knows it.
    pub(crate) user: Caller,
    pub(crate) runtime: Runtime,
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) known: Known,
    pub(crate) makers: Makers,
    pub(crate) whole: Whole,
    pub(crate) gone: Gone,
    pub(crate) watches: Watches,
    pub(crate) cookies: Cookies,
    pub(crate) ahead: Ahead,
    /// A search for a cookie that is not known looks at all of a directory: one after the other.
    pub(crate) seeks: Arc<Shares>,
    pub(crate) files: Files,
    pub(crate) dirt: Dirt,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    /// A lock may have become free.
    pub(crate) locks_changed: Notify,
}

impl Posix {
    /// Work that nobody waits for is done in tasks of `runtime`.
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
            known: Known::default(),
            makers: Makers::default(),
            whole: Whole::default(),
            gone: Gone::default(),
            watches: Watches::default(),
            cookies: Cookies::default(),
            ahead: Ahead::default(),
            seeks: Shares::new(1),
            dirt: Dirt::new(options.dirty_bytes, options.dirty_bytes_each),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            locks_changed: Notify::new(),
        })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// From now on bytes that were taken overwrite nothing that others have written since: they are
    /// dropped, and `dropped` is told before. For files that are opened after this.
    pub fn never_overwrite(&self, dropped: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.files.dropped.set(Arc::new(dropped));
    }

    /// From now on it hears of what changes elsewhere, and tells its keeper.
    pub fn follow_changes(self: &Arc<Posix>) {
        let posix = Arc::downgrade(self);
        self.fs.on_change(move |changed| {
            if let Some(posix) = posix.upgrade() {
                posix.changed(changed);
            }
        });
    }

    /// Must not wait for anything: whoever makes the change waits for this.
    fn changed(&self, changed: Changed) {
        match changed {
            Changed::All => {
                for ino in self.known.change_all() {
                    self.keeper.forget_attributes(ino);
                }
                self.whole.end_all();
                self.watches.change_all();
                self.keeper.forget_names();
                self.locks_changed.notify_waiters();
            }
            Changed::Inode(ino) | Changed::Tally(ino) => {
                self.known.change(ino, matches!(changed, Changed::Tally(_)));
                self.whole.end(ino);
                self.watches.change(ino);
                // An inode that is only just on its way to the keeper is found by its name.
                if !self.keeper.forget_attributes(ino) {
                    self.keeper.forget_names();
                }
            }
            Changed::Entry(_) => {
                self.known.change_other();
                self.keeper.forget_names();
            }
            Changed::OurInode(ino) | Changed::OurTally(ino) => {
                self.known.change_here(ino, matches!(changed, Changed::OurTally(_)));
                self.keeper.forget_attributes(ino);
            }
            Changed::OurEntry(parent, name) => {
                self.known.change_other();
                self.whole.make(parent, &name);
                if !self.makers.make(parent) {
                    self.keeper.forget_names();
                }
            }
            Changed::Locks => self.locks_changed.notify_waiters(),
            Changed::Other => self.known.change_other(),
        }
    }

    /// The keeper forgets an inode some times.
    pub fn forget(&self, ino: Ino, times: u64) {
        if self.known.leave(ino, times) {
            self.gone.forget(ino);
        }
    }

    /// The caller of an operation that changes something.
    pub(crate) fn caller(&self, who: &Who) -> Caller {
        who.caller_in_groups(&self.user)
    }

    /// Runs an operation: once, if it is for a call. Its outcome may have been lost, so it is run
    /// again then.
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

    /// Keeps the outcome of an attempt before whoever called is told: `status`, 0 if what was asked
    /// for is there. No other attempt at the same call has another one then. An outcome of which
    /// the last step is kept needs nothing more.
    ///
    /// # Errors
    /// Where it could not be kept, or not be found out whether it is.
    pub async fn settle(&self, attempt: &Attempt, status: u32) -> Result<Settled> {
        let call = attempt.next();
        if status == 0 && call.step > 0 {
            return Ok(Settled::Kept);
        }
        self.fs.run(&Caller::system(), SettleCall { call, status, found: attempt.found() }).await
    }

    /// Whether what a call sets was set before.
    ///
    /// # Errors
    /// Where that cannot be found out now.
    pub async fn was_set(&self, who: &Who) -> Result<bool> {
        match who.call(Step::Size) {
            Some(call) => self.fs.read(&Caller::system(), FindCall { call }).await,
            None => Ok(false),
        }
    }

    /// An inode that was made, perhaps before.
    pub(crate) async fn made(&self, who: &Who, made: Once<(Ino, Inode)>) -> Result<(Ino, Inode)> {
        match made {
            Once::Done(made) => Ok(made),
            Once::Before(ino) => {
                Ok((ino, self.fs.read(&self.caller(who), Getattr { ino }).await?.0))
            }
        }
    }

    /// How long may be kept what was read from leased rows since `moment`.
    pub(crate) fn keeps(&self, moment: Moment) -> Duration {
        match self.known.moment() == moment {
            true => self.fs.lease_left(),
            false => Duration::ZERO,
        }
    }

    pub(crate) fn keeps_name(&self, keeps: Duration) -> Duration {
        if self.keeper.keeps_names() { keeps } else { Duration::ZERO }
    }

    /// An open file that can be used.
    ///
    /// # Errors
    /// `Invalid` for a number of no open file; `Io` when its locks are lost.
    pub(crate) fn usable(&self, file: Descriptor) -> Result<Arc<Handle>> {
        let handle = self.files.handle(file)?;
        handle.check_locks(self.fs.session())?;
        Ok(handle)
    }

    /// Whether a file is open and can be used.
    pub fn is_usable(&self, file: Descriptor) -> bool {
        self.usable(file).is_ok()
    }

    /// Whether a file is open, can be used, and was opened for writing.
    pub fn is_writable(&self, file: Descriptor) -> bool {
        self.usable(file).is_ok_and(|handle| handle.writes)
    }

    pub fn stats(&self) -> Stats {
        Stats {
            files_open: self.files.count(),
            bytes_dirty: self.dirt.bytes(),
            inodes_known: self.known.count(),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            bytes_written_back: self.dirt.written_back(),
        }
    }
}
