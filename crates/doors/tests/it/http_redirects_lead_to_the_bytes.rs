//! `?redirect` and `?download-info`, and the door that links lead to.

use crate::http_harness::{Client, Reply, Server, Setup};
use crate::http_objects_are_what_was_put::pattern;

fn redirecting() -> Server {
    let server = Server::with(Setup { redirects: true, ..Setup::default() });
    server.root().put("/storage/bucket", b"").expect(201);
    server
}

/// The path behind the host of the door for links.
fn location(server: &Server, reply: &Reply) -> String {
    let location = reply.header("location").expect("a location");
    let host = format!("http://{}", server.linked().address);
    location.strip_prefix(&host).unwrap_or_else(|| panic!("{location}")).to_owned()
}

fn link(server: &Server, path: &str) -> String {
    location(server, &server.root().get(path).expect(307))
}

fn collect_garbage(client: &Client) -> serde_json::Value {
    client.call("POST", "/admin/gc", &[], b"").expect(200).json()
}

#[test]
fn a_redirect_leads_to_what_the_door_itself_sends() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    let data = pattern(9 << 20);
    let headers = [
        ("Content-Type", "text/plain"),
        ("Cache-Control", "max-age=7"),
        ("X-Cairn-Meta-Color", "grün"),
    ];
    root.call("PUT", "/storage/bucket/a", &headers, &data).expect(201);
    let direct = root.get("/storage/bucket/a").expect(200);
    let sent = root.get("/storage/bucket/a?redirect").expect(307);
    assert_eq!(sent.header("cache-control").unwrap(), "no-store");
    let path = location(&server, &sent);
    let got = linked.get(&path).expect(200);
    assert!(got.body == data);
    let own = ["content-type", "cache-control", "x-cairn-meta-color", "etag", "last-modified"];
    for name in own.into_iter().chain(["accept-ranges", "content-length"]) {
        assert!(got.header(name).is_some(), "{name}");
        assert_eq!(got.header(name), direct.header(name), "{name}");
    }
    let head = linked.call("HEAD", &path, &[], b"").expect(200);
    assert_eq!(head.header("content-length"), direct.header("content-length"));
    let ranges = ["bytes=0-0", "bytes=5000000-5999999", "bytes=-7", "bytes=0-1,9000000-9000009"];
    for range in ranges {
        let with =
            |client: &Client, path: &str| client.get_with(path, &[("Range", range)]).expect(206);
        let (here, there) = (with(&root, "/storage/bucket/a"), with(&linked, &path));
        assert_eq!(here.header("content-range"), there.header("content-range"));
        assert_eq!(here.body.len(), there.body.len());
        assert!(here.body == there.body || range.contains(','));
    }
    linked.get_with(&path, &[("Range", "bytes=9999999-")]).expect(416);
    let etag = got.header("etag").unwrap();
    linked.get_with(&path, &[("If-None-Match", &etag)]).expect(304);
    linked.get_with(&path, &[("If-Match", "\"other\"")]).expect(412);
    let other = [("Range", "bytes=0-0"), ("If-Range", "\"other\"")];
    assert!(linked.get_with(&path, &other).expect(200).body == data);
    // Conditions are decided where the object is known best.
    root.get_with("/storage/bucket/a?redirect", &[("If-None-Match", &etag)]).expect(304);
}

/// The rules of the bucket say who gets a link; whoever has one may read.
#[test]
fn a_page_reads_what_a_link_opens() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    root.put("/storage/bucket/a", &pattern(5 << 20)).expect(201);
    let rules = r#"{"rules":[{"origins":["https://a.example"],"methods":["GET"]}]}"#;
    root.put("/storage/bucket?cors", rules.as_bytes()).expect(204);
    let origin = |reply: &Reply| reply.header("access-control-allow-origin");
    let page = [("Origin", "https://a.example")];
    let sent = root.get_with("/storage/bucket/a?redirect", &page).expect(307);
    assert_eq!(origin(&sent).as_deref(), Some("https://a.example"));
    let other = [("Origin", "https://b.example")];
    assert_eq!(origin(&root.get_with("/storage/bucket/a?redirect", &other).expect(307)), None);
    let path = location(&server, &sent);
    let preflight = [("Origin", "null"), ("Access-Control-Request-Method", "GET")];
    for (method, path, headers, status) in [
        ("GET", path.as_str(), &[("Origin", "null")][..], 200),
        ("OPTIONS", &path, &preflight, 204),
        ("GET", "/files/none", &[("Origin", "null")], 403),
    ] {
        let reply = linked.call(method, path, headers, b"").expect(status);
        assert_eq!(origin(&reply).as_deref(), Some("*"), "{method} {path}");
        assert_eq!(reply.header("access-control-allow-credentials"), None);
    }
    assert_eq!(origin(&linked.call("OPTIONS", "/metrics", &preflight, b"").expect(405)), None);
}

#[test]
fn the_door_for_links_says_where_the_time_goes() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    root.put("/storage/bucket/a", &pattern(5 << 20)).expect(201);
    let path = link(&server, "/storage/bucket/a?redirect");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let got = linked.get_with(&path, &[("Traceparent", &parent)]).expect(200);
    let timing = got.header("server-timing").unwrap();
    assert!(timing.contains("read;dur=") && timing.contains("total;dur="), "{timing}");
    assert!(got.header("traceresponse").unwrap().contains(trace));
    // Of a link that opens nothing, the time says nothing.
    let refused = linked.get("/files/AAAA").expect(403);
    assert!(refused.header("server-timing").is_none());
    let proxied = [("X-Forwarded-For", "192.0.2.1")];
    linked.get_with("/metrics", &proxied).expect(403);
    let text = linked.get("/metrics").expect(200).text();
    for wanted in [
        r#"cairn_requests_total{door="files",verb="get",status="2xx"} 1"#,
        r#"cairn_requests_total{door="files",verb="get",status="4xx"} 1"#,
        r#"cairn_stage_seconds_count{door="files",stage="read"} 1"#,
        r#"cairn_sent_bytes_total{door="files",verb="get"} 524"#,
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
fn a_link_opens_nothing_else() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    root.put("/storage/bucket/secret-name", &pattern(100_000)).expect(201);
    let path = link(&server, "/storage/bucket/secret-name?redirect");
    let token = path.strip_prefix("/files/").unwrap();
    let altered = |at: usize| {
        let other = if &token[at..=at] == "A" { "B" } else { "A" };
        format!("/files/{}{other}{}", &token[..at], &token[at + 1..])
    };
    let mut bad: Vec<String> = (0..token.len()).step_by(7).map(altered).collect();
    bad.push(path[..path.len() - 1].to_owned());
    bad.push(format!("{path}/x"));
    bad.push("/files/".into());
    bad.push(format!("/files/{}", "A".repeat(20_000)));
    for path in &bad {
        let reply = linked.get(path).expect(403);
        assert_eq!(reply.error(), "denied");
        assert!(!reply.text().contains("secret-name"));
    }
    let mut expiring = link(&server, "/storage/bucket/secret-name?redirect&expires=1");
    server.clock.advance(3);
    let reply = linked.get(&expiring).expect(403);
    assert!(reply.text().contains("expired"));
    expiring = link(&server, "/storage/bucket/secret-name?redirect&expires=604800");
    linked.get(&expiring).expect(200);
    for bad in ["0", "604801", "x", "-1"] {
        root.get(&format!("/storage/bucket/secret-name?redirect&expires={bad}")).expect(400);
    }
    for other in ["/", "/storage/bucket/secret-name", "/admin/keys", "/shares"] {
        linked.get(other).expect(404);
    }
    linked.get("/healthz").expect(200);
    assert_eq!(linked.get("/readyz").expect(200).json()["role"], "chunkserver");
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        linked.call(method, &path, &[], b"x").expect(405);
    }
    assert!(!server.log.text().contains(token), "links are not logged");
}

#[test]
fn rights_are_checked_before_a_link_is_made() {
    let server = redirecting();
    server.root().put("/storage/bucket/a", &pattern(100_000)).expect(201);
    let stranger = server.user("stranger");
    for query in ["redirect", "download-info"] {
        let path = format!("/storage/bucket/a?{query}");
        server.anonymous().get(&path).expect(401);
        stranger.get(&path).expect(403);
        server.root().get(&format!("/storage/bucket/none?{query}")).expect(404);
    }
}

#[test]
fn what_has_no_blocks_or_no_other_place_is_sent_at_once() {
    let server = redirecting();
    server.root().put("/storage/bucket/small", b"abc").expect(201);
    server.root().put("/storage/bucket/empty", b"").expect(201);
    assert_eq!(server.root().get("/storage/bucket/small?redirect").expect(200).body, b"abc");
    server.root().get("/storage/bucket/empty?redirect").expect(200);
    let info = server.root().get("/storage/bucket/small?download-info").expect(200).json();
    assert!(info.get("host").is_none() && info["parts"].as_array().unwrap().is_empty());

    let alone = Server::start();
    alone.root().put("/storage/bucket", b"").expect(201);
    alone.root().put("/storage/bucket/a", &pattern(100_000)).expect(201);
    assert_eq!(alone.root().get("/storage/bucket/a?redirect").expect(200).body.len(), 100_000);
    let info = alone.root().get("/storage/bucket/a?download-info").expect(200).json();
    assert_eq!((&info["size"], &info["parts"]), (&100_000.into(), &serde_json::json!([])));
    assert!(info.get("host").is_none());
    alone.root().get("/storage/bucket/a?redirect=0").expect(200);
}

#[test]
fn a_bucket_can_redirect_every_get() {
    let server = redirecting();
    let root = server.root();
    let data = pattern(100_000);
    root.put("/storage/bucket/a", &data).expect(201);
    root.get("/storage/bucket/a").expect(200);
    assert_eq!(root.get("/storage/bucket").expect(200).json()["redirect"], "off");
    root.call("PATCH", "/storage/bucket?redirect=maybe", &[], b"").expect(400);
    root.call("PATCH", "/storage/bucket", &[], br#"{"redirect":"on"}"#).expect(204);
    assert_eq!(root.get("/storage/bucket").expect(200).json()["redirect"], "on");
    for _ in 0..3 {
        assert!(server.linked().get(&link(&server, "/storage/bucket/a")).expect(200).body == data);
    }
    assert!(root.get("/storage/bucket/a?no-redirect").expect(200).body == data);
    root.call("HEAD", "/storage/bucket/a", &[], b"").expect(200);
    root.call("PATCH", "/storage/bucket?redirect=off", &[], b"").expect(204);
    assert!(root.get("/storage/bucket/a").expect(200).body == data);
    // Where nobody can be sent anywhere, it changes nothing.
    let alone = Server::start();
    alone.root().put("/storage/bucket", b"").expect(201);
    alone.root().put("/storage/bucket/a", &data).expect(201);
    alone.root().call("PATCH", "/storage/bucket?redirect=on", &[], b"").expect(204);
    assert!(alone.root().get("/storage/bucket/a").expect(200).body == data);
}

#[test]
fn the_info_names_parts_that_are_the_whole() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    let data = pattern(9 << 20);
    root.put("/storage/bucket/a", &data).expect(201);
    let info = root.get("/storage/bucket/a?download-info").expect(200).json();
    assert_eq!(info["size"], data.len());
    assert_eq!(info["host"], linked.address.to_string());
    assert_eq!(info["scheme"], "http");
    assert!(linked.get(info["path"].as_str().unwrap()).expect(200).body == data);
    let mut whole = Vec::new();
    for part in info["parts"].as_array().unwrap() {
        assert_eq!(part["offset"], whole.len());
        let got = linked.get(part["path"].as_str().unwrap()).expect(200);
        assert_eq!(part["length"], got.body.len());
        whole.extend_from_slice(&got.body);
    }
    assert!(whole == data);
    let accept = [("Accept", "application/xml")];
    for reply in [
        root.get("/storage/bucket/a?download-info&format=xml").expect(200),
        root.get_with("/storage/bucket/a?download-info", &accept).expect(200),
    ] {
        assert_eq!(reply.header("content-type").unwrap(), "application/xml");
        let text = reply.text();
        assert!(text.contains(&format!("<size>{}</size>", data.len())), "{text}");
        assert!(text.contains("<part><offset>0</offset>"), "{text}");
    }
    root.get("/storage/bucket/a?download-info&format=yaml").expect(400);
}

#[test]
fn what_was_replaced_stays_for_a_link_and_then_goes() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    let old = pattern(5 << 20);
    root.put("/storage/bucket/a", &old).expect(201);
    let path = link(&server, "/storage/bucket/a?redirect&expires=600");
    root.put("/storage/bucket/a", b"new").expect(204);
    assert_eq!(collect_garbage(&root)["blocks_deleted"], 0);
    assert!(linked.get(&path).expect(200).body == old);
    server.clock.advance(602);
    assert_eq!(collect_garbage(&root)["blocks_deleted"], 2);
    linked.get(&path).expect(403);
}

#[test]
fn what_is_gone_is_not_found() {
    let server = redirecting();
    let (root, linked) = (server.root(), server.linked());
    root.put("/storage/bucket/a", &pattern(5 << 20)).expect(201);
    let path = link(&server, "/storage/bucket/a?redirect");
    // Blocks are kept for as long as a link lives; this removes them behind the store's back.
    let fs = server.fs();
    server.runtime.block_on(async {
        for group in fs.blocks().groups() {
            let all = fs.blocks().inventory(group, None, 100).await.unwrap();
            let ids: Vec<_> = all.iter().map(|info| info.block).collect();
            fs.blocks().delete(group, &ids).await.unwrap();
        }
    });
    let reply = linked.get(&path).expect(404);
    assert!(reply.text().contains("since this link was made"), "{}", reply.text());
}
