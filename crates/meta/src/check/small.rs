//! Sessions and their last replies, users, access keys, tokens and counters.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use cairn_base::{BucketId, Result, SessionId, UserId};

use super::report::About;
use super::tables::{Checker, number, only_number};
use crate::keys;
use crate::rows::{
    AccessKey, Calls, Export, Login, ReservedInos, Resumable, Row, Session, SessionState,
    ShareLink, Slot, StoreIdentity, Token, User, decode_number,
};

pub fn check(checker: &mut Checker<'_>) -> Result<()> {
    check_sessions(checker)?;
    checker.each_row(b'a', |key| keys::is_of_calls(key).then_some(()), |_, (), _: Calls| {})?;
    let highest = check_users(checker)?;
    check_counters(checker, highest)
}

fn check_sessions(checker: &mut Checker<'_>) -> Result<()> {
    let mut sessions: HashMap<SessionId, SessionState> = HashMap::new();
    checker.each_row(
        b's',
        |key| only_number(key).map(SessionId),
        |_, session, row: Session| {
            sessions.insert(session, row.state);
        },
    )?;
    checker.each_row(
        b'q',
        |key| slot(key),
        |checker, (session, slot), _: Slot| {
            let what = match sessions.get(&session) {
                Some(SessionState::Live) => return,
                Some(_) => "which has ended",
                None => "which does not exist",
            };
            let what = format!("slot {slot} is of session {session}, {what}");
            checker.report.add(About::Store, what);
        },
    )?;
    checker.each_row(
        b'j',
        |key| only_number(key).map(SessionId),
        |checker, session, _: ReservedInos| {
            if sessions.get(&session) != Some(&SessionState::Live) {
                let what = format!("numbers are reserved for session {session}, which is not live");
                checker.report.add(About::Store, what);
            }
        },
    )
}

/// Parses a key of a slot: the session and the slot.
fn slot(key: &[u8]) -> Option<(SessionId, u16)> {
    let slot = key.get(9..)?.try_into().ok().map(u16::from_be_bytes)?;
    let session = SessionId(number(key)?);
    (slot < keys::SLOTS).then_some((session, slot))
}

/// A row below `k`.
enum Line {
    User(UserId, String),
    Name(String, UserId),
    /// An access key, token, login or share link, with its user.
    Credential(UserId),
    Export(BucketId, Export),
}

/// The highest numbers in use.
#[derive(Default)]
struct Highest {
    user: u64,
    export: u64,
}

fn check_users(checker: &mut Checker<'_>) -> Result<Highest> {
    let mut names: HashMap<String, UserId> = HashMap::new();
    let mut users: HashMap<UserId, String> = HashMap::new();
    let mut holders: HashSet<UserId> = HashSet::new();
    let mut highest = Highest::default();
    // The sort is in the key and decides about the row, so both are passed on unchanged.
    let keep = |row: &Bytes| Ok(row.clone());
    checker.each(
        b'k',
        |key| Some(key.clone()),
        keep,
        |checker, key, row| match parse(&key, &row) {
            Ok(Some(Line::User(user, name))) => drop(users.insert(user, name)),
            Ok(Some(Line::Name(name, user))) => drop(names.insert(name, user)),
            Ok(Some(Line::Credential(user))) => drop(holders.insert(user)),
            Ok(Some(Line::Export(bucket, export))) => {
                highest.export = highest.export.max(export.number);
                holders.insert(export.user);
                if !checker.facts.buckets.contains_key(&bucket) {
                    checker.report.add(About::Bucket(bucket), "is exported, and does not exist");
                }
            }
            Ok(None) => checker.report.add(About::Row(key), "a key of an unknown form"),
            Err(error) => checker.report.add(About::Row(key), error.to_string()),
        },
    )?;
    for (user, name) in &users {
        if names.get(name) != Some(user) {
            let what = format!("user {user} is called {name:?}, but not found by that name");
            checker.report.add(About::Store, what);
        }
    }
    for (name, user) in names.iter().filter(|(_, user)| !users.contains_key(user)) {
        let what = format!("the user name {name:?} leads to user {user}, who does not exist");
        checker.report.add(About::Store, what);
    }
    for user in holders.iter().filter(|user| !users.contains_key(user)) {
        let what = format!(
            "a credential, login, export, share link or upload is of user {user}, who does not exist"
        );
        checker.report.add(About::Store, what);
    }
    highest.user = users.keys().map(|user| user.0).max().unwrap_or(0);
    Ok(highest)
}

fn parse(key: &Bytes, row: &Bytes) -> Result<Option<Line>> {
    let Some((head, rest)) = key.split_at_checked(2) else { return Ok(None) };
    Ok(match head {
        b"ka" => Some(Line::Credential(AccessKey::decode(row)?.user)),
        b"kt" => Some(Line::Credential(Token::decode(row)?.user)),
        b"kc" => {
            Login::decode(row)?;
            keys::user_of_login(key).map(Line::Credential)
        }
        b"ke" => {
            let bucket = rest.try_into().ok().map(u64::from_be_bytes);
            let export = Export::decode(row)?;
            bucket.map(|bucket| Line::Export(BucketId(bucket), export))
        }
        b"kl" => {
            ShareLink::decode(row)?;
            keys::share_link_parts(key).map(|(user, _)| Line::Credential(user))
        }
        b"kr" => {
            Resumable::decode(row)?;
            keys::resumable_parts(key).map(|(user, _)| Line::Credential(user))
        }
        b"kn" => {
            let name = String::from_utf8_lossy(rest).into_owned();
            Some(Line::Name(name, UserId(decode_number(row)?)))
        }
        b"ku" => {
            let user = User::decode(row)?;
            let id = rest.try_into().ok().map(u64::from_be_bytes);
            id.map(|id| Line::User(UserId(id), user.name))
        }
        _ => None,
    })
}

fn check_counters(checker: &mut Checker<'_>, in_use: Highest) -> Result<()> {
    let identity = checker.snapshot.get(&[keys::cluster()])?.pop().flatten();
    match identity.as_ref().map(StoreIdentity::decode).transpose() {
        Ok(Some(_)) => {}
        Ok(None) => checker.report.add(About::Store, "has no cluster id"),
        Err(error) => checker.report.add(About::Store, error.to_string()),
    }
    let names = ["next_ino", "next_user", "next_export"];
    let rows = checker.snapshot.get(&names.map(keys::config))?;
    // The highest number in use, and that of a store in which nothing was ever made.
    let Highest { user, export } = in_use;
    let highest = [(checker.facts.highest_ino, 1), (user, 0), (export, 0)];
    for ((name, row), (highest, new)) in names.iter().zip(rows).zip(highest) {
        let what = match row.as_ref().map(decode_number).transpose() {
            Err(error) => error.to_string(),
            Ok(Some(number)) if number <= highest => {
                format!("{name} is {number}, yet {highest} is in use")
            }
            Ok(None) if highest > new => format!("has no {name}"),
            _ => continue,
        };
        checker.report.add(About::Store, what);
    }
    Ok(())
}
