//! The record that the cluster keeps of a join token, and the rule by which a token is redeemed.
//! The token itself, with its secret, is known only to its issuer and to the node that joins with
//! it.

use std::fmt;

use aws_lc_rs::{constant_time, digest};

use crate::{Error, KeyHash, NodeId, Result, Roles, Timestamp};

/// SHA-256 of a join token's secret. The cluster keeps nothing else of the secret.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(secret: &[u8; 32]) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        TokenHash(hash)
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    pub fn from_bytes(bytes: [u8; 32]) -> TokenHash {
        TokenHash(bytes)
    }
}

impl PartialEq for TokenHash {
    /// Compares in constant time.
    fn eq(&self, other: &TokenHash) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// An issued join token, as the cluster keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinGrant {
    pub hash: TokenHash,
    /// Roles that the joining node may have.
    pub roles: Roles,
    pub expires: Timestamp,
    /// Node that redeemed it, and its key.
    pub used: Option<(KeyHash, NodeId)>,
}

/// A node that asks to redeem a token. The TLS handshake has proven that it has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applicant {
    pub hash: TokenHash,
    pub key: KeyHash,
    pub roles: Roles,
}

impl JoinGrant {
    /// Decides whether `applicant` may join now: `None` as a new node, `Some` as an existing node
    /// whose first answer was lost. In the same step, the keeper of the grant must pin the node's
    /// key and set [`JoinGrant::used`].
    ///
    /// # Errors
    /// `Denied` for a wrong secret, an expired token, a token used by another key, and roles not
    /// granted.
    pub fn decide(&self, applicant: &Applicant, now: Timestamp) -> Result<Option<NodeId>> {
        let denied = |why: &str| Err(Error::Denied(format!("join token: {why}")));
        if self.hash != applicant.hash {
            return denied(
                "its secret is wrong: use the token as `cairn cluster token` printed it",
            );
        }
        if now >= self.expires {
            return denied("it has expired: issue another with `cairn cluster token`");
        }
        if applicant.roles.is_empty() || !self.roles.contains_all(applicant.roles) {
            let (asked, granted) = (applicant.roles, self.roles);
            return denied(&format!("it is for {granted}, not for {asked}"));
        }
        match self.used {
            None => Ok(None),
            Some((key, node)) if key == applicant.key => Ok(Some(node)),
            Some((_, node)) => denied(&format!(
                "node {node} has used it: issue another with `cairn cluster token`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    const SECRET: [u8; 32] = [7; 32];

    fn check(change: impl FnOnce(&mut JoinGrant, &mut Applicant), expect: Result<(), &str>) {
        let mut grant = JoinGrant {
            hash: TokenHash::of(&SECRET),
            roles: [Role::Gateway, Role::Chunkserver].into_iter().collect(),
            expires: Timestamp::from_secs(100),
            used: None,
        };
        let roles = Role::Gateway.into();
        let hash = TokenHash::of(&SECRET);
        let mut applicant = Applicant { hash, key: KeyHash([1; 32]), roles };
        change(&mut grant, &mut applicant);
        match (grant.decide(&applicant, Timestamp::from_secs(99)), expect) {
            (Ok(node), Ok(())) => assert_eq!(node, grant.used.map(|(_, node)| node)),
            (Err(Error::Denied(text)), Err(word)) => assert!(text.contains(word), "{text}"),
            (got, expect) => panic!("{got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn a_token_admits_one_key_until_it_expires() {
        let node = NodeId(9);
        check(|_, _| {}, Ok(()));
        check(|grant, _| grant.used = Some((KeyHash([1; 32]), node)), Ok(()));
        check(|grant, _| grant.used = Some((KeyHash([2; 32]), node)), Err("has used it"));
        check(|grant, _| grant.expires = Timestamp::from_secs(99), Err("expired"));
        check(|_, applicant| applicant.hash = TokenHash::of(&[8; 32]), Err("secret is wrong"));
        check(|_, applicant| applicant.roles = Role::Master.into(), Err("not for master"));
        check(|_, a| a.roles = a.roles.with(Role::Master), Err("not for master, gateway"));
        check(|_, applicant| applicant.roles = Roles::NONE, Err("it is for"));
    }

    #[test]
    fn a_hash_says_nothing_when_printed() {
        assert_eq!(format!("{:?}", TokenHash::of(&SECRET)), "TokenHash(…)");
    }
}
