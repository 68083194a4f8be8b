//! The client against the null server, which knows what it did.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod a_target_that_dies_ends_the_load;
mod percentiles_are_those_of_the_server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_bench::client::{Target, Tls, connector};
use cairn_bench::load::{Pace, Plan, Work};
use cairn_bench::null::{Manner, Null};
use http::Request;
use http_body_util::Full;

/// Asks for `/0`, `/1`, …
struct Numbered;

impl Work for Numbered {
    fn request(&self, number: u64, _: usize) -> Option<Request<Full<Bytes>>> {
        Request::get(format!("/{number}")).header("host", "null").body(Full::default()).ok()
    }
}

fn null(manner: Manner) -> Null {
    let manner = Manner { is_recording: true, threads: 2, ..manner };
    Null::start("127.0.0.1:0".parse().unwrap(), manner).unwrap()
}

fn plan(null: &Null, connections: usize, pace: Pace) -> Plan {
    Plan {
        endpoints: vec![Target::parse(&null.url()).unwrap()],
        connector: connector(&Tls::default()).unwrap(),
        work: Arc::new(Numbered),
        connections,
        keep_alive: true,
        pace,
        timeout: Duration::from_secs(30),
        threads: 2,
        server: Vec::new(),
    }
}
