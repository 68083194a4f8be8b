//! `--config FILE` and `cairn config`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Server, cairn, directory, free_ports, run};

const ROLES: [&str; 6] = ["server", "node", "master", "chunkserver", "gateway", "mount"];

fn written(directory: &Path, text: &str) -> PathBuf {
    let file = directory.join("cairn.toml");
    fs::write(&file, text).unwrap();
    file
}

fn example(role: &str) -> String {
    let (code, stdout, stderr) = run(&mut cairn(&["config", "example", role]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    stdout
}

/// The faults that `cairn config check` tells.
fn faults(file: &Path) -> String {
    let (code, stdout, stderr) = run(&mut cairn(&["config", "check", file.to_str().unwrap()]));
    assert_eq!(code, i32::from(!stdout.is_empty() || !stderr.is_empty()), "{stdout}{stderr}");
    stdout + &stderr
}

/// The options that have a default, each in a section of its own.
fn with_defaults(example: &str, role: &str) -> Vec<String> {
    let is_kind = |value: &str| value == "[]" || value.chars().any(|c| c.is_ascii_uppercase());
    let lines = example.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
    let given = lines.filter(|(key, value)| !key.contains(' ') && !is_kind(value));
    given.map(|(key, value)| format!("[{role}]\n{key} = {value}\n")).collect()
}

#[test]
fn an_example_has_every_option_and_is_right() {
    let (place, _) = directory();
    for role in ROLES {
        let text = example(role);
        assert_eq!(faults(&written(place.path(), &text)), "", "{role}");
        let defaults = with_defaults(&text, role);
        assert!(defaults.len() > 3, "{role}: {defaults:?}");
        for text in defaults {
            let told = faults(&written(place.path(), &text));
            // Some have a meaning beside others only.
            assert!(told.is_empty() || told.contains("were not provided"), "{text}: {told}");
        }
        let (_, help, _) = run(&mut cairn(&[role, "--help"]));
        let options = help.lines().filter_map(|line| {
            let words = line.trim_start().trim_start_matches("-f, ").trim_start_matches("-h, ");
            words.trim_start_matches("-V, ").strip_prefix("--")
        });
        let names = options.map(|rest| rest.split([' ', '=']).next().unwrap());
        let names: Vec<&str> =
            names.filter(|name| !["help", "version", "config", "join"].contains(name)).collect();
        assert!(names.len() > 5, "{role}: {help}");
        for name in names {
            let is_there = [format!("\n#{name} = "), format!("\n#{name}-file = ")]
                .iter()
                .any(|key| text.contains(key));
            assert!(is_there, "{role} {name}: {text}");
        }
    }
}

/// `docs/configuration.md` and the files of packages are what `cairn config example` prints.
#[test]
fn documents_and_packages_have_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let book = fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    for role in ROLES {
        let text = example(role);
        assert!(book.contains(&format!("```toml\n{text}```")), "docs/configuration.md: [{role}]");
        if role != "mount" {
            let packed = fs::read_to_string(root.join(format!("contrib/etc/{role}.toml"))).unwrap();
            assert_eq!(packed, text, "contrib/etc/{role}.toml");
        }
    }
}

/// `cairn node` reads the sections of its roles, and decides some of their options.
#[test]
fn a_machine_reads_the_sections_of_its_roles() {
    let (place, dir) = directory();
    let file = place.path().join("node.toml");
    for (section, said) in [
        ("[gateway]\ns3 = '127.0.0.1:1'", "[gateway] has s3, which `cairn node` decides"),
        ("[master]\ndir = '/srv'", "[master] has dir, which `cairn node` decides"),
        ("[chunkserver]\nscrub-days = 'x'", "invalid value 'x' for '--scrub-days <N>'"),
        ("[gateway]\nconsoel = 'x'", "did you mean console?"),
    ] {
        fs::write(&file, format!("[node]\naddress = '127.0.0.1'\n{section}\n")).unwrap();
        let (code, _, err) = run(cairn(&["node"]).arg(&dir).arg("--config").arg(&file));
        assert_eq!(code, 2, "{section}: {err}");
        assert!(err.contains(said), "{section}: {err}");
        assert!(!dir.exists(), "{section}: nothing is made");
    }
}

#[test]
fn faults_are_named() {
    let (place, _) = directory();
    let secret = place.path().join("none");
    let secret = format!("[server]\nmeta-file = {:?}", secret.to_str().unwrap());
    for (text, said) in [
        ("[server]\nchace-mib = 5", "[server] there is no key chace-mib: did you mean cache-mib?"),
        ("[server]\nxyzzy = 5", "[server] there is no key xyzzy"),
        ("[server]\nconfig = 'x'", "there is no key config"),
        ("[servr]\n", "there is no role [servr]: did you mean server?"),
        ("s3 = '127.0.0.1:1'", "s3 is in no section"),
        ("server = 3", "server is a section: write [server]"),
        ("", "there is no section"),
        ("[server]\ns3 = 'x'", "invalid value 'x' for '--s3 <ADDR>'"),
        ("[server]\ns3 = ['127.0.0.1:1']", "s3 has one value"),
        ("[server]\ns3 = {}", "s3 is a text or a number"),
        ("[server]\nnfs-groups = 'yes'", "nfs-groups is true or false"),
        ("[server]\nnfs-groups = true", "--nfs <ADDR>"),
        ("[server]\ncache-mib = 0", "cache-mib"),
        ("[server]\nmeta = 'postgres://u:MARK@h/d'", "meta is a secret: write it into a file"),
        (secret.as_str(), "meta-file: "),
        ("[server]\ns3 = \n", "line 2: "),
        ("[gateway]\n[server]\nfoo-bar = 1", "[server] there is no key foo-bar"),
    ] {
        let told = faults(&written(place.path(), text));
        assert!(told.contains(said), "{text}: {told}");
        assert!(told.contains("cairn.toml: ") && !told.contains("MARK"), "{text}: {told}");
    }
    assert!(faults(&place.path().join("missing")).contains("missing: "));
}

#[test]
fn every_fault_of_a_file_is_named_at_once() {
    let (place, _) = directory();
    let text = "[server]\nhttpp = 'x'\ns3 = 9000\nhttp = 'y'\ntls-cert = '/nosuch.pem'\n\
                [gatewy]\n[mount]\nca = '/nosuch-ca.pem'\n";
    let told = faults(&written(place.path(), text));
    for said in [
        "[server] there is no key httpp: did you mean http?",
        "invalid value '9000' for '--s3 <ADDR>'",
        "invalid value 'y' for '--http <ADDR>'",
        "were not provided: --tls-key <FILE>",
        "[server] tls-cert: /nosuch.pem: No such file or directory",
        "there is no role [gatewy]: did you mean gateway?",
        "[mount] ca: /nosuch-ca.pem: No such file",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert_eq!(told.lines().filter(|line| line.contains("cairn.toml: ")).count(), 7, "{told}");
}

#[test]
fn files_that_a_role_reads_must_be_there() {
    let (place, _) = directory();
    let file = |name: &str, text: &str| {
        fs::write(place.path().join(name), text).unwrap();
        place.path().join(name).to_str().unwrap().to_owned()
    };
    let (cert, empty) = (file("cert.pem", "x"), file("empty.pem", ""));
    let of = |cert: &str, key: &str| {
        let text =
            format!("[server]\ntls-cert = {cert:?}\ntls-key = {key:?}\naudit-log = '/new'\n");
        faults(&written(place.path(), &text))
    };
    assert_eq!(of(&cert, &cert), "");
    let told = of("/nosuch", "/nosuch");
    assert!(told.contains("tls-cert: /nosuch: ") && told.contains("tls-key: /nosuch: "), "{told}");
    assert!(of(&cert, &empty).contains("the file is empty"));
    assert!(of(&cert, place.path().to_str().unwrap()).contains("not a plain file"));
}

#[test]
fn a_command_line_goes_before_the_environment_before_the_file() {
    let (place, store) = directory();
    let [port, other] = free_ports::<2>();
    let secret = place.path().join("secret");
    fs::write(&secret, "the-secret-of-the-file\n").unwrap();
    let file = written(
        place.path(),
        &format!(
            "[server]\ndir = {:?}\ns3 = \"127.0.0.1:{port}\"\nhttp = \"127.0.0.1:{other}\"\n\
             console = \"off\"\nlog = \"=nonsense=\"\ncache-mib = 8\nroot-key = \"of-the-file\"\n\
             root-secret-file = {:?}\ndomain = [\"a.example\", \"b.example\"]\n",
            store.to_str().unwrap(),
            secret.to_str().unwrap()
        ),
    );
    let mut command = cairn(&["server", "--http", "127.0.0.1:0", "--config"]);
    command.arg(&file).env("CAIRN_LOG", "info");
    let server = Server::spawn(command);
    assert_eq!(server.s3, format!("http://127.0.0.1:{port}"));
    assert!(!server.http.ends_with(&format!(":{other}")), "{}", server.http);
    let mut listed = server.anonymous(&["bucket", "ls"]);
    listed.env("CAIRN_KEY", "of-the-file").env("CAIRN_SECRET", "the-secret-of-the-file");
    let (code, _, stderr) = run(&mut listed);
    assert_eq!(code, 0, "{stderr}");
    assert!(server.stderr.lock().unwrap().contains("options were read from a file"));
    assert_eq!(server.stop(), 0);
    // The same by the environment, and what is wrong is said of the file.
    let mut command = cairn(&["server"]);
    let (code, _, stderr) = run(command.env("CAIRN_CONFIG", &file));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("=nonsense="), "{stderr}");
    let file = written(place.path(), "[server]\ns3 = \"nowhere\"\n");
    let (code, _, stderr) = run(cairn(&["server", "x", "--config"]).arg(&file));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("cairn.toml: [server] invalid value 'nowhere'"), "{stderr}");
    let (code, _, stderr) = run(cairn(&["gateway", "x", "--config"]).arg(&file));
    assert_eq!(code, 1);
    assert!(stderr.contains("cairn.toml: has no section [gateway]"), "{stderr}");
}
