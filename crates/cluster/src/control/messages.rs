//! Messages between nodes and masters, without those of sessions (`cairn_meta::session`, whose
//! methods have their own numbers). Messages are postcard. `docs/protocol.md` lists them.

use bytes::Bytes;
use cairn_auth::Origin;
use cairn_base::{BlockId, Error, GroupId, NodeId, Owner, Result, UserId};
use serde::{Deserialize, Serialize};

/// Blocks in one message about blocks.
pub const EXTRA_BLOCKS: usize = 500;

/// Methods of calls, with their numbers on the network. 18, 23 and 24 were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum ControlMethod {
    /// From the master to a session: a recall, encoded.
    Recall = 6,
    /// Answered by the master that serves with the generation of the map, or with nothing by one of
    /// an earlier version; any other master answers with an error.
    Serves = 7,
    /// [`Beat`], answered with [`Beaten`].
    Beat = 16,
    /// Answered with the map.
    Map = 17,
    /// Answered with [`Secrets`].
    Secrets = 19,
    /// Answered with a new certificate for the node that asks.
    Certify = 20,
    /// [`CaughtUp`], answered with nothing.
    CaughtUp = 21,
    /// [`Extra`], answered with nothing.
    Extra = 22,
    /// A message of the session of a mount: [`Vouched`] and the unchanged message, joined. The
    /// answer is that to the message. Recalls come over the same connection.
    Vouched = 26,
    /// Like [`ControlMethod::Vouched`], with [`VouchedFrom`]. Gateways of earlier versions still
    /// send `Vouched`.
    VouchedFrom = 27,
    /// Between masters: a message of a member as it is (docs/format-members.md), answered in the
    /// same form.
    Member = 40,
    /// Answered with [`MemberReport`](crate::members::MemberReport) by any master.
    MemberReport = 41,
    /// From a new master: answered with [`EnterReply`](crate::members::EnterReply).
    Enter = 42,
    /// Answered with the [`StallReport`](crate::members::StallReport)s of its member by any master.
    MemberStalls = 43,
    /// Answered with the [`DamageReport`](crate::members::DamageReport)s of its member by any
    /// master.
    MemberDamage = 44,
    /// From a master whose member has lost entries, or has damaged metadata: answered with
    /// [`RenumberReply`](crate::members::RenumberReply). It may be sent again.
    Renumber = 47,
    /// [`DiskFault`], from a chunkserver while its disk takes no writes; answered with nothing.
    DiskFault = 48,
}

impl ControlMethod {
    pub fn from_number(number: u16) -> Result<ControlMethod> {
        use ControlMethod::{
            Beat, CaughtUp, Certify, DiskFault, Enter, Extra, Map, Member, MemberDamage,
            MemberReport, MemberStalls, Recall, Renumber, Secrets, Serves, Vouched, VouchedFrom,
        };
        let all = [
            Recall,
            Serves,
            Beat,
            Map,
            Secrets,
            Certify,
            CaughtUp,
            Extra,
            Vouched,
            VouchedFrom,
            Member,
            MemberReport,
            Enter,
            MemberStalls,
            MemberDamage,
            Renumber,
            DiskFault,
        ];
        let found = all.into_iter().find(|method| *method as u16 == number);
        found.ok_or_else(|| {
            Error::NotImplemented(format!("nodes of this version do not know method {number}"))
        })
    }
}

/// Origin of a message that a gateway relays: the user whose credentials the mount has shown there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vouched {
    pub user: UserId,
    /// Method of the message.
    pub method: u16,
}

/// [`Vouched`], with the origin of the mount at the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VouchedFrom {
    pub vouched: Vouched,
    pub origin: Origin,
}

/// Tells that a node is alive, and in which state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Beat {
    /// Address at which other nodes reach it, `host:port`; empty if it is not dialed.
    pub address: String,
    /// The URL of its door for clients; empty for none.
    pub url: String,
    pub zone: String,
    pub weight: u32,
    /// The id of its store of blocks; 0 for none.
    pub disk: u128,
    /// Epoch of the node's map.
    pub epoch: u64,
    pub version: String,
    pub store: StoreState,
    /// Groups that it is copying.
    pub copying: Vec<Copying>,
    /// Groups of which it has blocks, and the bytes of those.
    pub groups: Vec<(GroupId, u64)>,
}

/// State of a store of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreState {
    pub blocks: u64,
    /// Bytes of blocks that exist.
    pub live_bytes: u64,
    pub free_bytes: u64,
    /// Blocks that were found damaged since the start, each once.
    pub corrupt: u64,
    /// Blocks counted in `corrupt` that were replaced by another node's replica.
    pub healed: u64,
    /// Set if there is hardly any room for further blocks, or the disk fails. A master that does
    /// not know [`DiskFault`] then still lets other nodes take its place.
    pub is_full: bool,
}

/// The error because of which the disk of a chunkserver takes no writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskFault {
    pub error: String,
}

/// Progress of a member of a group that catches up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Copying {
    pub group: GroupId,
    pub blocks: u64,
    pub bytes: u64,
}

/// The answer to a beat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Beaten {
    /// The map, if the node's is older.
    pub map: Option<Bytes>,
    /// Free bytes of chunkservers, as they last reported.
    pub free_bytes: Vec<(NodeId, u64)>,
}

/// Keys that a node needs to do its work. Sent only over connections between nodes.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secrets {
    /// Key that seals secrets in the metadata; for gateways and masters.
    pub seal: Option<[u8; 32]>,
    /// The private key of the authority, PEM; for masters.
    pub authority: Option<String>,
    /// Key that encrypts links to objects; for all nodes that make or open them.
    pub links: Option<[u8; 32]>,
}

/// Reports that a member has copied all that the members in sync have.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CaughtUp {
    pub group: GroupId,
    /// Epoch of the map by which the member compared its blocks with those of the others.
    pub epoch: u64,
}

/// Blocks that a member has and no member in sync has: were they ever published?
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extra {
    pub group: GroupId,
    pub blocks: Vec<(BlockId, Owner)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_meta::session;

    #[test]
    fn no_number_is_that_of_two_methods() {
        for number in 0..=u16::MAX {
            let of_sessions = session::SessionMethod::from_number(number).is_ok();
            assert!(!of_sessions || ControlMethod::from_number(number).is_err(), "{number}");
        }
    }
}
