//! The POSIX operations: their rules one by one, and at random against a model.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod append_once;
mod attributes;
mod bodies_of_many_pieces;
mod body_sharing;
mod contents;
mod for_call;
mod harness;
mod invariants;
mod links;
mod listing;
mod locks;
mod long_files;
mod model;
mod names;
mod ordered_listings;
mod permissions;
mod random;
mod renames;
mod restores;
mod retained;
mod runs;
