//! Users, their access keys and rights: for root; and a user's own access keys.

pub mod audit;
pub mod own;
pub mod user;
pub mod users;

mod credentials;

mod stored_lines;
