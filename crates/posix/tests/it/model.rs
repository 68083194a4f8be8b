//! A file system as a model, in maps and vectors.

use std::collections::BTreeMap;

use cairn_base::Error;

/// Why something is refused, as far as programs see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NotFound,
    Exists,
    NotEmpty,
    IsDirectory,
    NotDirectory,
    Invalid,
    Denied,
}

impl Refusal {
    pub fn of(error: &Error) -> Refusal {
        match error {
            Error::NotFound(_) => Refusal::NotFound,
            Error::Exists(_) => Refusal::Exists,
            Error::NotEmpty(_) => Refusal::NotEmpty,
            Error::IsDirectory(_) => Refusal::IsDirectory,
            Error::NotDirectory(_) => Refusal::NotDirectory,
            Error::Invalid(_) => Refusal::Invalid,
            Error::Denied(_) => Refusal::Denied,
            other => panic!("{other}"),
        }
    }
}

pub type Id = usize;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    File { bytes: Vec<u8>, names: u32 },
    Directory { entries: BTreeMap<String, Id>, parent: Id },
}

/// A tree. Nodes are never taken away: those that no name leads to may be open.
pub struct Model {
    pub nodes: Vec<Node>,
}

pub const TOP: Id = 0;

impl Model {
    pub fn new() -> Model {
        Model { nodes: vec![Node::Directory { entries: BTreeMap::new(), parent: TOP }] }
    }

    pub fn directories(&self) -> Vec<Id> {
        let mut found = vec![TOP];
        let mut at = 0;
        while at < found.len() {
            let is_directory = |id: &Id| matches!(self.nodes[*id], Node::Directory { .. });
            found.extend(self.entries(found[at]).values().copied().filter(is_directory));
            at += 1;
        }
        found
    }

    pub fn entries(&self, id: Id) -> &BTreeMap<String, Id> {
        match &self.nodes[id] {
            Node::Directory { entries, .. } => entries,
            Node::File { .. } => panic!("not a directory"),
        }
    }

    fn entries_mut(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.nodes[id] {
            Node::Directory { entries, .. } => entries,
            Node::File { .. } => panic!("not a directory"),
        }
    }

    pub fn find(&self, parent: Id, name: &str) -> Option<Id> {
        self.entries(parent).get(name).copied()
    }

    /// The names that lead to a node, each with the directory it is in.
    pub fn path(&self, id: Id) -> Vec<(Id, String)> {
        let mut ways: BTreeMap<Id, Vec<(Id, String)>> = BTreeMap::from([(TOP, Vec::new())]);
        for directory in self.directories() {
            let way = ways[&directory].clone();
            for (name, child) in self.entries(directory) {
                let further = [&way[..], &[(directory, name.clone())]].concat();
                ways.entry(*child).or_insert(further);
            }
        }
        ways.remove(&id).unwrap()
    }

    pub fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[id], Node::Directory { .. })
    }

    pub fn bytes(&self, id: Id) -> &Vec<u8> {
        match &self.nodes[id] {
            Node::File { bytes, .. } => bytes,
            Node::Directory { .. } => panic!("a directory"),
        }
    }

    pub fn names(&self, id: Id) -> u32 {
        match &self.nodes[id] {
            Node::File { names, .. } => *names,
            Node::Directory { .. } => 1,
        }
    }

    fn add(&mut self, parent: Id, name: &str, node: Node) -> Result<Id, Refusal> {
        if self.find(parent, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.nodes.push(node);
        let id = self.nodes.len() - 1;
        self.entries_mut(parent).insert(name.into(), id);
        Ok(id)
    }

    pub fn create(&mut self, parent: Id, name: &str) -> Result<Id, Refusal> {
        self.add(parent, name, Node::File { bytes: Vec::new(), names: 1 })
    }

    pub fn mkdir(&mut self, parent: Id, name: &str) -> Result<Id, Refusal> {
        self.add(parent, name, Node::Directory { entries: BTreeMap::new(), parent })
    }

    pub fn link(&mut self, id: Id, parent: Id, name: &str) -> Result<(), Refusal> {
        if self.find(parent, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.entries_mut(parent).insert(name.into(), id);
        self.count(id, 1);
        Ok(())
    }

    fn count(&mut self, id: Id, more: i64) {
        if let Node::File { names, .. } = &mut self.nodes[id] {
            *names = u32::try_from(i64::from(*names) + more).unwrap();
        }
    }

    pub fn unlink(&mut self, parent: Id, name: &str) -> Result<(), Refusal> {
        let id = self.find(parent, name).ok_or(Refusal::NotFound)?;
        if self.is_directory(id) {
            return Err(Refusal::IsDirectory);
        }
        self.entries_mut(parent).remove(name);
        self.count(id, -1);
        Ok(())
    }

    pub fn rmdir(&mut self, parent: Id, name: &str) -> Result<(), Refusal> {
        let id = self.find(parent, name).ok_or(Refusal::NotFound)?;
        if !self.is_directory(id) {
            return Err(Refusal::NotDirectory);
        }
        if !self.entries(id).is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.entries_mut(parent).remove(name);
        Ok(())
    }

    fn is_within(&self, id: Id, ancestor: Id) -> bool {
        let mut at = id;
        loop {
            if at == ancestor {
                return true;
            }
            match &self.nodes[at] {
                Node::Directory { parent, .. } if *parent != at => at = *parent,
                _ => return false,
            }
        }
    }

    /// Moves a name to another one, in place of what that stands for.
    pub fn rename(
        &mut self,
        (source_parent, source): (Id, &str),
        (target_parent, target): (Id, &str),
    ) -> Result<(), Refusal> {
        let id = self.find(source_parent, source).ok_or(Refusal::NotFound)?;
        let moves_directory = self.is_directory(id);
        if moves_directory && self.is_within(target_parent, id) {
            return Err(Refusal::Invalid);
        }
        if let Some(replaced) = self.find(target_parent, target) {
            if replaced == id {
                return Ok(());
            }
            match (moves_directory, self.is_directory(replaced)) {
                (false, true) => return Err(Refusal::IsDirectory),
                (true, false) => return Err(Refusal::NotDirectory),
                (true, true) if !self.entries(replaced).is_empty() => {
                    return Err(Refusal::NotEmpty);
                }
                _ => self.count(replaced, -1),
            }
        }
        self.entries_mut(source_parent).remove(source);
        self.entries_mut(target_parent).insert(target.into(), id);
        if let Node::Directory { parent, .. } = &mut self.nodes[id] {
            *parent = target_parent;
        }
        Ok(())
    }

    /// Changes places.
    pub fn exchange(
        &mut self,
        (source_parent, source): (Id, &str),
        (target_parent, target): (Id, &str),
    ) -> Result<(), Refusal> {
        let one = self.find(source_parent, source).ok_or(Refusal::NotFound)?;
        let other = self.find(target_parent, target).ok_or(Refusal::NotFound)?;
        for (id, into) in [(one, target_parent), (other, source_parent)] {
            if self.is_directory(id) && self.is_within(into, id) {
                return Err(Refusal::Invalid);
            }
        }
        for (id, into, name) in [(one, target_parent, target), (other, source_parent, source)] {
            self.entries_mut(into).insert(name.into(), id);
            if let Node::Directory { parent, .. } = &mut self.nodes[id] {
                *parent = into;
            }
        }
        Ok(())
    }

    pub fn write(&mut self, id: Id, offset: usize, data: &[u8]) {
        let Node::File { bytes, .. } = &mut self.nodes[id] else { panic!("a directory") };
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    pub fn cut(&mut self, id: Id, size: usize) {
        let Node::File { bytes, .. } = &mut self.nodes[id] else { panic!("a directory") };
        bytes.resize(size, 0);
    }
}
