//! A dump of the metadata as the body of a reply, made while it is sent.

#![expect(clippy::disallowed_methods, reason = "doors are not simulated")]

use std::io::{self, Write};

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use futures_util::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

use super::Body;

/// Bytes of a piece of the body; pieces that wait for the client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES: usize = 4;

type Piece = Result<Bytes>;

/// Sends written bytes in pieces. Waits for the client.
struct Pieces {
    piece: Vec<u8>,
    sender: Sender<Piece>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client hung up"))
    }
}

/// Replies with all metadata in one state.
pub async fn reply(fs: &Fs, caller: &Caller) -> Result<Response<Body>> {
    let (sender, mut pieces) = channel(PIECES);
    let (meta, caller, now) = (fs.meta().clone(), caller.clone(), fs.clock().now());
    spawn_blocking(move || {
        let mut out = Pieces { piece: Vec::new(), sender: sender.clone() };
        if let Err(error) = meta.dump(&caller, now, &mut out) {
            // The receiver may be gone.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let first = pieces.recv().await;
    let first =
        first.ok_or_else(|| Error::Unavailable("the dump could not be started".into()))??;
    let rest = stream::unfold(pieces, |mut pieces: Receiver<Piece>| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let body = stream::once(async { Ok(first) }).chain(rest);
    let mut reply = Response::new(Body::unmeasured(body.boxed()));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}
