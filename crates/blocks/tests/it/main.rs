//! The tests of the block store.
#![allow(clippy::unwrap_used)]
mod blocks_are_read_back;
mod power_cuts_lose_nothing_acknowledged;
mod support;
