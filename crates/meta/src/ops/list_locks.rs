//! The locks on files and their holders, for administrators of the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use cairn_base::{Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::namespace::load;
use crate::rows::{Bucket, Inode, Lock, Locks, Row, Session, SessionState};
use crate::{Context, Stop, Verb, View, keys};

/// The locks on a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockedFile {
    pub ino: Ino,
    /// Name of the file's bucket; empty if the bucket is gone.
    pub bucket: String,
    pub locks: Vec<Lock>,
}

/// Lists files with locks, ordered by inode number. Locks of ended sessions are left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListLocks {
    pub after: Option<Ino>,
    /// Number of files to examine, at most [`limits::OP_ROWS`].
    pub limit: usize,
}

impl Verb for ListLocks {
    /// The files, and the last file examined if there may be more.
    type Reply = (Vec<LockedFile>, Option<Ino>);
    const NAME: &'static str = "list_locks";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (start, end) = keys::locks_after(self.after);
        let limit = self.limit.min(limits::OP_ROWS);
        let rows = view.scan(&start, &end, limit)?;
        let (mut files, mut last) = (Vec::new(), None);
        let mut live = HashMap::new();
        for (key, row) in &rows {
            let Some(ino) = keys::locks_of(key) else {
                return Err(Error::corrupt("key of locks", key.len(), 10).into());
            };
            last = Some(ino);
            let mut locks = Locks::decode(row)?.held;
            for lock in &locks {
                if let Entry::Vacant(vacant) = live.entry(lock.session) {
                    let session: Option<Session> = load(view, &keys::session(lock.session))?;
                    vacant.insert(session.is_some_and(|one| one.state == SessionState::Live));
                }
            }
            locks.retain(|lock| live.get(&lock.session).copied().unwrap_or_default());
            if !locks.is_empty() {
                files.push(LockedFile { ino, bucket: bucket_of(view, ino)?, locks });
            }
        }
        Ok((files, last.filter(|_| rows.len() == limit)))
    }
}

fn bucket_of(view: &mut View<'_>, ino: Ino) -> Result<String, Stop> {
    let Some(inode) = load::<Inode>(view, &keys::inode(ino))? else { return Ok(String::new()) };
    let key: Bytes = keys::bucket(inode.bucket);
    Ok(load::<Bucket>(view, &key)?.map(|bucket| bucket.name).unwrap_or_default())
}
