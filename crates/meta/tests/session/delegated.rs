//! Directories that a session fills on its own: it is quick, and nobody can tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{BodyId, Ino, Result, Rng};
use cairn_meta::ops::body::Data;
use cairn_meta::ops::buckets::UpdateBucket;
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::read_only::SetReadOnly;
use cairn_meta::ops::readdir::Readdir;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::Write;
use cairn_meta::rows::{Content, Inode};
use cairn_meta::session::client::Client;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::net::{LEASE, Net, bucket, caller, find_in, make_in};

async fn mkdir(client: &Client, parent: Ino, name: &str) -> Result<Ino> {
    let verb = Mkdir { parent, name: name.as_bytes().to_vec(), mode: 0o755, umask: 0 };
    client.run(&caller(), verb).await.map(|(ino, _)| ino)
}

async fn write(client: &Client, ino: Ino, text: &str) -> Result<Inode> {
    let session = client.session();
    let spare = BodyId { session, counter: ino.0 };
    let data = Data::Inline(Bytes::copy_from_slice(text.as_bytes()));
    client.run(&caller(), Write { ino, session, opened: true, spare, offset: 0, data }).await
}

async fn text(client: &Client, ino: Ino) -> Result<String> {
    let (inode, _) = client.read(&caller(), Getattr { ino }).await?;
    Ok(match inode.content {
        Content::Inline(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Content::Empty => String::new(),
        Content::Body(_) => panic!("a body"),
    })
}

async fn names(client: &Client, directory: Ino) -> Result<Vec<String>> {
    let verb = Readdir { ino: directory, after: None, limit: 1000, attributes: false };
    let page = client.read(&caller(), verb).await?;
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    Ok(page.entries.iter().map(|entry| name(&entry.name)).collect())
}

async fn unlink(client: &Client, parent: Ino, name: &str) -> Result<()> {
    let verb = Unlink { parent, name: name.as_bytes().to_vec() };
    client.run(&caller(), verb).await.map(drop)
}

async fn rename(client: &Client, parent: Ino, from: &str, to: &str) -> Result<()> {
    let (source_name, target_name) = (from.as_bytes().to_vec(), to.as_bytes().to_vec());
    let (source_parent, target_parent, mode) = (parent, parent, RenameMode::Replace);
    let verb = Rename { source_parent, source_name, target_parent, target_name, mode };
    client.run(&caller(), verb).await
}

fn limited(objects: u64) -> UpdateBucket {
    let name = "bucket".into();
    UpdateBucket { name, quota_objects: Some(objects), ..UpdateBucket::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filled_with_few_calls_and_seen_by_everybody() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&filler).await.unwrap();
    bucket(&other).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    let first = make_in(&filler, directory, 0).await.unwrap();
    let calls = filler.stats().calls;
    let mut inos = vec![first];
    for number in 1..300 {
        inos.push(make_in(&filler, directory, number).await.unwrap());
        write(&filler, inos[number as usize], &format!("text {number}")).await.unwrap();
        assert_eq!(find_in(&filler, directory, number).await.unwrap(), Some(inos[number as usize]));
        let made = text(&filler, inos[number as usize]).await.unwrap();
        assert_eq!(made, format!("text {number}"));
    }
    assert!(filler.stats().calls < calls + 200, "{} calls", filler.stats().calls - calls);
    for number in 1..300 {
        let found = find_in(&other, directory, number).await.unwrap().unwrap();
        assert_eq!(found, inos[number as usize]);
        assert_eq!(text(&other, found).await.unwrap(), format!("text {number}"));
    }
    // Both go on, and nobody has to look for anything.
    for number in 300..400 {
        let maker = if number % 2 == 0 { &filler } else { &other };
        let ino = make_in(maker, directory, number).await.unwrap();
        for client in [&filler, &other] {
            assert_eq!(find_in(client, directory, number).await.unwrap(), Some(ino));
        }
    }
    filler.flush().await.unwrap();
    assert_eq!(filler.lost(), 0);
    assert_eq!(names(&filler, directory).await.unwrap().len(), 400);
    assert_eq!(names(&other, directory).await.unwrap().len(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_others_do_they_do_after() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.hasty_client(2).await;
    let root = bucket(&filler).await.unwrap();
    bucket(&other).await.unwrap();
    let fill = async |name: &str| {
        let directory = mkdir(&filler, root, name).await.unwrap();
        for number in 0..50 {
            make_in(&filler, directory, number).await.unwrap();
        }
        directory
    };
    let directory = fill("listed").await;
    assert_eq!(names(&other, directory).await.unwrap().len(), 50);
    let directory = fill("counted").await;
    let (_, tally) = other.read(&caller(), Getattr { ino: directory }).await.unwrap();
    assert_eq!(tally.entries, 50);
    let directory = fill("removed").await;
    let gone = Rmdir { parent: root, name: b"removed".to_vec() };
    assert_eq!(other.run(&caller(), gone).await.unwrap_err().kind(), "not_empty");
    unlink(&other, directory, "49").await.unwrap();
    assert_eq!(find_in(&filler, directory, 49).await.unwrap(), None);
    let directory = fill("renamed").await;
    rename(&other, root, "renamed", "other").await.unwrap();
    make_in(&filler, directory, 50).await.unwrap();
    assert_eq!(names(&other, directory).await.unwrap().len(), 51);
    let directory = fill("changed").await;
    let mode = Some(0o500);
    let nothing =
        Setattr { ino: directory, mode: None, uid: None, gid: None, atime: None, mtime: None };
    other.run(&caller(), Setattr { mode, ..nothing }).await.unwrap();
    assert_eq!(names(&other, directory).await.unwrap().len(), 50);
    let directory = fill("limited").await;
    let quota = limited(1000);
    other.run(&caller(), quota).await.unwrap();
    make_in(&filler, directory, 50).await.unwrap();
    let directory = fill("small").await;
    let quota = limited(1);
    other.run(&caller(), quota).await.unwrap();
    assert_eq!(make_in(&filler, directory, 51).await.unwrap_err().kind(), "full");
    filler.flush().await.unwrap();
    assert_eq!(filler.lost() + other.lost(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_session_does_otherwise_comes_after_as_well() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&filler).await.unwrap();
    bucket(&other).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    for round in 0..20 {
        for number in 0..20 {
            let ino = make_in(&filler, directory, round * 100 + number).await.unwrap();
            write(&filler, ino, "first").await.unwrap();
            if number == 7 {
                let name = |number: u64| format!("{}", round * 100 + number);
                rename(&filler, directory, &name(7), &name(50)).await.unwrap();
                assert_eq!(find_in(&filler, directory, round * 100 + 50).await.unwrap(), Some(ino));
                write(&filler, ino, "again").await.unwrap();
                unlink(&filler, directory, &name(3)).await.unwrap();
                // The name of one that is there, that was moved away, and that was removed.
                make_in(&filler, directory, round * 100 + 5).await.unwrap();
                make_in(&filler, directory, round * 100 + 7).await.unwrap();
                make_in(&filler, directory, round * 100 + 3).await.unwrap();
            }
        }
    }
    assert_eq!(names(&filler, directory).await.unwrap().len(), 20 * 21);
    assert_eq!(names(&other, directory).await.unwrap().len(), 20 * 21);
    for round in 0..20 {
        let ino = find_in(&other, directory, round * 100 + 50).await.unwrap().unwrap();
        assert_eq!(text(&other, ino).await.unwrap(), "again");
    }
    filler.flush().await.unwrap();
    assert_eq!(filler.lost(), 0);
}

/// Makes files, from 1000 on, until one needs no call.
pub async fn until_delegated(client: &Client, directory: Ino) {
    for number in 1000..2000 {
        let calls = client.stats().calls;
        make_in(client, directory, number).await.unwrap();
        if client.stats().calls == calls {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("the directory is not delegated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_lapsed_hears_what_nobody_else_heard() {
    let net = Net::new().await;
    let (filler, cut) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&filler).await.unwrap();
    bucket(&other).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    until_delegated(&filler, directory).await;
    filler.flush().await.unwrap();
    cut.silent.store(true, Ordering::SeqCst);
    for number in 1..10 {
        make_in(&filler, directory, number).await.unwrap();
    }
    // Others wait no longer than for any session that is gone.
    let found = timeout(LEASE * 100, find_in(&other, directory, 5)).await.unwrap();
    assert_eq!(found.unwrap(), None);
    cut.silent.store(false, Ordering::SeqCst);
    filler.flush().await.unwrap();
    assert_eq!(filler.lost(), 9);
    assert_eq!(find_in(&filler, directory, 5).await.unwrap(), None);
    make_in(&filler, directory, 5).await.unwrap();
    assert!(find_in(&other, directory, 5).await.unwrap().is_some());
}

/// Facts that clients were answered to be done.
#[derive(Default)]
struct Told {
    /// Files by directory and number, and their contents.
    files: BTreeMap<(Ino, u64), (Ino, String)>,
}

/// Three make directories and fill them, look for each other's files, remove and rename some, while
/// answers are lost and masters are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_can_tell() {
    const DIRECTORIES: u64 = 24;
    let net = Net::new().await;
    let rng = SeededRng::new(11);
    let (first, cut) = net.hasty_client(1).await;
    let (second, _) = net.hasty_client(2).await;
    let (third, _) = net.client(3).await;
    cut.lose_one_in.store(60, Ordering::SeqCst);
    let clients = [first, second, third];
    let told: Arc<Mutex<Told>> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let root = bucket(&clients[0]).await.unwrap();
    let (mut makers, mut seekers) = (Vec::new(), Vec::new());
    for (at, client) in clients.iter().enumerate() {
        makers.push(tokio::spawn(fill(client.clone(), root, at as u64, told.clone(), DIRECTORIES)));
        let (client, told, ended) = (client.clone(), told.clone(), ended.clone());
        let rng = SeededRng::new(100 + at as u64);
        seekers.push(tokio::spawn(async move {
            while !ended.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(1 + rng.next_u64() % 8)).await;
                let some = {
                    let told = told.lock();
                    let skip = told.files.len().saturating_sub(1 + rng.next_u64() as usize % 30);
                    let one = told.files.iter().nth(skip);
                    one.map(|(at, what)| (*at, what.clone()))
                };
                let Some(((directory, number), (ino, holds))) = some else { continue };
                let found = find_in(&client, directory, number).await?;
                let read = text(&client, ino).await?;
                if told.lock().files.contains_key(&(directory, number)) {
                    assert_eq!(found, Some(ino), "{number} in {directory}, seen by client {at}");
                    assert_eq!(read, holds, "{number} in {directory}, seen by client {at}");
                }
            }
            Ok::<(), cairn_base::Error>(())
        }));
    }
    net.disturb(&rng).await;
    for maker in makers {
        maker.await.unwrap().unwrap();
    }
    ended.store(true, Ordering::SeqCst);
    for seeker in seekers {
        seeker.await.unwrap().unwrap();
    }
    let told = std::mem::take(&mut told.lock().files);
    assert!(told.len() > 1000, "{}", told.len());
    for client in &clients {
        client.flush().await.unwrap();
        assert_eq!(client.lost(), 0);
        for ((directory, number), (ino, holds)) in &told {
            assert_eq!(find_in(client, *directory, *number).await.unwrap(), Some(*ino));
            assert_eq!(text(client, *ino).await.unwrap(), *holds);
        }
    }
}

/// Makes directories with files, and tells of each when it is done.
async fn fill(
    client: Client,
    root: Ino,
    at: u64,
    told: Arc<Mutex<Told>>,
    directories: u64,
) -> Result<()> {
    let rng = SeededRng::new(at);
    for number in 0..directories {
        let name = format!("{at} {number}");
        let directory = mkdir(&client, root, &name).await?;
        for number in 0..20 + rng.next_u64() % 30 {
            let ino = make_in(&client, directory, number).await?;
            let holds = format!("{at} {number}");
            write(&client, ino, &holds).await?;
            told.lock().files.insert((directory, number), (ino, holds));
            if rng.next_u64().is_multiple_of(8) {
                sleep(Duration::from_micros(rng.next_u64() % 3000)).await;
            }
            if rng.next_u64().is_multiple_of(16) {
                let gone = told.lock().files.remove(&(directory, number));
                assert!(gone.is_some());
                rename(&client, directory, &number.to_string(), &(1000 + number).to_string())
                    .await?;
                let holds = gone.unwrap().1;
                told.lock().files.insert((directory, 1000 + number), (ino, holds));
            }
        }
    }
    client.flush().await
}

/// The next master knows nothing of what the session fills, nor which files it has made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_posted_and_is_not_durable_is_run_by_the_next_master() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&filler).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    until_delegated(&filler, directory).await;
    let mut inos = Vec::new();
    for number in 2000..2010 {
        inos.push(make_in(&filler, directory, number).await.unwrap());
    }
    filler.flush().await.unwrap();
    net.disk().hold();
    inos.push(make_in(&filler, directory, 2010).await.unwrap());
    for ino in &inos {
        write(&filler, *ino, "text").await.unwrap();
    }
    net.kill_master().await;
    filler.flush().await.unwrap();
    assert_eq!(filler.lost(), 0);
    for (number, ino) in (2000..).zip(inos) {
        assert_eq!(find_in(&other, directory, number).await.unwrap(), Some(ino));
        assert_eq!(text(&other, ino).await.unwrap(), "text");
    }
}

/// The stall is as long as three leases of the disk: no session is to blame, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_stalls_ends_no_session() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.hasty_client(2).await;
    let root = bucket(&filler).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    make_in(&filler, directory, 0).await.unwrap();
    filler.flush().await.unwrap();
    let sessions = [filler.session(), other.session()];
    net.disk().hold();
    // More than the disk was asked for when it stalled, in a directory that another one wants.
    for number in 1..50 {
        make_in(&filler, directory, number).await.unwrap();
    }
    let look = tokio::spawn({
        let other = other.clone();
        async move { find_in(&other, directory, 49).await }
    });
    sleep(LEASE * 3).await;
    net.disk().go_on();
    assert!(look.await.unwrap().unwrap().is_some());
    for client in [&filler, &other] {
        client.flush().await.unwrap();
        assert_eq!(client.lost(), 0);
    }
    assert_eq!([filler.session(), other.session()], sessions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_before_a_change_here_is_not_taken_for_what_is() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let root = bucket(&filler).await.unwrap();
    let directory = mkdir(&filler, root, "directory").await.unwrap();
    make_in(&filler, directory, 0).await.unwrap();
    let ino = make_in(&filler, directory, 1).await.unwrap();
    let (mut before, mut compared) = (None, 0);
    for number in 0..100 {
        write(&filler, ino, &format!("text {number}")).await.unwrap();
        let Some(read) = filler.read_memo(&caller(), &Getattr { ino }) else { continue };
        let now = read.unwrap();
        assert!(filler.is_current(&now));
        assert_eq!(now.reply.0.content, Content::Inline(format!("text {number}").into()));
        if let Some(before) = before.replace(now) {
            assert!(!filler.is_current(&before), "{number}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
    filler.flush().await.unwrap();
    assert_eq!(filler.lost(), 0);
}

/// A session that fills a directory on its own stops before the answer to whoever wants the bucket,
/// or the store, to stay as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_once_the_bucket_or_the_store_is_read_only() {
    let net = Net::new().await;
    let (filler, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let (filler, root) = (Arc::new(filler), bucket(&other).await.unwrap());
    bucket(&filler).await.unwrap();
    for (round, of) in [Some("bucket".to_owned()), None].into_iter().enumerate() {
        let directory = mkdir(&filler, root, &format!("round {round}")).await.unwrap();
        let made = Arc::new(AtomicU64::new(0));
        let filling = tokio::spawn({
            let (filler, made) = (Arc::clone(&filler), Arc::clone(&made));
            async move {
                loop {
                    let number = made.load(Ordering::SeqCst);
                    match make_in(&filler, directory, number).await {
                        Ok(_) => made.fetch_add(1, Ordering::SeqCst),
                        Err(error) => return error,
                    };
                }
            }
        });
        while made.load(Ordering::SeqCst) < 50 {
            tokio::task::yield_now().await;
        }
        let set = |read_only| SetReadOnly { bucket: of.clone(), read_only };
        other.run(&caller(), set(true)).await.unwrap();
        let count =
            async || other.read(&caller(), Getattr { ino: directory }).await.unwrap().1.entries;
        let then = count().await;
        assert_eq!(filling.await.unwrap().kind(), "read_only");
        assert_eq!((count().await, made.load(Ordering::SeqCst)), (then, then));
        filler.flush().await.unwrap();
        assert_eq!(filler.lost(), 0);
        other.run(&caller(), set(false)).await.unwrap();
        make_in(&filler, directory, then).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_becomes_read_only_however_fast_directories_are_made() {
    let net = Net::new().await;
    let (other, _) = net.client(9).await;
    let root = bucket(&other).await.unwrap();
    for of in [Some("bucket".to_owned()), None] {
        let is_over = Arc::new(AtomicBool::new(false));
        let made = Arc::new(AtomicU64::new(0));
        let mut makers = Vec::new();
        for client in 1..=4 {
            let (filler, _) = net.hasty_client(client + 4 * u64::from(of.is_none())).await;
            bucket(&filler).await.unwrap();
            let (is_over, made) = (Arc::clone(&is_over), Arc::clone(&made));
            let name = format!("{client} {}", of.is_none());
            makers.push(tokio::spawn(async move {
                // The store may be read-only before a slow maker begins.
                let own = mkdir(&filler, root, &name).await?;
                for number in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        return Ok(());
                    }
                    // Each is held by its maker once it has a file.
                    let directory = mkdir(&filler, own, &format!("{number}")).await?;
                    make_in(&filler, directory, 0).await?;
                    made.fetch_add(1, Ordering::SeqCst);
                }
                Ok::<_, cairn_base::Error>(())
            }));
        }
        while made.load(Ordering::SeqCst) < 40 {
            tokio::task::yield_now().await;
        }
        let set = |read_only| SetReadOnly { bucket: of.clone(), read_only };
        let caller = caller();
        let setting = timeout(Duration::from_secs(60), other.run(&caller, set(true))).await;
        is_over.store(true, Ordering::SeqCst);
        setting.expect("it was put off again and again").unwrap();
        for maker in makers {
            let ended = maker.await.unwrap();
            assert!(ended.is_ok() || ended.unwrap_err().kind() == "read_only");
        }
        other.run(&caller, set(false)).await.unwrap();
    }
}
