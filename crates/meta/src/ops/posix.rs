//! The common parts of the POSIX operations: names, mode bits, and directories as POSIX sees them.

use cairn_auth::{Action, Posix, Resource};
use cairn_base::{Error, Ino, Timestamp, limits};
use serde::{Deserialize, Serialize};

use super::key_names::is_shown;
use super::namespace::{entry_key, load, load_inode, open_bucket_of, store};
use crate::keys::{self, Attribute};
use crate::rows::{BucketKind, Entry, Inode, Kind, Row, Tally};
use crate::{Context, Stop, View};

/// Permission bits as one digit of a mode: the access that a caller wants.
pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const SEARCH: u32 = 1;

pub const SETUID: u32 = 0o4000;
pub const SETGID: u32 = 0o2000;
pub const STICKY: u32 = 0o1000;
/// All bits a mode may have.
pub const MODE_BITS: u32 = 0o7777;

/// Name of the extended attribute with the capabilities of a program file.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Returns the identity to which mode bits apply; `None` for root and for callers without an
/// identity.
pub fn checked_identity(context: &Context) -> Option<&Posix> {
    context.caller.posix().filter(|posix| posix.uid != 0)
}

/// Returns whether the caller is POSIX's superuser, whose writes keep setuid bits.
pub fn is_superuser(context: &Context) -> bool {
    context.caller.posix().is_some_and(|posix| posix.uid == 0)
}

fn in_group(posix: &Posix, gid: u32) -> bool {
    posix.gid == gid || posix.groups.contains(&gid)
}

/// Returns whether the caller may use a file's group: it is root, has no POSIX identity, or is a
/// member.
pub fn may_use_group(context: &Context, gid: u32) -> bool {
    checked_identity(context).is_none_or(|posix| in_group(posix, gid))
}

/// Checks access(2): the first of owner, group and others that the caller belongs to decides, or
/// the access list of the file, if it has one.
pub fn check_mode(context: &Context, inode: &Inode, wanted: u32) -> Result<(), Error> {
    let Some(posix) = checked_identity(context) else { return Ok(()) };
    let mode = inode.mode;
    let allows = |shift: u32| (mode >> shift) & wanted == wanted;
    let is_allowed = match &inode.acl {
        _ if posix.uid == inode.uid => allows(6),
        // Linux ignores a list that leaves groups nothing.
        Some(acl) if mode & 0o070 != 0 => {
            let is_member = |gid| in_group(posix, gid);
            acl.with_mode(mode).permits(posix.uid, is_member, inode.gid, wanted)
        }
        _ if in_group(posix, inode.gid) => allows(3),
        _ => allows(0),
    };
    if is_allowed {
        return Ok(());
    }
    Err(Error::Denied(format!("mode {mode:04o} does not allow uid {} to do that", posix.uid)))
}

/// Returns whether the caller may change mode, owner and times.
pub fn is_owner(context: &Context, inode: &Inode) -> bool {
    checked_identity(context).is_none_or(|posix| posix.uid == inode.uid)
}

pub fn check_owner(context: &Context, inode: &Inode, what: &str) -> Result<(), Error> {
    if is_owner(context, inode) {
        return Ok(());
    }
    Err(Error::Denied(format!("{what}: only the owner may, uid {}", inode.uid)))
}

/// Checks that the caller may remove or rename an entry: in a sticky directory, only the owner of
/// the entry or of the directory may.
pub fn check_sticky(context: &Context, parent: &Inode, child: &Inode) -> Result<(), Error> {
    if parent.mode & STICKY == 0 || is_owner(context, parent) || is_owner(context, child) {
        return Ok(());
    }
    Err(Error::Denied("the directory is sticky, and the entry belongs to another user".into()))
}

/// Checks one component of a path.
///
/// # Errors
/// `TooLarge` beyond 255 bytes, `Invalid` for anything that is not a name.
pub fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > limits::NAME_BYTES {
        let what = format!("name of {} bytes; at most {}", name.len(), limits::NAME_BYTES);
        return Err(Error::TooLarge(what));
    }
    if is_shown(name) && !name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "name {:?}: use 1 to 255 bytes without / and NUL, and not . or ..",
        String::from_utf8_lossy(name)
    )))
}

/// Checks the name of a new entry. It must be UTF-8, as S3 and HTTP could not show it otherwise.
/// Other names, made by an earlier version, can still be looked up, renamed and removed.
pub fn check_new_name(name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    match std::str::from_utf8(name) {
        Ok(_) => Ok(()),
        Err(_) => {
            let shown = String::from_utf8_lossy(name);
            Err(Error::Invalid(format!("name {shown:?} is not UTF-8, as the other doors require")))
        }
    }
}

/// Returns an inode whose number the caller holds; `NotFound` once it is gone.
pub fn find_inode(view: &mut View<'_>, ino: Ino) -> Result<Inode, Stop> {
    match load(view, &keys::inode(ino))? {
        Some(inode) => Ok(inode),
        None => Err(Error::NotFound(format!("inode {ino}")).into()),
    }
}

/// Checks that the caller may do `action` in the bucket of an inode. Everybody may see the root,
/// which is in no bucket; nobody changes it by an operation on files.
pub fn check_bucket(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    inode: &Inode,
    action: Action,
) -> Result<BucketKind, Stop> {
    if ino != Ino::ROOT {
        return Ok(open_bucket_of(view, context, inode, action)?.bucket.kind);
    }
    context.authorize(view, action, Resource::TopLevel)?;
    Ok(BucketKind::Posix)
}

/// A directory in which the caller may do something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Directory {
    pub ino: Ino,
    pub inode: Inode,
    pub kind: BucketKind,
}

/// Opens a directory by number, for `action` in its bucket and with the permissions `wanted` of its
/// mode.
pub fn open_directory(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    action: Action,
    wanted: u32,
) -> Result<Directory, Stop> {
    let inode = find_inode(view, ino)?;
    let kind = check_bucket(view, context, ino, &inode, action)?;
    if !inode.is_directory() {
        return Err(Error::NotDirectory(format!("inode {ino}")).into());
    }
    check_mode(context, &inode, wanted)?;
    Ok(Directory { ino, inode, kind })
}

/// Opens a directory to make, remove or rename entries in it.
pub fn change_directory(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    action: Action,
) -> Result<Directory, Stop> {
    open_directory(view, context, ino, action, WRITE | SEARCH)
}

/// Opens an inode that is not a directory, for `action` in its bucket.
pub fn open_inode(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    action: Action,
) -> Result<Inode, Stop> {
    let inode = find_inode(view, ino)?;
    check_bucket(view, context, ino, &inode, action)?;
    Ok(inode)
}

/// Returns the entry that POSIX sees by a name: the directory, if an object of the same name exists
/// too.
pub fn resolve(view: &mut View<'_>, parent: Ino, name: &[u8]) -> Result<Option<Entry>, Stop> {
    let both = [keys::directory_entry(parent, name), keys::file_entry(parent, name)];
    let rows = view.get_all(&both)?;
    Ok(rows.into_iter().flatten().next().as_ref().map(Entry::decode).transpose()?)
}

/// Resolves a name like [`resolve`], and loads its inode. The name must exist.
pub fn resolve_known(
    view: &mut View<'_>,
    parent: Ino,
    name: &[u8],
) -> Result<(Entry, Inode), Stop> {
    match resolve(view, parent, name)? {
        Some(entry) => {
            let inode = load_inode(view, entry.ino)?;
            Ok((entry, inode))
        }
        None => Err(no_entry(name)),
    }
}

pub fn no_entry(name: &[u8]) -> Stop {
    Error::NotFound(String::from_utf8_lossy(name).into_owned()).into()
}

pub fn entry_exists(name: &[u8]) -> Stop {
    Error::Exists(String::from_utf8_lossy(name).into_owned()).into()
}

/// Checks that a new entry does not replace an object that a directory has hidden so far.
pub fn check_vacant(view: &mut View<'_>, parent: Ino, name: &[u8], kind: Kind) -> Result<(), Stop> {
    if view.get(&entry_key(parent, name, kind))?.is_none() {
        return Ok(());
    }
    Err(entry_exists(name))
}

/// Keeps a directory that POSIX leaves empty: it becomes explicit if it was not.
pub fn keep_if_emptied(view: &mut View<'_>, context: &Context, ino: Ino) -> Result<(), Stop> {
    let tally: Tally = load(view, &keys::tally(ino))?.unwrap_or_default();
    if tally.entries > 0 {
        return Ok(());
    }
    let mut inode = load_inode(view, ino)?;
    if inode.implicit {
        inode.implicit = false;
        inode.touch_number(context.batch);
        store(view, keys::inode(ino), &inode);
    }
    Ok(())
}

/// Sets group and permissions of a new inode in `parent`. Its default list decides instead of the
/// umask; a setgid directory passes its group on, and its bit to directories.
pub fn inherit(context: &Context, parent: &Inode, umask: u32, inode: &mut Inode) {
    match &parent.default_acl {
        _ if inode.kind == Kind::Symlink => {}
        None => inode.mode &= !(umask & 0o777),
        Some(default) => {
            let acl = default.limited_to(inode.mode);
            inode.mode = inode.mode & !0o777 | acl.permissions();
            inode.acl = (!acl.is_a_mode()).then(|| Box::new(acl));
            inode.default_acl = inode.is_directory().then(|| default.clone());
        }
    }
    if parent.mode & SETGID != 0 {
        inode.gid = parent.gid;
        if inode.is_directory() {
            inode.mode |= SETGID;
            return;
        }
    }
    let runs = inode.mode & (SETGID | 0o010) == SETGID | 0o010;
    if !inode.is_directory() && runs && !may_use_group(context, inode.gid) {
        inode.mode &= !SETGID;
    }
}

/// Returns the mode of a file whose bytes or owner changed: no longer setuid, nor setgid. If its
/// group may not run it, setgid stays, as on Linux, if the change was made by a member of its group
/// or root.
pub fn without_privileges(context: &Context, inode: &Inode) -> u32 {
    let is_member = context.caller.posix().is_some() && may_use_group(context, inode.gid);
    let keeps_group = inode.mode & 0o010 == 0 && is_member;
    inode.mode & !(SETUID | if keeps_group { 0 } else { SETGID })
}

/// Takes away the file capabilities of a program, since its bytes or owner changed.
pub fn drop_capabilities(view: &mut View<'_>, ino: Ino, inode: &mut Inode) -> Result<(), Stop> {
    let row = keys::attribute(ino, Attribute::Xattr, CAPABILITY);
    if inode.xattr_count > 0 && view.get(&row)?.is_some() {
        view.delete(row);
        inode.xattr_count -= 1;
    }
    Ok(())
}

/// Returns an inode as POSIX shows it, and the tally of a directory. A directory counts the `..` of
/// its subdirectories as links; its times are the later of its own and those of its entries.
///
/// The root counts buckets, most of which a user may not see, so only the root user gets that
/// count. If mounts kept the count, everybody who makes a bucket would have to wait for them.
pub fn present(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    mut inode: Inode,
) -> Result<(Inode, Tally), Stop> {
    if !inode.is_directory() || (ino == Ino::ROOT && !context.caller.is_root()) {
        return Ok((inode, Tally::default()));
    }
    let tally: Tally = load(view, &keys::tally(ino))?.unwrap_or_default();
    inode.nlink = u32::try_from(tally.directories.saturating_add(2)).unwrap_or(u32::MAX);
    let changed = entries_changed(&inode, &tally);
    inode.mtime = changed.unwrap_or(inode.mtime);
    inode.ctime = inode.ctime.max(changed.unwrap_or(inode.ctime));
    Ok((inode, tally))
}

/// Returns the time of the last change of the entries, unless the directory's mtime was set after
/// that: setting it writes the same time to inode and tally.
fn entries_changed(inode: &Inode, tally: &Tally) -> Option<Timestamp> {
    let never = tally.mtime == Timestamp::default();
    (!never && tally.mtime != inode.mtime).then_some(tally.mtime)
}
