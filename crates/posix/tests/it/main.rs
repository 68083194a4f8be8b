//! POSIX without a kernel: against a model at random, and its rules one by one.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod before_and_after_are_exact;
mod calls_that_come_late;
mod files_that_are_open;
mod listings_go_on_whatever_changes;
mod locks_hold_between_sessions;
mod model;
mod nfs_makes_files_once;
mod operations_agree_with_a_model;
mod world;
mod written_here_and_seen_there;
