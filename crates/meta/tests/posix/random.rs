//! Random operations against the model: results, attributes, contents, and what must always hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BlockId, BodyId, BucketId, Error, Ino, Owner, Timestamp, limits};
use cairn_meta::ops::append::Append;
use cairn_meta::ops::coalesce::{Coalesce, ReadChunk};
use cairn_meta::ops::copy_range::CopyRange;
use cairn_meta::ops::create::{Create, Mknod};
use cairn_meta::ops::getattr::{Access, Getattr};
use cairn_meta::ops::link::Link;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::order_directory::OrderDirectory;
use cairn_meta::ops::readlink::Readlink;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::setattr::{SetTime, Setattr};
use cairn_meta::ops::symlink::Symlink;
use cairn_meta::ops::truncate::{PunchHole, Truncate};
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::ops::xattr::{GetXattr, RemoveXattr, SetXattr, XattrMode};
use cairn_meta::rows::{BucketKind, Content, Extent, Kind, Place};

use crate::body_sharing::{Leaves, Share};
use crate::harness::{SESSION, Store, kind};
use crate::listing::{PutObject, read_all};
use crate::model::{Actor, Model, Name, Node, Outcome};
use crate::runs::{Runs, symbol};

const RUNS: u64 = 60;
const STEPS: u64 = 2_000;

/// The contents of a block and its owner.
pub struct Block {
    pub runs: Runs,
    pub owner: Owner,
}

pub struct World {
    pub store: Store,
    pub model: Model,
    pub blocks: BTreeMap<BlockId, Block>,
    buckets: [Ino; 2],
    inos: Vec<Ino>,
    writes: u64,
    seed: u64,
    step: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} step {}", self.seed, self.step);
        }
    }
}

#[test]
fn operations_agree_with_the_model() {
    let first: u64 = std::env::var("SEED").ok().map_or(0, |seed| seed.parse().unwrap());
    let runs: u64 = std::env::var("RUNS").ok().map_or(RUNS, |runs| runs.parse().unwrap());
    let runs = runs * cairn_sim::scale();
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for seed in (first..first + runs).filter(|seed| seed % 2 == half) {
                    World::new(seed).go();
                }
            });
        }
    });
}

impl World {
    fn new(seed: u64) -> World {
        let mut store = Store::new(seed);
        store.forgetful = !seed.is_multiple_of(4);
        store.has_future = seed % 3 == 1;
        let buckets =
            [store.bucket("posix", BucketKind::Posix), store.bucket("s3s", BucketKind::S3)];
        let mut model = Model::default();
        for ino in buckets {
            let made = store.inode(ino).unwrap();
            let node = Node {
                kind: Kind::Directory,
                bucket: ino,
                parent: Ino::ROOT,
                mode: 0o777,
                names: 1,
                atime: made.atime.0,
                mtime: made.mtime.0,
                ctime: made.ctime.0,
                ..Node::default()
            };
            model.nodes.insert(ino, node);
        }
        let (inos, blocks) = (buckets.to_vec(), BTreeMap::new());
        World { store, model, blocks, buckets, inos, writes: 0, seed, step: 0 }
    }

    fn go(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            self.choose_actor();
            self.random_step();
            if step % 500 == 499 {
                self.act(None);
                self.check_all();
            }
        }
        self.store.caller = Caller::system();
        self.drain();
    }

    fn below(&self, bound: u64) -> u64 {
        self.store.below(bound)
    }

    fn choose_actor(&mut self) {
        let actor = match self.below(8) {
            0..4 => None,
            4 => Some((0, 0, vec![])),
            5 => Some((1, 1, vec![2])),
            6 => Some((2, 2, vec![])),
            _ => Some((3, 2, vec![1, 9])),
        };
        self.act(actor);
    }

    fn act(&mut self, actor: Option<(u32, u32, Vec<u32>)>) {
        match &actor {
            None => self.store.caller = Caller::system(),
            Some((uid, gid, groups)) => self.store.act_as(*uid, *gid, groups),
        }
        self.model.actor = Actor(actor);
    }

    /// The time that the next operation will see.
    fn tick(&mut self) {
        self.model.now = self.store.now + 10;
    }

    fn any(&self) -> Ino {
        let mut found = self.inos[0];
        for _ in 0..4 {
            found = self.inos[self.below(self.inos.len() as u64) as usize];
            if self.model.nodes.contains_key(&found) {
                break;
            }
        }
        found
    }

    fn of_kind(&self, directory: bool) -> Ino {
        let mut found = self.any();
        for _ in 0..12 {
            let fits = |node: &Node| {
                node.is_directory() == directory && (directory || node.kind == Kind::File)
            };
            if self.model.nodes.get(&found).is_some_and(fits) {
                break;
            }
            found = self.any();
        }
        if self.below(40) == 0 { self.any() } else { found }
    }

    fn parent(&self) -> Ino {
        match self.below(6) {
            0 => self.buckets[0],
            1 => self.buckets[1],
            _ => self.of_kind(true),
        }
    }

    fn name(&self) -> Name {
        [b"a", b"b", b"c", b"d", b"e"][self.below(5) as usize].to_vec()
    }

    /// A name that is there, more often than not.
    fn present(&self, parent: Ino) -> Name {
        let names = self.model.nodes.get(&parent).map(Node::shown).unwrap_or_default();
        match names.len() as u64 {
            0 => self.name(),
            _ if self.below(5) == 0 => self.name(),
            many => names[self.below(many) as usize].0.clone(),
        }
    }

    fn mode(&self) -> u32 {
        let modes = [0o777, 0o755, 0o700, 0o1777, 0o2775, 0o6755, 0o4711, 0o000, 0o666, 0o770];
        modes[self.below(10) as usize]
    }

    fn random_step(&mut self) {
        self.tick();
        match self.below(100) {
            0..12 => self.make(),
            12..18 => self.put(),
            18..24 => self.link(),
            24..36 => self.remove(),
            36..50 => self.rename(),
            50..57 => self.setattr(),
            57..62 => self.xattr(),
            62..72 => self.write(),
            72..77 => self.append(),
            77..80 => self.copy_range(),
            80..85 => self.truncate(),
            85..88 => self.punch(),
            88..91 => self.coalesce(),
            91..94 => self.share(),
            94..96 => self.list(),
            _ => self.look(),
        }
    }

    #[track_caller]
    fn same<T, U>(&self, what: &str, real: &Result<T, Error>, model: &Outcome<U>) {
        let expected = model.as_ref().err().copied().unwrap_or("ok");
        let text = real.as_ref().err().map(ToString::to_string);
        assert_eq!(kind(real), expected, "{what}: {text:?}, model {expected}");
    }

    fn adopt(&mut self, ino: Ino) {
        self.inos.push(ino);
        self.check_inode(ino);
    }

    fn make(&mut self) {
        let (parent, name, mode) = (self.parent(), self.name(), self.mode());
        let named = (parent, name.clone());
        let made = |made: &Result<(Ino, _), Error>| made.as_ref().map_or(Ino(0), |(ino, _)| *ino);
        let (real, model) = match self.below(8) {
            0..3 => return self.create(parent, name, mode),
            3 => {
                let target = Bytes::from(format!("to/{}", self.step));
                let verb = Symlink { parent, name, target: target.clone() };
                let real = self.store.run(verb);
                let (size, target) = (target.len() as u64, target.to_vec());
                let kind = Kind::Symlink;
                let node = Node { kind, mode: 0o777, size, target, ..Node::default() };
                let model = self.model.make(parent, &named.1, made(&real), node);
                (real, model)
            }
            4 => {
                let kind = [Kind::Fifo, Kind::Socket, Kind::File][self.below(3) as usize];
                let real = self.store.run(Mknod { parent, name, kind, mode, umask: 0 });
                let node = Node { kind, mode, ..Node::default() };
                let model = self.model.make(parent, &named.1, made(&real), node);
                (real, model)
            }
            _ => {
                let real = self.store.run(Mkdir { parent, name, mode, umask: 0 });
                let node = Node { kind: Kind::Directory, mode, ..Node::default() };
                let model = self.model.make(parent, &named.1, made(&real), node);
                (real, model)
            }
        };
        self.same("make", &real, &model);
        if let Ok((ino, inode)) = real {
            self.check_shown(ino, &inode);
            self.adopt(ino);
        }
    }

    fn create(&mut self, parent: Ino, name: Name, mode: u32) {
        let exclusive = self.below(2) == 0;
        let real = self.store.run(Create { parent, name: name.clone(), mode, umask: 0, exclusive });
        let new = real.as_ref().map_or(Ino(0), |made| made.0);
        let model = self.model.create(parent, &name, new, (mode, exclusive));
        self.same("create", &real, &model);
        if let Ok((ino, _, made)) = real {
            assert_eq!(Ok(ino), model);
            if made {
                self.adopt(ino);
            }
        }
    }

    /// An object with up to two directories on its way, as S3 makes them.
    fn put(&mut self) {
        let bucket = self.buckets[1];
        let path: Vec<Name> = (0..=self.below(3)).map(|_| self.name()).collect();
        let (last, directories) = path.split_last().unwrap();
        let mut parent = Some(bucket);
        for name in directories {
            parent =
                parent.and_then(|parent| self.model.nodes[&parent].directories.get(name).copied());
        }
        if parent.is_some_and(|parent| self.model.nodes[&parent].files.contains_key(last)) {
            return;
        }
        let verb = PutObject { bucket: BucketId(bucket.0), path: path.clone() };
        let inos = self.store.run(verb).unwrap();
        let (mut parent, mut new) = (bucket, Vec::new());
        for (name, ino) in directories.iter().zip(&inos) {
            if !self.model.nodes.contains_key(ino) {
                new.push((parent, name.clone(), *ino));
            }
            parent = *ino;
        }
        let file = inos[directories.len()];
        self.model.put(&new, (parent, last.clone(), file), bucket);
        new.iter().map(|made| made.2).chain([file]).for_each(|ino| self.adopt(ino));
    }

    fn link(&mut self) {
        let (ino, parent, name) = (self.any(), self.parent(), self.name());
        let real = self.store.run(Link { ino, parent, name: name.clone() });
        let model = self.model.link(ino, parent, &name);
        self.same("link", &real, &model);
        self.check_inode(ino);
    }

    fn remove(&mut self) {
        let parent = self.parent();
        let (name, directory) = (self.present(parent), self.below(2) == 0);
        let real = if directory {
            self.store.run(Rmdir { parent, name: name.clone() })
        } else {
            self.store.run(Unlink { parent, name: name.clone() })
        };
        let gone = real.as_ref().map_or(Ino(0), |ino| *ino);
        let model = self.model.remove(parent, &name, directory);
        self.same("remove", &real, &model);
        self.check_inode(gone);
        self.check_inode(parent);
    }

    fn rename(&mut self) {
        let (source_parent, target_parent) = (self.parent(), self.parent());
        let source_name = self.present(source_parent);
        let target_name =
            if self.below(2) == 0 { self.name() } else { self.present(target_parent) };
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = modes[[0, 0, 0, 1, 2, 2][self.below(6) as usize]];
        let source = (source_parent, &source_name);
        let target = (target_parent, &target_name);
        let model = self.model.rename(source, target, mode);
        let (source_name, target_name) = (source_name.clone(), target_name.clone());
        let verb = Rename { source_parent, source_name, target_parent, target_name, mode };
        let real = self.store.run(verb);
        self.same("rename", &real, &model);
        self.check_inode(source_parent);
        self.check_inode(target_parent);
    }

    fn setattr(&mut self) {
        let time = |world: &World| match world.below(4) {
            0 => Some(SetTime::Now),
            1 => Some(SetTime::At(Timestamp(world.below(1 << 40) as i64 - 500))),
            _ => None,
        };
        let some = |world: &World, value: u32| (world.below(3) == 0).then_some(value);
        let set = Setattr {
            ino: self.any(),
            mode: some(self, self.mode()),
            uid: some(self, self.below(4) as u32),
            gid: some(self, self.below(4) as u32),
            atime: time(self),
            mtime: time(self),
        };
        let model = self.model.setattr(&set);
        let ino = set.ino;
        let real = self.store.run(set);
        self.same("setattr", &real, &model);
        self.check_inode(ino);
    }

    fn xattr(&mut self) {
        let (ino, name) = (self.any(), [b"user.".to_vec(), self.name()].concat());
        match self.below(4) {
            0 => {
                let real = self.store.run(GetXattr { ino, name: name.clone() });
                let model = self.model.get_xattr(ino, &name);
                self.same("get_xattr", &real, &model);
                assert_eq!(real.map(|value| value.to_vec()).ok(), model.ok());
            }
            1 => {
                let real = self.store.run(RemoveXattr { ino, name: name.clone() });
                let model = self.model.remove_xattr(ino, &name);
                self.same("remove_xattr", &real, &model);
            }
            _ => {
                let modes = [XattrMode::Set, XattrMode::Create, XattrMode::Replace];
                let mode = modes[self.below(3) as usize];
                let value = vec![7; self.below(100) as usize];
                let model = self.model.set_xattr(ino, &name, &value, mode);
                let real = self.store.run(SetXattr { ino, name, value: value.into(), mode });
                self.same("set_xattr", &real, &model);
            }
        }
        self.check_inode(ino);
    }

    fn offset(&self) -> u64 {
        let places = [0, 100, 16 << 10, 1 << 20, 60 << 20, 64 << 20, 68 << 20, 128 << 20];
        let place: u64 = places[self.below(8) as usize];
        let jitter = [1, 100, 5000, 4 << 20][self.below(4) as usize];
        (place + self.below(jitter)).saturating_sub(self.below(jitter))
    }

    /// Up to 4 MiB for `body`, and what they are: blocks in chunks as the offset says, or `chunk`.
    fn data(&mut self, body: BodyId, offset: u64, chunk: Option<u32>) -> (Data, Runs) {
        self.writes += 1;
        let write = self.writes;
        if self.below(2) == 0 {
            let most = if self.below(10) == 0 { limits::INLINE_BYTES } else { 300 };
            let len = self.below(most as u64 + 1);
            let bytes: Vec<u8> = (0..len).map(|at| symbol(write, at)).collect();
            let mut runs = Runs::default();
            runs.put(0, len, write, 0);
            return (Data::Inline(bytes.into()), runs);
        }
        let (mut extents, mut runs, mut end) = (Vec::new(), Runs::default(), 0);
        for _ in 0..=self.below(3) {
            let len = 1 + self.below([10, 5000, 1 << 20, 4 << 20][self.below(4) as usize]);
            let gap = if self.below(4) == 0 { self.below(1000) } else { 0 };
            if chunk.is_some() && end + gap + len > 4 << 20 {
                break;
            }
            let mut extent = self.store.block(end + gap, len);
            let Place::Block { block, offset: skip, .. } = &mut extent.place else { panic!() };
            *skip = self.below((limits::BLOCK_BYTES as u64 - len).min(9) + 1) as u32;
            let owner = chunk.unwrap_or(((offset + extent.offset) >> 26) as u32);
            let mut inside = Runs::default();
            inside.put(u64::from(*skip), len, write, extent.offset);
            let owner = Owner { body, chunk: owner };
            self.blocks.insert(*block, Block { runs: inside, owner });
            runs.put(extent.offset, len, write, extent.offset);
            end = extent.end();
            extents.push(extent);
        }
        (Data::Blocks { body, extents }, runs)
    }

    /// The body that blocks for a file must be written for.
    fn target(&mut self, ino: Ino, spare: BodyId) -> BodyId {
        let access = self.as_system(Access { ino, wanted: 0 });
        match access.map(|(inode, shared)| (inode.content, shared)) {
            Ok((Content::Body(body), false)) => body,
            _ => spare,
        }
    }

    fn as_system<V: cairn_meta::Verb>(&mut self, verb: V) -> Result<V::Reply, Error> {
        let caller = std::mem::replace(&mut self.store.caller, Caller::system());
        let (now, reply) = (self.store.now, self.store.run(verb));
        (self.store.caller, self.store.now) = (caller, now);
        reply
    }

    fn forget(&mut self, data: &Data) {
        if let Data::Blocks { extents, .. } = data {
            for extent in extents {
                let Place::Block { block, .. } = &extent.place else { panic!() };
                self.blocks.remove(block);
            }
        }
    }

    fn write(&mut self) {
        let (ino, offset, opened) = (self.of_kind(false), self.offset(), self.below(2) == 0);
        let spare = self.store.next_body();
        let body = self.target(ino, spare);
        let wrong = self.below(20) == 0;
        let used = if wrong { BodyId::default() } else { body };
        let (data, runs) = self.data(used, offset, None);
        let blocks = matches!(data, Data::Blocks { .. });
        let model = match self.model.writable(ino, opened) {
            Ok(_) if wrong && blocks => Err("conflict"),
            other => other.map(|_| ()),
        };
        let session = SESSION;
        let verb = Write { ino, session, opened, spare, offset, data: data.clone() };
        let real = self.store.run(verb);
        self.same("write", &real, &model);
        match real {
            Err(_) => self.forget(&data),
            Ok(_) if data.is_empty() => {}
            Ok(_) => self.written(ino, offset, &data, &runs),
        }
        self.check_inode(ino);
    }

    fn written(&mut self, ino: Ino, offset: u64, data: &Data, runs: &Runs) {
        let node = self.model.touch(ino);
        node.size = node.size.max(offset + data.len());
        for run in &runs.0 {
            node.runs.put(offset + run.at, run.len, run.write, run.from);
        }
    }

    fn append(&mut self) {
        let (ino, opened) = (self.of_kind(false), self.below(2) == 0);
        let spare = self.store.next_body();
        let body = self.target(ino, spare);
        let end = self.model.nodes.get(&ino).map_or(0, |node| node.size);
        let wrong = self.below(20) == 0;
        let chunk = (end >> 26) as u32 + u32::from(wrong);
        let (data, runs) = self.data(body, end, Some(chunk));
        let blocks = matches!(data, Data::Blocks { .. });
        let model = match self.model.writable(ino, opened) {
            Ok(_) if wrong && blocks => Err("conflict"),
            other => other.map(|_| ()),
        };
        let session = SESSION;
        let verb = Append { ino, session, opened, spare, chunk, data: data.clone() };
        let real = self.store.run(verb);
        self.same("append", &real, &model);
        match real {
            Err(_) => self.forget(&data),
            Ok(_) if data.is_empty() => {}
            Ok(appended) => {
                assert_eq!(appended.offset, end);
                self.written(ino, end, &data, &runs);
            }
        }
        self.check_inode(ino);
    }

    fn truncate(&mut self) {
        let (ino, opened) = (self.of_kind(false), self.below(2) == 0);
        let size = if self.below(5) == 0 { 0 } else { self.offset() };
        let spare = self.store.next_body();
        let model = self.model.writable(ino, opened).map(|_| ());
        let real = self.store.run(Truncate { ino, session: SESSION, opened, spare, size });
        self.same("truncate", &real, &model);
        if let Ok(truncated) = real {
            assert!(!truncated.more);
            let node = self.model.touch(ino);
            node.size = size;
            node.runs.clear(size, u64::MAX);
        }
        self.check_inode(ino);
    }

    fn punch(&mut self) {
        let (ino, opened) = (self.of_kind(false), self.below(2) == 0);
        let (offset, len) = (self.offset(), 1 + self.offset());
        let spare = self.store.next_body();
        let model = self.model.writable(ino, opened).map(|node| node.size);
        let verb = PunchHole { ino, session: SESSION, opened, spare, offset, len };
        let real = self.store.run(verb);
        self.same("punch_hole", &real, &model);
        if model.is_ok() {
            self.model.touch(ino).runs.clear(offset, offset + len);
        }
        self.check_inode(ino);
    }

    fn copy_range(&mut self) {
        let (source, opened) = (self.of_kind(false), self.below(2) == 0);
        let ino = if self.below(3) == 0 { source } else { self.of_kind(false) };
        let (source_offset, offset, len) = (self.offset(), self.offset(), self.offset());
        let spare = self.store.next_body();
        let model = self.model.copyable((source, source_offset), (ino, offset), len, opened);
        let session = SESSION;
        let verb = CopyRange { source, source_offset, ino, offset, len, session, opened, spare };
        let real = self.store.run(verb);
        self.same("copy_range", &real, &model);
        if let Ok(copied) = real {
            let len = copied.len;
            assert!(Some(len) <= model.ok() && (len > 0 || model == Ok(0)), "{len} of {model:?}");
            if len > 0 {
                let from = &self.model.nodes[&source].runs;
                let runs = from.range(source_offset, source_offset + len);
                let node = self.model.touch(ino);
                node.size = node.size.max(offset + len);
                node.runs.put_all(offset, len, &runs);
            }
        }
        self.check_inode(source);
        self.check_inode(ino);
    }

    /// Puts one block in the place of a run of extents of a chunk, with the holes between them.
    fn coalesce(&mut self) {
        let ino = self.of_kind(false);
        let size = self.model.nodes.get(&ino).map_or(0, |node| node.size);
        let chunk = self.below((size >> 26) + 1) as u32;
        let Ok(Some((body, extents))) = self.as_system(ReadChunk { ino, chunk }) else { return };
        let from = self.below(extents.len() as u64 + 1) as usize;
        let some: Vec<Extent> =
            extents.iter().skip(from).take(1 + self.below(4) as usize).cloned().collect();
        let (Some(first), Some(last)) = (some.first(), some.last()) else { return };
        let (start, end) = (first.offset, last.end());
        if end - start > limits::BLOCK_BYTES as u64 {
            return;
        }
        let extent = self.store.block(start, end - start);
        let Place::Block { block, .. } = extent.place else { panic!() };
        let runs = self.model.nodes[&ino].runs.range(start, end);
        self.blocks.insert(block, Block { runs, owner: Owner { body, chunk } });
        let mut replaces = some;
        if self.below(5) == 0 {
            replaces[0].len += 1;
        }
        let verb = Coalesce { ino, session: SESSION, body, chunk, replaces, with: vec![extent] };
        if !matches!(self.as_system(verb), Ok(true)) {
            self.blocks.remove(&block);
        }
        self.check_inode(ino);
    }

    /// Another file with the same body, as a copy makes it.
    fn share(&mut self) {
        let (ino, parent, name) = (self.of_kind(false), self.parent(), self.name());
        let Some(node) = self.model.nodes.get(&ino).filter(|node| node.kind == Kind::File) else {
            return;
        };
        let (runs, size) = (node.runs.clone(), node.size);
        self.act(None);
        let plain = Node { kind: Kind::File, mode: 0o644, runs, size, ..Node::default() };
        let real = self.store.run(Share { ino, parent, name: name.clone() });
        let new = real.as_ref().map_or(Ino(0), |ino| *ino);
        let model = self.model.make(parent, &name, new, plain);
        self.same("share", &real, &model);
        if real.is_ok() {
            self.adopt(new);
        }
    }

    fn list(&mut self) {
        let ino = self.parent();
        let limit = 1 + self.below(4) as usize;
        if self.below(2) == 0 {
            // From here on its entries are ordered as well.
            let _ = self.store.run(OrderDirectory { ino });
        }
        let real = read_all(&mut self.store, ino, limit);
        let model = self.model.directory(ino, 5).map(Node::shown);
        self.same("readdir", &real, &model);
        if let (Ok(entries), Ok(mut names)) = (real, model) {
            let mut found = Vec::new();
            for entry in entries {
                found.push((entry.name.to_vec(), entry.ino));
                self.check_shown(entry.ino, &entry.inode.unwrap());
            }
            found.sort();
            names.sort();
            assert_eq!(found, names);
        }
    }

    fn look(&mut self) {
        let parent = self.parent();
        let name = self.present(parent);
        let real = self.store.run(Lookup { parent, name: name.clone() });
        let model = self.model.find(parent, &name);
        self.same("lookup", &real, &model);
        if let Ok((ino, inode)) = real {
            assert_eq!(Ok(ino), model);
            self.check_shown(ino, &inode);
        }
        self.check_inode(self.any());
    }

    fn check_all(&mut self) {
        let inos: Vec<Ino> = self.model.nodes.keys().copied().collect();
        for ino in inos {
            self.check_inode(ino);
        }
        self.check_invariants();
    }

    fn check_shown(&self, ino: Ino, inode: &cairn_meta::rows::Inode) {
        let node = &self.model.nodes[&ino];
        let real = (inode.kind, inode.mode, inode.uid, inode.gid, inode.nlink, inode.size);
        let model = (node.kind, node.mode, node.uid, node.gid, node.links(), node.size);
        assert_eq!(real, model, "{ino}");
        let real =
            (inode.atime.0, inode.mtime.0, inode.ctime.0, inode.implicit, inode.bucket.ino());
        let model = (node.atime, node.mtime, node.ctime, node.implicit, node.bucket);
        assert_eq!(real, model, "times of {ino}");
        assert_eq!(inode.xattr_count as usize, node.xattrs.len());
        if inode.is_directory() {
            assert_eq!(inode.parent, node.parent);
        }
    }

    fn check_inode(&mut self, ino: Ino) {
        let real = self.as_system(Getattr { ino });
        let Some(node) = self.model.nodes.get(&ino) else {
            assert_eq!(kind(&real), "not_found");
            return;
        };
        let kind = node.kind;
        let inode = real.unwrap().0;
        self.check_shown(ino, &inode);
        match kind {
            Kind::File => self.check_contents(ino, &inode.content),
            Kind::Symlink => {
                let target = self.as_system(Readlink { ino }).unwrap();
                assert_eq!(target, self.model.nodes[&ino].target);
            }
            _ => assert_eq!(inode.content, Content::Empty),
        }
    }

    fn check_contents(&mut self, ino: Ino, content: &Content) {
        let body = match content {
            Content::Empty => return assert_eq!(self.model.nodes[&ino].runs.joined().0, []),
            Content::Inline(bytes) => {
                let runs = &self.model.nodes[&ino].runs;
                assert_eq!(bytes, &runs.bytes(bytes.len() as u64));
                return;
            }
            Content::Body(body) => *body,
        };
        let leaves = self.as_system(Leaves { body, start: 0, end: u64::MAX }).unwrap();
        let node = &self.model.nodes[&ino];
        let mut runs = Runs::default();
        let mut end = 0;
        for leaf in leaves {
            assert!(leaf.offset >= end, "leaves are in order");
            end = leaf.end();
            let expected = node.runs.range(leaf.offset, end);
            match leaf.place {
                Place::Block { block, offset, .. } => {
                    let from = u64::from(offset);
                    let inside = self.blocks[&block].runs.range(from, from + leaf.len);
                    runs.put_all(leaf.offset, leaf.len, &inside);
                }
                Place::Inline(bytes) => {
                    assert_eq!(bytes, expected.bytes(leaf.len));
                    runs.put_all(leaf.offset, leaf.len, &expected);
                }
                Place::Body { .. } => panic!("not a leaf"),
            }
        }
        assert!(end <= node.size, "bytes behind the end");
        assert_eq!(runs.joined(), node.runs.joined(), "contents of {ino}");
    }
}
