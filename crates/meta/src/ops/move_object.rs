//! Moves an object to another key of its bucket.

use cairn_base::Error;
use serde::{Deserialize, Serialize};

use super::conditions::Conditions;
use super::copy_object::{CopyObject, CopyReply};
use super::delete_object::DeleteObject;
use super::sharing::check_shared;
use crate::{Context, Stop, Verb, View};

/// Gives an object another key, in one step: nobody sees it at both, or at neither. An existing
/// object with the new key is replaced. As after a copy and a delete, it has the caller's owner and
/// mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveObject {
    pub bucket: String,
    pub key: String,
    pub target: String,
    /// Conditions on the object with the new key.
    pub conditions: Conditions,
}

impl Verb for MoveObject {
    type Reply = CopyReply;
    const NAME: &'static str = "move_object";

    /// Moves the object.
    ///
    /// # Errors
    /// `NotFound` if there is no such object, `Invalid` if both keys are the same. `NotImplemented`
    /// if the file has other names or is open, and has too many pieces to be shared.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<CopyReply, Stop> {
        if self.key == self.target {
            return Err(
                Error::Invalid(format!("the object has the key {:?} already", self.key)).into()
            );
        }
        let copy = CopyObject {
            source_bucket: self.bucket.clone(),
            source_key: self.key.clone(),
            source_conditions: Conditions::default(),
            bucket: self.bucket.clone(),
            key: self.target.clone(),
            conditions: self.conditions.clone(),
            object: None,
            tags: None,
        };
        let (reply, unshared) = copy.share(view, context, None)?;
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        let delete = DeleteObject { bucket, key, conditions: Conditions::default() };
        delete.apply(view, context)?;
        check_shared(view, unshared)?;
        Ok(reply)
    }
}
