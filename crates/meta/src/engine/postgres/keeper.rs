//! Renews the lease of a master, on a connection of its own.

#![expect(clippy::disallowed_methods, reason = "a database is not simulated")]

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_base::waits;
use cairn_base::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio_postgres::types::Type;

use super::link::{DatabaseLink, Fault, of_primary};
use super::target::Target;
use super::writer::{fence_of, signed};
use crate::engine::Lease;

/// Number of renewals within the time of a lease.
const RENEWALS: u32 = 3;

/// The lease of one epoch, and the thread that renews it.
pub struct LeaseKeeper {
    pub lease: Arc<Lease>,
    pub epoch: u64,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// Another keeper replaces this one.
    Leave,
    /// The master has ended.
    GiveUp,
}

#[derive(Default)]
struct Orders {
    order: Mutex<Option<Order>>,
    given: Condvar,
}

struct Renewer {
    target: Arc<Target>,
    lease: Arc<Lease>,
    length: Duration,
    epoch: u64,
    orders: Arc<Orders>,
    link: Option<DatabaseLink>,
}

impl LeaseKeeper {
    /// Starts keeping a lease that was requested at `sent` by the clock of `target`.
    pub fn start(target: Arc<Target>, epoch: u64, sent: Duration) -> Result<LeaseKeeper> {
        let length = target.lease();
        let lease = Arc::new(Lease::new(
            target.shown().to_owned(),
            length,
            Arc::clone(&target.clock),
            sent,
        ));
        let orders = Arc::new(Orders::default());
        let (kept, heard) = (Arc::clone(&lease), Arc::clone(&orders));
        let renewer = Renewer { target, lease: kept, length, epoch, orders: heard, link: None };
        let thread = std::thread::Builder::new()
            .name("meta-lease".into())
            .spawn(move || renewer.run(sent))?;
        Ok(LeaseKeeper { lease, epoch, orders, thread: Some(thread) })
    }

    /// Ends the lease at once, also in the database, so that nobody waits for it.
    pub fn give_up(mut self) {
        self.end(Order::GiveUp);
    }

    fn end(&mut self, order: Order) {
        let Some(thread) = self.thread.take() else { return };
        self.lease.give_up();
        *self.orders.order.lock() = Some(order);
        self.orders.given.notify_all();
        if thread.join().is_err() {
            tracing::error!("the thread that renews the lease panicked");
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.end(Order::Leave);
    }
}

impl Orders {
    fn wait_until(&self, time: Instant) -> Option<Order> {
        let mut order = self.order.lock();
        while order.is_none() && !self.given.wait_until(&mut order, time).timed_out() {}
        *order
    }
}

impl Renewer {
    /// Renews the lease until an order ends it. `sent` is the time when it was requested.
    fn run(mut self, sent: Duration) {
        let period = self.length / RENEWALS;
        let gone = self.target.clock.monotonic().saturating_sub(sent);
        let mut due = Instant::now() + period.saturating_sub(gone);
        let mut troubled = false;
        loop {
            match self.orders.wait_until(due) {
                Some(Order::Leave) => return,
                Some(Order::GiveUp) => return self.clear(),
                None => {}
            }
            let begun = Instant::now();
            match self.renew() {
                Ok(true) => {
                    due = begun + period;
                    if std::mem::take(&mut troubled) {
                        tracing::info!(epoch = self.epoch, "the lease is renewed again");
                    }
                }
                Ok(false) => return,
                Err(error) => {
                    self.link = None;
                    due = Instant::now() + waits::DATABASE_RETRY.min(period);
                    if !std::mem::replace(&mut troubled, true) {
                        tracing::warn!(%error, epoch = self.epoch, "the lease was not renewed");
                    }
                }
            }
        }
    }

    /// Renews the lease once. Returns `false` if another master took over.
    fn renew(&mut self) -> Result<bool> {
        let (target, limit) = (Arc::clone(&self.target), self.limit());
        let epoch = signed(self.epoch)?;
        let link = self.link()?;
        let failed = |fault: Fault| fault.at(target.shown());
        let sent = target.clock.monotonic();
        let renewed = link.query_within(limit, &target.sql.renew, &[(&epoch, Type::INT8)]);
        if !renewed.map_err(failed)?.is_empty() {
            self.lease.extend(sent);
            return Ok(true);
        }
        let rows = link.query_within(limit, &target.sql.fence, &[]).and_then(of_primary);
        let rows = rows.map_err(failed)?;
        let (found, _) = fence_of(&target, &rows)?;
        if found.epoch == self.epoch {
            return Err(Error::Unavailable(format!(
                "{}: the lease could not be renewed",
                target.shown()
            )));
        }
        self.lease.fence(format!(
            "another master took over: the engine is at epoch {}, this master at {}",
            found.epoch, self.epoch
        ));
        Ok(false)
    }

    /// Clears the heartbeat: a standby that finds none need not wait.
    fn clear(mut self) {
        let limit = self.limit();
        let target = Arc::clone(&self.target);
        let cleared = signed(self.epoch).and_then(|epoch| {
            let params = [(&epoch as _, Type::INT8)];
            let answer = self.link()?.query_within(limit, &target.sql.give_up, &params);
            answer.map_err(|fault| fault.at(target.shown()))
        });
        if let Err(error) = cleared {
            tracing::warn!(%error, "the lease was not given up: it runs out by itself");
        }
    }

    /// Returns the timeout of one answer. It may wait for a commit, which is no reason to ask again
    /// at once.
    fn limit(&self) -> Duration {
        2 * self.length
    }

    fn link(&mut self) -> Result<&DatabaseLink> {
        match self.link.take() {
            Some(link) => Ok(self.link.insert(link)),
            None => Ok(self.link.insert(self.target.connect_within(self.limit())?)),
        }
    }
}
