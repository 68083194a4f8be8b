//! The open files and directories.

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
    nodes: Mutex<HashMap<Ino, OpenNode>>,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    directories: RwLock<HashMap<u64, Arc<Directory>>>,
    /// True if files are read without being opened.
    opens_nothing: bool,
    /// Handles for files that are read without being opened.
    readers: RwLock<HashMap<Ino, Arc<Handle>>>,
    next: AtomicU64,
    /// Memory for the bytes that are written to files.
    whole: Buffers,
    /// Receives dropped files, as in [`Node::new`].
    pub dropped: OnceLock<Dropped>,
}

struct OpenNode {
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

    /// Returns the node of a file that is open, as far as this process knows.
    pub fn node(&self, ino: Ino) -> Option<Arc<Node>> {
        if self.opens_nothing {
            return self.readers.read().get(&ino).map(|reader| Arc::clone(&reader.node));
        }
        self.nodes.lock().get(&ino).map(|opened| Arc::clone(&opened.node))
    }

    /// Returns the nodes of all open files, by inode number.
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
            let fresh = || OpenNode { node: node(), handles: 0 };
            let opened = nodes.entry(ino).or_insert_with(fresh);
            opened.handles += 1;
            Arc::clone(&opened.node)
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = self.fs.meta().lost();
        let handle = Arc::new(Handle::new(number, node, caller, intent, base, lost));
        self.handles.write().insert(number, Arc::clone(&handle));
        handle
    }

    pub fn handle(&self, file: Descriptor) -> Result<Arc<Handle>> {
        let handle = self.handles.read().get(&file.0).cloned();
        handle.ok_or_else(|| Error::Invalid("the file descriptor is not open".into()))
    }

    /// Returns the handle for reading a file that is not opened.
    pub fn reader(&self, ino: Ino, caller: impl FnOnce() -> Caller) -> Arc<Handle> {
        if let Some(reader) = self.readers.read().get(&ino) {
            return Arc::clone(reader);
        }
        let fresh = || {
            let node = Arc::new(Node::new(&self.fs, ino, None, &self.whole));
            let lost = self.fs.meta().lost();
            Arc::new(Handle::new(0, node, caller(), Intent::READING, None, lost))
        };
        Arc::clone(self.readers.write().entry(ino).or_insert_with(fresh))
    }

    /// Forgets readers for which `stays` returns false.
    pub fn keep_readers(&self, stays: impl Fn(&Node) -> bool) {
        self.readers.write().retain(|_, reader| stays(&reader.node));
    }

    /// Removes a handle. [`Files::close`] finds out later whether its file still has other handles.
    pub fn take(&self, file: Descriptor) -> Option<Arc<Handle>> {
        self.handles.write().remove(&file.0)
    }

    /// Counts one handle less for a node. Returns whether that was the last one.
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

    /// Returns whether a node has only one handle.
    pub fn is_last(&self, ino: Ino) -> bool {
        self.nodes.lock().get(&ino).is_some_and(|opened| opened.handles == 1)
    }

    /// Returns whether programs of this machine have locks on a file.
    pub fn is_locked(&self, ino: Ino) -> bool {
        self.node(ino).is_some_and(|node| node.locks.is_used())
    }

    /// Returns the number of open files.
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
