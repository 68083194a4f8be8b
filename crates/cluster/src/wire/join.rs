//! Joining: the side of the node that asks.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Clock, Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};

use super::desk::{read_frame, write_frame};
use super::frame::Kind;
use super::tls;
use crate::identity::{JoinResult, JoinToken, NodeKey, check, request};

/// Joins the cluster that issued `token`, at the first of its masters that answers. May be called
/// again with the same key if the answer was lost.
///
/// # Errors
/// `Denied` if the cluster refuses the token, or the servers at all addresses are not of the
/// cluster that the token names (then the secret was sent to none); `Unavailable`.
pub async fn join(token: &JoinToken, key: &NodeKey, clock: Arc<dyn Clock>) -> Result<JoinResult> {
    let mut said = Vec::new();
    let mut denied = false;
    for address in &token.addresses {
        let mut stream = match tls::dial_to_join(address, token, key, &clock).await {
            Ok(stream) => stream,
            Err(error) => {
                denied |= matches!(error, Error::Denied(_));
                said.push(format!("{address}: {error}"));
                continue;
            }
        };
        match ask(&mut stream, token).await {
            Ok(answer) => return check(answer, token, key, &*clock),
            // Another master may serve.
            Err(Error::Unavailable(why)) => said.push(format!("{address}: {why}")),
            Err(error) => return Err(error),
        }
    }
    let text = format!("joining: {}", said.join("; "));
    Err(if denied { Error::Denied(text) } else { Error::Unavailable(text) })
}

async fn ask<T: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut T,
    token: &JoinToken,
) -> Result<Bytes> {
    write_frame(stream, Kind::Request, &request(token)).await?;
    let answer = read_frame(stream).await?;
    match answer.kind {
        Kind::Reply => Ok(answer.payload),
        Kind::Error => Err(Error::from_bytes(&answer.payload)?),
        kind => Err(Error::Invalid(format!("joining: a frame of kind {kind:?} is not an answer"))),
    }
}
