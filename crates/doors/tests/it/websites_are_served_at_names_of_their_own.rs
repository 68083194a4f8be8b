//! Websites: documents, errors and redirects, by the name of the host.

use std::net::SocketAddr;

use cairn_auth::{Caller, Visibility};
use cairn_base::UserId;
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::rows::BucketKind;

use crate::http_harness::{Client, Connection, Reply, Server};
use crate::s3_harness;

/// A request with a host of its own.
fn ask(address: SocketAddr, method: &str, host: &str, path: &str, more: &str) -> Reply {
    let client = Client { address, authorization: None };
    let mut connection: Connection = client.connect();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    connection.send(head.as_bytes());
    connection.reply(method)
}

struct Sites {
    server: Server,
    root: Client,
    address: SocketAddr,
}

impl Sites {
    fn start() -> Sites {
        let server = Server::start();
        let root = server.root();
        // S3 has keys that are taken for hosts.
        let (kind, visibility) = (BucketKind::S3, Visibility::Public);
        let verb = CreateBucket { name: "www".into(), kind, visibility };
        let caller = Caller::verified(UserId::ROOT);
        server.runtime.block_on(server.fs().run(&caller, verb)).unwrap();
        for (key, contents) in [
            ("index.html", "<h1>home</h1><script>1</script>"),
            ("blog/index.html", "blog"),
            ("404.html", "not here"),
            ("style.css", "body {}"),
        ] {
            root.put(&format!("/storage/www/{key}"), contents.as_bytes()).expect(201);
        }
        let address = server.websites(&["sites.test"]);
        Sites { server, root, address }
    }

    fn set(&self, json: &str) -> Reply {
        self.root.call("PUT", "/storage/www?website", &[], json.as_bytes())
    }

    fn get(&self, path: &str) -> Reply {
        ask(self.address, "GET", "www.sites.test", path, "")
    }
}

#[test]
fn documents_are_served_as_a_site() {
    let sites = Sites::start();
    sites.get("/").expect(404);
    sites.root.get("/storage/www?website").expect(404);
    sites.set(r#"{"index":"index.html","error":"404.html"}"#).expect(204);
    let home = sites.get("/").expect(200);
    assert_eq!(home.text(), "<h1>home</h1><script>1</script>");
    assert_eq!(home.header("content-type").as_deref(), Some("text/html"));
    assert_eq!(home.header("x-content-type-options").as_deref(), Some("nosniff"));
    for name in ["content-security-policy", "content-disposition"] {
        assert_eq!(home.header(name), None, "{name}");
    }
    assert_eq!(sites.get("/blog/").expect(200).text(), "blog");
    assert_eq!(sites.get("/blog").expect(302).header("location").unwrap(), "/blog/");
    assert_eq!(sites.get("/style.css?v=3").expect(200).text(), "body {}");
    let missing = sites.get("/none").expect(404);
    assert_eq!(
        (missing.text().as_str(), missing.header("cache-control").unwrap().as_str()),
        ("not here", "no-cache")
    );
    let etag = home.header("etag").unwrap();
    let get = |more: &str| ask(sites.address, "GET", "WWW.sites.test:80", "/", more);
    get(&format!("If-None-Match: {etag}\r\n")).expect(304);
    assert_eq!(get("Range: bytes=0-3\r\n").expect(206).text(), "<h1>");
    let head = ask(sites.address, "HEAD", "www.sites.test", "/", "").expect(200);
    assert_eq!(head.header("content-length").as_deref(), Some("31"));
    for method in ["PUT", "POST", "DELETE", "OPTIONS"] {
        let refused = ask(sites.address, method, "www.sites.test", "/", "Content-Length: 0\r\n");
        assert_eq!(refused.expect(405).header("allow").as_deref(), Some("GET, HEAD, OPTIONS"));
    }
    // Neither another host nor a bucket without a website is one, and no API is here.
    for host in ["none.sites.test", "sites.test", "127.0.0.1"] {
        ask(sites.address, "GET", host, "/", "").expect(404);
    }
    sites.get("/storage/www/").expect(404);
    sites.get("/%zz").expect(400);
    // What anybody may not read is no website.
    sites.root.call("PATCH", "/storage/www?visibility=private", &[], b"").expect(204);
    sites.get("/").expect(403);
    sites.root.call("PATCH", "/storage/www?visibility=public", &[], b"").expect(204);
    sites.root.call("DELETE", "/storage/www?website", &[], b"").expect(204);
    sites.get("/").expect(404);
    let reader = sites.server.user("reader");
    reader.call("PUT", "/storage/www?website", &[], br#"{"index":"i"}"#).expect(403);
}

#[test]
fn redirects_lead_where_rules_say_and_nowhere_else() {
    let sites = Sites::start();
    sites
        .set(
            r#"{"index":"index.html","rules":[
            {"prefix":"old/","to":{"prefix":"new/"}},
            {"prefix":"gone/","status":404,"to":{"key":"index.html","status":302}},
            {"prefix":"away/","to":{"host":"a.example","protocol":"https","status":307}}]}"#,
        )
        .expect(204);
    let location =
        |path: &str, status: u16| sites.get(path).expect(status).header("location").unwrap();
    assert_eq!(location("/old/a%20b", 301), "http://www.sites.test/new/a%20b");
    assert_eq!(location("/gone/x", 302), "http://www.sites.test/index.html");
    assert_eq!(location("/away/x?y=1", 307), "https://a.example/away/x?y=1");
    assert_eq!(location("/old/a?x=1&y", 301), "http://www.sites.test/new/a?x=1&y");
    assert_eq!(location("/blog?x=%20", 302), "/blog/?x=%20");
    sites.root.put("/storage/www/gone/here", b"here").expect(201);
    assert_eq!(sites.get("/gone/here").expect(200).text(), "here");
    // A path is never taken for a host, nor for a header.
    sites.root.put("/storage/www//evil.example/index.html", b"x").expect(201);
    assert_eq!(location("//evil.example", 302), "/%2Fevil.example/");
    assert_eq!(location("/old//evil.example", 301), "http://www.sites.test/new//evil.example");
    assert_eq!(
        location("/old/%0d%0aSet-Cookie:x", 301),
        "http://www.sites.test/new/%0D%0ASet-Cookie%3Ax"
    );
    let app = r##"{"index":"index.html","rules":[{"status":404,"to":{"prefix":"#!/"}}]}"##;
    sites.set(app).expect(204);
    assert_eq!(location("/app/x?q=1#", 301), "http://www.sites.test/?q=1#!/app/x");
    sites.set(r#"{"redirect_all":{"host":"b.example"}}"#).expect(204);
    assert_eq!(location("/x/y?z=1", 301), "http://b.example/x/y?z=1");
    for bad in [
        "{}",
        r#"{"index":"a/b"}"#,
        r#"{"index":"i","rules":[{"to":{}}]}"#,
        r#"{"index":"i","rules":[{"to":{"host":"a/b"}}]}"#,
        r#"{"index":"i","rules":[{"to":{"host":"a","status":200}}]}"#,
        r#"{"index":"i","rules":[{"status":418,"to":{"host":"a"}}]}"#,
        r#"{"redirect_all":{"host":"a"},"index":"i"}"#,
        r#"{"index":"i","nonsense":1}"#,
    ] {
        sites.set(bad).expect(400);
    }
}

#[test]
fn s3_sets_the_same_website() {
    let server = s3_harness::Server::start();
    let root = server.root();
    root.put("/site", b"").ok();
    root.get("/site?website").fails(404, "NoSuchWebsiteConfiguration");
    let xml = "<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument>\
        <ErrorDocument><Key>404.html</Key></ErrorDocument><RoutingRules><RoutingRule><Condition>\
        <KeyPrefixEquals>old/</KeyPrefixEquals></Condition><Redirect>\
        <ReplaceKeyPrefixWith>new/</ReplaceKeyPrefixWith></Redirect></RoutingRule></RoutingRules>\
        </WebsiteConfiguration>";
    root.put("/site?website", xml.as_bytes()).ok();
    let shown = root.get("/site?website").ok().text();
    for part in [
        "<Suffix>index.html</Suffix>",
        "<Key>404.html</Key>",
        "<KeyPrefixEquals>old/</KeyPrefixEquals>",
        "<HttpRedirectCode>301</HttpRedirectCode>",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let all = "<WebsiteConfiguration><RedirectAllRequestsTo><HostName>a.example</HostName>\
        <Protocol>https</Protocol></RedirectAllRequestsTo></WebsiteConfiguration>";
    root.put("/site?website", all.as_bytes()).ok();
    assert!(root.get("/site?website").ok().text().contains("<HostName>a.example</HostName>"));
    let bad = "<WebsiteConfiguration><IndexDocument><Suffix>a/b</Suffix></IndexDocument>\
        </WebsiteConfiguration>";
    root.put("/site?website", bad.as_bytes()).fails(400, "InvalidArgument");
    root.put("/site?website", b"<WebsiteConfiguration/>").fails(400, "InvalidArgument");
    let rule = |condition: &str, redirect: &str| {
        format!(
            "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument><RoutingRules>\
             <RoutingRule>{condition}<Redirect>{redirect}</Redirect></RoutingRule></RoutingRules>\
             </WebsiteConfiguration>"
        )
    };
    let to = "<HostName>a.example</HostName>";
    let returned = |status: &str| {
        let condition = "HttpErrorCodeReturnedEquals";
        let condition = format!("<Condition><{condition}>{status}</{condition}></Condition>");
        rule(&condition, to)
    };
    for (bad, code) in [
        (returned("418"), "InvalidRequest"),
        (returned("4xx"), "MalformedXML"),
        (rule("<Condition/>", to), "MalformedXML"),
        (rule("", ""), "MalformedXML"),
        (
            all.replace("</WebsiteC", "<ErrorDocument><Key>e</Key></ErrorDocument></WebsiteC"),
            "MalformedXML",
        ),
        (xml.replace("404.html", ""), "InvalidArgument"),
    ] {
        root.put("/site?website", bad.as_bytes()).fails(400, code);
    }
    let stranger = server.user("stranger");
    stranger.put("/site?website", xml.as_bytes()).fails(403, "AccessDenied");
    root.ask("DELETE", "/site?website").send().ok();
    root.get("/site?website").fails(404, "NoSuchWebsiteConfiguration");
}

#[test]
fn pages_of_other_sites_ask_a_website_first() {
    let sites = Sites::start();
    sites.set(r#"{"index":"index.html"}"#).expect(204);
    let preflight = |origin: &str| {
        let asked = format!("Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\n");
        ask(sites.address, "OPTIONS", "www.sites.test", "/style.css", &asked)
    };
    preflight("https://a.example").expect(403);
    let rules = r#"{"rules":[{"origins":["https://a.example"],"methods":["GET"],
        "exposed_headers":["X-Own"],"max_age_s":60}]}"#;
    sites.root.call("PUT", "/storage/www?cors", &[], rules.as_bytes()).expect(204);
    let told = preflight("https://a.example").expect(204);
    let said = |reply: &Reply, name: &str| reply.header(name).unwrap_or_default();
    assert_eq!(said(&told, "access-control-allow-origin"), "https://a.example");
    assert_eq!(said(&told, "access-control-max-age"), "60");
    preflight("https://b.example").expect(403);
    let more = "Origin: https://a.example\r\n";
    let got = ask(sites.address, "GET", "www.sites.test", "/style.css", more).expect(200);
    assert_eq!(said(&got, "access-control-allow-origin"), "https://a.example");
    assert_eq!(said(&got, "access-control-expose-headers"), "X-Own");
}
