//! Member of a master that keeps its metadata together with other masters: its files in a
//! directory, and its start.
//!
//! A member must never forget a vote. So `DIR/member` records that a member has begun here: without
//! its metadata it does not begin anew under its old number.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, ClusterMap, Error, NodeId, RealDisk, Rng};
use cairn_cluster::control::NodeView;
use cairn_meta::engine::raft::{Member, MemberStore, Peers, RaftEngine, Seams, Timing};
use cairn_meta::engine::{Engine, Later, embedded};
use cairn_meta::keys;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::dir::DataDir;
use crate::failure::{Failure, Result};
use crate::metadata::Metadata;

/// Interval at which a standby checks the map in its own rows, and the state of its member.
const LOOK: Duration = Duration::from_millis(250);
/// Generation of a new log.
pub const FIRST_GENERATION: u64 = 1;

/// Makes the files of a new member. Removes what an earlier attempt left that did not begin.
pub fn make(dir: &DataDir, node: NodeId, generation: u64) -> Result<()> {
    let path = dir.meta();
    let of_meta = |error: Error| Failure::from(error).of(path.display());
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Failure::file(&path, &error));
        }
        _ => {}
    }
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    MemberStore::make(&disk, &dir.sizes.of_meta(), node.0, generation).map_err(of_meta)?;
    begin(dir, node).map_err(|error| Failure::file(&dir.member(), &error))
}

/// Notes that the member may take part from now on.
fn begin(dir: &DataDir, node: NodeId) -> io::Result<()> {
    let (path, new) = (dir.member(), dir.member().with_extension("new"));
    let mut file = File::create(&new)?;
    // Hexadecimal, as in all files with numbers of nodes.
    file.write_all(format!("cairn-member 1\nnode {:x}\n", node.0).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Starts the member whose files are in `dir`. Must be called within a runtime.
pub async fn open(
    dir: &DataDir,
    config: embedded::Config,
    node: NodeId,
    peers: Arc<dyn Peers>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<Arc<Member>> {
    let path = dir.meta();
    if !path.join("rows.redb").exists() {
        return Err(Failure::damage(format!(
            "{}: the metadata of this master are gone, and with them its votes: it must not vote \
             again as node {node}",
            path.display()
        )));
    }
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let seams = Seams { peers, clock, rng, threads: None };
    let opened = Member::open(Arc::new(disk), config, node.0, seams, Timing::default()).await;
    opened.map_err(|error| Failure::from(error).of(path.display()))
}

/// No peers: for the only member of a log.
struct Nobody;

impl Peers for Nobody {
    fn send(&self, member: u64, _: Bytes) -> Later<cairn_base::Result<Bytes>> {
        let text = format!("this command reaches no other master, such as {member}");
        Box::pin(std::future::ready(Err(Error::Unavailable(text))))
    }
}

/// Metadata whose only member runs in this process, for a command.
pub struct Alone {
    pub metadata: Metadata,
    engine: Arc<RaftEngine>,
}

impl Alone {
    /// Makes a log with `node` as its only member.
    pub async fn found(dir: &DataDir, node: NodeId, generation: u64) -> Result<Alone> {
        make(dir, node, generation)?;
        let (clock, rng) = (Arc::new(RealClock::default()), Arc::new(RealRng));
        let member = open(dir, dir.sizes.of_meta(), node, Arc::new(Nobody), clock, rng).await?;
        member.found(&BTreeSet::from([node.0])).await?;
        let engine = Arc::new(RaftEngine::new(member));
        engine.wait_for_turn().await?;
        Ok(Alone { metadata: Metadata::of_member(dir, Arc::clone(&engine)), engine })
    }

    /// Ends it, so that the next process need not wait for a lease.
    pub async fn close(self) {
        let Alone { metadata, engine } = self;
        drop(metadata);
        end(&engine).await;
    }
}

/// Ends the master of a member, if one serves, and the member.
pub async fn end(engine: &RaftEngine) {
    engine.give_up();
    engine.given_up().await;
    engine.member().close().await;
}

/// Lets `view` follow the cluster map in the rows that the member has applied, so that this master
/// knows the others even while none serves. Ends when the member can take no further part.
pub async fn attend(engine: &Arc<RaftEngine>, view: &NodeView) -> Failure {
    loop {
        if let Some(why) = engine.member().superseded() {
            return Failure::new(why);
        }
        let status = engine.member().status().await;
        let failure = match &status {
            Ok(status) => status.failure.clone(),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = failure {
            return Failure::new(format!(
                "the member of this master has failed: {why}: see the kernel's log if it is the \
                 disk, and start it again"
            ));
        }
        match block_in_place(|| map_of(&**engine)) {
            Ok(Some(map)) => view.adopt_rows(&Arc::new(map)),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "the cluster map was not read"),
        }
        sleep(LOOK).await;
    }
}

/// Returns the cluster map in the rows of an engine. Blocks.
pub fn map_of(engine: &dyn Engine) -> cairn_base::Result<Option<ClusterMap>> {
    let (_, rows) = engine.read(&[keys::map()])?;
    rows.into_iter().next().flatten().as_ref().map(ClusterMap::decode).transpose()
}
