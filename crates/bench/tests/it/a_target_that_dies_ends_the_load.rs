use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use cairn_bench::client::Target;
use cairn_bench::load::{self, Pace};
use cairn_bench::null::{Manner, latency};

use super::{null, plan};

#[test]
fn a_target_that_dies_ends_the_load_and_what_was_measured_is_kept() {
    let null = null(Manner { latency: Some(latency("10ms").unwrap()), ..Manner::default() });
    let duration = Some(Duration::from_secs(600));
    let plan = plan(&null, 4, Pace::Closed { warm_up: Duration::ZERO, duration });
    let running = thread::spawn(move || load::run(&plan).unwrap());
    while null.requests() < 50 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(null);
    let sample = running.join().unwrap();
    let why = sample.broken.unwrap();
    assert!(why.contains("no request succeeded"), "{why}");
    assert!(sample.tally.statuses[&200] >= 40 && sample.tally.failed() > 0);
    assert!(sample.seconds < 300.0);
}

#[test]
fn each_request_has_a_connection_of_its_own_without_keep_alive() {
    let null = null(Manner::default());
    let duration = Some(Duration::from_millis(300));
    let plan = load::Plan {
        keep_alive: false,
        ..plan(&null, 3, Pace::Closed { warm_up: Duration::ZERO, duration })
    };
    let sample = load::run(&plan).unwrap();
    assert_eq!(sample.tally.connections, null.requests());
    assert_eq!(sample.tally.replies(), null.requests());
    assert_eq!(sample.tally.phases.connect.count(), sample.tally.connections);
}

/// As lighttpd does: it waits for the client to hang up first, for seconds.
#[test]
fn a_server_that_says_close_is_taken_at_its_word() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close, other\r\n\r\n",
            );
            kept.push(stream);
        }
    });
    let duration = Some(Duration::from_secs(3));
    let null = null(Manner::default());
    let plan = load::Plan {
        endpoints: vec![Target::parse(&format!("http://{address}/")).unwrap()],
        ..plan(&null, 2, Pace::Closed { warm_up: Duration::ZERO, duration })
    };
    let sample = load::run(&plan).unwrap();
    assert_eq!(sample.broken, None);
    assert!(sample.tally.replies() > 2 && sample.tally.failed() == 0);
    assert_eq!(sample.tally.connections, sample.tally.replies());
}
