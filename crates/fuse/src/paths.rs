//! Names under which inodes were seen last, so that an operator reads a path where the kernel gives
//! a number. It costs little and keeps little: old names may be forgotten, and an inode that was
//! renamed since has its former name.

use std::sync::Arc;

use cairn_base::Ino;
use parking_lot::Mutex;

/// Names that are kept, of directories and of everything else, at most.
const DIRECTORIES: usize = 1 << 14;
const OTHERS: usize = 1 << 13;
/// Names in a path, at most.
const DEPTH: usize = 256;

#[derive(Debug)]
pub struct Paths {
    directories: Box<[PathSlot]>,
    others: Box<[PathSlot]>,
}

type PathSlot = Mutex<Option<NamedInode>>;

#[derive(Clone, Debug)]
struct NamedInode {
    ino: Ino,
    parent: Ino,
    name: Box<[u8]>,
}

/// A name whose inode is not known yet.
#[derive(Debug)]
pub struct Name {
    paths: Arc<Paths>,
    parent: Ino,
    name: Box<[u8]>,
}

impl Name {
    /// Notes that the name stands for this inode.
    pub fn stands_for(self, ino: Ino, is_directory: bool) {
        let Name { paths, parent, name } = self;
        let slots = if is_directory { &paths.directories } else { &paths.others };
        *slot(slots, ino).lock() = Some(NamedInode { ino, parent, name });
    }
}

impl Default for Paths {
    fn default() -> Paths {
        let slots = |count: usize| (0..count).map(|_| PathSlot::default()).collect();
        Paths { directories: slots(DIRECTORIES), others: slots(OTHERS) }
    }
}

impl Paths {
    pub fn name(self: &Arc<Paths>, parent: Ino, name: &[u8]) -> Name {
        Name { paths: Arc::clone(self), parent, name: name.into() }
    }

    /// Returns the path of an inode, or of a name in a directory, below the mount point. It begins
    /// with the number of an inode whose name is unknown.
    pub fn path(&self, ino: Ino, name: Option<&[u8]>) -> String {
        let mut names: Vec<String> = name.map(text).into_iter().collect();
        let mut at = ino;
        while at != Ino::ROOT {
            match self.find(at) {
                Some(named) if names.len() < DEPTH => {
                    names.push(text(&named.name));
                    at = named.parent;
                }
                _ => {
                    names.push(format!("(inode {at})"));
                    names.reverse();
                    return names.join("/");
                }
            }
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    fn find(&self, ino: Ino) -> Option<NamedInode> {
        [&self.directories, &self.others].into_iter().find_map(|slots| {
            slot(slots, ino).lock().as_ref().filter(|named| named.ino == ino).cloned()
        })
    }
}

fn slot(slots: &[PathSlot], ino: Ino) -> &PathSlot {
    &slots[ino.0 as usize % slots.len()]
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_the_names_that_were_seen() {
        let paths = Arc::new(Paths::default());
        let see = |parent, name: &str, ino, is_directory| {
            paths.name(Ino(parent), name.as_bytes()).stands_for(Ino(ino), is_directory);
        };
        see(1, "bucket", 10, true);
        see(10, "dir", 11, true);
        see(11, "file", 12, false);
        assert_eq!(paths.path(Ino::ROOT, None), "/");
        assert_eq!(paths.path(Ino(12), None), "/bucket/dir/file");
        assert_eq!(paths.path(Ino(11), Some(b"new")), "/bucket/dir/new");
        assert_eq!(paths.path(Ino::ROOT, Some(b"new")), "/new");
        assert_eq!(paths.path(Ino(13), Some(b"new")), "(inode d)/new");
        // Another inode takes its place.
        see(1, "other", 10 + DIRECTORIES as u64, true);
        assert_eq!(paths.path(Ino(11), None), "(inode a)/dir");
        // A circle, which some renames cause, ends.
        see(21, "a", 20, true);
        see(20, "b", 21, true);
        assert!(paths.path(Ino(20), None).starts_with("(inode "));
    }
}
