//! Users, access keys and tokens. Root manages all of them; every user manages its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::Principal;
use cairn_base::{Error, Timestamp, UserId, limits};
use serde::{Deserialize, Serialize};

use super::logins::end_all;
use super::namespace::{load, load_counter, load_known, store};
use crate::rows::{AccessKey, Row, Token, User, decode_number, encode_number};
use crate::{Context, Stop, Verb, View, keys};

/// Returns the user of that name.
pub fn find_user(view: &mut View<'_>, name: &str) -> Result<UserId, Stop> {
    match view.get(&keys::user_name(name))? {
        Some(row) => Ok(UserId(decode_number(&row)?)),
        None => {
            let text = format!("user {name}: `cairn key create {name}` makes one");
            Err(Error::NotFound(text).into())
        }
    }
}

/// Checks a user's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
pub fn check_user_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::Invalid(format!("user name {name:?}: use 1 to 64 of A-Z a-z 0-9 . _ -")))
}

fn user_or_new(view: &mut View<'_>, context: &Context, name: &str) -> Result<UserId, Stop> {
    check_user_name(name)?;
    let by_name = keys::user_name(name);
    if let Some(row) = view.get(&by_name)? {
        return Ok(UserId(decode_number(&row)?));
    }
    let counter = keys::config("next_user");
    let mut users = load_counter(view, &counter, 1)?;
    let next = users.value;
    users.value += 1;
    store(view, counter, &users);
    view.put(by_name, encode_number(next));
    let user = User { name: name.into(), created: context.now, ..User::default() };
    store(view, keys::user(UserId(next)), &user);
    Ok(UserId(next))
}

/// Adds an access key for a user; makes the user if it does not exist. The first user ever made is
/// root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddAccessKey {
    pub id: String,
    /// Secret, sealed for `id`.
    pub sealed: Vec<u8>,
    pub user: String,
    /// Allows replacing the secret of an access key that this user has.
    pub replace: bool,
}

impl Verb for AddAccessKey {
    type Reply = UserId;
    const NAME: &'static str = "add_access_key";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UserId, Stop> {
        cairn_auth::check_access_key_id(&self.id)?;
        let user = user_or_new(view, context, &self.user)?;
        let key = keys::access_key(&self.id);
        let present = load::<AccessKey>(view, &key)?;
        if present.as_ref().is_some_and(|present| !self.replace || present.user != user) {
            return Err(Error::Exists(format!("access key {}", self.id)).into());
        }
        let sealed = self.sealed.clone();
        let row = AccessKey { user, sealed, created: context.now, ..present.unwrap_or_default() };
        store(view, key, &row);
        Ok(user)
    }
}

/// Adds a bearer token for a user that exists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddToken {
    pub id: String,
    pub hash: cairn_auth::TokenHash,
    pub user: String,
    /// End of validity; 0 for never.
    pub expires: Timestamp,
}

impl Verb for AddToken {
    type Reply = UserId;
    const NAME: &'static str = "add_token";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UserId, Stop> {
        let user = find_user(view, &self.user)?;
        let token = Token {
            user,
            hash: self.hash,
            created: context.now,
            expires: self.expires,
            unknown: vec![],
        };
        store(view, keys::token(&self.id), &token);
        Ok(user)
    }
}

/// Finds an access key, to verify a signature or a secret with it. Doors ask before there is a
/// caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindAccessKey {
    pub id: String,
}

impl Verb for FindAccessKey {
    type Reply = Option<AccessKey>;
    const NAME: &'static str = "find_access_key";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        match load::<AccessKey>(view, &keys::access_key(&self.id))? {
            Some(key) if is_disabled(view, key.user)? => Ok(None),
            found => Ok(found),
        }
    }
}

/// Finds a token by its id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindToken {
    pub id: String,
}

impl Verb for FindToken {
    type Reply = Option<Token>;
    const NAME: &'static str = "find_token";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        match load::<Token>(view, &keys::token(&self.id))? {
            Some(token) if is_disabled(view, token.user)? => Ok(None),
            found => Ok(found),
        }
    }
}

/// Returns whether a user is disabled. Then its credentials count as missing, at every door.
pub fn is_disabled(view: &mut View<'_>, user: UserId) -> Result<bool, Stop> {
    Ok(load::<User>(view, &keys::user(user))?.is_some_and(|user| user.disabled))
}

/// Refuses the credentials of a user from now on, or accepts them again. They stay; logins end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisableUser {
    pub name: String,
    pub disabled: bool,
}

impl Verb for DisableUser {
    type Reply = ();
    const NAME: &'static str = "disable_user";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let id = find_user(view, &self.name)?;
        if id == UserId::ROOT && self.disabled {
            return Err(Error::Conflict("root cannot be disabled".into()).into());
        }
        let key = keys::user(id);
        let user: User = load_known(view, &key, "user by name")?;
        store(view, key, &User { disabled: self.disabled, ..user });
        if self.disabled {
            end_all(view, id)?;
        }
        Ok(())
    }
}

/// A user as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedUser {
    pub name: String,
    pub created: Timestamp,
    pub disabled: bool,
    pub access_keys: u64,
    pub tokens: u64,
}

/// Lists all users.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListUsers;

impl Verb for ListUsers {
    type Reply = Vec<ListedUser>;
    const NAME: &'static str = "list_users";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (mut keys_of, mut tokens_of) = (BTreeMap::new(), BTreeMap::new());
        for (_, row) in scan_sort(view, b'a')? {
            *keys_of.entry(AccessKey::decode(&row)?.user).or_default() += 1;
        }
        for (_, row) in scan_sort(view, b't')? {
            *tokens_of.entry(Token::decode(&row)?.user).or_default() += 1;
        }
        let mut users = Vec::new();
        for (key, row) in scan_sort(view, b'u')? {
            let User { name, created, disabled, .. } = User::decode(&row)?;
            let number = key.get(2..).and_then(|number| number.try_into().ok());
            let id = UserId(number.map_or(0, u64::from_be_bytes));
            let of = |map: &BTreeMap<UserId, u64>| map.get(&id).copied().unwrap_or_default();
            let (access_keys, tokens) = (of(&keys_of), of(&tokens_of));
            users.push(ListedUser { name, created, disabled, access_keys, tokens });
        }
        Ok(users)
    }
}

/// Removes an access key or a token. The last access key of root stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveCredential {
    pub id: String,
}

impl Verb for RemoveCredential {
    type Reply = ();
    const NAME: &'static str = "remove_credential";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        remove(view, &self.id)
    }
}

fn remove(view: &mut View<'_>, id: &str) -> Result<(), Stop> {
    let token = keys::token(id);
    if view.get(&token)?.is_some() {
        view.delete(token);
        return Ok(());
    }
    let key = keys::access_key(id);
    let Some(present) = load::<AccessKey>(view, &key)? else {
        return Err(Error::NotFound(format!("access key or token {id}")).into());
    };
    if present.user == UserId::ROOT && keys_of(view, UserId::ROOT)? == 1 {
        let what = "this is the last access key of root: make another one first, by `cairn key \
                    create --own`";
        return Err(Error::Denied(what.into()).into());
    }
    view.delete(key);
    Ok(())
}

/// Number of a user's access keys from which on the user cannot add further ones; keys that root
/// made for the user count too.
pub const OWN_KEYS: usize = 32;

/// Returns the user of a caller with an access key. A caller with a token, which may expire, must
/// not make anything that lasts longer.
fn own(view: &mut View<'_>, context: &Context) -> Result<UserId, Stop> {
    let credential = context.caller.origin().credential;
    let (Principal::User(user), Some(id)) = (context.caller.principal(), credential) else {
        let text = "access keys belong to users: send credentials";
        return Err(Error::Denied(text.into()).into());
    };
    match load::<AccessKey>(view, &keys::access_key(id.as_str()))? {
        Some(key) if key.user == user => Ok(user),
        _ => Err(Error::Denied("a user's own access keys need one of them".into()).into()),
    }
}

/// Adds an access key for its caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddOwnKey {
    pub id: String,
    /// Secret, sealed for `id`.
    pub sealed: Vec<u8>,
}

impl Verb for AddOwnKey {
    type Reply = ();
    const NAME: &'static str = "add_own_key";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        cairn_auth::check_access_key_id(&self.id)?;
        let user = own(view, context)?;
        let row = keys::access_key(&self.id);
        if view.get(&row)?.is_some() {
            return Err(Error::Exists(format!("access key {}", self.id)).into());
        }
        if keys_of(view, user)? >= OWN_KEYS {
            let text = format!("{OWN_KEYS} access keys of one user: end one of them first");
            return Err(Error::TooLarge(text).into());
        }
        let sealed = self.sealed.clone();
        store(view, row, &AccessKey { user, sealed, created: context.now, ..AccessKey::default() });
        Ok(())
    }
}

/// Removes an access key or a token of its caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveOwnCredential {
    pub id: String,
}

impl Verb for RemoveOwnCredential {
    type Reply = ();
    const NAME: &'static str = "remove_own_credential";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let user = own(view, context)?;
        let token = load::<Token>(view, &keys::token(&self.id))?.map(|token| token.user);
        let key = load::<AccessKey>(view, &keys::access_key(&self.id))?.map(|key| key.user);
        if token.or(key) != Some(user) {
            return Err(Error::NotFound(format!("access key or token {}", self.id)).into());
        }
        remove(view, &self.id)
    }
}

/// Lists the access keys and tokens of its caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListOwnCredentials;

impl Verb for ListOwnCredentials {
    type Reply = Vec<Credential>;
    const NAME: &'static str = "list_own_credentials";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let user = own(view, context)?;
        list(view, Some(user))
    }
}

fn keys_of(view: &mut View<'_>, user: UserId) -> Result<usize, Stop> {
    let mut count = 0;
    for (_, row) in scan_sort(view, b'a')? {
        count += usize::from(AccessKey::decode(&row)?.user == user);
    }
    Ok(count)
}

/// Returns all rows of a sort of `keys::credentials`.
pub fn scan_sort(view: &mut View<'_>, sort: u8) -> Result<Vec<(Bytes, Bytes)>, Stop> {
    let (start, end) = keys::credentials(sort);
    view.scan(&start, &end, limits::OP_ROWS)
}

/// An entry in a listing of credentials: never a secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credential {
    pub id: String,
    pub user: String,
    pub is_token: bool,
    pub created: Timestamp,
    /// End of validity of a token; 0 for never.
    pub expires: Timestamp,
}

/// Lists all access keys and tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListCredentials;

impl Verb for ListCredentials {
    type Reply = Vec<Credential>;
    const NAME: &'static str = "list_credentials";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        list(view, None)
    }
}

/// Lists the credentials of a user, or all.
fn list(view: &mut View<'_>, of: Option<UserId>) -> Result<Vec<Credential>, Stop> {
    let mut found = Vec::new();
    for (key, row) in scan_sort(view, b'a')? {
        let AccessKey { user, created, .. } = AccessKey::decode(&row)?;
        found.push((key, user, false, created, Timestamp(0)));
    }
    for (key, row) in scan_sort(view, b't')? {
        let Token { user, created, expires, .. } = Token::decode(&row)?;
        found.push((key, user, true, created, expires));
    }
    found.retain(|(_, user, ..)| of.is_none_or(|of| of == *user));
    let mut listed = Vec::with_capacity(found.len());
    for (key, user, is_token, created, expires) in found {
        let id = String::from_utf8_lossy(key.get(2..).unwrap_or_default()).into_owned();
        let user: User = load_known(view, &keys::user(user), "user of a credential")?;
        listed.push(Credential { id, user: user.name, is_token, created, expires });
    }
    Ok(listed)
}

/// Finds the name of a user, for owners in listings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserName {
    pub user: UserId,
}

impl Verb for UserName {
    type Reply = Option<String>;
    const NAME: &'static str = "user_name";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        Ok(load::<User>(view, &keys::user(self.user))?.map(|user| user.name))
    }
}
