//! The master against an engine whose commits are held up, fail and get lost.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]

mod a_full_disk_takes_what_frees_space;
mod a_master_that_failed_answers_everybody;
mod accepted_operations_are_bounded_and_finished;
mod acknowledged_is_seen_by_every_thread;
mod any_interleaving_equals_a_serial_order;
mod engine;
mod errors_of_the_engine_reach_only_who_reads;
mod errors_wait_for_what_they_saw;
mod model;
mod reads_change_nothing;
mod setup;
mod verbs;
mod what_belongs_to_users_is_counted_anew;
mod what_did_not_commit_runs_again_in_order;
mod what_is_not_declared_is_refused;
