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
            // It goes on after a name that stays: whoever remembers no other name finds it.
            let last = part.entries.iter().rfind(|entry| !name_of(entry).ends_with("passing"));
            let Some(last) = last.filter(|_| !part.is_end) else {
                if part.is_end {
                    break;
                }
                cookie = part.entries.last().unwrap().cookie;
                continue;
            };
            let back = part.entries.iter().rev().take_while(|e| e.cookie != last.cookie);
            listed.truncate(listed.len() - back.count());
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
                if entry.entry.is_some() {
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

#[test]
fn a_cookie_that_nobody_remembers_of_a_name_that_is_gone_is_said_to_be_none() {
    run(async {
        let world = World::new(6).await;
        let (mount, other) = (world.mount().await, world.mount().await);
        let ino = mount.mkdir(mount.top, "directory").await.unwrap();
        for name in ["a", "b", "c"] {
            mount.put(ino, name, b"").await;
        }
        let first = part(&mount, ino, 2, 1).await.entries.remove(0);
        assert_eq!(name_of(&first), "a");
        // Another process finds it while it is there.
        assert_eq!(name_of(&part(&other, ino, first.cookie, 1).await.entries[0]), "b");
        let third = world.mount().await;
        third.unlink(ino, "a").await.unwrap();
        let again = third.posix.list_after(third.who(), ino, first.cookie, 1, true).await;
        assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
        // The process that has given it knows it still.
        assert_eq!(name_of(&part(&mount, ino, first.cookie, 1).await.entries[0]), "b");
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
