use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{GroupId, NodeId, Redundancy, Role};
use cairn_cluster::limits::PUT_BYTES;

use crate::support::Node;
use crate::support::data::{World, block, data, until};
use crate::support::raw::{connect, put_head};

async fn world() -> World {
    let world = World::new(2, &[(2, &[11, 12]), (1, &[11])]).await;
    world
        .write_in(
            cairn_blocks::Wish {
                redundancy: Redundancy::from_number(1),
                ..cairn_blocks::Wish::default()
            },
            1,
            &data(1, 100),
        )
        .await
        .unwrap();
    world
}

async fn ask_as(world: &World, node: &Node, request: &[u8]) -> String {
    let mut open = connect(node, &world.servers[&11].address).await;
    open.send(request).await;
    open.answer().await
}

async fn ask(world: &World, request: &[u8]) -> String {
    ask_as(world, &world.gateway, request).await
}

#[track_caller]
fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").unwrap_or(answer).get(..3).unwrap_or(answer)
}

fn blocks(world: &World) -> u64 {
    world.servers.values().map(|server| server.store.usage_now().unwrap().blocks).sum()
}

#[tokio::test]
async fn a_put_must_be_whole_and_right() {
    let world = world().await;
    let head = put_head(&world, 1, 7, 1000, &[11, 12]);
    let bytes = data(7, 1000);
    let edit = |from: &str, to: &str| {
        assert!(head.contains(from), "{from}");
        head.replacen(from, to, 1)
    };
    let epoch = {
        use cairn_cluster::data::MapSource;
        world.map.current().epoch
    };
    let bad = [
        ("400", edit("content-length: 1000", "content-length: 0")),
        ("413", edit("content-length: 1000", "content-length: 4194305")),
        ("413", edit("content-length: 1000", "content-length: 1844674407370955161")),
        ("400", edit("content-length: 1000", "transfer-encoding: chunked")),
        ("400", edit("/blocks/1/", "/blocks/01/")),
        ("400", edit("/blocks/1/5e-7", "/blocks/1/5e-7x")),
        ("400", edit("/blocks/1/5e-7", "/elsewhere")),
        ("405", edit("PUT /blocks/1/5e-7", "PUT /blocks/1")),
        ("405", edit("PUT ", "POST ")),
        ("405", edit("PUT ", "PATCH ")),
        ("400", edit("cairn-epoch", "cairn-epoc")),
        ("400", edit(&format!("cairn-epoch: {epoch}"), "cairn-epoch: -1")),
        ("503", edit(&format!("cairn-epoch: {epoch}"), "cairn-epoch: 99")),
        ("400", edit("cairn-owner: 5e-7.1", "cairn-owner: 5e-7")),
        ("400", edit("cairn-owner: 5e-7.1", "cairn-owner: 5e-7.1\r\ncairn-owner: 5e-7.1")),
        ("400", edit("cairn-crc32c: ", "cairn-crc32c: 0")),
        ("400", edit("cairn-chain: b,c", "cairn-chain: b,,c")),
        ("400", edit("cairn-chain: b,c", "cairn-chain: b,b")),
        ("400", edit("cairn-chain: b,c", "cairn-chain: 1,2,3,4,5,6,7,8,9,b,c")),
        ("409", edit("cairn-chain: b,c", "cairn-chain: b")),
        ("409", edit("cairn-chain: b,c", "cairn-chain: c")),
        ("409", edit("cairn-chain: b,c", "cairn-chain: b,c,d")),
        ("409", edit("/blocks/1/", "/blocks/9/")),
        ("400", edit("cairn-timeout-ms: 9000", "cairn-timeout-ms: soon")),
    ];
    for (expected, head) in bad {
        let answer = ask(&world, &[head.as_bytes(), &bytes].concat()).await;
        assert_eq!(status(&answer), expected, "{head}{answer}");
    }
    // Other bytes than the checksum is of; fewer than were announced.
    let answer = ask(&world, &[head.as_bytes(), &data(8, 1000)].concat()).await;
    assert_eq!(status(&answer), "400");
    assert!(answer.contains("crc32c"), "{answer}");
    let mut open = connect(&world.gateway, &world.servers[&11].address).await;
    open.send(&[head.as_bytes(), &bytes[..999]].concat()).await;
    drop(open);
    assert_eq!(blocks(&world), 1);
    // And that it was nothing else:
    let answer = ask(&world, &[head.as_bytes(), &bytes].concat()).await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert_eq!(world.holders(1, 7), [11, 12]);
}

/// A group that moves has up to twice as many members as replicas. A block that waits for the next
/// of its chain holds no room that a later place of another chain needs.
#[tokio::test]
async fn each_place_of_the_longest_chain_has_room_of_its_own() {
    let members: Vec<u64> = (11..=20).collect();
    let world = World::new(10, &[(5, &members)]).await;
    let last: Vec<u64> = members.iter().copied().rev().collect();
    let mut held = Vec::new();
    for counter in 0..(PUT_BYTES / BLOCK_BYTES) as u64 {
        let mut open = connect(&world.gateway, &world.servers[&11].address).await;
        open.send(put_head(&world, 1, counter, BLOCK_BYTES, &last).as_bytes()).await;
        held.push(open);
    }
    let server = &world.servers[&11].chunkserver;
    until(|| server.puts_in_progress() == held.len()).await;
    // In the middle of its chain: a place that is behind those of a group that does not move.
    let middle = [12, 13, 14, 15, 16, 11, 17, 18, 19, 20];
    let head = put_head(&world, 1, 99, 1000, &middle);
    let answer = ask(&world, &[head.as_bytes(), &data(99, 1000)].concat()).await;
    assert_eq!(status(&answer), "200", "{answer}");
}

fn plain(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: cairn\r\ncairn-epoch: 1\r\n{more}\r\n")
}

#[tokio::test]
async fn what_is_asked_for_must_be_clear() {
    let world = world().await;
    let range = |range: &str| plain("GET", "/blocks/2/5e-1", &format!("range: {range}\r\n"));
    let all = [
        ("200", plain("GET", "/blocks/2/5e-1", "")),
        ("206", range("bytes=0-99")),
        ("206", range("bytes=99-99")),
        ("416", range("bytes=0-100")),
        ("416", range("bytes=0-4294967290")),
        ("400", range("bytes=-5")),
        ("400", range("bytes=5-")),
        ("400", range("bytes=0-1,3-4")),
        ("404", plain("GET", "/blocks/2/5e-2", "range: bytes=0-1\r\n")),
        ("404", plain("GET", "/blocks/2/5e-2", "")),
        ("404", plain("GET", "/blocks/77/5e-1", "")),
        ("400", plain("GET", "/blocks/2/5E-1", "")),
        ("400", plain("GET", "/blocks/2/../2/5e-1", "")),
        ("200", plain("GET", "/blocks/2?limit=10", "")),
        ("200", plain("GET", "/blocks/99?limit=10", "")),
        ("400", plain("GET", "/blocks/2?limit=10000", "")),
        ("400", plain("GET", "/blocks/2", "")),
        ("400", plain("GET", "/blocks/2?limit=1&after=x", "")),
        ("200", plain("GET", "/usage", "")),
        ("400", plain("GET", "/", "")),
        ("405", plain("PUT", "/usage", "content-length: 0\r\n")),
        ("405", plain("DELETE", "/blocks/2/5e-1", "")),
        ("405", plain("HEAD", "/blocks/2/5e-1", "")),
        ("400", "GET /usage HTTP/1.1\r\nhost: cairn\r\n\r\n".into()),
        ("400", "no http at all\r\n\r\n".into()),
    ];
    for (expected, request) in all {
        let answer = ask(&world, request.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{request}{answer}");
    }
    assert_eq!(blocks(&world), 1);
}

#[tokio::test]
async fn a_deletion_must_be_clear() {
    let world = world().await;
    let epoch = world.truth.lock().epoch;
    let delete = |epoch: u64, ids: &[u8]| {
        let length = ids.len();
        let head = format!(
            "DELETE /blocks/2 HTTP/1.1\r\nhost: cairn\r\ncairn-epoch: {epoch}\r\n\
             content-length: {length}\r\n\r\n"
        );
        [head.as_bytes(), ids].concat()
    };
    let id = block(1).to_bytes();
    for (expected, request) in [
        ("400", delete(epoch, b"")),
        ("400", delete(epoch, &id[..15])),
        ("400", delete(epoch, &[&id[..], &[0]].concat())),
        ("413", delete(epoch, &[0; 16_016])),
        ("409", delete(epoch - 1, &id)),
        ("400", plain("DELETE", "/blocks/2", "").into_bytes()),
    ] {
        let answer = ask(&world, &request).await;
        assert_eq!(status(&answer), expected, "{answer}");
    }
    // Chunkservers delete nothing on others.
    let chunkserver = world.servers[&12].node.clone();
    let answer = ask_as(&world, &chunkserver, &delete(epoch, &id)).await;
    assert_eq!(status(&answer), "403", "{answer}");
    assert_eq!(blocks(&world), 1);
    let master = world.cluster.node(NodeId(77), Role::Master);
    let answer = ask_as(&world, &master, &delete(epoch, &id)).await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert_eq!(blocks(&world), 0);
    assert!(world.servers[&11].store.groups().iter().all(|group| *group != GroupId(2)));
}
