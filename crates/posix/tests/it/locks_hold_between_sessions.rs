//! Advisory locks: of owners, in one session and in several, beside a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::Ino;
use cairn_base::rng::SeededRng;
use cairn_posix::{Descriptor, Intent, LockKind, LockOutcome, LockRequest, LockSpace, Patience};

use crate::world::{Mount, World, run, run_seeds};

/// Bytes that are locked one by one.
const BYTES: u64 = 12;
const STEPS: usize = 150;

fn wanted(owner: u64, start: u64, last: u64, kind: LockKind) -> LockRequest {
    LockRequest { owner, pid: owner as u32, start, last, kind, space: LockSpace::Fcntl }
}

/// Which owner has what of each byte; owners are numbered over all sessions.
type Model = Vec<Vec<(u64, LockKind)>>;

struct Holder {
    owner: u64,
    mount: usize,
    file: Descriptor,
}

async fn random(seed: u64) {
    let world = World::new(seed).await;
    let mounts = [world.mount().await, world.mount().await];
    let ino = mounts[0].put(mounts[0].top, "file", b"bytes").await;
    let mut holders = Vec::new();
    for owner in 0..4 {
        let mount = owner as usize % 2;
        let file = mounts[mount].open(ino, Intent::BOTH).await.unwrap();
        holders.push(Holder { owner, mount, file });
    }
    let rng = SeededRng::new(seed);
    let mut model: Model = vec![Vec::new(); BYTES as usize];
    for step in 0..STEPS {
        let holder = &holders[rng.below(4) as usize];
        let (one, other) = (rng.below(BYTES), rng.below(BYTES));
        let range = (one.min(other), one.max(other));
        let kind = [LockKind::Read, LockKind::Write, LockKind::Unlock][rng.below(3) as usize];
        let posix = &mounts[holder.mount].posix;
        let bytes = &mut model[range.0 as usize..=range.1 as usize];
        let asked = wanted(holder.owner, range.0, range.1, kind);
        let is_free = bytes.iter().flatten().all(|(owner, held)| {
            let excludes = kind == LockKind::Write || *held == LockKind::Write;
            *owner == holder.owner || !excludes
        });
        if kind != LockKind::Unlock {
            let other = posix.test_lock(holder.file, asked).await.unwrap();
            assert_eq!(other.is_none(), is_free, "step {step}: {other:?}");
        }
        let done = posix.set_lock(holder.file, asked, Patience::No).await.unwrap();
        let expected =
            if is_free || kind == LockKind::Unlock { LockOutcome::Done } else { LockOutcome::Busy };
        assert_eq!(done, expected, "step {step}: {asked:?}");
        if done == LockOutcome::Done {
            for byte in bytes {
                byte.retain(|(owner, _)| *owner != holder.owner);
                if kind != LockKind::Unlock {
                    byte.push((holder.owner, kind));
                }
            }
        }
    }
    // A holder that closes the file has no lock any more.
    for holder in holders.iter().filter(|holder| holder.mount == 1) {
        mounts[1].posix.flush(holder.file, holder.owner).await.unwrap();
        model.iter_mut().for_each(|byte| byte.retain(|(owner, _)| *owner != holder.owner));
    }
    let stranger = mounts[1].open(ino, Intent::BOTH).await.unwrap();
    for (at, byte) in model.iter().enumerate() {
        let at = at as u64;
        let asked = wanted(99, at, at, LockKind::Write);
        let found = mounts[1].posix.test_lock(stranger, asked).await.unwrap();
        assert_eq!(found.is_some(), !byte.is_empty(), "byte {at}: {byte:?}");
        if let Some(found) = found {
            assert_eq!(found.pid, 0, "a process of another machine");
        }
    }
}

#[test]
fn locks_are_as_in_a_model() {
    run_seeds(4, random);
}

/// The last byte that a lock can have.
const LAST: u64 = i64::MAX as u64;

async fn lock(mount: &Mount, file: Descriptor, owner: u64, kind: LockKind) -> LockOutcome {
    let asked = wanted(owner, 0, LAST, kind);
    mount.posix.set_lock(file, asked, Patience::No).await.unwrap()
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free() {
    run(async {
        let world = World::new(5).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let ino = one.put(one.top, "file", b"").await;
        let (here, there) = (
            one.open(ino, Intent::BOTH).await.unwrap(),
            other.open(ino, Intent::BOTH).await.unwrap(),
        );
        assert_eq!(lock(&one, here, 1, LockKind::Write).await, LockOutcome::Done);
        assert_eq!(lock(&other, there, 2, LockKind::Read).await, LockOutcome::Busy);
        let waits = Patience::Until(Box::new(|| false));
        let asked = wanted(2, 0, LAST, LockKind::Read);
        let waiting = tokio::spawn(other.posix.set_lock(there, asked, waits).into_future());
        // Bytes that were written under the lock are seen by the next holder.
        one.write(here, 0, b"under the lock").await;
        assert_eq!(lock(&one, here, 1, LockKind::Unlock).await, LockOutcome::Done);
        assert_eq!(waiting.await.unwrap().unwrap(), LockOutcome::Done);
        assert_eq!(other.read(there, 0, 100).await.unwrap(), "under the lock");
    });
}

#[test]
fn who_gives_up_waits_no_more() {
    run(async {
        let world = World::new(6).await;
        let mount = world.mount().await;
        let ino = mount.put(mount.top, "file", b"").await;
        let file = mount.open(ino, Intent::BOTH).await.unwrap();
        assert_eq!(lock(&mount, file, 1, LockKind::Write).await, LockOutcome::Done);
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, asked) = (Arc::clone(&is_over), wanted(2, 0, LAST, LockKind::Write));
        let waits = Patience::Until(Box::new(move || told.load(Ordering::SeqCst)));
        let waiting = tokio::spawn(mount.posix.set_lock(file, asked, waits).into_future());
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(waiting.await.unwrap().unwrap(), LockOutcome::GivenUp);
    });
}

/// The lock of a process goes when it closes any descriptor; that of an open file with the last.
#[test]
fn locks_go_with_the_file() {
    run(async {
        let world = World::new(7).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let ino: Ino = one.put(one.top, "file", b"").await;
        let file = one.open(ino, Intent::BOTH).await.unwrap();
        let there = other.open(ino, Intent::BOTH).await.unwrap();
        assert_eq!(lock(&one, file, 1, LockKind::Write).await, LockOutcome::Done);
        one.posix.flush(file, 8).await.unwrap();
        assert_eq!(
            lock(&other, there, 2, LockKind::Write).await,
            LockOutcome::Busy,
            "not its owner"
        );
        one.posix.release(file).await;
        assert_eq!(lock(&other, there, 2, LockKind::Write).await, LockOutcome::Done);
    });
}
