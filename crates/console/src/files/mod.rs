//! Buckets, folders and objects.

pub mod buckets;
pub mod delete;
pub mod folders;
pub mod listing;
pub mod object;
pub mod uploads;

mod at;
mod links;

pub use at::At;
