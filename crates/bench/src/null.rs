//! `cairn bench null`: a server that does nothing, which shows the most that a client can do. With
//! a given delay it also shows whether a client measures that delay.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use crate::alarm::Alarm;
use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::stop;
use crate::values::{duration, size, some_duration};

/// Connections that may wait to be accepted; without that, clients try again a second later.
const BACKLOG: i32 = 4096;

/// A server that does nothing, or that as slowly as it is told
///
/// Answers every request with 200 and the same body, until it is stopped. Delays are a fixed
/// sequence: two runs see the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench null --listen 127.0.0.1:9090 --body 155k
  cairn bench null --listen 127.0.0.1:9090 --latency 10ms..50ms
  cairn bench null --listen 127.0.0.1:9090 --latency '10ms*99+200ms*1' --stall-every 1000")]
pub struct NullArgs {
    /// Address and port to listen at; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    listen: SocketAddr,
    /// Delay of each answer: 20ms, 10ms..50ms (uniform), exp:20ms, 10ms*90+200ms*10 (weights)
    #[arg(long, value_name = "TIMES", value_parser = latency)]
    latency: Option<Distribution>,
    /// Bytes of the body of each answer
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    body: u64,
    /// Delay all answers once at every N-th request, for --stall-for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stall_every: Option<u64>,
    /// Duration of such a delay
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_duration)]
    stall_for: Duration,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = crate::values::count)]
    threads: Option<usize>,
}

pub fn latency(text: &str) -> Result<Distribution, String> {
    let nanos = |text: &str| duration(text).map(|time| time.as_nanos() as u64);
    Distribution::parse(text, nanos)
}

/// Behaviour of a null server.
#[derive(Clone, Default)]
pub struct Manner {
    pub latency: Option<Distribution>,
    pub body: Bytes,
    /// Number of requests after which all requests wait, and the duration.
    pub stall: Option<(u64, Duration)>,
    /// Set if each answer is to be recorded.
    pub is_recording: bool,
    pub threads: usize,
}

/// An answer that a null server gave.
#[derive(Clone, Debug)]
pub struct Record {
    pub path: String,
    pub arrived: Instant,
    pub answered: Instant,
}

/// A running null server, which ends when this is dropped.
pub struct Null {
    pub address: SocketAddr,
    state: Arc<NullState>,
}

struct NullState {
    manner: Manner,
    start: Instant,
    requests: AtomicU64,
    /// End of the current stall, in nanoseconds from the start.
    stalled_until: AtomicU64,
    records: Mutex<Vec<Record>>,
    is_over: AtomicBool,
}

pub fn run(args: &NullArgs) -> Result<()> {
    let manner = Manner {
        latency: args.latency.clone(),
        body: Bytes::from(vec![b'0'; usize::try_from(args.body).unwrap_or(usize::MAX)]),
        stall: args.stall_every.map(|every| (every, args.stall_for)),
        is_recording: false,
        threads: args.threads.unwrap_or_else(crate::cores),
    };
    let null = Null::start(args.listen, manner)
        .map_err(|error| Error::failed(format!("{}: {error}: choose another", args.listen)))?;
    crate::progress::line(&format!("http://{}/", null.address));
    while !stop::is_stopped() {
        thread::sleep(Duration::from_millis(50));
    }
    crate::progress::line(&format!("{} requests", null.requests()));
    Ok(())
}

impl Null {
    pub fn start(listen: SocketAddr, manner: Manner) -> io::Result<Null> {
        let listener = TcpListener::bind(listen)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        let threads = manner.threads.max(1);
        let state = Arc::new(NullState {
            manner,
            start: Instant::now(),
            requests: AtomicU64::new(0),
            stalled_until: AtomicU64::new(0),
            records: Mutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
        });
        let senders: Vec<_> = (0..threads)
            .map(|_| {
                let (sender, receiver) = unbounded_channel();
                let state = Arc::clone(&state);
                thread::spawn(move || serve(&state, receiver));
                sender
            })
            .collect();
        let own = Arc::clone(&state);
        thread::spawn(move || accept(&own, &listener, &senders));
        Ok(Null { address, state })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    pub fn records(&self) -> Vec<Record> {
        self.state.records.lock().clone()
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // This connection lets the tasks that wait for connections see the end.
        let _ = TcpStream::connect(self.address);
    }
}

/// Gives connections to the threads in turn.
fn accept(state: &NullState, listener: &TcpListener, threads: &[UnboundedSender<TcpStream>]) {
    for thread in threads.iter().cycle() {
        let accepted = listener.accept();
        if state.is_over.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, _)) => drop(thread.send(stream)),
            // Out of file descriptors, most likely, until connections end.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn serve(state: &Arc<NullState>, mut streams: UnboundedReceiver<TcpStream>) {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        while let Some(stream) = streams.recv().await {
            let state = Arc::clone(state);
            tokio::task::spawn_local(async move {
                // The client is responsible for errors of its connection.
                let _ = converse(state, stream).await;
            });
        }
    });
}

async fn converse(state: Arc<NullState>, stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let alarm = Rc::new(tokio::sync::Mutex::new(Alarm::new()?));
    let service = service_fn(move |request| {
        let (state, alarm) = (Arc::clone(&state), Rc::clone(&alarm));
        async move { state.answer(&mut *alarm.lock().await, request).await }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    served.map_err(io::Error::other)
}

impl NullState {
    async fn answer(
        &self,
        alarm: &mut Alarm,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let arrived = Instant::now();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let path = self.manner.is_recording.then(|| request.uri().path().to_owned());
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        self.stall(number);
        if let Some(latency) = &self.manner.latency {
            let until = arrived + Duration::from_nanos(latency.nth(number));
            // Without timers nothing here would work: then the answer is early, and is recorded as
            // such.
            let _ = alarm.wait_until(until).await;
        }
        loop {
            let until = Duration::from_nanos(self.stalled_until.load(Ordering::Relaxed));
            if self.start.elapsed() >= until || alarm.wait_until(self.start + until).await.is_err()
            {
                break;
            }
        }
        if let Some(path) = path {
            let answered = Instant::now();
            self.records.lock().push(Record { path, arrived, answered });
        }
        Ok(Response::new(Full::new(self.manner.body.clone())))
    }

    fn stall(&self, number: u64) {
        if let Some((every, time)) = self.manner.stall
            && (number + 1).is_multiple_of(every)
        {
            let until = self.start.elapsed() + time;
            self.stalled_until.fetch_max(until.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}
