//! The operations that a session runs on its own, and sends later:
//! docs/decisions/0016-delegated-directories.md.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, SessionId, stage};
use tokio::time::timeout;

use super::inner::{Forgotten, Inner};
use crate::erased::keeping;
use crate::ops::sessions::ReserveInodes;
use crate::session::connection::Attachment;
use crate::session::kept_operations::KeptOperations;
use crate::session::link::{LostCall, MasterLink, call};
use crate::session::messages::{
    Delegate, DelegateReply, ExecuteReply, GiveBack, Reply, RunPosted, SessionMethod,
};
use crate::session::operation::Operation;
use crate::session::posted_operations::{Asking, Post, Poster, RESERVED};
use crate::session::slots::SlotGuard;
use crate::{WireVerb, keys, wire};

/// Time that the creator of the first file in a directory waits for the answer whether the
/// directory is delegated.
const ASKED: Duration = Duration::from_millis(250);

impl Inner {
    /// Runs an operation here, if that needs no waiting.
    pub fn post<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<V::Reply> {
        if !V::POSTS || self.keeper.is_none() {
            return None;
        }
        let attachment = self.posts.may_post(&verb.changes())?;
        self.post_in(self.slots().take_now()?, attachment, caller, verb)
    }

    fn post_in<V: WireVerb>(
        &self,
        slot: SlotGuard,
        attachment: u64,
        caller: &Caller,
        verb: &V,
    ) -> Option<V::Reply> {
        if !self.lease.is_valid() {
            return None;
        }
        let poster = Poster {
            session: self.session(),
            attachment,
            caller,
            now: self.clock.now(),
            monotonic: self.clock.monotonic(),
        };
        let mut reply = None;
        let operation = || Operation::new(caller, verb);
        self.posts.post(&self.rows, poster, slot, &mut keeping(verb, &mut reply), &operation)?;
        self.forgotten(Forgotten::Changing(&verb.changes()));
        reply
    }

    /// Posts like [`Inner::post`]; asks for the directory first, if that is worthwhile.
    pub async fn post_or_ask<V: WireVerb>(
        self: &Arc<Inner>,
        caller: &Caller,
        verb: &V,
    ) -> Option<V::Reply> {
        if !V::POSTS || self.keeper.is_none() {
            return None;
        }
        let changes = verb.changes();
        let (slot, attachment) = self.ask_to_post(&changes).await?;
        self.post_in(slot, attachment, caller, verb)
    }

    /// Returns a slot in which operations that change these rows may be posted, and the attachment.
    async fn ask_to_post(self: &Arc<Inner>, changes: &[Bytes]) -> Option<(SlotGuard, u64)> {
        let directory = changes.iter().find_map(|key| keys::directory_of(key));
        if let Some(directory) = directory
            && self.posts.may_ask(&self.rows, directory).is_some()
        {
            let inner = Arc::clone(self);
            let asking = async move { inner.ask_in_turn(directory).await };
            let asking = tokio::spawn(stage::part(asking));
            // The answer may wait for the master's disk. Meanwhile, an operation of others in the
            // directory ends the attempt.
            if timeout(ASKED, asking).await.is_err() {
                self.posts.refused(directory);
            }
        }
        let attachment = self.posts.may_post(changes)?;
        Some((self.slots().take().await?, attachment))
    }

    /// Asks for the directory; others wait until it is known whether it is delegated.
    async fn ask_in_turn(&self, directory: Ino) {
        let _asking = self.posts.asking.lock().await;
        if let Some(asked) = self.posts.may_ask(&self.rows, directory) {
            self.posts.asks();
            self.ask_for(directory, asked).await;
        }
    }

    async fn ask_for(&self, directory: Ino, asked: Asking) {
        let mark = self.rows.mark();
        let Ok(Attachment { session, link, .. }) = self.connection.attached().await else { return };
        self.counters.calls.fetch_add(1, Ordering::Relaxed);
        let delegate = Delegate { session, directory, bucket: asked.bucket };
        match call::<_, DelegateReply>(&*link, SessionMethod::Delegate, &delegate).await {
            Ok(Reply::Done(mut delegated)) => {
                for (key, row) in std::mem::take(&mut delegated.rows) {
                    self.rows.offer(mark, key, row);
                }
                let now = self.clock.monotonic();
                self.posts.delegated(directory, asked, delegated, now);
            }
            Ok(Reply::Failed(error)) => {
                tracing::debug!(%directory, %error, "not delegated");
                self.posts.refused(directory);
            }
            Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => self.connection.lost(&link),
        }
    }

    /// Has inode numbers reserved before they are needed, if there are few: operations behind that
    /// wait for the disk as well.
    fn reserve_if_due(self: &Arc<Inner>) {
        if self.posts.needs_numbers()
            && let Ok(reserving) = Arc::clone(&self.posts.reserving).try_lock_owned()
        {
            let inner = Arc::clone(self);
            tokio::spawn(async move {
                let _reserving = reserving;
                match inner.reserve().await {
                    Ok(()) | Err(Error::Unavailable(_)) => {}
                    Err(error) => {
                        tracing::debug!(%error, "no numbers of inodes are reserved");
                        inner.posts.do_without_numbers();
                    }
                }
            });
        }
    }

    /// Has inode numbers reserved.
    async fn reserve(&self) -> Result<()> {
        let session = self.session();
        let reserve = ReserveInodes { session, count: RESERVED };
        let operation = Arc::new(Operation::durable(&Caller::system(), &reserve)?);
        let (first, end) = wire::decode(&self.send(&operation).await.reply?)?;
        if session == self.session() {
            self.posts.reserved(first, end);
        }
        Ok(())
    }

    /// Sends posted operations when there are some, and gives back directories that are recalled or
    /// idle.
    pub async fn send_what_was_posted(self: &Arc<Inner>) {
        let Some(keeper) = &self.keeper else { return };
        self.posts.work().await;
        self.reserve_if_due();
        let batch = self.posts.batch();
        let given = self.posts.to_give_back(self.clock.monotonic());
        if batch.is_empty() && given.is_empty() {
            return;
        }
        let Ok(attachment) = self.connection.attached_at_last().await else { return };
        let is_sent = tokio::select! {
            biased;
            sent = self.send_some(keeper, &attachment, batch, given) => sent.is_ok(),
            () = self.connection.detached(&attachment.link) => false,
        };
        if !is_sent {
            self.connection.lost(&attachment.link);
        }
    }

    async fn send_some(
        &self,
        keeper: &KeptOperations,
        attachment: &Attachment,
        batch: Vec<Arc<Post>>,
        directories: Vec<(Ino, u64)>,
    ) -> Result<(), LostCall> {
        let Attachment { session, link, number, .. } = attachment;
        if !directories.is_empty() {
            // From here on it is no longer known which names do not exist.
            let key = |(directory, number): &(Ino, u64)| keys::delegation(*directory, *number);
            let gone: Vec<Bytes> = directories.iter().map(key).collect();
            self.rows.overlaid(&gone);
            self.forgotten(Forgotten::Rows(&gone));
            let give_back = GiveBack { session: *session, directories };
            match call::<_, ()>(&**link, SessionMethod::GiveBack, &give_back).await? {
                Reply::Done(()) => {}
                _ => return Err(LostCall("the master did not take directories back".into())),
            }
        }
        if batch.is_empty() {
            Ok(())
        } else {
            self.send_batch(keeper, *session, *number, &**link, batch).await
        }
    }

    /// Has the master of an attachment run the first of the posted operations.
    ///
    /// # Errors
    /// `LostCall`: the master may have run them, and they must be sent again.
    pub async fn send_batch(
        &self,
        keeper: &KeptOperations,
        session: SessionId,
        attachment: u64,
        link: &dyn MasterLink,
        batch: Vec<Arc<Post>>,
    ) -> Result<(), LostCall> {
        let mark = self.rows.mark();
        let to_post = |post: &Arc<Post>| {
            let run = post.operation.in_slot(session, &post.slot);
            post.operation.to_post(run, post.ino, post.time)
        };
        let posted = RunPosted { session, operations: batch.iter().map(to_post).collect() };
        self.counters.calls.fetch_add(1, Ordering::Relaxed);
        let answer =
            call::<_, Vec<Result<ExecuteReply>>>(link, SessionMethod::RunPosted, &posted).await?;
        let ran = match answer {
            Reply::Done(ran) => ran,
            Reply::Failed(error) => {
                let failed = |_: &Arc<Post>| Err(Error::Invalid(error.to_string()));
                batch.iter().map(failed).collect()
            }
            Reply::NotAttached | Reply::NotServing(_) => {
                return Err(LostCall("the master does not serve".into()));
            }
        };
        if !keeper.keep_posted(attachment, &batch, &ran) {
            return Err(LostCall("the master may have been replaced meanwhile".into()));
        }
        let (wrong, lost) = self.posts.confirm(&self.rows, mark, &batch, ran);
        if lost > 0 {
            keeper.lose(lost);
            self.forgotten(Forgotten::Rows(&wrong));
        }
        Ok(())
    }
}
