//! The party of a caller, which shares memory and places with others.

use cairn_auth::{Caller, Principal};
use cairn_base::Party;

/// As whom a caller takes part of what all share.
pub fn party_of(caller: &Caller) -> Party {
    match caller.principal() {
        Principal::User(user) => Party::User(user),
        _ => Party::Other,
    }
}
