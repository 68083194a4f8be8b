//! Tokens of share links: a request with a token may use its link.

use cairn_base::{Rng, Secret, UserId};

use crate::credential::random_text;

const ID_CHARS: usize = 12;
/// Length of the secret, in characters of 5 random bits each.
const SECRET_CHARS: usize = 32;

/// Name of a share link: its user, and its id among the links of that user.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShareLinkId {
    pub user: UserId,
    pub id: String,
}

impl std::fmt::Display for ShareLinkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}", self.user.0, self.id)
    }
}

impl ShareLinkId {
    /// Parses a name; `None` for other text.
    pub fn parse(text: &str) -> Option<ShareLinkId> {
        let (user, id) = text.split_once('-')?;
        let is_plain = user.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let user = UserId(u64::from_str_radix(user, 16).ok().filter(|_| is_plain)?);
        is_text(id, ID_CHARS).then(|| ShareLinkId { user, id: id.to_owned() })
    }
}

fn is_text(text: &str, chars: usize) -> bool {
    let is_letter = |byte: u8| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
    text.len() == chars && text.bytes().all(is_letter)
}

/// Makes a new share link of a user, and its token `<id>-<secret>`, which is shown once.
pub fn generate_share_token(rng: &dyn Rng, user: UserId) -> (ShareLinkId, Secret<String>) {
    let id = ShareLinkId { user, id: random_text(rng, ID_CHARS) };
    let token = format!("{id}-{}", random_text(rng, SECRET_CHARS));
    (id, Secret::new(token))
}

/// Returns the share link of a token; `None` if the token has another form.
pub fn share_link_of(token: &str) -> Option<ShareLinkId> {
    let (id, secret) = token.rsplit_once('-')?;
    ShareLinkId::parse(id).filter(|_| is_text(secret, SECRET_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::rng::SeededRng;

    #[test]
    fn a_token_names_its_link() {
        let (id, token) = generate_share_token(&SeededRng::new(2), UserId(300));
        assert_eq!(share_link_of(token.expose()), Some(id.clone()));
        assert_eq!(ShareLinkId::parse(&id.to_string()), Some(id));
        let len = token.expose().len();
        for bad in ["", "-", "--", "12c", "_bulk", &token.expose()[..len - 1]] {
            assert_eq!(share_link_of(bad), None, "{bad}");
        }
        for bad in ["", "none", "12c", "12C-AAAAAAAAAAAA", "-AAAAAAAAAAAA", "+1-AAAAAAAAAAAA"] {
            assert_eq!(ShareLinkId::parse(bad), None, "{bad}");
        }
    }
}
