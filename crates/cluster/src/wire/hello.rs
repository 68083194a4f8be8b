//! First messages of a connection: node, role, versions, and the window of each side.
//!
//! The side that dialed speaks first. The other answers with its own hello, which says whether and
//! why it refuses. `docs/protocol.md` has every byte.

#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{CapabilitySet, ClusterId, Error, NodeId, Result, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::{self, Stream};
use super::program::{
    FormatRange, NodeProgram, own_formats, read_capabilities, read_formats, write_capabilities,
    write_formats,
};
use crate::limits::{HELLO_BYTES, WINDOW_BYTES, WINDOW_CALLS};

pub const MAGIC: [u8; 8] = *b"CairnWir";
/// Versions of the protocol that this program speaks.
pub const VERSION_MIN: u16 = 1;
pub const VERSION_MAX: u16 = 2;
/// From this version on, rows are sent as they are stored. Sessions need it: those of gateways and
/// mounts.
const SESSIONS_MIN: u16 = 2;
/// The longest name of a release that is shown, bytes.
const RELEASE_BYTES: usize = 32;

const HEAD_BYTES: usize = 16;
const FORMAT: u8 = 1;

const CLUSTER: u32 = 1;
const NODE: u32 = 2;
const ROLE: u32 = 3;
const CALLS: u32 = 4;
const BYTES: u32 = 5;
const REFUSED: u32 = 6;
const RELEASE: u32 = 7;
const READS_TRACES: u32 = 8;
const FORMATS: u32 = 9;
const CAPABILITIES: u32 = 10;

/// Requests and bytes that a side accepts before it has answered them.
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
    /// Reason why the speaker does not go on.
    pub refused: Option<Error>,
    /// The speaker's name for its release, to be shown; empty for releases that say nothing.
    pub release: String,
    /// Set if requests to the speaker may have traces.
    pub reads_traces: bool,
    /// Formats on disk that the speaker's program reads, to be shown.
    pub formats: Vec<FormatRange>,
    /// Capabilities of the speaker's program, as far as this one has them too.
    pub capabilities: CapabilitySet,
}

/// Returns the lowest version that a connection between these two must have.
pub fn lowest(one: Role, other: Option<Role>) -> u16 {
    let has_sessions = one == Role::Gateway || other == Some(Role::Gateway);
    if has_sessions { SESSIONS_MIN } else { VERSION_MIN }
}

/// Returns this program's name for its release.
pub fn release() -> String {
    format!("cairn {}", env!("CARGO_PKG_VERSION"))
}

/// Describes this program, in a role that speaks at least version `lowest`.
pub fn own_program(lowest: u16) -> NodeProgram {
    NodeProgram {
        release: release(),
        versions: (lowest, VERSION_MAX),
        formats: own_formats(),
        capabilities: CapabilitySet::own(),
    }
}

/// Returns a peer's name for its release, as far as it can be shown in a line of a log.
fn shown(release: &[u8]) -> String {
    let plain = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
    release.iter().take(RELEASE_BYTES).filter(plain).map(|byte| char::from(*byte)).collect()
}

impl Hello {
    /// Returns the release of the speaker for use in a sentence.
    pub fn shown_release(&self) -> &str {
        if self.release.is_empty() { "an earlier release" } else { &self.release }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::new(FORMAT);
        body.bytes(CLUSTER, &self.cluster.0.to_be_bytes())
            .number(NODE, self.node.0)
            .number(ROLE, self.role.map_or(0, |role| role.number().into()))
            .number(CALLS, self.window.calls.into())
            .number(BYTES, self.window.bytes.into());
        if let Some(error) = &self.refused {
            body.bytes(REFUSED, &error.to_bytes());
        }
        body.text(RELEASE, &self.release).number(READS_TRACES, self.reads_traces.into());
        if !self.formats.is_empty() {
            body.text(FORMATS, &write_formats(&self.formats));
        }
        body.text(CAPABILITIES, &write_capabilities(self.capabilities));
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
            release: String::new(),
            reads_traces: false,
            formats: Vec::new(),
            capabilities: CapabilitySet::NONE,
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
                READS_TRACES => hello.reads_traces = field.number()? != 0,
                RELEASE => hello.release = shown(&field.value),
                FORMATS => hello.formats = read_formats(&field.value),
                CAPABILITIES => hello.capabilities = read_capabilities(&field.value),
                REFUSED => hello.refused = Some(Error::from_bytes(&field.value)?),
                _ => {}
            }
        }
        Ok(hello)
    }
}

pub async fn write(stream: &mut dyn Stream, hello: &Hello) -> Result<()> {
    let written = async {
        stream.write_all(&hello.encode()).await?;
        stream.flush().await
    };
    written.await.map_err(link::lost("hello"))
}

/// Reads the hello of the peer, also of a peer that refuses.
///
/// # Errors
/// `Invalid` if this is not the protocol of Cairn.
pub async fn read(stream: &mut dyn Stream) -> Result<Hello> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(link::lost("hello"))?;
    let (versions, length) = read_head(&head)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(link::lost("hello"))?;
    Hello::decode(versions, &Bytes::from(body))
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
        let (node, release, reads_traces) = (NodeId(7), "cairn 9".to_owned(), true);
        let formats = own_formats();
        Hello {
            versions,
            cluster,
            node,
            role,
            window,
            refused: None,
            release,
            reads_traces,
            formats,
            capabilities: CapabilitySet::own(),
        }
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
        let read = send(&sent.encode()).await.unwrap();
        assert!(matches!(read.refused, Some(Error::Denied(text)) if text == "not you"));
    }

    #[tokio::test]
    async fn a_release_is_shown_in_one_line() {
        let mut sent = hello((1, 1));
        sent.release = format!("x\n\u{1b}[1m{}", "y".repeat(100));
        let read = send(&sent.encode()).await.unwrap();
        assert_eq!(read.release, format!("x[1m{}", "y".repeat(RELEASE_BYTES - 6)));
    }

    /// As releases before the second version said it.
    #[tokio::test]
    async fn a_hello_of_the_first_version_is_read() {
        let mut former = hello((1, 1));
        former.release.clear();
        let read = send(&former.encode()).await.unwrap();
        assert_eq!((read.versions, read.release.as_str()), ((1, 1), ""));
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
