//! Clients of NFS: each fills a directory of its own through any gateway, and knows what has to be
//! in it. It sends calls more than once and hears of none more than once, so whatever acts twice,
//! or is acknowledged and lost, is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{Caller, Network, Visibility};
use cairn_base::UserId;
use cairn_base::rng::SeededRng;
use cairn_meta::Master;
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::ops::exports::AddExport;
use cairn_meta::rows::{BucketKind, Squash};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::calls::{Args, EXIST, JUKEBOX, NOENT, OK, Reply, Way};
use super::client::{Door, FILES};
use super::history::History;
use super::roles::Slot;

/// Number of clients of NFS.
pub const CLIENTS: u32 = 3;
/// Program and procedure of MNT, of MOUNT.
const MNT: (u32, u32) = (100_005, 1);
/// Names in the directory of a client.
const NAMES: u64 = 6;
/// Most former calls that may be sent once more.
const PAST: usize = 24;
/// Number of steps of which one is a former call, and of which one looks at everything.
const LATE_ONE_IN: u64 = 6;
const LOOK_ONE_IN: u64 = 25;
/// Bytes of a file that is overwritten.
const OVERWRITTEN: usize = 2_000;
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

/// The inode of a name. Bytes of a file are written once, or by calls that are sent once: clients
/// of NFS have to keep their repeated calls in order themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    /// A file, by its number: it may have several names.
    File(usize),
    Directory,
    Symlink,
}

struct File {
    handle: Vec<u8>,
    /// None: nobody knows.
    content: Option<Vec<u8>>,
    /// It is written by calls that are sent once.
    is_overwritten: bool,
}

impl File {
    fn new(handle: Vec<u8>) -> File {
        File { handle, content: Some(Vec::new()), is_overwritten: false }
    }

    /// Nothing was written to it yet.
    fn is_empty(&self) -> bool {
        self.content.as_ref().is_some_and(Vec::is_empty) && !self.is_overwritten
    }
}

/// State shared by the clients of a world.
#[derive(Clone, Default)]
pub struct Shared {
    pub history: Arc<Mutex<History>>,
    /// Clients that are not finished.
    pub unfinished: Arc<Mutex<BTreeSet<u32>>>,
}

pub struct Client {
    number: u32,
    shared: Shared,
    way: Way,
    directory: Vec<u8>,
    names: BTreeMap<String, Node>,
    handles: BTreeMap<String, Vec<u8>>,
    files: Vec<File>,
    past: Vec<Vec<u8>>,
    steps: u64,
}

impl Client {
    pub fn new(number: u32, shared: Shared, doors: Vec<Slot<Door>>, rng: Arc<SeededRng>) -> Client {
        let address = IpAddr::from([10, 0, 0, number as u8]);
        shared.unfinished.lock().insert(number);
        Client {
            number,
            shared,
            way: Way { doors, rng, address, door: 0, stream: None, xid: 0, again: 0 },
            directory: Vec::new(),
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
            files: Vec::new(),
            past: Vec::new(),
            steps: 0,
        }
    }

    /// Works until all has become well, and looks then at everything once more, at each gateway.
    pub async fn work(mut self) {
        let mount = self.way.call_of(MNT, &Args::default().bytes(format!("/{FILES}").as_bytes()));
        let mut top = self.way.ask(&mount).await;
        while top.status != OK {
            sleep(Duration::from_millis(200)).await;
            top = self.way.ask(&mount).await;
        }
        self.directory = top.bytes();
        let name = format!("of-{}", self.number);
        let made = self.act(9, self.at(&name).changes(Some(0o755), None)).await;
        let Some(directory) = self.made(made, OK, "the directory") else { return };
        self.directory = directory;
        while !self.shared.history.lock().is_closed() {
            self.step().await;
            sleep(Duration::from_millis(self.way.rng.below(20))).await;
        }
        for door in 0..self.way.doors.len() {
            self.way.stream = None;
            while self.way.stream.is_none() {
                self.way.stream = self.way.connect(door);
                sleep(Duration::from_millis(50)).await;
            }
            self.look_at_all(true).await;
        }
        tracing::info!(client = self.number, self.steps, again = self.way.again, "done");
        self.shared.unfinished.lock().remove(&self.number);
    }

    fn at(&self, name: &str) -> Args {
        Args::default().bytes(&self.directory).bytes(name.as_bytes())
    }

    fn wrong(&self, what: String) {
        let (number, steps) = (self.number, self.steps);
        let what = format!("client {number} of NFS, step {steps}: {what}");
        self.shared.history.lock().violations.push(what);
    }

    /// Sends a call that changes something. After a request to retry later, it sends another call.
    async fn act(&mut self, procedure: u32, args: Args) -> Reply {
        loop {
            let call = self.way.call(procedure, &args);
            let reply = self.way.ask(&call).await;
            if reply.status != JUKEBOX {
                self.past.push(call);
                let many = self.past.len().saturating_sub(PAST);
                self.past.drain(..many);
                return reply;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A call that may be asked again and again.
    async fn see(&mut self, procedure: u32, args: &Args) -> Reply {
        loop {
            let call = self.way.call(procedure, args);
            let reply = self.way.ask(&call).await;
            if reply.status != JUKEBOX {
                return reply;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    fn expect(&self, reply: &Reply, status: u32, what: &str) -> bool {
        if reply.status != status {
            self.wrong(format!("{what}: status {} and not {status}", reply.status));
        }
        reply.status == status && status == OK
    }

    /// The handle of what was made, if it was to be.
    fn made(&self, mut reply: Reply, status: u32, what: &str) -> Option<Vec<u8>> {
        if !self.expect(&reply, status, what) {
            return None;
        }
        if reply.number() == 0 {
            self.wrong(format!("{what}: no handle"));
            return None;
        }
        Some(reply.bytes())
    }

    fn name(&self) -> String {
        format!("name-{}", self.way.rng.below(NAMES))
    }

    async fn step(&mut self) {
        self.steps += 1;
        if self.way.rng.below(LATE_ONE_IN) == 0 && !self.past.is_empty() {
            let call = &self.past[self.way.rng.below(self.past.len() as u64) as usize];
            self.way.late(call).await;
        }
        if self.way.rng.below(LOOK_ONE_IN) == 0 {
            return self.look_at_all(false).await;
        }
        let (name, other) = (self.name(), self.name());
        match self.way.rng.below(13) {
            0..3 => self.create(&name).await,
            3 => self.make(9, &name, Node::Directory).await,
            4 => self.make(10, &name, Node::Symlink).await,
            5 | 6 => self.remove(&name).await,
            7 | 8 => self.rename(&name, &other).await,
            9 => self.link(&name, &other).await,
            10 => self.guarded(&name).await,
            11 => self.overwrite(&name).await,
            _ => self.look_at(&name, false).await,
        }
    }

    /// A file, as a rule with bytes.
    async fn create(&mut self, name: &str) {
        let how = self.way.rng.below(3);
        let (cuts, finds) = (how == 0, how == 1);
        let found = self.names.get(name).cloned();
        let empty = |file: usize| self.files[file].is_empty();
        let (args, status) = match found {
            None if cuts => (self.at(name).number(0).changes(Some(0o644), Some(0)), OK),
            // Nobody cuts what was written: late writes would come behind it.
            Some(Node::File(file)) if cuts && empty(file) => {
                (self.at(name).number(0).changes(None, Some(0)), OK)
            }
            // It is there already.
            Some(Node::File(_)) if finds => (self.at(name).number(0).changes(None, None), OK),
            None => (self.at(name).number(1).changes(Some(0o644), None), OK),
            Some(_) => (self.at(name).number(1).changes(Some(0o644), None), EXIST),
        };
        let reply = self.act(8, args).await;
        let what = format!("CREATE {name} where there is {found:?}");
        let Some(handle) = self.made(reply, status, &what) else { return };
        let file = match found {
            Some(Node::File(file)) => file,
            _ => {
                self.files.push(File::new(handle.clone()));
                self.files.len() - 1
            }
        };
        self.names.insert(name.to_owned(), Node::File(file));
        self.handles.insert(name.to_owned(), handle);
        match self.way.rng.below(5) {
            0 => {}
            1 if self.files[file].is_empty() => self.files[file].is_overwritten = true,
            1 | 2 => self.write(file, UNSTABLE).await,
            _ => self.write(file, FILE_SYNC).await,
        }
    }

    async fn make(&mut self, procedure: u32, name: &str, node: Node) {
        let args = self.at(name);
        let args = match node {
            Node::Symlink => args.changes(None, None).bytes(b"elsewhere"),
            _ => args.changes(Some(0o755), None),
        };
        let status = if self.names.contains_key(name) { EXIST } else { OK };
        let reply = self.act(procedure, args).await;
        if let Some(handle) = self.made(reply, status, &format!("making {name}, {node:?}")) {
            self.names.insert(name.to_owned(), node);
            self.handles.insert(name.to_owned(), handle);
        }
    }

    async fn remove(&mut self, name: &str) {
        let found = self.names.get(name).cloned();
        let procedure = if found == Some(Node::Directory) { 13 } else { 12 };
        let status = if found.is_some() { OK } else { NOENT };
        let reply = self.act(procedure, self.at(name)).await;
        if self.expect(&reply, status, &format!("removing {name}, {found:?}")) {
            self.names.remove(name);
            self.handles.remove(name);
        }
    }

    async fn rename(&mut self, name: &str, target: &str) {
        let (found, there) = (self.names.get(name).cloned(), self.names.get(target).cloned());
        let is_directory = |node: &Option<Node>| *node == Some(Node::Directory);
        let is_odd = there.is_some() && is_directory(&found) != is_directory(&there);
        // Names of one file both stay.
        if name == target || is_odd || found.is_some() && found == there && !is_directory(&found) {
            return;
        }
        let status = if found.is_some() { OK } else { NOENT };
        let mut args = self.at(name);
        args.0.extend(self.at(target).0);
        let reply = self.act(14, args).await;
        let what = format!("RENAME {name}, {found:?} to {target}, {there:?}");
        if self.expect(&reply, status, &what) {
            let (node, handle) = (self.names.remove(name), self.handles.remove(name));
            self.names.extend(node.map(|node| (target.to_owned(), node)));
            self.handles.extend(handle.map(|handle| (target.to_owned(), handle)));
        }
    }

    async fn link(&mut self, name: &str, target: &str) {
        let Some(Node::File(file)) = self.names.get(name).cloned() else { return };
        let status = if self.names.contains_key(target) { EXIST } else { OK };
        let mut args = Args::default().bytes(&self.files[file].handle);
        args.0.extend(self.at(target).0);
        let reply = self.act(15, args).await;
        if self.expect(&reply, status, &format!("LINK {name} to {target}")) {
            self.names.insert(target.to_owned(), Node::File(file));
            self.handles.insert(target.to_owned(), self.files[file].handle.clone());
        }
    }

    /// A mode is set if nothing has changed: of what nobody but this client changes.
    async fn guarded(&mut self, name: &str) {
        if self.names.get(name) != Some(&Node::Directory) {
            return;
        }
        let handle = Args::default().bytes(&self.handles[name]);
        let mut shown = self.see(1, &handle).await;
        if !self.expect(&shown, OK, &format!("GETATTR {name}")) {
            return;
        }
        let mode = 0o700 + self.way.rng.below(0o100) as u32;
        let mut args = handle.changes(Some(mode), None).number(1);
        args.0.extend(shown.changed());
        let reply = self.act(2, args).await;
        self.expect(&reply, OK, &format!("SETATTR {name}"));
    }

    /// Writes a file that is empty, durably.
    async fn write(&mut self, file: usize, how: u32) {
        if !self.files[file].is_empty() {
            return;
        }
        let len = 1 + self.way.rng.below(3_000) as usize;
        let content = vec![1 + (self.steps % 250) as u8; len];
        let handle = Args::default().bytes(&self.files[file].handle);
        let args = handle.clone().long(0).number(len as u32).number(how).bytes(&content);
        loop {
            let mut written = self.see(7, &args).await;
            if written.status == OK {
                written.skip_around();
                let (count, committed) = (written.number(), written.number());
                let verifier = written.verifier();
                if count as usize != len {
                    return self.wrong(format!("WRITE of {count} and not {len} bytes"));
                }
                if committed != UNSTABLE || self.is_committed(&handle, verifier).await {
                    break;
                }
            }
            // The blocks of a file may be nowhere to be had just now, nor room for them.
            sleep(Duration::from_millis(300)).await;
        }
        self.files[file].content = Some(content);
    }

    /// Writes a file at one gateway, and before that is durable, at another one. The bytes from
    /// before do not come behind the later ones. If there is no reply, nobody knows when the call
    /// is done, and the file is left alone.
    async fn overwrite(&mut self, name: &str) {
        let Some(Node::File(file)) = self.names.get(name).cloned() else { return };
        let File { handle, content: Some(_), is_overwritten: true } = &self.files[file] else {
            return;
        };
        let handle = Args::default().bytes(handle);
        self.files[file].content = None;
        for (turn, how) in [UNSTABLE, FILE_SYNC].into_iter().enumerate() {
            let byte = 1 + (2 * self.steps as usize + turn) % 250;
            let content = vec![byte as u8; OVERWRITTEN];
            let door = self.way.rng.below(self.way.doors.len() as u64) as usize;
            let args = handle.clone().long(0).number(OVERWRITTEN as u32).number(how);
            let args = args.bytes(&content);
            loop {
                let call = self.way.call(7, &args);
                match self.way.once(door, &call).await {
                    Some(reply) if reply.status == OK => break,
                    Some(reply) if reply.status == JUKEBOX => {
                        sleep(Duration::from_millis(100)).await;
                    }
                    _ => return,
                }
            }
            if how == FILE_SYNC {
                self.files[file].content = Some(content);
            }
        }
    }

    /// Returns whether data written with this verifier is durable.
    async fn is_committed(&mut self, handle: &Args, verifier: [u8; 8]) -> bool {
        let mut committed = self.see(21, &handle.clone().long(0).number(0)).await;
        if committed.status != OK {
            return false;
        }
        committed.skip_around();
        committed.verifier() == verifier
    }

    async fn look_at_all(&mut self, is_well: bool) {
        for name in 0..NAMES {
            self.look_at(&format!("name-{name}"), is_well).await;
        }
    }

    /// Checks that a name is as expected; also its bytes, once all is well.
    async fn look_at(&mut self, name: &str, is_well: bool) {
        let found = self.names.get(name).cloned();
        let mut reply = self.see(3, &self.at(name)).await;
        let status = if found.is_some() { OK } else { NOENT };
        if !self.expect(&reply, status, &format!("LOOKUP {name}, {found:?}")) {
            return;
        }
        if reply.bytes() != self.handles[name] {
            return self.wrong(format!("{name} is something else than {found:?}"));
        }
        let Some(Node::File(file)) = found else { return };
        let args = Args::default().bytes(&self.files[file].handle).long(0).number(1 << 16);
        loop {
            let mut read = self.see(6, &args).await;
            if read.status == OK {
                read.skip_after();
                let (_count, _end) = (read.number(), read.number());
                let content = &self.files[file].content;
                if content.as_ref().is_some_and(|content| read.bytes() != *content) {
                    self.wrong(format!("{name} has other bytes than were written"));
                }
                return;
            }
            if !is_well {
                return;
            }
            sleep(Duration::from_millis(300)).await;
        }
    }
}

/// The bucket that they mount.
pub async fn fill(master: &Master) {
    let (id, user) = ("KEYroot".to_owned(), "root".to_owned());
    let key = AddAccessKey { id, sealed: vec![1], user: user.clone(), replace: false };
    master.run(&Caller::system(), key).await.unwrap();
    let root = Caller::verified(UserId::ROOT);
    let (name, kind) = (FILES.to_owned(), BucketKind::Posix);
    let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
    master.run(&root, bucket).await.unwrap();
    let export = AddExport {
        bucket: FILES.to_owned(),
        user,
        read_only: false,
        squash: Squash::None,
        uid: 65_534,
        gid: 65_534,
        clients: vec![Network::parse("10.0.0.0/8").unwrap()],
        any_client: false,
    };
    master.run(&root, export).await.unwrap();
}
