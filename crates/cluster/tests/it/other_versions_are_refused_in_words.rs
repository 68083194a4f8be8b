use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{CapabilitySet, Error, NodeId, Role};
use cairn_cluster::wire::tls::TlsDialer;
use cairn_cluster::wire::{Dial, MAGIC, Peer, VERSION_MAX, accept, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::data::World;
use crate::support::{CLUSTER, Cluster, End, GATEWAY, MASTER, Node, SECOND, echo, ends};
use crate::support::{pair::link, terms};

/// Node 2 of cluster c1 as a chunkserver, recorded before there was a second version.
const FORMER_HELLO: [&str; 2] = [
    "436169726e5769720100010023000000010110000000000000000000000000000000c10201020301",
    "0204028020050480808010",
];

/// A hello of a program that speaks other versions.
fn forged(node: NodeId, role: Role, versions: (u16, u16), refused: Option<&Error>) -> Vec<u8> {
    let mut body = Writer::new(1);
    body.bytes(1, &CLUSTER.0.to_be_bytes())
        .number(2, node.0)
        .number(3, role.number().into())
        .number(4, 100)
        .number(5, 1 << 20);
    if let Some(error) = refused {
        body.bytes(6, &error.to_bytes());
    }
    body.text(7, "cairn 99").text(300, "from the future");
    let body = body.finish();
    let (low, high) = (versions.0.to_le_bytes(), versions.1.to_le_bytes());
    [&MAGIC[..], &low, &high, &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// The refusal in a hello.
async fn refusal(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Error> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[..8], MAGIC);
    let mut body = vec![0; u32::from_le_bytes(head[12..].try_into().unwrap()) as usize];
    stream.read_exact(&mut body).await.unwrap();
    let mut fields = Fields::open(&Bytes::from(body), 1).unwrap();
    while let Some(field) = fields.next_field().unwrap() {
        if field.tag == 6 {
            return Some(Error::from_bytes(&field.value).unwrap());
        }
    }
    None
}

/// A node in this role with these versions dials a master: what it is told, and what the master
/// says of it.
async fn dials(role: Role, versions: (u16, u16)) -> (Option<Error>, Result<Peer, Error>) {
    let ends = ends();
    let accepted = tokio::spawn(async move {
        accept(link(ends.far, GATEWAY, role), &terms(MASTER, Role::Master), echo).await
    });
    let mut stream: End = ends.near;
    stream.write_all(&forged(GATEWAY, role, versions, None)).await.unwrap();
    (refusal(&mut stream).await, accepted.await.unwrap())
}

#[tokio::test]
async fn a_chunkserver_of_the_first_version_is_understood() {
    let mut ends = ends();
    let hello = cairn_sim::golden::unhex(&FORMER_HELLO.concat());
    let accepted = tokio::spawn(async move {
        let dialed = link(ends.far, GATEWAY, Role::Chunkserver);
        accept(dialed, &terms(MASTER, Role::Master), echo).await
    });
    ends.near.write_all(&hello).await.unwrap();
    assert!(refusal(&mut ends.near).await.is_none());
    let peer = accepted.await.unwrap().unwrap();
    assert_eq!((peer.info().version, peer.info().role), (1, Role::Chunkserver));
}

/// A gateway dials a master with these versions, which refuses on its own if it has words for it.
async fn is_answered(versions: (u16, u16), refused: Option<&Error>) -> Result<Peer, Error> {
    let mut ends = ends();
    ends.far.write_all(&forged(MASTER, Role::Master, versions, refused)).await.unwrap();
    let dialed = link(ends.near, MASTER, Role::Master);
    connect(dialed, &terms(GATEWAY, Role::Gateway), echo).await
}

fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[tokio::test]
async fn the_highest_version_of_both_is_spoken() {
    for (role, versions, spoken) in [
        (Role::Gateway, (2, 2), 2),
        (Role::Gateway, (1, 9), 2),
        (Role::Chunkserver, (1, 1), 1),
        (Role::Chunkserver, (1, 2), 2),
        (Role::Master, (0, 1), 1),
    ] {
        let (refused, accepted) = dials(role, versions).await;
        assert!(refused.is_none(), "{refused:?}");
        assert_eq!(accepted.unwrap().info().version, spoken, "{role} {versions:?}");
    }
    assert_eq!(is_answered((1, 2), None).await.unwrap().info().version, 2);
    assert_eq!(is_answered((2, 7), None).await.unwrap().info().version, 2);
}

#[tokio::test]
async fn who_dials_with_other_versions_is_told_what_to_upgrade() {
    let (gateway, master) = (format!("gateway {GATEWAY}"), format!("master {MASTER}"));
    for (role, versions, upgrade) in [
        (Role::Gateway, (1, 1), &gateway),
        (Role::Gateway, (3, 9), &master),
        (Role::Gateway, (0, 0), &gateway),
        (Role::Gateway, (u16::MAX, 0), &gateway),
    ] {
        let (refused, accepted) = dials(role, versions).await;
        let (low, high) = versions;
        let spoken = format!("(cairn 99) speaks versions {low} to {high} of the protocol");
        let ours = format!("versions 2 to {VERSION_MAX}: upgrade {upgrade}");
        let words = [gateway.as_str(), &master, &spoken, "(cairn 0.", &ours];
        says(&refused.unwrap(), &words);
        says(&accepted.unwrap_err(), &words);
    }
    let (refused, _) = dials(Role::Chunkserver, (3, 4)).await;
    says(&refused.unwrap(), &["versions 1 to 2: upgrade master"]);
}

#[tokio::test]
async fn who_is_dialed_with_other_versions_is_left_in_words() {
    let newer = is_answered((3, 4), None).await.unwrap_err();
    says(&newer, &["master", "speaks versions 3 to 4", &format!("upgrade gateway {GATEWAY}")]);
    // The other side's own words may say less.
    let said = Error::Invalid("upgrade the older of the two".into());
    for refused in [None, Some(&said)] {
        let older = is_answered((1, 1), refused).await.unwrap_err();
        says(&older, &["gateway", "speaks versions 1 to 1", &format!("upgrade master {MASTER}")]);
    }
    // A refusal for another reason stays what it is.
    let denied = is_answered((1, 2), Some(&Error::Denied("not you".into()))).await;
    assert!(matches!(denied, Err(Error::Denied(text)) if text == "not you"));
}

/// The bytes read over a connection that was dialed for `protocol`, after a word of this side.
async fn asks_for(protocol: &[u8], node: &Node, address: &str, word: &[u8]) -> Vec<u8> {
    let dialer = TlsDialer::speaking(protocol, node.trust.clone()).unwrap();
    let mut link = dialer.dial(address).await.unwrap();
    link.stream.write_all(word).await.unwrap();
    link.stream.flush().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(SECOND * 5, link.stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_connection_of_another_kind_of_wire_ends_with_a_hello_that_refuses() {
    let cluster = Cluster::new();
    let address = cluster.node(MASTER, Role::Master).listen().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let answer = asks_for(b"cairn-wire/7", &gateway, &address, b"whatever it is").await;
    let refused = refusal(&mut &answer[..]).await.unwrap();
    let upgrade = format!("upgrade node {MASTER}");
    says(&refused, &["cairn-wire/7", "speaks cairn-wire/1", &upgrade, "(cairn 0."]);
}

#[tokio::test]
async fn who_moves_blocks_in_another_version_gets_an_answer_that_says_so() {
    let world = World::new(1, &[(1, &[11])]).await;
    let address = &world.servers[&11].address;
    let request = b"GET /usage HTTP/1.1\r\nhost: cairn\r\ncairn-epoch: 1\r\n\r\n";
    for (protocol, upgrade) in [("cairn-blocks/2", "upgrade node 11"), ("cairn-blocks/0", "")] {
        let answer = asks_for(protocol.as_bytes(), &world.gateway, address, request).await;
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        assert!(answer.starts_with(b"HTTP/1.1 505 "));
        let error = Error::from_bytes(&Bytes::from(answer[head..].to_vec())).unwrap();
        says(&error, &[protocol, "speaks cairn-blocks/1", "node 11", upgrade]);
    }
    // Without words: what there is no such purpose for.
    let dialer = TlsDialer::speaking(b"cairn-other/1", world.gateway.trust.clone()).unwrap();
    assert!(dialer.dial(address).await.is_err());
}

/// The gateway dials a master in whose store the capabilities are on, or get turned on by `is_on`.
/// The hello of the gateway is that of this program, or of one that says nothing of capabilities.
async fn dials_where_capabilities_are_on(
    is_on: &Arc<AtomicBool>,
    hello: Option<Vec<u8>>,
) -> (Result<(), Error>, Result<Peer, Error>) {
    let (mut ends, is_on) = (ends(), Arc::clone(is_on));
    let accepted = tokio::spawn(async move {
        let mut dialed = link(ends.far, GATEWAY, Role::Gateway);
        dialed.peer.required = Arc::new(move || {
            if is_on.load(Ordering::SeqCst) { CapabilitySet::own() } else { CapabilitySet::NONE }
        });
        accept(dialed, &terms(MASTER, Role::Master), echo).await
    });
    let said = match hello {
        Some(hello) => {
            ends.near.write_all(&hello).await.unwrap();
            let refused = refusal(&mut ends.near).await.map_or(Ok(()), Err);
            let accepted = accepted.await.unwrap();
            // The stream lasts as long as the master does not end it.
            tokio::spawn(async move { ends.near.read_to_end(&mut Vec::new()).await });
            return (refused, accepted);
        }
        None => {
            let dialed = link(ends.near, MASTER, Role::Master);
            connect(dialed, &terms(GATEWAY, Role::Gateway), echo).await
        }
    };
    (said.map(|_| ()), accepted.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_program_without_a_capability_is_refused_once_it_is_on() {
    let (on, off) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let former = || Some(forged(GATEWAY, Role::Gateway, (1, 2), None));
    let (said, accepted) = dials_where_capabilities_are_on(&on, former()).await;
    let gateway = format!("gateway {GATEWAY} (cairn 99) lacks required-fields");
    says(&said.unwrap_err(), &[&gateway, "install there", "(cairn 0."]);
    says(&accepted.unwrap_err(), &[&gateway]);
    let (said, accepted) = dials_where_capabilities_are_on(&on, None).await;
    said.unwrap();
    accepted.unwrap();
    // One that is in when a capability is turned on does not stay.
    let (said, accepted) = dials_where_capabilities_are_on(&off, former()).await;
    said.unwrap();
    let peer = accepted.unwrap();
    off.store(true, Ordering::SeqCst);
    let ended = tokio::time::timeout(600 * SECOND, peer.closed()).await.unwrap();
    assert!(ended.to_string().contains("was turned on"), "{ended}");
}

#[tokio::test]
async fn a_master_without_a_capability_is_left_in_words() {
    let mut ends = ends();
    ends.far.write_all(&forged(MASTER, Role::Master, (1, 2), None)).await.unwrap();
    let mut dialed = link(ends.near, MASTER, Role::Master);
    dialed.peer.required = Arc::new(CapabilitySet::own);
    let left = connect(dialed, &terms(GATEWAY, Role::Gateway), echo).await.unwrap_err();
    says(&left, &[&format!("master {MASTER} (cairn 99) lacks required-fields")]);
}
