use crate::harness::{Browser, Rig};
use cairn_auth::Caller;
use cairn_fs::PutRequest;
use cairn_fs::ops::mkdir::Mkdir;

fn put(rig: &Rig, bucket: &str, key: &str, text: &str) {
    rig.runtime.block_on(async {
        let (fs, caller) = (rig.fs(), Caller::system());
        let mut writer = fs.begin(&caller, bucket).await.unwrap();
        writer.push(text.to_owned().into()).await.unwrap();
        let written = writer.finish().await.unwrap();
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let request = PutRequest { bucket, key, ..PutRequest::default() };
        fs.put_object(&caller, request, written).await.unwrap();
    });
}

/// The text of an object, if there is one.
fn text(rig: &Rig, bucket: &str, key: &str) -> Option<String> {
    rig.runtime.block_on(async {
        let object = rig.fs().open(&Caller::system(), bucket, key).await.ok()?;
        let bytes = object.read_now(0..object.size())?;
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    })
}

fn bucket(rig: &Rig, root: &mut Browser, name: &str, keys: &[&str]) {
    assert_eq!(root.post("/buckets", &format!("name={name}")).status, 303);
    for key in keys {
        put(rig, name, key, key);
    }
}

#[test]
fn files_and_folders_are_copied_moved_and_renamed() {
    let rig = Rig::start();
    let mut root = rig.root();
    bucket(&rig, &mut root, "one", &["a/b/c.txt", "a/d.txt", "e.txt", "f.txt"]);
    bucket(&rig, &mut root, "two", &["kept/a/d.txt"]);
    let is = |bucket: &str, key: &str| text(&rig, bucket, key);

    let asked = root.post("/b/one/transfer", "in=&key=e.txt");
    assert!(asked.status == 200 && asked.body.contains("value=\"e.txt\""), "{}", asked.body);
    let renamed = root.post("/b/one/transfer", "in=&key=e.txt&do=move&to=&name=g.txt");
    assert_eq!(renamed.header("location"), "/b/one", "{}", renamed.body);
    assert_eq!((is("one", "e.txt"), is("one", "g.txt")), (None, Some("e.txt".into())));
    let record = rig.audited("g.txt");
    assert!(record.contains(r#""door":"console""#) && record.contains("TransferFiles"), "{record}");

    let kept = root.post("/b/one/transfer", "in=&key=a%2F&do=copy&to-bucket=two&to=kept");
    assert!(kept.body.contains("has such files") && kept.body.contains("a/d.txt"), "{}", kept.body);
    assert_eq!(is("two", "kept/a/b/c.txt").as_deref(), Some("a/b/c.txt"));
    assert_eq!(is("two", "kept/a/d.txt").as_deref(), Some("kept/a/d.txt"), "it was not replaced");
    let form = "in=&key=a%2F&do=move&to-bucket=two&to=kept/&existing=replace";
    assert_eq!(root.post("/b/one/transfer", form).header("location"), "/b/two?in=kept/");
    assert_eq!(is("two", "kept/a/d.txt").as_deref(), Some("a/d.txt"));
    assert!(!root.get("/b/one").body.contains("in=a/"), "the folder is gone with its files");

    for into in ["kept/", "kept/a", "kept/deeper"] {
        let form = format!("in=&key=kept%2F&do=copy&to={into}");
        assert_eq!(root.post("/b/two/transfer", &form).status, 400, "{into}");
    }
    for (form, status) in [
        ("in=&key=f.txt&do=copy&to=../x", 400),
        ("in=&key=f.txt&do=copy&to=&name=a%2Fb", 400),
        ("in=&do=copy&to=x", 400),
        ("in=&key=f.txt&do=copy&to-bucket=none", 404),
    ] {
        assert_eq!(root.post("/b/one/transfer", form).status, status, "{form}");
    }
}

#[test]
fn many_files_are_moved_by_several_requests() {
    let rig = Rig::start();
    let mut root = rig.root();
    assert_eq!(root.post("/buckets", "name=many").status, 303);
    let all = cairn_console::limits::TRANSFERS + 3;
    for number in 0..all {
        root.post("/b/many/folders", &format!("in=&name=f{number:04}"));
    }
    root.post("/buckets", "name=other");
    let mut form = "in=&all=yes&do=copy&to-bucket=other&to=x".to_owned();
    let first = root.post("/b/many/transfer", &form);
    assert!(first.body.contains("There is more"), "{}", first.body);
    let after = first.body.split("name=\"after\" value=\"").nth(1).unwrap();
    let after = after.split('"').next().unwrap().replace('/', "%2F");
    form.push_str(&format!("&scope=0&after={after}"));
    assert_eq!(root.post("/b/many/transfer", &form).header("location"), "/b/other?in=x/");
    let last = format!("/b/other?in=x/&after=x%2Ff{:04}%2F", all - 2);
    assert!(root.get(&last).body.contains(&format!("f{:04}/", all - 1)));
}

#[test]
fn all_of_a_folder_is_deleted_and_what_only_mounts_show_stays() {
    let rig = Rig::start();
    let mut root = rig.root();
    bucket(&rig, &mut root, "all", &["a/1", "a/2", "a/x1", "b/1"]);
    let asked = root.post("/b/all/delete", "in=a%2F&filter=x&all=yes");
    assert!(asked.body.contains("whose names begin with &quot;x&quot;"), "{}", asked.body);
    root.post("/b/all/delete", "in=a%2F&filter=x&all=yes&confirm=yes");
    assert_eq!(text(&rig, "all", "a/x1"), None);
    assert!(text(&rig, "all", "a/1").is_some());
    let opened = rig.run(cairn_fs::ops::buckets::FindBucket { name: "all".into() }).unwrap();
    // A path of more than 1,024 bytes.
    let mut parent = opened.id.ino();
    for _ in 0..5 {
        let name = vec![b'd'; 255];
        (parent, _) = rig.run(Mkdir { parent, name, mode: 0o755, umask: 0 });
    }
    let done = root.post("/b/all/delete", "in=&all=yes&confirm=yes");
    assert!(done.body.contains("only a mount"), "{}", done.body);
    for key in ["a/1", "a/2", "b/1"] {
        assert_eq!(text(&rig, "all", key), None, "{key}");
    }
}

#[test]
fn tags_and_settings_are_changed() {
    let rig = Rig::start();
    let mut root = rig.root();
    let mut alice = rig.user("alice");
    bucket(&rig, &mut root, "photos", &["cat.jpg"]);
    let saved = root.post("/b/photos/tags", "key=cat.jpg&tag=kind&value=cat&tag=&value=");
    assert_eq!(saved.header("location"), "/b/photos/object?key=cat.jpg");
    assert!(root.get("/b/photos/object?key=cat.jpg").body.contains("Tag kind"));
    assert_eq!(root.post("/b/photos/tags", "key=cat.jpg&tag=a&value=1&tag=a&value=2").status, 400);

    assert_eq!(alice.get("/b/photos/settings").status, 403);
    for form in ["user=alice&right=read", "user=alice&right=read&right=write"] {
        assert_eq!(root.post("/b/photos/rights", form).status, 303);
    }
    let page = root.get("/b/photos/settings").body;
    assert!(page.contains(">alice<") && page.contains("read,write"), "{page}");
    assert_eq!(alice.get("/b/photos").status, 200);
    for (target, form) in [
        ("/b/photos/settings", "visibility=public&was-visibility=private"),
        ("/b/photos/rights", "user=alice&right=admin"),
        ("/b/photos/settings", "quota=yes&quota-objects=1"),
    ] {
        assert_eq!(alice.post(target, form).status, 403, "{target} {form}");
    }
    root.post("/b/photos/rights", "user=alice");
    assert_eq!(alice.get("/b/photos").status, 403, "the rights were taken away");
    let form = "visibility=public&was-visibility=private&html-listing=on&was-html-listing=off";
    assert_eq!(root.post("/b/photos/settings", form).status, 303);
    assert_eq!(
        root.post("/b/photos/settings", "quota=yes&quota-objects=5&quota-bytes=3+gib").status,
        303
    );
    let page = root.get("/b/photos/settings").body;
    assert!(page.contains(r#"value="5""#) && page.contains(&(3u64 << 30).to_string()), "{page}");
    assert!(root.get("/").body.contains(">public<"));
}
