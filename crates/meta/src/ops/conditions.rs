//! Conditions on the current state of an object, decided inside the operation that they guard.

use cairn_base::{Error, Ino, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rows::Inode;

/// The ETags of a condition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EtagMatch {
    /// `*`: any state of an object that exists.
    Any,
    /// One of these, without quotes.
    OneOf(Vec<String>),
}

impl EtagMatch {
    fn matches(&self, etag: &str) -> bool {
        match self {
            EtagMatch::Any => true,
            EtagMatch::OneOf(etags) => etags.iter().any(|one| one == etag),
        }
    }
}

/// The conditions that an object must meet so that a request is executed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    pub if_match: Option<EtagMatch>,
    pub if_none_match: Option<EtagMatch>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
    /// Size for S3's conditional delete.
    pub if_size: Option<u64>,
}

/// The current state of the object.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    pub ino: Ino,
    pub inode: &'a Inode,
}

impl Conditions {
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }

    /// Checks a request that changes the object.
    ///
    /// # Errors
    /// `PreconditionFailed`, or `NotFound` if If-Match names a state of an object that does not
    /// exist.
    pub fn check_change(&self, current: Option<Current<'_>>) -> Result<(), Error> {
        let Some(current) = current else {
            if self.if_match.is_some() || self.if_size.is_some() {
                return Err(Error::NotFound("there is no object that If-Match could match".into()));
            }
            return Ok(());
        };
        let Current { ino, inode } = current;
        match self.failed(|| inode.etag(ino), inode.mtime, inode.size) {
            Some(condition) => Err(Error::PreconditionFailed(condition.into())),
            None => Ok(()),
        }
    }

    /// Checks a request that reads the object.
    ///
    /// # Errors
    /// `NotModified` if the caller's copy is current.
    pub fn check_read(&self, current: Current<'_>) -> Result<(), Error> {
        let Current { ino, inode } = current;
        self.check_read_of(|| inode.etag(ino), inode.mtime, inode.size)
    }

    /// Checks like [`Conditions::check_read`], when only these facts of the object are known.
    pub fn check_read_of(
        &self,
        etag: impl Fn() -> String,
        modified: Timestamp,
        size: u64,
    ) -> Result<(), Error> {
        match self.failed(etag, modified, size) {
            Some(condition @ ("If-None-Match" | "If-Modified-Since")) => {
                Err(Error::NotModified(condition.into()))
            }
            Some(condition) => Err(Error::PreconditionFailed(condition.into())),
            None => Ok(()),
        }
    }

    /// Returns the first condition that does not hold. A date is ignored if there is an ETag for
    /// the same purpose (RFC 9110, section 13.2.2); dates on the wire have whole seconds.
    fn failed(
        &self,
        etag: impl Fn() -> String,
        modified: Timestamp,
        size: u64,
    ) -> Option<&'static str> {
        let modified = modified.secs();
        if let Some(wanted) = &self.if_match {
            if !wanted.matches(&etag()) {
                return Some("If-Match");
            }
        } else if self.if_unmodified_since.is_some_and(|since| modified > since.secs()) {
            return Some("If-Unmodified-Since");
        }
        if let Some(unwanted) = &self.if_none_match {
            if unwanted.matches(&etag()) {
                return Some("If-None-Match");
            }
        } else if self.if_modified_since.is_some_and(|since| modified <= since.secs()) {
            return Some("If-Modified-Since");
        }
        match self.if_size {
            Some(wanted) if wanted != size => Some("If-Match-Size"),
            _ => None,
        }
    }
}
