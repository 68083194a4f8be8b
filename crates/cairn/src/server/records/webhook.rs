//! Sends lines to a URL.

use std::io::{self, Read};

use bytes::Bytes;
use cairn_audit::LineSink;
use cairn_base::waits;
use cairn_tls::Trust;
use hyper::Request;

use crate::connection::AGENT;
use crate::connection::http::{Client, Outgoing};
use crate::failure::{Failure, Result};

/// Most bytes that are read of a reply.
const REPLY_BYTES: u64 = 1 << 20;

/// POSTs lines. A URL may contain a secret, so it is not shown.
pub struct WebhookSink {
    client: Client,
    path: String,
}

impl WebhookSink {
    /// Makes a sink. `option` is named in the error if the URL is malformed.
    pub fn new(option: &str, url: &str) -> Result<WebhookSink> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let what = format!("{option}: not a URL: use one such as https://example.org/audit");
            return Err(Failure::usage(what));
        }
        let client = Client::new(url, Trust::Public, Some(waits::TRACES));
        let client = client.map_err(|_| Failure::usage(format!("{option}: not a URL")))?;
        let path = format!("/{}", url.splitn(4, '/').nth(3).unwrap_or_default());
        Ok(WebhookSink { client, path })
    }
}

impl LineSink for WebhookSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let request = Request::post(&self.path)
            .header("content-type", "application/x-ndjson")
            .header("user-agent", AGENT)
            .body(())
            .map_err(|_| io::Error::other("its path is none"))?;
        let reply = self.client.send(request, Outgoing::Bytes(Bytes::copy_from_slice(lines)))?;
        let status = reply.status();
        // Read to its end, so that the connection can be reused.
        io::copy(&mut reply.into_body().take(REPLY_BYTES), &mut io::sink())?;
        if status.is_success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("it answers with status {}", status.as_u16())))
        }
    }

    /// Does nothing: it turns out when lines are sent whether the receiver takes them.
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
