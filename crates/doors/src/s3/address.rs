//! Finds the bucket and key that a request names, by path or by virtual host.

use cairn_base::limits;
use http::Uri;
use http::header::{HOST, HeaderMap};
use percent_encoding::percent_decode_str;
use s3s::{S3ErrorCode, S3Result};

use super::error::refuse;

/// The target of a request. Decoded once; never decoded again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Address {
    Root,
    Bucket(String),
    Object { bucket: String, key: String },
}

impl Address {
    /// Finds the target. The bucket comes from the host if that is `<bucket>.<domain>`, otherwise
    /// from the path.
    pub(super) fn parse(path: &str, host: &[u8], domains: &[String]) -> S3Result<Address> {
        let path = decode(path)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        let (bucket, key) = match bucket_of_host(host, domains) {
            Some(bucket) => (bucket, path),
            None => match path.split_once('/') {
                Some((bucket, key)) => (bucket.to_owned(), key),
                None => (path.to_owned(), ""),
            },
        };
        if bucket.is_empty() && key.is_empty() {
            return Ok(Address::Root);
        }
        cairn_fs::ops::buckets::check_bucket_name(&bucket)
            .map_err(|error| refuse(S3ErrorCode::InvalidBucketName, error.to_string()))?;
        if key.len() > limits::KEY_BYTES {
            let what = format!("the key has {} bytes; at most 1024 are allowed", key.len());
            return Err(refuse(S3ErrorCode::KeyTooLongError, what));
        }
        Ok(if key.is_empty() {
            Address::Bucket(bucket)
        } else {
            Address::Object { bucket, key: key.to_owned() }
        })
    }

    pub(super) fn bucket(&self) -> Option<&str> {
        match self {
            Address::Root => None,
            Address::Bucket(bucket) | Address::Object { bucket, .. } => Some(bucket),
        }
    }

    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Address::Object { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns whether the bucket came from the host: then the decoded path is the key alone.
    pub(super) fn is_by_host(&self, decoded_path: &str) -> bool {
        let key_path = decoded_path.strip_prefix('/').unwrap_or(decoded_path);
        match self {
            Address::Root => false,
            Address::Bucket(_) => key_path.is_empty(),
            Address::Object { key, .. } => key_path == key,
        }
    }

    /// Returns the `Resource` of an error document.
    pub(super) fn resource(&self) -> String {
        match self {
            Address::Root => "/".into(),
            Address::Bucket(bucket) => format!("/{bucket}"),
            Address::Object { bucket, key } => format!("/{bucket}/{key}"),
        }
    }
}

/// Decodes a path.
pub(super) fn decode(path: &str) -> S3Result<String> {
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        if rest.iter().take(2).filter(|byte| byte.is_ascii_hexdigit()).count() < 2 {
            return Err(refuse(S3ErrorCode::InvalidURI, "a % that begins no escape"));
        }
    }
    match percent_decode_str(path).decode_utf8() {
        Ok(path) => Ok(path.into_owned()),
        Err(_) => Err(refuse(S3ErrorCode::InvalidURI, "the path is not UTF-8")),
    }
}

/// Returns the host that a request was sent to; HTTP/2 has it in the URI.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a [u8] {
    match (headers.get(HOST), uri.authority()) {
        (Some(host), _) => host.as_bytes(),
        (None, Some(authority)) => authority.as_str().as_bytes(),
        (None, None) => b"",
    }
}

fn bucket_of_host(host: &[u8], domains: &[String]) -> Option<String> {
    if domains.is_empty() {
        return None;
    }
    let host = std::str::from_utf8(host).ok()?.to_ascii_lowercase();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &host,
    };
    domains.iter().find_map(|domain| {
        let bucket = name.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str, host: &str) -> Result<Address, String> {
        let domains = ["s3.example.com".to_owned(), "localhost".to_owned()];
        Address::parse(path, host.as_bytes(), &domains)
            .map_err(|error| error.code().as_str().to_owned())
    }

    fn object(bucket: &str, key: &str) -> Result<Address, String> {
        Ok(Address::Object { bucket: bucket.into(), key: key.into() })
    }

    #[test]
    fn by_path_and_by_host() {
        let bucket = |name: &str| Ok(Address::Bucket(name.into()));
        assert_eq!(parse("/", "10.0.0.1:9000"), Ok(Address::Root));
        assert_eq!(parse("/", "s3.example.com"), Ok(Address::Root));
        assert_eq!(parse("/photos", "other.org"), bucket("photos"));
        assert_eq!(parse("/photos/", "other.org"), bucket("photos"));
        assert_eq!(parse("/photos/a/b", "s3.example.com:443"), object("photos", "a/b"));
        assert_eq!(parse("/", "photos.s3.example.com"), bucket("photos"));
        assert_eq!(parse("/a/b", "Photos.S3.example.com:80"), object("photos", "a/b"));
        assert_eq!(parse("/a", "a.b.localhost:1"), object("a.b", "a"));
        assert_eq!(parse("//a", "photos.localhost"), object("photos", "/a"));
        assert_eq!(parse("/photos//a", "localhost"), object("photos", "/a"));
        assert_eq!(parse("/photos/a%2Fb%2520", "localhost"), object("photos", "a/b%20"));
        assert_eq!(parse("/photos%2Fa", "localhost"), object("photos", "a"));
        assert_eq!(parse("/photos/../a", "localhost"), object("photos", "../a"));
    }

    #[test]
    fn what_is_refused() {
        for path in ["/Photos", "/..", "//a", "/a%00b/c", "/ab"] {
            assert_eq!(parse(path, "h"), Err("InvalidBucketName".into()), "{path}");
        }
        assert_eq!(parse("/photos/%FF", "h"), Err("InvalidURI".into()));
        assert_eq!(parse("/x", "..localhost"), Err("InvalidBucketName".into()));
    }
}
