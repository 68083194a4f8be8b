//! Mounts say of their requests that they are sampled, and do not fill the collector with them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::trace::Trace;
use cairn_base::{SessionId, Stages, UserId, stage};
use cairn_meta::master::host::Sender;
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::session::{Attach, ReadRequest, SessionMethod};
use cairn_meta::{WireVerb, wire};

use crate::hostile::Host;

/// As a part of a request that is sampled, as its sender says.
async fn sampled<T>(work: impl Future<Output = T>) -> T {
    let mut stages = Stages::start(Trace { id: 1, span: 1, parent: 0, sampled: true });
    let mut work = pin!(work);
    std::future::poll_fn(|context| stage::during(&mut stages, || work.as_mut().poll(context))).await
}

#[tokio::test]
async fn one_user_has_so_many_a_second() {
    let host = Host::new().await;
    let exported = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&exported);
    host.sessions.export_to(Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let peers = [Sender::mount(UserId(9)), Sender::mount(UserId(10)), Sender::node(1)];
    let mut reads = Vec::new();
    for (number, peer) in (1..).zip(&peers) {
        let session = SessionId(number);
        let attach = wire::encode(&Attach { session }).unwrap();
        host.sessions.handle(peer, SessionMethod::Attach, &attach).await.unwrap();
        let (caller, fields) = (Caller::system(), wire::encode(&Getattr { ino: host.bucket }));
        let (caller, fields, verb) = (caller.to_relayed(), fields.unwrap(), Getattr::NUMBER);
        let read = ReadRequest { session, caller, verb, fields, lease: false };
        reads.push((peer, wire::encode(&read).unwrap()));
    }
    let read = async |of: usize, times: usize| {
        let before = exported.load(Ordering::SeqCst);
        for _ in 0..times {
            let (peer, message) = &reads[of];
            let read = host.sessions.handle(peer, SessionMethod::Read, message);
            sampled(read).await.unwrap();
        }
        exported.load(Ordering::SeqCst) - before
    };
    assert_eq!([read(0, 1000).await, read(0, 10).await], [250, 0]);
    assert_eq!(read(1, 10).await, 10, "another user");
    assert_eq!(read(2, 2000).await, 2000, "a node has bounded its clients");
    host.pass_now(Duration::from_secs(1));
    assert_eq!(read(0, 1000).await, 250);
}
