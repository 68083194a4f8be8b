//! `cairn bench http`: a closed loop of one request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use tokio_rustls::TlsConnector;

use crate::client::{Target, Tls, connector};
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Plan, Work};
use crate::report::{Axis, Key, NamedTarget};
use crate::session::{Case, Output, Session};
use crate::values;

/// Requests that a clean-up has in progress at the same time.
const REMOVERS: usize = 16;
/// Placeholder in a URL for the number of the request.
const NUMBER: &str = "{number}";

/// One request again and again, by so many connections at once
///
/// A closed loop: each connection asks again when it was answered. Without --keep-alive it makes
/// a new connection each time, whose making then belongs to the time of the request.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench http http://127.0.0.1:8080/storage/photos/cat.jpg --concurrency 1,10,100
  cairn bench http http://10.0.0.1/x --tls on,off --tls-port 443 --keep-alive on,off
  cairn bench http http://10.0.0.1:8080/x --compare nginx=http://10.0.0.2/x --html result.html
  cairn bench http 'http://10.0.0.1:8080/storage/b/put-{number}' --method PUT --body 1m -H 'Author...'")]
pub struct HttpArgs {
    #[command(flatten)]
    pub asking: Asking,
    /// Numbers of connections at the same time; each is a load of its own
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,50")]
    #[arg(value_parser = values::count)]
    concurrency: Vec<usize>,
    /// Send many requests over a connection (on), one request (off), or measure both (on,off)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "on")]
    #[arg(value_parser = values::on_or_off)]
    keep_alive: Vec<bool>,
    /// Use the URL as given (off), TLS at --tls-port (on), or measure both (on,off)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "off")]
    #[arg(value_parser = values::on_or_off)]
    tls: Vec<bool>,
    /// The port at which the server answers the same requests over TLS
    #[arg(long, value_name = "PORT")]
    tls_port: Option<u16>,
    #[command(flatten)]
    time: Time,
    #[command(flatten)]
    pub client: Client,
    #[command(flatten)]
    output: Output,
}

/// The requests of a load, and their target.
#[derive(clap::Args)]
pub struct Asking {
    /// The URL to request, with credentials if needed: http://USER:PASSWORD@HOST/. `{number}` in
    /// the path is the number of the request
    url: String,
    /// The name of the URL in results
    #[arg(long, value_name = "NAME", default_value = "target")]
    name: String,
    /// Measure this URL in turns with the first, and print ratios; may be given several times
    #[arg(long, value_name = "NAME=URL")]
    compare: Vec<String>,
    /// Method of each request
    #[arg(short = 'X', long, default_value = "GET")]
    method: Method,
    /// Bytes of the body of each request, such as 430, 4k or 1m
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::size)]
    body: u64,
    /// A header of each request; may be given several times
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Count answers with any status as successful
    #[arg(long)]
    any_status: bool,
    /// Keep the objects that PUT has made; without this they are deleted in the end
    #[arg(long)]
    keep: bool,
}

/// How long a closed loop runs, and how often.
#[derive(Clone, Debug, clap::Args)]
pub struct Time {
    /// Duration of each load in each round, such as 500ms, 5s or 2m
    #[arg(short, long, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = values::some_duration)]
    pub duration: Duration,
    /// Duration of the uncounted run before each load
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub warm_up: Duration,
    /// Number of rounds; results are medians over rounds
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = values::count)]
    pub rounds: usize,
}

/// How this program asks.
#[derive(Clone, Debug, clap::Args)]
pub struct Client {
    /// A request that takes longer than this has failed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::some_duration)]
    pub timeout: Duration,
    /// Threads of the client [default: one for each core]
    #[arg(long, value_name = "N", value_parser = values::count)]
    threads: Option<usize>,
    /// Show the CPU use of this process, with its children; may be given several times
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    #[command(flatten)]
    tls: Tls,
}

impl Client {
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(crate::cores)
    }

    /// Makes the connector. Fails if a process of the server does not run.
    pub fn connector(&self) -> Result<TlsConnector> {
        if let Some(pid) = Processes::of(&self.pid).missing() {
            return Err(Error::usage(format!("--pid {pid}: no such process: look it up with ps")));
        }
        connector(&self.tls)
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("{text:?} is not a header: write it as 'Name: value'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok((name.trim().parse().map_err(|_| wrong())?, value))
}

/// Parses `NAME=TARGET`.
pub fn named(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, target)) if !name.is_empty() && !name.contains('/') => {
            Ok((name.to_owned(), target.to_owned()))
        }
        _ => Err(Error::usage(format!("--compare {text:?}: write NAME=TARGET"))),
    }
}

/// One request to one target, again and again.
pub struct FixedRequest {
    method: Method,
    path: String,
    /// URI of all requests, if it contains no number.
    uri: Option<Uri>,
    headers: HeaderMap,
    body: Bytes,
    any_status: bool,
}

impl Asking {
    pub fn targets(&self) -> Result<Vec<(String, Target)>> {
        let mut found = vec![(self.name.clone(), Target::parse(&self.url)?)];
        for text in &self.compare {
            let (name, url) = named(text)?;
            found.push((name, Target::parse(&url)?));
        }
        Ok(found)
    }

    pub fn work(&self, target: &Target, keep_alive: bool) -> Result<FixedRequest> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, target.host_header()?);
        headers.insert(USER_AGENT, HeaderValue::from_static("cairn-bench"));
        if !keep_alive {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(value) = target.basic() {
            headers.insert(AUTHORIZATION, value);
        }
        headers.extend(self.header.iter().map(|(name, value)| (Some(name.clone()), value.clone())));
        let body = Bytes::from(noise(usize::try_from(self.body).unwrap_or(usize::MAX)));
        let path = target.path.clone();
        let wrong = |error| Error::usage(format!("{target}: {error}: quote it"));
        let uri = if path.contains(NUMBER) { None } else { Some(path.parse().map_err(wrong)?) };
        let (method, any_status) = (self.method.clone(), self.any_status);
        Ok(FixedRequest { method, path, uri, headers, body, any_status })
    }

    /// Sends one request, so that no useless run begins.
    pub fn check(&self, client: &Client, connector: &TlsConnector, target: &Target) -> Result<()> {
        let work = self.work(target, false)?;
        let request = work
            .request(0, 0)
            .ok_or_else(|| Error::usage("the target has no path to request: give one"))?;
        let reply = load::ask(target, connector, client.timeout, request, 0)?;
        let status = reply.head.status;
        if status.is_success() || status.is_redirection() || self.any_status {
            return Ok(());
        }
        let remedy = match status.as_u16() {
            401 | 403 => "give credentials in the URL (USER:PASSWORD@) or with -H",
            404 => "check the path",
            405 => "check --method",
            _ => "look at the server's log, or measure it with --any-status",
        };
        Err(Error::failed(format!("{target}: {} answers {status}: {remedy}", self.method)))
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns true if a clean-up is due.
    pub fn has_made(&self) -> bool {
        self.method == Method::PUT && !self.keep
    }
}

impl FixedRequest {
    fn method(self, method: Method) -> FixedRequest {
        FixedRequest { method, body: Bytes::new(), any_status: true, ..self }
    }
}

impl Work for FixedRequest {
    fn request(&self, number: u64, _: usize) -> Option<Request<Full<Bytes>>> {
        let uri = match &self.uri {
            Some(uri) => uri.clone(),
            None => self.path.replace(NUMBER, &number.to_string()).parse().ok()?,
        };
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        Some(request)
    }

    fn sent_bytes(&self, _: u64) -> u64 {
        self.body.len() as u64
    }

    fn expects(&self, status: http::StatusCode) -> bool {
        self.any_status || status.is_success() || status.is_redirection()
    }
}

/// Returns bytes that do not compress.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = vec![0; length];
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

pub fn run(args: &HttpArgs) -> Result<()> {
    let connector = args.client.connector()?;
    let targets = args.asking.targets()?;
    if args.tls.contains(&true) && args.tls_port.is_none() {
        return Err(Error::usage("--tls on: say where with --tls-port PORT, or give an https URL"));
    }
    let shown = targets
        .iter()
        .map(|(name, target)| NamedTarget { name: name.clone(), target: target.to_string() });
    let mut variants = Vec::new();
    for (name, target) in &targets {
        for &is_tls in &args.tls {
            let port = args.tls_port.filter(|_| is_tls);
            let target = port.map_or_else(|| target.clone(), |port| target.with_tls(port));
            args.asking.check(&args.client, &connector, &target)?;
            variants.push((name, target));
        }
    }
    let mut session = Session::begin("http", shown.collect(), &args.output)?;
    let mut cases = Vec::new();
    for &keep_alive in &args.keep_alive {
        for &connections in &args.concurrency {
            for (name, target) in &variants {
                let plan = args.plan(target, &connector, keep_alive, connections)?;
                let key = args.key(name, target, keep_alive, connections);
                let run = Box::new(move || load_and_remove(&args.asking, &plan));
                cases.push(Case { key, run });
            }
        }
    }
    session.run(cases, args.time.rounds);
    session.end()
}

/// Runs a load, and deletes what it has made.
pub fn load_and_remove(asking: &Asking, plan: &Plan) -> Result<load::Sample> {
    let sample = load::run(plan)?;
    if asking.has_made() {
        let count = if plan.endpoints.iter().any(|target| target.path.contains(NUMBER)) {
            sample.asked
        } else {
            1
        };
        remove(asking, plan, count)?;
    }
    Ok(sample)
}

fn remove(asking: &Asking, plan: &Plan, count: u64) -> Result<()> {
    struct Removal(FixedRequest, u64);
    impl Work for Removal {
        fn request(&self, number: u64, endpoint: usize) -> Option<Request<Full<Bytes>>> {
            (number < self.1).then(|| self.0.request(number, endpoint))?
        }
        fn expects(&self, _: http::StatusCode) -> bool {
            true
        }
    }
    let target =
        plan.endpoints.first().ok_or_else(|| Error::failed("no target is left to measure"))?;
    let work = Removal(asking.work(target, true)?.method(Method::DELETE), count);
    load::run_always(&Plan {
        work: Arc::new(work),
        connections: REMOVERS,
        keep_alive: true,
        pace: Pace::Closed { warm_up: Duration::ZERO, duration: None },
        ..plan.clone()
    })
}

impl HttpArgs {
    fn plan(
        &self,
        target: &Target,
        connector: &TlsConnector,
        keep_alive: bool,
        connections: usize,
    ) -> Result<Plan> {
        let Time { duration, warm_up, .. } = self.time;
        Ok(Plan {
            endpoints: vec![target.clone()],
            connector: connector.clone(),
            work: Arc::new(self.asking.work(target, keep_alive)?),
            connections,
            keep_alive,
            pace: Pace::Closed { warm_up, duration: Some(duration) },
            timeout: self.client.timeout,
            threads: self.client.threads(),
            server: self.client.pid.clone(),
        })
    }

    fn key(&self, name: &str, target: &Target, keep_alive: bool, connections: usize) -> Key {
        let keeps = if keep_alive { "keep-alive" } else { "a connection each" };
        let tls = if target.is_tls { ", TLS" } else { "" };
        Key {
            target: name.to_owned(),
            what: format!("{}, {keeps}{tls}", self.asking.method),
            axis: Axis { name: "concurrency".to_owned(), value: connections as f64 },
        }
    }
}
