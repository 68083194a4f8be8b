//! The console, by HTTP.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod harness;

mod files_are_arranged;
mod files_are_managed;
mod logins_end;
mod pages_are_live;
mod pages_are_protected;
mod people_and_links;
mod silent_pages_hold_little;
mod the_store;
mod uploads_are_signed;
