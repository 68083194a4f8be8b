//! POSIX in a few maps: what the operations are compared with.

use std::collections::BTreeMap;

use cairn_base::Ino;
use cairn_meta::ops::rename::RenameMode;
use cairn_meta::ops::setattr::{SetTime, Setattr};
use cairn_meta::ops::xattr::XattrMode;
use cairn_meta::rows::Kind;

use crate::runs::Runs;

pub type Outcome<T = ()> = Result<T, &'static str>;
pub type Name = Vec<u8>;

/// The acting user; `None` is a caller without a POSIX identity, who may do everything.
#[derive(Clone, Debug, Default)]
pub struct Actor(pub Option<(u32, u32, Vec<u32>)>);

impl Actor {
    fn limited(&self) -> Option<&(u32, u32, Vec<u32>)> {
        self.0.as_ref().filter(|actor| actor.0 != 0)
    }

    fn member(&self, gid: u32) -> bool {
        self.limited().is_none_or(|(_, own, groups)| *own == gid || groups.contains(&gid))
    }

    /// The mode of a file whose bytes or owner it changed.
    fn unprivileged(&self, node: &Node) -> u32 {
        let keeps_group = node.mode & 0o010 == 0 && self.0.is_some() && self.member(node.gid);
        if keeps_group { node.mode & !0o4000 } else { node.mode & !0o6000 }
    }

    fn owns(&self, node: &Node) -> bool {
        self.limited().is_none_or(|(uid, ..)| *uid == node.uid)
    }

    fn may(&self, node: &Node, bits: u32) -> Outcome {
        let Some((uid, gid, groups)) = self.limited() else { return Ok(()) };
        let class = if *uid == node.uid {
            node.mode / 0o100
        } else if *gid == node.gid || groups.contains(&node.gid) {
            node.mode / 0o10
        } else {
            node.mode
        };
        if class & bits == bits { Ok(()) } else { Err("denied") }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub kind: Kind,
    pub bucket: Ino,
    pub parent: Ino,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub names: u32,
    pub size: u64,
    pub runs: Runs,
    pub target: Vec<u8>,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub implicit: bool,
    pub xattrs: BTreeMap<Name, Vec<u8>>,
    /// Directories hide files of the same name, which only S3 makes.
    pub directories: BTreeMap<Name, Ino>,
    pub files: BTreeMap<Name, Ino>,
}

impl Node {
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    fn find(&self, name: &Name) -> Option<Ino> {
        self.directories.get(name).or_else(|| self.files.get(name)).copied()
    }

    pub fn links(&self) -> u32 {
        if self.is_directory() { 2 + self.directories.len() as u32 } else { self.names }
    }

    /// The names POSIX sees.
    pub fn shown(&self) -> Vec<(Name, Ino)> {
        let seen = |(name, _): &(&Name, &Ino)| !self.directories.contains_key(*name);
        let files = self.files.iter().filter(seen);
        self.directories.iter().chain(files).map(|(name, ino)| (name.clone(), *ino)).collect()
    }
}

#[derive(Default)]
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
    pub actor: Actor,
    pub now: i64,
}

impl Model {
    pub fn node(&self, ino: Ino) -> Outcome<&Node> {
        self.nodes.get(&ino).ok_or("not_found")
    }

    fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("a node")
    }

    pub fn directory(&self, ino: Ino, bits: u32) -> Outcome<&Node> {
        let node = self.node(ino)?;
        if !node.is_directory() {
            return Err("not_directory");
        }
        self.actor.may(node, bits)?;
        Ok(node)
    }

    pub fn find(&self, parent: Ino, name: &Name) -> Outcome<Ino> {
        self.directory(parent, 1)?.find(name).ok_or("not_found")
    }

    fn vacancy(&self, parent: Ino, name: &Name) -> Outcome<&Node> {
        let directory = self.directory(parent, 1)?;
        if directory.find(name).is_some() {
            return Err("exists");
        }
        self.actor.may(directory, 2)?;
        Ok(directory)
    }

    /// `new` is the number that the real thing got, if it went well.
    pub fn make(&mut self, parent: Ino, name: &Name, new: Ino, plain: Node) -> Outcome<Ino> {
        let directory = self.vacancy(parent, name)?;
        let (uid, gid, _) = self.actor.0.clone().unwrap_or_default();
        let mut node = Node { uid, gid, bucket: directory.bucket, names: 1, ..plain };
        if directory.mode & 0o2000 != 0 {
            node.gid = directory.gid;
            node.mode |= if node.is_directory() { 0o2000 } else { 0 };
        }
        if !node.is_directory() && node.mode & 0o2010 == 0o2010 && !self.actor.member(node.gid) {
            node.mode -= 0o2000;
        }
        (node.parent, node.atime, node.mtime, node.ctime) = (parent, self.now, self.now, self.now);
        self.attach(parent, name, new, node.is_directory());
        self.nodes.insert(new, node);
        Ok(new)
    }

    pub fn create(&mut self, parent: Ino, name: &Name, new: Ino, how: (u32, bool)) -> Outcome<Ino> {
        let (mode, exclusive) = how;
        match self.find(parent, name) {
            Ok(_) if exclusive => Err("exists"),
            Ok(found) if self.nodes[&found].is_directory() => Err("is_directory"),
            Ok(found) => Ok(found),
            Err("not_found") if self.nodes.contains_key(&parent) => {
                self.make(parent, name, new, Node { kind: Kind::File, mode, ..Node::default() })
            }
            Err(other) => Err(other),
        }
    }

    /// Does a PUT of S3: makes directories on the way, and lies beside a directory.
    pub fn put(&mut self, directories: &[(Ino, Name, Ino)], file: (Ino, Name, Ino), bucket: Ino) {
        let (uid, gid, _) = self.actor.0.clone().unwrap_or_default();
        let now = self.now;
        let plain =
            Node { bucket, uid, gid, atime: now, mtime: now, ctime: now, ..Node::default() };
        for (parent, name, ino) in directories {
            let (kind, mode, implicit, parent_of) = (Kind::Directory, 0o755, true, *parent);
            let made = Node { kind, mode, implicit, parent: parent_of, names: 1, ..plain.clone() };
            let node = match (&self.actor.0, &self.nodes[parent]) {
                (Some(_), _) => made,
                (None, above) => Node { uid: above.uid, gid: above.gid, mode: above.mode, ..made },
            };
            self.attach(*parent, name, *ino, true);
            self.nodes.insert(*ino, node);
        }
        let (parent, name, ino) = file;
        self.attach(parent, &name, ino, false);
        self.nodes.insert(ino, Node { mode: 0o644, names: 1, parent, ..plain });
    }

    fn attach(&mut self, parent: Ino, name: &Name, ino: Ino, is_directory: bool) {
        let now = self.now;
        let directory = self.node_mut(parent);
        let names = if is_directory { &mut directory.directories } else { &mut directory.files };
        assert!(names.insert(name.clone(), ino).is_none());
        (directory.mtime, directory.ctime) = (now, directory.ctime.max(now));
    }

    fn detach(&mut self, parent: Ino, name: &Name) {
        let now = self.now;
        let directory = self.node_mut(parent);
        if directory.directories.remove(name).is_none() {
            directory.files.remove(name).expect("an entry");
        }
        (directory.mtime, directory.ctime) = (now, directory.ctime.max(now));
    }

    fn settle(&mut self, ino: Ino) {
        let node = self.node_mut(ino);
        if node.directories.is_empty() && node.files.is_empty() {
            node.implicit = false;
        }
    }

    fn drop_name(&mut self, ino: Ino) {
        let now = self.now;
        let node = self.node_mut(ino);
        node.names -= 1;
        node.ctime = now;
        if node.names == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn sticky(&self, parent: Ino, ino: Ino) -> Outcome {
        let directory = &self.nodes[&parent];
        let free = directory.mode & 0o1000 == 0
            || self.actor.owns(directory)
            || self.actor.owns(&self.nodes[&ino]);
        if free { Ok(()) } else { Err("denied") }
    }

    pub fn remove(&mut self, parent: Ino, name: &Name, directory: bool) -> Outcome {
        let ino = self.directory(parent, 3)?.find(name).ok_or("not_found")?;
        let node = &self.nodes[&ino];
        match (directory, node.is_directory()) {
            (true, false) => return Err("not_directory"),
            (false, true) => return Err("is_directory"),
            _ => {}
        }
        self.sticky(parent, ino)?;
        if directory && !(node.directories.is_empty() && node.files.is_empty()) {
            return Err("not_empty");
        }
        self.detach(parent, name);
        self.drop_name(ino);
        self.settle(parent);
        Ok(())
    }

    pub fn link(&mut self, ino: Ino, parent: Ino, name: &Name) -> Outcome {
        if self.node(ino)?.is_directory() {
            return Err("denied");
        }
        if self.vacancy(parent, name)?.bucket != self.nodes[&ino].bucket {
            return Err("cross_bucket");
        }
        self.attach(parent, name, ino, false);
        let now = self.now;
        let node = self.node_mut(ino);
        node.names += 1;
        node.ctime = now;
        Ok(())
    }

    fn movable(&self, ino: Ino, from: Ino, to: Ino) -> Outcome {
        self.sticky(from, ino)?;
        let node = &self.nodes[&ino];
        if from == to || !node.is_directory() {
            return Ok(());
        }
        self.actor.may(node, 2)?;
        let mut above = to;
        while let Some(node) = self.nodes.get(&above) {
            if above == ino {
                return Err("invalid");
            }
            above = node.parent;
        }
        Ok(())
    }

    pub fn rename(
        &mut self,
        source: (Ino, &Name),
        target: (Ino, &Name),
        mode: RenameMode,
    ) -> Outcome {
        let (from, to) = (source.0, target.0);
        let source_bucket = self.directory(from, 3)?.bucket;
        if self.directory(to, 3)?.bucket != source_bucket {
            return Err("cross_bucket");
        }
        let moved = self.find(from, source.1)?;
        self.movable(moved, from, to)?;
        let there = self.nodes[&to].find(target.1);
        let is_directory = self.nodes[&moved].is_directory();
        match (there, mode) {
            (None, RenameMode::Exchange) => return Err("not_found"),
            (None, _) => {}
            (Some(_), RenameMode::NoReplace) => return Err("exists"),
            (Some(there), _) if there == moved => return Ok(()),
            (Some(there), RenameMode::Exchange) => return self.exchange(source, target, there),
            (Some(there), RenameMode::Replace) => {
                self.sticky(to, there)?;
                let node = &self.nodes[&there];
                match (is_directory, node.is_directory()) {
                    (true, false) => return Err("not_directory"),
                    (false, true) => return Err("is_directory"),
                    _ => {}
                }
                if !(node.directories.is_empty() && node.files.is_empty()) {
                    return Err("not_empty");
                }
                self.detach(to, target.1);
                self.drop_name(there);
            }
        }
        self.detach(from, source.1);
        self.arrive(to, target.1, moved);
        self.settle(from);
        Ok(())
    }

    fn arrive(&mut self, to: Ino, name: &Name, ino: Ino) {
        let now = self.now;
        let node = self.node_mut(ino);
        (node.parent, node.ctime) = (to, now);
        let is_directory = node.is_directory();
        self.attach(to, name, ino, is_directory);
    }

    fn exchange(&mut self, source: (Ino, &Name), target: (Ino, &Name), there: Ino) -> Outcome {
        self.movable(there, target.0, source.0)?;
        let moved = self.nodes[&source.0].find(source.1).expect("the source");
        // A file must not take the place of an object that a directory hid.
        let lands = |ino: Ino, (parent, name): (Ino, &Name)| {
            let parent = &self.nodes[&parent];
            let hidden = parent.directories.contains_key(name) && parent.files.contains_key(name);
            !self.nodes[&ino].is_directory() && hidden
        };
        if lands(moved, target) || lands(there, source) {
            return Err("exists");
        }
        self.detach(source.0, source.1);
        self.detach(target.0, target.1);
        self.arrive(target.0, target.1, moved);
        self.arrive(source.0, source.1, there);
        Ok(())
    }

    pub fn setattr(&mut self, set: &Setattr) -> Outcome {
        let (actor, now) = (self.actor.clone(), self.now);
        self.node(set.ino)?;
        let mut node = self.nodes[&set.ino].clone();
        let own = || if actor.owns(&self.nodes[&set.ino]) { Ok(()) } else { Err("denied") };
        if set.uid.is_some() || set.gid.is_some() {
            own()?;
            let gives = set.uid.is_some_and(|uid| uid != node.uid) && actor.limited().is_some();
            let joins = set.gid.is_some_and(|gid| gid != node.gid && !actor.member(gid));
            if gives || joins {
                return Err("denied");
            }
            node.uid = set.uid.unwrap_or(node.uid);
            node.gid = set.gid.unwrap_or(node.gid);
            if !node.is_directory() {
                node.mode = actor.unprivileged(&node);
            }
        }
        if let Some(mode) = set.mode {
            if !actor.owns(&node) {
                return Err("denied");
            }
            node.mode = if actor.member(node.gid) { mode } else { mode & !0o2000 };
        }
        let times = [set.atime, set.mtime];
        if times.iter().any(|time| matches!(time, Some(SetTime::At(_)))) {
            if !actor.owns(&node) {
                return Err("denied");
            }
        } else if times != [None, None] && !actor.owns(&node) {
            actor.may(&node, 2)?;
        }
        let at = |time| if let SetTime::At(time) = time { time.0 } else { now };
        node.atime = set.atime.map_or(node.atime, at);
        node.mtime = set.mtime.map_or(node.mtime, at);
        if (set.mode, set.uid, set.gid) != (None, None, None) || times != [None, None] {
            node.ctime = now;
        }
        self.nodes.insert(set.ino, node);
        Ok(())
    }

    /// Checks access to a `user.` attribute.
    fn xattrs(&self, ino: Ino, bits: u32) -> Outcome<&Node> {
        let node = self.node(ino)?;
        match node.kind {
            Kind::Directory if bits == 2 && node.mode & 0o1000 != 0 && !self.actor.owns(node) => {
                return Err("denied");
            }
            Kind::File | Kind::Directory => self.actor.may(node, bits)?,
            _ if bits == 4 => return Err("not_found"),
            _ => return Err("denied"),
        }
        Ok(node)
    }

    pub fn set_xattr(&mut self, ino: Ino, name: &Name, value: &[u8], mode: XattrMode) -> Outcome {
        let there = self.xattrs(ino, 2)?.xattrs.contains_key(name);
        match (there, mode) {
            (true, XattrMode::Create) => return Err("exists"),
            (false, XattrMode::Replace) => return Err("not_found"),
            _ => {}
        }
        let now = self.now;
        let node = self.node_mut(ino);
        node.xattrs.insert(name.clone(), value.to_vec());
        node.ctime = now;
        Ok(())
    }

    pub fn get_xattr(&self, ino: Ino, name: &Name) -> Outcome<Vec<u8>> {
        self.xattrs(ino, 4)?.xattrs.get(name).cloned().ok_or("not_found")
    }

    pub fn remove_xattr(&mut self, ino: Ino, name: &Name) -> Outcome {
        if !self.xattrs(ino, 2)?.xattrs.contains_key(name) {
            return Err("not_found");
        }
        let now = self.now;
        let node = self.node_mut(ino);
        node.xattrs.remove(name);
        node.ctime = now;
        Ok(())
    }

    /// A file about to be changed.
    pub fn writable(&self, ino: Ino, opened: bool) -> Outcome<&Node> {
        self.file(ino, if opened { 0 } else { 2 })
    }

    /// A file about to be read.
    pub fn readable(&self, ino: Ino, opened: bool) -> Outcome<&Node> {
        self.file(ino, if opened { 0 } else { 4 })
    }

    fn file(&self, ino: Ino, bits: u32) -> Outcome<&Node> {
        let node = self.node(ino)?;
        match node.kind {
            Kind::File => {}
            Kind::Directory => return Err("is_directory"),
            _ => return Err("invalid"),
        }
        self.actor.may(node, bits)?;
        Ok(node)
    }

    /// Returns how many bytes of `source`, starting at `from`, can be put into `target` at `to`, or
    /// why none.
    pub fn copyable(
        &self,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        len: u64,
        opened: bool,
    ) -> Outcome<u64> {
        let found = self.readable(source, opened)?;
        if self.writable(target, opened)?.bucket != found.bucket {
            return Err("cross_bucket");
        }
        let len = len.min(found.size.saturating_sub(from));
        if source == target && len > 0 && from < to + len && to < from + len {
            Err("invalid")
        } else {
            Ok(len)
        }
    }

    /// Its bytes changed.
    pub fn touch(&mut self, ino: Ino) -> &mut Node {
        let (now, actor) = (self.now, self.actor.clone());
        let keeps = actor.0.as_ref().is_some_and(|actor| actor.0 == 0);
        let node = self.node_mut(ino);
        (node.mtime, node.ctime) = (now, now);
        if !keeps {
            node.mode = actor.unprivileged(node);
        }
        node
    }
}
