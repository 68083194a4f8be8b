//! Replies to questions that are asked again and again: no row is decoded again while it is
//! unchanged.
//!
//! A reply is used only if every row that it was made from is the row that a read would find now
//! ([`cairn_meta::Meta::is_current`]). Rights are decided on rows and on the identity of the
//! caller, so a reply is kept for that identity, without the caller's address: if rights ever
//! depend on the address, it must become part of the key here, too.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cairn_auth::{Caller, Posix, Principal};
use cairn_base::BodyId;
use cairn_meta::{Memo, WireVerb};
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::ops::exports::FindExportAt;
use crate::ops::getattr::{Access, Getattr};
use crate::ops::lookup::Lookup;
use crate::ops::open_object::{OpenInode, ReadExtents};

/// Bytes of memory for all replies with their rows.
const BYTES: u64 = 16 << 20;
/// Bytes of memory of one reply in addition to its name and rows.
const OVERHEAD: usize = 768;
/// Memory of the decoded reply relative to its rows: about as much again, and twice as much for
/// extents.
const DECODED: usize = 2;

/// Most numbers that an operation has.
const FIELDS: usize = 5;

/// An operation that only reads, and whose replies are kept for each caller.
pub trait MemoVerb: WireVerb<Reply: Sync> {
    /// Returns all of its fields: numbers, and a name.
    fn fields(&self) -> ([u64; FIELDS], &[u8]);
}

impl MemoVerb for Getattr {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        ([self.ino.0, 0, 0, 0, 0], &[])
    }
}

impl MemoVerb for Access {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        ([self.ino.0, self.wanted.into(), 0, 0, 0], &[])
    }
}

impl MemoVerb for Lookup {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        ([self.parent.0, 0, 0, 0, 0], &self.name)
    }
}

impl MemoVerb for OpenInode {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        ([self.ino.0, self.opened.into(), 0, 0, 0], &[])
    }
}

impl MemoVerb for ReadExtents {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        let BodyId { session, counter } = self.body;
        ([self.bucket.0, session.0, counter, self.start, self.end], &[])
    }
}

impl MemoVerb for FindExportAt {
    fn fields(&self) -> ([u64; FIELDS], &[u8]) {
        let is_inode: &[u8] = if self.ino.is_some() { &[1] } else { &[] };
        ([self.bucket.0, self.ino.map_or(0, |ino| ino.0), 0, 0, 0], is_inode)
    }
}

pub(crate) type Reply = Arc<dyn Any + Send + Sync>;

pub(crate) type Memos = Cache<Name, Arc<Memo<Reply>>, Weigh>;

pub(crate) fn new() -> Memos {
    Cache::with_weighter(BYTES as usize / (2 * OVERHEAD), BYTES, Weigh)
}

/// An operation with its fields, and its caller.
#[derive(Clone)]
pub(crate) struct Name {
    verb: u16,
    numbers: [u64; FIELDS],
    name: Box<[u8]>,
    principal: Principal,
    posix: Option<Posix>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NameRef<'a> {
    verb: u16,
    numbers: [u64; FIELDS],
    name: &'a [u8],
    principal: Principal,
    posix: Option<&'a Posix>,
}

impl<'a> NameRef<'a> {
    pub(crate) fn new<V: MemoVerb>(caller: &'a Caller, verb: &'a V) -> NameRef<'a> {
        let (numbers, name) = verb.fields();
        let (principal, posix) = (caller.principal(), caller.posix());
        NameRef { verb: V::NUMBER, numbers, name, principal, posix }
    }

    pub(crate) fn to_name(self) -> Name {
        let NameRef { verb, numbers, name, principal, posix } = self;
        Name { verb, numbers, name: name.into(), principal, posix: posix.cloned() }
    }
}

impl Name {
    fn borrow(&self) -> NameRef<'_> {
        let Name { verb, numbers, name, principal, posix } = self;
        let (verb, numbers, principal) = (*verb, *numbers, *principal);
        NameRef { verb, numbers, name, principal, posix: posix.as_ref() }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.borrow() == other.borrow()
    }
}

impl Eq for Name {}

impl Hash for NameRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let NameRef { verb, numbers, name, principal, posix } = self;
        (verb, numbers, name, principal).hash(state);
        posix.map(|posix| (posix.uid, posix.gid, &posix.groups)).hash(state);
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

impl Weighter<Name, Arc<Memo<Reply>>> for Weigh {
    fn weight(&self, name: &Name, memo: &Arc<Memo<Reply>>) -> u64 {
        let groups = name.posix.as_ref().map_or(0, |posix| size_of_val(&posix.groups[..]));
        let rows = (1 + DECODED) * memo.row_bytes();
        (OVERHEAD + name.name.len() + groups + rows) as u64
    }
}
