//! Directories that change while they are listed: what is there all the time is listed once, and
//! nothing that is not there.

use std::collections::BTreeSet;

use cairn_base::rng::SeededRng;
use cairn_base::{Error, Ino};
use cairn_posix::{Descriptor, Part};

use crate::world::{Mount, World, run, run_seeds};

/// So many names that stay.
const STAY: usize = 60;

async fn part(mount: &Mount, ino: Ino, cookie: u64, limit: usize) -> Part {
    mount.posix.list_after(mount.who(), ino, cookie, limit, true).await.unwrap()
}

fn name_of(entry: &cairn_posix::Resumable) -> String {
    String::from_utf8(entry.name.to_vec()).unwrap()
}

/// Makes and removes names that do not stay.
async fn churn(mount: &Mount, ino: Ino, rng: &SeededRng, present: &mut BTreeSet<String>) {
    let name = format!("{:02}-passing", rng.below(STAY as u64 + 5));
    if present.remove(&name) {
        mount.unlink(ino, &name).await.unwrap();
    } else {
        mount.put(ino, &name, b"").await;
        present.insert(name);
    }
}

async fn filled(mount: &Mount) -> Ino {
    let ino = mount.mkdir(mount.top, "directory").await.unwrap();
    for number in 0..STAY {
        let name = format!("{number:02}-stays");
        match number % 7 {
            0 => drop(mount.mkdir(ino, &name).await.unwrap()),
            _ => drop(mount.put(ino, &name, b"").await),
        }
    }
    ino
}

fn check(listed: &[String], passing: &BTreeSet<String>) {
    let all: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(all.len(), listed.len(), "listed twice: {listed:?}");
    let stay = listed.iter().filter(|name| name.ends_with("-stays"));
    assert_eq!(stay.count(), STAY);
    for name in listed.iter().filter(|name| name.ends_with("-passing")) {
        assert!(passing.contains(name), "{name} was never there");
    }
}

/// By cookies, by sessions in turn, of which each changes the directory.
#[test]
fn cookies_go_on_in_any_session() {
    run_seeds(4, |seed| async move {
        let world = World::new(seed).await;
        let mounts = [world.mount().await, world.served().await];
        let ino = filled(&mounts[0]).await;
        let rng = SeededRng::new(seed);
        let (mut present, mut ever) = (BTreeSet::new(), BTreeSet::new());
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            let mount = &mounts[rng.below(2) as usize];
            let part = part(mount, ino, cookie, 1 + rng.below(7) as usize).await;
            let stays = |name: &String| name.ends_with("-stays");
            for entry in &part.entries {
                let name = name_of(entry);
                let is_dot = name == "." || name == "..";
                assert_eq!(entry.entry.is_none(), is_dot);
                assert!(is_dot || stays(&name) || present.contains(&name), "{name}");
                listed.extend((!is_dot).then_some(name));
            }
            let Some(last) = part.entries.last().filter(|_| !part.is_end) else { break };
            cookie = last.cookie;
            for _ in 0..3 {
                churn(&mounts[rng.below(2) as usize], ino, &rng, &mut present).await;
                ever.extend(present.iter().cloned());
            }
        }
        check(&listed, &ever);
    });
}

/// As `rm -r` goes: each name that was listed is removed before the listing goes on.
#[test]
fn a_cookie_outlives_its_name() {
    run(async {
        let world = World::new(5).await;
        let mount = world.mount().await;
        let ino = mount.mkdir(mount.top, "directory").await.unwrap();
        for number in 0..50 {
            mount.put(ino, &format!("file {number}"), b"").await;
        }
        let (mut cookie, mut removed) = (0, 0);
        loop {
            let part = part(&mount, ino, cookie, 7).await;
            for entry in &part.entries {
                cookie = entry.cookie;
                if ![".", ".."].contains(&name_of(entry).as_str()) {
                    mount.unlink(ino, &name_of(entry)).await.unwrap();
                    removed += 1;
                }
            }
            if part.is_end {
                break;
            }
        }
        assert_eq!(removed, 50);
        assert!(mount.names(ino, 100).await.is_empty());
    });
}

/// A process that never gave a cookie goes on after it, in a directory that is too large to be
/// sorted for each page, while its names go.
#[test]
fn any_process_goes_on_after_a_name_that_is_gone() {
    run(async {
        let world = World::new(6).await;
        let (mount, other) = (world.served().await, world.mount().await);
        let ino = mount.mkdir(mount.top, "directory").await.unwrap();
        let count = 1100;
        for number in 0..count {
            mount.put(ino, &format!("{}{number}", "x".repeat(200)), b"").await;
        }
        let (mut cookie, mut parts, mut listed) = (0, 0, BTreeSet::new());
        loop {
            let third = match parts % 40 {
                0 => Some(world.mount().await),
                _ => None,
            };
            let lists = third.as_ref().unwrap_or(if parts % 2 == 0 { &mount } else { &other });
            let part = part(lists, ino, cookie, 17).await;
            parts += 1;
            for entry in &part.entries {
                cookie = entry.cookie;
                if ![".", ".."].contains(&name_of(entry).as_str()) {
                    assert!(listed.insert(name_of(entry)));
                    other.unlink(ino, &name_of(entry)).await.unwrap();
                }
            }
            if part.is_end {
                break;
            }
        }
        assert_eq!(listed.len(), count);
        assert!(mount.names(ino, 100).await.is_empty());
    });
}

/// Of a directory that is open, by positions.
async fn listed(
    mount: &Mount,
    directory: Descriptor,
    from: u64,
    most: usize,
) -> Vec<(String, u64)> {
    let (mut names, mut at) = (Vec::new(), from);
    loop {
        let page = mount.posix.list(mount.who(), directory, at, true).await.unwrap();
        let Some(page) = page else { return names };
        for name in page.names() {
            let entry = mount.posix.list_entry(&page, name).unwrap();
            assert_eq!((entry.attributes.ino, entry.attributes.kind), (name.ino(), name.kind()));
            at = name.next;
            names.push((String::from_utf8(name.bytes().to_vec()).unwrap(), at));
            if names.len() == most {
                return names;
            }
        }
    }
}

#[test]
fn an_open_directory_goes_on_after_what_it_gave() {
    run_seeds(3, |seed| async move {
        let world = World::new(seed).await;
        let (mount, other) = (world.mount().await, world.mount().await);
        let ino = filled(&mount).await;
        let directory = mount.posix.open_directory(ino);
        let rng = SeededRng::new(seed);
        let (mut present, mut ever) = (BTreeSet::new(), BTreeSet::new());
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            let some = listed(&mount, directory, at, 1 + rng.below(9) as usize).await;
            let Some((_, next)) = some.last().cloned() else { break };
            all.extend(some.into_iter().map(|(name, _)| name));
            at = next;
            churn(&other, ino, &rng, &mut present).await;
            ever.extend(present.iter().cloned());
        }
        check(&all, &ever);
        // From the beginning, as it is now.
        let now = listed(&mount, directory, 0, usize::MAX).await;
        assert_eq!(now.len(), STAY + present.len());
        mount.posix.close_directory(directory);
    });
}

#[test]
fn dots_come_first() {
    run(async {
        let world = World::new(8).await;
        let mount = world.mount().await;
        let ino = mount.mkdir(mount.top, "directory").await.unwrap();
        let first = part(&mount, ino, 0, 1).await;
        assert_eq!((name_of(&first.entries[0]), first.entries[0].ino), (".".into(), ino));
        let second = part(&mount, ino, first.entries[0].cookie, 5).await;
        assert_eq!((name_of(&second.entries[0]), second.entries[0].ino), ("..".into(), mount.top));
        assert!(second.is_end);
        let (own, parent) =
            mount.posix.dots(mount.who(), mount.posix.open_directory(ino)).await.unwrap();
        assert_eq!((own.ino, parent), (ino, mount.top));
        let parent = async |ino| mount.posix.parent(mount.who(), ino).await;
        assert_eq!(parent(ino).await.unwrap(), mount.top);
        assert_eq!(parent(mount.top).await.unwrap(), Ino::ROOT);
        assert_eq!(parent(Ino::ROOT).await.unwrap(), Ino::ROOT);
        let file = mount.put(ino, "file", b"").await;
        assert!(matches!(parent(file).await, Err(Error::NotDirectory(_))));
    });
}
