//! A closed-loop HTTP/1.1 client for what wrk cannot do: HEAD (wrk waits for a body), and PUT of
//! new keys without copying a body for each. Keep-alive, no pipelining. PUT has a thread for each
//! connection; HEAD has two threads, as wrk has, each with a share of the connections: it asks on
//! all of them, then reads the answers, so that not the waking of clients is measured.
//!
//!   rustc -O bench/load.rs
//!   load METHOD ADDRESS PATH CONNECTIONS SECONDS BODY_BYTES [FILE_OF_PATHS|-] [HEADER]...
//!
//! HEAD asks for PATH; PUT appends `-NUMBER` to it, or takes one line of the file after another.
//! Prints `requests/s p50_us p99_us requests`; anything but 2xx ends it with exit code 1.

mod response;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use response::receive;

struct Plan {
    method: String,
    address: String,
    path: String,
    paths: Vec<String>,
    headers: String,
    body: Vec<u8>,
    time: Duration,
    next: AtomicUsize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let connections: usize = args[3].parse().expect("connections");
    let paths = match args.get(6).map(String::as_str) {
        None | Some("-") => Vec::new(),
        Some(file) => std::fs::read_to_string(file).expect("file").lines().map(Into::into).collect(),
    };
    let body = noise(args[5].parse().expect("body bytes"));
    let mut headers = format!("Host: {}\r\n", args[1]);
    args.iter().skip(7).for_each(|header| headers += &format!("{header}\r\n"));
    if !body.is_empty() {
        headers += &format!("Content-Length: {}\r\n", body.len());
    }
    let plan = Arc::new(Plan {
        method: args[0].clone(),
        address: args[1].clone(),
        path: args[2].clone(),
        paths,
        headers,
        body,
        time: Duration::from_secs_f64(args[4].parse().expect("seconds")),
        next: AtomicUsize::new(0),
    });
    let begun = Instant::now();
    let threads = if plan.body.is_empty() { connections.min(2) } else { connections };
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let plan = Arc::clone(&plan);
            let share = connections / threads + usize::from(number < connections % threads);
            std::thread::spawn(move || match plan.body.is_empty() {
                true => ask(&plan, share),
                false => upload(&plan, number),
            })
        })
        .collect();
    let mut latencies: Vec<u32> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread failed")).collect();
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000];
    println!(
        "{:.1} {} {} {}",
        latencies.len() as f64 / seconds,
        at(500),
        at(990),
        latencies.len()
    );
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn connect(plan: &Plan) -> TcpStream {
    let stream = TcpStream::connect(&plan.address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    stream
}

/// Requests without a body, on several connections at a time. Returns the latency of each,
/// microseconds.
fn ask(plan: &Plan, connections: usize) -> Vec<u32> {
    let mut streams: Vec<_> = (0..connections).map(|_| connect(plan)).collect();
    let (mut latencies, mut request, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    let mut sent = vec![Instant::now(); connections];
    write_head(plan, 0, &mut request);
    let begun = Instant::now();
    while begun.elapsed() < plan.time {
        for (stream, sent) in streams.iter_mut().zip(&mut sent) {
            *sent = Instant::now();
            stream.write_all(&request).expect("send");
        }
        for (stream, sent) in streams.iter_mut().zip(&sent) {
            receive(stream, &mut answer, plan.method == "HEAD");
            latencies.push(sent.elapsed().as_micros() as u32);
        }
    }
    latencies
}

/// Requests with a body, one after another. Returns the latency of each, microseconds.
fn upload(plan: &Plan, thread: usize) -> Vec<u32> {
    let mut stream = connect(plan);
    let mut body = plan.body.clone();
    let (mut latencies, mut request, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < plan.time {
        let number = plan.next.fetch_add(1, Ordering::Relaxed);
        request.clear();
        write_head(plan, number, &mut request);
        if let Some(start) = body.get_mut(..16) {
            // No two bodies are the same.
            start[..8].copy_from_slice(&(number as u64).to_le_bytes());
            start[8..].copy_from_slice(&(thread as u64).to_le_bytes());
        }
        let sent = Instant::now();
        if body.len() <= 65_536 {
            request.extend_from_slice(&body);
            stream.write_all(&request).expect("send");
        } else {
            stream.write_all(&request).expect("send");
            stream.write_all(&body).expect("send the body");
        }
        receive(&mut stream, &mut answer, false);
        latencies.push(sent.elapsed().as_micros() as u32);
    }
    latencies
}

fn write_head(plan: &Plan, number: usize, out: &mut Vec<u8>) {
    let Plan { method, path, headers, .. } = plan;
    let line = if plan.body.is_empty() {
        write!(out, "{method} {path} HTTP/1.1\r\n{headers}\r\n")
    } else if plan.paths.is_empty() {
        write!(out, "{method} {path}-{number} HTTP/1.1\r\n{headers}\r\n")
    } else {
        let path = plan.paths.get(number).expect("more paths");
        write!(out, "{method} {path} HTTP/1.1\r\n{headers}\r\n")
    };
    line.expect("memory");
}
