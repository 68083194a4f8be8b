//! Addresses on a command line: `bucket/key`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::failure::{Failure, Result};

/// All characters but those that RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A bucket and a key or prefix in it, which may be empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub bucket: String,
    pub key: String,
}

impl Address {
    pub fn parse(text: &str) -> Result<Address> {
        if let Some((scheme, rest)) = text.split_once("://") {
            let text = format!("{text:?}: write it without {scheme}://, as BUCKET/KEY: {rest}");
            return Err(Failure::usage(text));
        }
        let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
        if bucket.is_empty() {
            return Err(Failure::usage(format!("{text:?} names no bucket: use BUCKET/KEY")));
        }
        Ok(Address { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// Parses the address of an object, like [`Address::parse`].
    ///
    /// `of_bucket` and `of_folder` say which other commands there are for these.
    pub fn parse_object(text: &str, [of_bucket, of_folder]: [&str; 2]) -> Result<Address> {
        let address = Address::parse(text)?;
        if address.key.is_empty() || address.key.ends_with('/') {
            let hint = if address.key.is_empty() { of_bucket } else { of_folder };
            let text = format!("{text:?} names no object: use BUCKET/KEY{hint}");
            return Err(Failure::usage(text));
        }
        Ok(address)
    }

    pub fn with_key(&self, key: impl Into<String>) -> Address {
        Address { bucket: self.bucket.clone(), key: key.into() }
    }

    /// Returns the path of a request about it.
    pub fn path(&self) -> String {
        let components: Vec<String> = self.key.split('/').map(escape).collect();
        format!("/storage/{}/{}", escape(&self.bucket), components.join("/"))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

/// Returns the path of a request about a bucket.
pub fn bucket_path(bucket: &str) -> String {
    format!("/storage/{}", escape(bucket))
}

/// Escapes a component of a path or a value of a query.
pub fn escape(text: &str) -> String {
    match text {
        // Proxies resolve these when they are whole components.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => utf8_percent_encode(text, ESCAPED).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_component_by_component() {
        let path = |text: &str| Address::parse(text).unwrap().path();
        assert_eq!(path("b/a b/ü?#%.txt"), "/storage/b/a%20b/%C3%BC%3F%23%25.txt");
        assert_eq!(path("b/../x//y/"), "/storage/b/%2E%2E/x//y/");
        assert!(Address::parse("/x").is_err());
        let said = Address::parse("s3://b/x").unwrap_err().to_string();
        assert!(said.ends_with("without s3://, as BUCKET/KEY: b/x"), "{said}");
        assert!(Address::parse_object("b/x/", ["", ""]).is_err());
        assert!(Address::parse_object("b", ["", ""]).is_err());
    }
}
