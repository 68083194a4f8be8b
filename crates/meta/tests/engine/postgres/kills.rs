//! The database is killed while a master commits. Nothing acknowledged is lost, nothing is done
//! twice, and what is said not to be done is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::{Error, Ino, UserId};
use cairn_meta::engine::Engine;
use cairn_meta::ops::{buckets::CreateBucket, create::Create, lookup::Lookup, sessions::Format};
use cairn_meta::rows::BucketKind;
use cairn_meta::{Master, check, master};

use super::server::Server;

const TASKS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Done,
    NotDone,
}

#[test]
fn killed_while_a_master_commits() {
    let Some(server) = Server::start(&[]) else { return };
    for (round, inline_us) in [0, 1_000_000].into_iter().enumerate() {
        let engine = Arc::new(server.open_patiently(&format!("round_{round}")).unwrap());
        let config = master::Config { inline_us, cache_bytes: 20_000, ..Default::default() };
        let master = Master::start(engine.clone(), Arc::new(RealClock::default()), config).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let told = runtime.block_on(drive(&master, &server));
        assert_eq!(master.failed(), None);
        let done = told.values().filter(|told| **told == Told::Done).count();
        println!("{done} of {} done; {:?}", told.len(), master.stats());
        assert!(done > 100);
        runtime.block_on(verify(&master, told));
        master.stop();
        let snapshot = engine.snapshot().unwrap();
        let report = check::check(&*snapshot, &mut |_| {}).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

fn caller() -> Caller {
    Caller::verified(UserId(7))
}

async fn parent(master: &Master) -> Ino {
    master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
    let (kind, visibility) = (BucketKind::Posix, Visibility::Private);
    let bucket = CreateBucket { name: "bucket".into(), kind, visibility };
    master.run(&caller(), bucket).await.unwrap().ino()
}

async fn drive(master: &Master, server: &Server) -> BTreeMap<Vec<u8>, Told> {
    let parent = parent(master).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(create(master.clone(), parent, task, Arc::clone(&stop))))
        .collect();
    tokio::task::block_in_place(|| {
        for pause in [150, 20, 250, 60, 400] {
            std::thread::sleep(Duration::from_millis(pause));
            server.kill();
            server.run();
        }
        std::thread::sleep(Duration::from_millis(200));
    });
    stop.store(true, Ordering::SeqCst);
    let mut told = BTreeMap::new();
    for task in tasks {
        told.extend(task.await.unwrap());
    }
    told
}

async fn create(
    master: Master,
    parent: Ino,
    task: usize,
    stop: Arc<AtomicBool>,
) -> Vec<(Vec<u8>, Told)> {
    let mut told = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let name = format!("{task}-{}", told.len()).into_bytes();
        let create = Create { parent, name: name.clone(), mode: 0o644, umask: 0, exclusive: true };
        let answer = match master.run(&caller(), create).await {
            Ok(_) => Told::Done,
            Err(Error::Unavailable(text)) if !text.contains("unknown") => Told::NotDone,
            // Done twice, for example.
            Err(other) => panic!("{other:?}"),
        };
        told.push((name, answer));
    }
    told
}

async fn verify(master: &Master, told: BTreeMap<Vec<u8>, Told>) {
    let bucket = cairn_meta::ops::buckets::GetBucket { name: "bucket".into() };
    let parent = master.read(&caller(), bucket).await.unwrap().0.id.ino();
    for (name, told) in told {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let found = master.read(&caller(), Lookup { parent, name }).await;
        match (told, found) {
            (Told::Done, Ok(_)) | (Told::NotDone, Err(Error::NotFound(_))) => {}
            (told, found) => panic!("{shown}: {told:?}, but {found:?}"),
        }
    }
}
