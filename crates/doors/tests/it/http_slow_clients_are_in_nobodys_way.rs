//! Room that all share is taken for bytes that came, by parties, and not indefinitely.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_doors::limits::FAILURES_DELAY;
use cairn_fs::PIECE_BYTES;
use futures_util::future::join_all;
use http::Response;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::http_harness::{Client, Connection, Server, Setup};

/// A request whose body is announced and comes no further than this.
fn begin(client: &Client, method: &str, path: &str, announced: usize, sent: &[u8]) -> Connection {
    let mut connection = client.connect();
    connection.send(&client.head(method, path, &[], Some(announced)));
    connection.send(sent);
    connection
}

/// Waits until so many uploads, or their room, are there.
fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it becomes so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_announced_takes_no_room() {
    let server = Server::start();
    let (slow, alice) = (server.user("slow"), server.user("alice"));
    slow.put("/storage/slow", b"").expect(201);
    alice.put("/storage/alice", b"").expect(201);
    let mut held: Vec<Connection> = (0..256)
        .map(|at| begin(&slow, "PUT", &format!("/storage/slow/{at}"), 1_000_000, b"x"))
        .collect();
    held.extend((0..24).map(|_| begin(&slow, "POST", "/storage/slow/log", 4 << 20, b"x")));
    held.extend((0..24).map(|_| begin(&slow, "PATCH", "/storage/slow", 60_000, b"x")));
    until(|| server.connections.open() >= held.len() as u64);
    for client in [&alice, &slow] {
        let bucket = if std::ptr::eq(client, &alice) { "alice" } else { "slow" };
        client.put(&format!("/storage/{bucket}/o"), &[7; 300_000]).expect(201);
        client.call("POST", &format!("/storage/{bucket}/a"), &[], &[7; 300_000]).expect(200);
        let made_public = br#"{"visibility":"public"}"#;
        client.call("PATCH", &format!("/storage/{bucket}"), &[], made_public).expect(204);
    }
    // None of them was ended for it.
    let first = &mut held[0];
    first.send(&[b'x'; 999_999]);
    first.reply("PUT").expect(201);
}

#[test]
fn slow_uploads_end_when_others_wait_for_their_room() {
    let mut setup = Setup { upload_bytes: Some(256 << 10), ..Setup::default() };
    setup.limits.upload_window = Duration::from_millis(500);
    let server = Server::with(setup);
    let users = ["slow", "lazy", "alice"].map(|name| server.user(name));
    for (user, name) in users.iter().zip(["slow", "lazy", "alice"]) {
        user.put(&format!("/storage/{name}"), b"").expect(201);
    }
    let [slow, lazy, alice] = users;
    let upload = |user: &Client, bucket: &str, at: usize| {
        begin(user, "PUT", &format!("/storage/{bucket}/{at}"), 1_000_000, b"x")
    };
    // Of one user: it does not get the last quarter.
    let mut held: Vec<Connection> = (0..12).map(|at| upload(&slow, "slow", at)).collect();
    let room = server.fs().upload_memory();
    until(|| room.taken() == 192 << 10);
    alice.put("/storage/alice/first", &[7; 40_000]).expect(201);
    // Of two: they take all of it, but they do not keep it.
    held.extend((0..14).map(|at| upload(&lazy, "lazy", at)));
    alice.put("/storage/alice/second", &[7; 200_000]).expect(201);
    let begun = Instant::now();
    let ended = loop {
        if let Some(ended) = held.iter_mut().find(|connection| has_reply(connection)) {
            break ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "one of them ends");
    };
    let reply = ended.reply("PUT").expect(408);
    assert_eq!(reply.error(), "too_slow");
    assert!(reply.text().contains("others wait"), "{}", reply.text());
}

/// Whether there is something to read.
fn has_reply(connection: &Connection) -> bool {
    connection.stream.set_nonblocking(true).unwrap();
    let is_there = connection.stream.peek(&mut [0]).is_ok_and(|length| length > 0);
    connection.stream.set_nonblocking(false).unwrap();
    is_there
}

#[test]
fn slow_uploads_go_on_while_nobody_waits() {
    let mut setup = Setup::default();
    setup.limits.upload_window = Duration::from_millis(50);
    let server = Server::with(setup);
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    for (method, status) in [("PUT", 201), ("POST", 200)] {
        let path = format!("/storage/bucket/{method}");
        let mut connection = begin(&root, method, &path, 11, b"x");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(40));
            connection.send(b"x");
        }
        connection.reply(method).expect(status);
    }
}

#[test]
fn connections_that_are_silent_make_way() {
    let mut setup = Setup::default();
    setup.limits.connections = 20;
    setup.limits.idle_wanted = Duration::from_millis(200);
    let server = Server::with(setup);
    let client = server.anonymous();
    // Silent, half a head, and one that is kept after a request.
    let mut held: Vec<Connection> = (0..40).map(|_| client.connect()).collect();
    held.iter_mut().step_by(2).for_each(|connection| connection.send(b"GET /healthz HT"));
    held[0].send(b"TP/1.1\r\nHost: x\r\n\r\n");
    let begun = Instant::now();
    let mut answered = 0;
    while answered < 5 {
        assert!(begun.elapsed() < Duration::from_secs(60), "all are answered");
        let mut connection = client.connect();
        connection.send(&client.head("GET", "/healthz", &[], None));
        // A stranger that a busy machine keeps from sending in time is silent, too.
        answered += u32::from(connection.try_reply("GET").is_some_and(|reply| reply.status == 200));
    }
}

#[test]
fn right_credentials_are_never_held_off() {
    let server = Server::start();
    let guess = server.client(&server.root.id, "wrong-secret-0123456789");
    for _ in 0..100 {
        guess.get("/healthz").expect(401);
    }
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let begun = Instant::now();
            guess.get("/healthz").expect(401);
            begun.elapsed()
        });
        // From the same network, with the same key id.
        for _ in 0..10 {
            server.root().get("/storage/").expect(200);
        }
        server.anonymous().get("/healthz").expect(200);
        assert!(late.join().unwrap() >= FAILURES_DELAY);
    });
    // Other key ids are counted on their own.
    server.client("OTHER", "wrong-secret-0123456789").get("/healthz").expect(401);
}

#[test]
fn a_request_names_one_host() {
    let server = Server::start();
    let ask = |head: &str| {
        let mut connection = server.anonymous().connect();
        connection.send(head.as_bytes());
        connection.reply("GET").status
    };
    assert_eq!(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    assert_eq!(ask("GET /healthz HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(ask("GET /healthz HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(ask("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(ask("GET /storage/bucket/a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
}

#[test]
fn metrics_are_for_this_machine() {
    let server = Server::start();
    let ask = |host: &str| {
        let mut connection = server.anonymous().connect();
        connection.send(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        connection.reply("GET").status
    };
    for host in ["localhost", "127.0.0.1:8080", "[::1]"] {
        assert_eq!(ask(host), 200, "{host}");
    }
    // A name that somebody else made lead here.
    assert_eq!(ask("evil.example"), 401);
    let forwarded = server.anonymous().get_with("/metrics", &[("X-Forwarded-Host", "a")]);
    forwarded.expect(401);
    server.root().get_with("/metrics", &[("X-Forwarded-Host", "a")]).expect(200);
}

#[test]
fn a_query_has_few_parameters() {
    let server = Server::start();
    let many: String = (0..16_000).map(|at| format!("a{at}&")).take(8_000).collect();
    for path in [format!("/storage/?{}", &many[..300]), format!("/storage/x/y?{many}")] {
        let reply = server.root().get(&path).expect(400);
        assert!(reply.text().contains("64 query parameters"), "{}", reply.text());
    }
}

#[test]
fn a_preface_may_come_in_pieces() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for piece in [&b"P"[..], b"RI", b" * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings] {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "settings: {frame:?}");
}

/// Asks for an object so many times over one connection of HTTP/2, and takes no body.
async fn ask_and_stop(client: &Client, path: &str, times: usize) -> Vec<Response<Incoming>> {
    let stream = tokio::net::TcpStream::connect(client.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let asked = (0..times).map(|_| {
        let request = http::Request::builder()
            .uri(format!("http://x{path}"))
            .header("authorization", client.authorization.as_deref().unwrap())
            .body(Empty::<Bytes>::new())
            .unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap() }
    });
    join_all(asked).await
}

#[test]
fn readers_that_stop_have_two_pieces_wait() {
    /// More than the system takes of a body for a client that takes nothing.
    const LENGTH: usize = 24 << 20;
    const EACH: usize = 12;
    let server = Server::start();
    let (root, path) = (server.root(), "/storage/bucket/long");
    root.put("/storage/bucket", b"").expect(201);
    let long: Vec<u8> = (0..LENGTH).map(|at| (at / 1000) as u8).collect();
    root.put(path, &long).expect(201);
    root.put("/storage/bucket/short", &[7; 300_000]).expect(201);
    let waiting = || server.fs().sending().waiting();
    let mut held: Vec<Connection> = (0..EACH)
        .map(|_| {
            let mut connection = root.connect();
            connection.send(&root.head("GET", path, &[], None));
            connection
        })
        .collect();
    until(|| waiting() >= EACH as u64 * PIECE_BYTES);
    let streams = server.runtime.block_on(ask_and_stop(&root, path, EACH));
    until(|| waiting() >= 2 * EACH as u64 * PIECE_BYTES);
    std::thread::sleep(Duration::from_millis(500));
    let most = 4 * EACH as u64 * PIECE_BYTES;
    assert!(waiting() <= most, "{} of {most} bytes wait", waiting());
    // They are in nobody's way, and lose nothing.
    assert_eq!(root.get("/storage/bucket/short").expect(200).body.len(), 300_000);
    assert!(held[0].reply("GET").expect(200).body == long);
    drop((held, streams));
    until(|| waiting() == 0);
}
