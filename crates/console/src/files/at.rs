//! A request about a bucket.

use cairn_auth::{Action, BucketAccess, Resource, is_allowed};

use crate::inner::{ConsoleRequest, Inner, LoggedIn};
use crate::words::in_query;

#[derive(Clone, Copy)]
pub struct At<'a> {
    pub inner: &'a Inner,
    pub asked: &'a ConsoleRequest,
    pub login: &'a LoggedIn,
    pub bucket: &'a str,
}

impl<'a> At<'a> {
    /// Returns this request as a request about another bucket.
    pub fn beside<'b>(&'b self, bucket: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        At { bucket, ..*self }
    }

    /// Returns whether pages offer an action in a bucket to their user, who may do it, while the
    /// store is not so read-only that it refuses.
    pub fn offers(&self, bucket: BucketAccess<'_>, action: Action) -> bool {
        let caller = &self.login.caller;
        let context = caller.context(self.inner.fs().clock().now());
        let is_refused = self.login.is_read_only && action.changes_contents();
        !is_refused && is_allowed(caller, action, Resource::Bucket(bucket), &context)
    }

    /// Returns the address of the page of a folder: its prefix ends in a slash, or is empty.
    pub fn folder(&self, prefix: &str) -> String {
        match prefix {
            "" => format!("/b/{}", self.bucket),
            prefix => format!("/b/{}?in={}", self.bucket, in_query(prefix)),
        }
    }

    /// Returns the folder in which a key is, or which it names.
    pub fn folder_of<'k>(&self, key: &'k str) -> &'k str {
        if key.ends_with('/') { key } else { split(key).0 }
    }

    /// Returns the address of a page about an object.
    pub fn of_object(&self, what: &str, key: &str) -> String {
        format!("/b/{}/{what}?key={}", self.bucket, in_query(key))
    }

    /// Returns the names and addresses on the path to a prefix: without its last name, unless
    /// `is_whole`.
    pub fn crumbs(&self, prefix: &str, is_whole: bool) -> Vec<(String, String)> {
        let mut crumbs = vec![("Buckets".to_owned(), "/".to_owned())];
        crumbs.push((self.bucket.to_owned(), self.folder("")));
        let mut end = 0;
        for part in prefix.split_inclusive('/') {
            end += part.len();
            let place = self.folder(prefix.get(..end).unwrap_or(prefix));
            crumbs.push((part.trim_end_matches('/').to_owned(), place));
        }
        if !is_whole {
            crumbs.pop();
        }
        crumbs
    }
}

/// Splits a key before its last name. The name keeps its slash if it is a folder's.
pub fn split(key: &str) -> (&str, &str) {
    let trimmed = key.strip_suffix('/').unwrap_or(key);
    key.split_at(trimmed.rfind('/').map_or(0, |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn keys_are_split_before_their_last_name() {
        for (key, parts) in [
            ("a", ("", "a")),
            ("a/b", ("a/", "b")),
            ("a/b/", ("a/", "b/")),
            ("a/", ("", "a/")),
            ("/", ("", "/")),
            ("a//", ("a/", "/")),
        ] {
            assert_eq!(split(key), parts, "{key:?}");
        }
    }
}
