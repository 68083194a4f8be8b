//! Deletes everything in a bucket, also what has no key: symbolic links, pipes, and names that only
//! a file system shows. A request deletes some of it and says whether there may be more.

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::delete_object::DeleteObjects;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::ops::readdir::Readdir;
use cairn_fs::ops::rmdir::Rmdir;
use cairn_fs::ops::unlink::Unlink;
use cairn_fs::rows::Kind;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{Response, StatusCode};

use super::{Body, json_of};

/// Keys in one operation of the store: others get their turn in between.
const STEP: usize = 250;
/// Names of a directory that are looked at together.
const NAMES: usize = 250;
/// Names that are removed at the same time.
const AT_ONCE: usize = 16;
/// Names without a key that one request removes.
const REQUEST: usize = 1000;

pub async fn clear(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    let more = match delete_objects(fs, caller, bucket).await? {
        true => true,
        false => remove_rest(fs, caller, bucket).await?,
    };
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "more": more })))
}

/// Deletes a page of objects. Whether there were any.
async fn delete_objects(fs: &Fs, caller: &Caller, bucket: &str) -> Result<bool> {
    let verb = ListObjects { bucket: bucket.to_owned(), max_keys: STEP, ..ListObjects::default() };
    let page = fs.read(caller, verb).await?;
    if page.objects.is_empty() {
        return Ok(false);
    }
    let keys = page.objects.into_iter().map(|object| (object.key, Conditions::default()));
    let verb = DeleteObjects { bucket: bucket.to_owned(), keys: keys.collect() };
    for reply in fs.run(caller, verb).await? {
        reply?;
    }
    Ok(true)
}

/// A directory that is to be emptied and removed.
struct Doomed {
    ino: Ino,
    /// Its name and where it is; the bucket itself has neither.
    place: Option<(Ino, Bytes)>,
}

/// Removes names from the leaves of the tree on. Whether there may be more of them.
async fn remove_rest(fs: &Fs, caller: &Caller, bucket: &str) -> Result<bool> {
    let (opened, _) = fs.read(caller, GetBucket { name: bucket.to_owned() }).await?;
    let mut doomed = vec![Doomed { ino: opened.id.ino(), place: None }];
    let mut removed = 0;
    while let Some(Doomed { ino, place }) = doomed.last() {
        if removed >= REQUEST {
            return Ok(true);
        }
        let (ino, place) = (*ino, place.clone());
        let verb = Readdir { ino, after: None, limit: NAMES, attributes: false };
        let page = fs.read(caller, verb).await;
        let page = match page {
            // Somebody else has removed it.
            Err(Error::NotFound(_)) if place.is_some() => {
                doomed.pop();
                continue;
            }
            page => page?,
        };
        if page.entries.is_empty() {
            doomed.pop();
            let Some((parent, name)) = place else { return Ok(false) };
            gone(fs.run(caller, Rmdir { parent, name: name.to_vec() }).await)?;
            removed += 1;
            continue;
        }
        let (directories, files): (Vec<_>, Vec<_>) =
            page.entries.into_iter().partition(|entry| entry.kind == Kind::Directory);
        removed += files.len();
        let unlinks = files.into_iter().map(|file| {
            let verb = Unlink { parent: ino, name: file.name.to_vec() };
            async move { gone(fs.run(caller, verb).await) }
        });
        stream::iter(unlinks).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        doomed.extend(directories.into_iter().map(|directory| {
            let place = Some((ino, directory.name));
            Doomed { ino: directory.ino, place }
        }));
    }
    Ok(false)
}

/// What somebody else removed meanwhile is gone all the same.
fn gone<T>(done: Result<T>) -> Result<()> {
    match done {
        Ok(_) | Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
