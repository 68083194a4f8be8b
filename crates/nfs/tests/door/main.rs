//! The NFS door as clients see it, over connections of this machine.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod client;
mod world;

mod a_client_of_others;
mod any_bytes;
mod bytes_agree;
mod calls_are_audited;
mod calls_that_are_none;
mod calls_that_wait;
mod clients_ask_again;
mod clients_take_turns;
mod clients_that_stall;
mod clients_that_were_cut_off;
mod each_procedure;
mod exports_hold_clients;
mod listings_go_on;
mod many_calls_at_once;
mod unstable_writes;
