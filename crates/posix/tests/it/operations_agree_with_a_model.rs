//! Random operations, by one session and by several, each beside the same in a model.

use std::collections::BTreeMap;

use cairn_base::rng::SeededRng;
use cairn_base::{Ino, Result};
use cairn_posix::{Allocation, Descriptor, Intent, Kind, RenameMode, Writing};

use crate::model::{Id, Model, Refusal, TOP};
use crate::world::{Mount, World, data, run_seeds};

const STEPS: usize = 500;
/// Names are few, so that they meet.
const NAMES: u64 = 5;
/// Most files are short. One write in so many crosses a border of blocks.
const FAR: u64 = 25;
const BORDER: u64 = 4 << 20;

/// A file that is open.
struct Open {
    mount: usize,
    file: Descriptor,
    id: Id,
}

struct Test {
    rng: SeededRng,
    mounts: Vec<Mount>,
    model: Model,
    /// The number of each node.
    inos: BTreeMap<Id, Ino>,
    open: Vec<Open>,
    step: usize,
    /// The steps that were done, to be shown if something is wrong.
    done: Vec<String>,
}

impl Drop for Test {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.done.join("\n"));
        }
    }
}

fn compare<T, U>(found: &Result<T>, expected: &Result<U, Refusal>, what: &str) {
    match (found, expected) {
        (Ok(_), Ok(_)) => {}
        (Err(error), Err(refusal)) => assert_eq!(Refusal::of(error), *refusal, "{what}: {error}"),
        (Err(error), Ok(_)) => panic!("{what}: {error}"),
        (Ok(_), Err(refusal)) => panic!("{what}: done, not {refusal:?}"),
    }
}

impl Test {
    fn note(&mut self, mount: usize, what: String) {
        self.done.push(format!("{} session {mount}: {what}", self.step));
    }

    fn below(&self, bound: u64) -> usize {
        self.rng.below(bound) as usize
    }

    fn mount(&self) -> usize {
        self.below(self.mounts.len() as u64)
    }

    /// A directory, and a name in it or one that is not.
    fn place(&self) -> (Id, String) {
        let directories = self.model.directories();
        let directory = directories[self.below(directories.len() as u64)];
        (directory, format!("name{}", self.rng.below(NAMES)))
    }

    fn ino(&self, id: Id) -> Ino {
        self.inos[&id]
    }

    /// The number of a node, once the session has looked its names up. Before, it may have heard of
    /// none of them, and the names that another session has made may be known to that one only.
    async fn reach(&self, mount: usize, id: Id) -> Ino {
        for (parent, name) in self.model.path(id) {
            let found = self.mounts[mount].find(self.ino(parent), &name).await;
            let expected = self.model.find(parent, &name).map(|id| self.ino(id));
            assert_eq!(found.map(|entry| entry.attributes.ino), expected, "{parent}/{name}");
        }
        self.ino(id)
    }

    /// A file that has a name.
    fn file(&self) -> Option<Id> {
        let directories = self.model.directories();
        let all = directories.iter().flat_map(|id| self.model.entries(*id).values());
        let files: Vec<Id> = all.copied().filter(|id| !self.model.is_directory(*id)).collect();
        (!files.is_empty()).then(|| files[self.below(files.len() as u64)])
    }

    async fn step(&mut self) {
        match self.rng.below(20) {
            0..=2 => self.create().await,
            3 => self.mkdir().await,
            4..=5 => self.remove().await,
            6..=8 => self.rename().await,
            9 => self.link().await,
            10 => self.open_one().await,
            11 => self.close_one().await,
            12..=15 => self.write().await,
            16 => self.cut().await,
            17 => self.punch().await,
            18 => self.look_at_directory().await,
            _ => self.mounts[self.mount()].posix.sweep(),
        }
        self.read_open_ones().await;
    }

    async fn create(&mut self) {
        let ((parent, name), mount) = (self.place(), self.mount());
        let made = self.mounts[mount].create(self.reach(mount, parent).await, &name).await;
        self.note(mount, format!("create {parent}/{name}: {made:?}"));
        let expected = self.model.create(parent, &name);
        compare(&made, &expected, "create");
        if let (Ok((ino, file)), Ok(id)) = (made, expected) {
            assert!(self.inos.values().all(|known| *known != ino), "a number twice");
            self.inos.insert(id, ino);
            self.open.push(Open { mount, file, id });
        }
    }

    async fn mkdir(&mut self) {
        let ((parent, name), mount) = (self.place(), self.mount());
        let made = self.mounts[mount].mkdir(self.reach(mount, parent).await, &name).await;
        self.note(mount, format!("mkdir {parent}/{name}: {made:?}"));
        let expected = self.model.mkdir(parent, &name);
        compare(&made, &expected, "mkdir");
        if let (Ok(ino), Ok(id)) = (made, expected) {
            self.inos.insert(id, ino);
        }
    }

    async fn remove(&mut self) {
        let ((parent, name), mount) = (self.place(), self.mount());
        self.close_elsewhere(mount, parent, &name).await;
        self.note(mount, format!("remove {parent}/{name}"));
        let at = self.reach(mount, parent).await;
        let mount = &self.mounts[mount];
        if self.rng.below(4) == 0 {
            let place = (at, name.as_bytes());
            let removed = mount.posix.remove_directory(mount.who(), place.0, place.1).await;
            compare(&removed, &self.model.rmdir(parent, &name), "rmdir");
        } else {
            let removed = mount.unlink(at, &name).await;
            compare(&removed, &self.model.unlink(parent, &name), "unlink");
        }
    }

    async fn rename(&mut self) {
        let (source, target, mount) = (self.place(), self.place(), self.mount());
        self.close_elsewhere(mount, target.0, &target.1).await;
        let mode = match self.rng.below(4) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        self.note(mount, format!("rename {source:?} to {target:?}: {mode:?}"));
        let from = (self.reach(mount, source.0).await, source.1.as_bytes());
        let to = (self.reach(mount, target.0).await, &target.1[..]);
        let mount = &self.mounts[mount];
        let moved = mount.posix.rename(mount.who(), from.0, from.1, to.0, to.1, mode).await;
        let (source, target) = ((source.0, &source.1[..]), (target.0, &target.1[..]));
        let is_there = self.model.find(target.0, target.1).is_some();
        let expected = match mode {
            RenameMode::Replace => self.model.rename(source, target),
            RenameMode::Exchange => self.model.exchange(source, target),
            _ if is_there && self.model.find(source.0, source.1).is_some() => Err(Refusal::Exists),
            _ => self.model.rename(source, target),
        };
        match (&moved, expected) {
            // Several things are wrong at once; which of them is said first is not said.
            (Err(error), Err(_)) => drop(Refusal::of(error)),
            (moved, expected) => compare(moved, &expected, "rename"),
        }
    }

    async fn link(&mut self) {
        let Some(id) = self.file() else { return };
        let ((parent, name), mount) = (self.place(), self.mount());
        self.note(mount, format!("link {id} to {parent}/{name}"));
        let ino = self.reach(mount, id).await;
        let place = (self.reach(mount, parent).await, &name[..]);
        let mount = &self.mounts[mount];
        let linked = mount.posix.make_link(mount.who(), ino, place.0, place.1).await;
        compare(&linked, &self.model.link(id, parent, &name), "link");
    }

    async fn open_one(&mut self) {
        let (Some(id), mount) = (self.file(), self.mount()) else { return };
        self.note(mount, format!("open {id}, inode {}", self.ino(id)));
        let file =
            self.mounts[mount].open(self.reach(mount, id).await, Intent::BOTH).await.unwrap();
        self.open.push(Open { mount, file, id });
    }

    async fn close_one(&mut self) {
        if !self.open.is_empty() {
            let closed = self.open.swap_remove(self.below(self.open.len() as u64));
            self.note(closed.mount, format!("close {}", closed.id));
            self.mounts[closed.mount].close(closed.file).await;
        }
    }

    /// A client that has a file open elsewhere reads it for a while after it is gone, which is not
    /// modelled.
    async fn close_elsewhere(&mut self, mount: usize, parent: Id, name: &str) {
        let Some(id) = self.model.find(parent, name) else { return };
        let (closes, stays): (Vec<Open>, Vec<Open>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.id == id && open.mount != mount);
        self.open = stays;
        for open in closes {
            self.mounts[open.mount].close(open.file).await;
        }
    }

    async fn write(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let Open { mount, file, id } = self.open[self.below(self.open.len() as u64)];
        let base = if self.rng.below(FAR) == 0 { BORDER - 5000 } else { 0 };
        let bytes = data(self.step as u64, 1 + self.below(20_000));
        let appends = self.rng.below(4) == 0;
        let size = self.model.bytes(id).len();
        let at = if appends { size } else { (base + self.rng.below(30_000)) as usize };
        let writing = Writing { appends, syncs: self.rng.below(4) == 0, ..Writing::default() };
        self.note(mount, format!("write {id} at {at}: {} bytes, {writing:?}", bytes.len()));
        // Where the end is, whoever appends need not know.
        let told = if appends { 0 } else { at as u64 };
        let posix = &self.mounts[mount].posix;
        posix.write(file, told, &bytes, writing).await.unwrap();
        if self.mounts.len() > 1 {
            // Others see it from here on.
            posix.flush(file, 0).await.unwrap();
        }
        self.model.write(id, at, &bytes);
    }

    async fn cut(&mut self) {
        let Some(id) = self.file() else { return };
        let (mount, size) = (self.mount(), self.rng.below(40_000));
        self.note(mount, format!("cut {id} to {size}"));
        let shown = self.mounts[mount].cut(self.reach(mount, id).await, size).await.unwrap();
        self.model.cut(id, size as usize);
        assert_eq!(shown.size, size);
    }

    async fn punch(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let Open { mount, file, id } = self.open[self.below(self.open.len() as u64)];
        let range = (self.rng.below(20_000), 1 + self.rng.below(20_000));
        let keeps_size = self.rng.below(2) == 0;
        let mount = &self.mounts[mount];
        let way = Allocation::Zero { keeps_size };
        mount.posix.allocate(file, mount.who(), range.0, range.1, way).await.unwrap();
        let (from, to) = (range.0 as usize, (range.0 + range.1) as usize);
        let size = self.model.bytes(id).len();
        let to = if keeps_size { to.min(size) } else { to };
        if from < to {
            self.model.write(id, from, &vec![0; to - from]);
        }
    }

    async fn look_at_directory(&mut self) {
        let (id, name) = self.place();
        self.check_directory(self.mount(), id).await;
        let mount = self.mount();
        let ino = self.reach(mount, id).await;
        let found = self.mounts[mount].find(ino, &name).await.map(|entry| entry.attributes.ino);
        assert_eq!(found, self.model.find(id, &name).map(|id| self.ino(id)));
    }

    async fn check_directory(&self, mount: usize, id: Id) {
        let ino = self.reach(mount, id).await;
        let names = self.mounts[mount].names(ino, 1 + self.below(4)).await;
        let found: BTreeMap<String, Ino> = names.iter().cloned().collect();
        assert_eq!(found.len(), names.len(), "a name was listed twice");
        let expected = self.model.entries(id).iter();
        let expected: BTreeMap<String, Ino> =
            expected.map(|(name, id)| (name.clone(), self.ino(*id))).collect();
        assert_eq!(found, expected);
    }

    async fn read_open_ones(&self) {
        if self.open.is_empty() {
            return;
        }
        for _ in 0..4 {
            let Open { mount, file, id } = &self.open[self.below(self.open.len() as u64)];
            let bytes = self.model.bytes(*id);
            let at = self.rng.below(bytes.len() as u64 + 100);
            let read = self.mounts[*mount].read(*file, at, 6000).await.unwrap();
            let (from, to) = ((at as usize).min(bytes.len()), bytes.len().min(at as usize + 6000));
            let place = format!("step {}: inode {} from {at}", self.step, self.ino(*id));
            assert!(read == bytes[from..to], "{place}");
        }
    }

    /// All that there is, by every session.
    async fn check_all(&self) {
        for mount in 0..self.mounts.len() {
            for id in self.model.directories() {
                self.check_directory(mount, id).await;
                for id in self.model.entries(id).values() {
                    self.check_node(mount, *id).await;
                }
            }
        }
    }

    async fn check_node(&self, mount: usize, id: Id) {
        let shown = self.mounts[mount].stat(self.reach(mount, id).await).await.unwrap();
        assert_eq!(shown.kind == Kind::Directory, self.model.is_directory(id));
        if shown.kind == Kind::File {
            let bytes = self.model.bytes(id);
            assert_eq!((shown.size, shown.nlink), (bytes.len() as u64, self.model.names(id)));
            assert!(self.mounts[mount].get(self.ino(id)).await.unwrap() == bytes[..]);
        }
    }
}

async fn test(seed: u64, world: World, made: Vec<Mount>) {
    let inos = BTreeMap::from([(TOP, made[0].top)]);
    let (rng, model) = (SeededRng::new(seed), Model::new());
    let mut test =
        Test { rng, mounts: made, model, inos, open: Vec::new(), step: 0, done: Vec::new() };
    for step in 0..STEPS {
        test.step = step;
        test.step().await;
    }
    while !test.open.is_empty() {
        test.close_one().await;
    }
    test.check_all().await;
    // And by one that has seen none of it.
    test.mounts[0].posix.flush_all().await;
    test.mounts.push(world.mount().await);
    test.check_all().await;
}

#[test]
fn one_session_agrees() {
    run_seeds(4, |seed| async move {
        let world = World::new(seed).await;
        let mounts = vec![world.mount().await];
        test(seed, world, mounts).await;
    });
}

#[test]
fn two_sessions_agree() {
    run_seeds(4, |seed| async move {
        let world = World::new(1000 + seed).await;
        let mounts = vec![world.mount().await, world.mount().await];
        test(1000 + seed, world, mounts).await;
    });
}

/// The one that is in a process with the master hears of no change.
#[test]
fn servers_and_a_mount_agree() {
    run_seeds(4, |seed| async move {
        let world = World::new(2000 + seed).await;
        let mounts = vec![world.local().await, world.served().await, world.mount().await];
        test(2000 + seed, world, mounts).await;
    });
}
