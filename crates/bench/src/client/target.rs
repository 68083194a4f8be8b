//! The target of a benchmark, from its URL.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;

use crate::error::{Error, Result};

/// A server and a path on it.
#[derive(Clone, Debug)]
pub struct Target {
    pub is_tls: bool,
    /// Host, with brackets if it is an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Path with the query; begins with a slash.
    pub path: String,
    /// User and password of the URL; never shown.
    pub credentials: Option<(String, String)>,
}

impl Target {
    pub fn parse(text: &str) -> Result<Target> {
        let wrong = |why: &str| Error::usage(format!("URL {:?}: {why}", without_secret(text)));
        let (scheme, _) = text
            .split_once("://")
            .ok_or_else(|| wrong("begin with http:// or https://, as in http://127.0.0.1:8080/"))?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http:// and https:// can be measured")),
        };
        let uri: Uri = text.parse().map_err(|error| wrong(&format!("{error}: quote it")))?;
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("it names no host"))?.to_owned();
        let rest = uri.authority().and_then(|authority| authority.as_str().split(&host).last());
        if rest.is_some_and(|rest| rest.starts_with(':')) && uri.port_u16().is_none() {
            return Err(wrong("the port is not a number from 0 to 65535"));
        }
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let user = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let credentials = user.map(|(user, _)| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            (decode(name), decode(password))
        });
        let target = Target { is_tls, host, port, path, credentials };
        if is_tls {
            target.server_name()?;
        }
        Ok(target)
    }

    /// Returns this target through TLS at another port.
    pub fn with_tls(&self, port: u16) -> Target {
        Target { is_tls: true, port, ..self.clone() }
    }

    pub fn authority(&self) -> String {
        match (self.is_tls, self.port) {
            (false, 80) | (true, 443) => self.host.clone(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns scheme, host and port.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }

    /// Returns the header `Host`.
    ///
    /// # Errors
    /// The host cannot be sent in a header.
    pub fn host_header(&self) -> Result<HeaderValue> {
        HeaderValue::from_str(&self.authority()).map_err(|_| {
            let why = "the host of the target cannot be sent as a Host header: check the target";
            Error::usage(why)
        })
    }

    /// Returns the header for a server that demands a password.
    pub fn basic(&self) -> Option<HeaderValue> {
        let (user, password) = self.credentials.as_ref()?;
        let value = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub fn server_name(&self) -> Result<ServerName<'static>> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let failed = |_| Error::usage(format!("{}: not a name that TLS knows", self.host));
        ServerName::try_from(host).map_err(failed)
    }

    /// Returns its first address, and how long the look-up took.
    pub async fn resolve(&self) -> Result<(SocketAddr, Duration)> {
        let begun = Instant::now();
        let failed = |why: String| {
            Error::failed(format!("cannot find host {}: {why}: check the name", self.host))
        };
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((host, self.port)).await;
        let address = found.map_err(|error| failed(error.to_string()))?.next();
        let address = address.ok_or_else(|| failed("it has no address".to_owned()))?;
        Ok((address, begun.elapsed()))
    }
}

impl fmt::Display for Target {
    /// Writes the URL without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Returns a URL in the form in which it may be shown.
pub fn without_secret(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest.get(..end).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://{}", rest.get(at + 1..).unwrap_or_default()),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let target = Target::parse("http://key:s%2Fcret@10.0.0.1:8080/a/b?c=d").unwrap();
        assert_eq!((target.port, target.path.as_str()), (8080, "/a/b?c=d"));
        assert_eq!(target.credentials, Some(("key".to_owned(), "s/cret".to_owned())));
        assert_eq!(target.to_string(), "http://10.0.0.1:8080/a/b?c=d");
        let target = Target::parse("https://[::1]").unwrap();
        assert_eq!((target.authority().as_str(), target.port), ("[::1]", 443));
        assert_eq!(target.with_tls(8443).to_string(), "https://[::1]:8443/");
    }

    #[test]
    fn senseless_urls_are_refused_without_showing_secrets() {
        for text in ["", "x", "ftp://a/", "http://", "http:///x", "http://a b/", "http://a:x/"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        let error = Target::parse("ftp://key:secret@host/").unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
