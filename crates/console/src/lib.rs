//! The console: pages for people, on a listener and an origin of their own.
//!
//! It is not: a place where bytes of users are served. Downloads and uploads go to the S3 door, by
//! URLs that are signed here for one request each. No right is decided here: a page shows what the
//! operations of the store let its user see.
//!
//! ```text
//!   request ──► site (Host, Origin) ──► logins (cookie ──► Caller) ──► route ──► a page, or JSON
//!                                                                        │
//!                       pages, files/  ──►  fs, and presigned URLs  ◄────┘
//! ```

pub mod limits;

mod assets;
mod site;
mod words;

mod attempts;
mod forms;
mod reply;

mod inner;

mod fields;
mod nav;
mod sheet;

mod page;

mod failure;

mod logins;

mod files;

mod people;
mod share;

mod route;

mod door;

pub use door::ConsoleDoor;
pub use site::{Data, Site, literal, loopback};
