//! The tests of connections between nodes and of who may have one.
#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]
mod support;

mod a_cluster_is_checked_while_it_serves;
mod a_failing_member_is_left_out;
mod a_member_catches_up;
mod a_node_joins_by_its_token;
mod a_peer_that_goes_away_is_left_in_order;
mod a_silent_peer_is_dropped;
mod blocks_go_to_all_members;
mod calls_are_answered;
mod calls_have_limits;
mod calls_have_the_trace_of_their_request;
mod identities_survive_on_disk;
mod masters_are_administered;
mod masters_say_how_they_are;
mod messages_stay_what_they_are;
mod mounts_come_in_by_gateways;
mod only_nodes_move_blocks;
mod only_nodes_of_the_map_are_admitted;
mod other_versions_are_refused_in_words;
mod places_are_divided_among_mounts;
mod rights_hold_for_every_operation_of_a_mount;
mod scrubs_are_ordered_over_the_network;
mod stale_maps_are_refused;
mod strange_bytes_end_the_connection;
mod strange_requests_for_blocks_change_nothing;
mod strangers_take_no_places;
mod the_one_that_serves_is_found_again;
mod tokens_admit_once;
mod what_a_gateway_forgot_is_told_again;
mod what_nodes_did_is_counted;
