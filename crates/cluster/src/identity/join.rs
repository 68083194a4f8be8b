//! Joining: one request and one answer, over TLS. In its handshake the new node has recognised a
//! master by its token. The master has seen that the new node has the key by which it will be
//! known. `docs/protocol.md` has the fields.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::codec::{Field, Fields, Writer};
use cairn_base::{
    Applicant, Clock, Error, KeyHash, NodeId, Pin, Result, Rng, Role, Roles, Secret, TokenHash,
    TokenId,
};
use rustls::pki_types::CertificateDer;

use super::authority::{Authority, Usage};
use super::ca::Ca;
use super::key::{NodeKey, PublicKey};
use super::pins::{KnownNode, Pins, Tokens};
use super::token::JoinToken;

const FORMAT: u8 = 1;

// Fields of a request.
const TOKEN: u32 = 1;
const SECRET: u32 = 2;
const ROLES: u32 = 3;
// Fields of an answer (and of a node in it: NODE, KEY, ROLES).
const NODE: u32 = 1;
const KEY: u32 = 2;
const CERTIFICATE: u32 = 4;
const AUTHORITY: u32 = 5;
const MASTER: u32 = 6;

/// Result of joining, for the new node.
#[derive(Debug)]
pub struct JoinResult {
    pub node: NodeId,
    pub roles: Roles,
    pub certificate: CertificateDer<'static>,
    pub authority: Authority,
    /// Masters, by which this node recognises them until it has the cluster map.
    pub masters: Vec<KnownNode>,
}

/// Makes the request to a master.
pub(crate) fn request(token: &JoinToken) -> Bytes {
    let mut request = Writer::new(FORMAT);
    request
        .number(TOKEN, token.id.0)
        .bytes(SECRET, token.secret.expose())
        .number(ROLES, token.roles.bits().into());
    request.finish()
}

/// Reads an answer, and checks that it fits the token and the key.
pub(crate) fn check(
    answer: Bytes,
    token: &JoinToken,
    key: &NodeKey,
    clock: &dyn Clock,
) -> Result<JoinResult> {
    let (mut node, mut roles) = (NodeId(0), Roles::NONE);
    let (mut certificate, mut authority) = (Bytes::new(), Bytes::new());
    let mut masters = Vec::new();
    let mut fields = Fields::open(&answer, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            NODE => node = NodeId(field.number()?),
            ROLES => roles = read_roles(&field)?,
            CERTIFICATE => certificate = field.value,
            AUTHORITY => authority = field.value,
            MASTER => masters.push(read_node(&field.value)?),
            _ => {}
        }
    }
    let certificate = CertificateDer::from(certificate.to_vec());
    let authority = Authority::new(token.cluster, CertificateDer::from(authority.to_vec()))?;
    let facts = authority.verify(&certificate, clock.now(), Usage::Client)?;
    let fits = authority.key() == token.authority
        && facts.node == node
        && facts.key == key.public().hash()
        && roles.contains_all(token.roles);
    if !fits {
        return Err(Error::Invalid("joining: the answer is for another node or cluster".into()));
    }
    Ok(JoinResult { node, roles, certificate, authority, masters })
}

fn read_roles(field: &Field) -> Result<Roles> {
    let bits = u16::try_from(field.number()?);
    Ok(Roles::from_bits(bits.map_err(|_| Error::Invalid("joining: roles".into()))?))
}

fn read_hash(bytes: &Bytes) -> Result<[u8; 32]> {
    <[u8; 32]>::try_from(&bytes[..])
        .map_err(|_| Error::Invalid("joining: a hash that is not 32 bytes long".into()))
}

fn read_node(row: &Bytes) -> Result<KnownNode> {
    let mut known =
        KnownNode { node: NodeId(0), pin: Pin { key: KeyHash([0; 32]), roles: Roles::NONE } };
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            NODE => known.node = NodeId(field.number()?),
            KEY => known.pin.key = KeyHash(read_hash(&field.value)?),
            ROLES => known.pin.roles = read_roles(&field)?,
            _ => {}
        }
    }
    Ok(known)
}

fn write_node(node: NodeId, pin: Pin) -> Bytes {
    let mut out = Writer::new(FORMAT);
    out.number(NODE, node.0).bytes(KEY, &pin.key.0).number(ROLES, pin.roles.bits().into());
    out.finish()
}

/// Admits nodes and renews their certificates, at a master.
pub struct Desk {
    pub ca: Ca,
    pub tokens: Arc<dyn Tokens>,
    pub pins: Arc<dyn Pins>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

impl Desk {
    /// Issues a new certificate for a connected node that has shown its current one.
    ///
    /// # Errors
    /// `Denied` if the node is no longer pinned with this key.
    pub fn renew(
        &self,
        node: NodeId,
        certificate: &CertificateDer<'_>,
    ) -> Result<CertificateDer<'static>> {
        let public = PublicKey::of(certificate)?;
        match self.pins.pin(node).filter(|pin| pin.key == public.hash()) {
            Some(pin) => self.ca.issue(node, pin.roles, &public, self.clock.now(), &*self.rng),
            None => {
                Err(Error::Denied(format!("the cluster map does not know node {node} by this key")))
            }
        }
    }

    /// Answers a node that asks to join, and has shown in the handshake that it has the key
    /// `public`.
    pub(crate) async fn admit(&self, request: &Bytes, public: &PublicKey) -> Result<Bytes> {
        let (mut id, mut hash, mut roles) = (TokenId(0), None, Roles::NONE);
        let mut fields = Fields::open(request, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                TOKEN => id = TokenId(field.number()?),
                SECRET => {
                    let secret = Secret::new(read_hash(&field.value)?);
                    hash = Some(TokenHash::of(secret.expose()));
                }
                ROLES => roles = read_roles(&field)?,
                _ => {}
            }
        }
        let hash =
            hash.ok_or_else(|| Error::Denied("join token: the request has no secret".into()))?;
        let applicant = Applicant { hash, key: public.hash(), roles };
        let now = self.clock.now();
        let node = self.tokens.redeem(id, applicant, now).await?;
        let certificate = self.ca.issue(node, roles, public, now, &*self.rng)?;
        tracing::info!(%node, %roles, key = %public.hash(), "node joins");
        let mut answer = Writer::new(FORMAT);
        answer
            .number(NODE, node.0)
            .number(ROLES, roles.bits().into())
            .bytes(CERTIFICATE, &certificate)
            .bytes(AUTHORITY, self.ca.authority().certificate());
        for (node, pin) in self.pins.nodes(Role::Master) {
            answer.bytes(MASTER, &write_node(node, pin));
        }
        Ok(answer.finish())
    }
}
