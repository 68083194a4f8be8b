//! Deletes old files of logs. The settings are an object of the bucket that has the files; a server
//! or a master looks at them regularly, and deletes files that are too old or too much.
//!
//! Only files that the intake made are deleted, of days before today. Times are those of the wall
//! clock, which may be wrong: each look leaves the time at which it began on the settings. If a day
//! or more lies between that time and now, nothing is deleted until the settings are written anew.

use std::collections::{BTreeMap, VecDeque};

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, Timestamp};
use cairn_fs::ops::buckets::ListBuckets;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::list_objects::{ListObjects, ListedObject, Page};
use cairn_fs::ops::setattr::{SetTime, Setattr};
use cairn_fs::{Fs, Object};
use serde::{Deserialize, Serialize};

use crate::limits::{CLOCK_JUMP, RETENTION_BYTES, RETENTION_NAMES};
use crate::paths::BUCKETS;
use crate::{day, mark};

/// Key of the settings. No source has a name that begins with a dot.
pub const SETTINGS: &str = ".retention.json";

/// Limits on the files of a source. `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Number of days that a file stays after its own day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Bytes of all files. The newest file stays in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The settings of a bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSettings {
    /// Limits of sources without limits of their own.
    #[serde(default)]
    pub all: Retention,
    #[serde(default)]
    pub sources: BTreeMap<String, Retention>,
}

impl RetentionSettings {
    fn of(&self, source: &str) -> Retention {
        self.sources.get(source).copied().unwrap_or(self.all)
    }
}

/// The result of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionSummary {
    pub deleted: u64,
    /// Number of buckets in which nothing was deleted because the clock jumped.
    pub held: u64,
}

/// A file of a source.
struct File {
    key: String,
    day: i64,
    bytes: u64,
    etag: String,
}

impl Retention {
    fn is_unlimited(&self) -> bool {
        *self == Retention::default()
    }
}

/// Looks at all buckets for records once, without pauses.
///
/// # Errors
/// The error if the buckets cannot be listed. Errors in one of them are logged.
pub async fn retain(fs: &Fs) -> Result<RetentionSummary> {
    let mut look = RetentionLook::default();
    while !look.step(fs).await? {}
    Ok(look.retained)
}

/// A look at all buckets for records, in steps. A step lists a few names at most, and deletes files
/// among them. The memory of a look does not grow with the number of files.
pub struct RetentionLook {
    pub retained: RetentionSummary,
    buckets: VecDeque<String>,
    /// Name after which the list of buckets continues.
    after: Option<String>,
    bucket: Option<BucketLook>,
}

impl Default for RetentionLook {
    fn default() -> RetentionLook {
        let (retained, after) = (RetentionSummary::default(), Some(String::new()));
        RetentionLook { retained, buckets: VecDeque::new(), after, bucket: None }
    }
}

impl RetentionLook {
    /// Does a step. Returns true after the last step.
    ///
    /// # Errors
    /// The error if the buckets cannot be listed. Errors in one of them are logged.
    pub async fn step(&mut self, fs: &Fs) -> Result<bool> {
        if let Some(look) = &mut self.bucket {
            match look.step(fs, &mut self.retained).await {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(error) => warn(&look.bucket, &error),
            }
            self.bucket = None;
            return Ok(false);
        }
        if let Some(bucket) = self.buckets.pop_front() {
            match BucketLook::begin(fs, &bucket, &mut self.retained).await {
                Ok(look) => self.bucket = look,
                Err(error) => warn(&bucket, &error),
            }
            return Ok(false);
        }
        let Some(after) = self.after.take() else { return Ok(true) };
        let prefix = BUCKETS.to_owned();
        let verb = ListBuckets { prefix, after, limit: RETENTION_NAMES };
        let (buckets, next) = fs.read(&Caller::system(), verb).await?;
        self.buckets.extend(buckets.into_iter().map(|(opened, _)| opened.bucket.name));
        self.after = next;
        Ok(false)
    }
}

fn warn(bucket: &str, error: &Error) {
    tracing::warn!(bucket, %error, "old logs were not deleted");
}

/// A look at one bucket.
struct BucketLook {
    bucket: String,
    /// Inode of the settings.
    ino: Ino,
    settings: RetentionSettings,
    /// Time at which the look began: only this time was compared with the look before.
    now: Timestamp,
    sources: VecDeque<String>,
    /// Name after which the list of sources continues.
    after: Option<String>,
    source: Option<SourceLook>,
}

impl BucketLook {
    /// Begins a look. Returns `None` if nothing is to be deleted.
    async fn begin(
        fs: &Fs,
        bucket: &str,
        retained: &mut RetentionSummary,
    ) -> Result<Option<BucketLook>> {
        let object = match fs.open(&Caller::system(), bucket, SETTINGS).await {
            Err(Error::NotFound(_)) => return Ok(None),
            object => object?,
        };
        let settings = read(&object).await?;
        let (seen, now) = (object.inode().mtime, fs.clock().now());
        if now.0.abs_diff(seen.0) > CLOCK_JUMP.as_nanos() as u64 {
            let (seen, now) = (day::rfc3339(seen), day::rfc3339(now));
            tracing::error!(
                bucket,
                seen,
                now,
                "the clock jumped, or no server ran for a day: no logs are deleted until \
                 `cairn logs retention --confirm` says that it is right"
            );
            retained.held += 1;
            return Ok(None);
        }
        let (bucket, ino, after) = (bucket.to_owned(), object.ino(), Some(String::new()));
        let (sources, source) = (VecDeque::new(), None);
        Ok(Some(BucketLook { bucket, ino, settings, now, sources, after, source }))
    }

    /// Does a step. Returns true after the last step.
    async fn step(&mut self, fs: &Fs, retained: &mut RetentionSummary) -> Result<bool> {
        if let Some(look) = &mut self.source {
            let is_over = look.step(fs, &self.bucket, day::number(self.now)).await;
            if !matches!(is_over, Ok(false)) {
                look.end(&self.bucket, retained);
                self.source = None;
            }
            return is_over.map(|_| false);
        }
        while let Some(source) = self.sources.pop_front() {
            let retention = self.settings.of(&source);
            if !retention.is_unlimited() {
                self.source = Some(SourceLook::new(source, retention));
                return Ok(false);
            }
        }
        if let Some(after) = self.after.take() {
            let page = list(fs, &self.bucket, "/", "", after).await?;
            let names = page.prefixes.iter().map(|prefix| prefix.trim_end_matches('/').to_owned());
            self.sources.extend(names);
            self.after = page.next;
            return Ok(false);
        }
        // Not the present time: if the clock jumped meanwhile, the next look must notice.
        let verb =
            Setattr { ino: self.ino, mtime: Some(SetTime::At(self.now)), ..Setattr::default() };
        match fs.run(&Caller::system(), verb).await {
            // The settings were written anew meanwhile, with a time of their own.
            Ok(_) | Err(Error::NotFound(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// A look at one source: first the sum of its files, if there is a limit on bytes, then the
/// deletions.
struct SourceLook {
    source: String,
    retention: Retention,
    is_summed: bool,
    /// Bytes of all files that are left.
    bytes: u64,
    newest: Option<i64>,
    after: String,
    deleted: u64,
}

impl SourceLook {
    fn new(source: String, retention: Retention) -> SourceLook {
        let is_summed = retention.bytes.is_none();
        let (bytes, newest, after) = (0, None, String::new());
        SourceLook { source, retention, is_summed, bytes, newest, after, deleted: 0 }
    }

    /// Does a step. Returns true after the last step.
    async fn step(&mut self, fs: &Fs, bucket: &str, today: i64) -> Result<bool> {
        let after = std::mem::take(&mut self.after);
        let page = list(fs, bucket, "/", &format!("{}/", self.source), after).await?;
        for file in page.objects.into_iter().filter_map(|listed| file_of(bucket, listed)) {
            if !self.is_summed {
                self.sum(&file);
            } else if self.expires(&file, today) && delete(fs, bucket, file).await? {
                self.deleted += 1;
            }
        }
        let is_last = page.next.is_none();
        self.after = page.next.unwrap_or_default();
        let was_summed = self.is_summed;
        self.is_summed |= is_last;
        Ok(is_last && was_summed)
    }

    fn sum(&mut self, file: &File) {
        self.bytes += file.bytes;
        self.newest = Some(file.day);
    }

    /// Returns whether a file is to be deleted. Must be called in the order of the files' days.
    fn expires(&mut self, file: &File, today: i64) -> bool {
        let Retention { days, bytes } = self.retention;
        let is_old = days.is_some_and(|days| today - file.day > i64::from(days));
        let is_much =
            bytes.is_some_and(|bytes| self.bytes > bytes) && self.newest != Some(file.day);
        let goes = file.day < today && (is_old || is_much);
        self.bytes = self.bytes.saturating_sub(if goes { file.bytes } else { 0 });
        goes
    }

    fn end(&self, bucket: &str, retained: &mut RetentionSummary) {
        retained.deleted += self.deleted;
        if self.deleted > 0 {
            let (source, deleted) = (&self.source, self.deleted);
            tracing::info!(bucket, source, deleted, "old logs were deleted");
        }
    }
}

/// Deletes a file unless it has changed since it was listed.
async fn delete(fs: &Fs, bucket: &str, file: File) -> Result<bool> {
    let if_match = Some(EtagMatch::OneOf(vec![file.etag]));
    let conditions = Conditions { if_match, ..Conditions::default() };
    let verb = DeleteObject { bucket: bucket.to_owned(), key: file.key, conditions };
    match fs.run(&Caller::system(), verb).await {
        Err(Error::PreconditionFailed(_)) => Ok(false),
        was_there => was_there,
    }
}

async fn read(object: &Object) -> Result<RetentionSettings> {
    if object.size() == 0 || object.size() > RETENTION_BYTES {
        return Err(Error::Invalid(format!("{SETTINGS}: 1 to {RETENTION_BYTES} bytes")));
    }
    let json = object.read_all(0..object.size()).await?;
    serde_json::from_slice(&json).map_err(|error| Error::Invalid(format!("{SETTINGS}: {error}")))
}

pub(crate) async fn list(
    fs: &Fs,
    bucket: &str,
    delimiter: &str,
    prefix: &str,
    after: String,
) -> Result<Page> {
    let (bucket, prefix, delimiter) = (bucket.to_owned(), prefix.to_owned(), delimiter.to_owned());
    let max_keys = RETENTION_NAMES;
    let verb = ListObjects { bucket, prefix, delimiter, after, max_keys };
    fs.read(&Caller::system(), verb).await
}

/// Returns a listed file, if the intake made it.
fn file_of(bucket: &str, ListedObject { key, ino, inode }: ListedObject) -> Option<File> {
    let (_, day) = mark::parse(&key)?;
    let etag = inode.etag(ino);
    let is_made = mark::is_made(bucket, &key, inode.object.as_deref());
    is_made.then_some(File { day, bytes: inode.size, etag, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(day: i64, bytes: u64) -> File {
        File { key: String::new(), day, bytes, etag: String::new() }
    }

    fn expired(retention: Retention, files: &[File], today: i64) -> Vec<i64> {
        let mut look = SourceLook::new(String::new(), retention);
        files.iter().for_each(|file| look.sum(file));
        files.iter().filter(|file| look.expires(file, today)).map(|file| file.day).collect()
    }

    #[test]
    fn files_expire_by_age_and_by_bytes() {
        let files = [file(1, 5), file(3, 100), file(4, 10), file(9, 10)];
        let days = |days| Retention { days: Some(days), bytes: None };
        let bytes = |bytes| Retention { days: None, bytes: Some(bytes) };
        assert!(expired(Retention::default(), &files, 1000).is_empty());
        assert_eq!(expired(days(6), &files, 10), [1, 3]);
        assert_eq!(expired(days(0), &files, 10), [1, 3, 4, 9]);
        assert_eq!(expired(days(0), &files, 9), [1, 3, 4], "today's stays");
        assert_eq!(expired(days(0), &files, 2), [1], "so do those of days to come");
        assert!(expired(bytes(125), &files, 10).is_empty());
        assert_eq!(expired(bytes(124), &files, 10), [1]);
        assert_eq!(expired(bytes(20), &files, 10), [1, 3]);
        assert_eq!(expired(bytes(0), &files, 10), [1, 3, 4], "the newest stays");
        let both = Retention { days: Some(8), bytes: Some(110) };
        assert_eq!(expired(both, &files, 10), [1, 3]);
    }

    #[test]
    fn settings_are_read_and_nothing_else_is() {
        let read = serde_json::from_str::<RetentionSettings>;
        let settings = read(r#"{"all":{"days":7},"sources":{"a":{"bytes":5},"b":{}}}"#).unwrap();
        assert_eq!(settings.of("x").days, Some(7));
        assert_eq!(settings.of("a"), Retention { days: None, bytes: Some(5) });
        assert!(settings.of("b").is_unlimited());
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(read(&text).unwrap(), settings);
        for bad in ["", "7", r#"{"all":{"day":7}}"#, r#"{"al":{}}"#, r#"{"all":{"days":-1}}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
