//! Requests of scenarios to servers over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;

use super::lab::Lab;
use crate::client::{Exchange, Target};
use crate::closed_loop::noise;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Plan, Work};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer that is read, bytes.
const ANSWER_BYTES: usize = 4 << 20;
/// Uncounted run before a load, as a share of the load's time.
const WARM_UP: f64 = 0.25;
/// Bucket of all scenarios.
pub const BUCKET: &str = "reports";

/// Number of different sizes of bodies.
const BODY_SIZES: u64 = 11;
/// Step from one of many paths to the next: a prime, so that each path has its turn.
const STRIDE: u64 = 2_654_435_761;

/// Paths of the requests.
pub enum Paths {
    Same(String),
    /// New paths, with a number after each.
    New(String),
    /// All paths in an order that looks random, again and again.
    Among(Arc<Vec<String>>),
    /// Each path this many times; then the load is over.
    Each(Vec<String>, u64),
}

/// Requests of a load.
pub struct LoadRequests {
    method: Method,
    paths: Paths,
    headers: HeaderMap,
    /// Bodies, which are sent in turn.
    bodies: Vec<Bytes>,
}

impl LoadRequests {
    pub fn new(target: &Target, method: Method, paths: Paths) -> Result<LoadRequests> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, target.host_header()?);
        Ok(LoadRequests { method, paths, headers, bodies: vec![Bytes::new()] })
    }

    pub fn get(target: &Target, path: &str) -> Result<LoadRequests> {
        LoadRequests::new(target, Method::GET, Paths::Same(path.to_owned()))
    }

    /// Makes each request use a new connection.
    pub fn closing(mut self) -> LoadRequests {
        self.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        self
    }

    /// Sends `bytes` bytes with each request, as root.
    pub fn sending(self, lab: &Lab, bytes: u64) -> LoadRequests {
        self.sending_some(lab, bytes, bytes)
    }

    /// Sends bodies of `least` to `most` bytes in turn, in even steps, as root.
    pub fn sending_some(mut self, lab: &Lab, least: u64, most: u64) -> LoadRequests {
        self.headers.extend(authorization(lab).map(|value| (AUTHORIZATION, value)));
        let all = Bytes::from(noise(most as usize));
        let step = |number: u64| least + (most - least) * number / (BODY_SIZES - 1);
        self.bodies = (0..BODY_SIZES).map(|number| all.slice(..step(number) as usize)).collect();
        self
    }

    fn body(&self, number: u64) -> Bytes {
        let turn = number % self.bodies.len().max(1) as u64;
        self.bodies.get(turn as usize).cloned().unwrap_or_default()
    }

    fn path(&self, number: u64) -> Option<String> {
        match &self.paths {
            Paths::Same(path) => Some(path.clone()),
            Paths::New(prefix) => Some(format!("{prefix}{number}")),
            Paths::Among(paths) => {
                let at = number.wrapping_mul(STRIDE).checked_rem(paths.len() as u64)?;
                paths.get(at as usize).cloned()
            }
            Paths::Each(paths, times) => paths.get(usize::try_from(number / times).ok()?).cloned(),
        }
    }
}

impl Work for LoadRequests {
    fn request(&self, number: u64, _: usize) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(self.body(number)));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path(number)?.parse().ok()?;
        *request.headers_mut() = self.headers.clone();
        Some(request)
    }

    fn sent_bytes(&self, number: u64) -> u64 {
        self.body(number).len() as u64
    }
}

fn authorization(lab: &Lab) -> Option<HeaderValue> {
    let credentials = Some(lab.credentials());
    let target = Target { credentials, ..Target::parse("http://127.0.0.1/").ok()? };
    target.basic()
}

/// Makes the plan of a load on some servers, with the usual duration.
pub fn plan(
    lab: &Lab,
    endpoints: &[Target],
    work: LoadRequests,
    clients: usize,
    server: &[u32],
) -> Plan {
    let duration = lab.args.seconds;
    Plan {
        endpoints: endpoints.to_vec(),
        connector: lab.connector.clone(),
        work: Arc::new(work),
        connections: clients,
        keep_alive: true,
        pace: Pace::Closed { warm_up: duration.mul_f64(WARM_UP), duration: Some(duration) },
        timeout: TIMEOUT,
        threads: crate::cores(),
        server: server.to_vec(),
    }
}

/// Sends one request as root, which must succeed.
pub fn send(lab: &Lab, target: &Target, method: Method, path: &str, body: &[u8]) -> Result<String> {
    let mut asked = LoadRequests::new(target, method.clone(), Paths::Same(path.to_owned()))?;
    asked = asked.sending(lab, 0);
    asked.bodies = vec![Bytes::copy_from_slice(body)];
    let request =
        asked.request(0, 0).ok_or_else(|| Error::failed(format!("{path}: not a path of a URL")))?;
    let answer = load::ask(target, &lab.connector, TIMEOUT, request, ANSWER_BYTES)?;
    let Exchange { head, body, .. } = answer;
    if head.status.is_success() {
        Ok(String::from_utf8_lossy(&body).into_owned())
    } else {
        let why = if head.status == StatusCode::INSUFFICIENT_STORAGE {
            ": free some space, or give another --dir"
        } else {
            ""
        };
        Err(Error::failed(format!("{method} {target}: {path}: {}{why}", head.status)))
    }
}

/// Makes the bucket, which everybody may read.
pub fn make_bucket(lab: &Lab, target: &Target) -> Result<()> {
    let path = format!("/storage/{BUCKET}?visibility=public");
    send(lab, target, Method::PUT, &path, &[]).map(drop)
}

/// Makes an object; returns its path at the HTTP door.
pub fn put(lab: &Lab, target: &Target, key: &str, body: &[u8]) -> Result<String> {
    let path = format!("/storage/{BUCKET}/{key}");
    send(lab, target, Method::PUT, &path, body)?;
    Ok(path)
}

/// Returns a number of `/metrics`.
pub fn metric(lab: &Lab, target: &Target, name: &str) -> Result<f64> {
    let text = send(lab, target, Method::GET, "/metrics", &[])?;
    let mut numbers = text.lines().filter_map(|line| line.split_once(' '));
    let found = numbers.find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok());
    found.ok_or_else(|| Error::failed(format!("{target}: /metrics: no {name}")))
}
