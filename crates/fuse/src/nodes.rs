//! A mount: the files that are open, and what the kernel may keep.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, limits};
use cairn_fs::rows::Inode;
use cairn_fs::{Changed, Fs, Object};
use fuser::{FileHandle, Generation, ReplyAttr, ReplyEntry};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use crate::Options;
use crate::attributes::{attributes, nothing};
use crate::directory::Directory;
use crate::gone::Gone;
use crate::kernel::Kernel;
use crate::known::{Known, Moment};
use crate::makers::Makers;
use crate::node::Node;
use crate::open::Intent;
use crate::owners::Lockers;
use crate::stats::{Stats, Timer};
use crate::who::Who;
use crate::whole::Whole;

/// How long a writer waits for room, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// Numbers of inodes are never used again, so there is one generation.
pub const GENERATION: Generation = Generation(0);

pub struct Mount {
    pub fs: Fs,
    /// As whom the store knows this mount.
    pub user: Caller,
    pub runtime: Runtime,
    pub kernel: Arc<Kernel>,
    pub known: Known,
    makers: Makers,
    pub whole: Whole,
    pub gone: Gone,
    pub stats: Arc<Stats>,
    nodes: Mutex<HashMap<Ino, Opened>>,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    /// The kernel opens, closes and locks files by itself.
    pub opens_nothing: bool,
    /// What it then reads.
    readers: RwLock<HashMap<Ino, Arc<Handle>>>,
    directories: RwLock<HashMap<u64, Arc<Directory>>>,
    next_handle: AtomicU64,
    /// Bytes written and not written back.
    dirty: AtomicU64,
    dirty_most: u64,
    /// There is less of it now.
    less_dirty: Notify,
    /// A lock may have become free.
    pub locks_changed: Notify,
}

struct Opened {
    node: Arc<Node>,
    handles: u32,
}

/// A file that a program has open.
pub struct Handle {
    /// No other one of this mount ever had it.
    pub number: u64,
    pub node: Arc<Node>,
    pub caller: Caller,
    /// It was opened so, and the kernel keeps no pages of what is written by it.
    pub appends: bool,
    pub writes: bool,
    /// What is written is durable before the program hears that it is written.
    pub syncs: bool,
    pub lockers: Lockers,
    pub heard: Heard,
    /// Of what was dropped of its file, by whomever it was written.
    heard_losses: Heard,
}

impl Handle {
    fn new(number: u64, node: Arc<Node>, caller: Caller, intent: Intent, lost: u64) -> Handle {
        let Intent { appends, writes, syncs, .. } = intent;
        let (lockers, heard) = (Lockers::default(), Heard::new(lost));
        let heard_losses = Heard::new(node.losses());
        Handle { number, node, caller, appends, writes, syncs, lockers, heard, heard_losses }
    }

    /// # Errors
    /// Once, if anything came to nothing that was done before: operations, of which `lost` are by
    /// now, or what was written to the file.
    pub fn hear(&self, lost: u64) -> Result<()> {
        let (operations, bytes) =
            (self.heard.hear(lost), self.heard_losses.hear(self.node.losses()));
        operations.and(bytes)
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
            "done, not durable, and lost: see the log of the mount",
        )))
    }
}

impl Mount {
    pub fn new(
        fs: Fs,
        user: Caller,
        runtime: Runtime,
        kernel: Arc<Kernel>,
        options: &Options,
    ) -> Arc<Mount> {
        Arc::new(Mount {
            fs,
            user,
            runtime,
            kernel,
            known: Known::default(),
            makers: Makers::default(),
            whole: Whole::default(),
            gone: Gone::default(),
            stats: Arc::default(),
            nodes: Mutex::default(),
            handles: RwLock::default(),
            opens_nothing: options.read_only && options.local_locks,
            readers: RwLock::default(),
            directories: RwLock::default(),
            next_handle: AtomicU64::new(1),
            dirty: AtomicU64::new(0),
            dirty_most: options.dirty_bytes,
            less_dirty: Notify::new(),
            locks_changed: Notify::new(),
        })
    }

    /// From now on the kernel hears of what changes elsewhere.
    pub fn follow_changes(self: &Arc<Mount>) {
        let mount = Arc::downgrade(self);
        self.fs.on_change(move |changed| {
            if let Some(mount) = mount.upgrade() {
                mount.changed(changed);
            }
        });
    }

    /// Must not wait for anything: whoever makes the change waits for this.
    fn changed(&self, changed: Changed) {
        match changed {
            Changed::All => {
                for ino in self.known.change_all() {
                    self.kernel.forget_attributes(ino);
                }
                self.whole.end_all();
                self.kernel.forget_names();
                self.locks_changed.notify_waiters();
            }
            Changed::Inode(ino) | Changed::Tally(ino) => {
                self.known.change(ino, matches!(changed, Changed::Tally(_)));
                self.whole.end(ino);
                // One that is only just on its way into the kernel is found by its name.
                if !self.kernel.forget_attributes(ino) {
                    self.kernel.forget_names();
                }
            }
            Changed::Entry(_) => {
                self.known.change_other();
                self.kernel.forget_names();
            }
            Changed::OurInode(ino) | Changed::OurTally(ino) => {
                self.known.change_here(ino, matches!(changed, Changed::OurTally(_)));
                self.kernel.forget_attributes(ino);
            }
            Changed::OurEntry(parent, name) => {
                self.known.change_other();
                self.whole.make(parent, &name);
                if !self.makers.make(parent) {
                    self.kernel.forget_names();
                }
            }
            Changed::Locks => self.locks_changed.notify_waiters(),
            Changed::Other => self.known.change_other(),
        }
    }

    pub fn time(&self, operation: &str) -> Timer {
        Timer::start(&self.stats, operation)
    }

    /// Goes on with a request in a task, so that the thread takes the next one.
    pub fn work(&self, timer: Timer, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(timer.during(work));
    }

    /// As [`Mount::work`], for what takes little time of a processor and often waits for nothing:
    /// then it is done when this returns.
    pub fn work_here(&self, timer: Timer, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(timer.during(work));
        let begun = {
            let _runtime = self.runtime.enter();
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        if begun.is_pending() {
            self.runtime.spawn(work);
        }
    }

    /// As [`Mount::work_here`], but for what is more work because much of a file is to be written
    /// back.
    pub fn work_on(
        &self,
        node: &Node,
        timer: Timer,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        match node.dirty_bytes() > limits::INLINE_BYTES as u64 {
            true => self.work(timer, work),
            false => self.work_here(timer, work),
        }
    }

    /// Does what nobody waits for.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Who asks, for what changes something.
    pub fn caller(&self, who: Who) -> Caller {
        who.caller_in_groups(&self.user)
    }

    /// How long the kernel may keep what was read from leased rows since `moment`.
    pub fn keeps(&self, moment: Moment) -> Duration {
        match self.known.moment() == moment {
            true => self.fs.lease_left(),
            false => Duration::ZERO,
        }
    }

    pub fn keeps_name(&self, keeps: Duration) -> Duration {
        if self.kernel.has_epochs() { keeps } else { Duration::ZERO }
    }

    /// Shows an inode that was found by a name, as the kernel may keep it. It was asked for since
    /// `moment`.
    pub fn reply_entry(
        &self,
        reply: ReplyEntry,
        (ino, inode): (Ino, Inode),
        moment: Moment,
        keeps: Duration,
    ) {
        self.known.enter(ino);
        let (mut inode, has_local) = self.shown(ino, inode);
        let keeps = if has_local { Duration::ZERO } else { keeps };
        self.known.show(ino, moment, &mut inode);
        let attributes = attributes(ino, &inode);
        reply.entry_with_ttls(&keeps, &self.keeps_name(keeps), &attributes, GENERATION);
    }

    pub fn reply_no_entry(&self, reply: ReplyEntry, parent: Ino, keeps: Duration) {
        let keeps = match self.makers.is_one(parent) {
            true => Duration::ZERO,
            false => self.keeps_name(keeps),
        };
        reply.entry_with_ttls(&Duration::ZERO, &keeps, &nothing(), GENERATION);
    }

    /// As [`Mount::reply_entry`], of an inode that the kernel knows and that was changed here.
    pub fn reply_changed(&self, reply: ReplyAttr, ino: Ino, inode: Inode, moment: Moment) {
        let (mut inode, _) = self.shown(ino, inode);
        self.known.show(ino, moment, &mut inode);
        reply.attr(&Duration::ZERO, &attributes(ino, &inode));
    }

    /// An inode with what was written here, and whether that is anything: then the kernel keeps
    /// nothing of it, since what was written back meanwhile is in neither.
    pub fn shown(&self, ino: Ino, inode: Inode) -> (Inode, bool) {
        match self.open_node(ino) {
            Some(node) => (node.local(&(0..0)).over(inode), node.was_written()),
            None => (inode, false),
        }
    }

    /// The node of a file that is open, as far as the mount hears of that.
    pub fn open_node(&self, ino: Ino) -> Option<Arc<Node>> {
        if self.opens_nothing {
            return self.readers.read().get(&ino).map(|reader| Arc::clone(&reader.node));
        }
        self.nodes.lock().get(&ino).map(|opened| Arc::clone(&opened.node))
    }

    /// `object`: what is read of it even if it is removed elsewhere soon.
    pub fn open_handle(
        &self,
        ino: Ino,
        caller: Caller,
        intent: Intent,
        object: Option<Object>,
    ) -> FileHandle {
        let node = {
            let mut nodes = self.nodes.lock();
            let fresh = || Opened { node: Arc::new(Node::new(&self.fs, ino)), handles: 0 };
            let opened = nodes.entry(ino).or_insert_with(fresh);
            opened.handles += 1;
            Arc::clone(&opened.node)
        };
        if let Some(object) = &object {
            node.remember(object);
        }
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let handle = Handle::new(number, node, caller, intent, self.fs.meta().lost());
        self.handles.write().insert(number, Arc::new(handle));
        FileHandle(number)
    }

    /// The handle by which a file is read: of its opening, if the mount heard of one.
    pub fn reader(&self, ino: Ino, number: FileHandle) -> Result<Arc<Handle>> {
        if !self.opens_nothing {
            return self.usable(number);
        }
        if let Some(reader) = self.readers.read().get(&ino) {
            return Ok(Arc::clone(reader));
        }
        // The kernel has checked who opens it, and whoever was handed the descriptor may read.
        let anybody = Who { uid: 0, gid: 0, pid: 0 }.caller(&self.user);
        let fresh = || {
            let node = Arc::new(Node::new(&self.fs, ino));
            Arc::new(Handle::new(0, node, anybody, Intent::READING, self.fs.meta().lost()))
        };
        Ok(Arc::clone(self.readers.write().entry(ino).or_insert_with(fresh)))
    }

    pub fn handle(&self, number: FileHandle) -> Result<Arc<Handle>> {
        let handle = self.handles.read().get(&number.0).cloned();
        handle.ok_or_else(|| Error::Invalid("a file that is not open".into()))
    }

    /// Takes a handle away. Whether its file is still open by others is to be said later, by
    /// [`Mount::close_node`].
    pub fn take_handle(&self, number: FileHandle) -> Option<Arc<Handle>> {
        self.handles.write().remove(&number.0)
    }

    /// One handle less of a node. Whether that was the last one.
    pub fn close_node(&self, ino: Ino) -> bool {
        let mut nodes = self.nodes.lock();
        let Some(opened) = nodes.get_mut(&ino) else { return false };
        opened.handles -= 1;
        if opened.handles > 0 {
            return false;
        }
        nodes.remove(&ino);
        true
    }

    /// Whether a node has this one handle only.
    pub fn is_last_handle(&self, ino: Ino) -> bool {
        self.nodes.lock().get(&ino).is_some_and(|opened| opened.handles == 1)
    }

    /// Whether programs of this machine have locks on a file.
    pub fn is_locked(&self, ino: Ino) -> bool {
        self.open_node(ino).is_some_and(|node| node.locks.is_used())
    }

    pub fn open_directory(&self, ino: Ino) -> FileHandle {
        let directory = Directory::new(ino, Heard::new(self.fs.meta().lost()));
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.directories.write().insert(number, Arc::new(directory));
        FileHandle(number)
    }

    pub fn directory(&self, number: FileHandle) -> Result<Arc<Directory>> {
        let directory = self.directories.read().get(&number.0).cloned();
        directory.ok_or_else(|| Error::Invalid("a directory that is not open".into()))
    }

    pub fn close_directory(&self, number: FileHandle) {
        self.directories.write().remove(&number.0);
    }

    pub fn is_full_of_dirt(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) >= self.dirty_most
    }

    pub fn add_dirty(&self, bytes: u64) {
        self.dirty.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many were counted twice: they took the place of others.
    pub fn not_dirty(&self, bytes: u64) {
        self.dirty.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn less_dirty(&self, bytes: u64) {
        self.not_dirty(bytes);
        self.stats.bytes_written_back.fetch_add(bytes, Ordering::Relaxed);
        self.less_dirty.notify_waiters();
    }

    /// Waits until writers may go on; they may not while nothing can be written back.
    pub async fn has_room(&self, node: &Arc<Node>) -> Result<()> {
        let began = Instant::now();
        while self.is_full_of_dirt() {
            let less = self.less_dirty.notified();
            node.flush(|bytes| self.less_dirty(bytes)).await?;
            if !self.is_full_of_dirt() {
                return Ok(());
            }
            // It is other files that hold the rest.
            let _ = tokio::time::timeout(LOOK, less).await;
            if began.elapsed() > PATIENCE {
                return Err(Error::Unavailable("what was written is not written back".into()));
            }
        }
        Ok(())
    }

    /// Writes back what has been waiting, and lets go of what is not read any more.
    pub fn sweep(self: &Arc<Mount>) {
        let nodes: Vec<_> =
            self.nodes.lock().values().map(|opened| Arc::clone(&opened.node)).collect();
        self.readers.write().retain(|_, reader| reader.node.sweep());
        for node in nodes {
            node.sweep();
            if node.is_dirty() && !node.is_writing_back() {
                let mount = Arc::clone(self);
                self.spawn(async move {
                    node.flush_later(|bytes| mount.less_dirty(bytes)).await;
                });
            }
        }
    }

    /// Writes back what was written to a file, and waits for that, but not for long. It goes on
    /// meanwhile and after.
    pub async fn write_back_soon(self: &Arc<Mount>, node: Arc<Node>) {
        let mount = Arc::clone(self);
        let flush = async move { node.flush_later(|bytes| mount.less_dirty(bytes)).await };
        let mut flush = Box::pin(flush);
        if futures_util::poll!(flush.as_mut()).is_pending() {
            let _ = tokio::time::timeout(LOOK, self.runtime.spawn(flush)).await;
        }
    }

    pub async fn flush_all(&self) {
        let nodes: Vec<_> =
            self.nodes.lock().values().map(|opened| Arc::clone(&opened.node)).collect();
        for node in nodes {
            node.flush_later(|bytes| self.less_dirty(bytes)).await;
        }
        if let Err(error) = self.fs.meta().flush().await {
            tracing::error!(%error, "what was done last may not be durable");
        }
    }

    /// Has all that was done become durable.
    ///
    /// # Errors
    /// Also if something came to nothing that `heard` has not heard of.
    pub async fn sync_names(&self, heard: &Heard) -> Result<()> {
        self.fs.meta().flush().await?;
        heard.hear(self.fs.meta().lost())
    }

    /// As [`Mount::sync_names`], of what was written to a file as well.
    pub async fn sync_file(&self, handle: &Handle) -> Result<()> {
        handle.node.flush(|bytes| self.less_dirty(bytes)).await?;
        self.fs.meta().flush().await?;
        handle.hear(self.fs.meta().lost())
    }

    /// Files that are open, and bytes written and not written back.
    pub fn counts(&self) -> (u64, u64) {
        (self.nodes.lock().len() as u64, self.dirty.load(Ordering::Relaxed))
    }
}
