use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Server, cairn, directory, run};

fn cert(args: &[&str]) -> (i32, String) {
    let (code, _, stderr) = run(&mut cairn(&[&["cert"], args].concat()));
    (code, stderr)
}

#[test]
fn a_server_with_one_is_trusted_by_clients_of_its_authority_and_by_no_others() {
    let (directory, store) = directory();
    let tls = directory.path().join("tls");
    let file = |name: &str| tls.join(name).to_str().unwrap().to_owned();
    let dir = tls.to_str().unwrap();
    let (code, said) = cert(&["server", dir, "localhost"]);
    assert!(code == 1 && said.contains("cairn cert ca"), "{said}");
    assert_eq!(cert(&["ca", dir]).0, 0);
    assert_eq!(cert(&["server", dir, "localhost", "127.0.0.1"]).0, 0);
    let mode = |name: &str| fs::metadata(file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca.key"), mode("server.key")), (0o600, 0o600));
    // Clients read it, whoever made it.
    assert_eq!((mode("ca.pem"), mode("")), (0o644, 0o755));
    let before = fs::read(file("ca.pem")).unwrap();
    for (again, remedy) in [
        (&["ca", dir][..], "no certificate that this one has signed is trusted any more"),
        (&["server", dir, "localhost"], "say --replace"),
    ] {
        let (code, said) = cert(again);
        assert!(code == 1 && said.contains("is there already"), "{said}");
        assert!(said.contains(remedy) && !said.contains("remove"), "{said}");
    }
    assert_eq!(fs::read(file("ca.pem")).unwrap(), before);
    let server = Server::start(
        &store,
        &["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")],
    );
    server.ok(&["bucket", "ls", "--ca", &file("ca.pem")]);
    let other = directory.path().join("other");
    let other = other.to_str().unwrap();
    assert_eq!(cert(&["ca", other]).0, 0);
    let ca = Path::new(other).join("ca.pem");
    let said = server.fails(&["bucket", "ls", "--ca", ca.to_str().unwrap()]);
    assert!(said.contains("an authority that is not trusted here"), "{said}");
    assert_eq!(cert(&["server", dir, "elsewhere.example", "--replace"]).0, 0);
}
