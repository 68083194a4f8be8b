//! Sessions: nodes and mounts that use the metadata, and the locks that they hold.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{NodeId, Result, SessionId, UserId};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::list_locks::{ListLocks, LockedFile};
use cairn_fs::ops::sessions::ListSessions;
use cairn_fs::rows::{Lock, Session, SessionState, Space};
use maud::{Markup, html};

use super::admit;
use super::screen::{self, Parts, Screen};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::limits;
use crate::reply::Reply;
use crate::sheet::{self, Column, column};
use crate::words;

/// Rows of sessions that one operation reads, and the most that are read: ended sessions have rows
/// too.
const PAGE: usize = 1000;
const READ: usize = 20_000;

const SESSIONS: [Column; 4] = [
    column("Session", "name"),
    column("Of", ""),
    column("Since (UTC)", ""),
    column("Files with locks", "number"),
];
const LOCKS: [Column; 5] = [
    column("File", "name"),
    column("Kind", ""),
    column("Bytes", "number"),
    column("Session", ""),
    column("Process", "number"),
];

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
    let parts = parts(&inner).await?;
    let below = html! {
        p class="hint" {
            "Sessions also lease rows and directories: they answer from them without asking. Leases are in "
            "the memory of the master, and are recalled when somebody else changes what is leased. A "
            "request that waits for that says so, with the session, under "
            a href=(Screen::Requests.place()) { "Requests" } "."
        }
    };
    Ok(screen::page(of, Screen::Mounts, &parts, &below))
}

/// Returns the live sessions, and whether these are all.
async fn sessions(inner: &Inner) -> Result<(Vec<(SessionId, Session)>, bool)> {
    let (mut live, mut after) = (Vec::new(), None);
    for _ in 0..READ / PAGE {
        let verb = ListSessions { after, limit: PAGE };
        let page = inner.fs().read(&Caller::system(), verb).await?;
        after = page.last().map(|(session, _)| *session);
        let is_last = page.len() < PAGE;
        let found = page.into_iter().filter(|(_, row)| row.state == SessionState::Live);
        live.extend(found);
        if is_last {
            return Ok((live, true));
        }
    }
    Ok((live, false))
}

pub async fn parts(inner: &Arc<Inner>) -> Result<Parts> {
    let (mut live, is_whole) = sessions(inner).await?;
    let verb = ListLocks { after: None, limit: limits::SHOWN };
    let (files, more) = inner.fs().read(&Caller::system(), verb).await?;
    let count = live.len();
    live.truncate(limits::SHOWN);
    let mut names = HashMap::new();
    for user in live.iter().filter_map(|(_, row)| row.user()) {
        if let Entry::Vacant(vacant) = names.entry(user) {
            let name = inner.fs().read(&Caller::system(), UserName { user }).await?;
            vacant.insert(name.unwrap_or_else(|| user.to_string()));
        }
    }
    let shown = shown_sessions(&live, &files, &names);
    Ok(vec![
        (
            "sessions",
            html! {
                section class="group" aria-labelledby="sessions" {
                    h2 id="sessions" { "Sessions" }
                    (shown)
                    @if count > live.len() || !is_whole {
                        p class="hint" { "The first " (words::count(live.len() as u64)) " are shown." }
                    }
                }
            },
        ),
        ("locks", locks(&files, more.is_some())),
    ])
}

fn of_session(row: &Session, names: &HashMap<UserId, String>) -> String {
    match (row.user(), row.owner) {
        (Some(user), _) => {
            format!("a mount of {}", names.get(&user).map_or("a user", String::as_str))
        }
        (None, 0) => "the server itself".to_owned(),
        (None, node) => format!("node {}", NodeId(node)),
    }
}

fn shown_sessions(
    live: &[(SessionId, Session)],
    files: &[LockedFile],
    names: &HashMap<UserId, String>,
) -> Markup {
    let locked = |session: SessionId| {
        let has = |file: &&LockedFile| file.locks.iter().any(|lock| lock.session == session);
        files.iter().filter(has).count() as u64
    };
    let rows = html! {
        @for (session, row) in live {
            tr {
                td class="name" { code { (session) } }
                td { (of_session(row, names)) }
                td { (words::time(row.started)) }
                td class="number" { (words::count(locked(*session))) }
            }
        }
    };
    sheet::scrolling("Sessions", &SESSIONS, &rows)
}

fn kind(lock: &Lock) -> String {
    let space = match lock.space {
        Space::Both => "",
        Space::Fcntl => " (fcntl)",
        Space::Flock => " (flock)",
    };
    format!("{}{space}", if lock.exclusive { "exclusive" } else { "shared" })
}

fn bytes(lock: &Lock) -> String {
    match (lock.start, lock.last) {
        (0, u64::MAX) => "all".to_owned(),
        (start, u64::MAX) => format!("from {}", words::count(start)),
        (start, last) => format!("{} to {}", words::count(start), words::count(last)),
    }
}

fn locks(files: &[LockedFile], is_more: bool) -> Markup {
    let rows = html! {
        @for file in files {
            @for lock in &file.locks {
                tr {
                    td class="name" { (file.bucket) ", inode " (file.ino.0) }
                    td { (kind(lock)) }
                    td class="number" { (bytes(lock)) }
                    td { code { (lock.session) } }
                    td class="number" { (lock.pid) }
                }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="locks" {
            h2 id="locks" { "Locks" }
            @if files.is_empty() {
                p class="hint" { "No file is locked." }
            } @else {
                (sheet::scrolling("Locks on files", &LOCKS, &rows))
            }
            @if is_more { p class="hint" { "There are more." } }
            p class="hint" {
                "The number of a process is that of the machine of its mount. There, "
                code { "find MOUNTPOINT -inum NUMBER" } " names a file."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_ranges_are_said_in_words() {
        let names = HashMap::from([(UserId(7), "alice".to_owned())]);
        let said = |owner| of_session(&Session { owner, ..Session::default() }, &names);
        assert_eq!(said(0), "the server itself");
        assert_eq!(said(3), format!("node {}", NodeId(3)));
        assert_eq!(said(cairn_fs::rows::MOUNT | 7), "a mount of alice");
        let lock = |start, last| Lock {
            session: SessionId(1),
            owner: 1,
            pid: 5,
            exclusive: true,
            start,
            last,
            space: Space::Flock,
        };
        let ranges = [lock(0, u64::MAX), lock(4096, u64::MAX), lock(0, 99)];
        assert_eq!(ranges.map(|lock| bytes(&lock)), ["all", "from 4,096", "0 to 99"]);
        assert_eq!(kind(&lock(0, 1)), "exclusive (flock)");
    }
}
