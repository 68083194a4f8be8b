//! Bytes on the disk that do not check out any more.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::http_harness::Server;
use crate::http_objects_are_what_was_put::pattern;

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Flips a bit of the first file below `dir` that has `needle` in it, right there.
pub fn damage(dir: &Path, needle: &[u8]) {
    for path in files(dir) {
        let data = std::fs::read(&path).unwrap();
        if let Some(at) = data.windows(needle.len()).position(|window| window == needle) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            return file.write_all_at(&[needle[0] ^ 1], at as u64).unwrap();
        }
    }
    panic!("the bytes are not on the disk");
}

#[test]
fn the_connection_breaks_off() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let data = pattern(3 << 20);
    for (path, at) in [("/storage/bucket/late", 2_500_000), ("/storage/bucket/early", 100)] {
        // A needle of its own, so that each object is damaged once.
        let mut data = data.clone();
        let needle = format!("needle of {path}");
        data[at..at + needle.len()].copy_from_slice(needle.as_bytes());
        root.put(path, &data).expect(201);
        damage(server.dir.path(), needle.as_bytes());
        let mut connection = root.connect();
        connection.send(&root.head("GET", path, &[], None));
        assert!(connection.try_reply("GET").is_none(), "{path}: no whole reply");
        connection.wait_closed();
        // The undamaged parts can still be read.
        let got = root.get_with(path, &[("Range", "bytes=1000000-1000999")]).expect(206);
        assert!(got.body == data[1_000_000..1_001_000]);
    }
    let log = server.log.text();
    assert!(log.contains("ERROR") && log.contains("corrupt"), "{log}");
    let text = root.get("/metrics").text();
    assert!(text.contains(r#"cairn_requests_total{door="http",verb="get",status="5xx"} 2"#));
}
