//! The console: pages for people, on a separate listener and origin.
//!
//! It is not: a place where bytes of users are served. Downloads and uploads go to the S3 door, by
//! URLs that are signed here for one request each. No right is decided here: a page shows what the
//! operations of the store let its user see.
//!
//! ```text
//!   request ──► site (Host, Origin) ──► logins (cookie ──► Caller) ──► route ──► a page, or JSON
//!                                                                        │
//!                pages, files/, store/  ──►  fs, and presigned URLs  ◄────┘
//! ```

pub mod limits;

mod assets;
mod site;
mod words;

mod body;
mod insight;
mod looks;

mod attempts;
mod forms;
mod listeners;
mod reply;

mod inner;

mod fields;
mod nav;
mod sheet;

mod page;
mod read_only;

mod failure;

mod logins;

mod events;

mod live;

mod files;

mod people;
mod share;
mod store;

mod route;

mod door;

pub use door::ConsoleDoor;
pub use insight::nodes::{Asking, ClusterFsck, Emptying, MetadataKeepers, NodeReport, Nodes};
pub use insight::scrubs::{DamagedObject, ScrubEnd, ScrubRun, ScrubState, Scrubs};
pub use insight::{AuditPlaces, Insight};
pub use site::{Data, Site, literal, loopback};
