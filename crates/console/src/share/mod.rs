//! Share links: addresses by which others read a part of a bucket, or add to it.

pub mod archive;
pub mod form;
pub mod links;
