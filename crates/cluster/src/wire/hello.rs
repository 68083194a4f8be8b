//! The first words on a connection: who speaks, which versions, and how much it takes at once.
//!
//! The side that dialed speaks first. The other answers with its own hello, which says whether
//! and why it refuses. `docs/protocol.md` has every byte.

#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{ClusterId, Error, NodeId, Result, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::{self, Stream};
use crate::limits::{HELLO_BYTES, WINDOW_BYTES, WINDOW_CALLS};

pub const MAGIC: [u8; 8] = *b"CairnWir";
/// The versions of the protocol that this program speaks.
pub const VERSION_MIN: u16 = 1;
pub const VERSION_MAX: u16 = 1;

const HEAD_BYTES: usize = 16;
const FORMAT: u8 = 1;

const CLUSTER: u32 = 1;
const NODE: u32 = 2;
const ROLE: u32 = 3;
const CALLS: u32 = 4;
const BYTES: u32 = 5;
const REFUSED: u32 = 6;

/// How much a side takes before it has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Requests.
    pub calls: u32,
    /// Bytes of these requests, headers included. A single request may be longer.
    pub bytes: u32,
}

impl Default for Window {
    fn default() -> Window {
        Window { calls: WINDOW_CALLS, bytes: WINDOW_BYTES }
    }
}

#[derive(Debug)]
pub struct Hello {
    pub versions: (u16, u16),
    pub cluster: ClusterId,
    pub node: NodeId,
    pub role: Option<Role>,
    pub window: Window,
    /// Why the speaker does not go on.
    pub refused: Option<Error>,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut body = Writer::new(FORMAT);
        body.bytes(CLUSTER, &self.cluster.0.to_be_bytes())
            .number(NODE, self.node.0)
            .number(ROLE, self.role.map_or(0, |role| role.number().into()))
            .number(CALLS, self.window.calls.into())
            .number(BYTES, self.window.bytes.into());
        if let Some(error) = &self.refused {
            body.bytes(REFUSED, &error.to_bytes());
        }
        let body = body.finish();
        let mut out = Vec::with_capacity(HEAD_BYTES + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.versions.0.to_le_bytes());
        out.extend_from_slice(&self.versions.1.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn decode(versions: (u16, u16), body: &Bytes) -> Result<Hello> {
        let mut hello = Hello {
            versions,
            cluster: ClusterId(0),
            node: NodeId(0),
            role: None,
            window: Window { calls: 0, bytes: 0 },
            refused: None,
        };
        let number = |field: cairn_base::codec::Field| {
            u32::try_from(field.number()?).map_err(|_| Error::Invalid("a hello's window".into()))
        };
        let mut fields = Fields::open(body, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                CLUSTER => {
                    let bytes = <[u8; 16]>::try_from(&field.value[..]);
                    let bytes = bytes.map_err(|_| Error::Invalid("a hello's cluster".into()))?;
                    hello.cluster = ClusterId(u128::from_be_bytes(bytes));
                }
                NODE => hello.node = NodeId(field.number()?),
                ROLE => hello.role = u8::try_from(field.number()?).ok().and_then(Role::from_number),
                CALLS => hello.window.calls = number(field)?,
                BYTES => hello.window.bytes = number(field)?,
                REFUSED => hello.refused = Some(Error::from_bytes(&field.value)?),
                _ => {}
            }
        }
        Ok(hello)
    }

    /// The highest version that both speak.
    pub fn common_version(&self) -> Result<u16> {
        let version = self.versions.1.min(VERSION_MAX);
        if version < self.versions.0.max(VERSION_MIN) {
            let (low, high) = self.versions;
            return Err(Error::Invalid(format!(
                "the peer speaks versions {low} to {high} of the protocol, this node \
                 {VERSION_MIN} to {VERSION_MAX}: upgrade the older of the two"
            )));
        }
        Ok(version)
    }
}

pub async fn write(stream: &mut dyn Stream, hello: &Hello) -> Result<()> {
    let written = async {
        stream.write_all(&hello.encode()).await?;
        stream.flush().await
    };
    written.await.map_err(link::lost("hello"))
}

/// # Errors
/// `Invalid` if this is not the protocol of Cairn; what the peer refused with.
pub async fn read(stream: &mut dyn Stream) -> Result<Hello> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(link::lost("hello"))?;
    let (versions, length) = read_head(&head)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(link::lost("hello"))?;
    let hello = Hello::decode(versions, &Bytes::from(body))?;
    match hello.refused {
        Some(error) => Err(error),
        None => Ok(hello),
    }
}

fn read_head(head: &[u8; HEAD_BYTES]) -> Result<((u16, u16), usize)> {
    let other = || Error::Invalid("the peer does not speak the protocol of Cairn's nodes".into());
    let (magic, rest) = head.split_first_chunk::<8>().ok_or_else(other)?;
    let (min, rest) = rest.split_first_chunk::<2>().ok_or_else(other)?;
    let (max, rest) = rest.split_first_chunk::<2>().ok_or_else(other)?;
    let length = u32::from_le_bytes(*rest.first_chunk::<4>().ok_or_else(other)?) as usize;
    if magic != &MAGIC {
        return Err(other());
    }
    if length > HELLO_BYTES {
        return Err(Error::Invalid(format!("a hello of {length} bytes")));
    }
    Ok(((u16::from_le_bytes(*min), u16::from_le_bytes(*max)), length))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn hello(versions: (u16, u16)) -> Hello {
        let window = Window::default();
        let role = Some(Role::Gateway);
        let cluster = ClusterId(u128::MAX - 5);
        Hello { versions, cluster, node: NodeId(7), role, window, refused: None }
    }

    async fn send(bytes: &[u8]) -> Result<Hello> {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        near.write_all(bytes).await.unwrap();
        drop(near);
        read(&mut far).await
    }

    #[tokio::test]
    async fn a_hello_reads_back() {
        let sent = hello((1, 3));
        let read = send(&sent.encode()).await.unwrap();
        assert_eq!(format!("{read:?}"), format!("{sent:?}"));
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_it_says() {
        let mut sent = hello((1, 1));
        sent.refused = Some(Error::Denied("not you".into()));
        let error = send(&sent.encode()).await.unwrap_err();
        assert!(matches!(error, Error::Denied(text) if text == "not you"));
    }

    #[test]
    fn versions_meet_or_say_why_not() {
        assert_eq!(hello((1, 1)).common_version().unwrap(), 1);
        assert_eq!(hello((0, 9)).common_version().unwrap(), 1);
        for (low, high) in [(2, 3), (0, 0), (3, 1)] {
            let text = hello((low, high)).common_version().unwrap_err().to_string();
            assert!(text.contains(&format!("versions {low} to {high}")), "{text}");
        }
    }

    #[tokio::test]
    async fn other_bytes_are_refused() {
        let whole = hello((1, 1)).encode();
        for end in 0..whole.len() {
            assert!(send(&whole[..end]).await.is_err());
        }
        let error = send(b"GET / HTTP/1.1\r\nHost: cairn\r\n\r\n").await.unwrap_err();
        assert!(error.to_string().contains("does not speak"), "{error}");
        let mut long = whole.clone();
        long[14] = 1;
        assert!(send(&long).await.unwrap_err().to_string().contains("a hello of"));
    }
}
