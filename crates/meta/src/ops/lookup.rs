//! Finding an entry of a directory.

use cairn_auth::Action;
use cairn_base::{Ino, Result as BaseResult};

use super::posix::{SEARCH, check_bucket, check_name, open_directory, present, resolve_known};
use crate::rows::Inode;
use crate::{Context, Stop, Verb, View};

/// Looks a name up in a directory; at the root, names are those of buckets.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub parent: Ino,
    pub name: Vec<u8>,
}
