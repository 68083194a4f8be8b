//! `?zip`: what is below a prefix, as an archive. `tests/clients/test_archives.py` reads archives
//! with programs of others.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use crate::http_a_damaged_object_is_never_a_short_one::damage;
use crate::http_harness::{Client, Connection, Server, Setup};
use cairn_doors::limits::Limits;

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The contents of an archive by the names in its directory. They must be as the headers say.
fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let end = archive.len() - 22;
    assert_eq!(archive[end..end + 4], *b"PK\x05\x06");
    let (count, mut at) = (number(archive, end + 10, 2), number(archive, end + 16, 4));
    let mut found = BTreeMap::new();
    for _ in 0..count {
        assert_eq!(archive[at..at + 4], *b"PK\x01\x02");
        let [names, extra] = [28, 30].map(|field| number(archive, at + field, 2));
        let name = String::from_utf8(archive[at + 46..at + 46 + names].to_vec()).unwrap();
        let [crc, size, header] = [16, 20, 42].map(|field| number(archive, at + field, 4));
        assert_eq!(archive[header..header + 4], *b"PK\x03\x04");
        assert_eq!(&archive[header + 30..header + 30 + names], name.as_bytes());
        let start = header + 30 + names + number(archive, header + 28, 2);
        let contents = archive[start..start + size].to_vec();
        let mut sum = flate2::Crc::new();
        sum.update(&contents);
        assert_eq!(sum.sum() as usize, crc, "{name}");
        assert!(found.insert(name, contents).is_none());
        at += 46 + names + extra;
    }
    assert_eq!(at, end);
    found
}

/// An archive on its way.
struct Download {
    connection: Connection,
    came: Vec<u8>,
}

impl Download {
    fn begin(client: &Client, path: &str) -> Download {
        let mut connection = client.connect();
        let path = format!("{path}?zip");
        connection.send(&client.head("GET", &path, &[("Connection", "close")], None));
        Download { connection, came: Vec::new() }
    }

    /// Reads until the server closes. None where the body has no end.
    fn finish(mut self) -> Option<Vec<u8>> {
        let read = self.connection.stream.read_to_end(&mut self.came);
        if let Err(error) = read {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        let end = self.came.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&self.came[..end]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("chunked"), "{head}");
        let (mut rest, mut body) = (&self.came[end + 4..], Vec::new());
        loop {
            let line = rest.windows(2).position(|window| window == b"\r\n")?;
            let size =
                usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
            rest = rest.get(line + 4 + size..)?;
        }
    }
}

fn archive(client: &Client, path: &str) -> BTreeMap<String, Vec<u8>> {
    unpack(&Download::begin(client, path).finish().expect("a whole archive"))
}

fn names(client: &Client, path: &str) -> Vec<String> {
    archive(client, path).into_keys().collect()
}

fn store() -> (Server, Client) {
    let server = Server::start();
    let owner = server.user("owner");
    owner.put("/storage/bucket", b"").expect(201);
    for (key, contents) in [("a", "1"), ("dir/b", "22"), ("dir/sub/c", ""), ("dir/d", "4444")] {
        owner.put(&format!("/storage/bucket/{key}"), contents.as_bytes()).expect(201);
    }
    (server, owner)
}

#[test]
fn a_prefix_is_an_archive_of_what_is_below() {
    let (_server, owner) = store();
    let large = crate::http_objects_are_what_was_put::pattern(9 << 20);
    owner.put("/storage/bucket/dir/large", &large).expect(201);
    let found = archive(&owner, "/storage/bucket/dir/");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b", "d", "large", "sub/c"]);
    assert_eq!((&found["b"][..], &found["large"]), (&b"22"[..], &large));
    let reply = owner.get("/storage/bucket/dir/?zip").expect(200);
    assert_eq!(reply.header("content-type").as_deref(), Some("application/zip"));
    let disposition = reply.header("content-disposition");
    assert_eq!(disposition.as_deref(), Some("attachment; filename=\"dir.zip\""));
    assert!(reply.header("content-security-policy").unwrap().starts_with("sandbox"));
    let whole = names(&owner, "/storage/bucket/");
    assert_eq!(whole, ["a", "dir/b", "dir/d", "dir/large", "dir/sub/c"]);
    assert_eq!(names(&owner, "/storage/bucket/none/"), [""; 0]);
    let head = owner.call("HEAD", "/storage/bucket/dir/?zip", &[], b"").expect(200);
    assert_eq!((head.header("content-length"), head.body.len()), (None, 0));
    for bad in ["/storage/bucket/dir/?zip&recursive", "/storage/bucket/a?zip", "/storage/?zip"] {
        owner.get(bad).expect(400);
    }
}

#[test]
fn an_archive_is_for_those_who_may_list_and_read() {
    let (server, owner) = store();
    let path = "/storage/bucket/dir/?zip";
    let writer = server.user("writer");
    owner.call("PATCH", "/storage/bucket?grant=writer:write", &[], b"").expect(204);
    server.anonymous().get(path).expect(401);
    writer.get(path).expect(403);
    owner.get("/storage/none/?zip").expect(404);
    owner.call("PATCH", "/storage/bucket?visibility=public", &[], b"").expect(204);
    assert_eq!(names(&server.anonymous(), "/storage/bucket/dir/"), ["b", "d", "sub/c"]);
}

/// Objects so large that the server cannot have read the last one while a client has read none.
fn put_large(client: &Client) -> Vec<u8> {
    let large = crate::http_objects_are_what_was_put::pattern(16 << 20);
    for key in ["l1", "l2", "l3", "l4"] {
        client.put(&format!("/storage/bucket/large/{key}"), &large).expect(201);
    }
    large
}

#[test]
fn an_object_that_vanishes_meanwhile_is_named() {
    let (_server, owner) = store();
    let large = put_large(&owner);
    owner.put("/storage/bucket/large/MISSING-1.txt", b"of a user").expect(201);
    let mut download = Download::begin(&owner, "/storage/bucket/large/");
    download.came = vec![0];
    download.connection.stream.read_exact(&mut download.came).unwrap();
    owner.call("DELETE", "/storage/bucket/large/l4", &[], b"").expect(204);
    let found = unpack(&download.finish().expect("a whole archive"));
    let expected = ["MISSING-1.txt", "MISSING-2.txt", "l1", "l2", "l3"];
    assert_eq!(found.keys().collect::<Vec<_>>(), expected);
    assert_eq!(found["l3"], large);
    assert!(String::from_utf8_lossy(&found["MISSING-2.txt"]).contains("\nl4\n"));
}

#[test]
fn an_archive_with_damaged_bytes_has_no_end() {
    let (server, owner) = store();
    let mut data = crate::http_objects_are_what_was_put::pattern(3 << 20);
    data[2_000_000..2_000_006].copy_from_slice(b"needle");
    owner.put("/storage/bucket/bad/a", &data).expect(201);
    owner.put("/storage/bucket/bad/b", b"behind it").expect(201);
    damage(server.dir.path(), b"needle");
    assert!(Download::begin(&owner, "/storage/bucket/bad/").finish().is_none());
}

/// Four archives take nearly all of their memory, and nobody reads them.
#[test]
fn who_does_not_read_an_archive_makes_way_for_others() {
    let limits = Limits { idle_wanted: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with(Setup { limits, ..Setup::default() });
    let [owner, second, third] = ["owner", "second", "third"].map(|name| server.user(name));
    owner.put("/storage/bucket?visibility=public", b"").expect(201);
    let large = crate::http_objects_are_what_was_put::pattern(16 << 20);
    owner.put("/storage/bucket/all/0-large", &large).expect(201);
    let directory = ["x".repeat(250), "y".repeat(250), "z".repeat(250)].join("/");
    for number in 0..2600 {
        let key = format!("all/{directory}/{number:0240}");
        owner.put(&format!("/storage/bucket/{key}"), b"").expect(201);
    }
    let path = "/storage/bucket/all/";
    let held = [&owner, &owner, &owner, &second].map(|client| {
        let mut download = Download::begin(client, path);
        download.came = vec![0];
        download.connection.stream.read_exact(&mut download.came).unwrap();
        download
    });
    assert_eq!(names(&third, path).len(), 2601);
    let ended = held.into_iter().filter_map(|download| download.finish().is_none().then_some(()));
    assert!(ended.count() > 0, "one of them has made way");
}
