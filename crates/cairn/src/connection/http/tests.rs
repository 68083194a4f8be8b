use std::io::Write;
use std::net::TcpListener;

use super::*;

#[test]
fn hosts_and_ports_are_found() {
    let check = |rest: &str, host: &str, port: u16| {
        assert_eq!(authority(rest, 80), Some((host.to_owned(), port)), "{rest}");
    };
    check("a.example", "a.example", 80);
    check("a.example:8080/x", "a.example", 8080);
    check("[::1]:8080", "::1", 8080);
    check("[::1]", "::1", 80);
    assert_eq!(authority("a:b", 80), None);
    assert_eq!(authority("", 80), None);
    assert_eq!(host_header("::1", 8080), "[::1]:8080");
    assert_eq!(host_header("a.example", 80), "a.example:80");
}

/// Reads one request, up to `until`, and answers it.
fn serve(stream: &mut std::net::TcpStream, until: &[u8], reply: &str) -> String {
    let mut asked = Vec::new();
    while !asked.ends_with(until) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        asked.push(byte[0]);
    }
    stream.write_all(reply.as_bytes()).unwrap();
    String::from_utf8(asked).unwrap()
}

fn client(listener: &TcpListener) -> Client {
    let base = format!("http://{}", listener.local_addr().unwrap());
    Client::new(&base, Trust::Public, None).unwrap()
}

fn ask(client: &Client, method: &str, body: Outgoing<'_>) -> io::Result<String> {
    let request = Request::builder().method(method).uri("/a").body(()).unwrap();
    let mut text = String::new();
    client.send(request, body)?.into_body().read_to_string(&mut text)?;
    Ok(text)
}

const REPLY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn a_connection_is_used_again_and_one_that_was_closed_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener);
    let server = std::thread::spawn(move || {
        let mut first = listener.accept().unwrap().0;
        let get = serve(&mut first, b"\r\n\r\n", REPLY);
        let put = serve(&mut first, b"abc", REPLY);
        drop(first);
        let mut second = listener.accept().unwrap().0;
        (get, put, serve(&mut second, b"0\r\n\r\n", REPLY))
    });
    assert_eq!(ask(&client, "GET", Outgoing::Nothing).unwrap(), "hi");
    let body = Outgoing::Reader(&mut &b"abc"[..], Some(3));
    assert_eq!(ask(&client, "PUT", body).unwrap(), "hi");
    // A request that is sent before that is known may be lost with the connection.
    while client.0.idle.lock().iter().any(|(sender, _)| !sender.is_closed()) {
        client.0.runtime.block_on(tokio::task::yield_now());
    }
    let body = Outgoing::Reader(&mut &b"abc"[..], None);
    assert_eq!(ask(&client, "PUT", body).unwrap(), "hi");
    let (get, put, chunked) = server.join().unwrap();
    assert!(get.starts_with("GET /a HTTP/1.1\r\n") && get.contains("host: 127.0.0.1:"), "{get}");
    assert!(put.contains("content-length: 3\r\n"), "{put}");
    assert!(chunked.contains("transfer-encoding: chunked\r\n"), "{chunked}");
}

/// A server closes a connection that nobody has used for long just when it is used.
#[test]
fn a_request_that_may_be_sent_twice_outlives_the_connection_that_was_kept() {
    let put = || Outgoing::Bytes(Bytes::from_static(b"abc"));
    let (mut short, mut long) = (&b"abc"[..], &b"abc"[..]);
    let cases = [
        ("GET", Outgoing::Nothing, &b"\r\n\r\n"[..], true),
        ("DELETE", Outgoing::Nothing, b"\r\n\r\n", true),
        ("PUT", put(), b"abc", true),
        ("PUT", Outgoing::Reader(&mut short, Some(3)), b"abc", true),
        // It may be done twice, or cannot be read twice.
        ("POST", put(), b"abc", false),
        ("PUT", Outgoing::Reader(&mut long, None), b"0\r\n\r\n", false),
    ];
    for (method, body, until, is_repeated) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(&listener);
        let server = std::thread::spawn(move || {
            let mut first = listener.accept().unwrap().0;
            serve(&mut first, b"\r\n\r\n", REPLY);
            // All of it, and no answer.
            serve(&mut first, until, "");
            drop(first);
            is_repeated.then(|| serve(&mut listener.accept().unwrap().0, until, REPLY))
        });
        assert_eq!(ask(&client, "GET", Outgoing::Nothing).unwrap(), "hi");
        let answer = ask(&client, method, body);
        assert_eq!(answer.as_deref().ok(), is_repeated.then_some("hi"), "{method}");
        let again = server.join().unwrap().unwrap_or_default();
        assert_eq!(again.starts_with(&format!("{method} /a ")), is_repeated, "{again}");
    }
}

#[test]
fn a_condition_that_the_request_itself_may_have_changed_is_not_asked_again() {
    let request = |method: &str, header: &str| {
        let request = Request::builder().method(method).uri("/a").header(header, "*");
        request.body(RequestBody::Whole(Bytes::new())).unwrap()
    };
    assert!(repeated(&request("PUT", "x-other")).is_some());
    assert!(repeated(&request("GET", "if-none-match")).is_some());
    for header in ["if-match", "if-none-match", "if-unmodified-since"] {
        assert!(repeated(&request("PUT", header)).is_none(), "{header}");
    }
}

/// A body that ends early must not arrive as a whole body.
#[test]
fn a_body_that_cannot_be_read_is_not_sent_to_its_end() {
    struct Broken(bool);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("it became shorter"));
            }
            buffer[0] = b'x';
            Ok(1)
        }
    }
    for length in [None, Some(PIECE as u64 + 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(&listener);
        let server = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = listener.accept().unwrap().0.read_to_end(&mut all);
            all
        });
        let failed = ask(&client, "PUT", Outgoing::Reader(&mut Broken(false), length));
        assert_eq!(failed.unwrap_err().to_string(), "it became shorter");
        drop(client);
        let all = server.join().unwrap();
        assert!(!all.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&all));
    }
}

/// The reply comes although the server has not read all that is sent.
#[test]
fn an_early_reply_ends_the_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener);
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        serve(&mut stream, b"\r\n\r\n", REPLY);
        stream
    });
    let body = Outgoing::Reader(&mut io::repeat(0), None);
    assert_eq!(ask(&client, "PUT", body).unwrap(), "hi");
    drop(server.join().unwrap());
}
