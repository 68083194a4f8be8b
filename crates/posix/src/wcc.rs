//! Attributes before and after a change (NFS calls it weak cache consistency): whoever kept those
//! from before knows by them whether anybody else changed something in between.
//!
//! They are exact, or those from before are left out. Exact: a master in this process has seen the
//! inode right before and right after. Or, at a gateway: the attributes from before were leased,
//! and nobody was heard to change the inode until those from after were leased in turn. No other
//! change of this process that is watched was under way. So whoever serves clients has all of their
//! changes watched. Operations that do not lease what they change, as a rename, leave it out there.

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

/// An inode around a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// Right before it, if that is known for sure.
    pub before: Option<Attributes>,
    /// After it, if the inode is still there and may be looked at.
    pub after: Option<Attributes>,
    /// It is not there any more.
    pub is_gone: bool,
}

/// Ends a watch also where whoever waits for the change gives up.
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
    /// Does `work`, which changes `inodes`, all different.
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
                // The master was in this process, and nothing is here beside what it has seen.
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

    /// As an inode is from now on until something else is heard.
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

    /// To be asked for before the store is: what is written back in the meantime is in one of the
    /// two, or both.
    fn local(&self, ino: Ino) -> Option<Local> {
        self.files.node(ino).map(|node| node.local(&(0..0)))
    }
}

/// `None`: what is here is being written back, or others wrote to the file.
fn with(local: Option<Local>, ino: Ino, inode: &Inode) -> Option<Attributes> {
    match local {
        Some(local) if local.is_over_others(inode) => None,
        Some(local) => Some(Attributes::of(ino, &local.over(inode.clone()))),
        None => Some(Attributes::of(ino, inode)),
    }
}
