use cairn_auth::Caller;
use cairn_fs::ops::user_limits::ListUserLimits;
use cairn_fs::rows::UserLimits;

use crate::harness::{Browser, Reply, Rig};

/// The value of a field that is shown once.
fn once(reply: &Reply, id: &str) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let field = reply.body.split(&format!("<input id=\"{id}\"")).nth(1).unwrap();
    field.split("value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

fn logs_in(rig: &Rig, made: &Reply) -> Option<Browser> {
    let mut browser = rig.browser();
    let (id, secret) = (once(made, "access-key"), once(made, "secret-key"));
    let secret = secret.replace('+', "%2B").replace('/', "%2F");
    (browser.log_in(&id, &secret).status == 303).then_some(browser)
}

#[test]
fn root_makes_users_and_keys_and_disables_them() {
    let rig = Rig::start();
    let mut root = rig.root();
    let made = root.post("/people", "user=bob&new=yes");
    let mut bob = logs_in(&rig, &made).unwrap();
    assert_eq!(root.post("/people", "user=bob&new=yes").status, 409, "there is one");
    assert_eq!(root.post("/people", "user=nobody").status, 404, "no user is made by the way");
    assert_eq!(root.post("/people", "user=a%2Fb&new=yes").status, 400);
    let record = rig.audited(r#""operation":"MakeKey","outcome":"done""#);
    assert!(record.contains("of bob") && !record.contains(&once(&made, "secret-key")), "{record}");
    assert!(root.get("/people").body.contains("/person?name=bob"));
    let second = root.post("/people", "user=bob");
    assert!(logs_in(&rig, &second).is_some());
    let id = once(&second, "access-key");
    assert!(root.get("/person?name=bob").body.contains(&id));
    assert!(root.post("/end-key", &format!("id={id}&user=bob")).body.contains("cannot be undone"));
    assert!(logs_in(&rig, &second).is_some(), "nothing before it is confirmed");
    root.post("/end-key", &format!("id={id}&user=bob&confirm=yes"));
    assert!(logs_in(&rig, &second).is_none());

    root.post("/buckets", "name=shared");
    assert_eq!(root.post("/grant", "user=bob&bucket=shared&right=read").status, 303);
    assert_eq!(bob.get("/b/shared").status, 200);
    assert!(root.get("/person?name=bob").body.contains("/b/shared/settings"));
    root.post("/grant", "user=bob&bucket=shared");
    assert_eq!(bob.get("/b/shared").status, 403);

    assert!(root.post("/disable", "user=bob&disabled=yes").body.contains("Disable bob?"));
    assert!(bob.is_logged_in());
    root.post("/disable", "user=bob&disabled=yes&confirm=yes");
    assert!(!bob.is_logged_in() && logs_in(&rig, &made).is_none());
    root.post("/disable", "user=bob&disabled=no");
    assert!(logs_in(&rig, &made).is_some());
    assert_eq!(root.post("/disable", "user=root&disabled=yes&confirm=yes").status, 409);
}

#[test]
fn only_root_manages_people() {
    let rig = Rig::start();
    let mut alice = rig.user("alice");
    let home = alice.get("/").body;
    assert!(!home.contains("/people") && home.contains("\"/keys\""));
    for target in ["/people", "/person?name=root"] {
        assert_eq!(alice.get(target).status, 403, "{target}");
    }
    for (target, form) in [
        ("/people", "user=eve&new=yes"),
        ("/end-key", &format!("id={}&confirm=yes", rig.root.id)),
        ("/disable", "user=root&disabled=yes&confirm=yes"),
        ("/disable", "user=alice&disabled=no"),
        ("/limits", "user=alice&requests=&bytes="),
    ] {
        assert_eq!(alice.post(target, form).status, 403, "{target} {form}");
    }
    assert_eq!(alice.get("/shares?all=yes").status, 403);
}

#[test]
fn root_limits_users() {
    let rig = Rig::start();
    let mut root = rig.root();
    rig.user("bob");
    assert!(root.get("/person?name=bob").body.contains("There are none."));
    assert_eq!(root.post("/limits", "user=bob&requests=1200&bytes=10+MiB").status, 303);
    let record = rig.audited(r#""operation":"LimitPerson","outcome":"done""#);
    assert!(record.contains("1200 requests and 10485760 bytes a second of bob"), "{record}");
    let kept = || rig.runtime.block_on(rig.fs().read(&Caller::system(), ListUserLimits)).unwrap();
    let limits = UserLimits { requests: 1200, bytes: 10 << 20 };
    assert_eq!(kept(), [("bob".to_owned(), limits)]);
    let page = root.get("/person?name=bob").body;
    for text in ["1,200 requests a second", "10.0 MiB a second", "\"1200\"", "\"10485760\""] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for (form, status) in [
        ("user=bob&requests=many", 400),
        ("user=bob&bytes=1k", 400),
        ("user=nobody&requests=1", 404),
        ("user=root&requests=1", 409),
    ] {
        assert_eq!(root.post("/limits", form).status, status, "{form}");
    }
    assert_eq!(kept().len(), 1);
    root.post("/limits", "user=bob&requests=&bytes=");
    assert_eq!(kept(), []);
    // Nobody limits root.
    assert!(!root.get("/person?name=root").body.contains("/limits"));
}

#[test]
fn everybody_makes_and_ends_their_own_keys() {
    let rig = Rig::start();
    let (mut alice, mut bob) = (rig.user("alice"), rig.user("bob"));
    let made = alice.post("/keys", "");
    let id = once(&made, "access-key");
    let mut second = logs_in(&rig, &made).unwrap();
    let page = alice.get("/keys").body;
    assert!(page.contains(&id) && page.contains("this login") && !page.contains("KEY-bob"));
    for other in [&*id, "KEY-alice", &rig.root.id] {
        let ended = bob.post("/end-own-key", &format!("id={other}&confirm=yes"));
        assert_eq!(ended.status, 404, "{other}");
    }
    assert!(alice.post("/end-own-key", &format!("id={id}")).body.contains("cannot be undone"));
    assert!(second.is_logged_in());
    alice.post("/end-own-key", &format!("id={id}&confirm=yes"));
    assert!(!second.is_logged_in() && alice.is_logged_in());
    let record = rig.audited(r#""operation":"EndOwnKey","outcome":"done""#);
    assert!(record.contains(&id) && record.contains(r#""credential":"KEY-alice""#), "{record}");
    for _ in 0..31 {
        assert_eq!(alice.post("/keys", "").status, 200);
    }
    assert_eq!(alice.post("/keys", "").status, 413, "a user has a few of them");
}

#[test]
fn links_are_made_shown_and_ended() {
    let rig = Rig::start();
    let (mut root, mut alice) = (rig.root(), rig.user("alice"));
    root.post("/buckets", "name=photos");
    root.post("/b/photos/folders", "in=&name=trip");
    assert_eq!(alice.post("/b/photos/share", "key=trip%2F&expires=60").status, 403);
    assert!(root.get("/b/photos/share?key=trip%2F").body.contains("only add files"));
    let made = root.post("/b/photos/share", "key=trip%2F&expires=3600&password=x&downloads=2");
    let address = once(&made, "address");
    assert!(address.starts_with("https://files.example/s/"), "{address}");
    let record = rig.audited(r#""operation":"MakeShareLink","outcome":"done""#);
    let token = address.split("/s/").nth(1).unwrap().trim_end_matches('/');
    assert!(!record.contains(token) && record.contains("share link"), "{record}");
    let taking = "key=trip%2F&expires=60&purpose=take&files=3&bytes=1+MiB";
    once(&root.post("/b/photos/share", taking), "address");
    for bad in [
        "key=trip%2F&expires=60&purpose=take&downloads=1",
        "key=trip%2F&expires=60&files=1",
        "key=trip%2F&expires=60&downloads=0",
        "key=trip%2F&expires=99999999999",
        "key=trip%2F&expires=60&purpose=other",
        "key=trip%2F&expires=60&downloads=many",
    ] {
        assert_eq!(root.post("/b/photos/share", bad).status, 400, "{bad}");
    }
    assert_eq!(root.post("/b/photos/share", "key=none&expires=60").status, 404);
    let page = root.get("/shares").body;
    assert!(page.contains("0 of 3 files") && page.contains("0 of 2") && page.contains("password"));
    assert!(!page.contains(token));
    assert!(!alice.get("/shares").body.contains("photos"));
    let id = page.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(alice.post("/end-share", &format!("id={id}&confirm=yes")).status, 403);
    assert!(root.post("/end-share", &format!("id={id}")).body.contains("cannot be undone"));
    root.post("/end-share", &format!("id={id}&confirm=yes"));
    assert!(!root.get("/shares").body.contains(id));
    let zip = root.post("/b/photos/zip", "in=trip%2F");
    assert!(zip.body.contains("https://files.example/s/") && zip.body.contains("/?zip\""));
}
