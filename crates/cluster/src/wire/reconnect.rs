//! A connection to the serving node among several addresses, made again when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result, Rng};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::connect::{Terms, connect};
use super::link::Dial;
use super::peer::{CallFailure, Peer};
use super::service::Service;
use crate::limits::{DIAL, HELD_UP};

/// Pause after all addresses were tried in vain. It doubles from `first` to `most`, and is then
/// shortened by up to a half, at random, so that many clients do not come back at once.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub first: Duration,
    pub most: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { first: Duration::from_millis(50), most: Duration::from_secs(2) }
    }
}

impl Retry {
    fn pause(&self, failures: u32, rng: &dyn Rng) -> Duration {
        let full = self.first.saturating_mul(1 << failures.min(20)).min(self.most);
        let part = (rng.next_u64() >> 32) as f64 / f64::from(u32::MAX);
        full.mul_f64(1.0 - part / 2.0)
    }
}

/// Finds the serving node among several (the active master), and keeps a connection to it.
pub struct Reconnect<S> {
    dialer: Arc<dyn Dial>,
    terms: Terms,
    service: S,
    rng: Arc<dyn Rng>,
    retry: Retry,
    addresses: Mutex<Vec<String>>,
    /// Counter of the addresses that were left; it selects the address that is tried first.
    start: AtomicUsize,
    peer: Mutex<Option<Peer>>,
    /// Locked by the task that dials.
    dialing: tokio::sync::Mutex<()>,
}

impl<S: Service> Reconnect<S> {
    /// # Panics
    /// If there is no address.
    pub fn new(
        dialer: Arc<dyn Dial>,
        addresses: Vec<String>,
        terms: Terms,
        service: S,
        rng: Arc<dyn Rng>,
        retry: Retry,
    ) -> Reconnect<S> {
        assert!(!addresses.is_empty(), "an address to connect to");
        Reconnect {
            dialer,
            terms,
            service,
            rng,
            retry,
            addresses: Mutex::new(addresses),
            start: AtomicUsize::new(0),
            peer: Mutex::new(None),
            dialing: tokio::sync::Mutex::new(()),
        }
    }

    /// Makes another connection to the same nodes; `service` answers their requests.
    pub fn beside<T: Service>(&self, service: T) -> Reconnect<T> {
        let addresses = self.addresses.lock().clone();
        let (dialer, rng) = (Arc::clone(&self.dialer), Arc::clone(&self.rng));
        let beside =
            Reconnect::new(dialer, addresses, self.terms.clone(), service, rng, self.retry);
        // The serving node is tried first.
        beside.start.store(self.start.load(Ordering::Relaxed), Ordering::Relaxed);
        beside
    }

    /// Replaces the addresses, from the next dialing on.
    ///
    /// # Panics
    /// If there is no address.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        assert!(!addresses.is_empty(), "an address to connect to");
        *self.addresses.lock() = addresses;
    }

    /// Calls the serving node. A request that was sent is not sent again: its outcome may be
    /// unknown, and only the caller knows whether it may be carried out twice.
    pub async fn call(&self, method: u16, payload: Bytes, within: Duration) -> Result<Bytes> {
        let deadline = Instant::now() + within;
        loop {
            let peer = self.peer(deadline).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            match peer.attempt(method, payload.clone(), left).await {
                Err(CallFailure::NotSent(_)) if !peer.is_usable() && Instant::now() < deadline => {}
                result => return Ok(result?),
            }
        }
    }

    /// Returns the connection, and makes it if there is none.
    ///
    /// # Errors
    /// If none could be made before `deadline`, with the last error of each address: `Denied` if
    /// one of them refuses this side, `Unavailable` otherwise.
    pub async fn peer(&self, deadline: Instant) -> Result<Peer> {
        if let Some(peer) = self.usable() {
            return Ok(peer);
        }
        let late =
            |_| Error::Unavailable("connecting took too long; the call was not sent".to_owned());
        let _turn = timeout_at(deadline, self.dialing.lock()).await.map_err(late)?;
        let mut failures = 0;
        loop {
            if let Some(peer) = self.usable() {
                return Ok(peer);
            }
            let error = match timeout_at(deadline, self.try_all()).await {
                Ok(Ok(peer)) => {
                    *self.peer.lock() = Some(peer.clone());
                    return Ok(peer);
                }
                Ok(Err(error)) => error,
                Err(late_now) => return Err(late(late_now)),
            };
            let again = Instant::now() + self.retry.pause(failures, &*self.rng);
            if again >= deadline {
                return Err(error);
            }
            failures += 1;
            sleep_until(again).await;
        }
    }

    /// Returns true if another machine answers at one of these addresses.
    pub async fn reaches_machine(&self, addresses: Vec<String>) -> bool {
        let trying = addresses.iter().map(|address| self.dialer.reaches_machine(address));
        let mut trying: FuturesUnordered<_> = trying.collect();
        while let Some(reached) = trying.next().await {
            if reached {
                return true;
            }
        }
        false
    }

    fn usable(&self) -> Option<Peer> {
        self.peer.lock().as_ref().filter(|peer| peer.is_usable()).cloned()
    }

    /// Leaves the node behind `peer`, which stands by: the next address is tried first.
    pub fn leave(&self, peer: &Peer) {
        let mut current = self.peer.lock();
        let same =
            |known: &mut Peer| known.info().authenticated.node == peer.info().authenticated.node;
        if current.take_if(same).is_some() {
            self.start.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tries each address once, first the address that answered last. A silent address delays
    /// nothing: the next address is tried meanwhile.
    async fn try_all(&self) -> Result<Peer> {
        let addresses = self.addresses.lock().clone();
        let start = self.start.load(Ordering::Relaxed) % addresses.len();
        let order = addresses.iter().enumerate().cycle().skip(start).take(addresses.len());
        let mut left = order.map(|(at, address)| async move { (at, self.try_one(address).await) });
        let mut trying: FuturesUnordered<_> = left.next().into_iter().collect();
        let (mut said, mut is_refused) = (Vec::new(), false);
        while !trying.is_empty() {
            tokio::select! {
                biased;
                Some((at, tried)) = trying.next() => match tried {
                    Ok(peer) => {
                        self.start.store(at, Ordering::Relaxed);
                        return Ok(peer);
                    }
                    Err(error) => {
                        is_refused |= matches!(error, Error::Denied(_));
                        said.push(format!("{}: {error}", addresses[at]));
                    }
                },
                () = sleep(HELD_UP) => {}
            }
            trying.extend(left.next());
        }
        let why = format!("nobody serves: {}", said.join("; "));
        Err(if is_refused { Error::Denied(why) } else { Error::Unavailable(why) })
    }

    async fn try_one(&self, address: &str) -> Result<Peer> {
        let trying = async {
            let link = self.dialer.dial(address).await?;
            connect(link, &self.terms, self.service.clone()).await
        };
        let late = || Error::Unavailable(format!("no answer within {DIAL:?}"));
        timeout(DIAL, trying).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::SeededRng;

    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let retry = Retry::default();
        let rng = SeededRng::new(1);
        for failures in 0..40 {
            let full = retry.first.saturating_mul(1 << failures.min(20)).min(retry.most);
            let pauses: Vec<_> = (0..50).map(|_| retry.pause(failures, &rng)).collect();
            assert!(pauses.iter().all(|pause| *pause <= full && *pause >= full / 2));
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
