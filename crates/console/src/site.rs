//! Addresses by which browsers reach the console and the S3 door, and the check that a request
//! comes from a page of the console.

use std::net::IpAddr;

use cairn_base::{Error, Result};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Address of a door, as browsers reach it.
#[derive(Clone, Debug)]
pub enum Data {
    /// An origin.
    At(String),
    /// The host by which the console is reached.
    Beside { scheme: &'static str, port: u16 },
}

/// Addresses of the console.
#[derive(Clone, Debug)]
pub struct Site {
    /// `https://console.example.org`, in lower case.
    origins: Vec<String>,
    /// Hosts of these origins, without ports.
    hosts: Vec<String>,
    data: Data,
    /// Address of share links.
    links: Data,
    is_secure: bool,
    /// Port of the listener: consoles of one host do not share a cookie.
    port: u16,
}

/// The host that a request names, with its port and without.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    pub authority: String,
    pub name: String,
    /// Scheme by which the browser came: a page with the other scheme has another origin.
    pub scheme: &'static str,
}

impl Site {
    /// Makes a site.
    ///
    /// # Errors
    /// `Invalid` if an origin is malformed.
    pub fn new(
        origins: &[String],
        data: Data,
        links: Data,
        is_secure: bool,
        port: u16,
    ) -> Result<Site> {
        let origins: Vec<String> = origins.iter().map(|text| text.to_ascii_lowercase()).collect();
        let hosts: Result<Vec<String>> = origins.iter().map(|origin| host_of(origin)).collect();
        for place in [&data, &links] {
            if let Data::At(origin) = place {
                host_of(origin)?;
            }
        }
        Ok(Site { hosts: hosts?, origins, data, links, is_secure, port })
    }

    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// Returns the name of the cookie, and whether it is sent by TLS only.
    pub fn cookie(&self) -> (String, bool) {
        if self.is_secure {
            ("__Host-cairn".to_owned(), true)
        } else {
            (format!("cairn-{}", self.port), false)
        }
    }

    /// Returns the host that a request names, if it is one of the console: a page of another site
    /// whose name leads here names that site.
    ///
    /// # Errors
    /// `Invalid` for any other host.
    pub fn host<T>(&self, request: &Request<T>) -> Result<Host> {
        cairn_doors::host::check(request)?;
        let named = match request.uri().authority() {
            Some(authority) => Some(authority.clone()),
            None => {
                let host = request.headers().get(HOST);
                host.and_then(|host| Authority::try_from(host.as_bytes()).ok())
            }
        };
        let foreign = || Error::Invalid("the console has another name: see --console-url".into());
        let authority = named.ok_or_else(foreign)?.as_str().to_ascii_lowercase();
        let name = without_port(&authority).to_owned();
        if self.hosts.contains(&name) && !authority.contains('@') {
            let scheme = if self.is_secure { "https" } else { "http" };
            Ok(Host { authority, name, scheme })
        } else {
            Err(foreign())
        }
    }

    /// Checks that a request comes from a page of the console, as every request for a change must.
    /// Browsers say so.
    ///
    /// # Errors
    /// `Denied` if not.
    pub fn check_page(host: &Host, headers: &HeaderMap) -> Result<()> {
        let foreign = || Err(Error::Denied("the request is from a page of another site".into()));
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        if let Some(site) = sites.next() {
            return if site.as_bytes() == b"same-origin" && sites.next().is_none() {
                Ok(())
            } else {
                foreign()
            };
        }
        // Browsers omit that header from requests without TLS, except to this machine.
        let mut origins = headers.get_all(ORIGIN).iter();
        let (first, second) = (origins.next(), origins.next());
        if first.is_none() {
            let text = "the request does not say which page it is from (no Origin), as browsers \
                        do: programs use the HTTP or S3 door";
            return Err(Error::Denied(text.into()));
        }
        let origin = first.filter(|_| second.is_none()).and_then(|origin| origin.to_str().ok());
        let own = |(scheme, authority): (&str, &str)| {
            scheme.eq_ignore_ascii_case(host.scheme)
                && authority.eq_ignore_ascii_case(&host.authority)
        };
        if origin.and_then(|origin| origin.split_once("://")).is_some_and(own) {
            Ok(())
        } else {
            foreign()
        }
    }

    /// Checks that a request that only reads may be answered. Pages of other origins may lead a
    /// person to a page, and load nothing: what scripts request is for scripts of the console
    /// alone.
    ///
    /// # Errors
    /// `Denied` if not.
    pub fn check_reader(host: &Host, headers: &HeaderMap, is_of_script: bool) -> Result<()> {
        let is = |name, value: &[u8]| headers.get(name).map(|known| known.as_bytes() == value);
        let is_led = is(SEC_FETCH_MODE, b"navigate").unwrap_or(true);
        let is_typed = is(SEC_FETCH_SITE, b"none").unwrap_or(false);
        if !is_of_script && (is_led || is_typed) {
            return Ok(());
        }
        // An old browser names another origin if that origin could read the reply.
        if headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(ORIGIN) {
            Site::check_page(host, headers)
        } else {
            Ok(())
        }
    }

    /// Returns the origin of the S3 door, for a browser that reached the console by this host.
    pub fn data(&self, host: &Host) -> String {
        self.data.origin(host)
    }

    /// Returns the origin of the HTTP door in the same way.
    pub fn links(&self, host: &Host) -> String {
        self.links.origin(host)
    }
}

impl Data {
    fn origin(&self, host: &Host) -> String {
        match self {
            Data::At(origin) => origin.clone(),
            Data::Beside { scheme, port } => format!("{scheme}://{}:{port}", host.name),
        }
    }
}

/// Returns the host of an origin, without its port.
fn host_of(origin: &str) -> Result<String> {
    let bad = || Error::Invalid(format!("{origin:?}: use an origin such as https://c.example.org"));
    let (scheme, authority) = origin.split_once("://").ok_or_else(bad)?;
    let parsed = Authority::try_from(authority).map_err(|_| bad())?;
    let is_plain = matches!(scheme, "http" | "https") && !authority.contains('@');
    let is_text =
        authority.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"';,".contains(&byte));
    if is_plain && is_text && !parsed.host().is_empty() {
        Ok(without_port(authority).to_ascii_lowercase())
    } else {
        Err(bad())
    }
}

fn without_port(authority: &str) -> &str {
    if let Some(end) = authority.find(']') {
        return authority.get(..=end).unwrap_or(authority);
    }
    authority.split(':').next().unwrap_or(authority)
}

/// Returns the origins of a console that browsers on this machine reach at a port.
pub fn loopback(port: u16) -> Vec<String> {
    ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}")).to_vec()
}

/// Returns an address in the form of a host in a URL.
pub fn literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let origins = [loopback(9001), vec!["https://Console.example.org".to_owned()]].concat();
        let beside = |port| Data::Beside { scheme: "http", port };
        Site::new(&origins, beside(9000), beside(8080), false, 9001).unwrap()
    }

    fn named(host: &str) -> Result<Host> {
        site().host(&Request::builder().uri("/").header(HOST, host).body(()).unwrap())
    }

    #[test]
    fn only_its_own_names_are_answered() {
        for host in ["127.0.0.1:9001", "LOCALHOST", "[::1]:9001", "console.example.org:8443"] {
            named(host).unwrap();
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:9001",
            "console.example.org.evil",
            "localhost@evil.example",
            "evil@localhost",
            "10.0.0.1:9001",
            "[::2]:9001",
            "",
        ] {
            named(host).unwrap_err();
        }
    }

    #[test]
    fn changes_come_from_its_own_pages() {
        let host = named("127.0.0.1:9001").unwrap();
        let from = |headers: &[(HeaderName, &str)]| {
            let headers =
                headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            Site::check_page(&host, &headers.collect()).is_ok()
        };
        assert!(from(&[(SEC_FETCH_SITE, "same-origin")]));
        assert!(from(&[(ORIGIN, "http://127.0.0.1:9001")]));
        assert!(!from(&[]));
        for site in ["same-site", "cross-site", "none", ""] {
            assert!(!from(&[(SEC_FETCH_SITE, site), (ORIGIN, "http://127.0.0.1:9001")]), "{site}");
        }
        let other_scheme = "https://127.0.0.1:9001";
        for origin in
            ["null", other_scheme, "http://127.0.0.1:9000", "http://evil", "127.0.0.1:9001", ""]
        {
            assert!(!from(&[(ORIGIN, origin)]), "{origin}");
        }
    }

    #[test]
    fn cookies_of_tls_are_of_this_host_alone() {
        let made = |is_secure| {
            let at = |name: &str| Data::At(format!("https://{name}.example.org"));
            let origins = ["https://c.example.org".to_owned()];
            Site::new(&origins, at("s3"), at("files"), is_secure, 9001).unwrap()
        };
        assert_eq!(made(true).cookie(), ("__Host-cairn".to_owned(), true));
        assert_eq!(made(false).cookie(), ("cairn-9001".to_owned(), false));
    }

    #[test]
    fn bytes_are_at_another_origin() {
        let host = named("[::1]:9001").unwrap();
        assert_eq!(site().data(&host), "http://[::1]:9000");
        assert_eq!(site().links(&host), "http://[::1]:8080");
        for bad in ["console", "https://", "ftp://a", "https://a b", "https://a;script-src *"] {
            let good = || Data::At("http://a".to_owned());
            assert!(Site::new(&[bad.to_owned()], good(), good(), true, 1).is_err());
            let links = Data::At(bad.to_owned());
            assert!(Site::new(&["http://a".to_owned()], good(), links, true, 1).is_err());
        }
    }
}
