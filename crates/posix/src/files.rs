//! All that is open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_auth::Caller;
use cairn_base::{Buffers, Error, Ino, Result};
use cairn_fs::Fs;
use parking_lot::{Mutex, RwLock};

use crate::directory::Directory;
use crate::handle::{Descriptor, Handle, Heard};
use crate::intent::Intent;
use crate::node::{Dropped, Node};
use crate::runs::whole_blocks;

pub struct Files {
    fs: Fs,
    nodes: Mutex<HashMap<Ino, Opened>>,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    directories: RwLock<HashMap<u64, Arc<Directory>>>,
    /// Files are read that nobody opens.
    opens_nothing: bool,
    /// Those.
    readers: RwLock<HashMap<Ino, Arc<Handle>>>,
    next: AtomicU64,
    /// Memory of what is written to them.
    whole: Buffers,
    /// As in [`Node::new`].
    pub dropped: OnceLock<Dropped>,
}

struct Opened {
    node: Arc<Node>,
    handles: u32,
}

impl Files {
    pub fn new(fs: Fs, opens_nothing: bool) -> Files {
        Files {
            fs,
            nodes: Mutex::default(),
            handles: RwLock::default(),
            directories: RwLock::default(),
            opens_nothing,
            readers: RwLock::default(),
            next: AtomicU64::new(1),
            whole: whole_blocks(),
            dropped: OnceLock::new(),
        }
    }

    /// The node of a file that is open, as far as that is heard of.
    pub fn node(&self, ino: Ino) -> Option<Arc<Node>> {
        if self.opens_nothing {
            return self.readers.read().get(&ino).map(|reader| Arc::clone(&reader.node));
        }
        self.nodes.lock().get(&ino).map(|opened| Arc::clone(&opened.node))
    }

    /// Those of all files that are open, by their numbers.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = self.nodes.lock();
        let mut all: Vec<_> = nodes.values().map(|opened| Arc::clone(&opened.node)).collect();
        drop(nodes);
        all.sort_unstable_by_key(|node| node.ino);
        all
    }

    pub fn open(&self, ino: Ino, caller: Caller, intent: Intent, base: Option<u64>) -> Arc<Handle> {
        let node = {
            let mut nodes = self.nodes.lock();
            let dropped = || self.dropped.get().cloned();
            let node = || Arc::new(Node::new(&self.fs, ino, dropped(), &self.whole));
            let fresh = || Opened { node: node(), handles: 0 };
            let opened = nodes.entry(ino).or_insert_with(fresh);
            opened.handles += 1;
            Arc::clone(&opened.node)
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = self.fs.meta().lost();
        let handle = Arc::new(Handle::new(number, node, caller, (intent, base), lost));
        self.handles.write().insert(number, Arc::clone(&handle));
        handle
    }

    pub fn handle(&self, file: Descriptor) -> Result<Arc<Handle>> {
        let handle = self.handles.read().get(&file.0).cloned();
        handle.ok_or_else(|| Error::Invalid("the file descriptor is not open".into()))
    }

    /// By which a file is read that nobody opens.
    pub fn reader(&self, ino: Ino, caller: impl FnOnce() -> Caller) -> Arc<Handle> {
        if let Some(reader) = self.readers.read().get(&ino) {
            return Arc::clone(reader);
        }
        let fresh = || {
            let node = Arc::new(Node::new(&self.fs, ino, None, &self.whole));
            let how = (Intent::READING, None);
            Arc::new(Handle::new(0, node, caller(), how, self.fs.meta().lost()))
        };
        Arc::clone(self.readers.write().entry(ino).or_insert_with(fresh))
    }

    /// Forgets the readers of which this is not true.
    pub fn keep_readers(&self, stays: impl Fn(&Node) -> bool) {
        self.readers.write().retain(|_, reader| stays(&reader.node));
    }

    /// Takes a handle away. Whether its file is still open by others is to be said later, by
    /// [`Files::close`].
    pub fn take(&self, file: Descriptor) -> Option<Arc<Handle>> {
        self.handles.write().remove(&file.0)
    }

    /// One handle less of a node. Whether that was the last one.
    pub fn close(&self, ino: Ino) -> bool {
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
    pub fn is_last(&self, ino: Ino) -> bool {
        self.nodes.lock().get(&ino).is_some_and(|opened| opened.handles == 1)
    }

    /// Whether programs of this machine have locks on a file.
    pub fn is_locked(&self, ino: Ino) -> bool {
        self.node(ino).is_some_and(|node| node.locks.is_used())
    }

    /// Files that are open.
    pub fn count(&self) -> u64 {
        self.nodes.lock().len() as u64
    }

    pub fn open_directory(&self, ino: Ino) -> Descriptor {
        let directory = Directory::new(ino, Heard::new(self.fs.meta().lost()));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.directories.write().insert(number, Arc::new(directory));
        Descriptor(number)
    }

    pub fn directory(&self, directory: Descriptor) -> Result<Arc<Directory>> {
        let found = self.directories.read().get(&directory.0).cloned();
        found.ok_or_else(|| Error::Invalid("the directory descriptor is not open".into()))
    }

    pub fn close_directory(&self, directory: Descriptor) {
        self.directories.write().remove(&directory.0);
    }
}
