//! The audit and the logs of a server in its sinks.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{PATIENCE, Server, directory, wait_for};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn of_file(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "half a line");
    lines(&text)
}

fn keys(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["key"].as_str()).collect()
}

/// Waits for a condition.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn arguments<'a>(directory: &Path, options: &[&'a str]) -> Vec<String> {
    let path = |option: &&'a str| {
        if option.starts_with("--") {
            (*option).to_owned()
        } else {
            directory.join(option).to_str().unwrap().to_owned()
        }
    };
    options.iter().map(path).collect()
}

fn start(directory: &Path, store: &Path, options: &[&str]) -> Server {
    let arguments = arguments(directory, options);
    Server::start(store, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn strangers_do_not_crowd_out_records() {
    let (directory, store) = directory();
    let server = start(directory.path(), &store, &["--audit-log", "audit"]);
    server.ok(&["bucket", "create", "photos"]);
    let address = server.http.strip_prefix("http://").unwrap().to_owned();
    for _ in 0..100 {
        let mut connection = TcpStream::connect(&address).unwrap();
        let head = format!("PUT /storage/photos/a HTTP/1.1\r\nHost: {address}\r\n");
        connection.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&reply));
    }
    server.ok(&["bucket", "create", "last"]);
    assert_eq!(server.stop(), 0);
    let records = of_file(&directory.path().join("audit"));
    let refused = records.iter().filter(|record| record["outcome"] == "refused").count();
    assert_eq!((records.len(), refused), (2 + 60 + 1, 60 + 1));
    let told = records.last().unwrap();
    assert_eq!((&told["source"], &told["more"]), (&"127.0.0.1".into(), &40.into()));
}

#[test]
fn a_killed_server_leaves_whole_lines() {
    let (directory, store) = directory();
    let (audit, access) = (directory.path().join("audit"), directory.path().join("access"));
    let options = ["--audit-log", "audit", "--access-log", "access"];
    let server = start(directory.path(), &store, &options);
    server.ok(&["bucket", "create", "photos"]);
    thread::scope(|scope| {
        for writer in 0..3 {
            let server = &server;
            scope.spawn(move || {
                for number in 0.. {
                    if !server.put(&format!("photos/{writer}-{number}"), b"x") {
                        return;
                    }
                }
            });
        }
        until("some were written", || fs::read_to_string(&audit).unwrap().lines().count() > 30);
        server.signal("KILL");
    });
    drop(server);
    let server = start(directory.path(), &store, &options);
    let before = of_file(&audit);
    assert!(before.len() > 30 && !of_file(&access).is_empty());
    assert!(server.put("photos/last", b"x") && server.get("photos/last").is_ok());
    assert!(server.get("photos/none").is_err());
    assert_eq!(server.stop(), 0);
    let after = of_file(&audit);
    assert_eq!(keys(&after[before.len()..]), ["last"]);
    let last = &after[before.len()];
    let (outcome, name) = (&last["outcome"], &last["name"]);
    assert_eq!(
        (outcome, name, &last["credential"]),
        (&"done".into(), &"root".into(), &"test-key".into())
    );
    let asked = of_file(&access);
    let status = |path: &str| {
        let of_path = asked.iter().filter(|one| one["path"].as_str().unwrap().ends_with(path));
        of_path.map(|one| one["status"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((status("/last"), status("/none")), (vec![201, 200], vec![404]));
    let mode = fs::metadata(&audit).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_bucket_has_all_but_its_own_writes_and_stops_nobody() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &["--audit-bucket", "audit"]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/first", b"x"));
    let day = || {
        let listed = server.ok(&["ls", "audit/server/"]);
        let name = listed.split_whitespace().find(|word| word.ends_with(".jsonl"));
        name.map(|name| name.rsplit('/').next().unwrap().to_owned())
    };
    until("the bucket is made", || server.ok(&["bucket", "ls"]).contains("audit"));
    until("there is a day", || day().is_some());
    let file = format!("audit/server/{}", day().unwrap());
    let read = || lines(&String::from_utf8(server.get(&file).unwrap()).unwrap());
    until("it has the first", || keys(&read()).contains(&"first"));
    // One for the bucket, and one for the object: none for the bucket of the audit.
    assert_eq!(read().len(), 2, "{:?}", read());
    server.ok(&["bucket", "set", "audit", "--quota", "1"]);
    for number in 0..20 {
        assert!(server.put(&format!("photos/{number}"), b"x"), "it waits for nobody");
    }
    wait_for(&server.stderr, "the sink takes no lines");
    server.ok(&["bucket", "set", "audit", "--quota", "1g"]);
    until("what waited comes", || keys(&read()).contains(&"19"));
    let read = read();
    assert!((0..20).all(|number| keys(&read).contains(&number.to_string().as_str())));
    assert!(!read.iter().any(|record| record["bucket"] == "audit" && record["key"] != Value::Null));
}

#[test]
fn the_bucket_of_another_user_is_not_written() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    let key = server.ok(&["key", "create", "mallory", "--json"]);
    let key: Value = serde_json::from_str(&key).unwrap();
    let mut command = server.anonymous(&["bucket", "create", "audit"]);
    command.env("CAIRN_KEY", key["id"].as_str().unwrap());
    command.env("CAIRN_SECRET", key["secret"].as_str().unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(server.stop(), 0);
    let server = Server::start(&store, &["--audit-bucket", "audit"]);
    server.ok(&["bucket", "create", "photos"]);
    wait_for(&server.stderr, "bucket audit is not root's");
    assert!(server.put("photos/a", b"x"));
    assert_eq!(server.ok(&["ls", "audit"]), "");
}

#[test]
fn a_webhook_gets_lines_until_it_takes_them_and_the_log_has_a_bucket() {
    let (directory, store) = directory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?secret=planted", listener.local_addr().unwrap());
    let got: Arc<Mutex<String>> = Arc::default();
    let heard = Arc::clone(&got);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
            let body = loop {
                let read = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&asked).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length =
                    head.to_lowercase().split("content-length: ").nth(1).unwrap().to_owned();
                let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
                if body.len() >= length {
                    break body.to_owned();
                }
            };
            let status = if number == 0 { "503 No" } else { "200 Yes" };
            let reply =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(reply.as_bytes()).unwrap();
            if number > 0 {
                heard.lock().unwrap().push_str(&body);
            }
        }
    });
    let options = ["--audit-webhook", &url, "--log-bucket", "own"];
    let mut arguments = vec!["--audit-log".to_owned()];
    arguments.push(directory.path().join("audit").to_str().unwrap().to_owned());
    arguments.extend(options.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Server::start(&store, &arguments);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/first", b"x"));
    wait_for(&got, "\"key\":\"first\"");
    wait_for(&server.stderr, "the sink takes lines again");
    assert!(!server.stderr.lock().unwrap().contains("planted"));
    assert_eq!(lines(&got.lock().unwrap()).len(), 2);
    // The log of the process comes, and what brings it there makes no more of it.
    until("the bucket is made", || server.ok(&["bucket", "ls"]).contains("own"));
    until("it has a day", || server.ok(&["ls", "own/server/"]).contains(".jsonl"));
    let listed = server.ok(&["ls", "own/server/"]);
    let day = listed.split_whitespace().find(|word| word.ends_with(".jsonl")).unwrap();
    let file = format!("own/server/{}", day.rsplit('/').next().unwrap());
    let read = || lines(&String::from_utf8(server.get(&file).unwrap()).unwrap());
    let has = |text: &str| read().iter().any(|line| line["message"] == text);
    until("it has all", || has("serving") && has("the sink takes lines again"));
    let before = read().len();
    thread::sleep(Duration::from_secs(3));
    assert!(read().len() <= before + 2, "{:?}", read());
    let metrics = metrics(&server);
    for wanted in [
        "cairn_sink_lines_total{log=\"audit\",sink=\"file\",outcome=\"written\"} 2",
        "cairn_sink_lines_total{log=\"audit\",sink=\"webhook\",outcome=\"lost\"} 0",
        "cairn_logged_lines_total{source=\"cairn\",level=\"info\"}",
        "cairn_logged_lines_total{source=\"cairn_audit\",level=\"warn\"} 1",
    ] {
        assert!(metrics.contains(wanted), "{wanted} is not in {metrics}");
    }
}

/// As anybody on this machine may ask.
fn metrics(server: &Server) -> String {
    let address = server.http.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
