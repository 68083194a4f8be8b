//! Deletion of many objects.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::delete_object::DeleteObjects;

use crate::fs::Fs;

/// Number of keys in one operation, so that other operations get their turn in between.
const STEP: usize = 250;

impl Fs {
    /// Deletes objects of a bucket. Calls `tell` for each key: whether there was such an object, or
    /// the error because of which it is still there. After an error, `tell` is not called for the
    /// keys that are left.
    pub async fn delete_objects(
        &self,
        caller: &Caller,
        bucket: &str,
        mut keys: &[(String, Conditions)],
        mut tell: impl FnMut(&str, Result<bool>),
    ) -> Result<()> {
        let mut most = STEP;
        while !keys.is_empty() {
            let (step, rest) = keys.split_at(most.min(keys.len()));
            let verb = DeleteObjects { bucket: bucket.to_owned(), keys: step.to_vec() };
            match self.run(caller, verb).await {
                // The deeper the keys, the fewer of them fit in one operation.
                Err(Error::TooLarge(_)) if step.len() > 1 => {
                    most = step.len() / 2;
                }
                replies => {
                    step.iter().zip(replies?).for_each(|((key, _), reply)| tell(key, reply));
                    keys = rest;
                }
            }
        }
        Ok(())
    }
}
