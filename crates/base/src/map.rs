//! The cluster map: the nodes, and the groups of blocks that they hold.
//!
//! It is small (groups, not blocks), kept in one row by the metadata, changed by operations only,
//! and numbered: each change makes a new epoch. Every node has a copy; every call about blocks
//! names the epoch of the caller's copy.

mod anew;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::codec::{Field, Fields, Writer};
use crate::{CapabilitySet, Error, GroupId, KeyHash, NodeId, Pin, Redundancy, Result, Role, Roles};

/// Most replicas that a group can have.
pub const REPLICAS_MAX: u8 = 5;
/// Most bytes of a map, which is one row and part of one operation.
pub const MAP_BYTES: usize = 768 << 10;

const FORMAT: u8 = 1;

/// Nodes and groups as of one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterMap {
    /// Number of the map; it grows with every change.
    pub epoch: u64,
    /// Replicas of a block whose bucket does not set a number.
    pub replicas: u8,
    /// Fewest replicas with which a write is acknowledged while the other members are not up.
    pub minimum: u8,
    /// Other numbers of replicas that buckets ask for.
    pub replica_counts: BTreeSet<u8>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub groups: BTreeMap<GroupId, Group>,
    pub next_node: u64,
    pub next_group: u32,
    /// Epoch of the first map since masters were given up or a dump was loaded; 0 if neither has
    /// happened. Earlier maps may belong to metadata that no longer count.
    pub generation: u64,
    /// Masters that were given up when this generation began. When one comes back, it learns this
    /// and gets nothing else.
    pub former: BTreeMap<NodeId, Node>,
    /// Capabilities that are turned on: every node of the cluster must have them. The map names
    /// them as required of its readers.
    pub capabilities: CapabilitySet,
    pub unknown: Vec<u8>,
}

/// A node that has joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub pin: Pin,
    /// `host:port` at which other nodes reach it; empty if nodes do not dial it.
    pub address: String,
    /// URL at which clients reach its door, for redirects; empty if it has none.
    pub url: String,
    /// Zone whose nodes may fail together; empty for a zone of its own.
    pub zone: String,
    /// Share of the data that it should get, relative to the other nodes; 0 for none.
    pub weight: u32,
    /// Identity of the block store that the node has reported; 0 for none. A store with another
    /// identity counts as empty.
    pub disk: u128,
    /// State as the master sees it: the node answers.
    pub is_up: bool,
    /// Set while its blocks are to move to other nodes.
    pub is_draining: bool,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

/// Chunkservers that hold the same blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// The redundancy that its members should provide.
    pub redundancy: Redundancy,
    /// Epoch of the last change of its members. Writers with an older map may not know all of them.
    pub changed: u64,
    /// Members in the order of their positions. With copies, all of them hold the same.
    pub members: Vec<Member>,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    pub node: NodeId,
    /// Set if it has every acknowledged block of the group. A member that lacks some is catching
    /// up.
    pub in_sync: bool,
    /// Set while it stays until another member has replaced it.
    pub is_leaving: bool,
}

impl Member {
    /// Creates a member that is not leaving.
    pub fn new(node: NodeId, in_sync: bool) -> Member {
        Member { node, in_sync, is_leaving: false }
    }
}

impl Group {
    pub fn has(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    /// Returns the position of a node among the members.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    pub fn in_sync(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().filter(|member| member.in_sync).map(|member| member.node)
    }
}

impl ClusterMap {
    pub fn masters(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.is_master()).map(|(id, node)| (*id, node))
    }

    /// Addresses of the masters that have reported one.
    pub fn master_addresses(&self) -> Vec<String> {
        let addresses = self.masters().map(|(_, node)| node.address.clone());
        addresses.filter(|address| !address.is_empty()).collect()
    }

    /// Redundancy of a block whose bucket does not set one.
    pub fn usual(&self) -> Redundancy {
        Redundancy::Copies(self.replicas)
    }

    /// All redundancies for which groups are needed.
    pub fn redundancies(&self) -> BTreeSet<Redundancy> {
        let counts = self.replica_counts.iter().copied().chain([self.replicas]);
        counts.map(Redundancy::Copies).collect()
    }

    /// Returns the largest number of replicas of a block in any bucket.
    pub fn most_replicas(&self) -> u8 {
        self.replica_counts.iter().copied().fold(self.replicas, u8::max)
    }

    /// Returns the number of groups of which a node is a member.
    pub fn groups_of(&self, node: NodeId) -> usize {
        self.groups.values().filter(|group| group.has(node)).count()
    }

    /// Removes a node that no group needs any more. Removing it again is no error: a removal is
    /// repeated if its answer was lost.
    ///
    /// # Errors
    /// `Conflict` while it is in a group; `NotFound` if it never existed.
    pub fn forget(&mut self, node: NodeId) -> Result<()> {
        let groups = self.groups_of(node);
        if groups > 0 {
            return Err(Error::Conflict(format!(
                "node {node} is in {groups} groups: drain it, and wait until it is in none"
            )));
        }
        let was_one = (1..self.next_node).contains(&node.0);
        if self.nodes.remove(&node).is_none() && !was_one {
            return Err(Error::NotFound(format!("node {node}")));
        }
        Ok(())
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_up)
    }

    /// Returns whether blocks may be written to a group: every member is up and in sync.
    pub fn takes_writes(&self, group: &Group) -> bool {
        !group.members.is_empty()
            && group.members.iter().all(|member| member.in_sync && self.is_up(member.node))
    }

    /// Chunkservers that are up, are not drained, and have a weight.
    pub fn places(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let fits = |node: &Node| {
            node.is_up
                && !node.is_draining
                && node.weight > 0
                && node.pin.roles.contains(Role::Chunkserver)
        };
        self.nodes.iter().filter(move |(_, node)| fits(node)).map(|(id, node)| (*id, node))
    }

    /// Returns the URLs of members of a group that are up, in sync, and have a door for clients.
    pub fn urls_of(&self, group: GroupId) -> impl Iterator<Item = &str> {
        let members = self.groups.get(&group).into_iter().flat_map(Group::in_sync);
        let nodes = members.filter_map(|node| self.nodes.get(&node));
        let fits = |node: &&Node| node.is_up && node.pin.roles.contains(Role::Chunkserver);
        nodes.filter(fits).map(|node| node.url.as_str()).filter(|url| !url.is_empty())
    }

    /// Makes this map the successor of `former`: increments the epoch, and notes it in the groups
    /// that changed.
    pub fn follow(&mut self, former: &ClusterMap) {
        self.epoch = former.epoch + 1;
        for (id, group) in &mut self.groups {
            let same = former.groups.get(id).filter(|before| before.members == group.members);
            group.changed = same.map_or(self.epoch, |before| before.changed);
        }
    }

    pub fn pin(&self, node: NodeId) -> Option<Pin> {
        self.nodes.get(&node).map(|node| node.pin)
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Writer::requiring(self.capabilities);
        out.number(1, self.epoch)
            .number(2, self.replicas.into())
            .number(3, self.minimum.into())
            .number(6, self.next_node)
            .number(7, self.next_group.into());
        for count in &self.replica_counts {
            out.number(8, (*count).into());
        }
        for (id, node) in &self.nodes {
            out.bytes(4, &encode_node(*id, node));
        }
        for (id, group) in &self.groups {
            out.bytes(5, &encode_group(*id, group));
        }
        if self.generation > 0 {
            out.number(9, self.generation);
        }
        for (id, node) in &self.former {
            out.bytes(10, &encode_node(*id, node));
        }
        out.raw(&self.unknown);
        out.finish()
    }

    pub fn decode(row: &Bytes) -> Result<ClusterMap> {
        let (capabilities, mut fields) = Fields::open_requiring(row, FORMAT)?;
        let mut map = ClusterMap { capabilities, ..ClusterMap::default() };
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => map.epoch = field.number()?,
                2 => map.replicas = narrow(field.number()?)?,
                3 => map.minimum = narrow(field.number()?)?,
                4 => {
                    let (id, node) = decode_node(&field.value)?;
                    map.nodes.insert(id, node);
                }
                5 => {
                    let (id, group) = decode_group(&field.value)?;
                    map.groups.insert(id, group);
                }
                6 => map.next_node = field.number()?,
                7 => map.next_group = narrow(field.number()?)?,
                8 => drop(map.replica_counts.insert(narrow(listed(&field)?)?)),
                9 => map.generation = field.number()?,
                10 => {
                    let (id, node) = decode_node(&field.value)?;
                    map.former.insert(id, node);
                }
                _ => field.keep(&mut map.unknown),
            }
        }
        Ok(map)
    }

    /// Checks the invariants of every map.
    ///
    /// # Errors
    /// `Invalid` for groups of unknown nodes, of no or too many nodes, or with one node twice; and
    /// for numbers that were given already.
    pub fn check(&self) -> Result<()> {
        let bad = |text: String| Err(Error::Invalid(format!("cluster map: {text}")));
        if !(1..=REPLICAS_MAX).contains(&self.replicas)
            || !(1..=self.replicas).contains(&self.minimum)
        {
            return bad(format!(
                "{} replicas with a minimum of {}: use 1 to {REPLICAS_MAX} replicas, and a \
                    minimum of \
                 at most that",
                self.replicas, self.minimum
            ));
        }
        if self.replica_counts.iter().any(|count| !(1..=REPLICAS_MAX).contains(count)) {
            return bad(format!("a bucket has more than {REPLICAS_MAX} replicas"));
        }
        let mut nodes = self.nodes.keys().chain(self.former.keys());
        if nodes.any(|id| id.0 == 0 || id.0 >= self.next_node)
            || self.groups.keys().any(|id| id.0 >= self.next_group)
        {
            return bad("it uses a node or group number that has not been assigned yet".into());
        }
        for (id, group) in &self.groups {
            if !(1..=REPLICAS_MAX).contains(&group.redundancy.number()) {
                return bad(format!(
                    "group {id} wants {} members; must be 1 to {REPLICAS_MAX}",
                    group.redundancy.number()
                ));
            }
            if group.members.is_empty() || group.members.len() > 2 * usize::from(REPLICAS_MAX) {
                return bad(format!(
                    "group {id} has {} members; must be 1 to {}",
                    group.members.len(),
                    2 * REPLICAS_MAX
                ));
            }
            for (at, member) in group.members.iter().enumerate() {
                if !self.nodes.contains_key(&member.node) {
                    return bad(format!(
                        "group {id} names node {}, which is not in the map",
                        member.node
                    ));
                }
                if group.members[..at].iter().any(|other| other.node == member.node) {
                    return bad(format!("group {id} names node {} twice", member.node));
                }
            }
        }
        if self.encode().len() > MAP_BYTES {
            return bad(format!("it is larger than {MAP_BYTES} bytes"));
        }
        Ok(())
    }
}

/// Reads a number of a repeated field. [`Writer::number`] leaves zero out, so a zero here would be
/// missing in the next written map: no node has this number, and no count is zero.
fn listed(field: &Field) -> Result<u64> {
    match field.number()? {
        0 => Err(Error::corrupt("cluster map", 0, "a number of a list, from 1")),
        number => Ok(number),
    }
}

fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T> {
    let wide = |_| Error::corrupt("cluster map", number, "a smaller number");
    T::try_from(number).map_err(wide)
}

fn encode_node(id: NodeId, node: &Node) -> Bytes {
    let mut out = Writer::new(FORMAT);
    out.number(1, id.0)
        .bytes(2, &node.pin.key.0)
        .number(3, node.pin.roles.bits().into())
        .text(4, &node.address)
        .text(5, &node.url)
        .text(6, &node.zone)
        .number(7, node.weight.into())
        .bytes(8, &node.disk.to_be_bytes())
        .number(9, node.is_up.into())
        .number(10, node.is_draining.into())
        .raw(&node.unknown);
    out.finish()
}

fn decode_node(row: &Bytes) -> Result<(NodeId, Node)> {
    let pin = Pin { key: KeyHash([0; 32]), roles: Roles::NONE };
    let (mut id, mut node) = (NodeId(0), Node::new(pin));
    node.weight = 0;
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            1 => id = NodeId(field.number()?),
            2 => node.pin.key = KeyHash(fixed(&field.value)?),
            3 => node.pin.roles = Roles::from_bits(narrow(field.number()?)?),
            4 => node.address = field.text()?,
            5 => node.url = field.text()?,
            6 => node.zone = field.text()?,
            7 => node.weight = narrow(field.number()?)?,
            8 => node.disk = u128::from_be_bytes(fixed(&field.value)?),
            9 => node.is_up = field.number()? != 0,
            10 => node.is_draining = field.number()? != 0,
            _ => field.keep(&mut node.unknown),
        }
    }
    Ok((id, node))
}

fn fixed<const N: usize>(bytes: &Bytes) -> Result<[u8; N]> {
    let short = |_| Error::corrupt("cluster map", bytes.len(), N);
    <[u8; N]>::try_from(&bytes[..]).map_err(short)
}

fn encode_group(id: GroupId, group: &Group) -> Bytes {
    let mut out = Writer::new(FORMAT);
    out.number(1, id.0.into()).number(2, group.redundancy.number().into()).number(5, group.changed);
    for member in &group.members {
        out.number(if member.in_sync { 3 } else { 4 }, member.node.0);
    }
    for member in group.members.iter().filter(|member| member.is_leaving) {
        out.number(6, member.node.0);
    }
    out.raw(&group.unknown);
    out.finish()
}

fn decode_group(row: &Bytes) -> Result<(GroupId, Group)> {
    let (mut id, mut group) = (GroupId(0), Group::default());
    // A group without a redundancy is refused.
    group.redundancy = Redundancy::Copies(0);
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            1 => id = GroupId(narrow(field.number()?)?),
            2 => group.redundancy = Redundancy::Copies(narrow(field.number()?)?),
            3 | 4 => {
                group.members.push(Member::new(NodeId(listed(&field)?), field.tag == 3));
            }
            5 => group.changed = field.number()?,
            6 => {
                let node = NodeId(field.number()?);
                let mut members = group.members.iter_mut();
                let member = members.find(|member| member.node == node);
                let stray = || {
                    Error::Invalid(format!(
                        "cluster map: node {node} leaves a group of which it is no member"
                    ))
                };
                member.ok_or_else(stray)?.is_leaving = true;
            }
            _ => field.keep(&mut group.unknown),
        }
    }
    Ok((id, group))
}

impl Node {
    /// Creates a node that has just been admitted and was not seen up yet.
    pub fn new(pin: Pin) -> Node {
        Node {
            pin,
            address: String::new(),
            url: String::new(),
            zone: String::new(),
            weight: 1,
            disk: 0,
            is_up: false,
            is_draining: false,
            unknown: Vec::new(),
        }
    }

    pub fn is_master(&self) -> bool {
        self.pin.roles.contains(Role::Master)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map() -> ClusterMap {
        let mut map = ClusterMap { replicas: 3, minimum: 2, next_node: 4, ..Default::default() };
        for id in 1..4 {
            let pin = Pin { key: KeyHash([id; 32]), roles: Role::Chunkserver.into() };
            let node = Node { is_up: true, zone: "z".into(), disk: 7, ..Node::new(pin) };
            map.nodes.insert(NodeId(id.into()), node);
        }
        let member = |node| Member::new(NodeId(node), true);
        let members = vec![member(3), member(1), member(2)];
        map.groups.insert(
            GroupId(1),
            Group { redundancy: Redundancy::Copies(3), changed: 5, members, ..Group::default() },
        );
        map.next_group = 2;
        map
    }

    #[test]
    fn a_map_reads_back() {
        let mut map = map();
        map.groups.get_mut(&GroupId(1)).unwrap().members[1].in_sync = false;
        map.groups.get_mut(&GroupId(1)).unwrap().members[2].is_leaving = true;
        map.nodes.get_mut(&NodeId(2)).unwrap().is_draining = true;
        map.generation = 1 << 50;
        let pin = Pin { key: KeyHash([9; 32]), roles: Role::Master.into() };
        map.former.insert(NodeId(3), Node { address: "a:1".into(), ..Node::new(pin) });
        assert_eq!(ClusterMap::decode(&map.encode()).unwrap(), map);
    }

    /// Earlier programs find the capability as a format that they do not read.
    #[test]
    fn a_map_with_a_capability_is_read_by_programs_that_have_it() {
        let mut map = map();
        assert_eq!(map.encode()[0], 1);
        map.capabilities = CapabilitySet::own();
        let row = map.encode();
        assert_eq!(row[..3], [2, 1, 1]);
        assert_eq!(ClusterMap::decode(&row).unwrap(), map);
        let later = Bytes::from([&[2, 2, 1, 40], &row[3..]].concat());
        let error = ClusterMap::decode(&later).unwrap_err();
        assert!(matches!(&error, Error::NotImplemented(text) if text.contains("capability 40")));
        assert_eq!(map.anew(None, 1 << 40).unwrap().capabilities, map.capabilities);
    }

    /// A master of an older version, which changes the map, must destroy nothing.
    #[test]
    fn fields_of_a_newer_version_are_kept() {
        let mut newer = Writer::new(FORMAT);
        newer.text(99, "from the future");
        let unknown = newer.finish()[1..].to_vec();
        let mut map = map();
        map.unknown = unknown.clone();
        map.nodes.get_mut(&NodeId(2)).unwrap().unknown = unknown.clone();
        map.groups.get_mut(&GroupId(1)).unwrap().unknown = unknown.clone();
        let mut read = ClusterMap::decode(&map.encode()).unwrap();
        assert_eq!(read, map);
        read.nodes.get_mut(&NodeId(2)).unwrap().is_up = false;
        let again = ClusterMap::decode(&read.encode()).unwrap();
        assert_eq!(again.nodes[&NodeId(2)].unknown, unknown);
        assert_eq!(again.groups[&GroupId(1)].unknown, unknown);
    }

    #[test]
    fn a_group_takes_writes_while_all_members_are_up_and_in_sync() {
        let takes = |map: &ClusterMap| map.takes_writes(&map.groups[&GroupId(1)]);
        assert!(takes(&map()));
        let mut down = map();
        down.nodes.get_mut(&NodeId(2)).unwrap().is_up = false;
        assert!(!takes(&down));
        let mut behind = map();
        behind.groups.get_mut(&GroupId(1)).unwrap().members[0].in_sync = false;
        assert!(!takes(&behind));
    }

    #[test]
    fn clients_are_sent_to_members_that_have_all_and_a_door() {
        let mut map = map();
        let urls = |map: &ClusterMap| -> Vec<String> {
            map.urls_of(GroupId(1)).map(str::to_owned).collect()
        };
        assert!(urls(&map).is_empty());
        for (id, node) in &mut map.nodes {
            node.url = format!("http://{id}");
        }
        assert_eq!(urls(&map), ["http://3", "http://1", "http://2"]);
        map.groups.get_mut(&GroupId(1)).unwrap().members[0].in_sync = false;
        map.nodes.get_mut(&NodeId(1)).unwrap().is_up = false;
        assert_eq!(urls(&map), ["http://2"]);
        assert_eq!(map.urls_of(GroupId(9)).count(), 0);
    }

    #[test]
    fn strange_maps_are_refused() {
        map().check().unwrap();
        let check = |change: fn(&mut ClusterMap), expect: &str| {
            let mut map = map();
            change(&mut map);
            let error = map.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(|map| drop(map.nodes.remove(&NodeId(2))), "not in the map");
        check(|map| map.minimum = 4, "replicas");
        check(|map| map.next_node = 3, "not been assigned");
        check(|map| map.groups.get_mut(&GroupId(1)).unwrap().members[0].node = NodeId(1), "twice");
        check(
            |map| map.groups.get_mut(&GroupId(1)).unwrap().redundancy = Redundancy::Copies(6),
            "wants 6",
        );
    }

    fn reads_back_or_is_refused(bytes: &Bytes) {
        if let Ok(map) = ClusterMap::decode(bytes) {
            let _ = map.check();
            assert_eq!(ClusterMap::decode(&map.encode()).unwrap(), map, "{bytes:?}");
        }
    }

    #[test]
    fn a_map_with_any_byte_changed_reads_back_or_is_refused() {
        let mut map = map();
        map.replica_counts.insert(2);
        map.capabilities = CapabilitySet::own();
        map.groups.get_mut(&GroupId(1)).unwrap().members[1].is_leaving = true;
        let row = map.encode().to_vec();
        for at in 0..row.len() {
            for byte in 0..=u8::MAX {
                let mut changed = row.clone();
                changed[at] = byte;
                reads_back_or_is_refused(&changed.into());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_map_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            reads_back_or_is_refused(&bytes.into());
        }
    }
}
