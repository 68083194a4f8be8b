//! What the user of a mount may do in a bucket, as it is now.

use std::collections::HashMap;

use cairn_auth::{Action, Caller};
use cairn_base::{BucketId, Error, Result, UserId};
use cairn_meta::ops::buckets::{Decide, FindWritable};
use cairn_meta::{Meta, WireVerb};
use parking_lot::Mutex;

/// Buckets that are looked at in one operation.
const PAGE: usize = 1000;

/// Asks the metadata, of which a gateway has leased what it needs for this.
pub struct Rights {
    meta: Meta,
    /// Where users were found to have the right to write.
    writable: Mutex<HashMap<UserId, BucketId>>,
    /// One looks for such a bucket at a time.
    looking: tokio::sync::Mutex<()>,
}

impl Rights {
    pub fn new(meta: Meta) -> Rights {
        let (writable, looking) = (Mutex::default(), tokio::sync::Mutex::default());
        Rights { meta, writable, looking }
    }

    async fn ask<V: WireVerb + Clone>(&self, user: UserId, verb: V) -> Result<V::Reply> {
        let caller = Caller::verified(user);
        match self.meta.read_now(&caller, &verb) {
            Some(answer) => answer,
            None => self.meta.read(&caller, verb).await,
        }
    }

    /// # Errors
    /// `Denied` if not.
    pub async fn may(&self, user: UserId, action: Action, bucket: BucketId) -> Result<()> {
        self.ask(user, Decide { bucket, action }).await
    }

    /// Whether the user may write in any bucket: nobody else has a use for blocks.
    ///
    /// # Errors
    /// `Denied` if not. It names no bucket.
    pub async fn may_write_somewhere(&self, user: UserId) -> Result<()> {
        if self.may_write_as_before(user).await? {
            return Ok(());
        }
        let _turn = self.looking.lock().await;
        if self.may_write_as_before(user).await? {
            return Ok(());
        }
        let mut after = BucketId(0);
        loop {
            match self.ask(user, FindWritable { after, limit: PAGE }).await? {
                Some((bucket, true)) => {
                    self.writable.lock().insert(user, bucket);
                    return Ok(());
                }
                Some((last, false)) => after = last,
                None => {
                    let text = "blocks of a mount: this user may write in no bucket";
                    return Err(Error::Denied(text.into()));
                }
            }
        }
    }

    async fn may_write_as_before(&self, user: UserId) -> Result<bool> {
        let known = self.writable.lock().get(&user).copied();
        let Some(bucket) = known else { return Ok(false) };
        match self.may(user, Action::Write, bucket).await {
            Ok(()) => Ok(true),
            Err(Error::Denied(_)) => {
                self.writable.lock().remove(&user);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
