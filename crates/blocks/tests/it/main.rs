//! The tests of the block store.
#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]
mod support;

mod a_full_disk_still_reads_and_deletes;
mod a_neighbour_reads_what_is_right;
mod a_torn_tail_is_cut_off;
mod blocks_are_read_back;
mod compressed_blocks_say_the_same;
mod errors_of_the_disk_are_never_hidden;
mod every_flipped_bit_is_noticed;
mod format_version_1_is_read;
mod many_writers_at_once;
mod power_cuts_lose_nothing_acknowledged;
mod records_out_of_place_are_refused;
mod what_is_dead_is_compacted_away;
mod what_was_read_elsewhere_is_kept_here;
