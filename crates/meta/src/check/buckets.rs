//! Buckets, their usage, multipart uploads and part tables.

use bytes::Bytes;
use cairn_base::{BodyId, BucketId, Result, UploadId};

use super::facts::{BucketFacts, Facts, UploadFacts};
use super::report::{About, Report};
use super::tables::{Checker, number, only_number};
use super::user_totals;
use crate::keys;
use crate::ops::user_totals::users_of;
use crate::rows::{Bucket, Content, Drain, Draining, Entry, Part, Upload, Usage};

pub fn read(checker: &mut Checker<'_>) -> Result<()> {
    checker.each_row(b'b', |key| only_number(key).map(BucketId), read_bucket)?;
    checker.each_row(b'n', |key| only_number(key).map(BucketId), read_usage)?;
    checker.each_row(b'u', parse_upload, |checker, (bucket, id), row: Upload| {
        read_upload(checker, bucket, id, row);
    })?;
    checker.each_row(b'z', |key| keys::drain_target(key), read_drain)?;
    checker.each_row(b'p', parse_part, |checker, (id, number), part: Part| {
        read_part(checker, id, number, part);
    })
}

/// Reads an entry of the root directory.
pub fn read_entry(facts: &mut Facts, report: &mut Report, name: &Bytes, entry: &Entry) {
    let bucket = facts.buckets.entry(BucketId(entry.ino.0)).or_default();
    let name = name.strip_suffix(b"/").unwrap_or(name).to_vec();
    if let Some(other) = bucket.entry.replace(name) {
        let what = format!("is also called {}", String::from_utf8_lossy(&other));
        report.add(About::Bucket(BucketId(entry.ino.0)), what);
    }
}

fn read_bucket(checker: &mut Checker<'_>, id: BucketId, row: Bucket) {
    checker.report.buckets += 1;
    let bucket = checker.facts.buckets.entry(id).or_default();
    bucket.kind = row.kind;
    bucket.owner = row.owner;
    bucket.granted = users_of(&row).skip(1).collect();
    bucket.name = Some(row.name);
    if let Err(error) = row.cors.decode() {
        checker.add_once(About::Bucket(id), format!("has rules of CORS that say: {error}"));
    }
    if let Err(error) = row.website.decode() {
        checker.add_once(About::Bucket(id), format!("has a website that says: {error}"));
    }
}

fn read_usage(checker: &mut Checker<'_>, id: BucketId, row: Usage) {
    checker.facts.buckets.entry(id).or_default().usage = Some(row);
}

fn parse_upload(key: &Bytes) -> Option<(BucketId, UploadId)> {
    Some((BucketId(number(key)?), keys::upload_parts(key)?.1))
}

fn read_upload(checker: &mut Checker<'_>, bucket: BucketId, id: UploadId, row: Upload) {
    checker.report.uploads += 1;
    let facts = &mut checker.facts;
    facts.highest_ino = facts.highest_ino.max(id.0);
    let of_bucket = facts.buckets.entry(bucket).or_default();
    of_bucket.uploads += 1;
    of_bucket.upload_bytes = of_bucket.upload_bytes.saturating_add(row.bytes);
    *facts.initiators.entry(row.initiator).or_default() += 1;
    if !checker.portion.has_upload(id) {
        return;
    }
    let upload = facts.uploads.entry(id).or_default();
    upload.counted_bytes = row.bytes;
    if upload.live.replace(bucket).is_some() {
        checker.report.add(About::Upload(id), "is there twice");
    }
}

fn read_drain(checker: &mut Checker<'_>, target: keys::DrainTarget, row: Draining) {
    let drain = row.drain;
    checker.report.drains += 1;
    let is_of_body = matches!(drain, Drain::Body | Drain::Prepared { .. });
    match target {
        keys::DrainTarget::Body(body) if is_of_body => {
            if matches!(drain, Drain::Prepared { .. }) {
                checker.facts.prepared.insert(body);
            }
            if checker.portion.has_body(body) {
                checker.facts.bodies.entry(body).or_default().drain = Some(drain);
            }
        }
        keys::DrainTarget::Upload(upload) if !is_of_body => {
            checker.facts.drains.insert(upload, drain);
            if checker.portion.has_upload(upload) {
                checker.facts.uploads.entry(upload).or_default().drain = Some(drain);
            }
        }
        other => {
            let what = format!("the drain {drain:?} is of {other:?}");
            checker.add_once(About::Store, what);
        }
    }
}

fn parse_part(key: &Bytes) -> Option<(UploadId, u32)> {
    Some((UploadId(number(key)?), keys::part_number(key)?))
}

fn read_part(checker: &mut Checker<'_>, id: UploadId, number: u32, part: Part) {
    let portion = checker.portion;
    let Checker { facts, report, .. } = checker;
    let is_passed_on = passed_on(facts.drains.get(&id).copied(), part.taken);
    if portion.has_upload(id) {
        let upload = facts.uploads.entry(id).or_default();
        upload.parts += 1;
        upload.part_bytes = upload.part_bytes.saturating_add(part.size);
        upload.taken += u64::from(is_passed_on);
        let is_loose = upload.live.is_none() && upload.drain.is_none();
        if is_loose && upload.table_of.is_none() {
            let what = format!("part {number} belongs to no upload and no object");
            report.add(About::Upload(id), what);
        }
        if is_loose && !is_passed_on && matches!(part.content, Content::Body(_)) {
            let what = format!("part {number} of a part table still has a body of its own");
            report.add(About::Upload(id), what);
        }
    }
    if let Content::Body(body) = part.content
        && !is_passed_on
        && portion.has_body(body)
    {
        let facts = facts.bodies.entry(body).or_default();
        facts.direct += 1 + u64::from(part.further_references);
        facts.longest = facts.longest.max(part.size);
        facts.is_part = true;
    }
}

/// Returns whether the references of a part have become those of the extents of a completed object.
fn passed_on(drain: Option<Drain>, taken: Option<BodyId>) -> bool {
    match drain {
        Some(Drain::Completed { body } | Drain::PartTable { body: Some(body) }) => {
            taken == Some(body)
        }
        _ => false,
    }
}

pub fn check(checker: &mut Checker<'_>) {
    let (is_first, is_counted) = (checker.portion.is_first(), checker.is_counted);
    let Checker { facts, report, .. } = checker;
    for (id, bucket) in facts.buckets.iter().filter(|_| is_first) {
        check_bucket(report, *id, bucket, facts.tree.contains_key(&id.ino()));
        if is_counted {
            check_upload_bytes(report, *id, bucket);
        }
    }
    for (id, upload) in &facts.uploads {
        check_upload(report, *id, upload);
        if is_counted && upload.live.is_some() {
            user_totals::check_upload(report, *id, upload.counted_bytes, upload.part_bytes);
        }
    }
}

fn check_bucket(report: &mut Report, id: BucketId, bucket: &BucketFacts, has_directory: bool) {
    let about = About::Bucket(id);
    let Some(name) = &bucket.name else {
        return report.add(about, format!("has {} files, but no row", bucket.objects));
    };
    if bucket.entry.as_deref() != Some(name.as_bytes()) {
        let found = bucket.entry.as_deref().map(String::from_utf8_lossy);
        let what = format!("is called {name:?}, its entry in the root {found:?}");
        report.add(about.clone(), what);
    }
    if !has_directory {
        report.add(about.clone(), format!("{name} has no directory"));
    }
    let usage = bucket.usage.clone().unwrap_or_default();
    let counted = (usage.objects, usage.bytes, u64::from(usage.uploads));
    let found = (bucket.objects, bucket.bytes, bucket.uploads);
    if bucket.usage.is_none() {
        report.add(about, format!("{name} has no usage"));
    } else if counted != found {
        let what = format!("{name} counts {counted:?} files, bytes and uploads, found {found:?}");
        report.add(about, what);
    }
}

fn check_upload_bytes(report: &mut Report, id: BucketId, bucket: &BucketFacts) {
    let (Some(name), Some(usage)) = (&bucket.name, &bucket.usage) else { return };
    let (counted, found) = (usage.upload_bytes, bucket.upload_bytes);
    if counted != found {
        let what = format!("{name} counts {counted} bytes of parts of uploads, found {found}");
        report.add(About::Bucket(id), what);
    }
}

fn check_upload(report: &mut Report, id: UploadId, upload: &UploadFacts) {
    let about = About::Upload(id);
    if upload.live.is_some() && (upload.drain.is_some() || upload.table_of.is_some()) {
        report.add(about.clone(), "is in progress, yet completed or aborted");
    }
    let Some((ino, parts)) = upload.table_of else { return };
    if matches!(upload.drain, Some(Drain::Aborted | Drain::PartTable { .. })) {
        report.add(about, format!("is up for draining, yet the part table of inode {ino}"));
        return;
    }
    // Until it is drained, it has more parts than the object.
    let found = if upload.drain.is_some() { upload.taken } else { upload.parts };
    if parts > 0 && u64::from(parts) != found {
        let what = format!("its part table has {found} of {parts} parts");
        report.add(About::Inode(ino), what);
    }
}
