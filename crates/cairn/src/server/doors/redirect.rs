//! Door without TLS that leads to the HTTP door, and has the answers for an authority that checks
//! whether a name leads here.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cairn_doors::serve::{self, Remote, Serving};
use cairn_doors::{Upload, host};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, LOCATION};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use super::http;
use crate::failure::{Failure, Result};
use crate::inflight::Role;
use crate::server::acme::Challenges;

pub const DOOR: Door = Door { name: "redirect", bind };

const HTTPS_PORT: u16 = 443;

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let Some(address) = args.redirect.redirect else { return Ok(None) };
    let socket = serve::bind(address)
        .map_err(|error| Failure::address("redirect door", "--redirect", address, &error))?;
    let shown = format!("http://{}", socket.local_addr()?);
    let (challenges, to) = (args.acme.challenges(), args.redirect.redirect_to.clone());
    let serve =
        move |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, challenges, to));
    let serve = Box::new(serve);
    Ok(Some(Bound { socket, shown, pages: Vec::new(), is_optional: false, serve }))
}

fn serve(
    listener: TcpListener,
    behind: &Behind<'_>,
    challenges: Arc<Challenges>,
    to: Option<String>,
) -> DoorTask {
    let port = port_of(behind.shown(http::DOOR.name));
    let door = move |_: Remote, request: Request<Upload>| {
        let reply = answer(&request, &challenges, to.as_deref(), port);
        std::future::ready(reply)
    };
    let serving = Serving { tls: None, ..behind.serving(DOOR.name) };
    Box::pin(serve::serve(listener, door, serving, behind.stopped.clone()))
}

/// Returns the port of an address such as `https://127.0.0.1:8080`.
fn port_of(shown: &str) -> u16 {
    let authority = shown.split_once("://").map_or(shown, |(_, authority)| authority);
    authority.parse::<SocketAddr>().map_or(HTTPS_PORT, |address| address.port())
}

fn answer<T>(
    request: &Request<T>,
    challenges: &Challenges,
    to: Option<&str>,
    port: u16,
) -> Response<Full<Bytes>> {
    if let Some(answer) = challenges.answer(request.uri().path()) {
        return said(StatusCode::OK, answer);
    }
    let origin = match to {
        Some(to) => Some(to.to_owned()),
        None => named(request).map(|host| origin(&host, port)),
    };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let location = origin.and_then(|origin| HeaderValue::from_str(&(origin + path)).ok());
    let Some(location) = location else {
        return said(StatusCode::BAD_REQUEST, "the request names no host\n".to_owned());
    };
    let mut reply = said(StatusCode::PERMANENT_REDIRECT, "use https://\n".to_owned());
    reply.headers_mut().insert(LOCATION, location);
    reply
}

/// Returns the host that a request is for, without its port.
fn named<T>(request: &Request<T>) -> Option<String> {
    host::check(request).ok()?;
    let authority = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None => Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok()?,
    };
    // A name with a user before it shows another target than it leads to.
    let is_plain = !authority.as_str().contains('@') && !authority.host().is_empty();
    is_plain.then(|| authority.host().to_owned())
}

fn origin(host: &str, port: u16) -> String {
    match port {
        HTTPS_PORT => format!("https://{host}"),
        port => format!("https://{host}:{port}"),
    }
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: Option<&str>, path: &str, to: Option<&str>, port: u16) -> Option<String> {
        let mut request = Request::get(path);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let reply = answer(&request.body(()).unwrap(), &Challenges::default(), to, port);
        reply.headers().get(LOCATION).map(|location| location.to_str().unwrap().to_owned())
    }

    #[test]
    fn it_leads_to_the_same_name_with_tls() {
        for (host, path, to, port, wanted) in [
            (Some("a.example"), "/b?c=d", None, 443, Some("https://a.example/b?c=d")),
            (Some("a.example:80"), "/b", None, 8080, Some("https://a.example:8080/b")),
            (Some("[::1]:80"), "/", None, 443, Some("https://[::1]/")),
            (Some("a.example"), "/b", Some("https://c.example"), 443, Some("https://c.example/b")),
            (
                Some("a.example"),
                "//evil.example/",
                None,
                443,
                Some("https://a.example//evil.example/"),
            ),
            (Some("user@evil.example"), "/", None, 443, None),
            (Some(""), "/", None, 443, None),
            (None, "/", None, 443, None),
        ] {
            assert_eq!(location(host, path, to, port).as_deref(), wanted, "{host:?} {path}");
        }
        assert_eq!((port_of("https://127.0.0.1:8443"), port_of("https://[::]:443")), (8443, 443));
    }
}
