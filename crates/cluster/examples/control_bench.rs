//! A running master, asked over the network: `control_bench DIR [SECONDS]`, where DIR is that of a
//! gateway that has joined and does not run. Measures lookups that the master answers (nothing is
//! leased) and durable creates, in one directory and in a thousand.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, Ino, Rng, Role, SessionId, UserId};
use cairn_cluster::control::{Agent, NodeView};
use cairn_cluster::identity::Directory;
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::rows::BucketKind;
use cairn_meta::session::client::{Client, Config};
use cairn_meta::session::{
    Attach, AttachReply, Dialer, MasterLink, ReadReply, ReadRequest, Reply, SessionMethod,
};
use cairn_meta::{WireVerb, wire};

const DIRECTORIES: u64 = 1000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of a gateway");
    let length = Duration::from_secs_f64(args.next().map_or(3.0, |text| text.parse().unwrap()));
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let rng: Arc<dyn Rng> = Arc::new(RealRng);
    let directory = Arc::new(Directory::open(Path::new(&dir)).unwrap());
    let loaded = directory.load(clock.now()).unwrap().unwrap();
    let view = NodeView::new(loaded.masters.clone());
    let (time, random) = (Arc::clone(&clock), Arc::clone(&rng));
    let agent = Agent::new(directory, &loaded, Role::Gateway, view, time, random).unwrap();
    let dialer = Arc::clone(&agent) as Arc<dyn Dialer>;
    let client = Client::start(dialer, clock, rng, Config::default()).await.unwrap();

    let name = format!("bench-{:x}", client.session().0);
    let (kind, visibility) = (BucketKind::Posix, Visibility::Private);
    let bucket = CreateBucket { name, kind, visibility };
    let bucket = client.run(&Caller::verified(UserId::ROOT), bucket).await.unwrap().ino();
    let mut parents = Vec::new();
    for n in 0..DIRECTORIES {
        let name = format!("directory-{n}").into_bytes();
        let verb = Mkdir { parent: bucket, name, mode: 0o755, umask: 0 };
        parents.push(client.run(&Caller::verified(UserId::ROOT), verb).await.unwrap().0);
    }
    let (link, _recalls) = agent.dial().await.unwrap();
    println!("{:>10}  {:<38}{:>10}", "in flight", "", "a second");
    for in_flight in [1, 64, 1024] {
        let rate = lookups(&link, in_flight, length, bucket).await;
        println!("{in_flight:>10}  {:<38}{rate:>10.0}", "lookups, answered by the master");
        for (what, directories) in [("creates, one directory", 1), ("creates, 1000", 1000)] {
            let rate = creates(&client, &parents[..directories], in_flight, length).await;
            println!("{in_flight:>10}  {what:<38}{rate:>10.0}");
        }
    }
}

/// A session that lasts as long as one measurement: it is never renewed.
async fn attach(link: &dyn MasterLink) -> SessionId {
    let session = SessionId(RealRng.next_u64());
    let message = wire::encode(&Attach { session }).unwrap();
    let answer = link.call(SessionMethod::Attach, message).await.unwrap();
    assert!(matches!(wire::decode::<Reply<AttachReply>>(&answer), Ok(Reply::Done(_))));
    session
}

async fn lookups(
    link: &Arc<dyn MasterLink>,
    in_flight: usize,
    length: Duration,
    parent: Ino,
) -> f64 {
    let verb = Lookup { parent, name: b"directory-7".to_vec() };
    let read = ReadRequest {
        session: attach(&**link).await,
        caller: Caller::verified(UserId::ROOT).to_relayed(),
        verb: Lookup::NUMBER,
        fields: wire::encode(&verb).unwrap(),
        lease: false,
    };
    let message = wire::encode(&read).unwrap();
    rate(in_flight, length, || {
        let (link, message) = (Arc::clone(link), message.clone());
        async move {
            let answer = link.call(SessionMethod::Read, message).await.unwrap();
            let reply = wire::decode::<Reply<ReadReply>>(&answer).unwrap();
            assert!(matches!(reply, Reply::Done(ReadReply { reply: Ok(_), .. })));
        }
    })
    .await
}

async fn creates(client: &Client, parents: &[Ino], in_flight: usize, length: Duration) -> f64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    rate(in_flight, length, || {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let parent = parents[number as usize % parents.len()];
        let name = format!("file-{number}").into_bytes();
        let (client, verb) =
            (client.clone(), Create { parent, name, mode: 0o644, umask: 0, exclusive: true });
        async move { drop(client.run(&Caller::verified(UserId::ROOT), verb).await.unwrap()) }
    })
    .await
}

/// Measures calls per second with `in_flight` of them in progress.
async fn rate<F: Future<Output = ()> + Send>(
    in_flight: usize,
    length: Duration,
    call: impl Fn() -> F + Sync,
) -> f64 {
    let start = Instant::now();
    let count = AtomicU64::new(0);
    let one = async || {
        while start.elapsed() < length {
            call().await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let all: Vec<_> = (0..in_flight).map(|_| one()).collect();
    futures_util::future::join_all(all).await;
    count.into_inner() as f64 / start.elapsed().as_secs_f64()
}
