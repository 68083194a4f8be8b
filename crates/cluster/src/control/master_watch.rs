//! A check of the masters by a node that gets no answer from them.

use std::time::Duration;

use bytes::Bytes;
use cairn_base::Role;
use cairn_meta::wire;
use tokio::time::{Instant, sleep};

use super::agent::{Agent, Recalls};
use super::messages::ControlMethod;
use super::report::MemberReport;
use super::silence::is_cut_off;
use crate::identity::Pins;

/// Silence of the masters after which a node checks whether other nodes have a master: three beats.
const LOOKS_AFTER: Duration = Duration::from_millis(1500);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(500);
/// Deadline of a connection to any master. The first address may be that of a silent machine.
const CONNECT: Duration = Duration::from_secs(3);
/// Most nodes that are tried to see whether their machines answer.
const MACHINES: usize = 32;
/// Deadline of the report of one master.
const REPORT: Duration = Duration::from_millis(500);

impl Agent {
    /// Checks, while no master answers, whether only this node reaches none. Runs until it is
    /// dropped.
    pub async fn watch_masters(&self) {
        loop {
            sleep(LOOK).await;
            if self.silence_lasts() > LOOKS_AFTER {
                let cut_off = self.look_at_masters().await;
                // One may have answered meanwhile.
                if self.silence_lasts() > LOOKS_AFTER {
                    self.silence.set_cut_off(cut_off);
                }
            }
        }
    }

    fn silence_lasts(&self) -> Duration {
        self.silence.lasts(self.clock.monotonic())
    }

    /// Asks each master that can be reached for its leader. Returns the reason if only this node
    /// has no master.
    async fn look_at_masters(&self) -> Option<String> {
        let masters = self.view.nodes(Role::Master).len();
        let reconnect = self.reconnect.beside(Recalls::default());
        let mut reports: Vec<MemberReport> = Vec::new();
        for _ in 0..masters {
            let deadline = Instant::now() + CONNECT;
            let Ok(peer) = reconnect.peer(deadline).await else { break };
            let report = peer.call(ControlMethod::MemberReport as u16, Bytes::new(), REPORT).await;
            reconnect.leave(&peer);
            reports.extend(report.ok().and_then(|report| wire::decode(&report).ok()));
        }
        if !reports.is_empty() || masters < 2 {
            return is_cut_off(&reports);
        }
        // Masters that died all at once leave every node without one.
        let map = self.view.newest();
        let others = map.nodes.iter().filter(|(node, _)| **node != self.node());
        let addresses = others.map(|(_, node)| node.address.clone());
        let others = addresses.filter(|address| !address.is_empty()).take(MACHINES).collect();
        let is_alone = !reconnect.reaches_machine(others).await;
        is_alone.then(|| format!("none of the {masters} masters can be reached, and no machine"))
    }
}
