//! A closed-loop HTTP/1.1 client for a bucket of many directories (crates/meta/examples/rows.rs):
//! each request is for another place, chosen at random. A thread for each connection, keep-alive.
//!
//!   rustc --edition 2024 -O bench/rows.rs
//!   rows METHOD ADDRESS PREFIX CONNECTIONS SECONDS DIRECTORIES SEED FILE|- [HEADER]...
//!
//! HEAD asks for files that are there; PUT makes new ones of 100 bytes. FILE gets a line for each
//! request: its start in microseconds since 1970, and its latency in microseconds. Prints
//! `requests/s p50_us p99_us p999_us longest_us requests`; anything but 2xx ends it with exit code 1.

mod response;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use response::receive;

const FILES: u64 = 1000;
const BODY_BYTES: usize = 100;

struct Plan {
    method: String,
    address: String,
    prefix: String,
    headers: String,
    time: Duration,
    directories: u64,
    seed: u64,
}

struct Request {
    start_us: u64,
    latency_us: u64,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let connections: u64 = args[3].parse().expect("connections");
    let mut headers = format!("Host: {}\r\n", args[1]);
    args.iter().skip(8).for_each(|header| headers += &format!("{header}\r\n"));
    let plan = Arc::new(Plan {
        method: args[0].clone(),
        address: args[1].clone(),
        prefix: args[2].clone(),
        headers,
        time: Duration::from_secs_f64(args[4].parse().expect("seconds")),
        directories: args[5].parse().expect("directories"),
        seed: args[6].parse().expect("seed"),
    });
    let begun = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|number| {
            let plan = Arc::clone(&plan);
            std::thread::spawn(move || ask(&plan, number))
        })
        .collect();
    let done: Vec<Request> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread failed")).collect();
    let seconds = begun.elapsed().as_secs_f64();
    if args[7] != "-" {
        let mut file = BufWriter::new(File::create(&args[7]).expect("file"));
        for Request { start_us, latency_us } in &done {
            writeln!(file, "{start_us} {latency_us}").expect("write");
        }
        file.flush().expect("write");
    }
    let mut latencies: Vec<u64> = done.iter().map(|request| request.latency_us).collect();
    latencies.sort_unstable();
    let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000];
    let rate = latencies.len() as f64 / seconds;
    let (p50, p99, p999, longest) = (at(500), at(990), at(999), at(1000));
    println!("{rate:.1} {p50} {p99} {p999} {longest} {}", latencies.len());
}

/// Sends requests one after another on a connection.
fn ask(plan: &Plan, thread: u64) -> Vec<Request> {
    let mut stream = TcpStream::connect(&plan.address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let mut random = Random(plan.seed.wrapping_mul(1_000_003).wrapping_add(thread));
    let (mut done, mut request, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    for number in 0_u64.. {
        if begun.elapsed() >= plan.time {
            break;
        }
        let (directory, file) = (random.next() % plan.directories, random.next() % FILES);
        let Plan { method, prefix, headers, seed, .. } = plan;
        request.clear();
        if method == "PUT" {
            let name = format!("n{seed}-{thread}-{number}");
            write!(request, "PUT {prefix}/d{directory:07}/{name} HTTP/1.1\r\n{headers}")
                .and_then(|()| write!(request, "Content-Length: {BODY_BYTES}\r\n\r\n"))
                .expect("memory");
            let body = (0..BODY_BYTES).map(|_| random.next() as u8);
            request.extend(body);
        } else {
            write!(request, "{method} {prefix}/d{directory:07}/f{file:03} HTTP/1.1\r\n{headers}\r\n")
                .expect("memory");
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let sent = Instant::now();
        stream.write_all(&request).expect("send");
        receive(&mut stream, &mut answer, method == "HEAD");
        let latency_us = sent.elapsed().as_micros() as u64;
        done.push(Request { start_us: since.as_micros() as u64, latency_us });
    }
    done
}
