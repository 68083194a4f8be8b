//! The party of a caller, which shares memory and places with other parties.

use cairn_auth::{Caller, Principal};
use cairn_base::Party;

/// Returns the party that a caller's share of common resources counts for.
pub fn party_of(caller: &Caller) -> Party {
    match caller.principal() {
        Principal::User(user) => Party::User(user),
        _ => Party::Other,
    }
}
