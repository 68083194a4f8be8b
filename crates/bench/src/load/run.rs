//! Runs a plan on its threads.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;

use super::connection::{LoadShared, Worker};
use super::tally::{Sample, Tally};
use super::{Pace, Plan};
use crate::client::{self, Exchange, Target};
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::stop;

/// Time from the making of threads to the first request.
const HEAD_START: Duration = Duration::from_millis(20);

/// Runs a load to its end, or until this program gets a signal to stop.
pub fn run(plan: &Plan) -> Result<Sample> {
    run_unless(plan, stop::is_stopped)
}

/// Runs a load to its end, for clean-ups. Fails if not all of it succeeded.
pub fn run_always(plan: &Plan) -> Result<()> {
    let sample = run_unless(plan, || false)?;
    let failed = sample.tally.failed();
    match (sample.broken, sample.tally.errors.keys().next()) {
        (Some(why), _) => Err(Error::failed(format!("the test data was not removed: {why}"))),
        (None, Some(why)) => Err(Error::failed(format!(
            "{failed} files or objects of the test data were not removed: {why}"
        ))),
        (None, None) => Ok(()),
    }
}

fn run_unless(plan: &Plan, is_stopped: fn() -> bool) -> Result<Sample> {
    assert!(!plan.endpoints.is_empty() && plan.connections > 0 && plan.threads > 0);
    let shared = Arc::new(LoadShared {
        plan: plan.clone(),
        start: Instant::now() + HEAD_START,
        next: AtomicU64::new(0),
        lived_ms: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        broken: Mutex::new(None),
        is_stopped,
    });
    let threads = plan.threads.min(plan.connections);
    let handles: Vec<_> = (0..threads)
        .map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run_thread(&shared, number, threads))
        })
        .collect();
    thread::sleep(shared.began().saturating_duration_since(Instant::now()));
    let (client, server) = (Processes::this(), Processes::of(&plan.server));
    let (client_mark, server_mark) = (client.mark(), server.mark());
    let mut tally = Tally::default();
    for handle in handles {
        let one = handle
            .join()
            .map_err(|_| Error::failed("a thread of the client panicked: see its message above"))?;
        tally.add(&one?);
    }
    let passed = shared.began().elapsed().as_secs_f64();
    let seconds = match plan.pace {
        // A run that broke or was stopped was shorter than planned.
        Pace::Closed { duration: Some(time), .. } | Pace::Open { duration: time, .. } => {
            time.as_secs_f64().min(passed)
        }
        Pace::Closed { duration: None, .. } => passed,
    };
    let unsent = plan.planned().map_or(0, |planned| planned.saturating_sub(tally.sent));
    let mut broken = shared.broken.lock().take();
    if tally.replies() == 0
        && let Some(cause) = tally.errors.keys().next()
    {
        broken.get_or_insert(format!("no request was answered: {cause}"));
    }
    Ok(Sample {
        began: shared.began(),
        seconds: seconds.max(1e-9),
        unsent,
        asked: shared.next.load(Ordering::Relaxed),
        tally,
        client_cores: client.cores_since(&client_mark),
        server_cores: (!plan.server.is_empty()).then(|| server.cores_since(&server_mark)),
        broken,
    })
}

fn runtime() -> Result<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::failed(format!("cannot start the client: {error}")))
}

/// Returns the endpoint of a connection. As many connections in a row as there are endpoints use
/// each endpoint once. Rows begin at different endpoints, or all connections of a thread could have
/// the same.
fn endpoint(connection: usize, endpoints: usize) -> usize {
    (connection + connection / endpoints) % endpoints
}

/// Runs the connections `thread`, `thread + threads`, …
fn run_thread(shared: &Arc<LoadShared>, thread: usize, threads: usize) -> Result<Tally> {
    // Otherwise the kernel lets timers be late by 50 us. If this is not allowed, they are.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    runtime()?.block_on(async {
        let tally = Rc::new(RefCell::new(Tally::default()));
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for endpoint in &shared.plan.endpoints {
            let (address, time) = endpoint.resolve().await?;
            tally.borrow_mut().phases.dns.record(time);
            addresses.push(address);
        }
        tokio::time::sleep_until(shared.start.into()).await;
        let local = LocalSet::new();
        for number in (thread..shared.plan.connections).step_by(threads) {
            let endpoint = endpoint(number, addresses.len());
            let (shared, tally) = (Arc::clone(shared), Rc::clone(&tally));
            let address = addresses[endpoint];
            local.spawn_local(async move {
                Worker { shared: &shared, tally: &tally, endpoint, address }.run().await;
            });
        }
        local.await;
        Ok(tally.take())
    })
}

/// Sends one request on a connection of its own, before or after a load; keeps `keep` bytes of the
/// answer's body.
pub fn ask(
    target: &Target,
    connector: &TlsConnector,
    timeout: Duration,
    request: Request<Full<Bytes>>,
    keep: usize,
) -> Result<Exchange> {
    runtime()?.block_on(async {
        let (address, _) = target.resolve().await?;
        let exchange = async {
            let mut opened = client::open(target, address, connector).await?;
            opened.connection.exchange(request, keep).await
        };
        let done = tokio::time::timeout(timeout, exchange).await;
        let done = done.unwrap_or_else(|_| Err(format!("no answer in {timeout:?}")));
        done.map_err(|cause| {
            let remedy = if cause.starts_with("tls: ") {
                "check the port, or trust its certificate with --ca FILE or --insecure"
            } else {
                "check the address and that the server runs"
            };
            Error::failed(format!("{}: {cause}: {remedy}", target.origin()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::endpoint;

    #[test]
    fn each_thread_has_connections_to_all_endpoints() {
        for endpoints in 1..6 {
            for threads in 1..4 {
                let all = endpoints * threads * endpoints;
                let mut by_thread = vec![vec![0; endpoints]; threads];
                for connection in 0..all {
                    by_thread[connection % threads][endpoint(connection, endpoints)] += 1;
                }
                let even = vec![vec![endpoints; endpoints]; threads];
                assert_eq!(by_thread, even, "{endpoints} endpoints, {threads} threads");
            }
            let first: std::collections::BTreeSet<usize> =
                (0..endpoints).map(|connection| endpoint(connection, endpoints)).collect();
            assert_eq!(first.len(), endpoints);
        }
    }
}
