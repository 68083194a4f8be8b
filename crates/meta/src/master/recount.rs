//! Recounts the usage of users from scratch if a master of an earlier version, which does not count
//! it, has changed buckets meanwhile; and voids the ordered entries of directories if one has led
//! that does not keep them.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_base::{BucketId, Error, Result, UploadId, UserId};

use crate::engine::{Change, CommitError, Engine, Fence, Snapshot};
use crate::keys;
use crate::ops::user_totals::users_of;
use crate::rows::{Bucket, MasterEpochs, Part, Row, Upload, Usage, UserTotals, encode_number};

/// Rows that are read, or committed, at a time.
const PAGE: usize = 1000;

/// Returns the changes that a master that took over with `fence` has to commit, page by page,
/// before it serves, so that the usage of users is right. There are none if there is no bucket.
///
/// The former master had the epoch before. If `c owned_epoch` has that epoch, it counted. If that
/// row also says since when ordered entries are kept, it kept them.
///
/// # Errors
/// Those of the engine; `Corrupt` for a row that cannot be read.
pub fn plan(engine: &dyn Engine, fence: Fence) -> Result<Vec<Vec<Change>>> {
    let snapshot = engine.snapshot()?;
    let noted = snapshot.get(&[keys::owned_epoch()])?.pop().flatten();
    let noted = noted.as_ref().map(MasterEpochs::decode).transpose()?;
    if noted.is_none() && snapshot.scan(b"b", b"c", 1)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut plan = Plan::default();
    let counted = noted.filter(|noted| noted.counted.wrapping_add(1) == fence.epoch);
    if counted.is_none() {
        plan.drop_all(&*snapshot)?;
        plan.count(&*snapshot)?;
    }
    plan.turn();
    let epochs = counted.unwrap_or_default();
    let ordered_since = match epochs.ordered_since {
        0 => fence.epoch,
        since => since,
    };
    let epochs = MasterEpochs { counted: fence.epoch, ordered_since, ..epochs };
    plan.put(keys::owned_epoch(), epochs.encode());
    plan.turn();
    Ok(plan.pages)
}

/// Returns the fence after a commit of [`plan`].
///
/// # Errors
/// Those of the engine; `Unavailable` if another master took over, or the outcome is unknown.
pub fn committed(fence: Fence, outcome: Result<(), CommitError>) -> Result<Fence> {
    match outcome {
        Ok(()) => Ok(Fence { batch: fence.batch + 1, ..fence }),
        Err(CommitError::Failed(error) | CommitError::Poisoned(error)) => Err(error),
        Err(CommitError::Unknown(error)) => {
            Err(Error::Unavailable(format!("what belongs to users is not counted: {error}")))
        }
        Err(CommitError::Fenced { found }) => Err(Error::Unavailable(format!(
            "another master took over meanwhile: it has epoch {}",
            found.epoch
        ))),
    }
}

/// The changes to commit. A key is in a page at most once.
#[derive(Default)]
struct Plan {
    pages: Vec<Vec<Change>>,
    page: Vec<Change>,
}

impl Plan {
    fn turn(&mut self) {
        if !self.page.is_empty() {
            self.pages.push(std::mem::take(&mut self.page));
        }
    }

    fn push(&mut self, change: Change) {
        self.page.push(change);
        if self.page.len() >= PAGE {
            self.turn();
        }
    }

    fn put(&mut self, key: Bytes, row: Bytes) {
        self.push((key, Some(row)));
    }

    /// Deletes all former counts.
    fn drop_all(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        for (start, end) in keys::all_owned() {
            each(snapshot, &start, &end, &mut |key, _| {
                self.push((key, None));
                Ok(())
            })?;
        }
        self.turn();
        Ok(())
    }

    fn count(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        let mut owned: BTreeMap<UserId, UserTotals> = BTreeMap::new();
        each(snapshot, b"b", b"c", &mut |key, row| {
            let id = number(&key)?;
            let bucket = Bucket::decode(&row)?;
            for user in users_of(&bucket) {
                let key = keys::bucket_of(user, bucket.name.as_bytes());
                self.put(key, encode_number(id));
            }
            let usage_key = keys::usage(BucketId(id));
            let usage = snapshot.get(std::slice::from_ref(&usage_key))?.pop().flatten();
            let mut usage = usage.as_ref().map(Usage::decode).transpose()?.unwrap_or_default();
            let upload_bytes = self.count_uploads(snapshot, BucketId(id), &mut owned)?;
            if usage.upload_bytes != upload_bytes {
                usage.upload_bytes = upload_bytes;
                self.put(usage_key, usage.encode());
            }
            let of_owner = owned.entry(bucket.owner).or_default();
            of_owner.buckets += 1;
            of_owner.objects = of_owner.objects.saturating_add(usage.objects);
            of_owner.bytes = of_owner.bytes.saturating_add(usage.bytes);
            of_owner.upload_bytes = of_owner.upload_bytes.saturating_add(upload_bytes);
            Ok(())
        })?;
        for (user, row) in owned {
            self.put(keys::owned(user), row.encode());
        }
        Ok(())
    }

    /// Counts the unfinished uploads of a bucket. Returns the bytes of their parts.
    fn count_uploads(
        &mut self,
        snapshot: &dyn Snapshot,
        bucket: BucketId,
        owned: &mut BTreeMap<UserId, UserTotals>,
    ) -> Result<u64> {
        let (start, end) = keys::uploads_from(bucket, b"");
        let mut all = 0_u64;
        each(snapshot, &start, &end, &mut |key, row| {
            let mut upload = Upload::decode(&row)?;
            owned.entry(upload.initiator).or_default().uploads += 1;
            let (_, id) = keys::upload_parts(&key)
                .ok_or_else(|| Error::corrupt("key of an upload", key.len(), "18"))?;
            let bytes = part_bytes(snapshot, id)?;
            all = all.saturating_add(bytes);
            if upload.bytes != bytes {
                upload.bytes = bytes;
                self.put(key, upload.encode());
            }
            Ok(())
        })?;
        Ok(all)
    }
}

fn part_bytes(snapshot: &dyn Snapshot, upload: UploadId) -> Result<u64> {
    let (start, end) = keys::parts_from(upload, 0);
    let mut bytes = 0_u64;
    each(snapshot, &start, &end, &mut |_, row| {
        bytes = bytes.saturating_add(Part::decode(&row)?.size);
        Ok(())
    })?;
    Ok(bytes)
}

fn number(key: &[u8]) -> Result<u64> {
    let number = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
    number.ok_or_else(|| Error::corrupt("key of a bucket", key.len(), 9))
}

/// Calls `visit` with each row of a range, page by page.
fn each(
    snapshot: &dyn Snapshot,
    start: &[u8],
    end: &[u8],
    visit: &mut dyn FnMut(Bytes, Bytes) -> Result<()>,
) -> Result<()> {
    let mut next = start.to_vec();
    loop {
        let rows = snapshot.scan(&next, end, PAGE)?;
        let is_last = rows.len() < PAGE;
        for (key, row) in rows {
            next = [&key[..], b"\0"].concat();
            visit(key, row)?;
        }
        if is_last {
            return Ok(());
        }
    }
}
