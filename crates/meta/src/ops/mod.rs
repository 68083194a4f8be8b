//! The operations, one verb a file.
