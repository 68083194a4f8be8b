//! A tree of files to be packed. Its tar has the same bytes wherever and whenever it is made:
//! entries in the order of their names, one time for all, no names of users.

use std::collections::BTreeMap;
use std::io::{self, Error, Write};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

enum Kind {
    Directory,
    File(Vec<u8>),
    Link(String),
}

struct Entry {
    kind: Kind,
    mode: u32,
    /// Its uid and gid.
    owner: u64,
}

/// Files by their path, which has no leading slash.
#[derive(Default)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    pub fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.add(path, Entry { kind: Kind::File(bytes.into()), mode, owner: 0 });
    }

    pub fn directory(&mut self, path: &str, mode: u32, owner: u64) {
        self.add(path, Entry { kind: Kind::Directory, mode, owner });
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry { kind: Kind::Link(target.to_owned()), mode: 0o777, owner: 0 });
    }

    /// Adds an entry. Missing directories above it belong to root, and are open to all.
    fn add(&mut self, path: &str, entry: Entry) {
        for (at, _) in path.match_indices('/') {
            let above = Entry { kind: Kind::Directory, mode: 0o755, owner: 0 };
            self.0.entry(path[..at].to_owned()).or_insert(above);
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Returns the paths and contents of the regular files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| match &entry.kind {
            Kind::File(bytes) => Some((path.as_str(), bytes.as_slice())),
            Kind::Directory | Kind::Link(_) => None,
        })
    }

    /// Makes the tar of the tree. `time` is in seconds since 1970; `start` is put before each path.
    pub fn tar(&self, start: &str, time: u64) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        if !start.is_empty() {
            let root = Entry { kind: Kind::Directory, mode: 0o755, owner: 0 };
            append(&mut tar, start, &root, time)?;
        }
        for (path, entry) in &self.0 {
            append(&mut tar, &format!("{start}{path}"), entry, time)?;
        }
        tar.into_inner()
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, entry: &Entry, time: u64) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    header.set_mtime(time);
    if entry.owner == 0 {
        header.set_username("root")?;
        header.set_groupname("root")?;
    }
    let (kind, path, bytes) = match &entry.kind {
        Kind::Directory => {
            (EntryType::Directory, format!("{}/", path.trim_end_matches('/')), &[] as &[u8])
        }
        Kind::File(bytes) => (EntryType::Regular, path.to_owned(), bytes.as_slice()),
        Kind::Link(target) => {
            header.set_link_name_literal(target)?;
            (EntryType::Symlink, path.to_owned(), &[] as &[u8])
        }
    };
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    // Unchanged: the library would remove `./`, which dpkg and lintian expect.
    let name = &mut header.as_old_mut().name;
    let place = name.get_mut(..path.len());
    let place = place.ok_or_else(|| Error::other(format!("{path}: too long for a package")))?;
    place.copy_from_slice(path.as_bytes());
    header.set_cksum();
    tar.append(&header, bytes)
}

/// Compresses bytes, without a name or a time.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    gzip.finish()
}
