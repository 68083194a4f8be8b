//! A client for the log service: posts again and again, or follows a file that grows.
//!
//!   rustc --edition 2024 -O bench/logs.rs
//!   logs post ADDRESS PATH CONNECTIONS SECONDS FILE [HEADER]...
//!   logs get ADDRESS PATH CONNECTIONS SECONDS [HEADER]...
//!   logs follow ADDRESS PATH FOLLOWERS RATE BATCH SECONDS [HEADER]...
//!
//! `post` sends the bytes of FILE as the body of each request, in a closed loop, with a thread for
//! each connection. It prints `requests/s p50_us p99_us requests`. `get` does the same without a body.
//!
//! `follow` appends RATE records of 200 bytes a second to the object PATH, BATCH of them in each
//! request, while so many followers read it. For each record and follower it takes the time from the
//! answer to the append until the follower has the record: 0 if that was earlier. It prints
//! `p50_us p99_us max_us records late`, where `late` are records whose append began more than 5 ms
//! after it was due. Anything but 2xx ends it with exit code 1.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 200;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args[0].as_str() {
        "post" => post(&args[1..]),
        "get" => repeat("GET", &args[1..], &[], &args[5..]),
        "follow" => follow(&args[1..]),
        other => panic!("{other}: post, get or follow"),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(text.parse().expect("seconds"))
}

fn head(method: &str, path: &str, address: &str, headers: &[String], body: usize) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    if method == "POST" {
        head += &format!("Content-Length: {body}\r\n");
    }
    (head + "\r\n").into_bytes()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    stream
}

fn at(sorted: &[u32], permille: usize) -> u32 {
    sorted[(sorted.len() - 1) * permille / 1000]
}

fn post(args: &[String]) {
    let body = std::fs::read(&args[4]).expect("a file");
    repeat("POST", args, &body, &args[5..]);
}

fn repeat(method: &str, args: &[String], body: &[u8], headers: &[String]) {
    let (address, path, connections) = (args[0].clone(), args[1].clone(), number(&args[2]));
    let time = seconds(&args[3]);
    let mut request = head(method, &path, &address, headers, body.len());
    request.extend_from_slice(body);
    let (request, barrier) = (Arc::new(request), Arc::new(Barrier::new(connections)));
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let (request, barrier) = (Arc::clone(&request), Arc::clone(&barrier));
            let mut stream = connect(&address);
            thread::spawn(move || {
                let (mut latencies, mut answer) = (Vec::new(), Vec::new());
                barrier.wait();
                let begun = Instant::now();
                while begun.elapsed() < time {
                    let sent = Instant::now();
                    stream.write_all(&request).expect("send");
                    receive(&mut stream, &mut answer);
                    latencies.push(sent.elapsed().as_micros() as u32);
                }
                (latencies, begun.elapsed())
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(|one| one.join().expect("a thread")).collect();
    let took = ended.iter().map(|(_, took)| took.as_secs_f64()).fold(0.0, f64::max);
    let mut all: Vec<u32> = ended.into_iter().flat_map(|(latencies, _)| latencies).collect();
    all.sort_unstable();
    println!("{:.1} {} {} {}", all.len() as f64 / took, at(&all, 500), at(&all, 990), all.len());
}

/// Reads one answer; anything but success ends the program.
fn receive(stream: &mut TcpStream, answer: &mut Vec<u8>) {
    answer.clear();
    let mut chunk = [0_u8; 65_536];
    loop {
        let read = stream.read(&mut chunk).expect("receive");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(answer));
        answer.extend_from_slice(&chunk[..read]);
        let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        check(answer);
        if answer.len() >= end + 4 + length(&answer[..end]) {
            return;
        }
    }
}

fn check(answer: &[u8]) {
    if answer.get(9) != Some(&b'2') {
        eprintln!("{}", String::from_utf8_lossy(answer));
        std::process::exit(1);
    }
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.split("\r\ncontent-length:").nth(1).and_then(|rest| rest.split("\r\n").next());
    value.map_or(0, |text| text.trim().parse().expect("a length"))
}

/// When a follower had how many bytes: microseconds since the beginning.
type Seen = Vec<(u64, usize)>;

fn follow(args: &[String]) {
    let (address, path, followers) = (args[0].clone(), args[1].clone(), number(&args[2]));
    let (rate, batch, time) = (number(&args[3]), number(&args[4]), seconds(&args[5]));
    let headers = args[6..].to_vec();
    let records = rate * time.as_millis() as usize / 1000 / batch * batch;
    let begun = Instant::now();
    let (ready, total) = (Arc::new(AtomicUsize::new(0)), records * RECORD_BYTES);
    let threads: Vec<_> = (0..followers)
        .map(|_| {
            let request = head("GET", &format!("{path}?follow"), &address, &headers, 0);
            let (address, ready) = (address.clone(), Arc::clone(&ready));
            let work = move || read_all(&address, &request, &ready, begun, total);
            thread::Builder::new().stack_size(256 << 10).spawn(work).expect("a thread")
        })
        .collect();
    while ready.load(Ordering::SeqCst) < followers {
        thread::sleep(Duration::from_millis(5));
    }
    let acknowledged: Vec<AtomicU64> = (0..records).map(|_| AtomicU64::new(0)).collect();
    let body = [&[b'x'; RECORD_BYTES - 1][..], b"\n"].concat().repeat(batch);
    let mut request = head("POST", &format!("{path}?append"), &address, &headers, body.len());
    request.extend_from_slice(&body);
    let late = AtomicUsize::new(0);
    // Several writers, so that one append that takes longer does not delay the next.
    let (next, writers) = (AtomicUsize::new(0), 4);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                let (mut stream, mut answer) = (connect(&address), Vec::new());
                loop {
                    let turn = next.fetch_add(1, Ordering::SeqCst);
                    if turn * batch >= records {
                        return;
                    }
                    let due = Duration::from_secs_f64((turn * batch) as f64 / rate as f64);
                    let now = started.elapsed();
                    thread::sleep(due.saturating_sub(now));
                    if now > due + Duration::from_millis(5) {
                        late.fetch_add(batch, Ordering::SeqCst);
                    }
                    stream.write_all(&request).expect("send");
                    receive(&mut stream, &mut answer);
                    let now = begun.elapsed().as_micros() as u64;
                    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
                    let offset = head.split("\r\nx-cairn-offset:").nth(1).expect("an offset");
                    let offset = number(offset.split("\r\n").next().expect("a line").trim());
                    let first = offset / RECORD_BYTES;
                    for record in &acknowledged[first..first + batch] {
                        record.store(now, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let mut latencies: Vec<u32> = Vec::with_capacity(records * followers);
    for follower in threads {
        let seen = follower.join().expect("a follower");
        let mut seen = seen.into_iter().peekable();
        for (number, record) in acknowledged.iter().enumerate() {
            while seen.peek().is_some_and(|(_, bytes)| *bytes < (number + 1) * RECORD_BYTES) {
                seen.next();
            }
            let (when, _) = seen.peek().expect("the record has come");
            latencies.push(when.saturating_sub(record.load(Ordering::SeqCst)) as u32);
        }
    }
    latencies.sort_unstable();
    let max = latencies[latencies.len() - 1];
    let (p50, p99) = (at(&latencies, 500), at(&latencies, 990));
    println!("{p50} {p99} {max} {} {}", records, late.load(Ordering::SeqCst));
}

/// Follows until so many bytes have come.
fn read_all(
    address: &str,
    request: &[u8],
    ready: &AtomicUsize,
    begun: Instant,
    total: usize,
) -> Seen {
    let mut stream = connect(address);
    stream.write_all(request).expect("send");
    let mut bytes = Vec::new();
    let mut chunk = vec![0_u8; 65_536];
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut chunk).expect("receive");
        assert!(read > 0, "closed");
        bytes.extend_from_slice(&chunk[..read]);
    }
    check(&bytes);
    ready.fetch_add(1, Ordering::SeqCst);
    let mut seen = Seen::new();
    // Records have no carriage return or hexadecimal digit: what frames chunks is not counted.
    let counted = |bytes: &[u8]| bytes.iter().filter(|byte| matches!(byte, b'x')).count();
    let mut records = 0;
    while records < total / RECORD_BYTES * (RECORD_BYTES - 1) {
        let read = stream.read(&mut chunk).expect("receive");
        assert!(read > 0, "closed after {records} bytes");
        records += counted(&chunk[..read]);
        let whole = records / (RECORD_BYTES - 1);
        seen.push((begun.elapsed().as_micros() as u64, whole * RECORD_BYTES));
    }
    seen
}
