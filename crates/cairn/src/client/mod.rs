//! Commands that use a running server, through its HTTP door.

pub mod address;
pub mod api;
pub mod bucket;
pub mod cors;
pub mod export;
pub mod gc;
pub mod get;
pub mod key;
pub mod logs;
pub mod ls;
pub mod pool;
pub mod put;
pub mod read_only;
pub mod rm;
pub mod share;
pub mod stat;
pub mod user;
pub mod website;
