use std::collections::BTreeMap;
use std::future::ready;
use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::fsck::{FsckFound, FsckPhase, FsckState, Orderer};
use cairn_base::map::{Group, Member, Node};
use cairn_base::scrub::{
    DegradedObject, DegradedObjects, NodeScrub, RunOrder, ScrubPhase, Wholeness,
};
use cairn_base::{
    ClusterMap, Error, GroupId, KeyHash, NodeId, Pin, Redundancy, Result, Role, Timestamp,
};
use cairn_console::{
    Asking, ClusterFsck, DamagedObject, Emptying, Insight, MetadataKeepers, NodeReport, Nodes,
    ScrubEnd, ScrubRun, ScrubState, Scrubs,
};
use cairn_fs::ops::cluster::{GetMap, PutMap};
use cairn_fs::ops::credentials::RemoveCredential;
use cairn_fs::ops::lock::{ReleaseLock, TakeLock};
use cairn_fs::rows::{Lock, Space};

use crate::harness::{Browser, Rig};

const PAGES: [&str; 7] = [
    "/store",
    "/store/requests",
    "/store/mounts",
    "/store/cluster",
    "/store/scrub",
    "/store/doctor",
    "/store/logs",
];

#[test]
fn the_store_is_for_root_alone() {
    let rig = Rig::start();
    let (mut root, mut alice) = (rig.root(), rig.user("alice"));
    assert!(root.get("/").body.contains("href=\"/store\""));
    assert!(!alice.get("/").body.contains("href=\"/store\""));
    for page in PAGES {
        assert_eq!(root.get(page).status, 200, "{page}");
        assert_eq!(alice.get(page).status, 403, "{page}");
    }
    for events in ["/store/live?screen=store", "/store/tail?bucket=logs&key=a"] {
        assert_eq!(alice.get(events).status, 403, "{events}");
    }
    for (target, form) in [
        ("/store/read-only", "read_only=yes&confirm=yes"),
        ("/store/read-only", "read_only=no"),
        ("/store/scrub", "order=begin"),
        ("/store/scrub", "order=check"),
        ("/store/drain", "node=1&drain=yes&confirm=yes"),
        ("/store/remove", "node=1&confirm=yes"),
    ] {
        assert_eq!(alice.post(target, form).status, 403, "{target}");
        assert_eq!(root.send("POST", target, &[], form).status, 403, "{target}: another site");
    }
    assert_eq!(rig.browser().get("/store/live?screen=store").status, 401);
    assert_eq!(root.get("/store/live?screen=nothing").status, 404);
}

#[test]
fn health_is_said_in_words_and_doors_in_numbers() {
    let rig = Rig::start();
    let mut root = rig.root();
    let page = root.get("/store").body;
    assert!(page.contains("All is well.") && page.contains("Requests a second"), "{page}");
    assert!(page.contains("</span>console</td>") && page.contains("</span>s3</td>"), "{page}");
    assert!(page.contains("Share of the space that is taken"));
    let requests = root.get("/store/requests").body;
    assert!(requests.contains("No request took longer than 1.0 s, and none failed."));
    assert!(root.get("/store/mounts").body.contains("the server itself"));
    assert!(root.get("/store/cluster").body.contains("one server on one machine"));
    assert!(root.get("/store/doctor").body.contains("Looking."));
    let drained = root.post("/store/drain", "node=1&drain=no");
    assert_eq!(drained.status, 400, "there is no cluster");
    assert!(drained.body.contains("one process on one machine"), "{}", drained.body);
}

/// The stream of a page's events, after the head of the reply.
fn events(browser: &Browser, target: &str) -> TcpStream {
    let mut stream = browser.open(target);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    stream
}

/// Reads until a text has come.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut read, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let shown = String::from_utf8_lossy(&read).into_owned();
        if shown.contains(text) {
            return shown;
        }
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "the events end without {text:?}: {shown}");
        read.extend_from_slice(&part[..count]);
    }
}

#[test]
fn pages_get_new_numbers_until_the_login_ends() {
    let rig = Rig::start();
    let mut root = rig.root();
    let mut first = events(&root, "/store/live?screen=store");
    read_until(&mut first, "event: parts");
    let mut second = events(&root, "/store/live?screen=store");
    root.post("/buckets", "name=counted");
    // A plot has a line as soon as there are two looks.
    let shown = read_until(&mut second, "polyline");
    assert!(shown.contains("All is well."), "{shown}");
    root.post("/logout", "");
    // Nothing comes behind that: the reply ends.
    read_until(&mut first, "\"reason\":\"login\"}\n\n\r\n0\r\n\r\n");
    read_until(&mut second, "\"reason\":\"login\"");
}

#[test]
fn nothing_more_comes_once_the_access_key_has_ended() {
    let rig = Rig::start();
    let root = rig.root();
    let mut stream = events(&root, "/store/live?screen=requests");
    read_until(&mut stream, "event: parts");
    rig.credential("root", false);
    rig.run(RemoveCredential { id: rig.root.id.clone() });
    read_until(&mut stream, "\"reason\":\"login\"");
}

#[test]
fn a_store_is_made_read_only_and_every_page_says_so() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=photos");
    let banner = "The store is read-only: it can be looked at";
    let asked = root.post("/store/read-only", "read_only=yes");
    assert!(asked.body.contains("Make the store read-only?"), "{}", asked.body);
    assert!(!root.get("/").body.contains(banner), "nothing before it is confirmed");
    assert_eq!(root.post("/store/read-only", "read_only=yes&confirm=yes").status, 303);
    let record = rig.audited(r#""operation":"MakeStoreReadOnly","outcome":"done""#);
    assert!(record.contains("the store read-only"), "{record}");
    for page in ["/", "/b/photos", "/keys", "/people", "/store"] {
        assert!(root.get(page).body.contains(banner), "{page}");
    }
    assert!(root.get("/store").body.contains("it refuses all changes of what is in it"));
    let refused = root.post("/b/photos/folders", "name=trip");
    assert_eq!(refused.status, 403, "{}", refused.body);
    // Nothing is offered there that would be refused.
    for offer in ["cairn-drop", "New folder", "/b/photos/remove"] {
        assert!(!root.get("/b/photos").body.contains(offer), "{offer}");
    }
    assert_eq!(root.post("/store/read-only", "read_only=no").status, 303);
    assert!(!root.get("/").body.contains(banner));
    assert!(root.get("/b/photos").body.contains("cairn-drop"));

    let asked = root.post("/b/photos/read-only", "read_only=yes");
    assert!(asked.body.contains("Make photos read-only?"), "{}", asked.body);
    root.post("/b/photos/read-only", "read_only=yes&confirm=yes");
    assert!(root.get("/b/photos/settings").body.contains("Take changes again"));
    assert_eq!(root.post("/b/photos/folders", "name=trip").status, 403);
    let mut bob = rig.user("bob");
    assert_eq!(bob.post("/b/photos/read-only", "read_only=no").status, 403);
    root.post("/b/photos/read-only", "read_only=no");
    assert_eq!(root.post("/b/photos/folders", "name=trip").status, 303);
}

#[derive(Default)]
struct ScrubCounter {
    begun: AtomicUsize,
    stopped: AtomicUsize,
}

impl Scrubs for ScrubCounter {
    fn state(&self) -> ScrubState {
        let run = ScrubRun { blocks: 30, total_blocks: 90, ..ScrubRun::default() };
        let damaged = vec![DamagedObject {
            object: "photos/a.jpg".to_owned(),
            start: 0,
            end: 100,
            why: "checksum".to_owned(),
        }];
        let last = ScrubEnd { blocks: 90, damaged_blocks: 1, damaged, ..ScrubEnd::default() };
        let running = (self.begun.load(Ordering::SeqCst) > self.stopped.load(Ordering::SeqCst))
            .then_some(run);
        ScrubState {
            running,
            last: Some(last),
            every_days: 7,
            rate: 1 << 20,
            ..ScrubState::default()
        }
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.stopped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_scrub_is_begun_watched_and_stopped() {
    let scrubs = Arc::new(ScrubCounter::default());
    let insight = Insight { scrubs: Some(Arc::clone(&scrubs) as _), ..Insight::default() };
    let rig = Rig::knowing(insight);
    let mut root = rig.root();
    let page = root.get("/store/scrub").body;
    assert!(page.contains("No scrub runs.") && page.contains("photos/a.jpg"), "{page}");
    assert_eq!(root.post("/store/scrub", "order=dance").status, 400);
    assert_eq!(root.post("/store/scrub", "order=begin").status, 303);
    let page = root.get("/store/scrub").body;
    assert!(page.contains("30 of 90 blocks") && page.contains("Stop the scrub"), "{page}");
    assert_eq!(root.post("/store/scrub", "order=stop").status, 303);
    assert!(root.get("/store/scrub").body.contains("Scrub now"));
    let without = Rig::start();
    let mut root = without.root();
    assert_eq!(root.post("/store/scrub", "order=begin").status, 400, "it keeps no blocks");
    assert!(root.get("/store/scrub").body.contains("Each chunkserver scrubs its own blocks"));
}

#[test]
fn a_log_is_tailed_from_its_last_lines_on() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=logs-root");
    let add = |text: &str| {
        let (caller, record) = (Caller::system(), text.to_owned().into());
        let append = rig.fs().append(&caller, "logs-root", "app/2026-11-27.jsonl", record);
        rig.runtime.block_on(append).unwrap();
    };
    add("{\"line\":\"<one>\"}\n");
    let listed = root.get("/store/logs?bucket=logs-root").body;
    assert!(listed.contains("bucket=logs-root&amp;key=app/"), "{listed}");
    let page = root.get("/store/logs?bucket=logs-root&key=app/2026-11-27.jsonl").body;
    assert!(page.contains("&lt;one&gt;") && page.contains("<cairn-tail"), "{page}");
    let mut tail = events(&root, "/store/tail?bucket=logs-root&key=app/2026-11-27.jsonl");
    read_until(&mut tail, "<one>");
    add("{\"line\":\"two\"}\n");
    read_until(&mut tail, "data: {\"line\":\"two\"}");
    assert_eq!(root.get("/store/logs?bucket=logs-root&key=nothing").status, 404);
    assert_eq!(root.get("/store/logs?bucket=missing").status, 404);
    root.post("/logout", "");
    read_until(&mut tail, "\"reason\":\"login\"");
}

#[test]
fn locks_are_shown_with_who_holds_them() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=photos");
    assert!(root.get("/store/mounts").body.contains("No file is locked."));
    let (caller, record) = (Caller::system(), "x".into());
    let appended = rig.runtime.block_on(rig.fs().append(&caller, "photos", "a.txt", record));
    let (_, ino, _) = appended.unwrap();
    let (session, space) = (rig.fs().session(), Space::Flock);
    let lock =
        Lock { session, owner: 1, pid: 4711, exclusive: true, start: 0, last: u64::MAX, space };
    assert_eq!(rig.run(TakeLock { ino, lock }), None);
    let page = root.get("/store/mounts").body;
    assert!(page.contains(&format!("photos, inode {}", ino.0)), "{page}");
    assert!(page.contains("exclusive (flock)") && page.contains(">4711<"), "{page}");
    rig.run(ReleaseLock { ino, lock });
    assert!(root.get("/store/mounts").body.contains("No file is locked."));
}

/// Chunkservers 1 and 2, of which the second is down, and a group that both have.
fn cluster() -> ClusterMap {
    let mut map = ClusterMap { epoch: 1, replicas: 2, minimum: 1, ..ClusterMap::default() };
    for number in [1, 2] {
        let pin = Pin { key: KeyHash([number; 32]), roles: Role::Chunkserver.into() };
        let node = Node { is_up: number == 1, ..Node::new(pin) };
        map.nodes.insert(NodeId(number.into()), node);
    }
    let members = [1, 2].map(|node| Member::new(NodeId(node), true)).to_vec();
    let group = Group { redundancy: Redundancy::Copies(2), members, ..Group::default() };
    map.groups.insert(GroupId(1), group);
    (map.next_node, map.next_group) = (3, 2);
    map
}

#[test]
fn a_chunkserver_is_drained_once_that_was_confirmed() {
    let rig = Rig::start();
    let mut root = rig.root();
    rig.run(PutMap { map: cluster().encode() });
    let map = || ClusterMap::decode(&rig.run(GetMap).unwrap()).unwrap();
    let page = root.get("/store/cluster").body;
    assert!(page.contains("lacks replicas") && page.contains("2 (down)"), "{page}");
    assert!(root.get("/store").body.contains("It works, with 2 warnings."));
    let asked = root.post("/store/drain", "node=1&drain=yes");
    assert!(asked.body.contains("Drain node 1?") && asked.body.contains("1 group"));
    assert!(!map().nodes[&NodeId(1)].is_draining, "nothing before it is confirmed");
    assert_eq!(root.post("/store/drain", "node=1&drain=yes&confirm=yes").status, 303);
    assert!(map().nodes[&NodeId(1)].is_draining && map().epoch == 2);
    let record = rig.audited(r#""operation":"DrainNode","outcome":"done""#);
    assert!(record.contains("drain node 1"), "{record}");
    assert!(root.get("/store/cluster").body.contains("Cancel the drain of node 1"));
    assert_eq!(root.post("/store/drain", "node=1&drain=no").status, 303);
    assert!(!map().nodes[&NodeId(1)].is_draining);
    for bad in ["node=9", "node=x", "node="] {
        let refused = root.post("/store/drain", &format!("{bad}&drain=no")).status;
        assert!(matches!(refused, 400 | 404), "{bad}: {refused}");
    }
}

/// Masters that say the same of everything, but for scrubs that are begun and stopped.
#[derive(Default)]
struct ToldMasters {
    scrubs: AtomicBool,
    lookups: AtomicUsize,
    /// The user for whom an fsck runs.
    fsck: Mutex<Option<String>>,
}

impl Nodes for ToldMasters {
    fn own(&self) -> NodeId {
        NodeId(3)
    }

    fn reports(&self) -> Asking<BTreeMap<NodeId, NodeReport>> {
        Box::pin(ready(Ok(BTreeMap::new())))
    }

    fn emptying(&self, node: NodeId) -> Asking<Emptying> {
        let forecast = |node| match node {
            NodeId(1) => Ok(Emptying {
                groups: 1,
                bytes: 3 << 30,
                targets: [(NodeId(2), 3 << 30)].into(),
                takes: Duration::from_secs(600),
                rate: 5 << 20,
            }),
            _ => Err(Error::Full(format!("without node {node} there is no room"))),
        };
        Box::pin(ready(forecast(node)))
    }

    fn keepers(&self) -> Asking<MetadataKeepers> {
        Box::pin(ready(Ok(MetadataKeepers::Voters(1))))
    }

    fn stalls(&self) -> Asking<Vec<String>> {
        Box::pin(ready(Ok(vec!["node 2 has got no entries for 25 s".to_owned()])))
    }

    fn damage(&self) -> Asking<Vec<String>> {
        Box::pin(std::future::ready(Ok(vec!["the metadata of master 2 are damaged".to_owned()])))
    }

    fn scrub(&self, order: RunOrder) -> Asking<Vec<(NodeId, NodeScrub)>> {
        match order {
            RunOrder::Look => {}
            order => self.scrubs.store(order == RunOrder::Begin, Ordering::SeqCst),
        }
        let runs = self.scrubs.load(Ordering::SeqCst);
        let phase = if runs { ScrubPhase::Runs } else { ScrubPhase::Stopped };
        let said = NodeScrub { phase, blocks: 30, total_blocks: 90, ..NodeScrub::default() };
        Box::pin(ready(Ok(vec![(NodeId(1), said)])))
    }

    /// At the second time they are known.
    fn degraded(&self) -> Asking<Option<DegradedObjects>> {
        let object = "photos/a.jpg".to_owned();
        let objects =
            vec![DegradedObject { wholeness: Wholeness::Degraded, object, start: 0, end: 100 }];
        let named = DegradedObjects { objects, blocks: [0, 1, 0], ..DegradedObjects::default() };
        let is_known = self.lookups.fetch_add(1, Ordering::SeqCst) > 0;
        Box::pin(ready(Ok(is_known.then_some(named))))
    }

    /// One that is stopped has found something.
    fn fsck(&self, order: RunOrder, user: &str) -> Asking<ClusterFsck> {
        let mut running = self.fsck.lock().unwrap();
        match order {
            RunOrder::Look => {}
            RunOrder::Begin => *running = Some(user.to_owned()),
            RunOrder::Stop => *running = None,
        }
        let findings = vec![("photos/b.jpg".to_owned(), "counts 2 names, found 1".to_owned())];
        let found = FsckFound { findings, ..FsckFound::default() };
        let fsck = match &*running {
            Some(user) => ClusterFsck {
                state: FsckState {
                    phase: FsckPhase::Rows,
                    begun: Timestamp::from_secs(1),
                    by: Orderer { user: user.clone(), ..Orderer::default() },
                    rows: 30,
                    total_rows: 90,
                    ..FsckState::default()
                },
                found: None,
            },
            None => ClusterFsck {
                state: FsckState { phase: FsckPhase::Ended, findings: 1, ..FsckState::default() },
                found: Some(Arc::new(found)),
            },
        };
        Box::pin(ready(Ok(fsck)))
    }
}

fn in_cluster() -> (Rig, Arc<ToldMasters>) {
    let masters = Arc::new(ToldMasters::default());
    let insight = Insight { nodes: Some(Arc::clone(&masters) as _), ..Insight::default() };
    let rig = Rig::knowing(insight);
    let mut map = cluster();
    let pin = Pin { key: KeyHash([3; 32]), roles: Role::Gateway.into() };
    map.nodes.insert(NodeId(3), Node { is_up: true, ..Node::new(pin) });
    let pin = Pin { key: KeyHash([4; 32]), roles: Role::Master.into() };
    map.nodes.insert(NodeId(4), Node { is_up: true, ..Node::new(pin) });
    map.next_node = 5;
    rig.run(PutMap { map: map.encode() });
    (rig, masters)
}

#[test]
fn what_moves_is_said_before_a_node_is_drained_or_removed() -> Result<()> {
    let (rig, _) = in_cluster();
    let mut root = rig.root();
    let map = || ClusterMap::decode(&rig.run(GetMap).unwrap());
    let asked = root.post("/store/drain", "node=1&drain=yes").body;
    for said in ["of 1 group and 3.0 GiB", "to node 2: 3.0 GiB", "about 10 min"] {
        assert!(asked.contains(said), "{said}: {asked}");
    }
    let refused = root.post("/store/drain", "node=2&drain=yes&confirm=yes");
    assert!(refused.status >= 400 && refused.body.contains("no room"), "{}", refused.body);
    assert!(!map()?.nodes[&NodeId(2)].is_draining);
    // One that holds blocks is drained first, whatever was confirmed.
    let asked = root.post("/store/remove", "node=1").body;
    assert!(asked.contains("So it is drained first") && asked.contains("Drain it"), "{asked}");
    assert_eq!(root.post("/store/remove", "node=1&confirm=yes").status, 409);
    assert!(map()?.nodes.contains_key(&NodeId(1)));
    let mut empty = map()?;
    let former = empty.clone();
    empty.groups.clear();
    empty.follow(&former);
    rig.run(PutMap { map: empty.encode() });
    let asked = root.post("/store/remove", "node=1").body;
    assert!(asked.contains("is in no group") && asked.contains("It runs still"), "{asked}");
    assert!(map()?.nodes.contains_key(&NodeId(1)), "nothing before it is confirmed");
    assert_eq!(root.post("/store/remove", "node=1&confirm=yes").status, 303);
    assert!(!map()?.nodes.contains_key(&NodeId(1)));
    let record = rig.audited(r#""operation":"RemoveNode","outcome":"done""#);
    assert!(record.contains("remove node 1") && record.contains("console"), "{record}");
    let own = root.post("/store/remove", "node=3&confirm=yes");
    assert!(own.status == 400 && own.body.contains("gateway of this console"), "{}", own.body);
    let master = root.post("/store/remove", "node=4&confirm=yes");
    assert!(master.status == 400 && master.body.contains("is a master"), "{}", master.body);
    let page = root.get("/store/cluster").body;
    assert!(page.contains("Remove node 2") && !page.contains("Remove node 3"), "{page}");
    assert!(!page.contains("Remove node 4"), "masters are removed by the command: {page}");
    assert_eq!(map()?.nodes.len(), 3);
    Ok(())
}

#[test]
fn a_scrub_of_a_cluster_is_begun_and_what_it_found_is_listed() {
    let (rig, masters) = in_cluster();
    let mut root = rig.root();
    let page = root.get("/store/cluster").body;
    assert!(page.contains("No scrub runs.") && page.contains("Scrub now"), "{page}");
    assert!(page.contains("few copies") && page.contains("blocks have 2"), "{page}");
    assert!(root.get("/store").body.contains("Few copies: names, and objects of up to 16 KiB"));
    assert!(root.get("/store").body.contains("No progress: node 2 has got no entries for 25 s."));
    assert!(root.get("/store").body.contains("Damaged: the metadata of master 2 are damaged."));
    assert_eq!(root.post("/store/scrub", "order=begin").status, 303);
    for place in ["/store/cluster", "/store/scrub"] {
        let page = root.get(place).body;
        assert!(page.contains("A scrub runs at 1 of 1 chunkserver."), "{page}");
        assert!(page.contains("30 of 90 blocks") && page.contains("Stop the scrub"), "{page}");
    }
    assert_eq!(masters.lookups.load(Ordering::SeqCst), 0, "nothing before it has ended");
    assert_eq!(root.post("/store/scrub", "order=stop").status, 303);
    let mut listed = |text: &str| {
        for _ in 0..600 {
            let page = root.get("/store/scrub").body;
            if page.contains(text) {
                return page;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the page does not say {text:?}")
    };
    // It was seen to run, and then to have ended.
    let page = listed("photos/a.jpg");
    assert!(page.contains("1 degraded") && page.contains("List them now"), "{page}");
    assert_eq!(masters.lookups.load(Ordering::SeqCst), 2);
    assert_eq!(root.post("/store/scrub", "order=list").status, 303);
    listed_again(&masters);
    assert_eq!(root.post("/store/scrub", "order=dance").status, 400);
}

#[test]
fn a_cluster_is_checked_beside_its_scrubs() {
    let (rig, _) = in_cluster();
    let mut root = rig.root();
    assert_eq!(root.post("/store/scrub", "order=check").status, 303);
    let page = root.get("/store/scrub").body;
    for said in ["A check runs.", "30 of about 90 rows", "Ordered by root", "Stop the check"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert_eq!(root.post("/store/scrub", "order=stop-check").status, 303);
    let page = root.get("/store/scrub").body;
    for said in ["Check now", "photos/b.jpg", "counts 2 names, found 1"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let record = rig.audited(r#""operation":"OrderScrub","outcome":"done""#);
    assert!(record.contains("check") && record.contains("console"), "{record}");
}

/// It is asked for again, once that was ordered.
fn listed_again(masters: &ToldMasters) {
    let again = || masters.lookups.load(Ordering::SeqCst) > 2;
    let is_asked = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        again()
    });
    assert!(is_asked, "nobody asks for the objects again");
}
