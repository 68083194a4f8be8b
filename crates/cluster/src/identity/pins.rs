//! Seam to the cluster map: the nodes that are known, and those that may become known.

use async_trait::async_trait;
use cairn_base::{
    Applicant, CapabilitySet, JoinGrant, NodeId, Pin, Result, Role, Timestamp, TokenId,
};

/// A node that this one can recognise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownNode {
    pub node: NodeId,
    pub pin: Pin,
}

/// The nodes of the cluster. Read in every handshake, and again while a connection lasts: from
/// memory, without waiting.
pub trait Pins: Send + Sync + 'static {
    /// Returns the pin of a node; `None` if it is unknown, or was removed.
    fn pin(&self, node: NodeId) -> Option<Pin>;

    /// Returns all nodes that have this role.
    fn nodes(&self, role: Role) -> Vec<(NodeId, Pin)>;

    /// Returns the capabilities that are turned on, which the program of every node must have.
    fn required(&self) -> CapabilitySet;
}

/// The store of join tokens.
#[async_trait]
pub trait Tokens: Send + Sync + 'static {
    /// Remembers an issued token, as [`super::JoinToken::grant`] gives it.
    async fn issue(&self, id: TokenId, grant: JoinGrant) -> Result<()>;

    /// Admits a node: decides by [`JoinGrant::decide`], takes a node id that was never used, pins
    /// it, and marks the grant used, all in one durable step. An applicant that was admitted by
    /// this token before gets the same id again.
    ///
    /// # Errors
    /// `Denied` for a token that is unknown, and those of [`JoinGrant::decide`].
    async fn redeem(&self, id: TokenId, applicant: Applicant, now: Timestamp) -> Result<NodeId>;
}
