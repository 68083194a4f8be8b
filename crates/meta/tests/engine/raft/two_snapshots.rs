//! Two leaders send a snapshot to one member, one after another.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::Later;
use cairn_meta::engine::raft::message::{Envelope, Message, Reply, encode, parse_reply};
use cairn_meta::engine::raft::{Member, Peers, Seams, Timing, Vote};
use cairn_sim::SimDisk;
use tokio::time::Instant;

use super::group::{Inline, RuntimeClock};
use super::model::MEMBER;
use super::snapshots::source;
use crate::support::small;

/// Nobody answers.
struct Nobody;

impl Peers for Nobody {
    fn send(&self, _: u64, _: Bytes) -> Later<Result<Bytes>> {
        Box::pin(pending())
    }
}

async fn say(member: &Arc<Member>, from: u64, message: Message) -> Reply {
    let envelope = Envelope { generation: 0, from, to: MEMBER };
    let bytes = encode(envelope, &message).unwrap();
    parse_reply(&member.receive(from, bytes).await).unwrap()
}

/// The library counts on a snapshot from when it was given to it.
#[tokio::test(start_paused = true)]
async fn one_that_is_complete_is_installed_though_another_begins() {
    let seams = Seams {
        peers: Arc::new(Nobody),
        clock: Arc::new(RuntimeClock(Instant::now())),
        rng: Arc::new(SeededRng::new(1)),
        threads: Some(Arc::new(Inline)),
    };
    let disk = Arc::new(SimDisk::new(1));
    let member = Member::open(disk, small(1), MEMBER, seams, Timing::default()).await.unwrap();
    let source = source();
    let mut outgoing = source.take_snapshot().unwrap();
    let taken = outgoing.taken.clone();
    let vote = |term, member| Vote { term, member, committed: true };
    let begin = Message::Begin { vote: vote(3, 1), transfer: 1, taken: taken.clone() };
    assert_eq!(say(&member, 1, begin).await, Reply::Heard);
    let mut pages = 0;
    while let Some(page) = outgoing.page().unwrap() {
        let rows = page.into_iter().map(|(key, row)| (key, Some(row))).collect();
        let page = Message::Page { transfer: 1, number: pages, rows };
        assert_eq!(say(&member, 1, page).await, Reply::Heard);
        pages += 1;
    }
    let end = Message::End { vote: vote(3, 1), transfer: 1, pages };
    let begin = Message::Begin { vote: vote(4, 2), transfer: 2, taken };
    let (ended, begun) = tokio::join!(say(&member, 1, end), say(&member, 2, begin));
    assert_eq!((ended, begun), (Reply::Installed { vote: vote(3, 1) }, Reply::Heard));
    assert_eq!(member.fence(), source.fence());
    // The library goes on.
    let ask = Message::Ask { last: None };
    assert_eq!(say(&member, 1, ask).await, Reply::Asked { yes: false });
}
