//! Exclusive creation of a file that is safe to repeat: the second request finds the file that the
//! first one made.
//!
//! The client chooses a verifier, which is kept in the times of the file until these are set, as in
//! other NFS servers. That takes two operations: if this process dies between them, a repeated
//! request fails because the file exists. A verifier as a field of [`Create`], which is on the
//! wire, would need only one operation.

use std::sync::Arc;

use cairn_base::{Error, Ino, Result, Timestamp};
use cairn_fs::ops::create::Create;
use cairn_fs::ops::for_call::Once;
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::setattr::{SetTime, Setattr};
use cairn_fs::rows::{Inode, Kind};

use crate::answer::Answer;
use crate::entry::Entry;
use crate::names::Mode;
use crate::posix::Posix;
use crate::who::{Step, Who};

/// The verifier that distinguishes a request from all others.
pub type Verifier = [u8; 8];

/// Returns the times that encode a verifier: whole seconds.
fn times(verifier: Verifier) -> [Timestamp; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [[a, b, c, d], [e, f, g, h]].map(|half| Timestamp::from_secs(u32::from_be_bytes(half).into()))
}

impl Posix {
    /// Makes a file, or finds the file that was made with the same verifier.
    ///
    /// # Errors
    /// `Exists` if there is an inode of that name that was not made with the same verifier.
    pub fn create_once(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &str,
        Mode { bits, umask }: Mode,
        verifier: Verifier,
    ) -> Answer<Result<Entry>> {
        let name = name.as_bytes().to_vec();
        let lookup = Lookup { parent, name: name.clone() };
        let verb = Create { parent, name, mode: bits & 0o7777, umask, exclusive: true };
        let moment = self.known.moment();
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let made = match posix.run(&who, Step::Names, verb).await {
                Ok(Once::Done((ino, ..)) | Once::Before(ino)) => {
                    (ino, posix.mark(&who, ino, verifier).await?)
                }
                Err(Error::Exists(text)) => {
                    let (ino, inode) = posix.fs.read(&posix.caller(&who), lookup.clone()).await?;
                    let is_same = [inode.atime, inode.mtime] == times(verifier);
                    if inode.kind != Kind::File || !is_same {
                        return Err(Error::Exists(text));
                    }
                    who.has_found(ino);
                    (ino, inode)
                }
                Err(error) => return Err(error),
            };
            let (made, keeps) = posix.as_leased(&who, lookup, made);
            Ok(posix.entry(made.0, &made.1, moment, keeps))
        })
    }

    async fn mark(&self, who: &Who, ino: Ino, verifier: Verifier) -> Result<Inode> {
        let [atime, mtime] = times(verifier).map(|time| Some(SetTime::At(time)));
        let verb = Setattr { ino, mode: None, uid: None, gid: None, atime, mtime };
        match self.run(who, Step::Attributes, verb).await? {
            Once::Done((inode, _)) => Ok(inode),
            Once::Before(_) => Ok(self.fs.read(&self.caller(who), Getattr { ino }).await?.0),
        }
    }
}
