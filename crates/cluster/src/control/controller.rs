//! The master that serves, as other nodes know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::waits;
use cairn_base::{
    Applicant, Capability, Clock, ClusterMap, Error, JoinGrant, NodeId, Result, Role, Roles,
    Timestamp, TokenId,
};
use cairn_meta::engine::raft::Member;
use cairn_meta::master::host::{Owner, Sessions};
use cairn_meta::ops::gc::FreeOrphans;
use cairn_meta::{Master, wire};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::degraded_names::Naming;
use super::disk_faults::DiskFaults;
use super::edit::Edit;
use super::fsck::Fsck;
use super::keeper::MapKeeper;
use super::messages::{
    Beat, Beaten, CaughtUp, ControlMethod, DiskFault, EXTRA_BLOCKS, Extra, Secrets,
};
use super::plan::{Patience, plan};
use super::seating::Seating;
use super::status::{NodeStatus, SessionStatus, Status};
use super::working::WorkingTime;
use crate::data::Pool;
use crate::identity::{Desk, Tokens};
use crate::wire::{NodeProgram, PeerInfo, VERSION_MIN, own_program};

/// Times after which nodes are given up, and how this master keeps the metadata.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time of silence after which a node is not up.
    pub silence: Duration,
    /// Absence of a node after which its blocks are copied elsewhere.
    pub patience: Duration,
    /// The metadata are on the disk of this master: another one would have none.
    pub is_alone: bool,
    /// Time for which a new master serves before a full disk makes it hand over: if handing over
    /// fails, or all disks are nearly full, masters would do nothing else.
    pub rest: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            silence: Duration::from_secs(4),
            patience: Duration::from_secs(30),
            is_alone: false,
            rest: Duration::from_secs(60),
        }
    }
}

/// Serves the nodes of a cluster, as long as its master does.
pub struct Controller {
    pub master: Master,
    pub sessions: Arc<Sessions>,
    pub keeper: Arc<MapKeeper>,
    pub desk: Arc<Desk>,
    /// This node.
    pub node: NodeId,
    pub(super) clock: Arc<dyn Clock>,
    /// Time by which the silence of nodes is counted.
    time: WorkingTime,
    secrets: Secrets,
    pub(super) settings: Settings,
    pub(super) begun: Instant,
    seen: Mutex<BTreeMap<NodeId, LastBeat>>,
    faults: DiskFaults,
    /// The only nodes that looked for a master before this one served, if that is known.
    looked: OnceLock<BTreeSet<NodeId>>,
    /// Seating of the masters, if several keep the metadata together.
    pub(super) seating: Option<Seating>,
    /// Connections to chunkservers.
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) naming: Naming,
    /// The fsck that runs, or ended last.
    pub(super) fsck: Mutex<Option<Arc<Fsck>>>,
}

/// A master that serves, with its sessions.
pub struct ServingMaster {
    pub master: Master,
    pub sessions: Arc<Sessions>,
}

struct LastBeat {
    at: Duration,
    /// Number of the connection over which it beat.
    connection: u64,
    program: Arc<NodeProgram>,
    beat: Beat,
}

impl Controller {
    pub fn new(
        node: NodeId,
        serving: ServingMaster,
        keeper: Arc<MapKeeper>,
        desk: Arc<Desk>,
        secrets: Secrets,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Controller {
        let ServingMaster { master, sessions } = serving;
        let time = WorkingTime::new(Arc::clone(&clock), settings.silence / 2);
        Controller {
            master,
            sessions,
            keeper,
            desk,
            node,
            clock,
            time,
            secrets,
            settings,
            begun: Instant::now(),
            seen: Mutex::default(),
            faults: DiskFaults::default(),
            looked: OnceLock::new(),
            seating: None,
            pool: None,
            naming: Naming::default(),
            fsck: Mutex::default(),
        }
    }

    /// Sets the `pool` of connections over which it asks chunkservers.
    pub fn with_pool(self, pool: Arc<Pool>) -> Controller {
        Controller { pool: Some(pool), ..self }
    }

    /// Sets the `member` by which its master keeps the metadata together with others.
    pub fn with_member(self, member: Option<Arc<Member>>) -> Controller {
        Controller { seating: member.map(Seating::new), ..self }
    }

    /// Counts all nodes except `but` as silent until they beat: they did not look for a master
    /// while there was none.
    pub fn presume_silent(&self, but: &BTreeSet<NodeId>) {
        let _ = self.looked.set(but.clone());
    }

    /// Answers a request of a node.
    pub async fn handle(
        &self,
        peer: &PeerInfo,
        method: ControlMethod,
        message: &[u8],
    ) -> Result<Bytes> {
        let node = peer.authenticated.node;
        match method {
            ControlMethod::Serves => wire::encode(&self.keeper.current().generation),
            ControlMethod::Beat => wire::encode(&self.beat(peer, wire::decode(message)?).await?),
            ControlMethod::Map => Ok(self.map()?.encode()),
            ControlMethod::Secrets => wire::encode(&self.secrets_of(peer.authenticated.roles)),
            ControlMethod::Certify => self.certify(peer),
            ControlMethod::CaughtUp => self.caught_up(node, wire::decode(message)?).await,
            ControlMethod::Extra => self.extra(wire::decode(message)?).await,
            ControlMethod::DiskFault => self.note_fault(peer, &wire::decode(message)?),
            ControlMethod::Enter => wire::encode(&self.enter(peer).await?),
            ControlMethod::Renumber => wire::encode(&self.renumber(peer).await?),
            ControlMethod::Recall
            | ControlMethod::Vouched
            | ControlMethod::VouchedFrom
            | ControlMethod::Member
            | ControlMethod::MemberReport
            | ControlMethod::MemberStalls
            | ControlMethod::MemberDamage => {
                Err(Error::NotImplemented(format!("a master does not take the call {method:?}")))
            }
        }
    }

    /// Returns the map, if no other master can have changed it. A master whose lease has run out
    /// does not know of such a change, and a node that follows an old map deletes blocks that it
    /// should keep.
    fn map(&self) -> Result<Arc<ClusterMap>> {
        let map = self.keeper.current();
        if !is_planted(Bug::RenewedWithoutLease) {
            self.master.check_serving()?;
        }
        Ok(map)
    }

    async fn beat(&self, peer: &PeerInfo, beat: Beat) -> Result<Beaten> {
        let (node, connection) = (peer.authenticated.node, peer.connection);
        let (at, epoch) = (self.time.now(), beat.epoch);
        let map = self.keeper.current();
        if map.nodes.get(&node).is_some_and(|known| !says_the_same(known, &beat)) {
            self.keeper.edit(|map| introduce(map, node, &beat)).await?;
        }
        let program = Arc::clone(&peer.program);
        self.seen.lock().insert(node, LastBeat { at, connection, program, beat });
        let map = self.map()?;
        let newer = (map.epoch > epoch).then(|| map.encode());
        let seen = self.seen.lock();
        let stores = seen.iter().filter(|(_, seen)| seen.beat.disk != 0);
        let free_bytes = stores.map(|(node, seen)| (*node, seen.beat.store.free_bytes)).collect();
        Ok(Beaten { map: newer, free_bytes })
    }

    fn secrets_of(&self, roles: Roles) -> Secrets {
        let is_master = roles.contains(Role::Master);
        let unseals = is_master || roles.contains(Role::Gateway);
        Secrets {
            seal: self.secrets.seal.filter(|_| unseals),
            authority: self.secrets.authority.clone().filter(|_| is_master),
            links: self.secrets.links.filter(|_| unseals || roles.contains(Role::Chunkserver)),
        }
    }

    fn certify(&self, peer: &PeerInfo) -> Result<Bytes> {
        let none = || Error::Denied("the node has shown no certificate".into());
        let shown = peer.authenticated.certificate.as_ref().ok_or_else(none)?;
        let renewed = self.desk.renew(peer.authenticated.node, shown)?;
        Ok(Bytes::copy_from_slice(&renewed))
    }

    async fn caught_up(&self, node: NodeId, caught: CaughtUp) -> Result<Bytes> {
        let CaughtUp { group: id, epoch } = caught;
        let edited = self.keeper.edit(|map| {
            let group = map.groups.get_mut(&id).filter(|group| group.changed <= epoch);
            let member =
                group.and_then(|group| group.members.iter_mut().find(|member| member.node == node));
            let changed = || Error::Conflict(format!("group {id} has changed since epoch {epoch}"));
            member.ok_or_else(changed)?.in_sync = true;
            Ok(())
        });
        edited.await?;
        tracing::info!(%node, group = %id, "has caught up");
        Ok(Bytes::new())
    }

    fn note_fault(&self, peer: &PeerInfo, fault: &DiskFault) -> Result<Bytes> {
        let node = peer.authenticated.node;
        if !peer.authenticated.roles.contains(Role::Chunkserver) {
            return Err(Error::Denied(format!("node {node} is no chunkserver")));
        }
        let error = &fault.error;
        if self.faults.note(node, error, self.time.now(), self.settings.silence) {
            tracing::error!(
                %node,
                error,
                "the disk of a node takes no writes, others get them: `cairn cluster status` says \
                 what to do"
            );
        }
        Ok(Bytes::new())
    }

    /// Returns how long the disks of nodes have failed, and their errors.
    fn failing(&self, seen: &BTreeMap<NodeId, LastBeat>) -> BTreeMap<NodeId, (Duration, String)> {
        let mut failing = self.faults.lasting(self.time.now(), self.settings.silence);
        // The last beat is later than an earlier report.
        failing.retain(|node, _| seen.get(node).is_some_and(|seen| seen.beat.store.is_full));
        failing
    }

    async fn extra(&self, extra: Extra) -> Result<Bytes> {
        let Extra { group, blocks: candidates } = extra;
        if candidates.len() > EXTRA_BLOCKS {
            return Err(Error::TooLarge(format!("a call names more than {EXTRA_BLOCKS} blocks")));
        }
        let free = FreeOrphans { group, candidates, dry_run: false };
        let orphans = self.master.run(&Caller::system(), free).await?;
        if orphans.unknown > 0 {
            let blocks = orphans.unknown;
            tracing::error!(blocks, %group, "blocks that the metadata does not know: is it a copy?");
        }
        Ok(Bytes::new())
    }

    /// Remembers a join token.
    pub async fn issue(&self, id: TokenId, grant: JoinGrant) -> Result<()> {
        self.check_roles(grant.roles)?;
        self.keeper.issue(id, grant).await
    }

    /// Admits a node. Its token may be from a time when this master did not look at roles.
    pub async fn redeem(
        &self,
        id: TokenId,
        applicant: Applicant,
        now: Timestamp,
    ) -> Result<NodeId> {
        self.check_roles(applicant.roles)?;
        self.keeper.redeem(id, applicant, now).await
    }

    fn check_roles(&self, roles: Roles) -> Result<()> {
        if self.settings.is_alone && roles.contains(Role::Master) {
            let text = "the metadata are on the disk of this master alone (cairn cluster init had \
                        --engine embedded): there is no second master";
            return Err(Error::Invalid(text.into()));
        }
        Ok(())
    }

    /// Changes the map as an operator wants.
    pub async fn edit(&self, edit: &Edit) -> Result<()> {
        if let Edit::Enable(capability) = edit {
            self.check_all_have(*capability)?;
        }
        match (edit, &self.seating) {
            (Edit::Remove(node), Some(seating)) => self.remove(*node, seating).await?,
            _ => drop(self.keeper.edit(|map| edit.apply(map)).await?),
        }
        tracing::info!(?edit, "the cluster map was edited");
        Ok(())
    }

    /// Checks that every node of the map runs a program that has a capability. A node that is away
    /// may come back with another program than it had.
    ///
    /// # Errors
    /// `Conflict`; the text names the nodes, and what to do.
    fn check_all_have(&self, capability: Capability) -> Result<()> {
        let (old, away) = self.status().nodes_without(capability);
        let listed = |nodes: &[NodeId]| {
            nodes.iter().map(NodeId::to_string).collect::<Vec<String>>().join(", ")
        };
        let mut reasons = Vec::new();
        if !old.is_empty() {
            let old = listed(&old);
            reasons.push(format!("upgrade first what runs at nodes {old}, which lack it"));
        }
        if !away.is_empty() {
            let away = listed(&away);
            reasons.push(format!("start nodes {away}, which are not up, or remove them"));
        }
        if reasons.is_empty() {
            return Ok(());
        }
        let reasons = reasons.join("; ");
        Err(Error::Conflict(format!("{capability} is not turned on: {reasons}")))
    }

    pub fn status(&self) -> Status {
        let now = self.time.now();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let map = ClusterMap::clone(&self.keeper.current());
        let seen = self.seen.lock();
        let known = seen.iter().filter(|(node, _)| map.nodes.contains_key(node));
        let mut programs: BTreeMap<NodeId, Arc<NodeProgram>> =
            known.clone().map(|(node, seen)| (*node, Arc::clone(&seen.program))).collect();
        programs.entry(self.node).or_insert_with(|| Arc::new(own_program(VERSION_MIN)));
        let mut failing = self.failing(&seen);
        let nodes = known.map(|(node, LastBeat { at, beat, .. })| NodeStatus {
            failure: failing.remove(node).map(|(_, error)| error),
            node: *node,
            silent_ms: millis(now.saturating_sub(*at)),
            version: beat.version.clone(),
            disk: beat.disk,
            store: beat.store,
            copying: beat.copying.clone(),
            groups: beat.groups.clone(),
        });
        let sessions = self.sessions.list().into_iter().map(|(session, owner, renewed)| {
            let (node, user) = match owner {
                Owner::Node(node) => (NodeId(node), None),
                Owner::Mount(user) => (NodeId(0), Some(user)),
            };
            SessionStatus { session: session.0, node, user, silent_ms: millis(renewed) }
        });
        Status {
            nodes: nodes.collect(),
            sessions: sessions.collect(),
            master: self.node,
            batch: self.master.durable_batch(),
            fsck: self.fsck.lock().as_ref().map(|fsck| fsck.state()),
            programs,
            map,
        }
    }

    /// Notes that a connection to a node has ended. If the node sent its beats over this
    /// connection, it counts as silent soon: a node that runs beats again at once, and for a node
    /// that died this is the first sign.
    pub fn lost(&self, peer: &PeerInfo) {
        let Settings { silence, .. } = self.settings;
        let latest = self.time.now().saturating_sub(silence.saturating_sub(waits::BEAT_AGAIN));
        let mut seen = self.seen.lock();
        let of_node = seen.get_mut(&peer.authenticated.node);
        if let Some(seen) = of_node.filter(|seen| seen.connection == peer.connection) {
            seen.at = seen.at.min(latest);
        }
    }

    /// Notices which nodes came and went, and makes groups whole. To be called about twice a
    /// second.
    pub async fn look_around(&self) -> Result<()> {
        let map = self.keeper.load().await?;
        let now = self.time.now();
        let Settings { silence, patience, .. } = self.settings;
        let mut silent: BTreeMap<NodeId, Duration> = BTreeMap::new();
        let (mut is_heard, mut full) = (BTreeSet::from([self.node]), BTreeSet::new());
        let failing;
        {
            let seen = self.seen.lock();
            failing = self.failing(&seen);
            for node in map.nodes.keys().copied().filter(|node| *node != self.node) {
                let said = seen.get(&node);
                // For a node that was not heard since this master serves, the length of its absence
                // is unknown.
                let silence = match (said, self.looked.get()) {
                    (Some(seen), _) => now.saturating_sub(seen.at),
                    (None, Some(looked)) if !looked.contains(&node) => now.max(silence),
                    (None, _) => now,
                };
                silent.insert(node, silence);
                is_heard.extend(said.map(|_| node));
                full.extend(said.filter(|seen| seen.beat.store.is_full).map(|_| node));
            }
        }
        let edited = self.keeper.edit(|map| {
            for (id, node) in &mut map.nodes {
                let quiet = silent.get(id).is_some_and(|time| *time >= silence);
                // A node that was up counts as up until it was silent for long.
                node.is_up = !quiet && (node.is_up || is_heard.contains(id));
            }
            let is_up = |id: &NodeId| map.nodes.get(id).is_some_and(|node| node.is_up);
            let away = silent.iter().filter(|(id, _)| !is_up(id));
            // Blocks on a disk that fails are copied elsewhere, too, and it is a source meanwhile.
            let failing = failing.iter().map(|(id, (time, _))| (*id, *time));
            let away = failing.chain(away.map(|(id, time)| (*id, *time))).collect();
            if let Some(next) = plan(map, &away, &full, Patience(patience)) {
                *map = next;
            }
            Ok(())
        });
        let after = edited.await?;
        self.tell_of_changes(&map, &after);
        Ok(())
    }

    fn tell_of_changes(&self, before: &ClusterMap, after: &ClusterMap) {
        for (node, _) in after.nodes.iter().filter(|(_, node)| node.is_up) {
            if !before.is_up(*node) {
                tracing::info!(%node, "node is up");
            }
        }
        for (node, _) in before.nodes.iter().filter(|(_, node)| node.is_up) {
            if !after.is_up(*node) {
                tracing::warn!(
                    %node,
                    "node is down: it is silent; start it, or remove it if it is lost (cairn \
                     cluster remove DIR NODE)"
                );
                self.seen.lock().retain(|seen, _| seen != node);
            }
        }
    }
}

fn says_the_same(known: &cairn_base::map::Node, beat: &Beat) -> bool {
    known.address == beat.address
        && known.url == beat.url
        && known.zone == beat.zone
        && known.weight == beat.weight
        && known.disk == beat.disk
}

/// Notes what a node says of itself.
fn introduce(map: &mut ClusterMap, node: NodeId, beat: &Beat) -> Result<()> {
    const TEXT: usize = 255;
    if beat.address.len() > TEXT || beat.url.len() > TEXT || beat.zone.len() > TEXT {
        return Err(Error::Invalid(format!(
            "node {node}: its address, URL or zone is longer than {TEXT} bytes"
        )));
    }
    let unknown = || Error::NotFound(format!("node {node}"));
    let known = map.nodes.get_mut(&node).ok_or_else(unknown)?;
    let is_wiped = known.disk != 0 && known.disk != beat.disk;
    known.address = beat.address.clone();
    known.url = beat.url.clone();
    known.zone = beat.zone.clone();
    known.weight = beat.weight;
    known.disk = beat.disk;
    if is_wiped {
        tracing::warn!(%node, "node has an empty store: its blocks are copied from others");
        for group in map.groups.values_mut() {
            let members = group.members.iter_mut().filter(|member| member.node == node);
            members.for_each(|member| member.in_sync = false);
        }
    }
    Ok(())
}
