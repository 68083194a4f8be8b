//! Appends lines to a bucket: `SOURCE/DAY.jsonl`.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use cairn_audit::LineSink;
use cairn_auth::{Caller, Visibility};
use cairn_base::{Error, UserId, day};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::{CreateBucket, GetBucket};
use cairn_fs::rows::BucketKind;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Deadline of an append.
const PATIENCE: Duration = Duration::from_secs(30);

/// Appends lines as the store itself: no door is involved, so the appends are not audited.
pub struct BucketSink {
    fs: Fs,
    runtime: Handle,
    bucket: String,
    source: String,
}

impl BucketSink {
    /// Makes a sink. Must be called within a runtime.
    pub fn new(fs: Fs, bucket: &str, source: &str) -> BucketSink {
        let (bucket, source) = (bucket.to_owned(), source.to_owned());
        BucketSink { fs, runtime: Handle::current(), bucket, source }
    }

    async fn append(&self, lines: Bytes) -> cairn_base::Result<()> {
        self.prepare().await?;
        let key = format!("{}/{}.jsonl", self.source, day(self.fs.clock().now()));
        self.fs.append(&Caller::system(), &self.bucket, &key, lines).await.map(|_| ())
    }

    /// Makes the bucket if there is none. The bucket of another user is refused: the user could
    /// read, change and remove the lines.
    async fn prepare(&self) -> cairn_base::Result<()> {
        let (name, system) = (self.bucket.clone(), Caller::system());
        match self.fs.read(&system, GetBucket { name: name.clone() }).await {
            Ok((opened, _)) if opened.bucket.owner == UserId::ROOT => Ok(()),
            Ok(_) => Err(Error::Denied(format!("bucket {name} is not root's: name another one"))),
            Err(Error::NotFound(_)) => {
                let (kind, visibility) = (BucketKind::Posix, Visibility::Private);
                let root = Caller::verified(UserId::ROOT);
                self.fs.meta().run(&root, CreateBucket { name, kind, visibility }).await.map(|_| ())
            }
            Err(error) => Err(error),
        }
    }
}

impl LineSink for BucketSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let lines = Bytes::copy_from_slice(lines);
        let appended = self.runtime.block_on(async { timeout(PATIENCE, self.append(lines)).await });
        appended.map_err(io::Error::from)?.map_err(io::Error::other)
    }

    /// Asks the store, which refuses if it has no room.
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        self.fs.meta().check_space().map_err(io::Error::other)
    }
}
