//! The host that a request names. HTTP/1.1 requires exactly one `Host`, HTTP/2 `:authority` or an
//! equal `host`: if two hosts are named, a proxy in front of this server may have taken the other
//! one.

use cairn_base::{Error, Result};
use http::header::{HOST, HeaderMap};
use http::uri::Authority;
use http::{Request, Uri, Version};
use std::net::IpAddr;

/// Checks the host of a request.
///
/// # Errors
/// `Invalid` if no host is named, or more than one.
pub fn check<T>(request: &Request<T>) -> Result<()> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let refused = |what: &str| Err(Error::Invalid(what.into()));
    if second.is_some() {
        return refused("the request has two Host headers: send one");
    }
    let authority = request.uri().authority();
    match (request.version(), first, authority) {
        (Version::HTTP_2 | Version::HTTP_3, None, None) => {
            refused("the request names no host: send :authority")
        }
        (Version::HTTP_2 | Version::HTTP_3, Some(host), Some(authority))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            refused(":authority and host are not the same: send one of them")
        }
        (Version::HTTP_11, None, _) => refused("the request has no Host header: send one"),
        _ => Ok(()),
    }
}

/// Returns whether a request was sent to this machine under a name that no other machine can have.
/// A page of a site whose name resolves to this machine, in a browser on this machine, sends the
/// name of that site.
pub(crate) fn is_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let of_header = || {
        let host = headers.get(HOST).map(|host| Authority::try_from(host.as_bytes()));
        host.transpose()
    };
    let named = match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => match of_header() {
            Ok(host) => host,
            Err(_) => return false,
        },
    };
    // Browsers always name a host.
    let Some(named) = named else { return true };
    let host = named.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn one_host_is_named() {
        let table: [(Version, &str, &[&str], bool); 12] = [
            (Version::HTTP_10, "/", &[], true),
            (Version::HTTP_10, "/", &["a", "a"], false),
            (Version::HTTP_11, "/", &["a"], true),
            (Version::HTTP_11, "/", &[], false),
            (Version::HTTP_11, "http://a/", &[], false),
            (Version::HTTP_11, "/", &["a", "a"], false),
            (Version::HTTP_11, "http://a/", &["a"], true),
            (Version::HTTP_2, "http://a/", &[], true),
            (Version::HTTP_2, "/", &["a"], true),
            (Version::HTTP_2, "http://a:1/", &["A:1"], true),
            (Version::HTTP_2, "http://a/", &["evil"], false),
            (Version::HTTP_2, "/", &[], false),
        ];
        for (version, uri, hosts, good) in table {
            let checked = check(&request(version, uri, hosts));
            assert_eq!(checked.is_ok(), good, "{version:?} {uri} {hosts:?}");
        }
    }

    #[test]
    fn loopback_has_few_names() {
        let is = |uri: &str, hosts: &[&str]| {
            let request = request(Version::HTTP_11, uri, hosts);
            is_loopback(request.uri(), request.headers())
        };
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080"] {
            assert!(is("/", &[host]), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", "@"] {
            assert!(!is("/", &[host]), "{host}");
        }
        assert!(is("http://[::1]/", &[]) && !is("http://evil/", &["localhost"]));
        assert!(is("/", &[]));
    }
}
