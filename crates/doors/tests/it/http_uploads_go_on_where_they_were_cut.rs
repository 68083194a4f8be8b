//! Resumable uploads (tus): nothing that was acknowledged is sent again, and nothing is in the
//! object twice. `tests/clients/test_tus.py` kills the server meanwhile.

use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_auth::Caller;
use cairn_base::UploadId;
use cairn_fs::ops::multipart::{AbortUpload, UploadName};

use crate::http_harness::{Client, PATIENCE, Reply, Server};
use crate::http_objects_are_what_was_put::pattern;

const TUS: (&str, &str) = ("Tus-Resumable", "1.0.0");
const STREAM: (&str, &str) = ("Content-Type", "application/offset+octet-stream");
/// More than is dropped at a cut.
const STEP: usize = 300_000;

fn begin(client: &Client, path: &str, length: usize, metadata: &str) -> Reply {
    let length = length.to_string();
    let headers = [TUS, ("Upload-Length", &length), ("Upload-Metadata", metadata)];
    client.call("POST", path, &headers, b"")
}

#[track_caller]
fn begun(client: &Client, path: &str, length: usize) -> String {
    let reply = begin(client, path, length, "").expect(201);
    assert!(reply.header("upload-expires").is_some());
    reply.header("location").unwrap()
}

#[track_caller]
fn offset(client: &Client, upload: &str) -> usize {
    let reply = client.call("HEAD", upload, &[TUS], b"").expect(200);
    assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(reply.header("tus-resumable").as_deref(), Some("1.0.0"));
    reply.header("upload-offset").unwrap().parse().unwrap()
}

fn patch(client: &Client, upload: &str, at: usize, bytes: &[u8]) -> Reply {
    let at = at.to_string();
    client.call("PATCH", upload, &[TUS, STREAM, ("Upload-Offset", &at)], bytes)
}

fn store() -> (Server, Client) {
    let server = Server::start();
    let client = server.user("sender");
    client.put("/storage/inbox", b"").expect(201);
    (server, client)
}

#[test]
fn an_upload_is_cut_and_goes_on() {
    let (server, client) = store();
    let cuts = std::env::var("CAIRN_TEST_TUS_CUTS").map_or(4, |cuts| cuts.parse().unwrap());
    let contents = pattern(STEP * (cuts + 1) + 7);
    let upload = begun(&client, "/tus/inbox/a.bin", contents.len());
    for cut in 0..cuts {
        let at = offset(&client, &upload);
        assert_eq!(at, cut * STEP);
        // All that is left is announced, and a part of it is sent.
        let mut connection = client.connect();
        let sent = at.to_string();
        let headers = [TUS, STREAM, ("Upload-Offset", sent.as_str())];
        let left = contents.len() - at;
        connection.send(&client.head("PATCH", &upload, &headers, Some(left)));
        connection.send(&contents[at..at + STEP]);
        drop(connection);
        let since = Instant::now();
        while offset(&client, &upload) != at + STEP {
            assert!(since.elapsed() < PATIENCE, "the bytes before the cut are not kept");
            sleep(Duration::from_millis(5));
        }
        client.get("/storage/inbox/a.bin").expect(404);
    }
    let at = offset(&client, &upload);
    let done = patch(&client, &upload, at, &contents[at..]).expect(204);
    assert_eq!(done.header("upload-offset").unwrap(), contents.len().to_string());
    assert_eq!(offset(&client, &upload), contents.len());
    let object = client.get("/storage/inbox/a.bin").expect(200);
    assert!(object.body == contents, "{} bytes", object.body.len());
    assert_eq!(server.root().get("/storage/inbox").json()["uploads"], 0);
}

#[test]
fn an_offset_is_taken_once() {
    let (_server, client) = store();
    let contents = pattern(2 * STEP);
    let upload = begun(&client, "/tus/inbox/b", contents.len());
    for wrong in [1, STEP, contents.len()] {
        patch(&client, &upload, wrong, &contents[..STEP]).expect(409);
    }
    patch(&client, &upload, 0, &contents[..STEP]).expect(204);
    patch(&client, &upload, 0, &contents[..STEP]).expect(409);
    // Too little, and too much.
    patch(&client, &upload, STEP, b"x").expect(400);
    patch(&client, &upload, STEP, &contents).expect(413);
    assert_eq!(offset(&client, &upload), STEP);
    // The same in the way of pages.
    let at = STEP.to_string();
    let headers = [TUS, STREAM, ("Upload-Offset", &*at), ("X-HTTP-Method-Override", "PATCH")];
    client.call("POST", &upload, &headers, &contents[STEP..]).expect(204);
    assert!(client.get("/storage/inbox/b").expect(200).body == contents);
    patch(&client, &upload, contents.len(), b"").expect(204);
    patch(&client, &upload, 0, b"").expect(409);
}

#[test]
fn files_are_named_and_typed_by_their_senders() {
    let (_server, client) = store();
    // filename "ü b.txt", filetype "text/x-test"
    let metadata = "filename w7wgYi50eHQ=,filetype dGV4dC94LXRlc3Q=";
    let reply = begin(&client, "/tus/inbox/dir/", 0, metadata).expect(201);
    let upload = reply.header("location").unwrap();
    assert!(upload.starts_with("/tus/inbox/dir/%C3%BC%20b.txt?upload="), "{upload}");
    let object = client.get("/storage/inbox/dir/%C3%BC%20b.txt").expect(200);
    assert_eq!(
        (object.body.len(), object.header("content-type").unwrap().as_str()),
        (0, "text/x-test")
    );
    assert_eq!(offset(&client, &upload), 0);
    for bad in ["", "filename", "filename Li4=", "filename YS9i", "filename !"] {
        begin(&client, "/tus/inbox/", 1, bad).expect(400);
    }
    begin(&client, "/tus/none/x", 1, "").expect(404);
}

#[test]
fn an_upload_is_its_users_and_ends() {
    let (server, client) = store();
    let upload = begun(&client, "/tus/inbox/c", STEP);
    let (root, other) = (server.root(), server.user("other"));
    for stranger in [&root, &other, &server.anonymous()] {
        let status = patch(stranger, &upload, 0, &pattern(STEP)).status;
        assert!(matches!(status, 401 | 403 | 404), "{status}");
        assert!(stranger.call("DELETE", &upload, &[TUS], b"").status >= 400);
    }
    begin(&other, "/tus/inbox/c", 1, "").expect(403);
    client.call("DELETE", &upload, &[TUS], b"").expect(204);
    client.call("HEAD", &upload, &[TUS], b"").expect(404);
    // The right of the user.
    let patch_grant = |rights: &str| {
        let path = format!("/storage/inbox?grant=other:{rights}");
        client.call("PATCH", &path, &[], b"").expect(204);
    };
    patch_grant("write");
    let upload = begun(&other, "/tus/inbox/d", STEP);
    patch_grant("none");
    patch(&other, &upload, 0, &pattern(STEP)).expect(403);
    patch_grant("write");
    // Time: by the collector of garbage, or before a further one.
    assert_eq!(root.get("/storage/inbox").json()["uploads"], 1);
    server.clock.advance(7 * 86_400 + 1);
    other.call("HEAD", &upload, &[TUS], b"").expect(404);
    root.call("POST", "/admin/gc", &[], b"{}").expect(200);
    assert_eq!(root.get("/storage/inbox").json()["uploads"], 0);
    // Number.
    for _ in 0..100 {
        begun(&client, "/tus/inbox/e", 1);
    }
    begin(&client, "/tus/inbox/e", 1, "").expect(413);
    server.clock.advance(7 * 86_400 + 1);
    begun(&client, "/tus/inbox/e", 1);
    assert_eq!(root.get("/storage/inbox").json()["uploads"], 1);
}

#[test]
fn the_protocol_is_as_it_says() {
    let (_server, client) = store();
    let options = client.call("OPTIONS", "/tus/inbox/", &[], b"").expect(204);
    for (name, value) in [
        ("tus-version", "1.0.0"),
        ("tus-extension", "creation,expiration,termination"),
        ("tus-max-size", "53687091200000"),
    ] {
        assert_eq!(options.header(name).as_deref(), Some(value));
    }
    let refused = client.call("POST", "/tus/inbox/x", &[("Upload-Length", "1")], b"").expect(412);
    assert_eq!(refused.header("tus-version").as_deref(), Some("1.0.0"));
    let upload = begun(&client, "/tus/inbox/x", 1);
    let untyped = client.call("PATCH", &upload, &[TUS, ("Upload-Offset", "0")], b"x");
    untyped.expect(415);
    client.call("POST", "/tus/inbox/x", &[TUS, ("Upload-Length", "x")], b"").expect(400);
    client.call("POST", "/tus/inbox/x", &[TUS, ("Upload-Defer-Length", "1")], b"").expect(501);
    client.call("POST", "/tus/inbox/x", &[TUS, ("Upload-Length", "1")], b"x").expect(400);
    for header in [("If-None-Match", "*"), ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")] {
        let headers = [TUS, ("Upload-Length", "1"), header];
        client.call("POST", "/tus/inbox/x", &headers, b"").expect(501);
        let headers = [TUS, STREAM, ("Upload-Offset", "0"), header];
        client.call("PATCH", &upload, &headers, b"x").expect(501);
    }
    client.call("HEAD", "/tus/inbox/x?upload=zz", &[TUS], b"").expect(400);
    client.call("GET", &upload, &[TUS], b"").expect(400);
    patch(&client, &upload, 0, b"x").expect(204);
    assert_eq!(client.get("/storage/inbox/x").expect(200).body, b"x");
}

#[test]
fn an_upload_that_s3_ended_is_gone() {
    let (server, client) = store();
    let upload = begun(&client, "/tus/inbox/ended", 2 * STEP);
    patch(&client, &upload, 0, &pattern(STEP)).expect(204);
    let id = upload.rsplit('=').next().unwrap();
    let id = UploadId(u64::from_str_radix(id, 16).unwrap());
    let name = UploadName { bucket: "inbox".into(), key: "ended".into(), upload: id };
    let caller = Caller::system();
    server.runtime.block_on(server.fs().run(&caller, AbortUpload { name })).unwrap();
    client.call("HEAD", &upload, &[TUS], b"").expect(404);
    patch(&client, &upload, STEP, &pattern(STEP)).expect(404);
}
