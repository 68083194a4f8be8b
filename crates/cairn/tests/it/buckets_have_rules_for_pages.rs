use std::fs;

use crate::support::{Server, directory};

#[test]
fn rules_are_set_shown_and_removed() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "www"]);
    let shown = || -> serde_json::Value {
        serde_json::from_str(&server.ok(&["bucket", "cors", "www"])).unwrap()
    };
    assert_eq!(shown(), serde_json::json!({ "rules": [] }));
    let file = directory.path().join("rules.json");
    let path = file.to_str().unwrap();
    let set = ["bucket", "cors", "www", "--set", path];
    let origin = "https://*.example.com";
    let rules = format!(r#"{{"rules":[{{"origins":["{origin}"],"methods":["GET"]}}]}}"#);
    fs::write(&file, rules).unwrap();
    server.ok(&set);
    assert_eq!(shown()["rules"][0]["origins"][0], origin);
    for (bad, remedy) in [
        ("{", "not JSON"),
        (r#"{"rules":[{"origins":["*"],"methods":["PATCH"]}]}"#, "use GET, PUT"),
        (r#"{"rules":[{"origins":["null"],"methods":["GET"]}]}"#, "https://*.example.com, or *"),
    ] {
        fs::write(&file, bad).unwrap();
        let said = server.fails(&set);
        assert!(said.contains(remedy), "{said}");
    }
    fs::remove_file(&file).unwrap();
    assert!(server.fails(&set).contains("rules.json"));
    assert_eq!(shown()["rules"][0]["origins"][0], origin);
    server.ok(&["bucket", "cors", "www", "--delete"]);
    assert_eq!(shown(), serde_json::json!({ "rules": [] }));
}
