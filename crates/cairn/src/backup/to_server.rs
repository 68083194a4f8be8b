//! A state of a backup, or a part of it, into a server that runs.
//!
//! ```text
//!   repository ── rows ──► metadata in a scratch directory ──► Fs ──► session ──► server
//!        └────────────── blocks, when they are read ────────────┘        (or a gateway)
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_auth::SealKey;
use cairn_base::BucketId;
use cairn_fs::rows::BucketKind;

use super::accounts::{Accounts, users_of};
use super::destination::Destination;
use super::hidden;
use super::report::RestoreReport;
use super::repository::Repository;
use super::selection::Selection;
use super::settings::{self, Settings, StoredBucket};
use super::state::BackupState;
use super::stored::{Scratch, StoredState};
use super::tree::{BucketPair, Task, Tree, Walk};
use crate::connection::Connection;
use crate::failure::Result;
use crate::output;

/// Parts of a backup to restore, and how.
pub struct Order {
    /// The only bucket; `None` for the whole store.
    pub bucket: Option<String>,
    /// Bucket of the server, if it is another one.
    pub into: Option<String>,
    pub selection: Selection,
    pub task: Task,
    pub jobs: usize,
    /// Directory for the metadata while this runs.
    pub scratch: PathBuf,
    /// Key of the secrets in the backup.
    pub seal: Option<SealKey>,
}

pub fn run(
    repository: Repository,
    state: &BackupState,
    connection: &Connection,
    order: &Order,
) -> Result<RestoreReport> {
    let server = Arc::new(connection.open()?);
    let scratch = Scratch::make(&order.scratch)?;
    let stored = StoredState::open(repository, state, &scratch, order.jobs)?;
    let done = stored.runtime.block_on(async {
        let there = Destination::open(connection, &server).await?;
        let report = RestoreReport::default();
        let restore = Restore { stored: &stored, there: &there, report: &report, order };
        let done = restore.run().await;
        there.close().await;
        done.map(|()| report)
    });
    stored.close();
    done
}

struct Restore<'a> {
    stored: &'a StoredState,
    there: &'a Destination,
    report: &'a RestoreReport,
    order: &'a Order,
}

impl Restore<'_> {
    async fn run(&self) -> Result<()> {
        let buckets = settings::list(self.stored, self.order.bucket.as_deref()).await?;
        self.walk(&buckets, self.order.task, self.report).await?;
        if matches!(self.order.task, Task::Restore { .. }) {
            let compared = self.report.of_comparison();
            self.walk(&buckets, Task::Compare { bytes: false }, &compared).await?;
            self.report.add_failures(compared);
        }
        Ok(())
    }

    /// Goes over everything that is selected once.
    async fn walk(
        &self,
        buckets: &[StoredBucket],
        task: Task,
        report: &RestoreReport,
    ) -> Result<()> {
        let Restore { stored, there, order, .. } = *self;
        let seal = order.seal.as_ref();
        let accounts = Accounts { stored, there, report, task, seal };
        if order.bucket.is_none() {
            accounts.credentials().await?;
        }
        let users = users_of(there)?;
        let is_whole = order.selection.is_whole();
        let settings = Settings { there, report, task, users: &users, is_whole };
        let mut names: BTreeMap<BucketId, String> = BTreeMap::new();
        for bucket in buckets {
            let name = order.into.as_ref().unwrap_or(&bucket.bucket.name);
            let Some((id, kind)) = settings.apply(bucket, name).await? else { continue };
            let pair = BucketPair {
                source: bucket.bucket.name.clone(),
                source_root: bucket.id.ino(),
                target: name.to_owned(),
                target_root: id.ino(),
                takes_both: kind == BucketKind::S3,
            };
            self.bucket(&pair, task, report).await?;
            settings.close(bucket, name, id).await?;
            self.root(&pair, task, report).await?;
            if name == &bucket.bucket.name && is_whole {
                names.insert(bucket.id, name.clone());
            }
        }
        accounts.exports(&names).await?;
        accounts.share_links(&names).await
    }

    /// Goes over the contents of a bucket.
    async fn bucket(&self, pair: &BucketPair, task: Task, report: &RestoreReport) -> Result<()> {
        let bar = output::bytes_bar(0, &pair.target);
        let tree = Tree::new(self.settings_of_walk(&bar, task, report), pair);
        tree.run().await?;
        if tree.hides.load(Ordering::Relaxed) {
            hidden::run(&tree).await?;
        }
        tree.end().await?;
        tree.prepare_root().await?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Finishes the directory of a bucket.
    async fn root(&self, pair: &BucketPair, task: Task, report: &RestoreReport) -> Result<()> {
        let bar = output::bytes_bar(0, &pair.target);
        let done = Tree::new(self.settings_of_walk(&bar, task, report), pair).finish_root().await;
        bar.finish_and_clear();
        done
    }

    fn settings_of_walk<'b>(
        &'b self,
        bar: &'b indicatif::ProgressBar,
        task: Task,
        report: &'b RestoreReport,
    ) -> Walk<'b> {
        let Restore { stored, there, order, .. } = *self;
        let (selection, jobs) = (&order.selection, order.jobs);
        Walk { stored, there, report, bar, selection, task, jobs }
    }
}
