//! Requests of mounts are recorded: each change and each refusal, once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_audit::{LineLog, LineQueue};
use cairn_auth::{Caller, Origin, Posix, Rights, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::{Error, Ino, Result, SessionId, UserId};
use cairn_meta::master::host::{Answer, Sender};
use cairn_meta::ops::buckets::{CreateBucket, UpdateBucket};
use cairn_meta::ops::create::Create;
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::sessions::ReserveInodes;
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::xattr::{SetXattr, XattrMode};
use cairn_meta::rows::BucketKind;
use cairn_meta::session::{
    Attach, AttachReply, Change, Delegate, DelegateReply, Execute, ExecuteReply, ReadReply,
    ReadRequest, Reply, Run, SessionMethod,
};
use cairn_meta::{WireVerb, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::hostile::{Host, root};

/// A mount of a user.
struct Asking<'a> {
    host: &'a Host,
    peer: Sender,
    session: SessionId,
    sequence: u64,
}

impl<'a> Asking<'a> {
    async fn attached(host: &'a Host, user: UserId, number: u64) -> Asking<'a> {
        let source = Some(IpAddr::from([10, 0, 0, number as u8]));
        let peer = Sender::mount(user).from(Origin { source, ..Origin::default() });
        let session = SessionId(number);
        let asking = Asking { host, peer, session, sequence: 0 };
        asking.ask::<_, AttachReply>(SessionMethod::Attach, &Attach { session }).await.unwrap();
        asking
    }

    async fn ask<M: Serialize, R: DeserializeOwned>(
        &self,
        method: SessionMethod,
        message: &M,
    ) -> Result<R> {
        let message = wire::encode(message).unwrap();
        let answer = self.host.sessions.handle(&self.peer, method, &message).await?;
        let (Answer::Bytes(bytes) | Answer::Attached(bytes, _)) = answer;
        match wire::decode::<Reply<R>>(&bytes).unwrap() {
            Reply::Done(done) => Ok(done),
            Reply::Failed(error) => Err(error),
            Reply::NotAttached | Reply::NotServing(_) => panic!("it is not attached"),
        }
    }

    /// The message about a verb that is run as uid 1000 of the mount's machine.
    fn message<V: WireVerb>(&mut self, verb: &V) -> Run {
        self.sequence += 1;
        let posix = Posix { uid: 1000, gid: 1000, groups: Vec::new() };
        let caller = Caller::anonymous().with_posix(posix).to_relayed();
        let fields = wire::encode(verb).unwrap();
        let (session, sequence, verb) = (self.session, self.sequence, V::NUMBER);
        Run { session, slot: 3, sequence, caller, verb, fields }
    }

    async fn run<V: WireVerb>(&mut self, verb: V) -> Result<Bytes> {
        let run = self.message(&verb);
        self.ask(SessionMethod::Run, &run).await
    }

    async fn execute<V: WireVerb>(&mut self, verb: V) -> Result<ExecuteReply> {
        let change = Change { run: self.message(&verb), released: Vec::new() };
        self.ask(SessionMethod::Execute, &Execute { change, ino: None }).await
    }

    async fn read<V: WireVerb>(&mut self, verb: V) -> Result<Bytes> {
        let Run { session, caller, verb, fields, .. } = self.message(&verb);
        let read = ReadRequest { session, caller, verb, fields, lease: false };
        self.ask::<_, ReadReply>(SessionMethod::Read, &read).await?.reply
    }
}

fn mkdir(parent: Ino, name: &str) -> Mkdir {
    Mkdir { parent, name: name.into(), mode: 0o777, umask: 0 }
}

/// All that a mount may be asked to change, in an order in which it can be.
async fn change_all(mount: &mut Asking<'_>, parent: Ino) -> Vec<(&'static str, Result<()>)> {
    let name = |name: &str| name.as_bytes().to_vec();
    let create = Create { parent, name: name("file"), mode: 0o666, umask: 0, exclusive: true };
    let created = mount.execute(create).await.map(|ran| ran.ino);
    let ino = created.as_ref().ok().copied().flatten().unwrap_or(parent);
    let mode = Setattr { ino, mode: Some(0o600), ..Setattr::default() };
    let (key, value) = (name("user.a"), Bytes::from_static(b"planted"));
    let xattr = SetXattr { ino, name: key, value, mode: XattrMode::Set };
    let rename = Rename {
        source_parent: parent,
        source_name: name("file"),
        target_parent: parent,
        target_name: name("renamed"),
        mode: RenameMode::Replace,
    };
    vec![
        ("create", created.map(drop)),
        ("setattr", mount.run(mode).await.map(drop)),
        ("set_xattr", mount.run(xattr).await.map(drop)),
        ("rename", mount.run(rename).await.map(drop)),
        ("unlink", mount.run(Unlink { parent, name: name("renamed") }).await.map(drop)),
        ("mkdir", mount.run(mkdir(parent, "made")).await.map(drop)),
        ("rmdir", mount.run(Rmdir { parent, name: name("made") }).await.map(drop)),
    ]
}

/// Makes a queue for the records of a host.
fn recorded(host: &Host) -> Arc<LineQueue> {
    let queue = Arc::new(LineQueue::new("audit", "test"));
    let (clock, names) = (Arc::new(RealClock::default()), Arc::new(|_| None));
    host.sessions.audit_to(LineLog::new(clock, names, &[Arc::clone(&queue)]));
    queue
}

/// All of them, also as they were written.
fn records(queue: &LineQueue) -> (String, Vec<Value>) {
    queue.close();
    let text = String::from_utf8(queue.take(Duration::ZERO).unwrap().bytes).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (text, records)
}

#[tokio::test]
async fn changes_and_refusals_of_mounts_have_one_record_each() {
    let host = Host::new().await;
    let queue = recorded(&host);
    let open = host.master.run(&root(), mkdir(host.bucket, "open")).await.unwrap().0;
    let opened = Setattr { ino: open, mode: Some(0o777), ..Setattr::default() };
    host.master.run(&root(), opened).await.unwrap();
    let mut owner = Asking::attached(&host, UserId::ROOT, 1).await;
    let mut stranger = Asking::attached(&host, UserId(9), 2).await;
    let mut wanted = Vec::new();
    for (mount, outcome) in [(&mut owner, "done"), (&mut stranger, "refused")] {
        for (operation, ran) in change_all(mount, open).await {
            assert_eq!(ran.is_ok(), outcome == "done", "{operation}: {ran:?}");
            wanted.push((operation, outcome));
        }
        let may_read = mount.read(Getattr { ino: open }).await.is_ok();
        assert_eq!(may_read, outcome == "done");
        if !may_read {
            wanted.push(("getattr", "refused"));
        }
        // That nobody sees.
        let session = mount.session;
        mount.run(ReserveInodes { session, count: 1 }).await.unwrap();
    }
    owner.run(mkdir(open, "twice")).await.unwrap();
    owner.run(mkdir(open, "twice")).await.unwrap_err();
    wanted.extend([("mkdir", "done"), ("mkdir", "failed")]);
    let (name, kind) = ("new".to_owned(), BucketKind::Posix);
    let create = CreateBucket { name, kind, visibility: Visibility::Private };
    owner.run(create).await.unwrap_err();
    wanted.push(("create_bucket", "refused"));
    // Sent again, it is done once, and its records have one number.
    let again = owner.message(&mkdir(open, "again"));
    for _ in 0..2 {
        owner.ask::<_, Bytes>(SessionMethod::Run, &again).await.unwrap();
        wanted.push(("mkdir", "done"));
    }
    let (text, records) = records(&queue);
    let found: Vec<(&str, &str)> = records
        .iter()
        .map(|one| (one["operation"].as_str().unwrap(), one["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(found, wanted);
    assert!(!text.contains("planted"));
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for record in &records {
        assert_eq!((&record["door"], &record["uid"]), (&"mount".into(), &1000.into()));
        let is_owner = record["source"] == "10.0.0.1";
        assert_eq!(record["user"], if is_owner { UserId::ROOT.0 } else { 9 });
        assert_eq!(record["name"] == "root", is_owner);
        let subject = record["resource"].as_str().unwrap_or_default();
        assert!(subject.starts_with("(inode ") || record["operation"] == "create_bucket");
        if let Some(number) = record["request"].as_str() {
            *numbers.entry(number).or_default() += 1;
        }
    }
    assert_eq!(numbers.values().filter(|count| **count == 2).count(), 1, "{numbers:?}");
    assert_eq!(
        records[3]["resource"].as_str().unwrap().matches("file").count(),
        1,
        "{}",
        records[3]
    );
}

#[tokio::test]
async fn directories_that_are_refused_and_messages_that_are_none_have_one_record_each() {
    let host = Host::new().await;
    let queue = recorded(&host);
    for user in ["root", "bob"] {
        let (id, user, sealed) = (format!("KEY{user}"), user.to_owned(), vec![1]);
        let added = AddAccessKey { id, sealed, user, replace: false };
        host.master.run(&Caller::system(), added).await.unwrap();
    }
    let open = host.master.run(&root(), mkdir(host.bucket, "open")).await.unwrap().0;
    let opened = Setattr { ino: open, mode: Some(0o777), ..Setattr::default() };
    host.master.run(&root(), opened).await.unwrap();
    let grant = async |rights| {
        let grant = UpdateBucket {
            name: "bucket".into(),
            visibility: None,
            cache_control: None,
            grant: Some(("bob".into(), rights)),
            tags: None,
            replicas: None,
            redirect: None,
            quota_objects: None,
            quota_bytes: None,
        };
        host.master.run(&root(), grant).await.unwrap();
    };
    grant(Rights::READ.union(Rights::WRITE)).await;
    let mut stranger = Asking::attached(&host, UserId(2), 2).await;
    let (session, bucket) = (stranger.session, host.id);
    let made = stranger.execute(mkdir(open, "refused")).await.unwrap().ino.unwrap();
    grant(Rights::NONE).await;
    // Whoever asks for a directory that others use is not refused.
    for (directory, is_refused) in [(open, false), (made, true)] {
        let delegate = Delegate { session, directory, bucket };
        let delegated = stranger.ask::<_, DelegateReply>(SessionMethod::Delegate, &delegate).await;
        let is_denied = matches!(delegated, Err(Error::Denied(_)));
        assert_eq!(is_denied, is_refused, "{delegated:?}");
    }
    for method in [SessionMethod::Run, SessionMethod::Delegate, SessionMethod::RunPosted] {
        assert!(host.sessions.handle(&stranger.peer, method, b"\xff\xff\xff").await.is_err());
    }
    let mut run = stranger.message(&mkdir(host.bucket, "planted"));
    run.fields.truncate(1);
    stranger.ask::<_, Bytes>(SessionMethod::Run, &run).await.unwrap_err();
    let Run { session, caller, fields, .. } = run;
    let read = ReadRequest { session, caller, verb: u16::MAX, fields, lease: false };
    let read = stranger.ask::<_, ReadReply>(SessionMethod::Read, &read).await;
    assert!(read.is_err());
    // A node is no mount.
    let node = Sender::node(7);
    assert!(host.sessions.handle(&node, SessionMethod::Run, b"\xff").await.is_err());
    let (text, records) = records(&queue);
    let found: Vec<_> = records
        .iter()
        .map(|one| [&one["operation"], &one["outcome"], &one["user"]].map(Value::to_string))
        .collect();
    let of = |operation: &str, outcome: &str| {
        [format!("{operation:?}"), format!("{outcome:?}"), "2".to_owned()]
    };
    let mut wanted = vec![of("mkdir", "done"), of("delegate", "refused")];
    wanted.extend((0..5).map(|_| of("unreadable", "failed")));
    assert_eq!(found, wanted);
    assert_eq!(records[1]["resource"], format!("(inode {made})"));
    assert!(records.iter().all(|one| one["source"] == "10.0.0.2"));
    assert!(!text.contains("planted"));
}
