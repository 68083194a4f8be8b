//! Compares the totals of each user over all buckets, and the index of buckets by user, with the
//! rows that they are counted from.

use std::collections::HashMap;

use bytes::Bytes;
use cairn_base::{BucketId, Result, UploadId, UserId};

use super::report::{About, Report};
use super::tables::Checker;
use crate::engine::Snapshot;
use crate::keys;
use crate::rows::{MasterEpochs, Row, UserTotals, decode_number};

/// Returns whether the last master, which had `epoch`, counted the totals of users. A master of an
/// earlier version does not, and its successor counts anew.
///
/// # Errors
/// Those of the snapshot; `Corrupt` for a row that cannot be read.
pub fn is_counted(snapshot: &dyn Snapshot, epoch: u64) -> Result<bool> {
    Ok(noted(snapshot)?.is_none_or(|noted| noted == epoch))
}

fn noted(snapshot: &dyn Snapshot) -> Result<Option<u64>> {
    let row = snapshot.get(&[keys::owned_epoch()])?.pop().flatten();
    row.as_ref().map(decode_number).transpose()
}

/// Returns the epoch since which ordered entries are kept; `None` if the row cannot be read.
pub fn ordered_since(snapshot: &dyn Snapshot) -> Option<u64> {
    let row = snapshot.get(&[keys::owned_epoch()]).ok()?.pop().flatten();
    let epochs = row.as_ref().map(MasterEpochs::decode).transpose().ok()?;
    Some(epochs.map_or(0, |epochs| epochs.ordered_since))
}

/// Returns whether there is anything to compare: in a store that no master of this version has
/// served, nothing was counted.
pub fn is_there(snapshot: &dyn Snapshot) -> Result<bool> {
    // A row that cannot be read is there.
    if noted(snapshot).map_or(true, |noted| noted.is_some()) {
        return Ok(true);
    }
    for (start, end) in keys::all_owned() {
        if !snapshot.scan(&start, &end, 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub fn check(checker: &mut Checker<'_>) -> Result<()> {
    if let Err(error) = noted(checker.snapshot) {
        checker.report.add(About::Row(keys::owned_epoch()), error.to_string());
    }
    let [sums, index] = keys::all_owned();
    check_sums(checker, sums)?;
    check_index(checker, index)
}

fn check_sums(checker: &mut Checker<'_>, range: (Bytes, Bytes)) -> Result<()> {
    let mut counted: HashMap<UserId, UserTotals> = HashMap::new();
    checker.each_row_within(range, keys::user_of_owned, |_, user, row: UserTotals| {
        counted.insert(user, UserTotals { unknown: Vec::new(), ..row });
    })?;
    let found = found(checker);
    let nothing = UserTotals::default();
    let mut users: Vec<&UserId> = counted.keys().chain(found.keys()).collect();
    users.sort_unstable();
    users.dedup();
    for user in users {
        let counted = counted.get(user).unwrap_or(&nothing);
        let found = found.get(user).unwrap_or(&nothing);
        if counted != found {
            let (counted, found) = (shown(counted), shown(found));
            let what = format!("for user {user} {counted} are counted, and {found} are there");
            checker.report.add(About::Store, what);
        }
    }
    Ok(())
}

/// The sums, by what buckets and uploads count.
fn found(checker: &Checker<'_>) -> HashMap<UserId, UserTotals> {
    let mut found: HashMap<UserId, UserTotals> = HashMap::new();
    let facts = &checker.facts;
    for bucket in facts.buckets.values().filter(|bucket| bucket.name.is_some()) {
        let sum = found.entry(bucket.owner).or_default();
        let usage = bucket.usage.clone().unwrap_or_default();
        sum.buckets += 1;
        sum.objects = sum.objects.saturating_add(usage.objects);
        sum.bytes = sum.bytes.saturating_add(usage.bytes);
        sum.upload_bytes = sum.upload_bytes.saturating_add(usage.upload_bytes);
    }
    for (user, uploads) in &facts.initiators {
        found.entry(*user).or_default().uploads = *uploads;
    }
    found
}

fn shown(owned: &UserTotals) -> String {
    let UserTotals { buckets, objects, bytes, upload_bytes, uploads, .. } = owned;
    format!(
        "{buckets} buckets, {objects} objects, {bytes} bytes, {uploads} uploads and {upload_bytes} \
         bytes of parts"
    )
}

fn check_index(checker: &mut Checker<'_>, range: (Bytes, Bytes)) -> Result<()> {
    let mut expected: HashMap<Bytes, (BucketId, UserId)> = HashMap::new();
    for (id, bucket) in &checker.facts.buckets {
        let Some(name) = &bucket.name else { continue };
        for user in std::iter::once(&bucket.owner).chain(&bucket.granted) {
            expected.insert(keys::bucket_of(*user, name.as_bytes()), (*id, *user));
        }
    }
    let parse = |key: &Bytes| Some(key.clone());
    checker.each_within(range, parse, decode_number, |checker, key, found| {
        let about = About::Bucket(BucketId(found));
        let shown = || String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        match expected.remove(&key) {
            Some((id, _)) if id.0 == found => {}
            Some((id, _)) => {
                let what = format!("is in the index as {:?}, which is bucket {id}", shown());
                checker.report.add(about, what);
            }
            None => {
                let what = format!("is in the index as {:?}, and should not be", shown());
                checker.report.add(about, what);
            }
        }
    })?;
    let mut missing: Vec<(BucketId, UserId, Bytes)> =
        expected.into_iter().map(|(key, (id, user))| (id, user, key)).collect();
    missing.sort_unstable();
    for (id, user, key) in missing {
        let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let what = format!("{name} is not in the index of the buckets of user {user}");
        checker.report.add(About::Bucket(id), what);
    }
    Ok(())
}

/// Compares what an upload counts with its parts.
pub fn check_upload(report: &mut Report, id: UploadId, counted: u64, found: u64) {
    if counted != found {
        let what = format!("counts {counted} bytes of parts, found {found}");
        report.add(About::Upload(id), what);
    }
}
