//! Parts of the console to which every page leads.

use cairn_auth::{Action, Resource, is_allowed};
use cairn_base::Timestamp;

use crate::inner::LoggedIn;

/// A part of the console: its address, its name, and the action on the store that its user must
/// have.
pub struct Part {
    pub place: &'static str,
    pub name: &'static str,
    needs: Option<Action>,
}

const fn part(place: &'static str, name: &'static str, needs: Option<Action>) -> Part {
    Part { place, name, needs }
}

const PARTS: &[Part] = &[
    part("/", "Buckets", None),
    part("/shares", "Links", None),
    part("/keys", "Keys", None),
    part("/people", "People", Some(Action::ManageUsers)),
    part("/store", "Store", Some(Action::Administer)),
];

/// Returns the parts that are offered to a user.
pub fn parts(login: &LoggedIn) -> impl Iterator<Item = &'static Part> {
    PARTS.iter().filter(|part| part.needs.is_none_or(|action| may(login, action)))
}

/// Returns true if a page offers an action on the store. Operations decide on the action itself.
pub fn may(login: &LoggedIn, action: Action) -> bool {
    let context = login.caller.context(Timestamp(0));
    is_allowed(&login.caller, action, Resource::Store, &context)
}
