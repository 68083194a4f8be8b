use crate::harness::{Browser, Reply, Rig, exchange};

/// Asks the console for URLs.
fn presign(browser: &mut Browser, bucket: &str, json: &str) -> Reply {
    let headers = [("sec-fetch-site", "same-origin"), ("content-type", "application/json")];
    browser.send("POST", &format!("/b/{bucket}/uploads"), &headers, json)
}

fn url(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body.split('"').find(|text| text.starts_with("http://")).unwrap().to_owned()
}

/// Sends a request to the S3 door as a page of the console does.
fn send(rig: &Rig, method: &str, url: &str, headers: &str, body: &str) -> Reply {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, target) = rest.split_at(rest.find('/').unwrap());
    let origin = format!("http://127.0.0.1:{}", rig.console.port());
    exchange(
        rig.s3,
        &format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\nconnection: close\r\n\
             content-length: {}\r\n{headers}\r\n{body}",
            body.len()
        ),
    )
}

#[test]
fn a_url_uploads_one_key_of_one_length_for_a_while() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=photos");
    let step = |replace| {
        format!(
            r#"{{"key":"a b/ü+#?.txt","step":{{"do":"put","length":5,"content_type":"text/plain","replace":{replace}}}}}"#
        )
    };
    let first = url(&presign(&mut root, "photos", &step(false)));
    assert!(!first.contains(rig.root.secret.expose().as_str()));
    let (plain, only_new) = ("content-type: text/plain\r\n", "if-none-match: *\r\n");
    let both = format!("{plain}{only_new}");
    let put = |url: &str, headers: &str, body: &str| send(&rig, "PUT", url, headers, body);
    assert_eq!(put(&first, &both, "longer").status, 403, "another length");
    assert_eq!(put(&first, plain, "12345").status, 403, "a header is missing");
    assert_eq!(put(&first.replace("a%20b", "c"), &both, "12345").status, 403, "another key");
    let done = put(&first, &both, "12345");
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.header("access-control-expose-headers").contains("ETag"));
    assert!(!done.headers.contains_key("access-control-allow-credentials"));
    assert_eq!(put(&first, &both, "12345").status, 412, "it exists");
    let second = url(&presign(&mut root, "photos", &step(true)));
    assert_eq!(put(&second, plain, "54321").status, 200);
    rig.clock.advance(std::time::Duration::from_secs(901));
    assert_eq!(put(&second, plain, "54321").status, 403, "it is too old");

    let page = root.get("/b/photos/object?key=a%20b%2F%C3%BC%2B%23%3F.txt").body;
    assert!(page.contains("5 bytes") && page.contains("text/plain"), "{page}");
    let link = root.get("/b/photos/download?key=a%20b%2F%C3%BC%2B%23%3F.txt");
    let got = send(&rig, "GET", link.header("location"), "", "");
    assert_eq!((got.status, got.body.as_str()), (200, "54321"));
    assert!(got.header("content-disposition").starts_with("attachment; filename*=UTF-8''%C3%BC"));
}

#[test]
fn a_file_is_uploaded_in_parts() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=films");
    let mut ask =
        |step: &str| url(&presign(&mut root, "films", &format!(r#"{{"key":"f","step":{step}}}"#)));
    assert_eq!(send(&rig, "HEAD", &ask(r#"{"do":"look"}"#), "", "").status, 404);
    let begun = ask(r#"{"do":"create","content_type":"video/mp4"}"#);
    let begun = send(&rig, "POST", &begun, "content-type: video/mp4\r\n", "");
    assert_eq!(begun.status, 200, "{}", begun.body);
    let id = begun.body.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let part = ask(&format!(r#"{{"do":"parts","upload":"{id}","parts":[[1,4]]}}"#));
    let sent = send(&rig, "PUT", &part, "", "part");
    assert_eq!(sent.status, 200, "{}", sent.body);
    let listed =
        send(&rig, "GET", &ask(&format!(r#"{{"do":"list","upload":"{id}","after":0}}"#)), "", "");
    assert!(listed.body.contains("<PartNumber>1</PartNumber>"), "{}", listed.body);
    let xml = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        sent.header("etag")
    );
    let length = xml.len();
    let step = format!(r#"{{"do":"complete","upload":"{id}","length":{length},"replace":false}}"#);
    let completed = send(&rig, "POST", &ask(&step), "if-none-match: *\r\n", &xml);
    assert!(completed.status == 200 && !completed.body.contains("<Error>"), "{}", completed.body);
    assert_eq!(send(&rig, "HEAD", &ask(r#"{"do":"look"}"#), "", "").status, 200);
    let record = rig.audited(r#""operation":"CompleteMultipartUpload","outcome":"done""#);
    assert!(record.contains(r#""door":"s3""#));
}

/// The page was closed in the middle: nobody aborts the upload.
#[test]
fn an_upload_that_nobody_continues_is_ended_among_the_settings() {
    let rig = Rig::start();
    let (mut root, mut alice) = (rig.root(), rig.user("alice"));
    root.post("/buckets", "name=films");
    root.post("/b/films/rights", "user=alice&right=read");
    let shown = |browser: &mut Browser| browser.get("/b/films/settings").body;
    assert!(shown(&mut root).contains("Unfinished uploads"));
    let ask = r#"{"key":"a/<f>","step":{"do":"create","content_type":"video/mp4"}}"#;
    let begun = url(&presign(&mut root, "films", ask));
    assert_eq!(send(&rig, "POST", &begun, "content-type: video/mp4\r\n", "").status, 200);
    let page = shown(&mut root);
    assert!(page.contains("a/&lt;f&gt;") && page.contains("/b/films/end-upload"), "{page}");
    assert!(!shown(&mut alice).contains("Unfinished uploads"), "she may only read");
    let id = page.split("name=\"upload\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let form = format!("key=a%2F%3Cf%3E&upload={id}");
    assert!(root.post("/b/films/end-upload", &form).body.contains("cannot be continued"));
    assert!(shown(&mut root).contains("/b/films/end-upload"), "nothing before it is confirmed");
    let confirmed = format!("{form}&confirm=yes");
    assert_eq!(alice.post("/b/films/end-upload", &confirmed).status, 403);
    assert_eq!(root.post("/b/films/end-upload", "key=a&upload=x&confirm=yes").status, 400);
    assert_eq!(root.post("/b/films/end-upload", "key=a&upload=ffff&confirm=yes").status, 404);
    assert_eq!(root.post("/b/films/end-upload", &confirmed).status, 303);
    let record = rig.audited(r#""operation":"EndUpload","outcome":"done""#);
    assert!(record.contains("a/<f>") && record.contains(&format!("upload {id}")), "{record}");
    assert!(!shown(&mut root).contains("/b/films/end-upload"));
}

#[test]
fn the_s3_door_answers_pages_of_the_console_and_no_others() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=photos");
    let ask = |origin: &str| {
        exchange(
            rig.s3,
            &format!(
                "OPTIONS /photos/x HTTP/1.1\r\nhost: {}\r\norigin: {origin}\r\nconnection: close\r\n\
                 access-control-request-method: PUT\r\n\
                 access-control-request-headers: content-type,if-none-match\r\n\r\n",
                rig.s3
            ),
        )
    };
    let own = format!("http://localhost:{}", rig.console.port());
    let told = ask(&own);
    assert_eq!((told.status, told.header("access-control-allow-origin")), (200, own.as_str()));
    assert!(!told.headers.contains_key("access-control-allow-credentials"));
    for origin in ["http://evil.example", "null", "http://localhost:1", "*"] {
        let told = ask(origin);
        assert!((400..404).contains(&told.status), "{origin} {}", told.status);
        assert!(!told.headers.contains_key("access-control-allow-origin"));
    }
}

#[test]
fn nothing_is_signed_that_is_no_upload() {
    let rig = Rig::start();
    let mut root = rig.root();
    for (json, status) in [
        ("", 400),
        ("{}", 400),
        (r#"{"key":"k","step":{"do":"nothing"}}"#, 400),
        (r#"{"key":"","step":{"do":"look"}}"#, 400),
        (r#"{"key":"a/../b","step":{"do":"look"}}"#, 400),
        (r#"{"key":"k","step":{"do":"abort","upload":"x"},"more":1}"#, 400),
        (
            r#"{"key":"k","step":{"do":"complete","upload":"x","length":9999999999,"replace":true}}"#,
            413,
        ),
    ] {
        let reply = presign(&mut root, "photos", json);
        assert_eq!(reply.status, status, "{json}");
    }
    let many = format!(
        r#"{{"key":"k","step":{{"do":"parts","upload":"x","parts":{:?}}}}}"#,
        vec![[1, 1]; cairn_console::limits::URLS + 1]
    );
    assert_eq!(presign(&mut root, "photos", &many).status, 400);
    let mut nobody = rig.browser();
    let reply = presign(&mut nobody, "photos", r#"{"key":"k","step":{"do":"look"}}"#);
    assert_eq!(reply.status, 401);
    assert!(reply.body.contains("logged_out"));
}

#[test]
fn the_rights_of_the_user_decide_at_the_s3_door() {
    let rig = Rig::start();
    let (mut root, mut alice) = (rig.root(), rig.user("alice"));
    root.post("/buckets", "name=secret");
    let step = r#"{"key":"k","step":{"do":"put","length":1,"content_type":"a/b","replace":true}}"#;
    let signed = url(&presign(&mut alice, "secret", step));
    assert_eq!(send(&rig, "PUT", &signed, "content-type: a/b\r\n", "x").status, 403);
    let signed = url(&presign(&mut root, "secret", step));
    assert_eq!(send(&rig, "PUT", &signed, "content-type: a/b\r\n", "x").status, 200);
}

#[test]
fn previews_are_of_types_without_scripts() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=web");
    for (key, content_type, shown) in [
        ("a.html", "text/html", "text/plain; charset=utf-8"),
        ("b.png", "image/png", "image/png"),
        ("c.svg", "image/svg+xml", ""),
    ] {
        let step = format!(
            r#"{{"key":"{key}","step":{{"do":"put","length":1,"content_type":"{content_type}","replace":true}}}}"#
        );
        let signed = url(&presign(&mut root, "web", &step));
        let put = send(&rig, "PUT", &signed, &format!("content-type: {content_type}\r\n"), "<");
        assert_eq!(put.status, 200, "{}", put.body);
        let link = root.get(&format!("/b/web/preview?key={key}"));
        if shown.is_empty() {
            assert_eq!(link.status, 501);
            continue;
        }
        let got = send(&rig, "GET", link.header("location"), "", "");
        assert_eq!((got.status, got.header("content-type")), (200, shown), "{key}");
    }
}
