//! Extended attributes.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::namespace::store;
use super::posix::{
    CAPABILITY, READ, SETGID, STICKY, WRITE, check_mode, check_owner, checked_identity,
    may_use_group, open_inode,
};
use crate::keys::{self, Attribute};
use crate::rows::{Acl, Inode, Kind};
use crate::{Context, Stop, Verb, View};

/// Most extended attributes of one inode: all of them are removed in the operation that removes it.
const XATTRS: u32 = 1024;
/// Longest name of an extended attribute with its namespace, bytes.
const NAME_BYTES: usize = 255;

/// An access control list of an inode. These lists are set and read as extended attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    Access,
    Default,
}

impl List {
    const ALL: [List; 2] = [List::Access, List::Default];

    fn name(self) -> &'static [u8] {
        match self {
            List::Access => b"system.posix_acl_access",
            List::Default => b"system.posix_acl_default",
        }
    }

    /// Returns the list with this name, if there is one.
    pub fn named(name: &[u8]) -> Option<List> {
        List::ALL.into_iter().find(|list| list.name() == name)
    }

    /// Returns the value of the attribute.
    pub fn of(self, inode: &Inode) -> Option<Bytes> {
        match self {
            List::Access => inode.acl.as_ref().map(|acl| acl.with_mode(inode.mode).encode()),
            List::Default => inode.default_acl.as_ref().map(|acl| acl.encode()),
        }
    }

    /// Sets the list, as on Linux: the owner may, and the mode reflects the access list.
    fn set(self, context: &Context, inode: &mut Inode, acl: Option<Acl>) -> Result<(), Error> {
        if inode.kind == Kind::Symlink {
            return Err(Error::NotImplemented("an access control list of a symbolic link".into()));
        }
        check_owner(context, inode, "an access control list")?;
        match (self, acl) {
            (List::Default, acl) if inode.is_directory() => {
                inode.default_acl = acl.map(Box::new);
            }
            (List::Default, None) => {}
            (List::Default, Some(_)) => {
                return Err(Error::Denied(
                    "only a directory can have a default access control list".into(),
                ));
            }
            (List::Access, acl) => {
                if let Some(acl) = &acl {
                    inode.mode = inode.mode & !0o777 | acl.permissions();
                    if !may_use_group(context, inode.gid) {
                        inode.mode &= !SETGID;
                    }
                }
                inode.acl = acl.filter(|acl| !acl.is_a_mode()).map(Box::new);
            }
        }
        Ok(())
    }
}

/// The condition on the existence of the attribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum XattrMode {
    #[default]
    Set,
    /// Fails with `Exists` if it exists.
    Create,
    /// Fails with `NotFound` if it does not exist.
    Replace,
}

/// Reads one extended attribute; `NotFound` if there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetXattr {
    pub ino: Ino,
    /// Name with its namespace: `user.` and so on.
    pub name: Vec<u8>,
}

impl Verb for GetXattr {
    type Reply = Bytes;
    const NAME: &'static str = "get_xattr";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Bytes, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        if let Some(list) = List::named(&self.name) {
            return list.of(&inode).ok_or_else(|| no_xattr(&self.name));
        }
        check_access(context, &inode, &self.name, READ)?;
        match view.get(&row(self.ino, &self.name))? {
            Some(value) => Ok(value),
            None => Err(no_xattr(&self.name)),
        }
    }
}

/// Sets one extended attribute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetXattr {
    pub ino: Ino,
    pub name: Vec<u8>,
    pub value: Bytes,
    pub mode: XattrMode,
}

impl Verb for SetXattr {
    type Reply = ();
    const NAME: &'static str = "set_xattr";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        if self.value.len() > limits::XATTR_BYTES {
            let what = format!("extended attribute of {} bytes", self.value.len());
            return Err(Error::TooLarge(what).into());
        }
        let mut inode = open_inode(view, context, self.ino, Action::PutObject)?;
        if let Some(list) = List::named(&self.name) {
            list.set(context, &mut inode, Acl::parse(&self.value)?)?;
            changed(view, context, self.ino, inode);
            return Ok(());
        }
        check_access(context, &inode, &self.name, WRITE)?;
        let row = row(self.ino, &self.name);
        match (view.get(&row)?.is_some(), self.mode) {
            (true, XattrMode::Create) => {
                return Err(Error::Exists(text(&self.name)).into());
            }
            (false, XattrMode::Replace) => return Err(no_xattr(&self.name)),
            (false, _) if inode.xattr_count >= XATTRS => {
                let what = format!("{XATTRS} extended attributes on inode {}", self.ino);
                return Err(Error::Full(what).into());
            }
            (false, _) => inode.xattr_count += 1,
            (true, _) => {}
        }
        view.put(row, self.value.clone());
        changed(view, context, self.ino, inode);
        Ok(())
    }
}

/// Removes one extended attribute; `NotFound` if there is none. Removing a missing access control
/// list is no error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveXattr {
    pub ino: Ino,
    pub name: Vec<u8>,
}

impl Verb for RemoveXattr {
    type Reply = ();
    const NAME: &'static str = "remove_xattr";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let mut inode = open_inode(view, context, self.ino, Action::PutObject)?;
        if let Some(list) = List::named(&self.name) {
            list.set(context, &mut inode, None)?;
            changed(view, context, self.ino, inode);
            return Ok(());
        }
        // A kernel removes it on behalf of callers that write a file. It has refused other callers.
        if self.name != CAPABILITY {
            check_access(context, &inode, &self.name, WRITE)?;
        }
        let row = row(self.ino, &self.name);
        if view.get(&row)?.is_none() {
            return Err(no_xattr(&self.name));
        }
        view.delete(row);
        inode.xattr_count = inode.xattr_count.saturating_sub(1);
        changed(view, context, self.ino, inode);
        Ok(())
    }
}

/// Lists the names of the extended attributes that the caller may know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListXattrs {
    pub ino: Ino,
}

impl Verb for ListXattrs {
    type Reply = Vec<Bytes>;
    const NAME: &'static str = "list_xattrs";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Vec<Bytes>, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        let lists = List::ALL.into_iter().filter(|list| list.of(&inode).is_some());
        let mut all: Vec<Bytes> = lists.map(|list| Bytes::from_static(list.name())).collect();
        if inode.xattr_count == 0 {
            return Ok(all);
        }
        let (start, end) = keys::attributes(self.ino, Attribute::Xattr);
        let rows = view.scan(&start, &end, XATTRS as usize)?;
        let names = rows.iter().map(|(key, _)| keys::attribute_name(key));
        let root = is_root(context);
        all.extend(names.filter(|name| root || !name.starts_with(b"trusted.")));
        Ok(all)
    }
}

fn row(ino: Ino, name: &[u8]) -> Bytes {
    keys::attribute(ino, Attribute::Xattr, name)
}

fn text(name: &[u8]) -> String {
    format!("extended attribute {}", String::from_utf8_lossy(name))
}

fn no_xattr(name: &[u8]) -> Stop {
    Error::NotFound(text(name)).into()
}

fn changed(view: &mut View<'_>, context: &Context, ino: Ino, mut inode: Inode) {
    inode.touch(context.batch, context.now);
    store(view, keys::inode(ino), &inode);
}

fn is_root(context: &Context) -> bool {
    match context.caller.posix() {
        Some(posix) => posix.uid == 0,
        None => context.caller.is_root(),
    }
}

/// Checks access as Linux does: `user.` belongs to files and directories and follows their mode
/// bits. `trusted.` is visible to root and set by root only, `security.` is visible to all and set
/// by root. Of `system.`, only access control lists exist.
fn check_access(context: &Context, inode: &Inode, name: &[u8], wanted: u32) -> Result<(), Error> {
    if name.len() > NAME_BYTES {
        let what = format!("name of an extended attribute of {} bytes", name.len());
        return Err(Error::TooLarge(what));
    }
    let split = name.iter().position(|byte| *byte == b'.').unwrap_or(name.len());
    let (space, rest) = name.split_at(split);
    if rest.len() < 2 || name.contains(&0) {
        return Err(Error::Invalid(text(name)));
    }
    let denied = || Error::Denied(text(name));
    match space {
        b"user" => check_user(context, inode, name, wanted),
        b"trusted" if is_root(context) => Ok(()),
        b"trusted" => Err(if wanted == READ { Error::NotFound(text(name)) } else { denied() }),
        b"security" if wanted == READ || is_root(context) => Ok(()),
        b"security" => Err(denied()),
        _ => Err(Error::NotImplemented(text(name))),
    }
}

fn check_user(context: &Context, inode: &Inode, name: &[u8], wanted: u32) -> Result<(), Error> {
    match inode.kind {
        Kind::File => {}
        Kind::Directory => {
            let sticky = inode.mode & STICKY != 0 && checked_identity(context).is_some();
            if sticky && wanted == WRITE {
                check_owner(context, inode, "an attribute of a sticky directory")?;
            }
        }
        _ if wanted == READ => return Err(Error::NotFound(text(name))),
        _ => return Err(Error::Denied(format!("{} on a {:?}", text(name), inode.kind))),
    }
    check_mode(context, inode, wanted)
}
