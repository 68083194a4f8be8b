//! Everything an engine must do, over every engine; and what each must survive.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod adoptions;
mod bit_flips_in_the_log;
mod checkpoints_are_counted;
mod checks_hold_no_reader;
mod conformance;
mod disk_full_loses_nothing;
mod dumps;
mod io_errors_at_every_call;
mod postgres;
mod power_cuts;
mod raft;
mod record_parser_takes_any_bytes;
mod support;
