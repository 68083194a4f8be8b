//! The selected files and folders of a folder.

use cairn_base::{Error, Result};

use super::At;
use crate::forms::Form;
use crate::words;

/// The entries that were selected on the page of a folder.
pub struct Selection {
    /// The folder: empty, or it ends in a slash.
    pub prefix: String,
    /// Start of the names that were shown.
    filter: String,
    /// Set for everything in the folder that begins so, shown or not.
    is_all: bool,
    keys: Vec<String>,
}

/// A file, or everything that begins with a text.
pub enum Scope {
    File(String),
    /// Everything below a prefix, of which the folder itself may be a part.
    Below {
        prefix: String,
        has_itself: bool,
    },
}

impl Selection {
    /// Reads the selection of a form.
    ///
    /// # Errors
    /// `Invalid` if nothing was selected, or too much at once.
    pub fn of(form: &Form) -> Result<Selection> {
        let keys: Vec<String> = form.all("key").map(str::to_owned).collect();
        let is_all = form.get("all") == "yes";
        if keys.is_empty() && !is_all {
            return Err(Error::Invalid("nothing was selected".into()));
        }
        let most = cairn_base::limits::DELETE_KEYS;
        if keys.len() > most {
            let text = format!("select at most {most} at a time, or all of the folder");
            return Err(Error::Invalid(text));
        }
        let (prefix, filter) = (form.get("in").to_owned(), form.get("filter").to_owned());
        if !prefix.is_empty() && !prefix.ends_with('/') {
            return Err(Error::Invalid(format!("{prefix:?} is no folder")));
        }
        Ok(Selection { prefix, filter, is_all, keys })
    }

    /// Returns the fields by which a form has the same selection.
    pub fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields = vec![("in", &*self.prefix), ("filter", &*self.filter)];
        if self.is_all {
            fields.push(("all", "yes"))
        } else {
            fields.extend(self.keys.iter().map(|key| ("key", key.as_str())))
        }
        fields
    }

    /// Returns the scopes, files first.
    pub fn scopes(&self) -> Vec<Scope> {
        if self.is_all {
            let prefix = format!("{}{}", self.prefix, self.filter);
            return vec![Scope::Below { prefix, has_itself: false }];
        }
        let (folders, files): (Vec<&String>, Vec<&String>) =
            self.keys.iter().partition(|key| key.ends_with('/'));
        let folders = folders.into_iter();
        let folders = folders.map(|key| Scope::Below { prefix: key.clone(), has_itself: true });
        files.into_iter().map(|key| Scope::File(key.clone())).chain(folders).collect()
    }

    /// Returns the selected key if exactly one was selected.
    pub fn single(&self) -> Option<&str> {
        match &*self.keys {
            [key] if !self.is_all => Some(key),
            _ => None,
        }
    }

    /// Returns at most `most` names to be shown.
    pub fn names(&self, most: usize) -> Vec<&str> {
        let keys = self.keys.iter().filter(|_| !self.is_all).take(most);
        keys.map(|key| key.strip_prefix(&*self.prefix).unwrap_or(key)).collect()
    }

    /// Returns the number of selected names beyond those that are shown.
    pub fn unnamed(&self, shown: usize) -> usize {
        if self.is_all { 0 } else { self.keys.len().saturating_sub(shown) }
    }

    /// Describes the selection: `this file`, `3 folders and all that is in them`.
    pub fn words(&self, at: &At<'_>) -> String {
        if self.is_all {
            let place = match &*self.prefix {
                "" => format!("the bucket {}", at.bucket),
                prefix => format!("the folder {prefix}"),
            };
            return match &*self.filter {
                "" => format!("all files and folders in {place}"),
                filter => format!("all in {place} whose names begin with {filter:?}"),
            };
        }
        let count = |number: usize| words::count(number as u64);
        let folders = self.keys.iter().filter(|key| key.ends_with('/')).count();
        let files = self.keys.len() - folders;
        match (files, folders) {
            (1, 0) => "this file".to_owned(),
            (0, 1) => "this folder and all that is in it".to_owned(),
            (_, 0) => format!("{} files", count(files)),
            (0, _) => format!("{} folders and all that is in them", count(folders)),
            _ => format!(
                "{}, and {} with all that is in them",
                words::counted(files as u64, "file"),
                words::counted(folders as u64, "folder")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(form: &str) -> Result<Selection> {
        Selection::of(&Form::parse(form.as_bytes(), 99).unwrap())
    }

    #[test]
    fn a_selection_is_some_of_a_folder_or_all_of_it() {
        assert!(selected("in=a%2F").is_err());
        assert!(selected("in=a&all=yes").is_err(), "a prefix that is no folder");
        let some = selected("in=a%2F&key=a%2Fb%2F&key=a%2Fc").unwrap();
        let [Scope::File(file), Scope::Below { prefix, has_itself: true }] = &some.scopes()[..]
        else {
            panic!("a file, then a folder")
        };
        assert_eq!((&**file, &**prefix, some.names(9)), ("a/c", "a/b/", vec!["b/", "c"]));
        let all = selected("in=a%2F&filter=x&all=yes&key=a%2Fxy").unwrap();
        let [Scope::Below { prefix, has_itself: false }] = &all.scopes()[..] else {
            panic!("all that begins so")
        };
        assert_eq!(prefix, "a/x");
        assert!(all.fields().contains(&("all", "yes")) && all.names(9).is_empty());
        assert!(all.single().is_none() && selected("key=a").unwrap().single() == Some("a"));
    }
}
