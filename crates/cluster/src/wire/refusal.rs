//! Refusals in words for a node of another version, which asks for a purpose in a version that is
//! not spoken here.

#![deny(clippy::indexing_slicing)]

use cairn_base::{CapabilitySet, ClusterId, Error, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::hello::{Hello, VERSION_MAX, VERSION_MIN, Window, release};
use super::link::Link;
use super::refusals;
use crate::limits::HANDSHAKE;

/// Bytes that are read from a refused node, at most, so that the answer arrives.
const READ_BYTES: usize = 64 << 10;

/// Answers over `link` why `asked` is not spoken here, in the form of `spoken`, and ends it.
/// Returns the text.
pub(super) async fn refuse(
    link: Link,
    cluster: ClusterId,
    own: NodeId,
    asked: &[u8],
    spoken: &'static [u8],
) -> Error {
    let Link { mut stream, peer } = link;
    let (said, text) = (String::from_utf8_lossy(asked), String::from_utf8_lossy(spoken));
    let (them, release) = (peer.node, release());
    let older = if version(asked) > version(spoken) { own } else { them };
    let error = Error::Invalid(format!(
        "node {them} asks for {said}, node {own} ({release}) speaks {text}: upgrade node {older}"
    ));
    refusals::log(own, &peer, &error);
    let answer = if spoken.starts_with(b"cairn-wire/") {
        hello(cluster, own, &error)
    } else {
        response(&error)
    };
    let mut piece = [0; 4096];
    let answered = async {
        // A client of HTTP accepts an answer only after it has sent a request.
        let mut read = stream.read(&mut piece).await?;
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        while read < READ_BYTES {
            match stream.read(&mut piece).await? {
                0 => break,
                count => read += count,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // It does not matter here whether the other side has read it.
    let _ = timeout(HANDSHAKE, answered).await;
    error
}

/// Returns the number after the slash; 0 if there is none.
fn version(protocol: &[u8]) -> u64 {
    let number = protocol.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn hello(cluster: ClusterId, own: NodeId, error: &Error) -> Vec<u8> {
    Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        cluster,
        node: own,
        role: None,
        window: Window::default(),
        refused: Error::from_bytes(&error.to_bytes()).ok(),
        release: release(),
        reads_traces: false,
        formats: Vec::new(),
        capabilities: CapabilitySet::NONE,
    }
    .encode()
}

fn response(error: &Error) -> Vec<u8> {
    let body = error.to_bytes();
    let head = format!(
        "HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncairn-epoch: 0\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (protocol, number) in [("cairn-wire/1", 1), ("a/b/12", 12), ("a/x", 0), ("a", 0)] {
            assert_eq!(version(protocol.as_bytes()), number, "{protocol}");
        }
    }
}
