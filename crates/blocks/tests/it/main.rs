//! The tests of the block store.
#![allow(clippy::unwrap_used)]
mod blocks_are_read_back;
mod support;
