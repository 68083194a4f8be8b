//! The store as a whole, on a simulated disk.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod append_orders_appenders;
mod blocks_have_the_replicas_of_their_bucket;
mod bytes_are_fetched_ahead_by_the_system;
mod chunks_are_rewritten;
mod completions_are_done_once;
mod copies_share_and_part;
mod deep_keys_are_listed_and_deleted;
mod files_are_coalesced;
mod garbage_goes_and_nothing_else;
mod holds_keep_what_is_freed;
mod listings_agree_with_sorted_keys;
mod long_reads_are_of_one_state;
mod power_cuts_lose_nothing_acknowledged;
mod replies_are_kept_until_a_row_changes;
mod stopped_readers_hold_little;
mod uploads_wait_for_memory;
mod watched;
mod what_is_put_is_read;
mod what_was_opened_is_not_taken_for_what_is;
mod world;
