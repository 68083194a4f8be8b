//! Changes of a folder and of the list of buckets, told while a page shows it.
//!
//! The rows that say what the page shows are watched. When one of them changes, the folder is
//! listed again, and the page is told if it would show something else.

use cairn_auth::Caller;
use cairn_base::{BucketId, Error, Result};
use cairn_fs::ops::buckets::{GetBucket, ListBuckets};
use cairn_fs::ops::look::{LookBuckets, LookFolder};
use cairn_fs::{Fs, Watching};
use tokio::time::timeout;

use super::At;
use super::buckets;
use super::listing::{ListRow, Rows, Wanted};
use crate::events;
use crate::failure::Failure;
use crate::inner::For;
use crate::limits::ROWS;
use crate::live::{self, Sight};
use crate::reply::Reply;

/// How often a look begins again because something changed meanwhile.
const ATTEMPTS: usize = 8;

pub async fn of_folder(at: &At<'_>) -> Result<Reply, Failure> {
    let wanted = Wanted::of(at)?;
    at.asked.witness.note(|facts| facts.key = Some(wanted.prefix.clone()));
    let mut sight = FolderSight {
        fs: at.inner.fs().clone(),
        caller: at.login.caller.clone(),
        bucket: at.bucket.to_owned(),
        folder: wanted.folder(),
        wanted,
        names: Vec::new(),
        heard: None,
    };
    // Whoever may not see the folder is told so by the status.
    sight.look().await?;
    events::reply(at.inner, at.login, live::tell(sight, live::seen(at.asked)))
}

pub async fn of_buckets(of: &For<'_>) -> Result<Reply, Failure> {
    let query = of.asked.query()?;
    let (prefix, after) = (query.get("filter").to_owned(), query.get("after").to_owned());
    let mut sight = BucketsSight {
        fs: of.inner.fs().clone(),
        caller: of.login.caller.clone(),
        wanted: ListBuckets { prefix, after, limit: ROWS },
        shown: Vec::new(),
        heard: None,
    };
    sight.look().await?;
    events::reply(of.inner, of.login, live::tell(sight, live::seen(of.asked)))
}

/// Rows that are watched, and whether all of their changes are heard of.
struct Heard {
    rows: Watching,
    is_all: bool,
}

impl Heard {
    async fn changed(heard: &mut Option<Heard>) {
        match heard {
            Some(Heard { rows, is_all: true }) => rows.changed().await,
            Some(Heard { rows, .. }) => drop(timeout(live::DEAF, rows.changed()).await),
            None => {}
        }
    }
}

fn too_busy() -> Error {
    Error::Unavailable("it changes faster than it can be looked at".into())
}

/// A folder that somebody looks at.
struct FolderSight {
    fs: Fs,
    caller: Caller,
    bucket: String,
    wanted: Wanted,
    folder: String,
    /// Of the files that were shown last; those of the first page are watched one by one.
    names: Vec<String>,
    heard: Option<Heard>,
}

impl Sight for FolderSight {
    async fn look(&mut self) -> Result<String> {
        for attempt in 1..=ATTEMPTS {
            let (bucket, folder) = (self.bucket.clone(), self.folder.clone());
            let verb = LookFolder { bucket, folder, names: self.names.clone() };
            let look = self.fs.read(&self.caller, verb.clone()).await?;
            let rows = self.fs.watch_folder(&look);
            // Again: what changed before it was watched is seen, and rows are leased.
            if self.fs.read(&self.caller, verb.clone()).await? != look {
                continue;
            }
            let (names, version) = self.list().await?;
            // Where names come and go all the time, the next look watches the ones that stay.
            if names == verb.names || attempt == ATTEMPTS {
                self.names = names;
                let is_all = self.fs.hears_of(&self.caller, &verb);
                self.heard = Some(Heard { rows, is_all });
                return Ok(version);
            }
            self.names = names;
        }
        Err(too_busy())
    }

    async fn changed(&mut self) {
        Heard::changed(&mut self.heard).await;
    }
}

impl FolderSight {
    /// The names of the files that a page shows, and the state of all that it shows.
    async fn list(&self) -> Result<(Vec<String>, String)> {
        let found = self.wanted.find(&self.fs, &self.caller, &self.bucket).await?;
        let usage = match self.folder.is_empty() {
            true => {
                let verb = GetBucket { name: self.bucket.clone() };
                Some(self.fs.read(&self.caller, verb).await?.1)
            }
            false => None,
        };
        Ok((self.names_of(&found), found.version(usage.as_ref())))
    }

    fn names_of(&self, found: &Rows) -> Vec<String> {
        let files = found.rows.iter().filter(|row| matches!(row, ListRow::File(_)));
        let names = files.filter_map(|row| row.key().strip_prefix(&*self.folder));
        names.filter(|name| !name.contains('/')).take(ROWS).map(str::to_owned).collect()
    }
}

/// The list of buckets, which somebody looks at.
struct BucketsSight {
    fs: Fs,
    caller: Caller,
    wanted: ListBuckets,
    /// Those that were shown last.
    shown: Vec<BucketId>,
    heard: Option<Heard>,
}

impl Sight for BucketsSight {
    async fn look(&mut self) -> Result<String> {
        let system = Caller::system();
        for attempt in 1..=ATTEMPTS {
            let verb = LookBuckets { buckets: self.shown.clone() };
            let rows = self.fs.watch_buckets(&self.shown);
            self.fs.read(&system, verb.clone()).await?;
            let (found, next) = self.fs.read(&self.caller, self.wanted.clone()).await?;
            let shown: Vec<BucketId> = found.iter().map(|(opened, _)| opened.id).collect();
            if shown == verb.buckets || attempt == ATTEMPTS {
                self.shown = shown;
                let is_all = self.fs.hears_of(&system, &verb);
                self.heard = Some(Heard { rows, is_all });
                return Ok(buckets::version(&found, next.as_deref()));
            }
            self.shown = shown;
        }
        Err(too_busy())
    }

    async fn changed(&mut self) {
        Heard::changed(&mut self.heard).await;
    }
}
