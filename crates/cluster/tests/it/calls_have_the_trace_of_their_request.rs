use bytes::Bytes;
use cairn_base::trace::Trace;
use cairn_base::{Scope, Stages, stage};
use cairn_cluster::wire::Peer;
use tokio::io::AsyncReadExt;

use crate::strange_bytes_end_the_connection::Raw;
use crate::support::{PATIENCE, echo, pair};

const TRACE: Trace = Trace { id: 0xabc << 100, span: 7, parent: 5, sampled: true };

/// Answers with the trace as which it works, at once or later.
fn tells(
    _: &Peer,
    method: u16,
    _: Bytes,
) -> impl Future<Output = cairn_base::Result<Bytes>> + use<> {
    async move {
        if method == 2 {
            tokio::task::yield_now().await;
        }
        let told = stage::trace().map(|trace| trace.traceparent().to_vec());
        Ok(told.unwrap_or_default().into())
    }
}

#[tokio::test]
async fn a_peer_is_told_the_trace_of_the_request_that_asks_it() {
    let (gateway, _master) = pair(tells).await;
    for method in [1, 2] {
        let asked = Box::pin(gateway.call(method, Bytes::new(), PATIENCE));
        let told = Scope::new(Some(Stages::start(TRACE)), asked).await.unwrap();
        assert_eq!(told[..], TRACE.traceparent());
        let told = gateway.call(method, Bytes::new(), PATIENCE).await.unwrap();
        assert!(told.is_empty(), "it is for no request");
    }
}

#[tokio::test]
async fn a_task_that_works_on_a_part_of_a_request_has_its_trace() {
    let (gateway, _master) = pair(tells).await;
    let asked = Box::pin(async move {
        let peer = gateway.clone();
        let part = async move { peer.call(1, Bytes::new(), PATIENCE).await };
        tokio::spawn(stage::part(part)).await.unwrap()
    });
    let told = Scope::new(Some(Stages::start(TRACE)), asked).await.unwrap();
    assert_eq!(told[..], TRACE.traceparent());
}

/// Its hello says nothing of traces, as those of former releases.
#[tokio::test]
async fn a_peer_that_reads_no_traces_is_sent_none() {
    let mut raw = Raw::with(echo).await;
    let asked = Box::pin(raw.peer.tell(9, "payload".into(), PATIENCE));
    Scope::new(Some(Stages::start(TRACE)), asked).await.unwrap();
    let mut frame = [0; 32 + 7];
    raw.stream.read_exact(&mut frame).await.unwrap();
    assert_eq!((frame[5], &frame[32..]), (0, &b"payload"[..]));
}
