//! When a master tries again, and when it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{
    Clock, ClusterId, ClusterMap, Error, NodeId, Result, Rng, Role, Timestamp, UserId,
};
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{Agent, ControlService, NodeView, Settings};
use cairn_cluster::identity::{Ca, Desk, Pins};
use cairn_cluster::wire::{Dial, Link, Terms};
use cairn_meta::Master;
use cairn_meta::engine::{Engine, Memory};
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::cluster::PutMap;
use cairn_meta::rows::BucketKind;
use cairn_roles::Node;
use cairn_roles::master::{Config, MasterNode, Source};
use parking_lot::Mutex;

const CLUSTER: ClusterId = ClusterId(7 << 64);

/// Nobody is reached.
struct Alone;

#[async_trait]
impl Dial for Alone {
    async fn dial(&self, address: &str) -> Result<Link> {
        Err(Error::Unavailable(format!("{address} is down")))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

/// Fails as it is told to, and then starts masters on one engine.
struct Metadata {
    engine: Arc<Memory>,
    failures: Mutex<VecDeque<Error>>,
    started: Mutex<Vec<Master>>,
    stopped: Mutex<usize>,
}

impl Metadata {
    fn new(failures: impl IntoIterator<Item = Error>) -> Metadata {
        Metadata {
            engine: Arc::new(Memory::new()),
            failures: Mutex::new(failures.into_iter().collect()),
            started: Mutex::default(),
            stopped: Mutex::default(),
        }
    }

    /// Has the master that serves fail, once it does: another takes over, and it finds out.
    async fn fail(&self, service: &ControlService) {
        while service.serving().is_err() {
            a_moment().await;
        }
        self.engine.take_over().unwrap();
        let master = self.started.lock().last().unwrap().clone();
        let (name, kind) = ("bucket".to_owned(), BucketKind::S3);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        master.run(&Caller::verified(UserId::ROOT), bucket).await.unwrap_err();
    }
}

#[async_trait]
impl Source for Metadata {
    type Failure = Error;

    async fn start(&self) -> Result<(Master, String)> {
        if let Some(failure) = self.failures.lock().pop_front() {
            return Err(failure);
        }
        let engine = Arc::clone(&self.engine) as _;
        let master = Master::start(engine, Arc::new(RealClock::default()), Default::default())?;
        if self.started.lock().is_empty() {
            let map = ClusterMap { epoch: 1, replicas: 1, minimum: 1, ..ClusterMap::default() };
            master.run(&Caller::system(), PutMap { map: map.encode() }).await?;
        }
        self.started.lock().push(master.clone());
        Ok((master, "memory".into()))
    }

    async fn stop(&self, _: Master) -> Result<()> {
        *self.stopped.lock() += 1;
        Ok(())
    }

    fn is_passing(&self, failure: &Error) -> bool {
        matches!(failure, Error::Unavailable(_))
    }
}

fn master(is_alone: bool) -> MasterNode {
    let settings = Settings { is_alone, ..Settings::default() };
    master_of(NodeId(1), Config { settings, ..Config::default() })
}

/// A master that reaches no other node.
pub fn master_of(node: NodeId, config: Config) -> MasterNode {
    let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
        (Arc::new(RealClock::default()), Arc::new(SeededRng::new(1)));
    let terms = Terms::new(CLUSTER, node, Role::Master);
    let (view, dialer) = (NodeView::new(Vec::new()), Arc::new(Alone));
    let agent = Agent::without_tls(
        dialer.clone(),
        terms.clone(),
        vec!["master".into()],
        Arc::clone(&view),
        Arc::clone(&clock),
        Arc::clone(&rng),
    );
    let service = ControlService::default();
    let desk = Arc::new(Desk {
        ca: Ca::init(CLUSTER, Timestamp::from_secs(1_700_000_000), &*rng).unwrap(),
        tokens: Arc::new(service.clone()),
        pins: Arc::clone(&view) as Arc<dyn Pins>,
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
    });
    let secrets = Secrets { seal: None, authority: None, links: None };
    let node = Node { terms, view, agent, clock, rng, blocks: dialer };
    MasterNode { node, service, desk, secrets, config, export: None }
}

/// Of simulated time, which goes on when nothing else can.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn gone() -> Error {
    Error::Unavailable("the database does not answer".into())
}

fn wrong() -> Error {
    Error::Invalid("that is another database".into())
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_ends_a_master_that_has_never_served() {
    let metadata = Metadata::new([gone(), gone(), wrong()]);
    let failure = master(false).take_turns(&metadata).await.unwrap_err();
    assert!(matches!(failure, Error::Invalid(_)), "{failure}");
    assert!(metadata.failures.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_master_that_has_served_goes_on_trying() {
    let metadata = Metadata::new([gone()]);
    let master = master(false);
    let turns = master.take_turns(&metadata);
    let failing = async {
        metadata.fail(&master.service).await;
        metadata.failures.lock().extend([wrong(), gone()]);
        // The second time: nothing is left of what failed before.
        while metadata.started.lock().len() < 2 {
            a_moment().await;
        }
        metadata.fail(&master.service).await;
        while *metadata.stopped.lock() < 2 {
            a_moment().await;
        }
        assert!(metadata.failures.lock().is_empty());
    };
    tokio::select! {
        ended = turns => panic!("it ended: {ended:?}"),
        () = failing => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_is_alone_ends_with_its_metadata() {
    let (metadata, alone) = (Metadata::new([gone()]), master(true));
    assert!(alone.take_turns(&metadata).await.is_err());
    // It can be started, and then fails.
    let failing = metadata.fail(&alone.service);
    let (ended, ()) = tokio::join!(alone.take_turns(&metadata), failing);
    assert!(!ended.unwrap().is_empty());
    assert!(alone.service.serving().is_err());
    assert_eq!(*metadata.stopped.lock(), 1);
}
