//! Deletes objects.

use cairn_auth::Action;
use cairn_base::{BucketId, Error};
use serde::{Deserialize, Serialize};

use super::conditions::{Conditions, Current};
use super::key_names::{check_key, split_key};
use super::namespace::{
    Step, drop_directory, drop_link, load, load_inode, open_bucket, open_bucket_for, remove_entry,
    store, walk,
};
use super::tags::drop_tags;
use crate::rows::{Entry, Kind, Tally};
use crate::{Context, Stop, Verb, View, keys};

/// Deletes an object. An implicit directory is removed with its last child, as are those above it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteObject {
    pub bucket: String,
    pub key: String,
    pub conditions: Conditions,
}

impl Verb for DeleteObject {
    /// `true` if the object existed.
    type Reply = bool;
    const NAME: &'static str = "delete_object";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        check_key(&self.key)?;
        let opened = open_bucket_for(view, context, &self.bucket, &self.key, Action::DeleteObject)?;
        delete(view, context, opened.id, &self.key, &self.conditions)
    }
}

/// Deletes several objects of one bucket in one commit; each succeeds or fails on its own. All fail
/// with `TooLarge` if they read more rows than an operation may.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteObjects {
    pub bucket: String,
    pub keys: Vec<(String, Conditions)>,
}

impl Verb for DeleteObjects {
    /// For each key: whether the object existed, or why it is still there.
    type Reply = Vec<Result<bool, Error>>;
    const NAME: &'static str = "delete_objects";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let opened = open_bucket(view, context, &self.bucket, Action::DeleteObject)?;
        let mut replies = Vec::with_capacity(self.keys.len());
        let mut missed = false;
        for (key, conditions) in &self.keys {
            if let Err(error) = check_key(key) {
                replies.push(Err(error));
                continue;
            }
            match delete(view, context, opened.id, key, conditions) {
                Ok(existed) => replies.push(Ok(existed)),
                // Continues, so that the view learns of all missing rows at once.
                Err(Stop::Miss) => missed = true,
                // The key may be half deleted, so no key is deleted.
                Err(stop @ Stop::Fail(Error::Corrupt { .. } | Error::TooLarge(_))) => {
                    return Err(stop);
                }
                Err(Stop::Fail(error)) => replies.push(Err(error)),
            }
        }
        if missed { Err(Stop::Miss) } else { Ok(replies) }
    }
}

/// Deletes an object. All checks come before the first change, so a failure of one key leaves the
/// others unchanged.
fn delete(
    view: &mut View<'_>,
    context: &Context,
    bucket: BucketId,
    key: &str,
    conditions: &Conditions,
) -> Result<bool, Stop> {
    let (directories, name) = split_key(key);
    let Some(steps) = walk(view, bucket, &directories)? else {
        conditions.check_change(None)?;
        return Ok(false);
    };
    let parent = steps.last().map_or(bucket.ino(), |step| step.ino);
    let entry: Option<Entry> = load(view, &keys::file_entry(parent, name.as_bytes()))?;
    let Some(entry) = entry.filter(|entry| entry.kind == Kind::File) else {
        if name.is_empty() && !steps.is_empty() {
            return delete_explicit(view, context, &steps, conditions);
        }
        conditions.check_change(None)?;
        return Ok(false);
    };
    let inode = load_inode(view, entry.ino)?;
    conditions.check_change(Some(Current { ino: entry.ino, inode: &inode }))?;
    let tally = remove_entry(view, context, parent, name.as_bytes(), Kind::File)?;
    drop_link(view, context, entry.ino, inode)?;
    prune(view, context, &steps, tally)?;
    Ok(true)
}

/// Deletes the key `x/` of an explicit directory: it becomes implicit, and is removed if it is
/// empty.
fn delete_explicit(
    view: &mut View<'_>,
    context: &Context,
    steps: &[Step],
    conditions: &Conditions,
) -> Result<bool, Stop> {
    let Some(step) = steps.last() else { return Ok(false) };
    let mut inode = load_inode(view, step.ino)?;
    if inode.implicit {
        conditions.check_change(None)?;
        return Ok(false);
    }
    conditions.check_change(Some(Current { ino: step.ino, inode: &inode }))?;
    inode.implicit = true;
    // Headers, metadata and tags are those of the key `x/`.
    drop_tags(view, step.ino, &inode)?;
    inode.object = None;
    inode.touch(context.batch, context.now);
    store(view, keys::inode(step.ino), &inode);
    let tally: Tally = load(view, &keys::tally(step.ino))?.unwrap_or_default();
    prune(view, context, steps, tally)?;
    Ok(true)
}

/// Removes implicit directories without entries, from the deepest upwards.
fn prune(
    view: &mut View<'_>,
    context: &Context,
    steps: &[Step],
    deepest: Tally,
) -> Result<(), Stop> {
    let mut tally = deepest;
    for step in steps.iter().rev() {
        if tally.entries > 0 {
            break;
        }
        let inode = load_inode(view, step.ino)?;
        if !inode.implicit {
            break;
        }
        drop_directory(view, step.ino, &inode)?;
        tally = remove_entry(view, context, step.parent, &step.name, Kind::Directory)?;
    }
    Ok(())
}
