//! The meaning of a change of a row for readers that cache rows.

use bytes::Bytes;
use cairn_base::Ino;
use cairn_meta::keys;

/// The part of the metadata that must be read again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Changed {
    /// Everything.
    All,
    /// Attributes or bytes of this inode.
    Inode(Ino),
    /// An entry of this directory.
    Entry(Ino),
    /// Attributes or bytes of this inode, by an operation of this session that is about to run.
    OurInode(Ino),
    /// The tally of this directory, by an operation of this session that is about to run.
    OurTally(Ino),
    /// An entry of this directory with this name, by an operation of this session that is about to
    /// run.
    OurEntry(Ino, Bytes),
    /// The tally of this directory: its number of entries, and the time of its last change.
    Tally(Ino),
    /// Locks on some file, or a session that may hold some.
    Locks,
    /// Something else: extents of a file change with its inode.
    Other,
}

impl Changed {
    pub(crate) fn of(key: &Bytes) -> Changed {
        let number = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
        let ino = number.map(|bytes| Ino(u64::from_be_bytes(bytes)));
        match (key.first(), ino) {
            (Some(b'i'), Some(ino)) => Changed::Inode(ino),
            (Some(b'd' | b'D'), Some(ino)) => Changed::Entry(ino),
            (Some(b't'), Some(ino)) => Changed::Tally(ino),
            // Rights in a bucket affect everything in it.
            (Some(b'b'), _) => Changed::All,
            (Some(b'l' | b's'), _) => Changed::Locks,
            _ => Changed::Other,
        }
    }

    pub(crate) fn by_us(key: &Bytes) -> Changed {
        match Changed::of(key) {
            Changed::Inode(ino) => Changed::OurInode(ino),
            Changed::Tally(ino) => Changed::OurTally(ino),
            Changed::Entry(ino) => {
                let name = keys::entry_name(key);
                let plain = name.strip_suffix(b"/").map_or(name.len(), <[u8]>::len);
                Changed::OurEntry(ino, name.slice(..plain))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::SessionId;

    use super::*;

    #[test]
    fn keys_say_what_changed() {
        let entry = keys::file_entry(Ino(7), b"name");
        assert_eq!(Changed::of(&entry), Changed::Entry(Ino(7)));
        let ours = Changed::OurEntry(Ino(7), Bytes::from_static(b"name"));
        assert_eq!(Changed::by_us(&entry), ours);
        assert_eq!(Changed::by_us(&keys::directory_entry(Ino(7), b"name")), ours);
        assert_eq!(Changed::of(&keys::delegation(Ino(7), 1)), Changed::Entry(Ino(7)));
        assert_eq!(Changed::of(&keys::inode(Ino(9))), Changed::Inode(Ino(9)));
        assert_eq!(Changed::of(&keys::tally(Ino(9))), Changed::Tally(Ino(9)));
        assert_eq!(Changed::of(&keys::locks(Ino(9))), Changed::Locks);
        assert_eq!(Changed::of(&keys::session(SessionId(9))), Changed::Locks);
        assert_eq!(Changed::of(&keys::map()), Changed::Other);
        assert_eq!(Changed::of(&Bytes::new()), Changed::Other);
    }
}
