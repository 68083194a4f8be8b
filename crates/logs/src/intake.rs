//! The step from records to lines in the day files of their sources.
//!
//! A future is as large as the largest future that it waits for, and is moved with each call: so
//! futures that are rarely waited for are boxed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use cairn_auth::{Caller, Principal, Visibility};
use cairn_base::{Error, Result, UserId, limits as store_limits};
use cairn_fs::Fs;
use cairn_fs::ops::append_once::AppendedOnce;
use cairn_fs::ops::buckets::{CreateBucket, FindBucket};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::for_call::CallId;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::rows::BucketKind;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use crate::batch::{Lines, RecordBatch};
use crate::counts::{Counts, Protocol, add};
use crate::gather::{Gather, HeldMemory};
use crate::limits::{FILES_AT_ONCE, REMEMBERED, SOURCES, SOURCES_FRESH};
use crate::paths::{LogPaths, PathTemplate};
use crate::{levels, mark};

/// Takes records for users, into buckets of theirs.
pub struct Intake {
    gather: Arc<Gather>,
    paths: Arc<LogPaths>,
    names: Mutex<HashMap<UserId, String>>,
    sources: Mutex<HashMap<String, Sources>>,
    counts: Arc<Counts>,
}

/// Sources of a bucket.
struct Sources {
    names: HashSet<String>,
    /// Monotonic time at which they were listed.
    since: Duration,
}

/// The outcome of a request. All records that it does not list are durable.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of records of the request.
    pub records: usize,
    /// Records that would be refused again, by their number, with the reason.
    pub refused: Vec<(usize, Error)>,
    /// Records that could not be stored now, by their number, with the reason.
    pub failed: Vec<(usize, Error)>,
}

/// Checksum that identifies a request which its user may send again.
pub type Key = [u8; 32];

/// Returns the checksum of a request, over the parts that identify it.
pub fn key_of(parts: &[&[u8]]) -> Key {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend_from_slice(digest(&SHA256, part).as_ref());
    }
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, &all).as_ref());
    key
}

/// Returns the identity of a user's request, from its checksum.
pub fn call_of(user: UserId, key: &Key) -> CallId {
    let mut checksum = [0; 16];
    checksum.copy_from_slice(&key[..16]);
    CallId::of_user(user, checksum)
}

/// The file for the lines of a source.
struct Place<'a> {
    bucket: &'a str,
    /// Name of the source, as it is in the path.
    source: String,
    file: String,
    /// True if the bucket is made when it is missing.
    is_own: bool,
}

/// The lines to be appended to one file, and the numbers of their records.
struct Piece {
    lines: Bytes,
    records: Vec<usize>,
}

impl Intake {
    pub fn new(fs: Fs) -> Intake {
        let (names, sources) = (Mutex::default(), Mutex::default());
        let (paths, counts) = (Arc::default(), Arc::default());
        Intake { gather: Gather::new(fs), paths, names, sources, counts }
    }

    /// Sets the templates for the paths of records.
    pub fn set_paths(&mut self, paths: Arc<LogPaths>) {
        self.paths = paths;
    }

    pub fn gather(&self) -> &Arc<Gather> {
        &self.gather
    }

    fn fs(&self) -> &Fs {
        self.gather.fs()
    }

    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Returns an empty batch for records that arrive now.
    pub fn batch(&self) -> RecordBatch {
        RecordBatch::new(self.fs().clock().now())
    }

    /// Stores records. All that are not in the outcome are durable then. With a `key`, records that
    /// were stored for the same request before are not stored again.
    ///
    /// # Errors
    /// The error that kept all of them from being stored, such as an unknown user.
    pub async fn push(
        &self,
        caller: &Caller,
        protocol: Protocol,
        batch: RecordBatch,
        key: Option<Key>,
        held: HeldMemory,
    ) -> Result<Outcome> {
        let count = self.counts.of(protocol);
        let records = batch.records;
        let (bucket, template) = match self.bucket(caller).await {
            Ok(found) => found,
            Err(error) => {
                add(&count.failed, records);
                return Err(error);
            }
        };
        let RecordBatch { received, lines, refused, .. } = batch;
        let mut outcome = Outcome { records, refused, failed: Vec::new() };
        let day = cairn_base::day(received);
        let mut all = Vec::new();
        for lines in lines {
            match self.component(&bucket, template, protocol, &lines.source).await {
                Ok(component) => all.push((component, lines)),
                Err(error) => {
                    let is_final = matches!(error, Error::TooLarge(_) | Error::Invalid(_));
                    let told = if is_final { &mut outcome.refused } else { &mut outcome.failed };
                    let numbers = lines.ends.iter().map(|(_, number)| *number);
                    told.extend(numbers.map(|number| (number, error.copy())));
                }
            }
        }
        let each = all.into_iter().map(|(component, lines)| {
            let place = Place {
                file: mark::file(&component, &day),
                source: component,
                bucket: &bucket,
                is_own: template.is_own(),
            };
            Box::pin(self.store(caller, place, lines, key.as_ref(), &held))
        });
        let mut each = stream::iter(each).buffer_unordered(FILES_AT_ONCE);
        while let Some(failed) = each.next().await {
            outcome.failed.extend(failed);
        }
        outcome.failed.sort_by_key(|(number, _)| *number);
        outcome.refused.sort_by_key(|(number, _)| *number);
        add(&count.accepted, records - outcome.refused.len() - outcome.failed.len());
        add(&count.refused, outcome.refused.len());
        add(&count.failed, outcome.failed.len());
        Ok(outcome)
    }

    /// Appends the lines of one source, and returns what failed.
    async fn store(
        &self,
        caller: &Caller,
        Place { bucket, source: component, file, is_own }: Place<'_>,
        lines: Lines,
        key: Option<&Key>,
        held: &HeldMemory,
    ) -> Vec<(usize, Error)> {
        // The source as it was sent: a request is the same although a template was changed.
        let (source, levels) = (lines.source.clone(), lines.levels);
        let (mut failed, mut missed) = (Vec::new(), None);
        for (at, Piece { lines, records }) in pieces(lines).into_iter().enumerate() {
            let key = key.map(|key| key_of(&[key, source.as_bytes(), &at.to_be_bytes()]));
            let place = (bucket, file.as_str());
            // If a piece fails, all later pieces of the file fail, too: the sender sends them
            // again, in order.
            let mut stored = match &missed {
                Some(error) => Err(Error::copy(error)),
                None => self.append(caller, place, lines.clone(), held, key.as_ref()).await,
            };
            if is_own && matches!(stored, Err(Error::NotFound(_))) {
                stored = match Box::pin(self.create(caller, bucket)).await {
                    Ok(()) => self.append(caller, place, lines, held, key.as_ref()).await,
                    Err(error) => Err(error),
                };
            }
            if let Err(error) = stored {
                tracing::warn!(bucket, file, %error, records = records.len(), "records not stored");
                failed.extend(records.into_iter().map(|number| (number, error.copy())));
                missed = Some(error);
            }
        }
        if failed.is_empty() {
            levels::add(bucket, &component, &levels);
        }
        failed
    }

    async fn append(
        &self,
        caller: &Caller,
        place: (&str, &str),
        lines: Bytes,
        held: &HeldMemory,
        key: Option<&Key>,
    ) -> Result<()> {
        let (bucket, file) = place;
        let made = mark::made(bucket, file);
        match key {
            None => {
                let held = Arc::clone(held);
                self.gather.append(caller, bucket, file, lines, made, held).await.map(|_| ())
            }
            Some(key) => {
                let call = call_of(caller.user(), key);
                let appending = self.fs().append_once(caller, call, place, lines, made);
                let (_, appended) = Box::pin(appending).await?;
                if let AppendedOnce::Before(offset) = appended {
                    tracing::debug!(offset, "records that were stored before");
                }
                Ok(())
            }
        }
    }

    async fn create(&self, caller: &Caller, bucket: &str) -> Result<()> {
        self.fs().check_new_bucket(caller, bucket)?;
        let (name, kind) = (bucket.to_owned(), BucketKind::Posix);
        let verb = CreateBucket { name, kind, visibility: Visibility::Private };
        match self.fs().run(caller, verb).await {
            Ok(_) => {
                tracing::info!(bucket, "a bucket for records of logs was made");
                Ok(())
            }
            // Another request has made it.
            Err(Error::Exists(_)) => self.check_owner(caller.user(), bucket).await,
            Err(error) => Err(error),
        }
    }

    /// Checks that the bucket belongs to the user: otherwise records would go to another user, who
    /// made a bucket of that name.
    async fn check_owner(&self, user: UserId, bucket: &str) -> Result<()> {
        let verb = FindBucket { name: bucket.to_owned() };
        let found = match self.fs().read_now(&Caller::system(), &verb) {
            Some(found) => found?,
            None => Box::pin(self.fs().read(&Caller::system(), verb)).await?,
        };
        match found {
            Some(opened) if opened.bucket.owner != user => Err(Error::Denied(format!(
                "bucket {bucket} belongs to another user: an administrator must give its name free"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the bucket for records of a user.
    async fn bucket(&self, caller: &Caller) -> Result<(String, &PathTemplate)> {
        let Principal::User(user) = caller.principal() else {
            return Err(Error::Denied("records of logs belong to a user: send credentials".into()));
        };
        let name = self.name_of(user).await?;
        let template = self.paths.of(&name);
        let bucket = template.bucket(&name);
        // A bucket that the operator has named is written to with the rights of each user.
        if template.is_own() {
            self.check_owner(user, &bucket).await?;
        }
        Ok((bucket, template))
    }

    async fn name_of(&self, user: UserId) -> Result<String> {
        if let Some(name) = self.names.lock().get(&user) {
            return Ok(name.clone());
        }
        let name = Box::pin(self.fs().read(&Caller::system(), UserName { user })).await?;
        let missing = || Error::Denied("the user of these credentials is not known".into());
        let name = name.ok_or_else(missing)?;
        let mut names = self.names.lock();
        if names.len() >= REMEMBERED {
            names.clear();
        }
        names.insert(user, name.clone());
        Ok(name)
    }

    /// Returns the component of a path for a source, if the bucket may have such a source.
    async fn component(
        &self,
        bucket: &str,
        template: &PathTemplate,
        protocol: Protocol,
        source: &str,
    ) -> Result<String> {
        let component = template.source(protocol, source)?;
        self.check_source(bucket, &component).await?;
        Ok(component)
    }

    /// Checks that the bucket has this source, or has room for another one.
    async fn check_source(&self, bucket: &str, source: &str) -> Result<()> {
        let now = self.fs().clock().monotonic();
        let add = |known: &mut Sources| {
            let is_new = !known.names.contains(source);
            if is_new && known.names.len() >= SOURCES {
                return false;
            }
            if is_new {
                known.names.insert(source.to_owned());
            }
            true
        };
        if let Some(known) = self.sources.lock().get_mut(bucket) {
            if add(known) {
                return Ok(());
            }
            if now.saturating_sub(known.since) < SOURCES_FRESH {
                return Err(too_many(source));
            }
        }
        let verb = ListObjects {
            bucket: bucket.to_owned(),
            prefix: String::new(),
            delimiter: "/".to_owned(),
            after: String::new(),
            max_keys: store_limits::LIST_KEYS,
        };
        let listed = match Box::pin(self.fs().read(&Caller::system(), verb)).await {
            Ok(page) => page.prefixes,
            Err(Error::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let names = listed.iter().map(|prefix| prefix.trim_end_matches('/').to_owned()).collect();
        let mut known = Sources { names, since: now };
        let is_fine = add(&mut known);
        let mut all = self.sources.lock();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(bucket.to_owned(), known);
        if is_fine { Ok(()) } else { Err(too_many(source)) }
    }
}

fn too_many(source: &str) -> Error {
    let what = format!("source {source}: there are {SOURCES} sources already, delete some first");
    Error::TooLarge(what)
}

/// Splits lines, at their ends, into as few pieces as the limit of one append allows.
fn pieces(lines: Lines) -> Vec<Piece> {
    let Lines { bytes, ends, .. } = lines;
    let mut bytes = Bytes::from(bytes);
    let (mut all, mut records) = (Vec::new(), Vec::new());
    let (mut start, mut end_before) = (0, 0);
    for (end, number) in ends {
        if end - start > store_limits::BLOCK_BYTES {
            let records = std::mem::take(&mut records);
            all.push(Piece { lines: bytes.split_to(end_before - start), records });
            start = end_before;
        }
        records.push(number);
        end_before = end;
    }
    if !records.is_empty() {
        all.push(Piece { lines: bytes, records });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parted_where_they_end() {
        let line = vec![b'x'; 1 << 20];
        let mut lines = Lines::default();
        for number in 0..9 {
            lines.bytes.extend(&line);
            lines.bytes.push(b'\n');
            lines.ends.push((lines.bytes.len(), number));
        }
        let pieces = pieces(lines);
        let records: Vec<Vec<usize>> = pieces.iter().map(|piece| piece.records.clone()).collect();
        assert_eq!(records, [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8]]);
        for Piece { lines, .. } in pieces {
            assert_eq!((lines.len(), lines.last()), (3 * ((1 << 20) + 1), Some(&b'\n')));
        }
    }

    #[test]
    fn requests_differ_in_each_of_their_parts() {
        let keys = [key_of(&[b"ab", b"c"]), key_of(&[b"a", b"bc"]), key_of(&[b"abc"])];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }
}
