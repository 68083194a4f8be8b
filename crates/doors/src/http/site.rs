//! Requests that a page in a browser makes. A browser adds credentials that it knows for this door
//! to requests of any page, so a page must not be able to change anything in the name of its
//! reader.

use cairn_base::{Error, Result};
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

const SEC_FETCH_SITE: &str = "sec-fetch-site";
const JSON: &str = "application/json";

/// Refuses a change that a page of another site asks for, unless a rule `allows` it. Browsers send
/// `Sec-Fetch-Site` to trustworthy addresses only, `Origin` with every request that is not a GET or
/// HEAD.
pub fn refuse_other_sites(parts: &Parts, has_tls: bool, allows: bool) -> Result<()> {
    if parts.method.is_safe() || allows {
        return Ok(());
    }
    let headers = &parts.headers;
    let is_cross = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "cross-site");
    if is_cross || is_foreign(parts, has_tls) {
        return Err(Error::Denied("a page of another site asked for this change".into()));
    }
    Ok(())
}

/// Refuses administration by any page: pages may come out of a bucket, from the origin of this
/// door. Forms of pages cannot send JSON, so only JSON is taken.
pub fn refuse_pages(parts: &Parts) -> Result<()> {
    let headers = &parts.headers;
    let by_page = headers.get(SEC_FETCH_SITE).is_some_and(|site| site != "none");
    if by_page || headers.contains_key(ORIGIN) {
        return Err(Error::Denied(
            "a page in a browser asked for this, and administration is not for pages".into(),
        ));
    }
    if parts.method == Method::POST && !is_json(headers) {
        let text = "administration takes Content-Type: application/json only";
        return Err(Error::Invalid(text.into()));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(value) = value.to_str() else { return false };
    let kind = value.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(JSON)
}

/// Returns whether there is an `Origin` other than this very host. An unreadable origin is foreign,
/// and so is an origin without TLS at a door with TLS. A door without TLS may be behind a proxy
/// with TLS.
fn is_foreign(parts: &Parts, has_tls: bool) -> bool {
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return false };
    let own = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()),
    };
    let origin = origin.to_str().ok().filter(|_| origins.next().is_none());
    let (Some(own), Some(origin)) = (own, origin) else { return true };
    let Some((scheme, host)) = origin.split_once("://") else { return true };
    let port = match scheme {
        "http" if !has_tls => ":80",
        "https" => ":443",
        _ => return true,
    };
    let plain = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    plain(host) != plain(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/storage/b/k");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn an_origin_is_this_host_or_foreign() {
        let foreign = |host: &str, origin: &str| {
            is_foreign(&parts("POST", &[("host", host), ("origin", origin)]), false)
        };
        for (host, origin) in [
            ("a.example:8080", "http://a.example:8080"),
            ("a.example", "https://a.example"),
            ("a.example:443", "https://a.example"),
            ("A.example", "http://a.EXAMPLE:80"),
            ("[::1]:8080", "http://[::1]:8080"),
        ] {
            assert!(!foreign(host, origin), "{host} {origin}");
        }
        for (host, origin) in [
            ("a.example:8080", "http://a.example"),
            ("a.example:80", "https://a.example"),
            ("a.example", "http://a.example.evil"),
            ("a.example", "http://evil.a.example"),
            ("a.example", "null"),
            ("a.example", ""),
            ("a.example", "a.example"),
            ("a.example", "ftp://a.example"),
            ("a.example", "http://user@a.example"),
        ] {
            assert!(foreign(host, origin), "{host} {origin}");
        }
        assert!(!is_foreign(&parts("POST", &[("host", "a")]), true));
        assert!(is_foreign(&parts("POST", &[("origin", "http://a")]), false));
        let plain = parts("POST", &[("host", "a"), ("origin", "http://a")]);
        assert!(is_foreign(&plain, true) && !is_foreign(&plain, false));
        let two = [("host", "a"), ("origin", "http://a"), ("origin", "http://b")];
        assert!(is_foreign(&parts("POST", &two), false));
        let reads = parts("GET", &[("host", "a"), ("origin", "http://b")]);
        assert!(refuse_other_sites(&reads, false, false).is_ok());
    }

    #[test]
    fn json_is_json_alone() {
        let json = |value: &str| refuse_pages(&parts("POST", &[("content-type", value)])).is_ok();
        assert!(json("application/json") && json("Application/JSON; charset=utf-8"));
        for other in ["", "text/plain", "text/plain;application/json", "application/json5"] {
            assert!(!json(other), "{other}");
        }
        assert!(refuse_pages(&parts("POST", &[])).is_err());
        assert!(refuse_pages(&parts("GET", &[])).is_ok());
        assert!(refuse_pages(&parts("GET", &[("origin", "http://a"), ("host", "a")])).is_err());
    }
}
