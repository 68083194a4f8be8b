//! The operations, one verb a file.

pub mod edit;
pub mod namespace;
