//! Whatever bytes come, the door goes on, others are served, and nothing is changed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::Rng;
use cairn_base::rng::SeededRng;
use cairn_fs::ops::exports::AddExport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::{Args, Client, MOUNT, NFS, call};
use crate::world::{World, export, run};

const PATIENCE: Duration = Duration::from_secs(300);
const SEEDS: u64 = 60;
const PORTMAP: u32 = 100_000;
/// Calls of one seed.
const CALLS: u64 = 40;

fn below(rng: &SeededRng, below: u64) -> u64 {
    rng.next_u64() % below
}

fn bytes(rng: &SeededRng, most: u64) -> Vec<u8> {
    (0..below(rng, most)).map(|_| rng.next_u64() as u8).collect()
}

/// Arguments that some procedure may take, more or less.
fn arguments(rng: &SeededRng, handle: &[u8]) -> Args {
    let mut args = Args::new();
    for _ in 0..below(rng, 8) {
        args = match below(rng, 6) {
            0 | 1 => args.bytes(handle),
            2 => args.bytes(b"name"),
            3 => args.number(below(rng, 4) as u32),
            4 => args.number(rng.next_u64() as u32),
            _ => args.bytes(&bytes(rng, 40)),
        };
    }
    args
}

/// Arguments that a procedure of NFS takes.
fn arguments_of(rng: &SeededRng, procedure: u32, handle: &[u8]) -> Args {
    let number = || rng.next_u64() as u32 >> below(rng, 32);
    let (handle, name) = (Args::new().bytes(handle), b"name");
    let named = |args: Args| args.bytes(name);
    match procedure {
        2 => handle.mode(Some(number())).number(1).number(number()).number(number()),
        4 => handle.number(number()),
        6 => handle.long(rng.next_u64()).number(number()),
        7 => {
            let data = bytes(rng, 300);
            let len = if below(rng, 4) == 0 { number() } else { data.len() as u32 };
            handle.long(rng.next_u64()).number(len).number(below(rng, 4) as u32).bytes(&data)
        }
        8 if below(rng, 2) == 0 => named(handle).number(2).long(rng.next_u64()),
        8 => named(handle).number(below(rng, 2) as u32).size(rng.next_u64()),
        9 => named(handle).mode(Some(number())),
        10 => named(handle).mode(None).bytes(&bytes(rng, 100)),
        11 => named(handle).number(below(rng, 9) as u32).mode(Some(number())),
        3 | 12 | 13 => named(handle),
        14 => Args([named(handle.clone()).0, named(handle).0].concat()),
        15 => Args([handle.clone().0, named(handle).0].concat()),
        16 | 17 => {
            let args = handle.long(rng.next_u64() >> below(rng, 64)).long(0).number(number());
            if procedure == 17 { args.number(number()) } else { args }
        }
        21 => handle.long(rng.next_u64()).number(number()),
        _ => handle,
    }
}

/// A call, with some bytes changed, missing or added.
fn nearly_a_call(rng: &SeededRng, handle: &[u8]) -> Vec<u8> {
    let of = match below(rng, 8) {
        0 | 1 => (MOUNT, 3, below(rng, 7) as u32),
        2 => (PORTMAP, 2, below(rng, 6) as u32),
        _ => (NFS, 3, below(rng, 23) as u32),
    };
    let arguments = match of {
        (NFS, _, procedure) if below(rng, 2) == 0 => arguments_of(rng, procedure, handle),
        _ => arguments(rng, handle),
    };
    let mut call = call(rng.next_u64() as u32, of, (0, 0), &arguments);
    for _ in 0..below(rng, 3) {
        let at = below(rng, call.len() as u64) as usize;
        match below(rng, 3) {
            0 => call[at] = rng.next_u64() as u8,
            1 => call.truncate(at.max(1)),
            _ => call.extend(bytes(rng, 9)),
        }
    }
    call
}

/// What one hostile client sends.
fn stream(rng: &SeededRng, handle: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..CALLS {
        let call = nearly_a_call(rng, handle);
        let len = match below(rng, 40) {
            0 => rng.next_u64() as u32,
            1 => u32::MAX,
            _ => call.len() as u32 | 1 << 31,
        };
        stream.extend(len.to_be_bytes());
        stream.extend(call);
    }
    stream.extend(bytes(rng, 300));
    stream
}

async fn names(client: &mut Client, top: &[u8]) -> Vec<String> {
    let (names, is_end) = client.list(top, 0, 1 << 16, false).await.unwrap();
    assert!(is_end);
    names.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn any_bytes_change_nothing_and_disturb_nobody() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "name").await.unwrap();
        client.write(&file, 0, b"kept", 2).await.unwrap();
        let before = names(&mut client, &top).await;
        world.export_again(AddExport { read_only: true, ..export("bucket", "alice") }).await;
        let top = client.mount("/bucket").await.unwrap();
        for seed in 0..SEEDS {
            let rng = SeededRng::new(seed);
            let mut hostile = world.client().await;
            // It may be closed before all is sent.
            let _ = hostile.stream.write_all(&stream(&rng, &top)).await;
            let _ = hostile.stream.shutdown().await;
            let mut replies = Vec::new();
            let ended = timeout(PATIENCE, hostile.stream.read_to_end(&mut replies)).await;
            assert!(ended.is_ok(), "seed {seed}: the connection stays");
            let (file, _) = client.lookup(&top, "name").await.unwrap();
            let (kept, _) = client.read(&file, 0, 100).await.unwrap();
            assert_eq!(kept, b"kept", "seed {seed}");
        }
        assert_eq!(names(&mut client, &top).await, before);
    });
}

#[test]
fn a_client_that_reads_no_replies_is_not_asked_for_more_calls() {
    const BYTES: usize = 1 << 20;
    const ASKED: u32 = 400;
    /// What is at work, what is kept, and what sockets may hold.
    const MOST: u64 = 64 + 8 + 64;
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let mut silent = world.client().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, &vec![7; BYTES], 2).await.unwrap();
        let args = Args::new().bytes(&file).long(0).number(BYTES as u32);
        for xid in 0..ASKED {
            silent.send(&call(xid, (NFS, 3, 6), (0, 0), &args)).await;
        }
        for _ in 0..300 {
            client.getattr(&file).await.unwrap();
        }
        let reads = world.door.reads.load(Ordering::SeqCst);
        assert!((1..=MOST).contains(&reads), "{reads} calls are answered, and no reply is read");
    });
}

/// Replies are of 1 MiB, each connection may have 8 of them, and all from one address 64 beyond one
/// of each.
#[test]
fn clients_at_one_address_take_so_much_together() {
    const BYTES: usize = 1 << 20;
    const CONNECTIONS: u64 = 40;
    /// Of each; sockets hold some.
    const ASKED: u64 = 16;
    const IN_SOCKETS: u64 = 4;
    const MOST: u64 = 64 + CONNECTIONS * (1 + IN_SOCKETS);
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, &vec![7; BYTES], 2).await.unwrap();
        let args = Args::new().bytes(&file).long(0).number(BYTES as u32);
        let address = [127, 0, 0, 2];
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(Client::connect_from(address, world.door.address).await);
        }
        for xid in 0..ASKED {
            for client in &mut silent {
                client.send(&call(xid as u32, (NFS, 3, 6), (0, 0), &args)).await;
            }
        }
        for _ in 0..1000 {
            client.getattr(&file).await.unwrap();
        }
        let reads = world.door.reads.load(Ordering::SeqCst);
        assert!((1..=MOST).contains(&reads), "{reads} calls are answered, and no reply is read");
    });
}

/// Calls of 1 MiB of which all but the last byte comes, from two addresses.
#[test]
fn calls_that_do_not_come_to_their_end_take_so_much_memory() {
    const CONNECTIONS: usize = 64;
    const ROOM: u64 = 128 << 20;
    const BYTES: usize = 1 << 20;
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        let mut partial = vec![0x80, 0x10, 0, 0];
        partial.resize(4 + BYTES - 1, 0);
        let mut stalled = Vec::new();
        for from in [2, 3] {
            for _ in 0..CONNECTIONS {
                let client = Client::connect_from([127, 0, 0, from], world.door.address).await;
                let (reader, mut writer) = client.stream.into_split();
                let partial = partial.clone();
                let sent = tokio::spawn(async move {
                    let _ = writer.write_all(&partial).await;
                    writer
                });
                stalled.push((reader, sent));
            }
        }
        let long = &world.door.desk.long;
        let is_full = async {
            while long.taken() < ROOM {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, is_full).await.expect("they are read as far as there is room");
        // Whoever comes now waits until somebody leaves.
        let honest = async {
            let data = vec![7; BYTES];
            client.write(&file, 0, &data, 2).await.unwrap();
            client.read(&file, 0, BYTES as u32).await.unwrap().0
        };
        let leave = async {
            for (reader, sent) in stalled {
                sent.abort();
                drop(reader);
                tokio::task::yield_now().await;
            }
        };
        let (read, ()) = tokio::join!(honest, leave);
        assert!(read == vec![7; BYTES]);
    });
}
