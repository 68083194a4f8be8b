//! A join token in the form in which a new node gets it: addresses of the masters, the key by which
//! to recognise them, and the secret that admits.

#![deny(clippy::indexing_slicing)]

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use cairn_base::checksum::crc32c;
use cairn_base::{
    ClusterId, Error, JoinGrant, KeyHash, Result, Rng, Roles, Secret, Timestamp, TokenHash, TokenId,
};
use zeroize::Zeroizing;

use super::authority::Authority;
use crate::limits::{ADDRESS_BYTES, TOKEN_ADDRESSES, TOKEN_CHARS};

/// The beginning of every token; the number is its version.
const PREFIX: &str = "cairn-join-1.";

/// Admits one node, once, until it expires. The secret in it is sent only to a master that
/// has shown a certificate of the authority named here.
#[derive(Clone)]
pub struct JoinToken {
    pub cluster: ClusterId,
    /// The hash of the authority's public key.
    pub authority: KeyHash,
    pub id: TokenId,
    pub secret: Secret<[u8; 32]>,
    /// The roles that the joining node will have.
    pub roles: Roles,
    /// Addresses of masters, each `host:port`.
    pub addresses: Vec<String>,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JoinToken { cluster, id, roles, addresses, .. } = self;
        write!(f, "JoinToken({id:?}, {cluster:?}, {roles:?}, {addresses:?})")
    }
}

impl JoinToken {
    /// Makes a new token, for one node in these roles.
    ///
    /// # Errors
    /// `Invalid` without a role or an address, or with too many.
    pub fn new(
        authority: &Authority,
        addresses: Vec<String>,
        roles: Roles,
        rng: &dyn Rng,
    ) -> Result<JoinToken> {
        let mut secret = Zeroizing::new([0; 32]);
        rng.fill(&mut *secret);
        let token = JoinToken {
            cluster: authority.cluster(),
            authority: authority.key(),
            id: TokenId(rng.next_u64()),
            secret: Secret::new(*secret),
            roles,
            addresses,
        };
        token.check()?;
        Ok(token)
    }

    /// Returns the record of this token that the cluster keeps.
    pub fn grant(&self, expires: Timestamp) -> JoinGrant {
        let hash = TokenHash::of(self.secret.expose());
        JoinGrant { hash, roles: self.roles, expires, used: None }
    }

    fn check(&self) -> Result<()> {
        let fits = |address: &String| (1..=ADDRESS_BYTES).contains(&address.len());
        let count = self.addresses.len();
        if !(1..=TOKEN_ADDRESSES).contains(&count) || !self.addresses.iter().all(fits) {
            return Err(invalid("it needs 1 to 16 addresses of at most 255 bytes"));
        }
        if self.roles.is_empty() {
            return Err(invalid("it names no role"));
        }
        Ok(())
    }

    /// Returns the token as text, to be copied to the node that joins.
    pub fn to_text(&self) -> Secret<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(TOKEN_CHARS));
        bytes.extend_from_slice(&self.cluster.0.to_be_bytes());
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.id.0.to_be_bytes());
        bytes.extend_from_slice(self.secret.expose());
        bytes.extend_from_slice(&self.roles.bits().to_be_bytes());
        for address in &self.addresses {
            bytes.push(address.len() as u8);
            bytes.extend_from_slice(address.as_bytes());
        }
        let check = crc32c(&bytes);
        bytes.extend_from_slice(&check.to_be_bytes());
        let mut text = String::with_capacity(TOKEN_CHARS);
        text.push_str(PREFIX);
        BASE64.encode_string(&*bytes, &mut text);
        Secret::new(text)
    }

    /// Reads a token; white space around it is ignored.
    ///
    /// # Errors
    /// `Invalid` if it is no token, was cut or mistyped. The text of the error never repeats the
    /// token.
    pub fn from_text(text: &str) -> Result<JoinToken> {
        let text = text.trim();
        if text.len() > TOKEN_CHARS {
            return Err(invalid("it is too long"));
        }
        let encoded = text.strip_prefix(PREFIX);
        let encoded = encoded.ok_or_else(|| invalid("it must begin with \"cairn-join-1.\""))?;
        let bytes = BASE64.decode(encoded).map_err(|_| invalid("it was cut or mistyped"))?;
        let bytes = Zeroizing::new(bytes);
        let (body, check) =
            bytes.split_last_chunk::<4>().ok_or_else(|| invalid("it was cut or mistyped"))?;
        if crc32c(body) != u32::from_be_bytes(*check) {
            return Err(invalid("it was cut or mistyped"));
        }
        let token = decode(body).ok_or_else(|| invalid("it is malformed"))?;
        token.check()?;
        Ok(token)
    }
}

fn decode(mut rest: &[u8]) -> Option<JoinToken> {
    let cluster = ClusterId(u128::from_be_bytes(take(&mut rest)?));
    let authority = KeyHash(take(&mut rest)?);
    let id = TokenId(u64::from_be_bytes(take(&mut rest)?));
    let secret = Secret::new(take(&mut rest)?);
    let roles = Roles::from_bits(u16::from_be_bytes(take(&mut rest)?));
    let mut addresses = Vec::new();
    while let Some((&length, tail)) = rest.split_first() {
        let (address, tail) = tail.split_at_checked(length.into())?;
        addresses.push(String::from_utf8(address.to_vec()).ok()?);
        rest = tail;
    }
    Some(JoinToken { cluster, authority, id, secret, roles, addresses })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn invalid(why: &str) -> Error {
    Error::Invalid(format!("join token: {why}"))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use cairn_base::Role;
    use proptest::prelude::*;

    use super::*;

    fn token() -> JoinToken {
        JoinToken {
            cluster: ClusterId(u128::MAX / 3),
            authority: KeyHash([5; 32]),
            id: TokenId(99),
            secret: Secret::new(*b"0123456789abcdef0123456789ABCDEF"),
            roles: Roles::from(Role::Gateway).with(Role::Chunkserver),
            addresses: vec!["10.0.0.1:7100".to_owned(), "[fe80::1]:7100".to_owned()],
        }
    }

    #[test]
    fn a_token_reads_back_from_its_text() {
        let sent = token();
        let text = sent.to_text();
        assert!(text.expose().starts_with("cairn-join-1."));
        let read = JoinToken::from_text(&format!("  {}\n", text.expose())).unwrap();
        assert_eq!(read.secret.expose(), sent.secret.expose());
        assert_eq!(read.authority, sent.authority);
        assert_eq!(format!("{read:?}"), format!("{sent:?}"));
        assert_eq!(read.to_text().expose(), text.expose());
    }

    #[test]
    fn a_mistyped_token_is_refused_and_not_repeated() {
        let whole = token().to_text();
        let whole = whole.expose();
        let check = |text: &str| {
            let said = JoinToken::from_text(text).unwrap_err().to_string();
            assert!(!said.contains("MDEyMzQ1"), "{said}");
        };
        for end in 0..whole.len() {
            check(&whole[..end]);
        }
        for at in PREFIX.len()..whole.len() {
            let other = if whole.as_bytes()[at] == b'A' { "B" } else { "A" };
            check(&format!("{}{other}{}", &whole[..at], &whole[at + 1..]));
        }
        check(&whole.replacen("join-1", "join-2", 1));
        check(&"x".repeat(TOKEN_CHARS + 1));
    }

    #[test]
    fn nothing_printed_holds_the_secret() {
        let token = token();
        let shown = format!("{token:?} {:?} {:?}", token.to_text(), token.secret);
        for part in ["0123456789", "MDEyMzQ1", "48, 49"] {
            assert!(!shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_when_made() {
        for change in [
            (|token| token.addresses.clear()) as fn(&mut JoinToken),
            |token| token.addresses = vec!["a:1".to_owned(); 17],
            |token| token.addresses = vec!["a".repeat(256)],
            |token| token.addresses = vec![String::new()],
            |token| token.roles = Roles::NONE,
        ] {
            let mut token = token();
            change(&mut token);
            assert!(token.check().is_err(), "{token:?}");
        }
        let mut largest = token();
        largest.addresses = vec!["a".repeat(255); 16];
        assert!(JoinToken::from_text(largest.to_text().expose()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_token_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let check = crc32c(&bytes).to_be_bytes();
            let text = format!("{PREFIX}{}", BASE64.encode([&bytes[..], &check].concat()));
            if let Ok(token) = JoinToken::from_text(&text) {
                let again = token.to_text();
                prop_assert_eq!(again.expose(), &text);
            }
        }
    }
}
