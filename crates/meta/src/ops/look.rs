//! Reads rows one by one, so that a session gets a lease on each of them and learns of changes.
//! Other verbs read the contents of pages.

use cairn_auth::Action;
use cairn_base::{BucketId, Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::key_names::split_key;
use super::namespace::{Step, load, open_bucket};
use crate::rows::Entry;
use crate::{Context, Stop, Verb, View, keys};

fn check_count(count: usize, what: &str) -> Result<(), Error> {
    if count <= limits::LIST_KEYS {
        Ok(())
    } else {
        Err(Error::Invalid(format!("{count} {what}; at most {}", limits::LIST_KEYS)))
    }
}

/// Looks at a folder and at some of its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookFolder {
    pub bucket: String,
    /// Path of the folder: empty for the whole bucket, or ending in a slash. It need not exist.
    pub folder: String,
    /// Names of files in the folder, at most [`limits::LIST_KEYS`].
    pub names: Vec<String>,
}

/// The rows on which a listing of the folder depends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FolderLook {
    pub bucket: BucketId,
    /// Existing directories on the way.
    pub steps: Vec<Step>,
    /// Inode of each name that is a file.
    pub files: Vec<Option<Ino>>,
}

impl FolderLook {
    /// Returns the last existing directory on the way.
    pub fn directory(&self) -> Ino {
        self.steps.last().map_or(self.bucket.ino(), |step| step.ino)
    }
}

impl Verb for LookFolder {
    type Reply = FolderLook;
    const NAME: &'static str = "look_folder";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<FolderLook, Stop> {
        check_count(self.names.len(), "names")?;
        let opened = open_bucket(view, context, &self.bucket, Action::ListBucket)?;
        let (directories, _) = split_key(&self.folder);
        let mut steps: Vec<Step> = Vec::with_capacity(directories.len());
        for name in &directories {
            let parent = steps.last().map_or(opened.id.ino(), |step| step.ino);
            let key = keys::directory_entry(parent, name.as_bytes());
            let Some(entry) = load::<Entry>(view, &key)? else { break };
            steps.push(Step { parent, name: name.as_bytes().to_vec(), ino: entry.ino });
        }
        let is_there = steps.len() == directories.len();
        let look = FolderLook { bucket: opened.id, steps, files: Vec::new() };
        let directory = look.directory();
        view.get(&keys::tally(directory))?;
        if directories.is_empty() {
            // A listing of a whole bucket shows its counters.
            view.get(&keys::usage(opened.id))?;
        }
        let mut files = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let key = keys::file_entry(directory, name.as_bytes());
            let found = if is_there { load::<Entry>(view, &key)? } else { None };
            if let Some(entry) = &found {
                view.get(&keys::inode(entry.ino))?;
            }
            files.push(found.map(|entry| entry.ino));
        }
        Ok(FolderLook { files, ..look })
    }
}

/// Reads the list of buckets and the shown properties of some of them. The console asks as the
/// store itself, about buckets that its user may see.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookBuckets {
    /// At most [`limits::LIST_KEYS`].
    pub buckets: Vec<BucketId>,
}

impl Verb for LookBuckets {
    type Reply = ();
    const NAME: &'static str = "look_buckets";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        check_count(self.buckets.len(), "buckets")?;
        view.get(&keys::tally(Ino::ROOT))?;
        for bucket in &self.buckets {
            view.get(&keys::bucket(*bucket))?;
            view.get(&keys::usage(*bucket))?;
        }
        Ok(())
    }
}
