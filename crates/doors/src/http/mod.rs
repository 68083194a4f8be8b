//! The HTTP storage API: `/storage/<bucket>/<path>`, health, metrics and administration.
//!
//! ```text
//!   request ──► Caller (admit) ──► Target (path, decoded once) ──► a verb ──► reply
//!      └── GET, HEAD of an object in memory: the same, without waiting for anything
//!
//!   /files/<link>, at a chunkserver ──► files ──► reply
//!   a master or chunkserver, at a listener of its own ──► status ──► reply
//!   the host of a website, at a listener of its own ──► website ──► reply
//! ```

mod admin;
mod append;
mod append_lines;
mod archive;
mod backups;
mod body;
mod buckets;
mod clear;
mod conditions;
mod cors;
mod delete;
mod digest;
mod door;
mod dump;
mod error;
mod exports;
mod files;
mod follow;
mod followers;
mod get;
mod headers;
mod health;
mod info;
mod inner;
mod kind;
mod link;
mod list;
mod listing_page;
mod log_path;
mod log_replies;
mod logs;
mod mount;
mod move_object;
mod multipart;
mod own_keys;
mod page;
mod parameters;
mod passwords;
mod put;
mod range;
mod redirect;
mod reply;
mod route;
mod served_request;
mod share_links;
mod share_rooms;
mod share_target;
mod share_uploads;
mod site;
mod status;
mod target;
mod traffic;
mod tus;
mod website;
mod website_api;
mod zip;

pub use body::Body;
pub use door::HttpDoor;
pub use files::FilesDoor;
pub use health::{Condition, Readiness, probe};
pub use mount::{ConnectedMount, MountStream, Mounts, until_revoked};
pub use redirect::Redirects;
pub use reply::Reply;
pub use share_links::{MadeShareLink, NewShareLink, make_share_link};
pub use status::StatusDoor;
pub use website::WebsiteDoor;

use cairn_base::rfc3339;
use reply::{json_of, no_content};
