//! Delegates a directory to a session.

use bytes::Bytes;
use cairn_auth::{Action, Caller};
use cairn_base::{Error, Result, Timestamp};
use tokio::sync::oneshot;

use super::op::{DelegationWish, Haste, Op, Ran, RowLease, outcome, send};
use crate::ops::namespace::authorize_in;
use crate::rows::{Bucket, Inode, Row, Usage, User};
use crate::session::{Delegate, DelegateReply};
use crate::shown::Rows;
use crate::{Context, Stop, View, keys};

/// Most entries of a directory that is delegated.
const DELEGATED_ENTRIES: usize = 4096;

pub struct DelegateOp {
    pub delegate: Delegate,
    /// User of the mount that asks; `None` for a node.
    pub to: Option<Caller>,
    pub entries: Vec<Bytes>,
    /// Rows for the session; `None` until the operation has run.
    pub rows: Option<Result<Rows>>,
    pub number: u64,
    pub sender: oneshot::Sender<Result<DelegateReply>>,
}

impl DelegateOp {
    fn check_rights(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let Some(caller) = self.to.clone() else { return Ok(()) };
        let context = Context { caller, now: Timestamp(0), batch: 0 };
        let bucket = self.delegate.bucket;
        authorize_in(view, &context, bucket, Action::GetBucketSettings)?;
        authorize_in(view, &context, bucket, Action::PutObject)
    }

    fn run(&mut self, view: &mut View<'_>) -> Result<Rows, Stop> {
        self.check_rights(view)?;
        let Delegate { directory, bucket, .. } = self.delegate;
        let (usage, inode) = (keys::usage(bucket), keys::inode(directory));
        let read_only = keys::read_only();
        let rows = [inode, keys::tally(directory), keys::bucket(bucket), read_only, usage];
        let found = view.get_all(&rows)?;
        let is_so = match &found[0] {
            Some(row) => {
                let inode = Inode::decode(row)?;
                inode.is_directory() && inode.bucket == bucket
            }
            None => false,
        };
        let quotas = found[4].as_ref().map(Usage::decode).transpose()?.unwrap_or_default();
        let has_quotas = quotas.quota_objects > 0 || quotas.quota_bytes > 0;
        if !is_so || has_quotas || owner_has_quotas(view, found[2].as_ref())? {
            return Err(
                Error::Conflict(format!("inode {directory} cannot be delegated now")).into()
            );
        }
        let (start, end) = keys::entries_from(directory, b"");
        let entries = view.scan(&start, &end, DELEGATED_ENTRIES + 1)?;
        if entries.len() > DELEGATED_ENTRIES {
            return Err(Error::TooLarge(format!(
                "inode {directory} has more than {DELEGATED_ENTRIES} entries"
            ))
            .into());
        }
        self.entries = entries.into_iter().map(|(key, _)| key).collect();
        Ok(rows.into_iter().zip(found).take(4).collect())
    }
}

/// Returns whether a bucket's owner has quotas, which a session that holds a directory could not
/// observe.
fn owner_has_quotas(view: &mut View<'_>, bucket: Option<&Bytes>) -> Result<bool, Stop> {
    let Some(bucket) = bucket.map(Bucket::decode).transpose()? else { return Ok(false) };
    let user = view.get(&keys::user(bucket.owner))?.as_ref().map(User::decode).transpose()?;
    Ok(user.is_some_and(|user| user.quotas.bytes > 0 || user.quotas.objects > 0))
}

impl Op for DelegateOp {
    fn apply(&mut self, view: &mut View<'_>, _: Timestamp, _: u64) -> Ran {
        let (ran, rows) = outcome(self.run(view));
        self.rows = rows;
        ran
    }

    fn haste(&self) -> Haste {
        Haste::Reader(Some(self.delegate.session))
    }

    fn grant(&mut self) -> Option<RowLease> {
        let rows = self.rows.as_ref()?.as_ref().ok()?;
        let keys = rows.iter().map(|(key, _)| key.clone()).collect();
        Some(RowLease { session: self.delegate.session, keys })
    }

    fn wish(&self) -> Option<DelegationWish> {
        let Delegate { session, directory, bucket } = self.delegate;
        Some(DelegationWish { directory, bucket, session })
    }

    fn granted(&mut self, number: u64) {
        self.number = number;
    }

    fn has_failed(&self) -> bool {
        matches!(self.rows, Some(Err(_)))
    }

    fn fail(&mut self, error: Error) {
        self.rows = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let DelegateOp { entries, rows, number, sender, .. } = *self;
        let delegated = |rows| DelegateReply { number, entries, rows };
        send(sender, rows.map(|rows| rows.map(delegated)));
    }
}
