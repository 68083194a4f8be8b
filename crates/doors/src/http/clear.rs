//! Deletes everything in a bucket, including names without a key: symbolic links, pipes, and names
//! that only a file system shows. A request deletes a part of it and says whether there may be
//! more.

use std::collections::HashSet;

use bytes::Bytes;
use cairn_auth::{Action, Caller};
use cairn_base::{Error, Ino, Result};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::{Decide, FindBucket};
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::ops::readdir::{ListedEntry, Readdir};
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::rmdir::Rmdir;
use cairn_fs::ops::unlink::Unlink;
use cairn_fs::rows::Kind;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{Response, StatusCode};

use super::{Body, json_of};

/// Number of objects that one request deletes.
const OBJECTS: usize = 250;
/// Number of names of a directory that are read together.
const NAMES: usize = 250;
/// Number of names that are removed at the same time.
const AT_ONCE: usize = 16;
/// Number of names without a key that one request removes.
const REQUEST: usize = 1000;
/// Number of pages of directories that one request reads, once it has removed a name.
const PAGES: usize = 4000;

pub async fn clear(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    let (deleted, _) = delete_objects(fs, caller, bucket, String::new()).await?;
    let more = deleted || remove_rest(fs, caller, bucket).await?;
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "more": more })))
}

/// Deletes a page of objects. Returns whether there were any, and where the next page begins.
async fn delete_objects(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    after: String,
) -> Result<(bool, Option<String>)> {
    let listed = bucket.to_owned();
    let verb = ListObjects { bucket: listed, after, max_keys: OBJECTS, ..ListObjects::default() };
    let page = fs.read(caller, verb).await?;
    if page.objects.is_empty() {
        return Ok((false, page.next));
    }
    let keys = page.objects.into_iter().map(|object| (object.key, Conditions::default()));
    let keys: Vec<_> = keys.collect();
    let mut failed = None;
    let tell = |_: &str, reply: Result<bool>| failed = failed.take().or(reply.err());
    fs.delete_objects(caller, bucket, &keys, tell).await?;
    failed.map_or(Ok((true, page.next)), Err)
}

/// Deletes the first objects, however many names that are not objects come before them. Returns
/// whether there were any.
async fn delete_any(fs: &Fs, caller: &Caller, bucket: &str) -> Result<bool> {
    let mut after = String::new();
    loop {
        match delete_objects(fs, caller, bucket, after).await? {
            (true, _) => return Ok(true),
            (false, None) => return Ok(false),
            (false, Some(next)) => after = next,
        }
    }
}

/// A directory that is to be emptied and removed.
#[derive(Clone)]
struct DoomedDirectory {
    ino: Ino,
    /// Its parent and name; `None` for the bucket itself.
    place: Option<(Ino, Bytes)>,
    /// Name after which its next page begins.
    after: Option<Bytes>,
    /// True if a page had entries that POSIX does not show.
    has_hidden: bool,
    /// True if a directory in it stays for now.
    has_kept: bool,
}

impl DoomedDirectory {
    fn new(ino: Ino, place: Option<(Ino, Bytes)>) -> DoomedDirectory {
        DoomedDirectory { ino, place, after: None, has_hidden: false, has_kept: false }
    }
}

/// A walk over a bucket, from the leaves of its tree upwards.
struct Walk<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    top: Ino,
    /// The directories on the current path; the last is the one being read.
    doomed: Vec<DoomedDirectory>,
    /// Directories that cannot be removed before their contents.
    kept: HashSet<Ino>,
    /// Directories with objects that POSIX does not show.
    hidden: Vec<DoomedDirectory>,
    removed: usize,
    /// True if another client changed something that was being removed.
    is_disturbed: bool,
}

/// Removes everything that is not an object. Returns whether there may be more.
async fn remove_rest(fs: &Fs, caller: &Caller, bucket: &str) -> Result<bool> {
    let verb = FindBucket { name: bucket.to_owned() };
    let found = fs.read(&Caller::system(), verb).await?;
    let id = found.ok_or_else(|| Error::NotFound(format!("bucket {bucket}")))?.id;
    // Checked even if there is nothing to delete.
    fs.read(caller, Decide { bucket: id, action: Action::DeleteObject }).await?;
    let mut walk = Walk {
        fs,
        caller,
        top: id.ino(),
        doomed: vec![DoomedDirectory::new(id.ino(), None)],
        kept: HashSet::new(),
        hidden: Vec::new(),
        removed: 0,
        is_disturbed: false,
    };
    let mut pages = 0;
    while (pages < PAGES || walk.removed == 0) && walk.removed < REQUEST && walk.step().await? {
        pages += 1;
    }
    if walk.doomed.is_empty() && walk.kept.is_empty() {
        return Ok(false);
    }
    if walk.removed > 0 || walk.is_disturbed || delete_any(fs, caller, bucket).await? {
        return Ok(true);
    }
    if walk.lift_hidden().await? {
        Ok(true)
    } else {
        Err(Error::NotEmpty(format!("bucket {bucket}: names that no door shows")))
    }
}

impl Walk<'_> {
    /// Reads a page of a directory, and removes entries that can be removed. Returns whether the
    /// walk goes on.
    async fn step(&mut self) -> Result<bool> {
        let Some(at) = self.doomed.last_mut() else { return Ok(false) };
        let ino = at.ino;
        let verb = Readdir { ino, after: at.after.clone(), limit: NAMES, attributes: false };
        let page = match self.fs.read(self.caller, verb).await {
            // Another client has removed it.
            Err(Error::NotFound(_) | Error::NotDirectory(_)) if at.place.is_some() => {
                self.doomed.pop();
                return Ok(true);
            }
            page => page?,
        };
        at.has_hidden |= page.skipped > 0;
        let found = page.entries.len();
        let is_new = |entry: &ListedEntry| !self.kept.contains(&entry.ino);
        let entries: Vec<ListedEntry> = page.entries.into_iter().filter(is_new).collect();
        at.has_kept |= entries.len() < found;
        if !entries.is_empty() {
            self.remove(ino, entries).await?;
        } else if page.next.is_some() {
            at.after = page.next;
        } else if let Some(done) = self.doomed.pop() {
            self.finish(done).await?;
        }
        Ok(true)
    }

    /// Removes entries of a directory that are not directories; the directories come next.
    async fn remove(&mut self, parent: Ino, entries: Vec<ListedEntry>) -> Result<()> {
        let (directories, files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.kind == Kind::Directory);
        let (fs, caller) = (self.fs, self.caller);
        let unlinks = files.into_iter().map(|file| {
            let verb = Unlink { parent, name: file.name.to_vec() };
            async move { is_gone(fs.run(caller, verb).await) }
        });
        let gone: Vec<bool> = stream::iter(unlinks).buffer_unordered(AT_ONCE).try_collect().await?;
        let removed = gone.iter().filter(|is_gone| **is_gone).count();
        self.is_disturbed |= removed < gone.len();
        self.removed += removed;
        let next =
            directories.into_iter().map(|d| DoomedDirectory::new(d.ino, Some((parent, d.name))));
        self.doomed.extend(next);
        Ok(())
    }

    /// Removes a directory that shows no more entries.
    async fn finish(&mut self, done: DoomedDirectory) -> Result<()> {
        if done.has_hidden {
            self.hidden.push(done.clone());
        }
        if done.has_hidden || done.has_kept {
            self.kept.insert(done.ino);
            return Ok(());
        }
        let Some((parent, name)) = done.place else { return Ok(()) };
        let verb = Rmdir { parent, name: name.to_vec() };
        if is_gone(self.fs.run(self.caller, verb).await)? {
            self.removed += 1;
        } else {
            self.is_disturbed = true;
            self.kept.insert(done.ino);
        }
        Ok(())
    }

    /// Moves a directory to the top of the bucket, under a name so short that keys below it are no
    /// longer than they were when they were made. Returns whether it was moved.
    async fn lift(&self, doomed: &DoomedDirectory) -> Result<bool> {
        let Some((parent, name)) = &doomed.place else { return Ok(false) };
        let is_up = *parent == self.top;
        if is_up && name.len() == 1 {
            return Ok(false);
        }
        let short = (b'0'..=b'9').chain(b'a'..=b'z').map(|byte| vec![byte]);
        let other = (!is_up).then(|| format!("{:x}", doomed.ino.0).into_bytes());
        for target_name in short.chain(other) {
            let verb = Rename {
                source_parent: *parent,
                source_name: name.to_vec(),
                target_parent: self.top,
                target_name,
                mode: RenameMode::NoReplace,
            };
            match self.fs.run(self.caller, verb).await {
                Err(Error::Exists(_)) => {}
                moved => return is_gone(moved),
            }
        }
        Ok(false)
    }

    /// Moves directories whose objects appear in no listing, because their keys have become too
    /// long, to a place where they do. Returns whether there were any.
    async fn lift_hidden(&self) -> Result<bool> {
        for hidden in self.hidden.iter().take(AT_ONCE) {
            if self.lift(hidden).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether a name is gone: removed now, or earlier by another client. If it was changed
/// meanwhile, it may still be there.
fn is_gone<T>(done: Result<T>) -> Result<bool> {
    match done {
        Ok(_) | Err(Error::NotFound(_)) => Ok(true),
        Err(Error::IsDirectory(_) | Error::NotDirectory(_) | Error::NotEmpty(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
