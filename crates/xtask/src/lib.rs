//! Chores of Cairn's developers; those that check something are tests, too.

pub mod arrows;
pub mod cluster;
pub mod floors;
pub mod proto;
pub mod supply;
pub mod tidy;
mod tokens;
