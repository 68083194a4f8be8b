//! Waits until one of several rows changes.

use bytes::Bytes;
use cairn_auth::{Caller, TokenHash};
use cairn_base::{BucketId, Ino, UserId};
use cairn_meta::ops::look::FolderLook;
use cairn_meta::{Meta, RowWatch, WireVerb, keys};
use futures_util::future::{pending, select_all};

use crate::Fs;

/// Receives the changes of any of several rows since it was made. Some notifications may be false.
pub struct Watching {
    rows: Vec<RowWatch>,
}

impl Watching {
    /// Returns a watch on the rows of both.
    pub fn and(mut self, other: Watching) -> Watching {
        self.rows.extend(other.rows);
        self
    }

    /// Waits for a change since the last call returned, or since this was made. Cancel safe.
    pub async fn changed(&mut self) {
        if self.rows.is_empty() {
            pending().await
        } else {
            select_all(self.rows.iter_mut().map(|row| Box::pin(row.changed()))).await;
        }
    }
}

impl Fs {
    /// Watches a login that was found here, with its access key and its user.
    pub fn watch_login(&self, user: UserId, hash: &TokenHash, access_key: &str) -> Watching {
        let keys = [keys::login(user, hash), keys::access_key(access_key), keys::user(user)];
        self.watching(keys)
    }

    /// Watches everything that a listing of a folder shows: its entries, the files that were looked
    /// at, the rights in the bucket, and the bucket's counters if the folder is the whole bucket.
    pub fn watch_folder(&self, look: &FolderLook) -> Watching {
        let steps = look.steps.iter().map(|step| keys::directory_entry(step.parent, &step.name));
        let files = look.files.iter().flatten().map(|ino| keys::inode(*ino));
        let counters = look.steps.is_empty().then(|| keys::usage(look.bucket));
        let own = [keys::bucket(look.bucket), keys::tally(look.directory())];
        self.watching(own.into_iter().chain(steps).chain(files).chain(counters))
    }

    /// Watches the list of buckets and everything that it shows of these.
    pub fn watch_buckets(&self, buckets: &[BucketId]) -> Watching {
        let rows = buckets.iter().flat_map(|bucket| [keys::bucket(*bucket), keys::usage(*bucket)]);
        self.watching(std::iter::once(keys::tally(Ino::ROOT)).chain(rows))
    }

    /// Returns whether this process is notified of all changes of the rows that a verb reads. If
    /// the master is elsewhere, there are notifications only of rows that are leased to this
    /// process.
    pub fn hears_of<V: WireVerb>(&self, caller: &Caller, verb: &V) -> bool {
        matches!(self.meta(), Meta::Local { .. }) || self.read_now(caller, verb).is_some()
    }

    fn watching(&self, keys: impl IntoIterator<Item = Bytes>) -> Watching {
        Watching { rows: keys.into_iter().map(|key| self.meta().watch(key)).collect() }
    }
}
