//! Files that are open when their last name is removed: the session keeps them until they are
//! closed.

use cairn_base::{Ino, Result};
use cairn_fs::ops::for_call::Once;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::retain::{LetGo, Retain};

use crate::posix::Posix;
use crate::who::Who;

impl Posix {
    /// Makes the session keep a file whose name is about to be removed, if the file is open here
    /// and has no other name.
    pub(crate) async fn retain(&self, who: &Who, parent: Ino, name: &[u8]) -> Option<Ino> {
        let lookup = Lookup { parent, name: name.to_vec() };
        let (ino, inode) = self.fs.read(&self.caller(who), lookup).await.ok()?;
        let node = self.files.node(ino)?;
        if inode.nlink > 1 || inode.is_directory() || node.is_retained() {
            return None;
        }
        let session = self.fs.session();
        let caller = self.caller(who);
        match self.fs.run(&caller, Retain { ino, session }).await {
            Ok(_) => {
                node.set_retained(true);
                Some(ino)
            }
            Err(error) => {
                tracing::warn!(%ino, %error, "a file that is open will be gone");
                None
            }
        }
    }

    /// Takes note of the outcome of a removal. If the name is gone, bytes written to the file are
    /// only for those that have it open. If the name stayed after all, or the call was done before
    /// (then the name belongs to another file now), closing the file need not remove it. Until the
    /// outcome is known, the file is written back as any other: it may be closed meanwhile.
    pub(crate) async fn removed<T>(&self, removed: &Result<Once<T>>, retained: Option<Ino>) {
        let Some(ino) = retained else { return };
        let node = self.files.node(ino).filter(|node| node.is_retained());
        match (removed, node) {
            (Ok(Once::Done(_)), Some(node)) => node.set_nameless(),
            // Closing the file has let go of it already.
            (_, None) => {}
            (Ok(Once::Before(_)) | Err(_), Some(node)) => {
                node.set_retained(false);
                self.let_go(ino).await;
            }
        }
    }

    /// Ends the session's hold on a file without a name.
    pub(crate) async fn let_go(&self, ino: Ino) {
        let session = self.fs.session();
        if let Err(error) = self.fs.run(&self.user, LetGo { ino, session }).await {
            tracing::debug!(%ino, %error, "the file goes when the session ends");
        }
    }
}
