//! Scrubs of chunkservers that a master orders, and what an operator hears of them.

use std::sync::Arc;

use cairn_base::scrub::{NodeScrub, RunOrder, ScrubPhase};
use cairn_base::{BlockId, BodyId, Error, GroupId, NodeId, Owner, Result, Role, SessionId};
use cairn_cluster::data::{FoundBlock, OrderedScrubs};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::support::admin::{CHUNKSERVER, Office};
use crate::support::data::{World, pool};
use crate::support::{PATIENCE, denied};

const BLOCK: BlockId = BlockId { session: SessionId(1), counter: 2 };
/// The number of a scrub that the chunkserver does not know.
const UNKNOWN: u64 = 6;

/// Remembers the orders.
#[derive(Default)]
struct Told {
    orders: Mutex<Vec<(u64, RunOrder)>>,
    tried: Mutex<Vec<(GroupId, BlockId, bool)>>,
}

impl OrderedScrubs for Told {
    fn order(&self, run: u64, order: RunOrder) -> NodeScrub {
        self.orders.lock().push((run, order));
        NodeScrub { phase: ScrubPhase::Runs, blocks: run, ..NodeScrub::default() }
    }

    fn found(&self, run: u64) -> Result<Vec<FoundBlock>> {
        if run == UNKNOWN {
            return Err(Error::NotFound("another one followed".into()));
        }
        let owner = Owner { body: BodyId { session: SessionId(1), counter: 3 }, chunk: 4 };
        Ok(vec![FoundBlock { group: GroupId(1), block: BLOCK, owner, is_repaired: true }])
    }

    fn tried(&self, group: GroupId, block: BlockId, is_repaired: bool) {
        self.tried.lock().push((group, block, is_repaired));
    }
}

#[tokio::test]
async fn masters_order_scrubs_and_others_may_look() {
    let world = World::new(1, &[]).await;
    let master = world.cluster.node(NodeId(60), Role::Master);
    let map = Arc::clone(&world.truth.lock());
    let (of_master, of_gateway) = (pool(&master), pool(&world.gateway));
    let server = &world.servers[&11];
    let early = of_master.scrub(&map, NodeId(11), 5, RunOrder::Begin).await;
    assert!(matches!(early.unwrap_err().error, Error::Unavailable(_)), "it has just started");
    let told = Arc::new(Told::default());
    server.chunkserver.scrub_by(Arc::clone(&told) as _);
    for order in [RunOrder::Begin, RunOrder::Look, RunOrder::Stop] {
        let scrub = of_master.scrub(&map, NodeId(11), u64::MAX, order).await.unwrap();
        assert_eq!((scrub.phase, scrub.blocks), (ScrubPhase::Runs, u64::MAX));
    }
    assert!(of_gateway.scrub(&map, NodeId(11), 0, RunOrder::Look).await.is_ok());
    for order in [RunOrder::Begin, RunOrder::Stop] {
        let refused = of_gateway.scrub(&map, NodeId(11), 5, order).await.unwrap_err();
        assert!(matches!(refused.error, Error::Denied(_)), "{refused}");
    }
    let orders: Vec<RunOrder> = told.orders.lock().iter().map(|(_, order)| *order).collect();
    let all = [RunOrder::Begin, RunOrder::Look, RunOrder::Stop, RunOrder::Look];
    assert_eq!(orders, all);
    let found = of_master.found(&map, NodeId(11), 5).await.unwrap();
    assert_eq!(found, told.found(5).unwrap());
    let unknown = of_master.found(&map, NodeId(11), UNKNOWN).await.unwrap_err();
    assert!(matches!(unknown.error, Error::NotFound(_)), "{unknown}");
}

#[tokio::test]
async fn an_operator_hears_of_chunkservers_that_do_not_answer() {
    let office = Office::new().await;
    for node in [&office.master, &office.gateway] {
        let client = office.client(node);
        let nodes = client.scrub(7, RunOrder::Begin).await.unwrap();
        assert_eq!(nodes.len(), 1);
        let (id, scrub) = &nodes[0];
        assert_eq!((*id, scrub.phase), (CHUNKSERVER, ScrubPhase::Silent));
        assert!(!scrub.failure.is_empty());
    }
    let chunkserver = office.client(&office.chunkserver);
    denied(chunkserver.scrub(7, RunOrder::Look).await, "masters and gateways");
    denied(chunkserver.degraded(7).await, "masters and gateways");
    let client = office.client(&office.master);
    let zero = client.scrub(0, RunOrder::Begin).await.unwrap_err();
    assert_eq!(zero.kind(), "invalid");
    let asking = async {
        loop {
            if let Some(named) = client.degraded(7).await.unwrap() {
                return named;
            }
            sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let named = timeout(PATIENCE, asking).await.unwrap();
    assert_eq!((named.objects.len(), named.silent.len()), (0, 1));
    assert_eq!(named.silent[0].0, CHUNKSERVER);
}
