//! Dumps through sessions: of one state, for root, and not for mounts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result, SessionId, UserId};
use cairn_meta::dump;
use cairn_meta::engine::Engine;
use cairn_meta::master::host::{Answer, Sender};
use cairn_meta::session::{Attach, DumpRows, DumpedRows, Reply, SessionMethod};
use cairn_meta::wire;

use crate::net::{Net, caller, put};

type Rows = Vec<(Bytes, Bytes)>;

const OBJECTS: u64 = 400;

fn all_rows(net: &Net) -> Rows {
    net.engine.snapshot().unwrap().scan(b"", b"\xff", usize::MAX).unwrap()
}

/// A session of a peer that sends its messages itself.
struct Asking {
    net: Arc<Net>,
    peer: Sender,
    session: SessionId,
}

impl Asking {
    async fn new(net: &Arc<Net>, peer: Sender, session: u64) -> Asking {
        let session = SessionId(session);
        let attach = wire::encode(&Attach { session }).unwrap();
        net.sessions().handle(&peer, SessionMethod::Attach, &attach).await.unwrap();
        Asking { net: Arc::clone(net), peer, session }
    }

    async fn rows(&self, who: &Caller, dump: u64, after: Option<&Bytes>) -> Result<DumpedRows> {
        let (session, caller) = (self.session, who.to_relayed());
        let message = DumpRows { session, caller, dump, after: after.cloned() };
        let message = wire::encode(&message).unwrap();
        let sessions = self.net.sessions();
        let answer = sessions.handle(&self.peer, SessionMethod::DumpRows, &message).await?;
        let Answer::Bytes(bytes) = answer else { panic!("not an attachment") };
        match wire::decode::<Reply<DumpedRows>>(&bytes).unwrap() {
            Reply::Done(rows) => Ok(rows),
            Reply::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_state_whatever_changes_meanwhile() {
    let net = Net::new().await;
    let (client, _) = net.client(1).await;
    for n in 0..OBJECTS {
        put(&client, &format!("{n:04}"), n).await.unwrap();
    }
    let asking = Asking::new(&net, Sender::node(2), 77).await;
    let before = all_rows(&net);
    let mut page = asking.rows(&caller(), 5, None).await.unwrap();
    let batch = page.batch;
    let mut rows = page.rows.clone();
    assert!(!page.is_last && rows.len() < before.len());
    for n in (0..OBJECTS).step_by(7) {
        put(&client, &format!("{n:04}"), n + 1).await.unwrap();
    }
    put(&client, "zzzz", 1).await.unwrap();
    assert_ne!(all_rows(&net), before);
    while !page.is_last {
        let after = rows.last().unwrap().0.clone();
        page = asking.rows(&caller(), 5, Some(&after)).await.unwrap();
        let again = asking.rows(&caller(), 5, Some(&after)).await;
        assert!(page.is_last || again.unwrap().rows == page.rows, "an answer may be lost");
        assert_eq!((page.cluster, page.batch), (1, batch));
        rows.extend(page.rows.clone());
    }
    assert_eq!(rows, before);
    let after = rows.last().unwrap().0.clone();
    let over = asking.rows(&caller(), 5, Some(&after)).await;
    assert!(matches!(over, Err(Error::Unavailable(_))), "it is let go of");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_for_root_and_for_no_mount() {
    let net = Net::new().await;
    let node = Asking::new(&net, Sender::node(2), 77).await;
    for other in [Caller::verified(UserId(9)), Caller::anonymous()] {
        let refused = node.rows(&other, 1, None).await;
        assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
    }
    let mount = Asking::new(&net, Sender::mount(UserId::ROOT), 78).await;
    let refused = mount.rows(&caller(), 1, None).await;
    assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
    node.rows(&caller(), 1, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_network_that_loses_answers_and_not_from_two_masters() {
    let net = Net::new().await;
    let (client, cut) = net.client(1).await;
    for n in 0..OBJECTS {
        put(&client, &format!("{n:04}"), n).await.unwrap();
    }
    let before = all_rows(&net).len() as u64;
    cut.lose_one_in.store(4, Ordering::SeqCst);
    let mut whole = 0;
    for _ in 0..20 {
        let mut out = Vec::new();
        // A session that is attached anew may be another one: then the dump has ended.
        if let Ok(summary) = client.dump(&caller(), &mut out).await {
            let verified = dump::verify(&mut out.as_slice(), &mut |_| {}).unwrap();
            assert_eq!(verified, summary);
            assert!(summary.rows >= before, "{summary:?}");
            whole += 1;
        }
    }
    assert!(whole > 0);
    cut.lose_one_in.store(0, Ordering::SeqCst);
    let asking = Asking::new(&net, Sender::node(2), 77).await;
    let page = asking.rows(&caller(), 5, None).await.unwrap();
    net.fail_over().await;
    let asking = Asking::new(&net, Sender::node(2), 77).await;
    let (last, _) = page.rows.last().unwrap();
    let other = asking.rows(&caller(), 5, Some(last)).await;
    assert!(matches!(other, Err(Error::Unavailable(_))), "{other:?}");
}
