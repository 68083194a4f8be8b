//! Replies to calls that act once, kept for clients that resend a call because they got no reply.
//! Two calls are the same if the client, the call's number and all of its bytes are. The store
//! remembers calls that were done before this process started, or by another process.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::limits::{REPLIED_CLIENTS, REPLIES, REPLY_KEPT};

/// Identifies a call among those of its client.
pub type Checksum = [u8; 16];
/// The reply, which is empty while the call is at work.
type Kept = Arc<OnceCell<Bytes>>;

#[derive(Default)]
pub struct Replies(Mutex<Clients>);

#[derive(Default)]
struct Clients {
    clients: HashMap<IpAddr, Client>,
    turn: u64,
}

#[derive(Default)]
struct Client {
    replies: HashMap<Checksum, Kept>,
    /// Checksums in the order in which the calls first arrived, with that time.
    order: VecDeque<(Checksum, Instant)>,
    /// Turn of its last call.
    turn: u64,
}

/// Returns the checksum of a whole call.
pub fn checksum(call: &[u8]) -> Checksum {
    let mut checksum = [0; 16];
    let whole = digest(&SHA256, call);
    checksum.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
    checksum
}

impl Replies {
    /// Returns the reply to a call, and does its `work` only once, to its end. `work` returns
    /// `None` if the outcome of the call is unknown: nothing is kept then, and the next copy of the
    /// call does its `work` again.
    pub async fn once<F: Future<Output = Option<Bytes>>>(
        &self,
        client: IpAddr,
        call: Checksum,
        work: F,
    ) -> Option<Bytes> {
        let kept = self.find(client, call);
        let done = kept.get_or_try_init(|| async move { work.await.ok_or(()) }).await;
        done.ok().cloned()
    }

    fn find(&self, address: IpAddr, key: Checksum) -> Kept {
        let mut state = self.0.lock();
        state.turn += 1;
        let turn = state.turn;
        if state.clients.len() >= REPLIED_CLIENTS && !state.clients.contains_key(&address) {
            let oldest = state.clients.iter().min_by_key(|(_, client)| client.turn);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                state.clients.remove(&oldest);
            }
        }
        let client = state.clients.entry(address).or_default();
        client.turn = turn;
        // A client that restarted may number its calls as before.
        let is_old = |(_, since): &mut (Checksum, Instant)| since.elapsed() > REPLY_KEPT;
        while let Some((old, _)) = client.order.pop_front_if(is_old) {
            client.replies.remove(&old);
        }
        if let Some(kept) = client.replies.get(&key) {
            return Arc::clone(kept);
        }
        if client.order.len() >= REPLIES
            && let Some((oldest, _)) = client.order.pop_front()
        {
            client.replies.remove(&oldest);
        }
        let kept = Kept::default();
        client.order.push_back((key, Instant::now()));
        client.replies.insert(key, Arc::clone(&kept));
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_call_is_done_once_and_so_is_one_that_is_at_work() {
        let (replies, done) = (Replies::default(), AtomicU32::new(0));
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let ask = async |last: u8, call: &'static [u8]| {
            let work = async {
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::SeqCst);
                Some(Bytes::from_static(call))
            };
            replies.once(address(last), checksum(call), work).await.unwrap()
        };
        let (one, other) = tokio::join!(ask(1, b"call"), ask(1, b"call"));
        assert_eq!((one, other), (Bytes::from_static(b"call"), Bytes::from_static(b"call")));
        ask(1, b"call").await;
        assert_eq!(done.load(Ordering::SeqCst), 1);
        ask(1, b"another").await;
        ask(2, b"call").await;
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_call_of_which_nothing_is_known_is_done_anew() {
        let (replies, done) = (Replies::default(), AtomicU32::new(0));
        let address = IpAddr::from([10, 0, 0, 1]);
        let ask = async || {
            let work = async {
                tokio::task::yield_now().await;
                let times = done.fetch_add(1, Ordering::SeqCst);
                (times == 1).then(|| Bytes::from_static(b"reply"))
            };
            replies.once(address, checksum(b"call"), work).await
        };
        // The second one waited for the first.
        let both = tokio::join!(ask(), ask());
        assert_eq!(both, (None, Some(Bytes::from_static(b"reply"))));
        assert_eq!(ask().await, Some(Bytes::from_static(b"reply")));
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_of_long_ago_is_not_given_again() {
        let (replies, done) = (Replies::default(), AtomicU32::new(0));
        let address = IpAddr::from([10, 0, 0, 1]);
        let ask = async || {
            let work = async {
                done.fetch_add(1, Ordering::SeqCst);
                Some(Bytes::from_static(b"reply"))
            };
            replies.once(address, checksum(b"call"), work).await.unwrap();
            done.load(Ordering::SeqCst)
        };
        assert_eq!(ask().await, 1);
        tokio::time::advance(REPLY_KEPT).await;
        assert_eq!(ask().await, 1);
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        assert_eq!(ask().await, 2);
        assert_eq!(ask().await, 2);
    }

    #[test]
    fn memory_is_bounded() {
        let replies = Replies::default();
        for call in 0..3 * REPLIES {
            replies.find(IpAddr::from([10, 0, 0, 1]), checksum(&call.to_be_bytes()));
        }
        for client in 0..2 * REPLIED_CLIENTS as u32 {
            replies.find(IpAddr::from(client.to_be_bytes()), checksum(b"call"));
        }
        let state = replies.0.lock();
        assert_eq!(state.clients.len(), REPLIED_CLIENTS);
        assert!(state.clients.values().all(|client| client.replies.len() <= REPLIES));
    }
}
