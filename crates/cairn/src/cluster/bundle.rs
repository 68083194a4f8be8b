//! Tokens of all roles of a machine as one text: `cairn-node-1.` and the texts of the join tokens
//! without their prefix, with dots between them.

use cairn_base::{Role, Secret};
use cairn_cluster::identity::JoinToken;

use crate::failure::{Failure, Result};

const PREFIX: &str = "cairn-node-1.";
const OF_TOKEN: &str = "cairn-join-1.";
/// The roles of a machine.
pub const ROLES: [Role; 3] = Role::ALL;

/// Returns the text of a machine's tokens.
pub fn write(tokens: &[JoinToken]) -> Secret<String> {
    let mut text = String::from(PREFIX);
    for (at, token) in tokens.iter().enumerate() {
        let token = token.to_text();
        if at > 0 {
            text.push('.');
        }
        text.push_str(token.expose().trim_start_matches(OF_TOKEN));
    }
    Secret::new(text)
}

/// Reads such a text, or the text on stdin for `-`. There is a token for each role.
pub fn read(text: &str) -> Result<Vec<JoinToken>> {
    let text = match text {
        "-" => std::io::read_to_string(std::io::stdin())?,
        text => text.to_owned(),
    };
    let malformed = |why: &str| Failure::usage(format!("the token of a machine: {why}"));
    let parts = text.trim().strip_prefix(PREFIX);
    let parts = parts.ok_or_else(|| malformed("it must begin with \"cairn-node-1.\""))?;
    let tokens: Result<Vec<JoinToken>> = parts
        .split('.')
        .take(ROLES.len() + 1)
        .map(|part| Ok(JoinToken::from_text(&format!("{OF_TOKEN}{part}"))?))
        .collect();
    let tokens = tokens?;
    let fits = tokens.len() == ROLES.len()
        && tokens.iter().zip(ROLES).all(|(token, role)| token.roles == role.into());
    if !fits {
        return Err(malformed("it is not for a master, a chunkserver and a gateway"));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::SeededRng;
    use cairn_base::{ClusterId, Roles, Timestamp};
    use cairn_cluster::identity::Ca;

    use super::*;

    #[test]
    fn the_text_reads_back_and_nothing_else_does() {
        let rng = SeededRng::new(1);
        let ca = Ca::init(ClusterId(7), Timestamp::from_secs(1_800_000_000), &rng).unwrap();
        let token = |role: Role| {
            let addresses = vec!["10.0.0.1:7400".to_owned()];
            JoinToken::new(ca.authority(), addresses, Roles::from(role), &rng).unwrap()
        };
        let tokens = ROLES.map(token);
        let text = write(&tokens).expose().clone();
        let found = read(&format!(" {text}\n")).unwrap();
        let ids = |tokens: &[JoinToken]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&tokens));
        for cut in 0..text.len() - 1 {
            assert!(read(&text[..cut]).is_err(), "{cut}");
        }
        assert!(read(&format!("{text}.")).is_err());
        let [one, other, third] = ROLES.map(token);
        assert!(read(write(&[other, one, third]).expose()).is_err());
        assert!(read(token(Role::Master).to_text().expose()).is_err());
    }
}
