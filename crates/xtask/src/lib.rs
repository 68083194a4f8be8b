//! Chores of Cairn's developers; the chores that check something are tests too.

#![allow(clippy::disallowed_methods, reason = "chores")]

pub mod cluster;
pub mod dist;
mod files;
pub mod pictures;
pub mod proto;
pub mod screenshots;
pub mod supply;
mod tokens;

pub mod arrows;
pub mod dependencies;
pub mod errors;
pub mod glossary;
pub mod language;

pub mod floors;

pub mod tidy;
