//! The binary as its users meet it.

#![allow(clippy::unwrap_used)]

mod a_bad_directory_is_refused;
mod a_flipped_bit_is_named;
mod benchmarks_run_and_clean_up;
mod clusters_redirect_clients;
mod killed_servers_lose_nothing;
mod metadata_is_dumped_and_loaded;
mod objects_go_in_and_out;
mod secrets_are_shown_once;
mod servers_start_and_stop;
mod support;
mod usage;
