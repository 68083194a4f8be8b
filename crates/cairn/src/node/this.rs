//! A node at its start: its identity, the nodes that it knows, and its access to the masters.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, Rng, Role};
use cairn_cluster::control::messages::Beat;
use cairn_cluster::control::{Agent, NodeView};
use cairn_cluster::identity::{Directory, DirectoryContents, Pins};
use cairn_cluster::wire::Terms;
use cairn_cluster::wire::tls::{TlsDialer, Trust};
use cairn_roles::Node;

use crate::dir::{DirectoryUse, MACHINE, directory_of_role};
use crate::failure::{Failure, Result};

/// Returns the directory of the node with this role, if `dir` may be that of a machine.
pub fn directory_of(dir: &Path, role: Role) -> PathBuf {
    if !dir.join(MACHINE).exists() {
        return dir.to_path_buf();
    }
    dir.join(directory_of_role(role))
}

pub struct ThisNode {
    role: Role,
    pub loaded: DirectoryContents,
    pub directory: Arc<Directory>,
    pub view: Arc<NodeView>,
    pub agent: Arc<Agent>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

impl ThisNode {
    /// Opens the directory of a node to run it: the directory holds this node and nothing else.
    pub fn to_run(path: &Path, role: Role) -> Result<ThisNode> {
        DirectoryUse::Role(role).require(path)?;
        ThisNode::open(path, role)
    }

    /// Reads the identity of the node to which `path` belongs. Must be called within a runtime.
    pub fn open(path: &Path, role: Role) -> Result<ThisNode> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let rng: Arc<dyn Rng> = Arc::new(RealRng);
        let path = &directory_of(path, role);
        let shown = path.display().to_string();
        let of = |error: cairn_base::Error| Failure::from(error).of(&shown);
        if !path.exists() {
            return Err(Failure::new(format!("{shown}: does not exist: cairn cluster join")));
        }
        let directory = Arc::new(Directory::open(path).map_err(of)?);
        let loaded = directory.load(clock.now()).map_err(of)?.ok_or_else(|| {
            Failure::new(format!(
                "{shown}: not a node of a cluster: cairn cluster join {shown} TOKEN"
            ))
        })?;
        if !loaded.roles.contains(role) {
            let roles = loaded.roles;
            return Err(Failure::new(format!(
                "{shown}: joined as {roles}, not as {role}: join another directory with a \
                    token for {role}"
            )));
        }
        let view = NodeView::new(loaded.masters.clone());
        let (known, time) = (Arc::clone(&view), Arc::clone(&clock));
        let kept = Arc::clone(&directory);
        let agent = Agent::new(kept, &loaded, role, known, time, Arc::clone(&rng))?;
        Ok(ThisNode { role, loaded, directory, view, agent, clock, rng })
    }

    pub fn trust(&self) -> Trust {
        Trust {
            identity: Arc::clone(&self.loaded.identity),
            pins: Arc::clone(&self.view) as Arc<dyn Pins>,
            clock: Arc::clone(&self.clock),
        }
    }

    /// Returns the trust of a master, which also admits former masters.
    pub fn trust_with_former(&self) -> Trust {
        Trust { pins: self.view.with_former(), ..self.trust() }
    }

    /// Returns the node, to run as one of its roles.
    pub fn running(&self) -> Result<Node> {
        let (identity, role) = (&self.loaded.identity, self.role);
        Ok(Node {
            terms: Terms::new(identity.cluster(), identity.node(), role),
            view: Arc::clone(&self.view),
            agent: Arc::clone(&self.agent),
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&self.rng),
            blocks: Arc::new(TlsDialer::for_blocks(self.trust())?),
        })
    }
}

/// Adds the URL of the node's door for clients to a beat.
pub fn with_url(beat: Beat, url: &str) -> Beat {
    Beat { url: url.into(), ..beat }
}

/// Checks that `address` is `host:port`.
pub fn host_and_port(address: &str) -> Result<String, String> {
    let is_host = |host: &str| match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').is_some_and(|host| host.parse::<Ipv6Addr>().is_ok()),
        None => !host.is_empty() && !host.contains([':', ']']),
    };
    let fits = address.rsplit_once(':').is_some_and(|(host, port)| {
        is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let wrong =
        || format!("{address:?} is not HOST:PORT; an IPv6 address is in brackets: [fd00::1]:7400");
    if fits { Ok(address.into()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["10.0.0.1:7400", "one.example:1", "[fd00::1]:7400", "[::ffff:10.0.0.1]:65535"]
        {
            assert_eq!(host_and_port(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "10.0.0.1",
            ":7400",
            "one:0",
            "one:65536",
            "fd00::1",
            "fd00::1:7400",
            "[fd00::1]",
            "[one]:7400",
            "[fd00::1:7400",
            "fd00::1]:7400",
            "[fd00::1]:7400:7400",
        ] {
            assert!(host_and_port(bad).unwrap_err().contains("brackets"), "{bad}");
        }
    }
}
