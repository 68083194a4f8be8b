//! Random reads and writes by several clients, while connections break, recalls come late, sessions
//! lapse and masters take over. No read is older than a write that was acknowledged before it
//! began, or than an earlier read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::rng::SeededRng;
use cairn_base::{Error, Rng};
use cairn_meta::session::client::{Client, Stats};

use crate::net::{Cut, LEASE, Net, get, is_made, make, put};

const CLIENTS: u64 = 4;
const KEYS: usize = 6;
/// Number of names that are made one after another, and looked up before and after.
const NAMES: usize = KEYS;
const RUN: Duration = Duration::from_secs(8);

/// The known state of one object.
#[derive(Default)]
struct Known {
    /// The next number; held while one is written.
    writing: tokio::sync::Mutex<u64>,
    /// No read that begins now may find less.
    least: AtomicU64,
}

fn key(at: usize) -> String {
    ["a", "a/b", "dir/x", "dir/y", "dir/deep/z", "last"][at].to_owned()
}

async fn work(
    client: Client,
    known: Arc<Vec<Known>>,
    stop: Arc<AtomicBool>,
    seed: u64,
) -> [u64; 3] {
    let rng = SeededRng::new(seed);
    let mut done = [0; 3];
    while !stop.load(Ordering::SeqCst) {
        let at = rng.next_u64() as usize % (KEYS + 1);
        if at == NAMES {
            done[usize::from(name(&client, &known[NAMES], &rng).await) * 2] += 1;
        } else if rng.next_u64().is_multiple_of(4) {
            let mut number = known[at].writing.lock().await;
            *number += 1;
            match put(&client, &key(at), *number).await {
                Ok(_) => {
                    known[at].least.fetch_max(*number, Ordering::SeqCst);
                    done[1] += 1;
                }
                Err(Error::Unavailable(_)) => done[2] += 1,
                Err(error) => panic!("{error}"),
            }
        } else {
            let least = known[at].least.load(Ordering::SeqCst);
            match get(&client, &key(at)).await {
                Ok(found) => {
                    assert!(found >= least, "{}: found {found}, not {least}", key(at));
                    // A value that was read once is not taken back.
                    known[at].least.fetch_max(found, Ordering::SeqCst);
                    done[0] += 1;
                }
                Err(Error::Unavailable(_)) => done[2] += 1,
                Err(error) => panic!("{error}"),
            }
        }
        tokio::task::yield_now().await;
    }
    done
}

/// Makes the next file, or looks for one near it. Whether it is not known what came of it.
async fn name(client: &Client, known: &Known, rng: &SeededRng) -> bool {
    let outcome = if rng.next_u64().is_multiple_of(3) {
        let mut number = known.writing.lock().await;
        let made = make(client, *number + 1).await;
        if made.is_ok() {
            *number += 1;
            known.least.fetch_max(*number, Ordering::SeqCst);
        }
        made
    } else {
        let least = known.least.load(Ordering::SeqCst);
        let near = (least + 2).saturating_sub(rng.next_u64() % 4).max(1);
        let found = is_made(client, near).await;
        if let Ok(found) = found {
            assert!(found || near > least, "{near} was made, and is not there");
            known.least.fetch_max(if found { near } else { 0 }, Ordering::SeqCst);
        }
        found.map(drop)
    };
    match outcome {
        Ok(()) => false,
        Err(Error::Unavailable(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

async fn disturb(net: Arc<Net>, cuts: Vec<Arc<Cut>>, stop: Arc<AtomicBool>, masters: bool) {
    let rng = SeededRng::new(99);
    while !stop.load(Ordering::SeqCst) {
        let cut = &cuts[rng.next_u64() as usize % cuts.len()];
        let pause = Duration::from_millis(rng.next_u64() % 300);
        match rng.next_u64() % 4 {
            0 => {
                cut.silent.store(true, Ordering::SeqCst);
                tokio::time::sleep(pause * 4).await;
                cut.silent.store(false, Ordering::SeqCst);
            }
            1 => {
                cut.no_recalls.store(true, Ordering::SeqCst);
                tokio::time::sleep(pause).await;
                cut.no_recalls.store(false, Ordering::SeqCst);
            }
            2 => cut.lose_one_in.store(rng.next_u64() % 40, Ordering::SeqCst),
            _ if masters => net.fail_over().await,
            _ => {}
        }
        tokio::time::sleep(pause).await;
    }
    for cut in &cuts {
        cut.lose_one_in.store(0, Ordering::SeqCst);
    }
}

async fn run(masters: bool) {
    let net = Net::new().await;
    let known: Arc<Vec<Known>> = Arc::new((0..=NAMES).map(|_| Known::default()).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let mut cuts = Vec::new();
    let mut clients = Vec::new();
    let mut tasks = Vec::new();
    for peer in 1..=CLIENTS {
        let (client, cut) = net.client(peer).await;
        cuts.push(cut);
        for task in 0..3 {
            let seed = peer * 10 + task;
            tasks.push(tokio::spawn(work(client.clone(), known.clone(), stop.clone(), seed)));
        }
        clients.push(client);
    }
    let disturbing = tokio::spawn(disturb(net.clone(), cuts, stop.clone(), masters));
    tokio::time::sleep(RUN).await;
    let total = |of: fn(Stats) -> u64| clients.iter().map(|client| of(client.stats())).sum::<u64>();
    // On a machine that is busy it takes longer until enough has happened.
    while total(|stats| stats.reads_leased) <= 100
        || total(|stats| stats.reads_leased + stats.reads_asked) <= 2000
        || known[..KEYS].iter().map(|known| known.least.load(Ordering::SeqCst)).sum::<u64>() <= 200
    {
        assert!(!disturbing.is_finished() && tasks.iter().all(|task| !task.is_finished()));
        tokio::time::sleep(RUN / 100).await;
    }
    stop.store(true, Ordering::SeqCst);
    disturbing.await.unwrap();
    let mut done = [0; 3];
    for task in tasks {
        let one = task.await.unwrap();
        (0..3).for_each(|at| done[at] += one[at]);
    }
    let leased = total(|stats| stats.reads_leased);
    println!("reads {}, of them leased {leased}; writes {}; unknown {}", done[0], done[1], done[2]);
    tokio::time::sleep(LEASE * 2).await;
    for (at, known) in known[..KEYS].iter().enumerate() {
        let least = known.least.load(Ordering::SeqCst);
        for client in &clients {
            assert!(get(client, &key(at)).await.unwrap() >= least);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_master() {
    run(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_masters_that_take_over() {
    run(true).await;
}
