//! Buckets, folders and objects.

pub mod buckets;
pub mod changes;
pub mod delete;
pub mod folders;
pub mod listing;
pub mod metadata;
pub mod object;
pub mod read_only;
pub mod rights;
pub mod settings;
pub mod tags;
pub mod transfer;
pub mod unfinished_uploads;
pub mod uploads;

mod at;
mod links;
mod selection;

pub use at::At;
