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

/// The rights that a verb needs. A change of a bucket is decided where the verb finds the bucket: a
/// decision apart from that could be about another bucket. A reply that comes without the decisions
/// that are declared, or with others, counts for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// To do this to the store as a whole. It is decided before the verb runs.
    Store(Action),
    /// To do all of this.
    All(ActionSet),
    /// To do some of this: the fields of the verb say what.
    Some(ActionSet),
    /// To do all of this, or nothing where it was done before.
    Once(ActionSet),
    /// To do all of this, or nothing for what its caller has made.
    Others(ActionSet),
    /// No action, because of this.
    Nothing(&'static str),
}

impl Needs {
    /// The same of a verb that is not run again where it was run before.
    pub const fn or_done_before(self) -> Needs {
        match self {
            Needs::All(actions) => Needs::Once(actions),
            other => other,
        }
    }

    /// Whether this is what was allowed.
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

/// The declaration of a verb. There is no default: one that declares nothing is no [`crate::Verb`],
/// and does not compile.
pub trait Declared {
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
