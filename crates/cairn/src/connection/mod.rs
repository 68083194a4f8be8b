//! A server as its clients see it: requests and replies.

pub mod http;
mod profile;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cairn_base::{Secret, waits};
use cairn_tls::{Trust, authorities};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use http::{Client, Outgoing, ReplyBody};
use profile::Profile;

const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
const JSON: &str = "application/json";
/// Most bytes that are read of a reply that is not an object.
const REPLY_BYTES: u64 = 64 << 20;
/// Most bytes that are read of the reason why a request failed.
const FAILURE_BYTES: u64 = 1 << 20;
/// Name of this program in requests.
pub const AGENT: &str = concat!("cairn/", env!("CARGO_PKG_VERSION"));

/// Which server, and as whom.
#[derive(Clone, clap::Args)]
pub struct Connection {
    // Not by clap: it would show what the environment says as if the command line needed it.
    /// URL of the server's HTTP door [env: CAIRN_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// Trust only the certificate authorities in this PEM file [env: CAIRN_CA]
    #[arg(long, value_name = "FILE", global = true)]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    ca: Option<PathBuf>,
    /// Use this section of ~/.config/cairn/config.toml, with server, key, secret, token, ca. The
    /// environment takes precedence: CAIRN_KEY and CAIRN_SECRET, or CAIRN_TOKEN [env:
    /// CAIRN_PROFILE]
    #[arg(long, value_name = "NAME", global = true)]
    profile: Option<String>,
}

/// A server for requests. Threads share it.
pub struct Server {
    client: Client,
    base: String,
    authorization: Option<Credentials>,
    /// Prefix of the environment variables for credentials.
    prefix: String,
}

/// A reply with a status of success.
pub struct Reply {
    response: Response<ReplyBody>,
}

/// Credentials for a server.
pub struct Credentials {
    /// Header for them.
    pub header: Secret<String>,
    /// Which ones they are, and where they come from, in words that have no secret.
    pub origin: String,
}

/// Address of a server, and the credentials that it gets.
pub struct ServerAccess {
    /// URL that begins with `http://` or `https://`, without a slash at the end.
    pub base: String,
    pub ca: Option<PathBuf>,
    pub authorization: Option<Credentials>,
}

impl ServerAccess {
    /// Returns the authorities whose certificates are accepted.
    pub fn trust(&self) -> Result<Trust> {
        let Some(path) = &self.ca else { return Ok(Trust::Public) };
        let pem = fs::read(path).map_err(|error| Failure::file(path, &error))?;
        let read = authorities(&pem);
        let read = read.map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
        Ok(Trust::Authorities(read))
    }
}

impl Connection {
    /// Replaces the server of the options, if another is given.
    pub fn at(self, server: Option<String>) -> Connection {
        Connection { server: server.or(self.server), ..self }
    }

    /// Returns options by which another command of this program connects in the same way.
    pub fn arguments(&self) -> Vec<OsString> {
        let ca = self.ca.as_ref().map(|ca| ca.clone().into_os_string());
        let given = [
            ("--server", self.server.as_ref().map(OsString::from)),
            ("--ca", ca),
            ("--profile", self.profile.as_ref().map(OsString::from)),
        ];
        given
            .into_iter()
            .filter_map(|(name, value)| Some([OsString::from(name), value?]))
            .flatten()
            .collect()
    }

    /// Finds out everything about the server without connecting to it.
    pub fn known(&self) -> Result<ServerAccess> {
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
        Ok(ServerAccess { base, ca, authorization: authorization("CAIRN", profile)? })
    }

    pub fn open(&self) -> Result<Server> {
        self.open_with(None)
    }

    /// Opens a server whose replies come within a time limit, or are errors.
    pub fn open_for(&self, patience: Duration) -> Result<Server> {
        self.open_with(Some(patience))
    }

    fn open_with(&self, patience: Option<Duration>) -> Result<Server> {
        let known = self.known()?;
        let client = Client::new(&known.base, known.trust()?, patience).map_err(Failure::usage)?;
        let prefix = "CAIRN".to_owned();
        Ok(Server { client, base: known.base, authorization: known.authorization, prefix })
    }
}

/// Returns the value of an environment variable; nothing if it is empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the header for the credentials: of the environment, otherwise of the profile, otherwise
/// none. The names of the environment begin with `prefix`.
fn authorization(prefix: &str, profile: Profile) -> Result<Option<Credentials>> {
    let of_environment = Profile {
        key: set(&format!("{prefix}_KEY")),
        secret: set(&format!("{prefix}_SECRET")),
        token: set(&format!("{prefix}_TOKEN")),
        ..Profile::default()
    };
    let of_profile = "a profile of ~/.config/cairn/config.toml";
    let of_keys = format!("{prefix}_KEY and {prefix}_SECRET");
    let from = [(of_environment, of_keys.as_str()), (profile, of_profile)];
    for (Profile { key, secret, token, .. }, place) in from {
        match (key, secret, token) {
            (None, None, None) => {}
            (_, _, Some(token)) => {
                let header = Secret::new(format!("Bearer {token}"));
                let of_token = format!("{prefix}_TOKEN");
                let place = if place == of_profile { place } else { &of_token };
                return Ok(Some(Credentials { header, origin: format!("the token of {place}") }));
            }
            (Some(key), Some(secret), None) => {
                let pair = Secret::new(format!("{key}:{secret}"));
                let header = Secret::new(format!("Basic {}", BASE64.encode(pair.expose())));
                let origin = format!("access key {key} of {place}");
                return Ok(Some(Credentials { header, origin }));
            }
            _ => {
                let text = format!(
                    "one of access key and secret key is missing: set {prefix}_KEY and \
                     {prefix}_SECRET"
                );
                return Err(Failure::usage(text));
            }
        }
    }
    Ok(None)
}

impl Server {
    /// Opens a second server in addition to that of the options, with separate credentials: those
    /// of one server are never sent to the other.
    pub fn second(
        base: &str,
        ca: Option<PathBuf>,
        profile: Option<&str>,
        prefix: &str,
    ) -> Result<Server> {
        let profile = match profile {
            Some(_) => profile::load(profile)?,
            None => Profile::default(),
        };
        let ca = ca.or_else(|| profile.ca.clone());
        let authorization = authorization(prefix, profile)?;
        let known = ServerAccess { base: base.to_owned(), ca, authorization };
        let client = Client::new(&known.base, known.trust()?, Some(waits::BACKUP_REQUEST));
        let client = client.map_err(Failure::usage)?;
        let prefix = prefix.to_owned();
        Ok(Server { client, base: known.base, authorization: known.authorization, prefix })
    }

    /// Sends a request without a body.
    pub fn send(&self, method: &str, path: &str) -> Result<Reply> {
        self.request(method, path, Outgoing::Nothing, None)
    }

    /// Sends an administrative request without parameters.
    pub fn send_order(&self, path: &str) -> Result<Reply> {
        self.send_json("POST", path, &serde_json::json!({}))
    }

    /// Sends a request with JSON.
    pub fn send_json(&self, method: &str, path: &str, json: &impl Serialize) -> Result<Reply> {
        let json = serde_json::to_vec(json).map_err(|error| Failure::new(error.to_string()))?;
        self.request(method, path, Outgoing::Bytes(json.into()), Some(JSON))
    }

    /// Sends a request with JSON that takes effect only under a condition: a header and its value.
    pub fn send_json_if(
        &self,
        method: &str,
        path: &str,
        json: &impl Serialize,
        condition: (&str, &str),
    ) -> Result<Reply> {
        let json = serde_json::to_vec(json).map_err(|error| Failure::new(error.to_string()))?;
        let headers = [("content-type", JSON), condition];
        self.request_with(method, path, Outgoing::Bytes(json.into()), &headers)
    }

    /// Requests events, which arrive as long as the reply is read.
    pub fn events(&self, path: &str) -> Result<Reply> {
        let accept = [("accept", "text/event-stream")];
        self.request_with("GET", path, Outgoing::Nothing, &accept)
    }

    /// Sends a body that can be read, of `length` bytes, or of unknown length.
    pub fn send_body(
        &self,
        method: &str,
        path: &str,
        length: Option<u64>,
        body: &mut dyn Read,
    ) -> Result<Reply> {
        self.request(method, path, Outgoing::Reader(body, length), None)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Outgoing<'_>,
        kind: Option<&str>,
    ) -> Result<Reply> {
        let kind = kind.map(|kind| ("content-type", kind));
        self.request_with(method, path, body, kind.as_slice())
    }

    /// Sends a request with these headers in addition to those of all requests.
    pub fn request_with(
        &self,
        method: &str,
        path: &str,
        body: Outgoing<'_>,
        headers: &[(&str, &str)],
    ) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(below(&self.base, path));
        request = request.header("user-agent", AGENT);
        if !headers.iter().any(|(name, _)| *name == "accept") {
            request = request.header("accept", "*/*");
        }
        if let Some(authorization) = &self.authorization {
            let header = authorization.header.expose().as_str();
            request = request.header("authorization", header);
        }
        for (name, value) in headers {
            // Values may be UTF-8.
            request = request.header(*name, value.as_bytes());
        }
        let what = |error: String| Failure::new(format!("{}: {error}", self.base));
        let request = request.body(()).map_err(|error| what(error.to_string()))?;
        let response = self.client.send(request, body).map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => what(NOT_LISTENING.to_owned()).passing(),
            _ => what(in_words(&error.to_string())).passing(),
        })?;
        let reply = Reply { response };
        if reply.response.status().is_success() {
            Ok(reply)
        } else {
            let origin = self.authorization.as_ref().map(|sent| sent.origin.as_str());
            Err(reply.failure(&self.prefix, origin))
        }
    }
}

/// Text for an answer that only an S3 door gives.
pub const S3_DOOR: &str = "this is an S3 door: name the HTTP door of the server (--server), by \
    default on port 8080";
/// Text for an answer that no HTTP door gives.
pub const OTHER_SITE: &str = "this is no HTTP door, but a console or another site: name the HTTP \
    door of the server (--server), by default on port 8080";
/// Text for an address where nothing listens.
pub const NOT_LISTENING: &str = "connection refused: is the server running? (--server URL)";

/// Returns the error that ended a connection, and its remedy.
pub fn in_words(error: &str) -> String {
    let known = [
        ("InvalidContentType", "no TLS is spoken there: begin the address with http://"),
        ("invalid HTTP version", "no plain HTTP is spoken there: begin the address with https://"),
        (
            "CaUsedAsEndEntity",
            "its certificate is that of an authority (CA:TRUE) and is not named by --ca: name it \
             there, or make one with cairn cert, see docs/tls.md",
        ),
        (
            "UnknownIssuer",
            "its certificate is signed by an authority that is not trusted here: name that \
             authority by --ca",
        ),
        ("not valid for name", "its certificate is for other host names than that of the address"),
        (
            "certificate expired",
            "its certificate has expired: renew it, or set the clock of this machine",
        ),
        ("not valid yet", "its certificate is not valid yet: set the clock of this machine"),
        // The certificate of an authority that has the name of a trusted one.
        (
            "BadSignature",
            "its certificate is signed by an authority that is not trusted here: name that \
             authority by --ca",
        ),
        ("NotValidForName", "its certificate is for other host names than that of the address"),
        ("Expired", "its certificate has expired: renew it, or set the clock of this machine"),
        ("NotValidYet", "its certificate is not valid yet: set the clock of this machine"),
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

    /// Returns a header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn json<T: DeserializeOwned>(self) -> Result<T> {
        let bytes = self.bytes(REPLY_BYTES)?;
        let read = serde_json::from_slice(&bytes);
        read.map_err(|error| Failure::new(format!("the server's reply cannot be read: {error}")))
    }

    /// Returns the whole body as text; malformed parts are replaced.
    pub fn text(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(REPLY_BYTES)?).into_owned())
    }

    fn bytes(self, limit: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let body = self.response.into_body();
        let read = body.take(limit + 1).read_to_end(&mut bytes);
        match read {
            Ok(read) if read as u64 <= limit => Ok(bytes),
            Ok(_) => Err(Failure::new(format!("the server's reply is longer than {limit} bytes"))),
            Err(error) => Err(Failure::new(format!("the server's reply: {error}"))),
        }
    }

    /// Returns the announced length, and the bytes.
    pub fn into_reader(self) -> (Option<u64>, impl Read) {
        let length = self.header("content-length").parse().ok();
        (length, self.response.into_body())
    }

    /// Returns the failure. `sent` says which credentials the request had.
    fn failure(self, prefix: &str, sent: Option<&str>) -> Failure {
        #[derive(serde::Deserialize)]
        struct ShownError {
            message: String,
        }
        let status = self.response.status();
        if !self.header("x-amz-request-id").is_empty()
            || self.header("content-type").contains("xml")
        {
            return Failure::new(S3_DOOR);
        }
        // The HTTP door sends pages to browsers only, and sends nobody to another address.
        if status.is_redirection() || self.header("content-type").starts_with("text/html") {
            return Failure::new(OTHER_SITE);
        }
        let shown = self.bytes(FAILURE_BYTES).ok();
        let shown = shown.and_then(|bytes| serde_json::from_slice::<ShownError>(&bytes).ok());
        let text = match shown {
            Some(shown) => shown.message,
            None => match status.as_u16() {
                401 | 403 => "denied".to_owned(),
                404 => "not found".to_owned(),
                _ => format!("the server answered {status}"),
            },
        };
        match status.as_u16() {
            401 if let Some(origin) = sent => Failure::refused(format!("{text}: {origin}")),
            401 => {
                let names = format!("{prefix}_KEY and {prefix}_SECRET, or {prefix}_TOKEN");
                Failure::refused(format!("{text}: set {names}"))
            }
            404 => Failure::not_found(text),
            412 => Failure::unmet(text),
            408 | 429 | 500 | 502..=504 => Failure::new(text).passing(),
            507 => Failure::full(text),
            400..500 => Failure::refused(text),
            _ => Failure::new(text),
        }
    }
}

/// Returns the target of a request: a proxy may have the server below a path.
fn below(base: &str, path: &str) -> String {
    let (_, rest) = base.split_once("://").unwrap_or_default();
    format!("{}{path}", rest.find('/').map_or("", |at| &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_below_a_path() {
        assert_eq!(below("http://host:8080", "/storage/b"), "/storage/b");
        assert_eq!(below("https://host/store", "/storage/b"), "/store/storage/b");
    }
}
