//! Servers that would lose what they acknowledged are refused, with the remedy.

use std::time::Duration;

use cairn_base::{Error, Secret};
use cairn_meta::engine::postgres::Config;
use cairn_meta::engine::{Engine, Postgres};

use super::server::{self, PASSWORD, Server};

/// One line that names the remedy and no password.
fn refused(config: &Config, remedy: &str) {
    match Postgres::open(config) {
        Ok(_) => panic!("taken, want {remedy}"),
        Err(error @ Error::Invalid(_)) => {
            let text = error.to_string();
            assert!(text.contains(remedy), "{text}");
            assert!(!text.contains('\n') && !text.contains(PASSWORD), "{text}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_lose_commits() {
    for (option, remedy) in
        [("fsync=off", "set fsync = on"), ("full_page_writes=off", "set full_page_writes = on")]
    {
        let Some(server) = Server::start(&[option]) else { return };
        refused(&server.config("cairn"), remedy);
    }
    let Some(server) = Server::start(&[]) else { return };
    for level in ["off", "local", "remote_write"] {
        server.sql(&format!("ALTER ROLE cairn SET synchronous_commit = {level}"));
        refused(&server.config("cairn"), "synchronous_commit");
    }
    server.sql("ALTER ROLE cairn SET synchronous_commit = remote_apply");
    server.open("cairn").unwrap();
}

#[test]
fn standbys_that_may_lag_behind() {
    let Some(server) = Server::start(&[]) else { return };
    let standby = server.standby("other");
    let attached = || server.sql("SELECT count(*) FROM pg_stat_replication");
    while attached() != "1" {
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&server.config("cairn"), "--accept-lossy-failover");
    let accepting = Config { accept_lossy_failover: true, ..server.config("cairn") };
    Postgres::open(&accepting).unwrap().take_over().unwrap();
    // A user that may not see how a standby is attached cannot vouch for it.
    server.sql(&format!("CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'"));
    let url = format!("postgres://plain:{PASSWORD}@127.0.0.1:{}/postgres", server.port());
    let plain = Config { schema: "plain".into(), ..Config::new(Secret::new(url)) };
    refused(&plain, "pg_read_all_stats");
    let accepted = Config { accept_lossy_failover: true, ..plain.clone() };
    refused(&accepted, "let the user own it");
    server.sql("CREATE SCHEMA plain AUTHORIZATION plain");
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'");
    server.sql("SELECT pg_reload_conf()");
    while server.sql("SELECT sync_state FROM pg_stat_replication") != "sync" {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.open("cairn").unwrap().take_over().unwrap();
    refused(&plain, "pg_read_all_stats");
    server.sql("GRANT pg_read_all_stats TO plain");
    Postgres::open(&plain).unwrap().take_over().unwrap();
    refused(&standby.config("cairn"), "it is a standby");
}

#[test]
fn tables_of_the_future() {
    let Some(server) = server::shared() else { return };
    let schema = server::schema();
    let missing = Postgres::attach(&server.config(&schema)).err().unwrap();
    assert_eq!(missing.kind(), "not_found");
    server.open(&schema).unwrap();
    Postgres::attach(&server.config(&schema)).unwrap();
    server.sql(&format!("UPDATE {schema}.fence SET format = 2"));
    refused(&server.config(&schema), "use a newer one");
}

#[test]
fn names_that_are_none() {
    let Some(server) = server::shared() else { return };
    for name in ["", "Cairn", "a\"b", "a;b", &"x".repeat(64)] {
        refused(&server.config(name), "a name has");
    }
}

#[test]
fn who_is_not_let_in() {
    let Some(server) = server::shared() else { return };
    let port = server.port();
    for (url, say) in [
        (format!("postgres://cairn:wrong-{PASSWORD}@127.0.0.1:{port}/postgres"), "(28P01)"),
        (format!("postgres://cairn:{PASSWORD}@127.0.0.1:{port}/nowhere"), "(3D000)"),
        (format!("postgres://cairn:{PASSWORD}@127.0.0.1:1/postgres"), "refused"),
    ] {
        let error = Postgres::open(&Config::new(Secret::new(url))).err().unwrap();
        let text = error.to_string();
        assert_eq!(error.kind(), "unavailable");
        assert!(text.contains(say) && !text.contains(PASSWORD), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let shown = format!("{:?}", server.config("cairn"));
    assert!(!shown.contains(PASSWORD), "{shown}");
}

/// Two that start at once on an empty database.
#[test]
fn tables_are_made_once() {
    let Some(server) = server::shared() else { return };
    for _ in 0..5 {
        let schema = server::schema();
        std::thread::scope(|scope| {
            let opening: Vec<_> =
                (0..4).map(|_| scope.spawn(|| server.open(&schema).unwrap())).collect();
            for engine in opening {
                assert_eq!(engine.join().unwrap().fence().unwrap().batch, 0);
            }
        });
    }
}
