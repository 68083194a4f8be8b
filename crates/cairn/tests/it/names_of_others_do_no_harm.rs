use std::fs;
use std::io::Read;
use std::net::TcpStream;

use crate::support::{KEY, SECRET, Server, directory, run};

/// Makes an object through the HTTP door under any name that it takes.
fn put_raw(server: &Server, path: &str) {
    use base64::Engine as _;
    use std::io::Write;
    let address = server.http.strip_prefix("http://").unwrap();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{KEY}:{SECRET}"));
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {basic}\r\n\
         Content-Length: 1\r\nConnection: close\r\n\r\nx"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 201"), "{path}: {reply}");
}

/// Keys that are no names of files are left out, all others are there.
#[test]
fn they_stop_no_download() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let long = "n".repeat(255);
    for key in ["a", "dir/b", "zz", &format!("dir/{long}")] {
        assert!(server.put(&format!("photos/{key}"), b"x"), "{key}");
    }
    for key in ["x//y", "//"] {
        put_raw(&server, &format!("/storage/photos/{key}z"));
    }
    put_raw(&server, &format!("/storage/photos/{}", "m".repeat(300)));
    let target = directory.path().join("got");
    // A file that stands where a directory should be is in the way of one object only.
    fs::create_dir_all(&target).unwrap();
    fs::write(target.join("dir2"), "mine").unwrap();
    assert!(server.put("photos/dir2/c", b"x"));
    let (code, _, stderr) =
        run(&mut server.client(&["get", "-r", "photos", target.to_str().unwrap()]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("4 objects were left out, all others are fetched"), "{stderr}");
    assert!(stderr.contains("x//yz"), "{stderr}");
    for name in ["a", "dir/b", "zz", &format!("dir/{long}")] {
        assert_eq!(fs::read(target.join(name)).unwrap(), b"x", "{name}");
    }
    assert_eq!(fs::read(target.join("dir2")).unwrap(), b"mine");
    let entries: Vec<_> = fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(entries.len(), 4, "{entries:?}");
}
