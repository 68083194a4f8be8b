//! Rechecks the rights of followers regularly.

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Fs;

/// Finds out whether a caller may go on following an object or a source.
#[derive(Clone)]
pub struct Checker {
    pub fs: Fs,
    pub caller: Caller,
    pub bucket: String,
    pub key: String,
    /// The object that is followed; `None` for a file of a source.
    pub ino: Option<Ino>,
}

impl Checker {
    /// Returns the reason why it may not go on; `None` if it may.
    ///
    /// # Errors
    /// The error if that cannot be found out now.
    pub async fn check(&self) -> Result<Option<&'static str>> {
        match (self.fs.open(&self.caller, &self.bucket, &self.key).await, self.ino) {
            (Ok(object), Some(ino)) if object.ino() != ino => Ok(Some("replaced")),
            (Ok(_), _) | (Err(Error::NotFound(_)), None) => Ok(None),
            (Err(Error::NotFound(_)), Some(_)) => Ok(Some("deleted")),
            (Err(Error::Denied(_)), _) => Ok(Some("denied")),
            (Err(error), _) => Err(error),
        }
    }
}
