//! A client that asks without end, over many connections, costs another one no more than its share.
//! What is counted are calls, not time. There is one thread, so that nothing else decides.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::watch;

use crate::client::{Args, Client, NFS, call};
use crate::world::{World, run_on_one_thread};

/// Connections of the client that asks without end.
const CONNECTIONS: usize = 64;
/// Calls that each of them sends at once. All fit into the connection.
const AT_ONCE: u32 = 128;
/// Calls of the other client, one after the other.
const CALLS: u32 = 20;
/// Calls that others have answered meanwhile, for each: those of some turns, and far fewer than of
/// one turn of each connection.
const MOST: u64 = 24 * 64;

fn connect(world: &World, from: [u8; 4], stopped: &watch::Receiver<bool>) -> DuplexStream {
    let (client, server) = duplex(256 << 10);
    let (desk, stopped) = (Arc::clone(&world.door.desk), stopped.clone());
    tokio::spawn(async move {
        let (reader, writer) = split(server);
        let (address, place) = (IpAddr::from(from), Arc::new(()));
        let _ = cairn_nfs::converse(reader, writer, address, place, desk, stopped).await;
    });
    client
}

fn record(call: &[u8]) -> Vec<u8> {
    [&(call.len() as u32 | 1 << 31).to_be_bytes()[..], call].concat()
}

async fn receive(stream: &mut DuplexStream) -> Vec<u8> {
    let mark = stream.read_u32().await.unwrap();
    let mut reply = vec![0; (mark & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).await.unwrap();
    reply
}

/// Asks for the same again and again, and reads all replies.
async fn ask_without_end(mut stream: DuplexStream, call: Vec<u8>) {
    let calls = record(&call).repeat(AT_ONCE as usize);
    loop {
        stream.write_all(&calls).await.unwrap();
        for _ in 0..AT_ONCE {
            receive(&mut stream).await;
        }
    }
}

/// Calls that the many connections of one client have answered while one connection of another
/// client has one call answered.
async fn counted(world: &World, file: &[u8], others: [u8; 4]) -> u64 {
    let (stop, stopped) = watch::channel(false);
    let read = Args::new().bytes(file).long(0).number(100);
    let read = call(7, (NFS, 3, 6), (0, 0), &read);
    let asking: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let stream = connect(world, others, &stopped);
            tokio::spawn(ask_without_end(stream, read.clone()))
        })
        .collect();
    let mut one = connect(world, [127, 0, 0, 1], &stopped);
    let getattr = call(8, (NFS, 3, 1), (0, 0), &Args::new().bytes(file));
    let mut before = 0;
    for turn in 0..=CALLS {
        if turn == 1 {
            // All are there by now.
            before = world.door.reads.load(Ordering::SeqCst);
        }
        one.write_all(&record(&getattr)).await.unwrap();
        assert_eq!(receive(&mut one).await[..4], 8u32.to_be_bytes());
    }
    let answered = world.door.reads.load(Ordering::SeqCst) - before;
    asking.iter().for_each(|task| task.abort());
    stop.send_replace(true);
    assert!(answered > 0, "the others were served as well");
    answered / u64::from(CALLS)
}

#[test]
fn a_client_with_many_connections_costs_another_no_more_than_some_turns() {
    run_on_one_thread(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        // The door counts who is connected over the network.
        let others = [127, 0, 0, 2];
        let mut connected = Client::connect_from(others, world.door.address).await;
        connected.getattr(&file).await.unwrap();
        let meanwhile = counted(&world, &file, others).await;
        assert!(meanwhile <= MOST, "{meanwhile} calls of another client for each");
    });
}
