//! Requests to an authority, over the client of commands.

use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use cairn_tls::Trust;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::{HeaderValue, USER_AGENT};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::connection::AGENT;
use crate::connection::http::{Client, Outgoing};

/// Deadline of a request and its reply.
const WITHIN: Duration = Duration::from_secs(30);
/// Most bytes that are read of a reply.
const REPLY_BYTES: u64 = 1 << 20;

pub struct Transport(pub Trust);

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let trust = self.0.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
            parts.headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            let sent = move || send(Request::from_parts(parts, ()), body, trust);
            let reply = tokio::task::spawn_blocking(sent).await;
            let reply = reply.map_err(io::Error::other).flatten();
            reply.map_err(|error| Error::Other(Box::new(error)))
        })
    }
}

fn send(mut request: Request<()>, body: Bytes, trust: Trust) -> io::Result<BytesResponse> {
    let uri = request.uri().clone();
    // A reply of the authority may name another address, but never one that anybody on the way can
    // change.
    if uri.scheme_str() != Some("https") {
        return Err(io::Error::other(format!("{uri}: not https://")));
    }
    let client = Client::new(&uri.to_string(), trust, Some(WITHIN)).map_err(io::Error::other)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(io::Error::other)?;
    let (head, body) = client.send(request, Outgoing::Bytes(body))?.into_parts();
    let mut read = Vec::new();
    if body.take(REPLY_BYTES + 1).read_to_end(&mut read)? as u64 > REPLY_BYTES {
        return Err(io::Error::other(format!("{uri}: the reply is too long")));
    }
    Ok(BytesResponse::from(hyper::Response::from_parts(head, Full::new(Bytes::from(read)))))
}
