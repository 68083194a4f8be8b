//! Extended attributes.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result, limits};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::xattr::{GetXattr, List, ListXattrs, RemoveXattr, SetXattr, XattrMode};
use cairn_fs::rows::Inode;

use crate::answer::Answer;
use crate::posix::Posix;
use crate::who::Who;

/// Refuses names that begin with `system.`, except those of access control lists.
fn check(name: &[u8]) -> Result<()> {
    if name.starts_with(b"system.") && List::named(name).is_none() {
        Err(Error::NotImplemented(String::from_utf8_lossy(name).into_owned()))
    } else {
        Ok(())
    }
}

fn none(name: &[u8]) -> Error {
    Error::NotFound(format!("attribute {}", String::from_utf8_lossy(name)))
}

impl Posix {
    /// Returns an inode, if it is known without asking.
    fn known_now(&self, who: &Who, ino: Ino) -> Option<Inode> {
        let found = self.fs.read_kept_now(&who.caller(&self.user), &Getattr { ino });
        found.and_then(|found| found.ok()).map(|found| found.0.clone())
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `NotFound` if there is none, or no such inode; `NotImplemented` for names that cannot be
    /// set.
    pub fn get_xattr(self: &Arc<Posix>, who: Who, ino: Ino, name: &[u8]) -> Answer<Result<Bytes>> {
        if let Err(error) = check(name) {
            return Answer::Now(Err(error));
        }
        match (self.known_now(&who, ino), List::named(name)) {
            // The kernel asks for these at every file of another owner.
            (Some(inode), Some(list)) => {
                return Answer::Now(list.of(&inode).ok_or_else(|| none(name)));
            }
            (Some(inode), None) if inode.xattr_count == 0 => {
                return Answer::Now(Err(none(name)));
            }
            _ => {}
        }
        let (posix, name) = (Arc::clone(self), name.to_vec());
        Answer::later(
            async move { posix.fs.read(&posix.caller(&who), GetXattr { ino, name }).await },
        )
    }

    pub fn list_xattrs(self: &Arc<Posix>, who: Who, ino: Ino) -> Answer<Result<Vec<Bytes>>> {
        let has_none = |inode: &Inode| {
            inode.xattr_count == 0 && inode.acl.is_none() && inode.default_acl.is_none()
        };
        if self.known_now(&who, ino).as_ref().is_some_and(has_none) {
            return Answer::Now(Ok(Vec::new()));
        }
        let posix = Arc::clone(self);
        Answer::later(async move { posix.fs.read(&posix.caller(&who), ListXattrs { ino }).await })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `TooLarge` for a value that is too large, or if there are too many attributes.
    pub fn set_xattr(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Answer<Result<()>> {
        if let Err(error) = check(name) {
            return Answer::Now(Err(error));
        }
        if value.len() > limits::XATTR_BYTES {
            return Answer::Now(Err(Error::TooLarge("the value of an attribute".into())));
        }
        let (name, value) = (name.to_vec(), Bytes::copy_from_slice(value));
        let verb = SetXattr { ino, name, value, mode };
        let posix = Arc::clone(self);
        Answer::later(async move { posix.fs.run(&posix.caller(&who), verb).await })
    }

    pub fn remove_xattr(self: &Arc<Posix>, who: Who, ino: Ino, name: &[u8]) -> Answer<Result<()>> {
        if let Err(error) = check(name) {
            return Answer::Now(Err(error));
        }
        let verb = RemoveXattr { ino, name: name.to_vec() };
        let posix = Arc::clone(self);
        Answer::later(async move { posix.fs.run(&posix.caller(&who), verb).await })
    }
}
