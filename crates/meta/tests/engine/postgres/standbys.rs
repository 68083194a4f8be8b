//! A pooler leads to a standby for a while, as it may when the database fails over. One server
//! plays both.

use std::thread;
use std::time::Duration;

use cairn_meta::engine::postgres::Config;
use cairn_meta::engine::{CommitError, Engine, Postgres};

use super::server::Server;
use crate::support::{commit, put};

/// Longer than any machine takes for what is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// Until the pooler leads to the primary again.
const MOMENT: Duration = Duration::from_millis(300);

/// A server that says of itself what a table says.
fn actor() -> Option<Server> {
    let server = Server::start(&[])?;
    server.sql(
        "CREATE SCHEMA fake; CREATE TABLE fake.standby (is_one boolean); \
         INSERT INTO fake.standby VALUES (false); \
         CREATE FUNCTION fake.pg_is_in_recovery() RETURNS boolean LANGUAGE sql \
           AS 'SELECT is_one FROM fake.standby'; \
         ALTER ROLE cairn SET search_path = fake, pg_catalog",
    );
    Some(server)
}

fn play_standby(server: &Server, is_one: bool) {
    server.sql(&format!("UPDATE fake.standby SET is_one = {is_one}"));
}

#[test]
fn the_word_of_a_standby_does_not_count() {
    let Some(server) = actor() else { return };
    let hasty = Config { patience: Duration::from_millis(100), ..server.config("cairn") };
    let engine = Postgres::open(&hasty).unwrap();
    let fence = commit(&engine, vec![put("a", "1")]);
    let keys = [bytes::Bytes::from_static(b"a")];
    assert_eq!(engine.read(&keys).unwrap().0, fence.batch);
    drop(engine.snapshot().unwrap());
    play_standby(&server, true);
    for error in [
        engine.fence().unwrap_err(),
        engine.read(&keys).unwrap_err(),
        engine.snapshot().err().unwrap(),
    ] {
        assert!(error.kind() == "unavailable" && error.to_string().contains("standby"), "{error}");
    }
    // As often as that, no connection for reading is lost.
    for _ in 0..2 * hasty.connections {
        engine.snapshot().err().unwrap();
    }
    play_standby(&server, false);
    assert_eq!(engine.fence().unwrap(), fence);
    assert_eq!(engine.read(&keys).unwrap().0, fence.batch);
    engine.snapshot().unwrap();
    commit(&engine, vec![put("a", "2")]);
}

#[test]
fn the_primary_is_waited_for() {
    let Some(server) = actor() else { return };
    let engine = Postgres::open(&Config { patience: PATIENCE, ..server.config("cairn") }).unwrap();
    let fence = commit(&engine, vec![put("a", "1")]);
    play_standby(&server, true);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(MOMENT);
            play_standby(&server, false);
        });
        assert_eq!(engine.fence().unwrap(), fence);
    });
}

/// The outcome of a commit is unknown, and the server takes no changes when that is to be settled.
#[test]
fn an_unknown_outcome_is_settled_by_the_primary() {
    let Some(server) = actor() else { return };
    let engine = Postgres::open(&Config { patience: PATIENCE, ..server.config("cairn") }).unwrap();
    let fence = commit(&engine, vec![put("a", "1")]);
    let end_all = || {
        server.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE usename = 'cairn' AND pid <> pg_backend_pid()",
        )
    };
    server.sql("ALTER ROLE cairn SET default_transaction_read_only = on");
    end_all();
    let unknown = engine.commit(fence, vec![put("a", "2")]);
    assert!(matches!(unknown, Err(CommitError::Unknown(_))), "{unknown:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(MOMENT);
            let reset = "ALTER ROLE cairn RESET default_transaction_read_only";
            server.sql(&format!("BEGIN READ WRITE; {reset}; COMMIT"));
        });
        assert_eq!(engine.fence().unwrap(), fence);
    });
    engine.commit(fence, vec![put("a", "3")]).unwrap();
}
