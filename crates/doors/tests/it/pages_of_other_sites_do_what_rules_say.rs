//! CORS at both doors: what browsers are told about pages of other sites.

use crate::{http_harness, s3_harness};

const PAGE: &str = "https://app.example.com";
const XML: &str = "<CORSConfiguration><CORSRule><ID>app</ID>\
    <AllowedOrigin>https://*.example.com</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>\
    <AllowedHeader>x-amz-*</AllowedHeader><AllowedHeader>Content-Type</AllowedHeader>\
    <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>600</MaxAgeSeconds></CORSRule>\
    <CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule>\
    </CORSConfiguration>";
const JSON: &str = r#"{"rules":[
    {"id":"app","origins":["https://*.example.com"],"methods":["GET","PUT","POST"],
     "headers":["authorization","content-type"],"exposed_headers":["X-Cairn-Meta-Color"],
     "max_age_s":600},
    {"origins":["*"],"methods":["HEAD"]}]}"#;

/// What is said to pages.
const SAID: &[&str] = &[
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "access-control-max-age",
];

#[track_caller]
fn silent(headers: &[(String, String)]) {
    let said: Vec<_> = headers.iter().filter(|(name, _)| SAID.contains(&name.as_str())).collect();
    assert!(said.is_empty(), "{said:?}");
}

mod s3 {
    use super::s3_harness::{Client, Reply, Server};
    use super::*;

    fn preflight(client: &Client, path: &str, origin: &str, method: &str, names: &str) -> Reply {
        let ask = client.ask("OPTIONS", path).header("origin", origin);
        let ask = ask.header("access-control-request-method", method);
        match names {
            "" => ask.send(),
            names => ask.header("access-control-request-headers", names).send(),
        }
    }

    fn store() -> (Server, Client) {
        let server = Server::start();
        let root = server.root();
        root.put("/photos", b"").ok();
        root.put("/photos/a", b"x").ok();
        (server, root)
    }

    #[test]
    fn rules_go_in_and_out() {
        let (server, root) = store();
        root.get("/photos?cors").fails(404, "NoSuchCORSConfiguration");
        root.put("/photos?cors", XML.as_bytes()).ok();
        let text = root.get("/photos?cors").ok().text();
        for part in ["<AllowedOrigin>https://*.example.com</AllowedOrigin>", "<ID>app</ID>"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.matches("<CORSRule>").count(), 2);
        assert!(text.contains("<MaxAgeSeconds>600</MaxAgeSeconds>"), "{text}");
        let one = |inside: &str| format!("<CORSConfiguration>{inside}</CORSConfiguration>");
        let rule = |inside: &str| one(&format!("<CORSRule>{inside}</CORSRule>"));
        for (bad, code) in [
            (one(""), "MalformedXML"),
            (one("<Other/>"), "MalformedXML"),
            (rule("<AllowedOrigin>*</AllowedOrigin>"), "MalformedXML"),
            (
                rule("<AllowedOrigin>*</AllowedOrigin><AllowedMethod>X</AllowedMethod>"),
                "InvalidRequest",
            ),
            (
                rule("<AllowedOrigin>null</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"),
                "InvalidRequest",
            ),
        ] {
            root.put("/photos?cors", bad.as_bytes()).fails(400, code);
        }
        let many = "<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
            </CORSRule>"
            .repeat(101);
        root.put("/photos?cors", one(&many).as_bytes()).fails(400, "InvalidRequest");
        let stranger = server.user("stranger");
        stranger.put("/photos?cors", XML.as_bytes()).fails(403, "AccessDenied");
        stranger.get("/photos?cors").fails(403, "AccessDenied");
        stranger.delete("/photos?cors").fails(403, "AccessDenied");
        assert_eq!(root.get("/photos?cors").ok().text(), text);
        assert_eq!(root.delete("/photos?cors").ok().status, 204);
        root.get("/photos?cors").fails(404, "NoSuchCORSConfiguration");
        root.delete("/photos?cors").ok();
        root.put("/nosuch?cors", XML.as_bytes()).fails(404, "NoSuchBucket");
    }

    #[test]
    fn preflights_need_no_signature() {
        let (server, root) = store();
        root.put("/photos?cors", XML.as_bytes()).ok();
        let anonymous = server.anonymous();
        let told = preflight(&anonymous, "/photos/a", PAGE, "PUT", "X-Amz-Date, content-type").ok();
        let said = |name: &str| told.header(name).unwrap_or_default().to_owned();
        assert_eq!(said("access-control-allow-origin"), PAGE);
        assert_eq!(said("access-control-allow-credentials"), "true");
        assert_eq!(said("access-control-allow-methods"), "GET, PUT");
        assert_eq!(said("access-control-allow-headers"), "x-amz-date, content-type");
        assert_eq!(said("access-control-expose-headers"), "ETag");
        assert_eq!(said("access-control-max-age"), "600");
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        assert_eq!(said("vary"), vary);
        let any = preflight(&anonymous, "/photos", "null", "HEAD", "").ok();
        assert_eq!(any.header("access-control-allow-origin"), Some("*"));
        assert_eq!(any.header("access-control-allow-credentials"), None);
        for (origin, method, names) in [
            ("https://app.example.com.evil", "GET", ""),
            ("http://app.example.com", "GET", ""),
            ("null", "GET", ""),
            (PAGE, "DELETE", ""),
            (PAGE, "PUT", "x-other"),
            ("https://evil.org", "HEAD", "x-amz-date"),
        ] {
            let refused = preflight(&anonymous, "/photos/a", origin, method, names);
            let refused = refused.fails(403, "AccessForbidden");
            silent(&refused.headers);
            assert_eq!(refused.header("vary"), Some(vary));
        }
        preflight(&anonymous, "/photos/a", PAGE, "PATCH", "").fails(400, "BadRequest");
        let origin = anonymous.ask("OPTIONS", "/photos/a").header("origin", PAGE);
        origin.send().fails(400, "BadRequest");
        anonymous.ask("OPTIONS", "/photos/a").send().fails(400, "BadRequest");
    }

    /// Nobody learns by a preflight which buckets there are.
    #[test]
    fn a_bucket_without_rules_answers_as_one_that_does_not_exist() {
        let (server, _root) = store();
        let anonymous = server.anonymous();
        let answer = |path: &str, bucket: &str| {
            let refused = preflight(&anonymous, path, PAGE, "GET", "");
            let refused = refused.fails(403, "AccessForbidden");
            let plain = |text: String| {
                let mut rest = text.replace(bucket, "B");
                for id in [refused.one("RequestId"), refused.one("HostId")] {
                    rest = rest.replace(&id, "I");
                }
                rest
            };
            let mut names: Vec<_> = refused.headers.iter().map(|(name, _)| name.clone()).collect();
            names.sort();
            (plain(refused.text()), names)
        };
        assert_eq!(answer("/photos/a", "photos"), answer("/nosuch/a", "nosuch"));
        assert_eq!(answer("/photos", "photos"), answer("/nosuch", "nosuch"));
    }

    #[test]
    fn replies_and_errors_say_who_may_read_them() {
        let (server, root) = store();
        silent(&root.ask("GET", "/photos/a").header("origin", PAGE).send().ok().headers);
        root.put("/photos?cors", XML.as_bytes()).ok();
        for (method, path, status) in [
            ("GET", "/photos/a", 200),
            ("GET", "/photos/none", 404),
            ("GET", "/photos?list-type=2", 200),
            ("GET", "/photos/a?torrent", 501),
            ("PUT", "/photos/b", 200),
        ] {
            for (origin, allowed) in [(PAGE, Some(PAGE)), ("https://evil.org", None)] {
                let reply = root.ask(method, path).header("origin", origin).send();
                assert_eq!(reply.status, status, "{method} {path}");
                assert_eq!(reply.header("access-control-allow-origin"), allowed, "{method} {path}");
                assert_eq!(reply.header("vary"), Some("Origin"), "{method} {path}");
                let exposed = allowed.map(|_| "ETag");
                assert_eq!(reply.header("access-control-expose-headers"), exposed);
            }
        }
        // A refusal, too: the page sees that it was one.
        let refused = server.anonymous().ask("GET", "/photos/a").header("origin", PAGE).send();
        assert_eq!(
            refused.fails(403, "AccessDenied").header("access-control-allow-origin"),
            Some(PAGE)
        );
        // What nobody asked for as a page is not taken by a cache for all.
        let plain = root.get("/photos/a").ok();
        assert_eq!(plain.header("vary"), Some("Origin"));
        silent(&plain.headers);
        let head = root.ask("HEAD", "/photos/a").header("origin", "null").send().ok();
        assert_eq!(head.header("access-control-allow-origin"), Some("*"));
        assert_eq!(head.header("access-control-allow-credentials"), None);
        let delete = root.ask("DELETE", "/photos/b").header("origin", PAGE).send().ok();
        silent(&delete.headers);
    }
}

mod http {
    use super::http_harness::{Client, Reply, Server};
    use super::*;

    const OBJECT: &str = "/storage/bucket/a";
    const RULES: &str = "/storage/bucket?cors";

    fn store() -> (Server, Client) {
        let server = Server::start();
        let root = server.root();
        root.put("/storage/bucket", b"").expect(201);
        root.put(OBJECT, b"x").expect(201);
        (server, root)
    }

    fn with_rules() -> (Server, Client) {
        let (server, root) = store();
        root.put(RULES, JSON.as_bytes()).expect(204);
        (server, root)
    }

    fn token(server: &Server, user: &str) -> Client {
        let json = format!(r#"{{"user":"{user}"}}"#);
        let headers = [("Content-Type", "application/json")];
        let made = server.root().call("POST", "/admin/tokens", &headers, json.as_bytes());
        let token = made.expect(201).json()["token"].as_str().unwrap().to_owned();
        Client { authorization: Some(format!("Bearer {token}")), ..server.anonymous() }
    }

    fn preflight(client: &Client, path: &str, origin: &str, method: &str, names: &str) -> Reply {
        let mut headers = vec![("Origin", origin), ("Access-Control-Request-Method", method)];
        if !names.is_empty() {
            headers.push(("Access-Control-Request-Headers", names));
        }
        client.call("OPTIONS", path, &headers, b"")
    }

    #[test]
    fn rules_go_in_and_out() {
        let (server, root) = store();
        assert_eq!(root.get(RULES).expect(200).json(), serde_json::json!({ "rules": [] }));
        root.put(RULES, JSON.as_bytes()).expect(204);
        let shown = root.get(RULES).expect(200).json();
        assert_eq!(shown["rules"][0]["exposed_headers"][0], "X-Cairn-Meta-Color");
        assert_eq!(shown["rules"][0]["max_age_s"], 600);
        assert_eq!(shown["rules"][1]["origins"][0], "*");
        let text = shown.to_string();
        root.put(RULES, text.as_bytes()).expect(204);
        for bad in [
            "",
            "{}",
            r#"{"rules":[{}]}"#,
            r#"{"rules":[{"origins":["*"],"methods":["GET"],"other":1}]}"#,
            r#"{"rules":[{"origins":["*.*"],"methods":["GET"]}]}"#,
            r#"{"rules":[{"origins":["*"],"methods":["PATCH"]}]}"#,
            r#"{"rules":[{"origins":["*"],"methods":["GET"],"max_age_s":-1}]}"#,
        ] {
            assert_eq!(root.put(RULES, bad.as_bytes()).expect(400).error(), "invalid", "{bad}");
        }
        root.call("PATCH", RULES, &[], b"").expect(400);
        root.put("/storage/bucket/?cors", JSON.as_bytes()).expect(400);
        root.get("/storage/bucket?cors&list").expect(400);
        assert_eq!(root.get(RULES).expect(200).json(), shown);
        root.get("/storage/none?cors").expect(404);
        root.put("/storage/none?cors", JSON.as_bytes()).expect(404);
        let writer = server.user("writer");
        root.call("PATCH", "/storage/bucket?grant=writer:read,write", &[], b"").expect(204);
        writer.get(RULES).expect(200);
        for (client, status) in [(&writer, 403), (&server.anonymous(), 401)] {
            client.put(RULES, JSON.as_bytes()).expect(status);
            client.call("DELETE", RULES, &[], b"").expect(status);
        }
        root.call("DELETE", RULES, &[], b"").expect(204);
        assert_eq!(root.get(RULES).expect(200).json(), serde_json::json!({ "rules": [] }));
        // The bucket itself is still there.
        root.get(OBJECT).expect(200);
    }

    #[test]
    fn preflights_need_no_credentials() {
        let (server, root) = with_rules();
        let anonymous = server.anonymous();
        let told = preflight(&anonymous, OBJECT, PAGE, "PUT", "Authorization").expect(204);
        let said = |name: &str| told.header(name).unwrap_or_default();
        assert_eq!(said("access-control-allow-origin"), PAGE);
        assert_eq!(said("access-control-allow-methods"), "GET, PUT, POST");
        assert_eq!(said("access-control-allow-headers"), "authorization");
        assert_eq!(said("access-control-max-age"), "600");
        let exposed = said("access-control-expose-headers");
        for name in ["ETag", "X-Cairn-Offset", "X-Cairn-Meta-Color"] {
            assert!(exposed.split(", ").any(|known| known == name), "{exposed}");
        }
        // A browser must never add credentials that it knows.
        assert_eq!(told.header("access-control-allow-credentials"), None);
        for path in [OBJECT, "/storage/bucket", "/storage/bucket/dir/"] {
            for (origin, method, names, status) in [
                ("https://evil.org", "GET", "", 403),
                (PAGE, "DELETE", "", 403),
                (PAGE, "GET", "x-other", 403),
                (PAGE, "PATCH", "", 400),
                ("a b", "GET", "", 400),
            ] {
                let refused = preflight(&anonymous, path, origin, method, names).expect(status);
                silent(&refused.headers);
                assert!(refused.header("vary").unwrap().starts_with("Origin, Access"));
                assert_eq!(refused.header("www-authenticate"), None);
            }
        }
        // No rule of a bucket is one of the rest of the door.
        for path in ["/admin/keys", "/metrics", "/storage/", "/loki/api/v1/push", "/nothing"] {
            silent(&preflight(&anonymous, path, PAGE, "GET", "").expect(403).headers);
            let reply = root.call("GET", path, &[("Origin", PAGE)], b"");
            silent(&reply.headers);
        }
        let plain = root.call("OPTIONS", OBJECT, &[], b"").expect(204);
        assert!(plain.header("allow").is_some());
    }

    #[test]
    fn a_bucket_without_rules_answers_as_one_that_does_not_exist() {
        let (server, _root) = store();
        let answer = |path: &str| {
            let refused = preflight(&server.anonymous(), path, PAGE, "GET", "").expect(403);
            let names: Vec<_> = refused.headers.iter().map(|(name, _)| name.clone()).collect();
            let json = refused.json();
            (json["error"].clone(), json["message"].clone(), names)
        };
        assert_eq!(answer(OBJECT), answer("/storage/none/a"));
        assert_eq!(answer("/storage/bucket"), answer("/storage/none"));
    }

    #[test]
    fn replies_and_errors_say_who_may_read_them() {
        let (server, root) = with_rules();
        let at = [("Origin", PAGE)];
        let evil = [("Origin", "https://evil.org")];
        let allowed = |reply: &Reply| reply.header("access-control-allow-origin");
        for (path, status) in
            [(OBJECT, 200), ("/storage/bucket/none", 404), ("/storage/bucket/", 200), (RULES, 200)]
        {
            let reply = root.get_with(path, &at).expect(status);
            assert_eq!(allowed(&reply).as_deref(), Some(PAGE), "{path}");
            assert!(reply.header("vary").unwrap().contains("Origin"));
            let reply = root.get_with(path, &evil).expect(status);
            silent(&reply.headers);
            assert!(reply.header("vary").unwrap().contains("Origin"));
        }
        let refused = server.anonymous().get_with(OBJECT, &at).expect(401);
        assert_eq!(allowed(&refused).as_deref(), Some(PAGE));
        let plain = root.get(OBJECT).expect(200);
        assert_eq!(plain.header("vary").as_deref(), Some("authorization, Origin"));
        silent(&plain.headers);
        root.call("DELETE", RULES, &[], b"").expect(204);
        silent(&root.get_with(OBJECT, &at).expect(200).headers);
        assert_eq!(root.get(OBJECT).expect(200).header("vary").as_deref(), Some("authorization"));
    }

    /// A page may change something where a rule says so, and only with a token: a browser adds a
    /// name and a password by itself.
    #[test]
    fn pages_change_what_rules_and_a_token_let_them() {
        let (server, root) = with_rules();
        let tokened = token(&server, "root");
        let put = |client: &Client, origin: &str| {
            let headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site")];
            client.call("PUT", OBJECT, &headers, b"y").status
        };
        assert_eq!(put(&tokened, PAGE), 204);
        assert_eq!(put(&tokened, "https://evil.org"), 403);
        assert_eq!(put(&tokened, "null"), 403);
        assert_eq!(put(&root, PAGE), 403);
        assert_eq!(put(&server.anonymous(), PAGE), 401);
        let delete = tokened.call("DELETE", OBJECT, &[("Origin", PAGE)], b"");
        silent(&delete.expect(403).headers);
        // A rule of one bucket is none of another.
        root.put("/storage/other", b"").expect(201);
        tokened.call("PUT", "/storage/other/a", &[("Origin", PAGE)], b"y").expect(403);
    }
}
