//! An HTTP/1.1 client that tells how long each phase took.

mod connection;
mod target;
mod tls;

pub use connection::{Connection, Exchange, OpenedConnection, open};
pub use target::{Target, without_secret};
pub use tls::{Tls, connector};
