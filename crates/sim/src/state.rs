//! The state of a simulated disk. Cloning is cheap: files are shared until they change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use crate::inode::Inode;

pub(crate) type FileId = usize;

/// An operation on names that no `Disk::sync` has made durable yet.
#[derive(Clone, Debug)]
pub(crate) enum NameOp {
    Link { path: String, file: FileId },
    Unlink { path: String },
    Move { source: String, target: String, file: FileId },
}

impl NameOp {
    /// Returns the file that it gives a name.
    fn file(&self) -> Option<FileId> {
        match self {
            NameOp::Link { file, .. } | NameOp::Move { file, .. } => Some(*file),
            NameOp::Unlink { .. } => None,
        }
    }

    /// Returns the file that loses its name by it.
    fn loses(&self, names: &BTreeMap<String, FileId>) -> Option<FileId> {
        match self {
            NameOp::Unlink { path: name } | NameOp::Move { target: name, .. } => {
                names.get(name).copied()
            }
            NameOp::Link { .. } => None,
        }
    }

    fn directory(&self) -> &str {
        match self {
            NameOp::Link { path, .. } | NameOp::Unlink { path } => directory(path),
            NameOp::Move { source, .. } => directory(source),
        }
    }

    pub(crate) fn apply(&self, names: &mut BTreeMap<String, FileId>) {
        match self {
            NameOp::Link { path, file } => {
                names.insert(path.clone(), *file);
            }
            NameOp::Unlink { path } => {
                names.remove(path);
            }
            NameOp::Move { source, target, file } => {
                names.remove(source);
                names.insert(target.clone(), *file);
            }
        }
    }
}

/// Returns the part of `path` up to and including its last slash.
pub(crate) fn directory(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..=slash])
}

#[derive(Clone, Default, Debug)]
pub(crate) struct DiskState {
    pub(crate) files: Vec<Arc<Inode>>,
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) durable_names: BTreeMap<String, FileId>,
    pub(crate) name_ops: Vec<NameOp>,
    pub(crate) directories: BTreeSet<String>,
    pub(crate) capacity: Option<u64>,
    /// Files that have lost a name, until nothing needs them.
    pub(crate) removed: BTreeSet<FileId>,
}

impl DiskState {
    pub(crate) fn file(&mut self, id: FileId) -> &mut Inode {
        Arc::make_mut(&mut self.files[id])
    }

    pub(crate) fn find(&self, path: &str) -> io::Result<FileId> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn create(&mut self, path: String) -> io::Result<FileId> {
        if self.names.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = self.files.len();
        self.files.push(Arc::default());
        self.name_op(NameOp::Link { path, file });
        Ok(file)
    }

    pub(crate) fn name_op(&mut self, op: NameOp) {
        self.removed.extend(op.loses(&self.names));
        op.apply(&mut self.names);
        self.name_ops.push(op);
    }

    /// Forgets the bytes of removed files that are not open and cannot come back by a power cut.
    pub(crate) fn forget(&mut self, is_open: impl Fn(FileId) -> bool) {
        if self.removed.is_empty() {
            return;
        }
        let named = self.names.values().chain(self.durable_names.values()).copied();
        let named: BTreeSet<FileId> =
            named.chain(self.name_ops.iter().filter_map(NameOp::file)).collect();
        let files = &mut self.files;
        self.removed.retain(|file| {
            let is_kept = named.contains(file) || is_open(*file);
            if !is_kept {
                files[*file] = Arc::default();
            }
            is_kept
        });
    }

    /// Returns the bytes of all files, including those without a name.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.live.used_bytes_from(0)).sum()
    }

    pub(crate) fn sync_names(&mut self, dir: &str) {
        let durable = &mut self.durable_names;
        self.name_ops.retain(|op| {
            let ours = op.directory() == dir;
            if ours {
                op.apply(durable);
            }
            !ours
        });
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].used_bytes()).sum()
    }

    /// Runs `change` on a file, or does nothing and fails if it would not fit.
    pub(crate) fn change(&mut self, id: FileId, change: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let Some(capacity) = self.capacity else {
            change(self.file(id));
            return Ok(());
        };
        let before = Arc::clone(&self.files[id]);
        change(self.file(id));
        let grew = self.files[id].used_bytes() > before.used_bytes();
        if grew && self.used_bytes() > capacity {
            self.files[id] = before;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}
