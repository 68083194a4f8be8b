use bytes::Bytes;
use cairn_base::{Error, Role};
use cairn_cluster::wire::frame::{Kind, header};
use cairn_cluster::wire::{Link, MAGIC, Peer, Service, Window, accept, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    End, GATEWAY, MASTER, PATIENCE, SECOND, echo, ends, pair::link, terms, unavailable,
};

/// The dialing side of a connection, byte by byte.
pub struct Raw {
    pub stream: End,
    pub peer: Peer,
}

impl Raw {
    pub async fn with(service: impl Service) -> Raw {
        Raw::windowed(service, Window::default()).await
    }

    async fn windowed(service: impl Service, window: Window) -> Raw {
        let ends = ends();
        let mut far = terms(MASTER, Role::Master);
        far.window = window;
        let accepted = tokio::spawn(async move {
            accept(link(ends.far, GATEWAY, Role::Gateway), &far, service).await
        });
        let mut stream = ends.near;
        stream.write_all(&hello(GATEWAY.0, 3)).await.unwrap();
        let mut head = [0; 16];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(head[..8], MAGIC);
        let mut body = vec![0; u32::from_le_bytes(head[12..].try_into().unwrap()) as usize];
        stream.read_exact(&mut body).await.unwrap();
        Raw { stream, peer: accepted.await.unwrap().unwrap() }
    }

    pub async fn request(&mut self, id: u64, payload: &[u8]) {
        let head = header(Kind::Request, 1, id, payload.len() as u32);
        self.stream.write_all(&[&head, payload].concat()).await.unwrap();
    }

    pub async fn skip(&mut self, mut bytes: usize) {
        let mut buffer = vec![0; 64 << 10];
        while bytes > 0 {
            let most = bytes.min(buffer.len());
            bytes -= self.stream.read(&mut buffer[..most]).await.unwrap();
        }
    }

    /// Sends these bytes; the connection must end, because of `why`.
    async fn ends(mut self, bytes: &[u8], why: &str) {
        self.stream.write_all(bytes).await.unwrap();
        let reason = self.peer.closed().await.to_string();
        assert!(reason.contains(why), "{reason}, not {why}");
        let late = self.peer.call(1, Bytes::new(), PATIENCE).await;
        unavailable(late, "not sent");
    }
}

/// The hello of node `node` in the role with number `role`.
pub fn hello(node: u64, role: u8) -> Vec<u8> {
    let mut body = cairn_base::codec::Writer::new(1);
    body.bytes(1, &crate::support::CLUSTER.0.to_be_bytes())
        .number(2, node)
        .number(3, role.into())
        .number(4, 100)
        .number(5, 1 << 20);
    let body = body.finish();
    let length = (body.len() as u32).to_le_bytes();
    [&MAGIC[..], &[1, 0, 2, 0], &length, &body].concat()
}

#[tokio::test]
async fn frames_that_no_peer_sends() {
    let with = |at: usize, value: u8| {
        let mut head = header(Kind::Request, 1, 2, 0);
        head[at] = value;
        head
    };
    let check = async |bytes: &[u8], why: &str| Raw::with(echo).await.ends(bytes, why).await;
    check(&with(4, 99), "unknown kind 99").await;
    check(&with(5, 4), "unknown flags 0x04").await;
    check(&with(3, 0xff), "at most 8388608").await;
    check(&header(Kind::Request, 1, 2, (8 << 20) + 1), "at most 8388608").await;
    check(&header(Kind::Reply, 0, 77, 0), "waits for none").await;
    check(&header(Kind::Error, 0, 77, 0), "corrupt").await;
    check(&header(Kind::GoAway, 0, 0, 0), "corrupt").await;
    check(&[0xaa; 100], "unknown kind").await;
}

#[tokio::test]
async fn an_answer_that_came_before_the_strange_bytes_counts() {
    let mut raw = Raw::with(echo).await;
    let peer = raw.peer.clone();
    let call = tokio::spawn(async move { peer.call(1, Bytes::new(), 60 * SECOND).await });
    let mut head = [0; 32];
    raw.stream.read_exact(&mut head).await.unwrap();
    let id = u64::from_le_bytes(head[8..16].try_into().unwrap());
    let answer = [&header(Kind::Reply, 0, id, 3)[..], b"yes", &[0xff; 32]].concat();
    raw.stream.write_all(&answer).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap(), "yes");
    raw.peer.closed().await;
}

#[tokio::test]
async fn a_peer_that_exceeds_the_window_is_cut_off() {
    let hold = |_: &Peer, _: u16, _: Bytes| std::future::pending();
    let window = Window { calls: 10, bytes: 10_000 };
    let one = [&header(Kind::Request, 1, 2, 8)[..], &[0; 8]].concat();
    let raw = Raw::windowed(hold, window).await;
    raw.ends(&one.repeat(11), "unanswered than the agreed window").await;
    let long = [&header(Kind::Request, 1, 2, 6000)[..], &[0; 6000]].concat();
    let raw = Raw::windowed(hold, window).await;
    raw.ends(&long.repeat(2), "unanswered than the agreed window").await;
}

#[tokio::test]
async fn a_half_closed_connection_fails_its_calls_at_once() {
    let mut raw = Raw::with(echo).await;
    let peer = raw.peer.clone();
    let call = tokio::spawn(async move { peer.call(1, Bytes::new(), 3600 * SECOND).await });
    let mut head = [0; 32];
    raw.stream.read_exact(&mut head).await.unwrap();
    raw.stream.shutdown().await.unwrap();
    let failed = call.await.unwrap();
    unavailable(failed, "closed by the peer; whether the call was carried out is unknown");
    unavailable(raw.peer.call(1, Bytes::new(), PATIENCE).await, "not sent");
}

#[tokio::test]
async fn half_a_frame_and_the_end_is_the_end() {
    let mut raw = Raw::with(echo).await;
    raw.stream.write_all(&header(Kind::Request, 1, 2, 100)).await.unwrap();
    raw.stream.write_all(&[0; 99]).await.unwrap();
    drop(raw.stream);
    assert!(raw.peer.closed().await.to_string().contains("closed by the peer"));
}

/// The connecting side's error if the acceptor says this.
async fn greeted_with(bytes: &[u8]) -> Error {
    let ends = ends();
    let mut far = ends.far;
    far.write_all(bytes).await.unwrap();
    far.shutdown().await.unwrap();
    let link: Link = link(ends.near, MASTER, Role::Master);
    connect(link, &terms(GATEWAY, Role::Gateway), echo).await.unwrap_err()
}

#[tokio::test]
async fn a_hello_that_does_not_fit_says_why() {
    let check = async |bytes: &[u8], why: &str| {
        let error = greeted_with(bytes).await;
        assert!(error.to_string().contains(why), "{error}, not {why}");
    };
    let good = hello(MASTER.0, 1);
    let mut newer = good.clone();
    newer[8..12].copy_from_slice(&[7, 0, 9, 0]);
    check(&newer, "versions 7 to 9 of the protocol, gateway 2 (").await;
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the protocol").await;
    check(&hello(MASTER.0 + 1, 1), "node 1 says that it is node 2").await;
    check(&hello(MASTER.0, 3), "node 1 says that it is a gateway, but joined as master").await;
    check(&hello(MASTER.0, 200), "a role that this version does not know").await;
    check(&good[..20], "hello").await;
    let mut other = good.clone();
    let at = other.windows(16).position(|w| w == crate::support::CLUSTER.0.to_be_bytes());
    other[at.unwrap()] ^= 1;
    check(&other, "this node is in cluster c1, the other").await;
}

#[tokio::test]
async fn who_is_refused_is_told_why() {
    let ends = ends();
    let far = tokio::spawn(async move {
        let from = link(ends.far, GATEWAY, Role::Gateway);
        accept(from, &terms(MASTER, Role::Master), echo).await.map(|_| ())
    });
    let mut terms = terms(GATEWAY, Role::Chunkserver);
    terms.expects = Some(Role::Master);
    let to = link(ends.near, MASTER, Role::Master);
    let refused = connect(to, &terms, echo).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Denied(text) if text.contains("says that it is a chunkserver"))
    );
    assert!(matches!(far.await.unwrap(), Err(Error::Denied(_))));
}
