//! The operations, one verb a file.

pub mod namespace;
