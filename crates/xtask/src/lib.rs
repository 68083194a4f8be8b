//! Chores of Cairn's developers, also run as tests.

pub mod tidy;
