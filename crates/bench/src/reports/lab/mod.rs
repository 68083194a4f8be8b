//! The laboratory of scenarios: systems that are started for them, and ended with them.
//!
//! All files are in one directory and are removed; every process is a value, and ends when it is
//! dropped.

mod cairn;
mod disks;
mod ganesha;
mod gluster;
mod nginx;
mod ports;
mod postgres;
mod process;
mod quota;
mod running;
mod site;
mod system;
mod threads;

pub use cairn::{Cluster, Gateway, Mount, Server};
pub use disks::Disks;
pub use ganesha::Ganesha;
pub use gluster::{Gluster, Volume};
pub use nginx::{Lighttpd, Nginx};
pub use postgres::Postgres;
pub use process::Process;
pub use quota::Quota;
pub use site::Lab;
pub use system::{certify, wait};
pub use threads::Threads;
