//! The operations, one verb a file.

pub mod buckets;
pub mod conditions;
pub mod copy_object;
pub mod credentials;
pub mod delete_object;
pub mod edit;
pub mod gc;
pub mod list_objects;
pub mod list_uploads;
pub mod multipart;
pub mod namespace;
pub mod open_object;
pub mod put_object;
pub mod sessions;
pub mod tags;
