//! Keep-alive, pipelining, limits on connections, orderly shutdown.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::http_harness::{PATIENCE, Server, Setup};
use crate::http_objects_are_what_was_put::pattern;

#[test]
fn requests_may_be_pipelined() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/small", b"small").expect(201);
    root.put("/storage/bucket/large", &pattern(1 << 20)).expect(201);
    let mut connection = root.connect();
    let order = ["small", "large", "none", "small", "large", "small"];
    let mut sent = Vec::new();
    for name in order {
        sent.extend(root.head("GET", &format!("/storage/bucket/{name}"), &[], None));
        sent.extend(root.head("HEAD", &format!("/storage/bucket/{name}"), &[], None));
        sent.extend(root.head("PUT", "/storage/bucket/put", &[], Some(3)));
        sent.extend(b"abc");
    }
    connection.send(&sent);
    for name in order {
        let got = connection.reply("GET");
        match name {
            "small" => assert_eq!(got.body, b"small"),
            "large" => assert!(got.body == pattern(1 << 20)),
            _ => assert_eq!(got.status, 404),
        }
        assert_eq!(got.header("connection"), None);
        assert_eq!(connection.reply("HEAD").status, got.status);
        assert!(matches!(connection.reply("PUT").status, 201 | 204));
    }
}

#[test]
fn a_connection_serves_many_requests_of_both_versions() {
    let server = Server::start();
    let client = server.anonymous();
    let mut connection = client.connect();
    for _ in 0..1000 {
        connection.send(&client.head("GET", "/healthz", &[], None));
        assert_eq!(connection.reply("GET").text(), "ok\n");
    }
    let mut connection = client.connect();
    connection.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    connection.reply("GET").expect(200);
    assert!(connection.is_closed());
}

/// Much longer than a busy machine keeps a client from sending.
const IDLE: Duration = Duration::from_secs(2);

fn with_idle(idle: Duration) -> Server {
    let mut setup = Setup::default();
    setup.limits.idle = idle;
    Server::with(setup)
}

#[test]
fn idle_and_trickling_clients_are_dropped() {
    let server = with_idle(IDLE);
    let client = server.anonymous();
    assert!(client.connect().is_closed(), "one that sends nothing");
    let mut connection = client.connect();
    connection.send(&client.head("GET", "/healthz", &[], None));
    connection.reply("GET").expect(200);
    assert!(connection.is_closed(), "one that is idle after a request");
    let mut connection = client.connect();
    let started = Instant::now();
    let head = client.head("GET", "/healthz", &[], None);
    for byte in head.chunks(1).filter(|byte| *byte != b"\r" && *byte != b"\n").cycle() {
        if started.elapsed() > 2 * IDLE {
            break;
        }
        connection.send(byte);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(connection.is_closed(), "one that trickles its headers");
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let server = with_idle(IDLE);
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", &pattern(30 << 20)).expect(201);
    let mut connection = root.connect();
    connection.send(&root.head("GET", "/storage/bucket/a", &[], None));
    let started = Instant::now();
    // The reply has begun: the connection is accepted, and counted, from here on.
    let mut rest = vec![0];
    connection.stream.read_exact(&mut rest).unwrap();
    while server.connections.open() > 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = connection.stream.read_to_end(&mut rest);
    assert!(rest.len() < 30 << 20, "what came is not the whole, and its length says so");
}

#[test]
fn long_heads_are_refused() {
    let server = Server::start();
    let client = server.anonymous();
    let long = "x".repeat(100 << 10);
    let mut connection = client.connect();
    connection.send(&client.head("GET", "/healthz", &[("X-Long", &long)], None));
    connection.reply("GET").expect(431);
    assert!(connection.is_closed());
    let mut connection = client.connect();
    connection.send(&client.head("GET", &format!("/{long}"), &[], None));
    assert!(matches!(connection.reply("GET").status, 414 | 431));
    let many: Vec<(String, String)> =
        (0..200).map(|at| (format!("X-{at}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let mut connection = client.connect();
    connection.send(&client.head("GET", "/healthz", &many, None));
    connection.reply("GET").expect(431);
    for garbage in ["\r\n\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02", "GET / HTTP/9.9\r\n\r\n"] {
        let mut connection = client.connect();
        connection.send(garbage.as_bytes());
        connection.half_close();
        assert!(connection.try_reply("GET").is_none_or(|reply| reply.status == 400));
    }
}

#[test]
fn connections_beyond_the_limit_wait() {
    let mut setup = Setup::default();
    setup.limits.connections = 2;
    let server = Server::with(setup);
    let client = server.anonymous();
    let request = client.head("GET", "/healthz", &[], None);
    let mut held: Vec<_> = (0..2).map(|_| client.connect()).collect();
    for connection in &mut held {
        connection.send(&request);
        connection.reply("GET").expect(200);
    }
    let mut waiting = client.connect();
    waiting.send(&request);
    waiting.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut byte = [0];
    assert!(waiting.stream.read(&mut byte).is_err());
    waiting.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    held.pop();
    waiting.reply("GET").expect(200);
}

#[test]
fn a_stopping_server_finishes_what_it_began() {
    let mut server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut idle = root.connect();
    idle.send(&root.head("GET", "/healthz", &[], None));
    idle.reply("GET").expect(200);
    let mut uploading = root.connect();
    uploading.send(&root.head("PUT", "/storage/bucket/a", &[], Some(10)));
    uploading.send(b"hello");
    std::thread::sleep(Duration::from_millis(100));
    server.stop();
    assert!(idle.is_closed());
    uploading.send(b"world");
    uploading.reply("PUT").expect(201);
    assert!(uploading.is_closed());
    server.wait();
    assert_eq!(server.connections.open(), 0);
}
