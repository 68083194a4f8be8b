//! Read-only buckets and stores.

use cairn_auth::{Action, Resource};
use serde::{Deserialize, Serialize};

use super::namespace::{load, load_counter, open_bucket, store};
use crate::rows::Counter;
use crate::{Context, Stop, Verb, View, keys};

/// Makes a bucket, or the store, read-only, or ends that. Afterwards no session makes a file on its
/// own there, and none decides by the former state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetReadOnly {
    /// Bucket; `None` for the store.
    pub bucket: Option<String>,
    pub read_only: bool,
}

impl Verb for SetReadOnly {
    type Reply = ();
    const NAME: &'static str = "set_read_only";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        match &self.bucket {
            Some(name) => {
                let mut opened = open_bucket(view, context, name, Action::PutBucketSettings)?;
                opened.bucket.read_only = self.read_only;
                store(view, keys::bucket(opened.id), &opened.bucket);
            }
            None => {
                context.authorize(view, Action::Administer, Resource::Store)?;
                let key = keys::read_only();
                let counter = load_counter(view, &key, 0)?;
                store(view, key, &Counter { value: self.read_only.into(), ..counter });
            }
        }
        Ok(())
    }
}

/// Asks whether the store is read-only. Every user may know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IsReadOnly;

impl Verb for IsReadOnly {
    type Reply = bool;
    const NAME: &'static str = "is_read_only";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<bool, Stop> {
        let row: Option<Counter> = load(view, &keys::read_only())?;
        Ok(row.is_some_and(|row| row.value != 0))
    }
}
