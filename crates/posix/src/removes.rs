//! Removals and renames.

use std::sync::Arc;

use cairn_base::{Ino, Result};
use cairn_fs::ops::for_call::Once;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::rmdir::Rmdir;
use cairn_fs::ops::unlink::Unlink;
use cairn_fs::rows::Inode;

use crate::answer::Answer;
use crate::posix::Posix;
use crate::who::{Step, Who};

impl Posix {
    pub fn remove_directory(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &[u8],
    ) -> Answer<Result<()>> {
        let verb = Rmdir { parent, name: name.to_vec() };
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let found = posix.directory_at(&who, verb.parent, &verb.name).await;
            let removed = posix.run(&who, Step::Names, verb).await?;
            posix.remember_directory(&removed, found);
            Ok(())
        })
    }

    /// Returns the directory of a name that is about to be removed: programs may use the directory.
    /// The kernel has just looked it up, so mostly it is cached here.
    async fn directory_at(&self, who: &Who, parent: Ino, name: &[u8]) -> Option<(Ino, Inode)> {
        if !self.keeper.counts() {
            // Nothing would report when it is to be forgotten.
            return None;
        }
        let lookup = Lookup { parent, name: name.to_vec() };
        let found = match self.fs.read_now(&self.user, &lookup) {
            Some(found) => found,
            None => self.fs.read(&self.caller(who), lookup).await,
        };
        found.ok().filter(|(_, inode)| inode.is_directory())
    }

    /// Notes that a directory was removed; programs may still use it. If the call was done before,
    /// the name may now belong to another directory, which exists.
    fn remember_directory<T>(&self, removed: &Once<T>, found: Option<(Ino, Inode)>) {
        if let (Once::Done(_), Some((ino, inode))) = (removed, found) {
            self.whole.end(ino);
            self.gone.remember(ino, inode, self.fs.clock().now());
        }
    }

    pub fn remove_file(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &[u8],
    ) -> Answer<Result<()>> {
        let verb = Unlink { parent, name: name.to_vec() };
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let retained = posix.retain(&who, verb.parent, &verb.name).await;
            let removed = posix.run(&who, Step::Names, verb).await;
            posix.removed(&removed, retained).await;
            removed.map(drop)
        })
    }

    /// Moves a name. A move onto itself changes nothing.
    pub fn rename(
        self: &Arc<Posix>,
        who: Who,
        source_parent: Ino,
        source_name: &[u8],
        target_parent: Ino,
        target_name: &str,
        mode: RenameMode,
    ) -> Answer<Result<()>> {
        let (source_name, target_name) = (source_name.to_vec(), target_name.as_bytes().to_vec());
        let verb = Rename { source_parent, source_name, target_parent, target_name, mode };
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let (mut retained, mut replaced) = (None, None);
            let stays =
                (verb.source_parent, &verb.source_name) == (verb.target_parent, &verb.target_name);
            if mode == RenameMode::Replace && !stays {
                let (parent, name) = (verb.target_parent, &verb.target_name);
                retained = posix.retain(&who, parent, name).await;
                replaced = posix.directory_at(&who, parent, name).await;
            }
            let renamed = posix.run(&who, Step::Names, verb).await;
            posix.removed(&renamed, retained).await;
            posix.remember_directory(&renamed?, replaced);
            Ok(())
        })
    }
}
