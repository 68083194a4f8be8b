//! The binary as its users meet it.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod a_bad_directory_is_refused;
mod a_flipped_bit_is_named;
mod a_lock_is_not_a_file_that_can_be_removed;
mod audits_are_written;
mod backups_are_made_and_restored;
mod backups_go_to_other_servers;
mod backups_outlive_faults;
mod backups_restore_single_buckets;
mod benchmarks_run_and_clean_up;
mod buckets_have_rules_for_pages;
mod certificates_are_made;
mod cluster;
mod clusters_are_backed_up;
mod clusters_redirect_clients;
mod gate;
mod gateways_let_nobody_wait;
mod killed_servers_lose_nothing;
mod metadata_is_dumped_and_loaded;
mod names_of_others_do_no_harm;
mod objects_go_in_and_out;
mod operators_are_told;
mod options_come_from_files;
mod secrets_are_shown_once;
mod servers_start_and_stop;
mod share_links_are_made_and_ended;
mod stores_are_private;
mod stores_of_before_are_opened;
mod support;
mod top_shows_requests;
mod usage;
mod users_are_limited;
