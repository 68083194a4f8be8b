//! A server as its clients see it: requests and replies.

use std::env;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cairn_base::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, SendBody};

use super::profile::{self, Profile};
use crate::failure::{Failure, Result};

const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// From the last byte of a request to the first one of its reply: collecting garbage takes longest.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";
/// What is read of a reply that is not an object, bytes.
const REPLY_BYTES: u64 = 64 << 20;
/// Connections that wait to be used again.
const IDLE_CONNECTIONS: usize = 64;

/// Which server, and as whom.
#[derive(Clone, clap::Args)]
pub struct Connection {
    // Not by clap: it would show what the environment says as if the command line needed it.
    /// The server's HTTP door [env: CAIRN_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// Trust this certificate authority, PEM, and no other [env: CAIRN_CA]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// A section of ~/.config/cairn/config.toml with server, key, secret, token, ca. The
    /// environment goes first: CAIRN_KEY and CAIRN_SECRET, or CAIRN_TOKEN [env: CAIRN_PROFILE]
    #[arg(long, value_name = "NAME", global = true)]
    profile: Option<String>,
}

/// A server to send requests to. Shared by threads.
pub struct Server {
    agent: Agent,
    base: String,
    authorization: Option<Secret<String>>,
}

/// A reply whose status says that it went well.
pub struct Reply {
    response: Response<Body>,
}

/// Where a server is, and what is shown to it.
pub struct Known {
    /// Begins with `http://` or `https://`, without a slash at the end.
    pub base: String,
    pub ca: Option<PathBuf>,
    /// The header for the credentials, if there are any.
    pub authorization: Option<Secret<String>>,
}

impl Connection {
    /// With another server than that of the options, if there is one.
    pub fn at(self, server: Option<String>) -> Connection {
        Connection { server: server.or(self.server), ..self }
    }

    /// Looks all of it up, and connects to nobody.
    pub fn known(&self) -> Result<Known> {
        let named = self.profile.clone().or_else(|| set("CAIRN_PROFILE"));
        let profile = profile::load(named.as_deref())?;
        let base = self.server.clone().or_else(|| set("CAIRN_SERVER"));
        let base = base.or_else(|| profile.server.clone());
        let base = base.unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        let base = base.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Failure::usage(format!("server {base:?}: begin with http:// or https://")));
        }
        let ca = self.ca.clone().or_else(|| set("CAIRN_CA").map(PathBuf::from));
        let ca = ca.or_else(|| profile.ca.clone());
        Ok(Known { base, ca, authorization: authorization(profile)? })
    }

    pub fn open(&self) -> Result<Server> {
        self.open_with(None)
    }

    /// A server whose replies come within some time, or are errors.
    pub fn open_for(&self, patience: Duration) -> Result<Server> {
        self.open_with(Some(patience))
    }

    fn open_with(&self, patience: Option<Duration>) -> Result<Server> {
        let Known { base, ca, authorization } = self.known()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(patience)
            .timeout_recv_response(Some(RESPONSE_TIMEOUT))
            .max_idle_connections(IDLE_CONNECTIONS)
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .user_agent(concat!("cairn/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls(ca)?)
            .build();
        let agent = Agent::new_with_config(config);
        Ok(Server { agent, base, authorization })
    }
}

/// What the environment says; nothing if that is empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn tls(ca: Option<PathBuf>) -> Result<TlsConfig> {
    let Some(path) = ca else { return Ok(TlsConfig::builder().build()) };
    let pem = fs::read(&path).map_err(|error| Failure::file(&path, &error))?;
    let parsed = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
        Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<Certificate<'static>> = parsed.collect();
    if certificates.is_empty() {
        let shown = path.display();
        return Err(Failure::new(format!("{shown}: no certificate in it: give a PEM file")));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::from(certificates)).build())
}

/// The header for the credentials: of the environment, else of the profile, else none.
fn authorization(profile: Profile) -> Result<Option<Secret<String>>> {
    let of_environment = Profile {
        key: set("CAIRN_KEY"),
        secret: set("CAIRN_SECRET"),
        token: set("CAIRN_TOKEN"),
        ..Profile::default()
    };
    for Profile { key, secret, token, .. } in [of_environment, profile] {
        match (key, secret, token) {
            (None, None, None) => {}
            (_, _, Some(token)) => return Ok(Some(Secret::new(format!("Bearer {token}")))),
            (Some(key), Some(secret), None) => {
                let pair = Secret::new(format!("{key}:{secret}"));
                return Ok(Some(Secret::new(format!("Basic {}", BASE64.encode(pair.expose())))));
            }
            _ => {
                let text = "one of access key and secret key is missing: set CAIRN_KEY and \
                            CAIRN_SECRET";
                return Err(Failure::usage(text));
            }
        }
    }
    Ok(None)
}

impl Server {
    /// Sends a request without a body.
    pub fn send(&self, method: &str, path: &str) -> Result<Reply> {
        self.send_body(method, path, None, SendBody::none())
    }

    /// Asks for something to be administered that needs no parameters.
    pub fn send_order(&self, path: &str) -> Result<Reply> {
        self.send_json("POST", path, &serde_json::json!({}))
    }

    /// Sends a request with JSON.
    pub fn send_json(&self, method: &str, path: &str, json: &impl Serialize) -> Result<Reply> {
        let json = serde_json::to_vec(json).map_err(|error| Failure::new(error.to_string()))?;
        let length = Some(json.len() as u64);
        self.request(method, path, length, SendBody::from_reader(&mut &json[..]), Some(JSON))
    }

    /// Sends a request with a body of `length` bytes, or of a length that is not known.
    pub fn send_body(
        &self,
        method: &str,
        path: &str,
        length: Option<u64>,
        body: SendBody<'_>,
    ) -> Result<Reply> {
        self.request(method, path, length, body, None)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        length: Option<u64>,
        body: SendBody<'_>,
        kind: Option<&str>,
    ) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization.expose().as_str());
        }
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let what = |error: String| Failure::new(format!("{}: {error}", self.base));
        let request = request.body(body).map_err(|error| what(error.to_string()))?;
        let response = self.agent.run(request).map_err(|error| match error {
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                what("connection refused: is the server running? (--server URL)".to_owned())
            }
            error => what(in_words(&error.to_string())),
        })?;
        let reply = Reply { response };
        match reply.response.status().is_success() {
            true => Ok(reply),
            false => Err(reply.failure()),
        }
    }
}

/// What a connection ended with, and what to do about it.
pub fn in_words(error: &str) -> String {
    let known = [
        ("InvalidContentType", "no TLS is spoken there: begin the address with http://"),
        ("invalid HTTP version", "no plain HTTP is spoken there: begin the address with https://"),
        (
            "CaUsedAsEndEntity",
            "its certificate is that of an authority (CA:TRUE): make one with \
          CA:FALSE, see docs/tls.md",
        ),
        (
            "UnknownIssuer",
            "its certificate is signed by nobody who is trusted here: name its \
          authority by --ca",
        ),
        ("NotValidForName", "its certificate is for other host names than that of the address"),
        ("Expired", "its certificate has expired: renew it, or set the clock of this machine"),
    ];
    match known.iter().find(|(sign, _)| error.contains(sign)) {
        Some((_, words)) => format!("{words} ({error})"),
        None => error.to_owned(),
    }
}

impl Reply {
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// A header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn json<T: DeserializeOwned>(mut self) -> Result<T> {
        let body = self.response.body_mut().with_config().limit(REPLY_BYTES);
        body.read_json().map_err(|error| Failure::new(format!("the server's reply: {error}")))
    }

    /// All of it as text; what is none is replaced.
    pub fn text(mut self) -> Result<String> {
        let body = self.response.body_mut().with_config().limit(REPLY_BYTES);
        body.lossy_utf8(true)
            .read_to_string()
            .map_err(|error| Failure::new(format!("the server's reply: {error}")))
    }

    /// The length that was announced, and the bytes.
    pub fn into_reader(self) -> (Option<u64>, impl Read) {
        let length = self.header("content-length").parse().ok();
        (length, self.response.into_body().into_with_config().limit(u64::MAX).reader())
    }

    fn failure(mut self) -> Failure {
        #[derive(serde::Deserialize)]
        struct Shown {
            message: String,
        }
        let status = self.response.status();
        if !self.header("x-amz-request-id").is_empty()
            || self.header("content-type").contains("xml")
        {
            let text = "this is an S3 door: name the HTTP door of the server (--server), by default \
                        on port 8080";
            return Failure::new(text);
        }
        let shown = self.response.body_mut().with_config().limit(1 << 20).read_json::<Shown>();
        let text = match shown {
            Ok(shown) => shown.message,
            Err(_) => match status.as_u16() {
                401 | 403 => "denied".to_owned(),
                404 => "not found".to_owned(),
                _ => format!("the server answered {status}"),
            },
        };
        match status.as_u16() {
            401 => Failure::new(format!("{text}: set CAIRN_KEY and CAIRN_SECRET, or CAIRN_TOKEN")),
            404 => Failure::not_found(text),
            _ => Failure::new(text),
        }
    }
}
