//! One master serves, others stand by: each takes over when, and only when, no other can answer
//! any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::{Error, SessionId};
use cairn_meta::engine::postgres::{Config, Turn, wait_for_turn};
use cairn_meta::engine::{CommitError, Engine, Fence, Postgres};
use cairn_meta::ops::sessions::{Format, ListSessions, OpenSession};
use cairn_meta::{Master, master};
use tokio::runtime::Runtime;

use super::gate::Gate;
use super::server::{self, Server};
use crate::support::put;

const LEASE: Duration = Duration::from_millis(500);
/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

struct Active {
    master: Master,
    engine: Arc<Postgres>,
    runtime: Runtime,
}

impl Active {
    fn start(config: &Config) -> Active {
        let engine = Arc::new(Postgres::open(config).unwrap());
        let clock = Arc::new(RealClock::default());
        let master = Master::start(engine.clone(), clock, master::Config::default()).unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let active = Active { master, engine, runtime };
        let (system, format) = (Caller::system(), Format { cluster: 1 });
        active.runtime.block_on(active.master.run(&system, format)).unwrap();
        active.change(1).unwrap();
        active
    }

    /// Commits, if that session was not opened before.
    fn change(&self, session: u64) -> cairn_base::Result<()> {
        let open = OpenSession { session: SessionId(session) };
        self.runtime.block_on(self.master.run(&Caller::system(), open))
    }

    fn read(&self) -> cairn_base::Result<usize> {
        let list = ListSessions { after: None, limit: 9 };
        Ok(self.runtime.block_on(self.master.read(&Caller::system(), list))?.len())
    }

    /// Returns the number of sessions, once the master answers: on a busy machine a renewal may be
    /// late.
    fn count(&self) -> usize {
        let start = Instant::now();
        loop {
            match self.read() {
                Ok(count) => return count,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
        }
    }

    /// Returns whether it answers from memory.
    fn serves(&self) -> bool {
        let list = ListSessions { after: None, limit: 9 };
        let before = self.master.check_serving();
        let read = self.master.read_now(&Caller::system(), &list);
        let after = self.master.check_serving();
        // A lease that lapses or is renewed in between may be read or not.
        if let (Err(error), Err(_)) = (&before, &after) {
            assert!(error.to_string().contains("not the active master"), "{error}");
            assert!(matches!(read, None | Some(Err(_))));
        }
        after.is_ok()
    }
}

/// Waits until it answers from memory: on a machine that is busy a renewal may be late.
fn await_serving(active: &Active) {
    let start = Instant::now();
    while !active.serves() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn config(server: &Server, port: u16) -> Config {
    Config { lease: LEASE, ..server.config_at(port, &server::schema(), "sslmode=disable") }
}

fn turn(config: &Config) -> Turn {
    wait_for_turn(config, &|| false, &|_| {}).unwrap().unwrap()
}

/// Returns the turn of a standby, if it comes within `time`.
fn turn_within(config: &Config, time: Duration) -> Option<Turn> {
    let start = Instant::now();
    wait_for_turn(config, &|| start.elapsed() > time, &|_| {}).unwrap()
}

#[test]
fn a_new_database_is_taken_at_once() {
    let Some(server) = server::shared() else { return };
    let config = Config { lease: 2 * PATIENCE, ..config(server, server.port()) };
    let turn = turn_within(&config, PATIENCE);
    assert!(turn.is_some());
    let active = Active::start(&Config { turn, ..config.clone() });
    assert!(active.serves());
    // A master that had the same turn and was slower.
    let late = Postgres::open(&Config { turn, ..config }).unwrap();
    let refused = late.take_over().unwrap_err();
    assert!(refused.to_string().contains("another master serves"), "{refused}");
    assert_eq!(active.engine.fence().unwrap().epoch, 1);
}

#[test]
fn a_master_that_lives_is_left_alone() {
    let Some(server) = server::shared() else { return };
    let lease = 8 * LEASE;
    let config = Config { lease, ..config(server, server.port()) };
    let active = Active::start(&config);
    // No commits: renewals alone keep the standby waiting.
    assert_eq!(turn_within(&config, 2 * lease + LEASE), None);
    await_serving(&active);
    assert_eq!(active.engine.fence().unwrap().epoch, 1);
}

#[test]
fn a_master_that_stops_in_order_leaves_at_once() {
    let Some(server) = server::shared() else { return };
    let lease = Duration::from_secs(600);
    let config = Config { lease, ..config(server, server.port()) };
    let first = Active::start(&config);
    first.master.stop();
    assert!(!first.serves());
    let second = Active::start(&Config { turn: Some(turn(&config)), ..config.clone() });
    drop(second);
    let third = Active::start(&Config { turn: Some(turn(&config)), ..config });
    assert_eq!(third.engine.fence().unwrap().epoch, 3);
    assert_eq!(third.count(), 1);
}

#[test]
fn a_master_that_is_cut_off_stops_answering_before_another_takes_over() {
    let Some(server) = server::shared() else { return };
    let gate = Gate::new(server.port());
    let cut = config(server, gate.port());
    let direct = Config { url: server.config("x").url, ..cut.clone() };
    let old = Active::start(&cut);
    assert_eq!(old.count(), 1);
    // Once it has renewed, so that nothing is new about the connection.
    std::thread::sleep(2 * LEASE);
    await_serving(&old);
    gate.close();
    let turn = turn_within(&direct, PATIENCE);
    assert!(turn.is_some());
    assert!(!old.serves());
    assert_eq!(old.read().unwrap_err().kind(), "unavailable");
    let new = Active::start(&Config { turn, ..direct });
    new.change(2).unwrap();
    await_serving(&new);
    assert!(!old.serves());
    gate.open();
    let refused = old.change(3).unwrap_err();
    assert!(refused.to_string().contains("another master took over"), "{refused}");
    assert!(!old.master.failed().unwrap().is_empty());
    assert_eq!(new.count(), 2);
}

/// The old master is idle, so that only its renewals can tell it.
#[test]
fn a_renewal_finds_out_who_took_over() {
    let Some(server) = server::shared() else { return };
    let config = config(server, server.port());
    let old = Active::start(&config);
    // By force, as it is done where the old one is known to have ended.
    let new = Active::start(&config);
    let reason = old.runtime.block_on(old.master.wait_failed());
    assert!(reason.contains("another master took over"), "{reason}");
    assert_eq!(old.read().unwrap_err().kind(), "unavailable");
    let fence = Fence { epoch: 1, batch: new.engine.fence().unwrap().batch };
    match old.engine.commit(fence, vec![put("a", "1")]) {
        Err(CommitError::Fenced { found }) => assert_eq!(found.epoch, 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_renews_at_the_last_moment_stays() {
    let Some(server) = server::shared() else { return };
    let gate = Gate::new(server.port());
    let cut = config(server, gate.port());
    let direct = Config { url: server.config("x").url, ..cut.clone() };
    let old = Active::start(&cut);
    std::thread::sleep(2 * LEASE);
    gate.close();
    let turn = turn(&direct);
    assert!(!old.serves());
    gate.open();
    // The requests that it kept trying to send are renewals, and they arrive now.
    await_serving(&old);
    let late = Postgres::open(&Config { turn: Some(turn), ..direct }).unwrap();
    assert_eq!(late.take_over().unwrap_err().kind(), "unavailable");
    assert_eq!(old.count(), 1);
    old.change(2).unwrap();
}

/// A commit that holds the fence for longer than a lease holds up renewals and standbys alike.
#[test]
fn a_long_commit_is_not_the_end_of_a_master() {
    let Some(server) = server::shared() else { return };
    let config = config(server, server.port());
    let active = Active::start(&config);
    let schema = &config.schema;
    let hold =
        format!("BEGIN; SELECT 1 FROM {schema}.fence FOR UPDATE; SELECT pg_sleep(2); COMMIT");
    // Where the machine is busy, nobody may look while it is held.
    for round in 0.. {
        let seen = std::thread::scope(|scope| {
            let held = scope.spawn(|| server.sql(&hold));
            while active.serves() && !held.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let seen = !held.is_finished();
            held.join().unwrap();
            seen
        });
        await_serving(&active);
        if seen {
            break;
        }
        assert!(round < 20, "it serves while it cannot renew");
    }
    await_serving(&active);
    active.change(2).unwrap();
    assert_eq!(active.engine.fence().unwrap().epoch, 1);
}

#[test]
fn a_restart_of_the_database_is_survived() {
    let Some(server) = Server::start(&[]) else { return };
    let lease = 6 * LEASE;
    let config = Config { lease, ..config(&server, server.port()) };
    let active = Active::start(&config);
    std::thread::scope(|scope| {
        let standby = scope.spawn(|| turn_within(&config, 4 * lease));
        std::thread::sleep(lease / 4);
        server.stop();
        // However long it takes, as nobody can take over meanwhile.
        std::thread::sleep(lease * 3 / 2);
        assert!(!active.serves());
        server.run();
        assert_eq!(standby.join().unwrap(), None);
    });
    await_serving(&active);
    assert_eq!(active.count(), 1);
    active.change(2).unwrap();
    assert_eq!(active.engine.fence().unwrap().epoch, 1);
}

#[test]
fn a_standby_waits_for_the_lease_of_the_other_not_for_its_own() {
    let Some(server) = server::shared() else { return };
    let gate = Gate::new(server.port());
    let long = Config { lease: 4 * LEASE, ..config(server, gate.port()) };
    let active = Active::start(&long);
    std::thread::sleep(2 * LEASE);
    gate.close();
    let start = Instant::now();
    let impatient = Config { lease: LEASE, url: server.config("x").url, ..long };
    turn(&impatient);
    assert!(!active.serves());
    assert!(start.elapsed() >= 4 * LEASE);
    gate.open();
}

#[test]
fn a_standby_waits_for_a_database_that_is_away() {
    let Some(server) = Server::start(&[]) else { return };
    let config = config(&server, server.port());
    server.stop();
    let told = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let standby = scope.spawn(|| {
            let hear = |standby| told.lock().unwrap().push(format!("{standby:?}"));
            wait_for_turn(&config, &|| false, &hear)
        });
        std::thread::sleep(3 * LEASE);
        server.run();
        assert!(standby.join().unwrap().unwrap().is_some());
    });
    let told = told.into_inner().unwrap();
    assert!(told.len() == 1 && told[0].contains("Unreachable"), "{told:?}");
    let wrong = Config { schema: "no such; name".into(), ..config };
    let refused = wait_for_turn(&wrong, &|| false, &|_| {}).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}
