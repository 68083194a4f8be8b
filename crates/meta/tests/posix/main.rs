//! The POSIX operations: their rules one by one, and at random against a model.

mod body_sharing;
mod harness;
mod invariants;
mod listing;
mod model;
mod random;
mod runs;
