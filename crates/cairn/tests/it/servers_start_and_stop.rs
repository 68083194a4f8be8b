use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Server, directory, run, server_command, wait_for};

#[test]
fn a_server_stops_in_order_and_starts_again() {
    let (_directory, store) = directory();
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&store, &[]);
        assert!(server.s3.starts_with("http://127.0.0.1:"));
        server.ok(&["bucket", "ls"]);
        server.signal(signal);
        assert_eq!(server.wait(), 0);
        wait_for(&server.stderr, "stopped");
    }
    let mode = |name: &str| fs::metadata(store.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("secret.key"), 0o600);
    assert_eq!((mode("meta"), mode("format")), (0o700, 0o600));
    assert_eq!(mode("meta/rows.redb"), 0o600);
}

#[test]
fn a_directory_in_use_is_refused() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    let (code, stdout, stderr) = run(&mut server_command(&store, &[]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    let pid = format!("in use by another cairn (pid {})", server.pid());
    assert!(stderr.contains(&pid), "{stderr}");
    let (code, _, stderr) = run(&mut crate::support::cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 1);
    assert!(stderr.contains(&pid), "{stderr}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_socket_in_use_is_said_so() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    let address = server.s3.trim_start_matches("http://");
    let mut second = crate::support::cairn(&["server"]);
    second.arg(store.with_file_name("other")).args(["--s3", address, "--http", "127.0.0.1:0"]);
    let (code, _, stderr) = run(&mut second);
    assert_eq!(code, 1);
    assert!(stderr.contains(address) && stderr.contains("in use"), "{stderr}");
}

#[test]
fn listening_beyond_this_machine_without_tls_is_warned_of() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &["--http", "0.0.0.0:0"]);
    wait_for(&server.stderr, "WITHOUT TLS");
    assert_eq!(server.stderr.lock().unwrap().matches("WITHOUT TLS").count(), 1);
}

#[test]
fn tls_is_spoken_and_its_certificate_reloaded() {
    let (directory, store) = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let write = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(path("cert.pem"), made.cert.pem()).unwrap();
        fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    };
    write();
    let args = ["--tls-cert", &path("cert.pem"), "--tls-key", &path("key.pem")];
    let server = Server::start(&store, &args);
    assert!(server.http.starts_with("https://127.0.0.1:"), "{}", server.http);
    let url = server.http.replace("127.0.0.1", "localhost");
    let client = |ca: &str| run(&mut server.client(&["ls", "--server", &url, "--ca", ca]));
    let (code, _, stderr) = client(&path("cert.pem"));
    assert_eq!(code, 0, "{stderr}");
    fs::copy(path("cert.pem"), path("old.pem")).unwrap();
    write();
    server.signal("HUP");
    wait_for(&server.stderr, "certificate reloaded");
    assert_eq!(client(&path("cert.pem")).0, 0);
    assert_eq!(client(&path("old.pem")).0, 1);
    assert_eq!(client(&path("key.pem")).0, 1);
}

#[test]
fn both_doors_answer() {
    use std::io::{Read, Write};
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    let ask = |url: &str, path: &str| {
        let address = url.trim_start_matches("http://");
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let s3 = ask(&server.s3, "/");
    assert!(s3.starts_with("HTTP/1.1 403") && s3.contains("<Code>AccessDenied"), "{s3}");
    for path in ["/healthz", "/readyz", "/metrics"] {
        let http = ask(&server.http, path);
        assert!(http.starts_with("HTTP/1.1 200"), "{path}: {http}");
    }
}
