//! Names of a backup that are restored, and the names that they get.

use crate::client::address::Address;
use crate::failure::{Failure, Result};

/// Names of one bucket. Paths have no slash at their ends.
#[derive(Clone, Default)]
pub struct Selection {
    /// Only names that begin with this.
    pub prefix: String,
    /// Only this file or directory, with all below it.
    pub path: Option<String>,
    /// Path in the bucket that they get instead: that of the file or the directory, or that of a
    /// directory for all.
    pub base: Option<String>,
}

/// Extent to which a name is selected: itself, and names below it if it is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Nothing,
    /// Something below the directory.
    Below,
    All,
}

impl Selection {
    /// Makes the selection of options, and finds the bucket that `into` names, if it names one.
    pub fn new(
        prefix: &str,
        path: Option<&str>,
        into: Option<&str>,
    ) -> Result<(Selection, Option<String>)> {
        let path = path.map(|path| path.trim_matches('/').to_owned());
        if path.as_deref() == Some("") {
            return Err(Failure::usage("--path: name a file or a directory of the bucket"));
        }
        let into = into.map(Address::parse).transpose()?;
        let base = into.as_ref().map(|into| into.key.trim_matches('/').to_owned());
        let base = base.filter(|base| !base.is_empty());
        let selection = Selection { prefix: prefix.to_owned(), path, base };
        Ok((selection, into.map(|into| into.bucket)))
    }

    /// Returns true if all names of the bucket are selected, and keep their paths.
    pub fn is_whole(&self) -> bool {
        self.prefix.is_empty() && self.path.is_none() && self.base.is_none()
    }

    /// Returns the part of a file or a directory that is selected.
    pub fn part(&self, path: &[u8], is_directory: bool) -> Part {
        let slash = [path, b"/"].concat();
        let prefix = self.prefix.as_bytes();
        if let Some(only) = &self.path {
            let only = only.as_bytes();
            return if only == path || path.starts_with(&[only, b"/"].concat()) {
                Part::All
            } else if is_directory && only.starts_with(&slash) {
                Part::Below
            } else {
                Part::Nothing
            };
        }
        // `a/` selects the directory `a`, too.
        if path.starts_with(prefix) || (is_directory && slash.starts_with(prefix)) {
            Part::All
        } else if is_directory && prefix.starts_with(&slash) {
            Part::Below
        } else {
            Part::Nothing
        }
    }

    /// Returns the path that a selected name gets.
    pub fn target(&self, path: &[u8]) -> Vec<u8> {
        let Some(base) = &self.base else { return path.to_vec() };
        match &self.path {
            Some(only) => [base.as_bytes(), path.get(only.len()..).unwrap_or_default()].concat(),
            None => join(base.as_bytes(), path),
        }
    }
}

/// Returns the path of a name in a directory; that of the bucket is empty.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        ([], name) => name.to_vec(),
        (directory, []) => directory.to_vec(),
        (directory, name) => [directory, b"/", name].concat(),
    }
}

/// Returns the names of a path.
pub fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_paths_select() {
        let of = |prefix: &str, path: Option<&str>| {
            let (selection, _) = Selection::new(prefix, path, None).unwrap();
            move |name: &str, is_directory| selection.part(name.as_bytes(), is_directory)
        };
        let all = of("", None);
        assert_eq!((all("a", false), all("a/b", true)), (Part::All, Part::All));
        let prefix = of("a/b", None);
        assert_eq!(prefix("a", true), Part::Below);
        assert_eq!(prefix("a", false), Part::Nothing);
        assert_eq!((prefix("a/bc", false), prefix("a/b/c", false)), (Part::All, Part::All));
        assert_eq!((prefix("a/c", false), prefix("ab", true)), (Part::Nothing, Part::Nothing));
        assert_eq!(of("a/", None)("a", true), Part::All);
        let path = of("", Some("/a/b/"));
        assert_eq!((path("a", true), path("a/b", true)), (Part::Below, Part::All));
        assert_eq!((path("a/bc", false), path("a/b/c", false)), (Part::Nothing, Part::All));
    }

    #[test]
    fn names_get_other_places() {
        let of = |path: Option<&str>, into: &str, name: &str| {
            let (selection, bucket) = Selection::new("", path, Some(into)).unwrap();
            let target = String::from_utf8(selection.target(name.as_bytes())).unwrap();
            format!("{}:{target}", bucket.unwrap())
        };
        assert_eq!(of(None, "copy", "a/b"), "copy:a/b");
        assert_eq!(of(None, "copy/old/", "a/b"), "copy:old/a/b");
        assert_eq!(of(Some("a/b"), "copy/x/y", "a/b"), "copy:x/y");
        assert_eq!(of(Some("a"), "copy/x", "a/b"), "copy:x/b");
        assert_eq!(of(Some("a/b"), "copy", "a/b"), "copy:a/b");
        assert!(Selection::new("", Some("/"), None).is_err());
    }
}
