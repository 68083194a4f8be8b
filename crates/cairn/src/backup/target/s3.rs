//! Backups in a bucket of S3.

use std::env;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cairn_base::{Secret, waits};
use cairn_tls::{Trust, authorities};
use hyper::{Request, Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::super::time::compact_time;
use super::objects::{OBJECT_BYTES, Target, part_of};
use super::sign::{Credentials, RequestToSign, headers};
use crate::client::address::escape;
use crate::connection::http::{Client, Outgoing, ReplyBody, authority, host_header};
use crate::connection::{AGENT, in_words};
use crate::failure::{Failure, Result};

/// The most that is read of a reply that is no object, bytes.
const REPLY_BYTES: u64 = 16 << 20;

pub struct S3 {
    client: Client,
    credentials: Credentials,
    endpoint: String,
    host: String,
    region: String,
    bucket: String,
    /// Empty, or with a slash at its end.
    prefix: String,
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn credentials() -> Result<Credentials> {
    let (id, secret) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"));
    let (Some(id), Some(secret)) = (id, secret) else {
        let text = "no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        return Err(Failure::usage(text));
    };
    let session_token = set("AWS_SESSION_TOKEN").map(Secret::new);
    Ok(Credentials { id, secret: Secret::new(secret), session_token })
}

impl S3 {
    /// `place` is the bucket, and a prefix.
    pub fn open(endpoint: &str, region: &str, place: &str, ca: Option<&Path>) -> Result<S3> {
        let bad = || Failure::usage(format!("--s3-endpoint {endpoint:?}: use http(s)://HOST:PORT"));
        let (scheme, rest) = endpoint.split_once("://").ok_or_else(bad)?;
        if rest.trim_end_matches('/').contains('/') || !matches!(scheme, "http" | "https") {
            return Err(bad());
        }
        let (host, port) =
            authority(rest, if scheme == "https" { 443 } else { 80 }).ok_or_else(bad)?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(Failure::usage("the target names no bucket: use s3://BUCKET/PREFIX"));
        }
        let trust = match ca {
            None => Trust::Public,
            Some(path) => {
                let pem = fs::read(path).map_err(|error| Failure::file(path, &error))?;
                let read = authorities(&pem);
                let shown = path.display();
                Trust::Authorities(read.map_err(|why| Failure::new(format!("{shown}: {why}")))?)
            }
        };
        Ok(S3 {
            client: Client::new(endpoint, trust, Some(waits::BACKUP_REQUEST))
                .map_err(Failure::usage)?,
            credentials: credentials()?,
            endpoint: endpoint.to_owned(),
            host: host_header(&host, port),
            region: region.to_owned(),
            bucket: bucket.to_owned(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        })
    }

    fn path(&self, name: &str) -> String {
        let key = format!("{}{name}", self.prefix);
        let parts: Vec<String> = key.split('/').map(escape).collect();
        format!("/{}/{}", escape(&self.bucket), parts.join("/"))
    }

    /// `None` for 404.
    fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: &Bytes,
        condition: Option<(&str, &str)>,
    ) -> Result<Option<Response<ReplyBody>>> {
        let asked = RequestToSign { method, host: &self.host, path, query, body };
        let signed = headers(&self.credentials, &self.region, &asked, &now());
        let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut request = Request::builder().method(method).uri(uri).header("user-agent", AGENT);
        for (name, value) in signed {
            request = request.header(name, value.expose().as_str());
        }
        // Signatures need not cover them.
        if let Some((name, value)) = condition {
            request = request.header(name, value);
        }
        let of = |error: String| Failure::new(format!("{}: {error}", self.endpoint));
        let request = request.body(()).map_err(|error| of(error.to_string()))?;
        let sent = self.client.send(request, Outgoing::Bytes(body.clone()));
        let response = sent.map_err(|error| of(in_words(&error.to_string())).passing())?;
        let status = response.status();
        if status.is_success() {
            return Ok(Some(response));
        }
        let mut text = String::new();
        // There is a failure to report already.
        let _ = response.into_body().take(REPLY_BYTES).read_to_string(&mut text);
        let (code, message) = (element(&text, "Code"), element(&text, "Message"));
        match (status.as_u16(), code) {
            (404, Some("NoSuchKey") | None) => Ok(None),
            (number, code) => {
                let (code, message) = (code.unwrap_or(""), message.unwrap_or(""));
                let text =
                    format!("{}: {method} {path}: {status} {code}: {message}", self.endpoint);
                Err(failure(number, code, text))
            }
        }
    }
}

/// A failure, by what may be done about it. Codes are those of Amazon S3, MinIO and Cairn.
fn failure(status: u16, code: &str, text: String) -> Failure {
    match (status, code) {
        (412, _) => Failure::unmet(text),
        (507, _)
        | (_, "InsufficientStorage" | "QuotaExceeded" | "XMinioStorageFull")
        | (_, "XMinioAdminBucketQuotaExceeded") => Failure::full(text),
        // Of several conditional requests at the same time.
        (409, "ConditionalRequestConflict" | "OperationAborted")
        | (400, "RequestTimeout")
        | (408 | 429 | 500 | 502..=504, _) => Failure::new(text).passing(),
        (403, "RequestTimeTooSkewed") => {
            Failure::refused(text).and("set the clock of this machine")
        }
        (400..500, _) => Failure::refused(text),
        _ => Failure::new(text),
    }
}

/// The time as signatures have it.
fn now() -> String {
    let secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    compact_time(secs)
}

/// The text of the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    elements(xml, name).next()
}

fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&begin)?;
        let (text, further) = after.split_once(&end)?;
        rest = further;
        Some(text)
    })
}

impl S3 {
    fn send_put(&self, name: &str, bytes: &Bytes, condition: Option<(&str, &str)>) -> Result<()> {
        match self.send("PUT", &self.path(name), "", bytes, condition)? {
            Some(_) => Ok(()),
            None => Err(Failure::new(format!("s3://{}: there is no such bucket", self.bucket))),
        }
    }
}

fn read(name: &str, reply: Response<ReplyBody>) -> Result<Vec<u8>> {
    let length = reply.headers().get("content-length").and_then(|length| length.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    let mut bytes = Vec::new();
    let read = reply.into_body().take(OBJECT_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(format!("{name}: {error}")).passing())?;
    if length.is_none_or(|length| length == bytes.len() as u64) {
        Ok(bytes)
    } else {
        Err(Failure::new(format!("{name}: the reply was cut off")).passing())
    }
}

impl Target for S3 {
    fn put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        self.send_put(name, bytes, None)
    }

    fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool> {
        match self.send_put(name, bytes, Some(("if-none-match", "*"))) {
            Err(failure) if failure.is_unmet() => Ok(false),
            put => put.map(|()| true),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let reply = self.send("GET", &self.path(name), "", &Bytes::new(), None)?;
        reply.map(|reply| read(name, reply)).transpose()
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let header = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let condition = Some(("range", header.as_str()));
        let reply = self.send("GET", &self.path(name), "", &Bytes::new(), condition)?;
        let Some(reply) = reply else { return Ok(None) };
        let is_part = reply.status() == StatusCode::PARTIAL_CONTENT;
        let bytes = read(name, reply)?;
        Ok(Some(if is_part { bytes } else { part_of(&bytes, &range) }))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let whole = format!("{}{prefix}", self.prefix);
        let mut names = Vec::new();
        let mut token = String::new();
        loop {
            // In the order of their names, as signatures want them.
            let next = if token.is_empty() {
                String::new()
            } else {
                format!("continuation-token={}&", escape(&token))
            };
            let query = format!("{next}encoding-type=url&list-type=2&prefix={}", escape(&whole));
            let path = format!("/{}", escape(&self.bucket));
            let reply = self.send("GET", &path, &query, &Bytes::new(), None)?;
            let none = || Failure::new(format!("s3://{}: there is no such bucket", self.bucket));
            let mut xml = String::new();
            let read = reply.ok_or_else(none)?.into_body().take(REPLY_BYTES);
            { read }.read_to_string(&mut xml).map_err(|error| Failure::new(error.to_string()))?;
            for key in elements(&xml, "Key") {
                let key = percent_decode_str(key).decode_utf8_lossy();
                names.extend(key.strip_prefix(&self.prefix).map(str::to_owned));
            }
            match element(&xml, "NextContinuationToken") {
                Some(next) if !next.is_empty() => token = next.replace("&amp;", "&"),
                _ => return Ok(names),
            }
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.send("DELETE", &self.path(name), "", &Bytes::new(), None).map(drop)
    }
}
