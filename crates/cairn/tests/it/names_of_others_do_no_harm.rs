use std::fs;

use crate::support::{Server, directory, run};

/// An object whose name cannot be that of a file here is left out, all others are fetched.
#[test]
fn they_stop_no_download() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    // As long as a name can be.
    let long = format!("dir/{}", "n".repeat(255));
    for key in ["a", "dir/b", "dir2/c", "zz", &long] {
        assert!(server.put(&format!("photos/{key}"), b"x"), "{key}");
    }
    let target = directory.path().join("got");
    // A file that stands where a directory should be is in the way of one object only.
    fs::create_dir_all(&target).unwrap();
    fs::write(target.join("dir2"), "mine").unwrap();
    let get = ["get", "-r", "photos", target.to_str().unwrap()];
    let (code, _, stderr) = run(&mut server.client(&get));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("dir2"), "{stderr}");
    assert!(stderr.contains("1 object was left out, all others are fetched"), "{stderr}");
    for name in ["a", "dir/b", "zz", &long] {
        assert_eq!(fs::read(target.join(name)).unwrap(), b"x", "{name}");
    }
    assert_eq!(fs::read(target.join("dir2")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 4);
    fs::remove_file(target.join("dir2")).unwrap();
    server.ok(&get);
    assert_eq!(fs::read(target.join("dir2/c")).unwrap(), b"x");
}
