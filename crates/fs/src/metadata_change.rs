//! The meaning of a change of a row for readers that cache rows.

use bytes::Bytes;
use cairn_base::Ino;
use cairn_meta::keys;

/// The part of the metadata that must be read again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MetadataChange {
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

impl MetadataChange {
    pub(crate) fn of(key: &Bytes) -> MetadataChange {
        let number = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
        let ino = number.map(|bytes| Ino(u64::from_be_bytes(bytes)));
        match (key.first(), ino) {
            (Some(b'i'), Some(ino)) => MetadataChange::Inode(ino),
            (Some(b'd' | b'D'), Some(ino)) => MetadataChange::Entry(ino),
            (Some(b't'), Some(ino)) => MetadataChange::Tally(ino),
            // Rights in a bucket affect everything in it.
            (Some(b'b'), _) => MetadataChange::All,
            (Some(b'l' | b's'), _) => MetadataChange::Locks,
            _ => MetadataChange::Other,
        }
    }

    pub(crate) fn by_us(key: &Bytes) -> MetadataChange {
        match MetadataChange::of(key) {
            MetadataChange::Inode(ino) => MetadataChange::OurInode(ino),
            MetadataChange::Tally(ino) => MetadataChange::OurTally(ino),
            MetadataChange::Entry(ino) => {
                let name = keys::entry_name(key);
                let plain = name.strip_suffix(b"/").map_or(name.len(), <[u8]>::len);
                MetadataChange::OurEntry(ino, name.slice(..plain))
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
        assert_eq!(MetadataChange::of(&entry), MetadataChange::Entry(Ino(7)));
        let ours = MetadataChange::OurEntry(Ino(7), Bytes::from_static(b"name"));
        assert_eq!(MetadataChange::by_us(&entry), ours);
        assert_eq!(MetadataChange::by_us(&keys::directory_entry(Ino(7), b"name")), ours);
        assert_eq!(MetadataChange::of(&keys::delegation(Ino(7), 1)), MetadataChange::Entry(Ino(7)));
        assert_eq!(MetadataChange::of(&keys::inode(Ino(9))), MetadataChange::Inode(Ino(9)));
        assert_eq!(MetadataChange::of(&keys::tally(Ino(9))), MetadataChange::Tally(Ino(9)));
        assert_eq!(MetadataChange::of(&keys::locks(Ino(9))), MetadataChange::Locks);
        assert_eq!(MetadataChange::of(&keys::session(SessionId(9))), MetadataChange::Locks);
        assert_eq!(MetadataChange::of(&keys::map()), MetadataChange::Other);
        assert_eq!(MetadataChange::of(&Bytes::new()), MetadataChange::Other);
    }
}
