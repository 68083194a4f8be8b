//! TLS with reload, ALPN, resumption; HTTP/2 with and without TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::http_harness::{PATIENCE, Server, Setup, write_certificate};
use crate::http_objects_are_what_was_put::pattern;

fn secure() -> Server {
    Server::with(Setup { tls: true, ..Setup::default() })
}

fn certificate(server: &Server) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    let pem = std::fs::read(server.dir.path().join("cert.pem")).unwrap();
    CertificateDer::from_pem_slice(&pem).unwrap().to_vec()
}

fn client(certificate: &[u8], alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// GET /healthz over TLS for `name`; how the handshake went.
fn ask(server: &Server, config: &Arc<ClientConfig>, name: &str) -> std::io::Result<HandshakeKind> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(server.address)?);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("ok\n"), "{reply}");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    Ok(stream.conn.handshake_kind().unwrap())
}

#[test]
fn a_client_of_http_1_0_is_served() {
    let server = secure();
    let config = client(&certificate(&server), &[b"http/1.0"]);
    let name = ServerName::try_from("first.test").unwrap();
    let session = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(server.address).unwrap());
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.0 200") && reply.ends_with("ok\n"), "{reply}");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.0"[..]));
}

#[test]
fn sessions_are_resumed() {
    let server = secure();
    let config = client(&certificate(&server), &[b"http/1.1"]);
    assert_eq!(ask(&server, &config, "first.test").unwrap(), HandshakeKind::Full);
    assert_eq!(ask(&server, &config, "first.test").unwrap(), HandshakeKind::Resumed);
    assert!(ask(&server, &config, "second.test").is_err());
}

#[test]
fn a_new_certificate_is_taken_up() {
    let server = secure();
    let old = certificate(&server);
    std::thread::sleep(Duration::from_millis(20));
    // Half a replacement: the former certificate stays.
    std::fs::write(server.dir.path().join("cert.pem"), "nonsense").unwrap();
    let alpn: &[&[u8]] = &[b"http/1.1"];
    ask(&server, &client(&old, alpn), "first.test").unwrap();
    let new = write_certificate(server.dir.path(), "second.test");
    let started = Instant::now();
    while ask(&server, &client(&new, alpn), "second.test").is_err() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ask(&server, &client(&old, alpn), "first.test").is_err());
}

/// On a machine that is busy a handshake may last as long as one that stalls: not each time.
fn ask_at_last(server: &Server, config: &Arc<ClientConfig>) {
    let started = Instant::now();
    while let Err(error) = ask(server, config, "first.test") {
        assert!(started.elapsed() < PATIENCE, "{error}");
    }
}

#[test]
fn a_stalled_handshake_is_dropped() {
    let mut setup = Setup { tls: true, ..Setup::default() };
    setup.limits.handshake = Duration::from_millis(200);
    setup.limits.handshakes = 1;
    let server = Server::with(setup);
    let mut stalled = server.anonymous().connect();
    assert!(stalled.is_closed());
    let mut plain = server.anonymous().connect();
    plain.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut rest = Vec::new();
    let _ = plain.stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"));
    ask_at_last(&server, &client(&certificate(&server), &[b"http/1.1"]));
}

#[test]
fn handshakes_of_the_silent_take_no_place() {
    let mut setup = Setup { tls: true, ..Setup::default() };
    setup.limits.handshake = Duration::from_secs(120);
    setup.limits.handshake_wanted = Duration::from_millis(200);
    setup.limits.handshakes = 4;
    let server = Server::with(setup);
    let config = client(&certificate(&server), &[b"http/1.1"]);
    let mut hello = Vec::new();
    let name = ServerName::try_from("first.test").unwrap();
    let mut session = ClientConnection::new(Arc::clone(&config), name).unwrap();
    session.write_tls(&mut hello).unwrap();
    // Nothing, or half of a hello.
    let mut held: Vec<TcpStream> =
        (0..30).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let half = hello.len() / 2;
    for stream in held.iter_mut().step_by(3) {
        stream.write_all(&hello[..half]).unwrap();
    }
    ask_at_last(&server, &config);
    // Clients that say all of it and no more have their places for a part of the time only.
    for stream in held.iter_mut().step_by(3) {
        stream.write_all(&hello[half..]).unwrap();
    }
    ask_at_last(&server, &config);
}

/// Requests over one HTTP/2 connection, some at the same time.
async fn converse<T>(stream: T, authorization: String)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let call = |method: &str, path: &str, body: Vec<u8>| {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://first.test{path}"))
            .header("authorization", &authorization)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let mut sender = sender.clone();
        async move {
            let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
            (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
        }
    };
    assert_eq!(call("PUT", "/storage/bucket", vec![]).await.0, 201);
    let data = pattern(3 << 20);
    assert_eq!(call("PUT", "/storage/bucket/a", data.clone()).await.0, 201);
    let gets = (0..20).map(|_| call("GET", "/storage/bucket/a", vec![]));
    for (status, headers, body) in futures_util::future::join_all(gets).await {
        assert_eq!((status, headers["content-length"].to_str().unwrap()), (200, "3145728"));
        assert!(body == data);
    }
    let (status, headers, body) = call("HEAD", "/storage/bucket/a", vec![]).await;
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(headers["content-length"], "3145728");
    let (status, _, body) = call("GET", "/storage/bucket/none", vec![]).await;
    assert!(status == 404 && body.starts_with(b"{\"error\":\"not_found\""));
}

#[test]
fn http2_over_tls() {
    let server = secure();
    let config = client(&certificate(&server), &[b"h2", b"http/1.1"]);
    let authorization = server.root().authorization.unwrap();
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("first.test").unwrap();
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        converse(stream, authorization).await;
    });
}

#[test]
fn http2_without_tls() {
    let server = Server::start();
    let authorization = server.root().authorization.unwrap();
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        converse(stream, authorization).await;
    });
}
