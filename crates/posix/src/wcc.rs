//! Attributes before and after a change (NFS calls it weak cache consistency): a client that has
//! the attributes from before can tell by them whether anybody else changed something in between.
//!
//! Both are exact, or those from before are left out. They are exact if a master in this process
//! has seen the inode right before and right after. At a gateway they are exact if the attributes
//! from before were leased, and no change of the inode was reported until those from after were
//! leased in turn. In addition, no other watched change of this process may have been in progress.
//! So a door must have all changes of its clients watched. Operations that do not lease the rows
//! that they change, such as a rename, leave the attributes out there.

use std::iter::repeat;
use std::sync::Arc;

use cairn_base::{Error, Ino};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::rows::Inode;
use cairn_fs::seeing;

use crate::attributes::Attributes;
use crate::node::Local;
use crate::posix::Posix;
use crate::who::Who;

/// The attributes of an inode around a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// Attributes right before the change, if they are known for sure.
    pub before: Option<Attributes>,
    /// Attributes after the change, if the inode still exists and may be looked at.
    pub after: Option<Attributes>,
    /// True if the inode does not exist any more.
    pub is_gone: bool,
}

/// Ends a watch, also if the caller gives up on the change.
struct Watch<'a, const N: usize>(&'a Posix, [Ino; N]);

impl<'a, const N: usize> Watch<'a, N> {
    fn begin(posix: &'a Posix, inodes: [Ino; N]) -> Watch<'a, N> {
        inodes.iter().for_each(|ino| posix.watches.begin(*ino));
        Watch(posix, inodes)
    }
}

impl<const N: usize> Drop for Watch<'_, N> {
    fn drop(&mut self) {
        self.1.iter().for_each(|ino| self.0.watches.end(*ino));
    }
}

impl Posix {
    /// Does `work`, which changes `inodes`, all different, and returns their attributes around it.
    pub async fn around<T, W, const N: usize>(
        self: &Arc<Posix>,
        who: &Who,
        inodes: [Ino; N],
        work: W,
    ) -> (T, [Around; N])
    where
        W: IntoFuture<Output = T>,
    {
        let watch = Watch::begin(self, inodes);
        let mut around = [Around { before: None, after: None, is_gone: false }; N];
        for (around, ino) in around.iter_mut().zip(inodes) {
            around.before = self.leased(who, ino).await;
        }
        let (done, sights) = seeing(&inodes, work.into_future()).await;
        let sights = sights.into_iter().chain(repeat(None));
        for ((around, ino), sight) in around.iter_mut().zip(inodes).zip(sights) {
            around.after = self.leased_now(who, ino);
            if around.after.is_none() {
                around.before = None;
                let local = self.local(ino);
                let found = self.attributes_of(who, ino).await.0;
                around.is_gone = matches!(found, Err(Error::NotFound(_)));
                if let Ok(inode) = found {
                    around.after = with(local, ino, &inode);
                    if around.after.is_none() {
                        let shown = self.attributes(who.clone(), ino, false).await;
                        around.after = shown.ok().map(|(shown, _)| shown);
                    }
                }
                // The master was in this process, and there are no local bytes.
                if around.after.is_some()
                    && let Some((before, after)) = sight
                    && self.files.node(ino).is_none()
                {
                    around.before = Some(Attributes::of(ino, &before));
                    around.after = Some(Attributes::of(ino, &after));
                    continue;
                }
            }
            if self.watches.is_mixed(ino) {
                around.before = None;
            }
        }
        drop(watch);
        (done, around)
    }

    /// Returns the attributes of an inode that hold until a change is reported.
    async fn leased(&self, who: &Who, ino: Ino) -> Option<Attributes> {
        if let leased @ Some(_) = self.leased_now(who, ino) {
            return leased;
        }
        self.attributes_of(who, ino).await.0.ok()?;
        self.leased_now(who, ino)
    }

    fn leased_now(&self, who: &Who, ino: Ino) -> Option<Attributes> {
        if self.fs.lease_left().is_zero() {
            return None;
        }
        let local = self.local(ino);
        let found = self.fs.read_kept_now(&who.caller(&self.user), &Getattr { ino })?.ok()?;
        with(local, ino, &found.0)
    }

    /// Returns the local state. Must be called before the store is read: bytes that are written
    /// back meanwhile are in one of the two, or in both.
    fn local(&self, ino: Ino) -> Option<Local> {
        self.files.node(ino).map(|node| node.local(&(0..0)))
    }
}

/// Returns the attributes with the local state on top. Returns `None` if the local bytes were
/// written over another state of the file: they are being written back, or others wrote to the
/// file.
fn with(local: Option<Local>, ino: Ino, inode: &Inode) -> Option<Attributes> {
    match local {
        Some(local) if local.is_over_others(inode) => None,
        Some(local) => Some(Attributes::of(ino, &local.over(inode.clone()))),
        None => Some(Attributes::of(ino, inode)),
    }
}
