use std::fs;

use crate::support::{Server, cairn, directory, run};

/// Runs a benchmark that must fail: its one line.
fn fails(args: &[&str], code: i32) -> String {
    let (got, stdout, stderr) = run(&mut cairn(&[&["bench"], args].concat()));
    assert_eq!(got, code, "{args:?}: {stdout}{stderr}");
    stderr
}

#[test]
fn senseless_command_lines_and_targets_are_refused_with_the_remedy() {
    for (args, remedy) in [
        (&["http", "http://127.0.0.1:1/", "--concurrency", "0,x"][..], "write a list as in 1,2,4"),
        (&["http", "127.0.0.1:8080"], "begin with http://"),
        (&["http", "http://127.0.0.1:1/", "--compare", "x"], "NAME=TARGET"),
        (&["http", "http://127.0.0.1:1/", "--tls", "on"], "--tls-port"),
        (&["rate", "http://127.0.0.1:1/", "--target", "fast"], "p99=20ms"),
        (&["fs", "/tmp", "--size", "4e9q"], "is not a size"),
        (&["s3", "http://127.0.0.1:1", "--ops", "mixed", "--mix", "get"], "get=70,put=30"),
    ] {
        let line = fails(args, 2);
        assert!(line.contains(remedy), "{args:?}: {line}");
    }
    for (args, remedy) in [
        (&["http", "http://127.0.0.1:1/"][..], "check the address"),
        (&["http", "http://no-such-host.invalid/"], "check the name"),
        (&["s3", "http://127.0.0.1:1", "--bucket", "b"], "check the address"),
        (&["fs", "/nonexistent/here"], "give a directory that exists"),
        (&["fs", "/tmp", "--size", "4000t", "--loads", "write"], "free some"),
        (&["diff", "/nonexistent", "/nonexistent"], "/nonexistent"),
    ] {
        let line = fails(args, 1);
        assert!(line.contains(remedy) && line.lines().count() == 1, "{args:?}: {line}");
    }
}

#[test]
fn s3_is_measured_and_left_as_it_was() {
    let (place, store) = directory();
    let server = Server::start(&store, &[]);
    let json = place.path().join("s3.json");
    let json = json.to_str().unwrap();
    let ops = "put,get,head,list,delete,mixed,multipart,ranged";
    let args = ["bench", "s3", &server.s3, "--ops", ops, "--sizes", "1k..4k", "--objects", "20"];
    let time = ["-d", "200ms", "--warm-up", "0s", "-r", "1", "-c", "2"];
    let parts = ["--object", "20m", "--parts", "8m", "--json", json];
    let shown = server.ok(&[&args[..], &time, &parts].concat());
    assert!(shown.contains("multipart PUT of 20 MiB, 8 MiB each"), "{shown}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["schema"], "cairn-bench/1");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 8);
    for cell in cells {
        assert!(cell["latency"]["count"].as_u64().unwrap() > 0, "{cell}");
        assert_eq!(cell["errors"], serde_json::json!({}), "{cell}");
    }
    // In 8 MiB each: three parts, and three ranges.
    for cell in &cells[6..] {
        assert_eq!(cell["latency"]["count"], 3, "{cell}");
    }
    assert_eq!(server.ok(&["bucket", "ls"]).trim(), "", "no bucket is left");
    let same = server.ok(&["bench", "diff", json, json]);
    assert!(same.contains("within noise") && !same.contains("worse"), "{same}");
    let mut command = server.client(&["bench", "s3", &server.s3]);
    let (code, _, stderr) = run(command.env("CAIRN_SECRET", "wrong"));
    assert!(code == 1 && stderr.contains("check key, secret"), "{stderr}");
}

#[test]
fn files_are_measured_beside_others_and_removed() {
    let (place, _) = directory();
    let (one, two) = (place.path().join("one"), place.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    let html = place.path().join("fs.html");
    let (one, two, page) = (one.to_str().unwrap(), two.to_str().unwrap(), html.to_str().unwrap());
    let args = ["bench", "fs", one, "--beside", two, "--size", "2m", "--files", "10", "-j", "1,2"];
    let (code, stdout, stderr) =
        run(&mut cairn(&[&args[..], &["-d", "100ms", "-r", "1", "--html", page]].concat()));
    assert_eq!(code, 0, "{stderr}");
    for what in ["write in sequence", "read at random", "unlink files", "serve files of 93 KiB"] {
        assert!(stdout.contains(what), "{what}: {stdout}");
    }
    for directory in [one, two] {
        assert_eq!(fs::read_dir(directory).unwrap().count(), 0, "{directory}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && !page.contains("<script") && !page.contains("NaN"));
    assert!(!page.contains("src=") && !page.contains("href="));
}

#[test]
fn a_ramp_finds_the_rate_and_what_put_made_is_deleted() {
    let (_place, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "open", "--visibility", "public"]);
    assert!(server.put("open/x", b"hello"));
    let url = format!("{}/storage/open/x", server.http);
    let rates = ["--rates", "20,40", "-d", "500ms", "--target", "p50=10s"];
    let shown = server.ok(&[&["bench", "rate", &url][..], &rates].concat());
    assert!(shown.contains("the highest rate with p50 of at most 10s: 40"), "{shown}");
    let puts = server.http.replace("://", "://test-key:test-secret-0123456789@");
    let puts = format!("{puts}/storage/open/put-{{n}}");
    let time = ["-d", "200ms", "--warm-up", "0s", "-r", "1", "-c", "3"];
    let shown =
        server.ok(&[&["bench", "http", &puts, "-X", "PUT", "--body", "1k"][..], &time].concat());
    assert!(!shown.contains("test-secret"), "{shown}");
    assert_eq!(server.ok(&["ls", "open"]).lines().count(), 1, "only x is left");
    let private = server.http.clone() + "/storage/c/x";
    let line = fails(&["http", &private], 1);
    assert!(line.contains("give credentials") || line.contains("check the path"), "{line}");
}
