//! Objects that are damaged or lack replicas, as the masters last named them for this process.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::scrub::DegradedObjects;
use cairn_base::{Clock, Error, Result, Timestamp};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::nodes::Nodes;

/// Interval of the requests for the names.
const POLL: Duration = Duration::from_millis(500);
/// Time for which the request is repeated while no master answers, or another caller asks for the
/// same.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time of the last naming of objects, and its result.
pub type NamedObjects = (Timestamp, Result<Arc<DegradedObjects>>);

#[derive(Default)]
pub struct Lookup(Mutex<LookupState>);

#[derive(Default)]
struct LookupState {
    is_under_way: bool,
    /// Set while a scrub was seen in progress: its findings are named once it has ended.
    is_due: bool,
    last: Option<Arc<NamedObjects>>,
}

impl Lookup {
    /// Returns true if objects are being named now, and the objects that were named last.
    pub fn look(&self) -> (bool, Option<Arc<NamedObjects>>) {
        let state = self.0.lock();
        (state.is_under_way, state.last.clone())
    }

    /// Notes whether a scrub is under way. Begins to name objects when a scrub has ended.
    pub fn watch(self: &Arc<Self>, scrubs: bool, nodes: &Arc<dyn Nodes>, clock: &Arc<dyn Clock>) {
        let is_due = {
            let mut state = self.0.lock();
            let was_due = state.is_due;
            state.is_due = scrubs;
            was_due && !scrubs
        };
        if is_due {
            self.begin(nodes, clock);
        }
    }

    /// Begins to name the objects, unless that is under way.
    pub fn begin(self: &Arc<Self>, nodes: &Arc<dyn Nodes>, clock: &Arc<dyn Clock>) {
        {
            let mut state = self.0.lock();
            if state.is_under_way {
                return;
            }
            state.is_under_way = true;
        }
        let (lookup, nodes, clock) = (Arc::clone(self), Arc::clone(nodes), Arc::clone(clock));
        tokio::spawn(async move {
            let named = name(&*nodes).await.map(Arc::new);
            let mut state = lookup.0.lock();
            state.is_under_way = false;
            state.last = Some(Arc::new((clock.now(), named)));
        });
    }
}

async fn name(nodes: &dyn Nodes) -> Result<DegradedObjects> {
    let mut answered = Instant::now();
    loop {
        match nodes.degraded().await {
            Ok(Some(named)) => return Ok(named),
            Ok(None) => answered = Instant::now(),
            Err(Error::Unavailable(_) | Error::Conflict(_)) if answered.elapsed() < PATIENCE => {}
            Err(error) => return Err(error),
        }
        sleep(POLL).await;
    }
}
