//! Recently opened objects: their rows need not be decoded again while they are unchanged.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cairn_auth::Principal;
use cairn_meta::Memo;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::ops::open_object::OpenedObject;

/// Bytes of memory for all of them.
const BYTES: u64 = 8 << 20;
/// Bytes of memory of one object in addition to its rows.
const OVERHEAD: usize = 1024;

pub(crate) type OpenedCache = Cache<Name, Arc<Memo<Arc<OpenedObject>>>, Weigh>;

pub(crate) fn new() -> OpenedCache {
    Cache::with_weighter(BYTES as usize / (2 * OVERHEAD), BYTES, Weigh)
}

/// The name of an opened object, and its reader.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name {
    bucket: String,
    key: String,
    principal: Principal,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NameRef<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub principal: Principal,
}

impl NameRef<'_> {
    pub(crate) fn to_name(self) -> Name {
        let NameRef { bucket, key, principal } = self;
        Name { bucket: bucket.into(), key: key.into(), principal }
    }
}

impl Name {
    fn borrow(&self) -> NameRef<'_> {
        NameRef { bucket: &self.bucket, key: &self.key, principal: self.principal }
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrow().hash(state);
    }
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        *self == name.borrow()
    }
}

#[derive(Clone)]
pub(crate) struct Weigh;

impl Weighter<Name, Arc<Memo<Arc<OpenedObject>>>> for Weigh {
    fn weight(&self, name: &Name, memo: &Arc<Memo<Arc<OpenedObject>>>) -> u64 {
        (OVERHEAD + name.bucket.len() + name.key.len() + memo.row_bytes()) as u64
    }
}
