//! One binary for all tests of the doors.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod audit_has_each_change_and_refusal;
mod http_a_damaged_object_is_never_a_short_one;
mod http_api_is_as_documented;
mod http_buckets_and_listings;
mod http_buckets_are_cleared;
mod http_connections_are_kept_and_bounded;
mod http_harness;
mod http_health_and_metrics;
mod http_lines_are_appended_once;
mod http_listings_are_shown_as_pages;
mod http_logs_are_compressed;
mod http_logs_are_kept_and_deleted;
mod http_logs_are_taken;
mod http_logs_have_no_secrets;
mod http_names_are_only_names;
mod http_objects_are_followed;
mod http_objects_are_what_was_put;
mod http_only_the_right_callers_may;
mod http_over_tls;
mod http_own_keys_are_made_and_ended;
mod http_prefixes_are_sent_as_archives;
mod http_ranges_match_a_model;
mod http_redirects_lead_to_the_bytes;
mod http_share_links_are_as_good_as_their_makers;
mod http_slow_clients_are_in_nobodys_way;
mod http_uploads_are_whole_or_nothing;
mod http_uploads_go_on_where_they_were_cut;
mod http_users_are_disabled;
mod http_users_are_limited;
mod pages_of_other_sites_do_what_rules_say;
mod rights_hold_at_both_doors;
mod s3_answers_are_those_of_s3;
mod s3_bodies_are_verified;
mod s3_conditions;
mod s3_harness;
mod s3_listings;
mod s3_multipart;
mod s3_nothing_is_silently_ignored;
mod s3_objects_are_kept_apart_in_browsers;
mod s3_objects_round_trip;
mod s3_presigned_version_2;
mod s3_rights;
mod s3_signatures_are_required;
mod s3_unknown_is_not_implemented;
mod s3_users_are_limited;
mod s3_what_is_off_does_no_harm;
mod syslog_connections_end;
mod websites_are_served_at_names_of_their_own;
