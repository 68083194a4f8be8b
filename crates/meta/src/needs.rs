//! The rights that verbs need, and the check that verbs ask for them.
//!
//! ```text
//!   wire.rs: number => verb, needs
//!
//!   apply ── Needs::Store ──► authorize ──► Verb::apply ──► the verb has asked for what it needs?
//!                                             └── Context::authorize, where it finds a row
//! ```

use cairn_auth::{Action, ActionSet};
use cairn_base::Error;

/// The rights that a verb needs. For a bucket, the decision is made where the verb finds the
/// bucket: a separate decision could be about another bucket. A reply without the declared
/// decisions, or with others, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// To do this to the store as a whole. It is decided before the verb runs.
    Store(Action),
    /// To do all of these.
    All(ActionSet),
    /// To do some of these; the fields of the verb determine which.
    Some(ActionSet),
    /// To do all of these, or none if the verb was run before.
    Once(ActionSet),
    /// To do all of these, or none for the caller's own things.
    Others(ActionSet),
    /// No action, for this reason.
    Nothing(&'static str),
}

impl Needs {
    /// Returns the needs of a verb that does not run again if it was run before.
    pub const fn or_done_before(self) -> Needs {
        match self {
            Needs::All(actions) => Needs::Once(actions),
            other => other,
        }
    }

    /// Checks that these needs match the actions that were allowed.
    ///
    /// # Errors
    /// `Denied` if not, with the name of the verb.
    pub fn check(&self, name: &str, allowed: ActionSet) -> Result<(), Error> {
        let is_met = match self {
            Needs::Store(action) => allowed == ActionSet::of(&[*action]),
            Needs::All(actions) => allowed == *actions,
            Needs::Some(actions) => !allowed.is_empty() && actions.contains(allowed),
            Needs::Once(actions) | Needs::Others(actions) => {
                allowed.is_empty() || allowed == *actions
            }
            Needs::Nothing(_) => allowed.is_empty(),
        };
        if is_met {
            return Ok(());
        }
        tracing::error!(operation = name, %allowed, declared = ?self, "refused");
        Err(Error::Denied(format!("operation {name} did not check the rights that it declares")))
    }
}

/// The declaration of a verb's needs. There is no default: a type without a declaration cannot be a
/// [`crate::Verb`], and does not compile.
pub trait VerbNeeds {
    const NEEDS: Needs;
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_auth::Action::{DeleteObject, GetObject, PutObject};

    #[test]
    fn what_was_allowed_is_what_was_declared() {
        let of = ActionSet::of;
        let all = Needs::All(of(&[GetObject, PutObject]));
        let some = Needs::Some(of(&[GetObject, PutObject]));
        let nothing = Needs::Nothing("a test");
        let table = [
            (all, of(&[GetObject, PutObject]), true),
            (all, of(&[GetObject]), false),
            (all, of(&[GetObject, PutObject, DeleteObject]), false),
            (all, ActionSet::NONE, false),
            (some, of(&[GetObject]), true),
            (some, of(&[GetObject, PutObject]), true),
            (some, of(&[DeleteObject]), false),
            (some, ActionSet::NONE, false),
            (all.or_done_before(), of(&[GetObject, PutObject]), true),
            (all.or_done_before(), of(&[GetObject]), false),
            (all.or_done_before(), ActionSet::NONE, true),
            (Needs::Others(of(&[GetObject])), ActionSet::NONE, true),
            (Needs::Others(of(&[GetObject])), of(&[PutObject]), false),
            (nothing, ActionSet::NONE, true),
            (nothing, of(&[GetObject]), false),
            (Needs::Store(GetObject), of(&[GetObject]), true),
            (Needs::Store(GetObject), ActionSet::NONE, false),
        ];
        for (needs, allowed, is_fine) in table {
            assert_eq!(needs.check("a_verb", allowed).is_ok(), is_fine, "{needs:?}: {allowed}");
        }
    }
}
