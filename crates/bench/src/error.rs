//! Reasons why a benchmark ends without a result: one line with the remedy.

use std::fmt;
use std::path::Path;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The command line makes no sense.
    Usage(String),
    /// It could not be done.
    Failed(String),
}

impl Error {
    pub fn usage(text: impl Into<String>) -> Error {
        Error::Usage(text.into())
    }

    pub fn failed(text: impl Into<String>) -> Error {
        Error::Failed(text.into())
    }

    /// Makes an error for a file of the operating system.
    pub fn file(path: &Path, error: impl fmt::Display) -> Error {
        Error::Failed(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Usage(text) | Error::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}
