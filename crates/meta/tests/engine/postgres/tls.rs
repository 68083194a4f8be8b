//! Encryption on the way to the database.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use cairn_meta::engine::Postgres;

use super::server::Server;
use crate::support::{all, commit, put};

/// Gives the server a certificate made out to `name`, and returns it.
fn certify(server: &Server, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let owner = fs::metadata(server.data()).unwrap();
    use std::os::unix::fs::MetadataExt;
    for (file, text) in
        [("server.crt", made.cert.pem()), ("server.key", made.signing_key.serialize_pem())]
    {
        let file = server.data().join(file);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
    made.cert.pem()
}

#[test]
fn connections_are_encrypted_and_verified() {
    let Some(server) = Server::start(&[]) else { return };
    let open = |query: &str| {
        Postgres::open(&server.config_at(server.port(), "cairn", query)).map(|engine| {
            commit(&engine, vec![put("a", "1")]);
            let used = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE ssl AND application_name = 'cairn'";
            assert_eq!(all(&engine).len(), 1);
            server.sql(used)
        })
    };
    let refused = |query: &str| open(query).err().unwrap().to_string();
    assert_eq!(open("sslmode=prefer").unwrap(), "0");
    let text = refused("sslmode=require");
    assert!(text.contains("TLS"), "{text}");
    let certificate = certify(&server, "127.0.0.1");
    let roots = server.data().with_file_name("roots.pem");
    fs::write(&roots, certificate).unwrap();
    let verify = format!("sslmode=verify-full&sslrootcert={}", roots.display());
    for query in ["", "sslmode=prefer", "sslmode=require", &verify] {
        // The server reads its certificate when it gets to it.
        while open(query).unwrap() != "2" {
            std::thread::yield_now();
        }
    }
    assert_eq!(open("sslmode=disable").unwrap(), "0");
    // Signed by nobody known, and made out to somebody else.
    let other = certify(&server, "other.example");
    while !refused(&verify).contains("TLS") {}
    fs::write(&roots, other).unwrap();
    let text = refused(&verify);
    assert!(text.contains("TLS"), "{text}");
    fs::write(&roots, "nothing").unwrap();
    let text = refused(&verify);
    assert!(text.contains("roots.pem"), "{text}");
}
