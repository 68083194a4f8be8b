//! `DELETE /storage/BUCKET?content` leaves nothing in a bucket, whatever was in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::{Ino, Result};
use cairn_fs::WireVerb;
use cairn_fs::ops::buckets::{CreateBucket, FindBucket};
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::create::Mknod;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::put_object::{NewContent, PutObject};
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::symlink::Symlink;
use cairn_fs::rows::{BucketKind, Kind, ObjectAttributes};

use crate::http_harness::{Client, Reply, Server};

const CLEAR: &str = "/storage/bucket?content";

/// A server with a bucket of kind `s3` that belongs to a client.
struct Case {
    server: Server,
    owner: Client,
    top: Ino,
}

impl Case {
    fn new() -> Case {
        let server = Server::start();
        let owner = server.user("owner");
        owner.put("/storage/own", b"").expect(201);
        let find = |name: &str| FindBucket { name: name.to_owned() };
        let fs = server.fs().clone();
        let system = Caller::system();
        let top = server.runtime.block_on(async {
            let own = fs.read(&system, find("own")).await.unwrap().unwrap();
            let (kind, visibility) = (BucketKind::S3, Visibility::Private);
            let verb = CreateBucket { name: "bucket".into(), kind, visibility };
            let made = fs.run(&Caller::verified(own.bucket.owner), verb).await.unwrap();
            made.ino()
        });
        Case { server, owner, top }
    }

    fn run<V: WireVerb>(&self, verb: V) -> Result<V::Reply> {
        self.server.runtime.block_on(self.server.fs().run(&Caller::system(), verb))
    }

    fn mkdir(&self, parent: Ino, name: &str) -> Ino {
        let name = name.as_bytes().to_vec();
        self.run(Mkdir { parent, name, mode: 0o755, umask: 0 }).unwrap().0
    }

    fn link(&self, parent: Ino, name: &str) {
        self.run(link(parent, name)).unwrap();
    }

    /// Makes an object, also with keys that only S3 makes.
    fn put(&self, key: &str) {
        let put = PutObject {
            bucket: "bucket".into(),
            key: key.into(),
            session: self.server.fs().session(),
            content: NewContent::Inline(Bytes::from_static(b"x")),
            size: 1,
            object: ObjectAttributes::default(),
            tags: Vec::new(),
            conditions: Conditions::default(),
        };
        self.run(put).unwrap();
    }

    /// Clears the bucket. How many requests that took.
    fn clear(&self) -> usize {
        for requests in 1..1000 {
            if !more(&self.owner.call("DELETE", CLEAR, &[], b"").expect(200)) {
                return requests;
            }
        }
        panic!("there is always more");
    }

    /// Whether nothing at all is in the bucket: only then it can be deleted.
    fn delete(&self) {
        self.owner.call("DELETE", "/storage/bucket", &[], b"").expect(204);
    }
}

fn link(parent: Ino, name: &str) -> Symlink {
    let target = Bytes::from_static(b"elsewhere");
    Symlink { parent, name: name.as_bytes().to_vec(), target }
}

fn more(reply: &Reply) -> bool {
    reply.json()["more"].as_bool().unwrap()
}

#[test]
fn everything_is_deleted_and_the_bucket_stays() {
    let case = Case::new();
    let long = format!("{}/x", "n".repeat(300));
    for key in ["a", "a/b", "z//x", "z/./x", "z/../y", "/top", "dir/", &long] {
        case.put(key);
    }
    for number in 0..600 {
        case.put(&format!("many/{number}"));
    }
    let below = case.mkdir(case.mkdir(case.top, "below"), "empty");
    case.link(below, "link");
    for (name, kind) in [("pipe", Kind::Fifo), ("socket", Kind::Socket)] {
        let name = name.as_bytes().to_vec();
        case.run(Mknod { parent: below, name, kind, mode: 0o644, umask: 0 }).unwrap();
    }
    case.owner.call("DELETE", "/storage/bucket", &[], b"").expect(409);
    assert!(case.clear() > 1, "the first request deletes only some of it");
    // An empty bucket is cleared, too.
    assert_eq!(case.clear(), 1);
    case.owner.get("/storage/bucket").expect(200);
    case.delete();
    assert_eq!(case.owner.call("DELETE", CLEAR, &[], b"").expect(404).error(), "not_found");
}

#[test]
fn names_without_a_key_hide_no_objects_behind_them() {
    let case = Case::new();
    // A listing passes over fewer before it ends a page.
    for number in 0..8400 {
        case.link(case.top, &format!("a{number:04}"));
    }
    case.put("z//x");
    case.put("zz/./x");
    case.clear();
    case.delete();
}

#[test]
fn objects_whose_keys_have_become_too_long_are_deleted() {
    let case = Case::new();
    case.put("moved//x");
    case.put("moved/y//x");
    let mut parent = case.top;
    for _ in 0..5 {
        parent = case.mkdir(parent, &"d".repeat(250));
    }
    let rename = Rename {
        source_parent: case.top,
        source_name: b"moved".to_vec(),
        target_parent: parent,
        target_name: b"moved".to_vec(),
        mode: RenameMode::NoReplace,
    };
    case.run(rename).unwrap();
    case.clear();
    case.delete();
}

#[test]
fn objects_in_deep_directories_are_deleted() {
    let case = Case::new();
    for level in 0..300 {
        case.put(&format!("{}s", "d/".repeat(level)));
    }
    case.put(&format!("{}bottom", "d/".repeat(300)));
    // Two pages of 250 objects, and one request to see that there is no more.
    assert_eq!(case.clear(), 3);
    case.delete();
}

#[test]
fn deep_directories_are_removed() {
    let case = Case::new();
    let mut parent = case.top;
    // Deeper than a key can be, and deeper than one request removes.
    for _ in 0..2000 {
        parent = case.mkdir(parent, "d");
        case.link(parent, "link");
    }
    case.clear();
    case.delete();
}

#[test]
fn directories_that_only_hold_links_hide_no_objects_behind_them() {
    let case = Case::new();
    // More than one page of a listing may pass over.
    for number in 0..4200 {
        let parent = case.mkdir(case.top, &format!("a{number:04}"));
        case.link(parent, "link");
    }
    case.put("z/./x");
    case.clear();
    case.delete();
}

#[test]
fn writers_at_the_same_time_make_no_request_fail() {
    let case = Case::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (case, is_over) = (&case, &is_over);
            scope.spawn(move || {
                // What is being deleted cannot be written to: that is of no interest here.
                for number in 0_u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("w{}", (writer + number) % 3).into_bytes();
                    let verb = Mkdir { parent: case.top, name, mode: 0o755, umask: 0 };
                    if let Ok((ino, _)) = case.run(verb) {
                        let _ = case.run(link(ino, "link"));
                        let _ = case.run(link(case.top, &format!("w{}", number % 3)));
                    }
                }
            });
        }
        // A panic here would leave the writers to themselves.
        let replies: Vec<Reply> =
            (0..200).map(|_| case.owner.call("DELETE", CLEAR, &[], b"")).collect();
        is_over.store(true, Ordering::Relaxed);
        for reply in replies {
            reply.expect(200);
        }
    });
    case.clear();
    case.delete();
}

/// Rights, and the statuses for them in a private and in a public bucket.
const CALLERS: [(&str, u16, u16); 5] = [
    ("none", 403, 403),
    ("read", 403, 403),
    ("write", 403, 200),
    ("read,write", 200, 200),
    ("all", 200, 200),
];

#[test]
fn a_caller_needs_the_rights_to_list_and_to_delete() {
    let case = Case::new();
    let patch = |change: &str| {
        let path = format!("/storage/bucket?{change}");
        case.owner.call("PATCH", &path, &[], b"").expect(204);
    };
    for (number, (rights, private, public)) in CALLERS.into_iter().enumerate() {
        let user = case.server.user(&format!("user{number}"));
        patch(&format!("grant=user{number}:{rights}"));
        for (visibility, status) in [("private", private), ("public", public)] {
            patch(&format!("visibility={visibility}"));
            // Whether there are objects, only other names, or nothing.
            for (object, name) in [(true, false), (false, true), (false, false)] {
                if object {
                    case.put("object");
                }
                if name {
                    case.link(case.top, "link");
                }
                let got = user.call("DELETE", CLEAR, &[], b"");
                assert_eq!(got.status, status, "{rights} {visibility}: {}", got.text());
                case.server.anonymous().call("DELETE", CLEAR, &[], b"").expect(401);
                if status != 200 && (object || name) {
                    // What was there is there.
                    case.owner.call("DELETE", "/storage/bucket", &[], b"").expect(409);
                }
                case.clear();
            }
        }
    }
    case.server.root().call("DELETE", CLEAR, &[], b"").expect(200);
}

#[test]
fn a_bucket_that_is_read_only_stays_as_it_is() {
    let case = Case::new();
    let patch = |word: &str| {
        let path = format!("/storage/bucket?read_only={word}");
        case.owner.call("PATCH", &path, &[], b"").expect(204);
    };
    let refused = || {
        patch("on");
        for client in [&case.owner, &case.server.root()] {
            let got = client.call("DELETE", CLEAR, &[], b"").expect(403);
            assert_eq!(got.error(), "read_only");
        }
        patch("off");
        case.owner.call("DELETE", "/storage/bucket", &[], b"").expect(409);
    };
    case.put("object");
    refused();
    case.owner.get("/storage/bucket/object").expect(200);
    case.clear();
    case.link(case.top, "link");
    refused();
    case.clear();
    case.delete();
}
