//! Answers nodes that join: one request and one answer.

use bytes::Bytes;
use cairn_base::{Error, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frame::{Frame, Kind, Parser, header};
use super::link::lost;
use crate::identity::{Desk, PublicKey};
use crate::limits::JOIN_BYTES;

/// Answers a node that asks to join, and has shown in the handshake that it has the key `public`.
pub async fn serve<T>(desk: &Desk, stream: &mut T, public: &PublicKey) -> Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let request = read_frame(stream).await?;
    let answer = match request.kind {
        Kind::Request => desk.admit(&request.payload, public).await,
        kind => Err(Error::Invalid(format!("joining: a frame of kind {kind:?} is not a request"))),
    };
    match &answer {
        Ok(payload) => write_frame(stream, Kind::Reply, payload).await?,
        Err(error) => write_frame(stream, Kind::Error, &error.to_bytes()).await?,
    }
    // The other side hangs up when it has the answer.
    let _ = stream.shutdown().await;
    answer.map(|_| ())
}

pub async fn write_frame<T>(stream: &mut T, kind: Kind, payload: &Bytes) -> Result<()>
where
    T: AsyncWrite + Unpin,
{
    let written = async {
        stream.write_all(&header(kind, 0, 0, payload.len() as u32)).await?;
        stream.write_all(payload).await?;
        stream.flush().await
    };
    written.await.map_err(lost("joining"))
}

pub async fn read_frame<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Frame> {
    let mut parser = Parser::new(JOIN_BYTES);
    loop {
        if let Some(frame) = parser.next_frame()? {
            return Ok(frame);
        }
        let read = stream.read_buf(parser.room()).await.map_err(lost("joining"))?;
        if read == 0 {
            return Err(Error::Unavailable("joining: the other side hung up".into()));
        }
    }
}
