//! How long files of logs stay. The settings are an object of the bucket that has the files; a
//! server or a master looks at them now and then, and deletes what is too old or too much.
//!
//! Nothing is deleted but files that the intake made, of days before today. Times are those of the
//! wall clock, which may be wrong: each look leaves its time on the settings, and where a day or
//! more lies between that and now, nothing is deleted until somebody writes the settings anew.

use std::collections::BTreeMap;

use cairn_auth::Caller;
use cairn_base::{Error, Result, Timestamp, limits as store_limits};
use cairn_fs::ops::buckets::ListBuckets;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::list_objects::{ListObjects, Listed, Page};
use cairn_fs::ops::setattr::{SetTime, Setattr};
use cairn_fs::{Fs, Object};
use serde::{Deserialize, Serialize};

use crate::limits::{CLOCK_JUMP, RETENTION_BYTES};
use crate::{day, mark};

/// The key of the settings. No source has a name that begins with a dot.
pub const SETTINGS: &str = ".retention.json";
/// How the names of buckets for records begin.
pub(crate) const BUCKETS: &str = "logs-";

/// How long files of a source stay. `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Days after the day of a file.
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
    /// Of sources that have none of their own.
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
pub struct Retained {
    pub deleted: u64,
    /// Buckets of which nothing was deleted, since the clock jumped.
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

    /// Those of the files that go. They are in the order of their days.
    fn expired<'a>(&self, files: &'a [File], today: i64) -> Vec<&'a File> {
        let mut left: u64 = files.iter().map(|file| file.bytes).sum();
        let newest = files.last().map(|file| file.day);
        let goes = |file: &&File| {
            let is_old = self.days.is_some_and(|days| today - file.day > i64::from(days));
            let is_much = self.bytes.is_some_and(|bytes| left > bytes) && newest != Some(file.day);
            let goes = file.day < today && (is_old || is_much);
            left -= if goes { file.bytes } else { 0 };
            goes
        };
        files.iter().filter(goes).collect()
    }
}

/// Looks at all buckets for records once.
///
/// # Errors
/// When the buckets cannot be listed. What goes wrong in one of them is logged.
pub async fn retain(fs: &Fs) -> Result<Retained> {
    let (mut all, mut after) = (Retained::default(), String::new());
    loop {
        let prefix = BUCKETS.to_owned();
        let verb = ListBuckets { prefix, after, limit: store_limits::LIST_KEYS };
        let (buckets, next) = fs.read(&Caller::system(), verb).await?;
        for (opened, _) in buckets {
            let bucket = opened.bucket.name;
            match retain_bucket(fs, &bucket).await {
                Ok(Retained { deleted, held }) => {
                    all.deleted += deleted;
                    all.held += held;
                }
                Err(error) => tracing::warn!(bucket, %error, "old logs were not deleted"),
            }
        }
        match next {
            Some(next) => after = next,
            None => return Ok(all),
        }
    }
}

async fn retain_bucket(fs: &Fs, bucket: &str) -> Result<Retained> {
    let object = match fs.open(&Caller::system(), bucket, SETTINGS).await {
        Err(Error::NotFound(_)) => return Ok(Retained::default()),
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
        return Ok(Retained { deleted: 0, held: 1 });
    }
    let mut deleted = 0;
    let mut after = String::new();
    loop {
        let page = list(fs, (bucket, "/"), "", after).await?;
        for prefix in &page.prefixes {
            let source = prefix.trim_end_matches('/');
            let retention = settings.of(source);
            if !retention.is_unlimited() {
                deleted += retain_source(fs, (bucket, source), retention, now).await?;
            }
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let verb = Setattr { ino: object.ino(), mtime: Some(SetTime::Now), ..Setattr::default() };
    fs.run(&Caller::system(), verb).await?;
    Ok(Retained { deleted, held: 0 })
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
    (bucket, delimiter): (&str, &str),
    prefix: &str,
    after: String,
) -> Result<Page> {
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    let delimiter = delimiter.to_owned();
    let max_keys = store_limits::LIST_KEYS;
    let verb = ListObjects { bucket, prefix, delimiter, after, max_keys };
    fs.read(&Caller::system(), verb).await
}

/// Deletes what has expired of one source. Says how many files that were.
async fn retain_source(
    fs: &Fs,
    (bucket, source): (&str, &str),
    retention: Retention,
    now: Timestamp,
) -> Result<u64> {
    let (mut files, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(fs, (bucket, "/"), &format!("{source}/"), after).await?;
        files.extend(page.objects.into_iter().filter_map(|listed| file_of(bucket, listed)));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut deleted = 0;
    for file in retention.expired(&files, day::number(now)) {
        // As it was seen: somebody may have put another one there.
        let if_match = Some(EtagMatch::OneOf(vec![file.etag.clone()]));
        let conditions = Conditions { if_match, ..Conditions::default() };
        let (bucket, key) = (bucket.to_owned(), file.key.clone());
        match fs.run(&Caller::system(), DeleteObject { bucket, key, conditions }).await {
            Ok(was_there) => deleted += u64::from(was_there),
            Err(Error::PreconditionFailed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if deleted > 0 {
        tracing::info!(bucket, source, deleted, "old logs were deleted");
    }
    Ok(deleted)
}

/// A file that the intake made.
fn file_of(bucket: &str, Listed { key, ino, inode }: Listed) -> Option<File> {
    let (_, day) = mark::parse(&key)?;
    let etag = inode.etag(ino);
    let is_made = mark::is_made((bucket, &key), inode.object.as_deref());
    is_made.then_some(File { day, bytes: inode.size, etag, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(day: i64, bytes: u64) -> File {
        File { key: String::new(), day, bytes, etag: String::new() }
    }

    fn expired(retention: Retention, files: &[File], today: i64) -> Vec<i64> {
        retention.expired(files, today).into_iter().map(|file| file.day).collect()
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
