//! Differences between inodes of a backup and those on a server.

use cairn_base::Timestamp;
use cairn_fs::rows::{Content, Inode, Kind, ObjectAttributes};

use super::time::compact_time;

const MODE_BITS: u32 = 0o7777;

/// Returns the first difference between an inode in a backup and that of the same name on a server,
/// as far as the rows of both say. Times of directories are not compared: they change with every
/// name that is added.
pub fn of_inodes(wanted: &Inode, found: &Inode) -> Option<String> {
    if wanted.kind != found.kind {
        return Some(format!("it is a {}, in the backup a {}", word(found), word(wanted)));
    }
    if !wanted.is_directory() {
        if wanted.size != found.size {
            return Some(format!("it has {} bytes, in the backup {}", found.size, wanted.size));
        }
        if wanted.mtime != found.mtime {
            let (is, was) = (shown(found.mtime), shown(wanted.mtime));
            return Some(format!("it was modified {is}, in the backup {was}"));
        }
        if let (Content::Inline(one), Content::Inline(other)) = (&wanted.content, &found.content)
            && one != other
        {
            return Some("its content differs".to_owned());
        }
    }
    let [is, was] = [found, wanted].map(|inode| inode.mode & MODE_BITS);
    if is != was {
        return Some(format!("its mode is {is:04o}, in the backup {was:04o}"));
    }
    if (wanted.uid, wanted.gid) != (found.uid, found.gid) {
        let (is, was) = ((found.uid, found.gid), (wanted.uid, wanted.gid));
        return Some(format!("its owner is {}:{}, in the backup {}:{}", is.0, is.1, was.0, was.1));
    }
    if wanted.acl != found.acl || wanted.default_acl != found.default_acl {
        return Some("its access control list differs".to_owned());
    }
    of_objects(wanted.object.as_deref(), found.object.as_deref())
}

fn of_objects(
    wanted: Option<&ObjectAttributes>,
    found: Option<&ObjectAttributes>,
) -> Option<String> {
    // Tags are rows of their own, and tables of parts stay behind.
    let plain = |object: Option<&ObjectAttributes>| ObjectAttributes {
        part_table: None,
        unknown: Vec::new(),
        ..object.cloned().unwrap_or_default()
    };
    let (wanted, found) = (plain(wanted), plain(found));
    if wanted.etag != found.etag {
        return Some("its ETag differs".to_owned());
    }
    if wanted.tag_count != found.tag_count {
        return Some("its tags differ".to_owned());
    }
    (wanted != found).then(|| "its headers, metadata or checksums differ".to_owned())
}

fn word(inode: &Inode) -> &'static str {
    match inode.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "FIFO",
        Kind::Socket => "socket",
    }
}

fn shown(time: Timestamp) -> String {
    compact_time(u64::try_from(time.0 / 1_000_000_000).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let inode = Inode { mode: 0o644, size: 3, ..Inode::default() };
        assert_eq!(of_inodes(&inode, &inode), None);
        let changed = |change: fn(&mut Inode)| {
            let mut other = inode.clone();
            change(&mut other);
            of_inodes(&inode, &other).unwrap_or_default()
        };
        assert!(changed(|inode| inode.kind = Kind::Symlink).contains("symbolic link"));
        assert!(changed(|inode| inode.size = 4).contains("4 bytes"));
        assert!(changed(|inode| inode.mtime = Timestamp(1)).contains("modified"));
        assert!(changed(|inode| inode.mode = 0o600).contains("0600"));
        assert!(changed(|inode| inode.gid = 7).contains("0:7"));
        let object = ObjectAttributes { etag: "e".into(), ..ObjectAttributes::default() };
        let other = Inode { object: Some(Box::new(object)), ..inode.clone() };
        assert!(of_inodes(&inode, &other).unwrap_or_default().contains("ETag"));
        let directory = Inode { kind: Kind::Directory, ..Inode::default() };
        let later = Inode { mtime: Timestamp(9), size: 1, ..directory.clone() };
        assert_eq!(of_inodes(&directory, &later), None);
    }
}
