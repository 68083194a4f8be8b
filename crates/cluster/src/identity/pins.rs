//! The seam to the cluster map: who is known, and who may become known.

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

/// The nodes of the cluster. Asked in every handshake and again while a connection lasts: from
/// memory, without waiting.
pub trait Pins: Send + Sync + 'static {
    /// `None` for a node that is unknown, or was removed.
    fn pin(&self, node: NodeId) -> Option<Pin>;

    /// All nodes that have this role.
    fn nodes(&self, role: Role) -> Vec<(NodeId, Pin)>;

    /// Capabilities that are turned on, which the program of every node must have.
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
    /// `Denied` for a token that is unknown, and as [`JoinGrant::decide`] says.
    async fn redeem(&self, id: TokenId, applicant: Applicant, now: Timestamp) -> Result<NodeId>;
}
