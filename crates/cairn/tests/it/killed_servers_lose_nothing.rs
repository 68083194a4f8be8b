use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Server, bytes, cairn, directory, run};

const KILLS: u64 = 5;
const WRITERS: u64 = 4;

/// Short ones are kept in the metadata, long ones in blocks.
fn content(number: u64) -> Vec<u8> {
    bytes(number, if number.is_multiple_of(2) { 1000 } else { 300_000 })
}

#[test]
fn of_what_they_acknowledged() {
    let (_directory, store) = directory();
    let acknowledged: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());
    let next = AtomicU64::new(0);
    for kill in 0..KILLS {
        let first = next.load(Ordering::SeqCst);
        let server = Server::start(&store, &[]);
        if kill == 0 {
            server.ok(&["bucket", "create", "photos"]);
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| write_until(&server, &stop, &next, &acknowledged));
            }
            let goal = acknowledged.lock().unwrap().len() + 20 + 7 * kill as usize;
            let start = Instant::now();
            while acknowledged.lock().unwrap().len() < goal {
                assert!(start.elapsed() < PATIENCE, "writers do not get on");
                thread::sleep(Duration::from_millis(1));
            }
            server.signal("KILL");
            stop.store(true, Ordering::SeqCst);
        });
        drop(server);
        // The last round verifies older objects, too.
        let first = if kill + 1 == KILLS { 0 } else { first };
        verify(&store, acknowledged.lock().unwrap().range(first..));
    }
}

/// Writes, and now and then deletes what was written before.
fn write_until(
    server: &Server,
    stop: &AtomicBool,
    next: &AtomicU64,
    acknowledged: &Mutex<BTreeMap<u64, bool>>,
) {
    while !stop.load(Ordering::SeqCst) {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let key = format!("photos/{number}");
        if !server.put(&key, &content(number)) {
            continue;
        }
        acknowledged.lock().unwrap().insert(number, true);
        if number % 5 == 3 {
            // From here on until the answer it may be there or not.
            acknowledged.lock().unwrap().remove(&number);
            if run(&mut server.client(&["rm", &key])).0 == 0 {
                acknowledged.lock().unwrap().insert(number, false);
            }
        }
    }
}

fn verify<'a>(store: &Path, acknowledged: impl Iterator<Item = (&'a u64, &'a bool)>) {
    let server = Server::start(store, &[]);
    for (number, is_there) in acknowledged {
        let got = server.get(&format!("photos/{number}"));
        if *is_there {
            assert!(got.unwrap() == content(*number), "object {number}")
        } else {
            assert!(got.unwrap_err().contains("not found"), "object {number}")
        }
    }
    server.kill();
    let (code, stdout, stderr) = run(&mut cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 0, "{stdout}{stderr}");
}
