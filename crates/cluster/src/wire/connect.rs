//! Steps from an authenticated stream to a running connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::{CapabilitySet, ClusterId, Error, NodeId, Result, Role};
use tokio::time::timeout;

use super::driver::{Driver, KeepAlive};
use super::hello::{self, Hello, VERSION_MAX, Window};
use super::link::{Link, PeerIdentity, Required, Stream};
use super::peer::{Peer, PeerInfo, PeerShared};
use super::program::{NodeProgram, own_formats};
use super::refusals;
use super::service::Service;
use crate::limits::HANDSHAKE;

/// Identity and role of this node, and what it expects of the peer.
#[derive(Clone, Debug)]
pub struct Terms {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub role: Role,
    /// The role that the other side must have; any if none.
    pub expects: Option<Role>,
    /// Most that the other side may have outstanding here, and this side there.
    pub window: Window,
    pub keep_alive: KeepAlive,
}

impl Terms {
    pub fn new(cluster: ClusterId, node: NodeId, role: Role) -> Terms {
        let (window, keep_alive) = (Window::default(), KeepAlive::default());
        Terms { cluster, node, role, expects: None, window, keep_alive }
    }

    fn hello(&self) -> Hello {
        Hello {
            versions: (hello::lowest(self.role, None), VERSION_MAX),
            cluster: self.cluster,
            node: self.node,
            role: Some(self.role),
            window: self.window,
            refused: None,
            release: hello::release(),
            reads_traces: true,
            formats: own_formats(),
            capabilities: CapabilitySet::own(),
        }
    }

    /// Returns the highest version that both sides speak.
    ///
    /// # Errors
    /// `Invalid` if there is none. The text names both: it is read at either end.
    fn agree(&self, hello: &Hello, dialed: bool) -> Result<u16> {
        let ours = (hello::lowest(self.role, hello.role), VERSION_MAX);
        let theirs = hello.versions;
        let version = theirs.1.min(ours.1);
        if version >= theirs.0.max(ours.0) {
            return Ok(version);
        }
        let us = Terms::name(self.node, Some(self.role), dialed);
        let them = Terms::name(hello.node, hello.role, !dialed);
        let older = if theirs.1 < ours.1 { &them } else { &us };
        let said = hello.shown_release();
        Err(Error::Invalid(format!(
            "{them} ({said}) speaks versions {} to {} of the protocol, {us} ({}) versions {} to \
             {}: upgrade {older}",
            theirs.0,
            theirs.1,
            hello::release(),
            ours.0,
            ours.1,
        )))
    }

    /// Checks that the program at the other end has all capabilities that are turned on.
    ///
    /// # Errors
    /// `Invalid` if it lacks one. The text is read at either end.
    fn check_capabilities(&self, hello: &Hello, required: &Required, dialed: bool) -> Result<()> {
        let lacking = required().without(hello.capabilities);
        if lacking.is_empty() {
            return Ok(());
        }
        let them = Terms::name(hello.node, hello.role, !dialed);
        let said = hello.shown_release();
        Err(Error::Invalid(format!(
            "{them} ({said}) lacks {lacking}, which is turned on in this store: install there what \
             the other nodes run ({})",
            hello::release(),
        )))
    }

    /// Returns the name of a node for the texts; a mount and its server have no numbers.
    fn name(node: NodeId, role: Option<Role>, dialed: bool) -> String {
        match (node, role) {
            (NodeId(0), _) if dialed => "the mount".to_owned(),
            (NodeId(0), _) => "the server".to_owned(),
            (node, Some(role)) => format!("{role} {node}"),
            (node, None) => format!("node {node}"),
        }
    }

    /// Checks that the sender of `hello` is the authenticated peer, and welcome.
    fn check(&self, hello: &Hello, peer: &PeerIdentity, dialed: bool) -> Result<(Role, u16)> {
        let version = self.agree(hello, dialed)?;
        if hello.cluster != self.cluster {
            let (theirs, ours) = (hello.cluster, self.cluster);
            return Err(Error::Denied(format!(
                "this node is in cluster {ours}, the other in cluster {theirs}"
            )));
        }
        self.check_capabilities(hello, &peer.required, dialed)?;
        if hello.node != peer.node {
            return Err(Error::Denied(format!(
                "node {} says that it is node {}",
                peer.node, hello.node
            )));
        }
        let role = hello.role.ok_or_else(|| {
            Error::Invalid(
                "the node has a role that this version does not know: upgrade this node".into(),
            )
        })?;
        if !peer.roles.contains(role) {
            let (node, roles) = (peer.node, peer.roles);
            return Err(Error::Denied(format!(
                "node {node} says that it is a {role}, but joined as {roles}"
            )));
        }
        if let Some(expected) = self.expects
            && role != expected
        {
            let node = peer.node;
            return Err(Error::Denied(format!("node {node} is a {role}, not a {expected}")));
        }
        Ok((role, version))
    }
}

/// Begins a connection over a dialed stream. `service` answers requests of the peer.
///
/// # Errors
/// The error with which the peer refuses; `Denied`, `Invalid` if this side refuses; `Unavailable`.
pub async fn connect<S: Service>(link: Link, terms: &Terms, service: S) -> Result<Peer> {
    let Link { mut stream, peer } = link;
    let shake = async {
        hello::write(&mut stream, &terms.hello()).await?;
        hello::read(&mut stream).await
    };
    let mut hello = within_time(shake).await?;
    // If the other side refuses because of the versions, the text is this side's.
    terms.agree(&hello, true)?;
    if let Some(refused) = hello.refused.take() {
        return Err(refused);
    }
    let (role, version) = terms.check(&hello, &peer, true)?;
    let program = program_of(&hello);
    let authenticated = watch_capabilities(peer, hello.capabilities);
    let info = PeerInfo { authenticated, role, version, program, connection: next() };
    Ok(start(stream, info, &hello, terms, service, true))
}

/// Begins a connection over an accepted stream.
pub async fn accept<S: Service>(link: Link, terms: &Terms, service: S) -> Result<Peer> {
    let Link { mut stream, peer } = link;
    let mut hello = within_time(hello::read(&mut stream)).await?;
    if let Some(refused) = hello.refused.take() {
        return Err(refused);
    }
    let mut answer = terms.hello();
    let checked = terms.check(&hello, &peer, false);
    if let Err(error) = &checked {
        let is_old = terms.check_capabilities(&hello, &peer.required, false).is_err();
        if is_old || terms.agree(&hello, false).is_err() {
            refusals::log(terms.node, &peer, error);
        }
        answer.refused = Some(error.copy());
    }
    within_time(hello::write(&mut stream, &answer)).await?;
    let (role, version) = checked?;
    let program = program_of(&hello);
    let authenticated = watch_capabilities(peer, hello.capabilities);
    let info = PeerInfo { authenticated, role, version, program, connection: next() };
    Ok(start(stream, info, &hello, terms, service, false))
}

/// Ends the connection when a capability is turned on that the program there lacks.
fn watch_capabilities(mut peer: PeerIdentity, capabilities: CapabilitySet) -> PeerIdentity {
    let (standing, required) = (Arc::clone(&peer.standing), Arc::clone(&peer.required));
    peer.standing = Arc::new(move || {
        let lacking = required().without(capabilities);
        if !lacking.is_empty() {
            let text = format!("{lacking} was turned on, which the program there lacks");
            return Err(Error::Denied(text));
        }
        standing()
    });
    peer
}

fn program_of(hello: &Hello) -> Arc<NodeProgram> {
    let (release, formats) = (hello.release.clone(), hello.formats.clone());
    let (versions, capabilities) = (hello.versions, hello.capabilities);
    Arc::new(NodeProgram { release, versions, formats, capabilities })
}

/// Returns the number of the next connection.
fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

async fn within_time<T>(shake: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Unavailable(format!("no hello arrived within {HANDSHAKE:?}"));
    timeout(HANDSHAKE, shake).await.map_err(late)?
}

fn start<S: Service>(
    stream: Box<dyn Stream>,
    info: PeerInfo,
    hello: &Hello,
    terms: &Terms,
    service: S,
    dialed: bool,
) -> Peer {
    let theirs = Window {
        calls: hello.window.calls.min(terms.window.calls),
        bytes: hello.window.bytes.min(terms.window.bytes),
    };
    let shared = Arc::new(PeerShared::new(info, theirs, hello.reads_traces));
    let peer = Peer::new(&shared, dialed);
    let driver = Driver::new(stream, shared, service, terms.window, terms.keep_alive);
    tokio::spawn(driver.run());
    peer
}
