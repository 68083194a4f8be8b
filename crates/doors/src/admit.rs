//! Admission: the step from credentials on the wire to a `Caller`, before anything else is looked
//! at.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cairn_auth::{Caller, CredentialId, NewCredential, Origin, SealKey, SecretKey};
use cairn_base::{Error, Party, Result, Rng, Secret, UserId};
use cairn_fs::ops::credentials::{AddAccessKey, FindAccessKey, FindToken, ListCredentials};
use cairn_fs::rows::{AccessKey, Token};
use cairn_fs::{Fs, WireVerb};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::limits;
use crate::serve::Remote;

/// The name of the first user, who may do everything.
pub const ROOT: &str = "root";

/// Turns credentials into callers. All doors share one.
pub struct Admit {
    fs: Fs,
    seal: SealKey,
    rng: Arc<dyn Rng>,
    /// The secret to compare with if there is no access key, sealed like those of access keys.
    decoy: Vec<u8>,
    failures: Mutex<HashMap<(Party, String), Failures>>,
}

/// The id for which the decoy is sealed. No access key has it.
const DECOY: &str = "";

/// Failures with one key id from one network.
struct Failures {
    since: Duration,
    count: u32,
}

/// The reason why a request was not admitted.
#[derive(Debug)]
pub enum AdmitError {
    /// Credentials were sent and are wrong. The text does not say which part of them.
    Credentials,
    /// The credentials could not be checked.
    Failed(Error),
}

impl From<Error> for AdmitError {
    fn from(error: Error) -> AdmitError {
        AdmitError::Failed(error)
    }
}

/// The contents of `Authorization`. No `Debug`: it contains secrets.
enum PresentedCredentials {
    Token { id: String, whole: Secret<String> },
    Basic { id: String, secret: Secret<String> },
}

impl Admit {
    pub fn new(fs: Fs, seal: SealKey, rng: Arc<dyn Rng>) -> Admit {
        let decoy = seal.seal(&*rng, DECOY, &cairn_auth::generate(&*rng).secret);
        Admit { fs, seal, rng, decoy, failures: Mutex::new(HashMap::new()) }
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    pub fn rng(&self) -> &Arc<dyn Rng> {
        &self.rng
    }

    /// Does the same as [`Admit::caller`] if that needs no wait; otherwise returns `None`.
    pub fn caller_now(&self, headers: &HeaderMap, peer: Remote) -> Option<Caller> {
        (!headers.contains_key(AUTHORIZATION)).then(|| anonymous(peer))
    }

    /// Returns the sender of a request with these headers. Without `Authorization` it is the
    /// anonymous caller; a wrong `Authorization` is an error, and never makes the caller anonymous.
    /// Right credentials are never refused or delayed because of earlier wrong ones.
    pub async fn caller(&self, headers: &HeaderMap, peer: Remote) -> Result<Caller, AdmitError> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(anonymous(peer)) };
        let presented = match values.next() {
            None => value.to_str().ok().and_then(parse),
            Some(_) => None,
        };
        let id = presented.as_ref().map_or_else(String::new, |presented| presented.id().to_owned());
        let found = match presented {
            Some(presented) => self.verify(presented).await?,
            None => None,
        };
        match found {
            Some(user) => Ok(verified(user, &id, peer)),
            None => {
                self.failed(peer.address, &id).await;
                Err(AdmitError::Credentials)
            }
        }
    }

    /// Returns whether credentials with which a mount or a long reply of `user` began are still
    /// valid. The key itself is checked, whatever others send from the same network, and nothing is
    /// counted.
    ///
    /// # Errors
    /// The error if that cannot be found out now: it does not mean yes.
    pub async fn holds(&self, headers: &HeaderMap, user: UserId) -> Result<bool> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(presented) = value.and_then(parse) else { return Ok(false) };
        Ok(self.verify(presented).await? == Some(user))
    }

    async fn verify(&self, presented: PresentedCredentials) -> Result<Option<UserId>> {
        match presented {
            PresentedCredentials::Token { id, whole } => {
                let token: Option<Token> = self.find(FindToken { id }).await?;
                let Some(token) = token else { return Ok(None) };
                let in_time = token.is_in_time(self.fs.clock().now());
                let good = cairn_auth::verify_token(&token.hash, whole.expose()) && in_time;
                Ok(good.then_some(token.user))
            }
            PresentedCredentials::Basic { id, secret } => self.user_of(&id, &secret).await,
        }
    }

    async fn find<V: WireVerb>(&self, verb: V) -> Result<V::Reply> {
        self.fs.read(&Caller::system(), verb).await
    }

    /// Returns the secret of an access key and its user, to check a signature with.
    pub async fn secret_of(&self, access_key_id: &str) -> Result<Option<(SecretKey, UserId)>> {
        if cairn_auth::check_access_key_id(access_key_id).is_err() {
            return Ok(None);
        }
        let id = access_key_id.to_owned();
        let key: Option<AccessKey> = self.find(FindAccessKey { id }).await?;
        let Some(key) = key else { return Ok(None) };
        Ok(Some((self.seal.open(access_key_id, &key.sealed)?, key.user)))
    }

    /// Returns the user of an access key with this secret. An unknown key takes as much work, so
    /// the time taken reveals nothing.
    pub async fn user_of(&self, id: &str, secret: &Secret<String>) -> Result<Option<UserId>> {
        let (stored, user) = match self.secret_of(id).await? {
            Some((stored, user)) => (stored, Some(user)),
            None => (self.seal.open(DECOY, &self.decoy)?, None),
        };
        let is_right = cairn_auth::verify_secret(&stored, secret.expose());
        Ok(user.filter(|_| is_right))
    }

    /// Seals the secret of an access key, for the store.
    pub fn seal(&self, credential: &NewCredential) -> Vec<u8> {
        self.seal.seal(&*self.rng, &credential.id, &credential.secret)
    }

    /// Notes wrong credentials with a key id, and waits if there were many from that network: so
    /// guessing takes long, and other clients are not locked out.
    pub async fn failed(&self, source: SocketAddr, id: &str) {
        if self.count(source, id) > limits::FAILURES {
            sleep(limits::FAILURES_DELAY).await;
        }
    }

    /// Counts wrong credentials.
    fn count(&self, source: SocketAddr, id: &str) -> u32 {
        let since = self.fs.clock().monotonic();
        let mut failures = self.failures.lock();
        if failures.len() >= limits::FAILURE_SOURCES {
            failures.retain(|_, known| !self.is_over(known));
        }
        if failures.len() >= limits::FAILURE_SOURCES {
            failures.clear();
        }
        let id: String = id.chars().take(limits::FAILURE_ID_CHARS).collect();
        let known = failures.entry((Party::at(source.ip()), id));
        let known = known.or_insert(Failures { since, count: 0 });
        if self.is_over(known) {
            *known = Failures { since, count: 0 };
        }
        known.count = known.count.saturating_add(1);
        known.count
    }

    fn is_over(&self, known: &Failures) -> bool {
        let now = self.fs.clock().monotonic();
        now.saturating_sub(known.since) >= limits::FAILURES_WINDOW
    }
}

impl PresentedCredentials {
    fn id(&self) -> &str {
        match self {
            PresentedCredentials::Token { id, .. } | PresentedCredentials::Basic { id, .. } => id,
        }
    }
}

/// Returns the caller without credentials.
pub(crate) fn anonymous(peer: Remote) -> Caller {
    Caller::anonymous().with_origin(origin(peer, None))
}

/// Returns the caller for a verified credential of `user` with this id.
pub(crate) fn verified(user: UserId, id: &str, peer: Remote) -> Caller {
    Caller::verified(user).with_origin(origin(peer, CredentialId::new(id)))
}

fn origin(peer: Remote, credential: Option<CredentialId>) -> Origin {
    Origin { source: Some(peer.address.ip().to_canonical()), tls: peer.tls, credential }
}

fn parse(value: &str) -> Option<PresentedCredentials> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        let id = cairn_auth::token_id(rest)?.to_owned();
        return Some(PresentedCredentials::Token { id, whole: Secret::new(rest.to_owned()) });
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
        let (id, secret) = decoded.split_once(':')?;
        return Some(PresentedCredentials::Basic {
            id: id.to_owned(),
            secret: Secret::new(secret.to_owned()),
        });
    }
    None
}

/// Returns the password of basic auth, with any name.
pub(crate) fn basic_password(headers: &HeaderMap) -> Option<Secret<String>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    match parse(value.to_str().ok()?)? {
        PresentedCredentials::Basic { secret, .. } => Some(secret),
        PresentedCredentials::Token { .. } => None,
    }
}

/// Makes the first access key of root if there is none, and returns it to be shown once. With a
/// preset, root gets that one, and nothing is returned.
pub async fn ensure_root(
    admit: &Admit,
    preset: Option<(String, SecretKey)>,
) -> Result<Option<NewCredential>> {
    if let Some((id, secret)) = preset {
        cairn_auth::check_access_key_id(&id)?;
        cairn_auth::check_secret_key(&secret)?;
        if let Some((known, UserId::ROOT)) = admit.secret_of(&id).await?
            && cairn_auth::verify_secret(&known, secret.expose())
        {
            return Ok(None);
        }
        add_root_key(admit, &NewCredential { id, secret }, true).await?;
        return Ok(None);
    }
    let known = admit.fs.read(&Caller::system(), ListCredentials).await?;
    if known.iter().any(|credential| credential.user == ROOT && !credential.is_token) {
        return Ok(None);
    }
    let credential = cairn_auth::generate(&*admit.rng);
    add_root_key(admit, &credential, false).await?;
    Ok(Some(credential))
}

async fn add_root_key(admit: &Admit, credential: &NewCredential, replace: bool) -> Result<()> {
    let verb = AddAccessKey {
        id: credential.id.clone(),
        sealed: admit.seal(credential),
        user: ROOT.to_owned(),
        replace,
    };
    let user = admit.fs.run(&Caller::system(), verb).await?;
    assert_eq!(user, UserId::ROOT, "the first user is root");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_caller_has_the_origin_of_its_connection() {
        let address = "[::ffff:10.0.0.7]:80".parse().unwrap();
        let peer = Remote { address, tls: true };
        let caller = verified(UserId(7), "CK7", peer);
        let Origin { source, tls, credential } = *caller.origin();
        assert_eq!(source, Some("10.0.0.7".parse().unwrap()));
        assert!(tls && credential.unwrap().as_str() == "CK7");
        let caller = anonymous(Remote { tls: false, ..peer });
        let Origin { source: same, tls, credential } = *caller.origin();
        assert_eq!((same, tls, credential), (source, false, None));
    }

    #[test]
    fn only_the_two_schemes_are_parsed() {
        let good = ["Bearer cairn_A_B", "bearer cairn_A_B", "Basic YTpi", "BASIC  YTpi"];
        for value in good {
            assert!(parse(value).is_some(), "{value}");
        }
        let bad =
            ["", "Bearer", "Bearer ", "Bearer x", "Basic", "Basic YWI=", "Basic !", "Foo YTpi"];
        for value in bad {
            assert!(parse(value).is_none(), "{value}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn any_header_is_parsed_or_refused(value in ".{0,80}", scheme in 0..3usize) {
            let value = format!("{}{value}", ["", "Basic ", "Bearer cairn_"][scheme]);
            let _ = parse(&value);
        }
    }
}
