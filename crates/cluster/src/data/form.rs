//! Requests and answers as text and bytes, both ways.

use std::fmt::{self, Write};
use std::ops::Range;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use cairn_base::codec::{Fields, Writer};
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::map::REPLICAS_MAX;
use cairn_base::trace::Trace;
use cairn_base::{BlockId, BodyId, Error, GroupId, NodeId, Owner, Result, SessionId};
use cairn_blocks::{BlockInfo, Usage};
use http::header::{CONTENT_LENGTH, HeaderName, RANGE};
use http::{HeaderMap, StatusCode};

use crate::limits::{DELETE_BLOCKS, INVENTORY_BLOCKS};

/// Epoch of the sender's map, decimal: in every request and answer.
pub(super) const EPOCH: HeaderName = HeaderName::from_static("cairn-epoch");
/// The body and chunk of a block.
pub(super) const OWNER: HeaderName = HeaderName::from_static("cairn-owner");
/// The crc32c of a whole body, 8 hexadecimal digits.
pub(super) const CRC32C: HeaderName = HeaderName::from_static("cairn-crc32c");
/// All nodes that get a block, in the order in which they get it.
pub(super) const CHAIN: HeaderName = HeaderName::from_static("cairn-chain");
/// Time that the sender waits, milliseconds.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("cairn-timeout-ms");
/// In the answer to a PUT: time that each node took to make the block durable once it had all of
/// it, microseconds. The order is that of the chain, from the node that answers.
pub(super) const KEPT: HeaderName = HeaderName::from_static("cairn-kept-us");
/// In an error: the node that failed.
pub(super) const FAILED: HeaderName = HeaderName::from_static("cairn-failed");
/// In an error: the sender's map is older than this epoch, which is the reason.
pub(super) const STALE: HeaderName = HeaderName::from_static("cairn-stale");

/// `1`: in a PUT, that the block is to be stored in its compressed form; in the answer to a GET,
/// that it is.
pub(super) const COMPRESSED: HeaderName = HeaderName::from_static("cairn-compressed");

/// W3C Trace Context of the client's request that this belongs to, if any.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const INFO_BYTES: usize = 40;
const ID_BYTES: usize = 16;
/// Members that a group can have while it moves.
pub(super) const CHAIN_NODES: usize = 2 * REPLICAS_MAX as usize;

/// Refusal of a request by a node.
#[derive(Debug)]
pub struct Refusal {
    pub error: Error,
    /// The node that failed: the node that was asked, or a node that it asked in turn.
    pub node: Option<NodeId>,
    /// The asking node's map is older than the map by which it was refused.
    pub stale: bool,
    /// Epoch of the map by which it was refused; 0 if no node answered.
    pub epoch: u64,
}

impl Refusal {
    pub(super) fn by(node: NodeId, error: Error) -> Refusal {
        Refusal { error, node: Some(node), stale: false, epoch: 0 }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, node: None, stale: false, epoch: 0 }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "node {node}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

pub(super) fn status(error: &Error) -> StatusCode {
    match error {
        Error::NotFound(_) => StatusCode::NOT_FOUND,
        Error::Exists(_) | Error::Conflict(_) => StatusCode::CONFLICT,
        Error::Denied(_) => StatusCode::FORBIDDEN,
        Error::Invalid(_) | Error::BadDigest(_) => StatusCode::BAD_REQUEST,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        Error::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::NotImplemented(_) => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    Block(GroupId, BlockId),
    Group(GroupId),
    Usage,
    Scrub,
    ScrubFound,
}

impl Path {
    pub(super) fn parse(path: &str) -> Result<Path> {
        let parsed = match path.strip_prefix("/blocks/") {
            Some(rest) => match rest.split_once('/') {
                Some((group, block)) => group_id(group)
                    .zip(block_id(block))
                    .map(|(group, block)| Path::Block(group, block)),
                None => group_id(rest).map(Path::Group),
            },
            None => match path {
                "/usage" => Some(Path::Usage),
                "/scrub" => Some(Path::Scrub),
                "/scrub/found" => Some(Path::ScrubFound),
                _ => None,
            },
        };
        parsed.ok_or_else(|| invalid("unknown path", path))
    }
}

fn invalid(what: &str, got: &str) -> Error {
    let got: String = got.chars().take(100).collect();
    Error::Invalid(format!("{what}: {got:?}"))
}

/// Returns the path of a group and what follows it. On the wire, numbers of groups and nodes are
/// hexadecimal, though people read them as decimal ones.
pub(super) fn path(group: GroupId, rest: &str) -> String {
    format!("/blocks/{:x}{rest}", group.0)
}

/// Parses what `{:x}` writes, and nothing else.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let plain = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_strict = (text == "0" || !text.starts_with('0'))
        && (1..=digits).contains(&text.len())
        && text.bytes().all(plain);
    if is_strict { u64::from_str_radix(text, 16).ok() } else { None }
}

fn decimal(text: &str) -> Option<u64> {
    let is_strict = (text == "0" || !text.starts_with('0'))
        && (1..=20).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_strict { text.parse().ok() } else { None }
}

fn group_id(text: &str) -> Option<GroupId> {
    u32::try_from(hex(text, 8)?).ok().map(GroupId)
}

fn pair(text: &str) -> Option<(SessionId, u64)> {
    let (session, counter) = text.split_once('-')?;
    Some((SessionId(hex(session, 16)?), hex(counter, 16)?))
}

pub(super) fn block_id(text: &str) -> Option<BlockId> {
    pair(text).map(|(session, counter)| BlockId { session, counter })
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str> {
    let mut all = headers.get_all(name).iter();
    let one = all.next().ok_or_else(|| Error::Invalid(format!("no header {name}")))?;
    if all.next().is_some() {
        return Err(Error::Invalid(format!("more than one header {name}")));
    }
    one.to_str().map_err(|_| Error::Invalid(format!("header {name}: not ASCII")))
}

fn parsed<T>(
    headers: &HeaderMap,
    name: &HeaderName,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    let text = header(headers, name)?;
    parse(text).ok_or_else(|| invalid(name.as_str(), text))
}

pub(super) fn epoch(headers: &HeaderMap) -> Result<u64> {
    parsed(headers, &EPOCH, decimal)
}

/// Returns the trace that a request belongs to. A malformed value is ignored: nothing depends on
/// it.
pub(super) fn trace(headers: &HeaderMap) -> Option<Trace> {
    let (id, span, sampled) = Trace::parse(headers.get(TRACEPARENT)?.as_bytes())?;
    Some(Trace { id, span, parent: 0, sampled })
}

pub(super) fn stale(headers: &HeaderMap) -> Option<u64> {
    parsed(headers, &STALE, decimal).ok()
}

pub(super) fn failed(headers: &HeaderMap) -> Option<NodeId> {
    parsed(headers, &FAILED, |text| hex(text, 16)).ok().map(NodeId)
}

/// The headers of a PUT beside its block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub owner: Owner,
    pub crc32c: u32,
    pub chain: Vec<NodeId>,
    pub timeout: Duration,
    pub length: usize,
    pub compress: bool,
}

impl Order {
    pub(super) fn parse(headers: &HeaderMap) -> Result<Order> {
        let length = length(headers)?;
        if !(1..=BLOCK_BYTES as u64).contains(&length) {
            let text = format!("a block of {length} bytes: 1 to {BLOCK_BYTES} it may have");
            return Err(if length == 0 { Error::Invalid(text) } else { Error::TooLarge(text) });
        }
        Ok(Order {
            owner: parsed(headers, &OWNER, parse_owner)?,
            crc32c: parsed(headers, &CRC32C, parse_crc)?,
            chain: parsed(headers, &CHAIN, parse_chain)?,
            timeout: Duration::from_millis(parsed(headers, &TIMEOUT, decimal)?),
            length: length as usize,
            compress: compress(headers)?,
        })
    }
}

/// Returns true if a block is to be compressed.
fn compress(headers: &HeaderMap) -> Result<bool> {
    if headers.contains_key(COMPRESSED) {
        parsed(headers, &COMPRESSED, |text| (text == "1").then_some(true))
    } else {
        Ok(false)
    }
}

/// Returns true if a block is compressed. A malformed value counts as false: nothing depends on it.
pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get(COMPRESSED).is_some_and(|value| value == "1")
}

fn parse_owner(text: &str) -> Option<Owner> {
    let (body, chunk) = text.split_once('.')?;
    let (session, counter) = pair(body)?;
    let chunk = u32::try_from(hex(chunk, 8)?).ok()?;
    Some(Owner { body: BodyId { session, counter }, chunk })
}

pub(super) fn owner(owner: Owner) -> String {
    format!("{}.{:x}", owner.body, owner.chunk)
}

fn parse_crc(text: &str) -> Option<u32> {
    let plain = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_strict = text.len() == 8 && text.bytes().all(plain);
    if is_strict { u32::from_str_radix(text, 16).ok() } else { None }
}

fn parse_chain(text: &str) -> Option<Vec<NodeId>> {
    let mut chain = Vec::new();
    for part in text.split(',') {
        let node = NodeId(hex(part, 16)?);
        if chain.len() == CHAIN_NODES || node.0 == 0 || chain.contains(&node) {
            return None;
        }
        chain.push(node);
    }
    Some(chain)
}

pub(super) fn chain(chain: &[NodeId]) -> String {
    let mut text = String::new();
    for node in chain {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{:x}", node.0);
    }
    text
}

/// Times that nodes took to make a block durable.
pub(super) type Kept = Vec<(NodeId, Duration)>;

pub(super) fn show_kept(kept: &[(NodeId, Duration)]) -> String {
    let mut text = String::new();
    for (node, took) in kept {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{:x}={}", node.0, took.as_micros());
    }
    text
}

/// Parses the times. A malformed value is ignored: nothing depends on it.
pub(super) fn kept(headers: &HeaderMap) -> Kept {
    parsed(headers, &KEPT, parse_kept).unwrap_or_default()
}

fn parse_kept(text: &str) -> Option<Kept> {
    let mut kept = Kept::new();
    for part in text.split(',') {
        let (node, us) = part.split_once('=')?;
        let node = NodeId(hex(node, 16)?);
        if kept.len() == CHAIN_NODES || kept.iter().any(|(known, _)| *known == node) {
            return None;
        }
        kept.push((node, Duration::from_micros(decimal(us)?)));
    }
    Some(kept)
}

/// Returns the length of a body; every message that has a body has its length.
pub(super) fn length(headers: &HeaderMap) -> Result<u64> {
    parsed(headers, &CONTENT_LENGTH, decimal)
}

/// Returns the range of a GET; `None` for the whole block.
pub(super) fn range(headers: &HeaderMap) -> Result<Option<Range<u32>>> {
    if !headers.contains_key(RANGE) {
        return Ok(None);
    }
    let parse = |text: &str| {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let first = u32::try_from(decimal(first)?).ok()?;
        let end = u32::try_from(decimal(last)?).ok()?.checked_add(1)?;
        (first < end).then_some(first..end)
    };
    parsed(headers, &RANGE, parse).map(Some)
}

/// The wanted part of an inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageQuery {
    pub after: Option<BlockId>,
    pub limit: usize,
}

impl PageQuery {
    pub(super) fn parse(query: Option<&str>) -> Result<PageQuery> {
        let query = query.unwrap_or_default();
        let bad = || invalid("query", query);
        let (mut after, mut limit) = (None, None);
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("after", id)) if after.is_none() => {
                    after = Some(block_id(id).ok_or_else(bad)?);
                }
                Some(("limit", number)) if limit.is_none() => {
                    limit = Some(decimal(number).ok_or_else(bad)?);
                }
                _ => return Err(bad()),
            }
        }
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).ok_or_else(bad)?;
        if !(1..=INVENTORY_BLOCKS).contains(&limit) {
            return Err(Error::Invalid(format!("limit: 1 to {INVENTORY_BLOCKS}, not {limit}")));
        }
        Ok(PageQuery { after, limit })
    }
}

/// Returns the number of the scrub that a request is about.
pub(super) fn scrub_run(query: Option<&str>) -> Result<u64> {
    let query = query.unwrap_or_default();
    let run = query.strip_prefix("run=").and_then(|run| hex(run, 16));
    run.ok_or_else(|| invalid("query", query))
}

pub(super) fn encode_page(page: &[BlockInfo]) -> Bytes {
    let mut out = BytesMut::with_capacity(page.len() * INFO_BYTES);
    for info in page {
        out.put_slice(&info.block.to_bytes());
        out.put_slice(&info.owner.body.to_bytes());
        out.put_u32(info.owner.chunk);
        out.put_u32(info.length);
    }
    out.freeze()
}

/// Decodes a page of an inventory.
///
/// # Errors
/// `Corrupt` if these are not blocks in the order of their ids.
pub(super) fn decode_page(bytes: &[u8]) -> Result<Vec<BlockInfo>> {
    let bad = |got: &str| Error::corrupt("page of an inventory", got, "blocks in order");
    let (entries, rest) = bytes.as_chunks::<INFO_BYTES>();
    if !rest.is_empty() {
        return Err(bad("a part of an entry"));
    }
    let mut page: Vec<BlockInfo> = Vec::with_capacity(entries.len());
    for entry in entries {
        let (ids, rest) = entry.as_chunks::<ID_BYTES>();
        let (numbers, _) = rest.as_chunks::<4>();
        let (&[block, body], &[chunk, length]) = (ids, numbers) else {
            return Err(bad("an entry of another length"));
        };
        let (block, body) = (BlockId::from_bytes(block), BodyId::from_bytes(body));
        if page.last().is_some_and(|last| last.block >= block) {
            return Err(bad("another order"));
        }
        let owner = Owner { body, chunk: u32::from_be_bytes(chunk) };
        page.push(BlockInfo { block, owner, length: u32::from_be_bytes(length) });
    }
    Ok(page)
}

pub(super) fn encode_ids(blocks: &[BlockId]) -> Bytes {
    blocks.iter().flat_map(|block| block.to_bytes()).collect()
}

pub(super) fn decode_ids(bytes: &[u8]) -> Result<Vec<BlockId>> {
    let (ids, rest) = bytes.as_chunks::<ID_BYTES>();
    if !rest.is_empty() || !(1..=DELETE_BLOCKS).contains(&ids.len()) {
        let got = bytes.len();
        let text = format!("{got} bytes: 1 to {DELETE_BLOCKS} ids of {ID_BYTES} bytes it may be");
        return Err(Error::Invalid(text));
    }
    Ok(ids.iter().map(|id| BlockId::from_bytes(*id)).collect())
}

/// The longest body of a request to delete, bytes.
pub(super) const IDS_BYTES: usize = DELETE_BLOCKS * ID_BYTES;
/// The longest page of an inventory, bytes.
pub(super) const PAGE_BYTES: usize = INVENTORY_BLOCKS * INFO_BYTES;
/// The longest usage, bytes.
pub(super) const USAGE_BYTES: usize = 4 << 10;

const FORMAT: u8 = 1;

pub(super) fn encode_usage(usage: &Usage) -> Bytes {
    let mut out = Writer::new(FORMAT);
    out.number(1, usage.blocks)
        .number(2, usage.live_bytes)
        .number(3, usage.dead_bytes)
        .number(4, usage.free_bytes)
        .number(5, usage.segments)
        .number(6, usage.poisoned_segments)
        .number(7, usage.damaged_segments)
        .number(8, usage.corrupt_reads);
    out.finish()
}

pub(super) fn decode_usage(row: &Bytes) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            1 => usage.blocks = field.number()?,
            2 => usage.live_bytes = field.number()?,
            3 => usage.dead_bytes = field.number()?,
            4 => usage.free_bytes = field.number()?,
            5 => usage.segments = field.number()?,
            6 => usage.poisoned_segments = field.number()?,
            7 => usage.damaged_segments = field.number()?,
            8 => usage.corrupt_reads = field.number()?,
            _ => {}
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(session: u64, counter: u64) -> BlockId {
        BlockId { session: SessionId(session), counter }
    }

    #[test]
    fn paths_are_strict() {
        let block = Path::Block(GroupId(0xa), id(0xff, 0));
        assert_eq!(Path::parse("/blocks/a/ff-0").unwrap(), block);
        assert_eq!(Path::parse("/blocks/ffffffff").unwrap(), Path::Group(GroupId(u32::MAX)));
        assert_eq!(Path::parse("/usage").unwrap(), Path::Usage);
        assert_eq!(Path::parse("/scrub").unwrap(), Path::Scrub);
        assert_eq!(Path::parse("/scrub/found").unwrap(), Path::ScrubFound);
        for bad in [
            "",
            "/",
            "/usage/",
            "/scrub/",
            "/scrub/x",
            "/blocks",
            "/blocks/",
            "/blocks/A",
            "/blocks/0a",
            "/blocks/+1",
            "/blocks/100000000",
            "/blocks/1/",
            "/blocks/1/1",
            "/blocks/1/1-",
            "/blocks/1/-1",
            "/blocks/1/1-1-1",
            "/blocks/1/1-1/",
            "/blocks/1/1-01",
            "/blocks/1/10000000000000000-1",
            "/blocks//1-1",
            "/blocks/1/1 -1",
            "/blocks/é/1-1",
        ] {
            assert!(matches!(Path::parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn ranges_are_strict() {
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().unwrap());
            range(&headers)
        };
        assert_eq!(parse("bytes=0-0").unwrap(), Some(0..1));
        assert_eq!(parse("bytes=5-16").unwrap(), Some(5..17));
        assert_eq!(range(&HeaderMap::new()).unwrap(), None);
        for bad in [
            "bytes=5-4",
            "bytes=-5",
            "bytes=5-",
            "bytes=0-1,3-4",
            "bytes= 0-1",
            "0-1",
            "bytes=0-4294967295",
            "bytes=00-1",
            "items=0-1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn queries_are_strict() {
        let page = PageQuery::parse(Some("after=1-2&limit=10")).unwrap();
        assert_eq!(page, PageQuery { after: Some(id(1, 2)), limit: 10 });
        assert_eq!(PageQuery::parse(Some("limit=8192")).unwrap().after, None);
        for bad in [
            "",
            "after=1-2",
            "limit=0",
            "limit=8193",
            "limit=1&limit=1",
            "limit=1&x=1",
            "after=1&limit=1",
            "limit=1&",
            "limit=-1",
            "limit=99999999999999999999",
        ] {
            assert!(PageQuery::parse(Some(bad)).is_err(), "{bad}");
        }
        assert!(PageQuery::parse(None).is_err());
        assert_eq!(scrub_run(Some("run=ff")).unwrap(), 255);
        for bad in ["", "run=", "run=0f", "run=FF", "run=1&run=1", "run=10000000000000000"] {
            assert!(scrub_run(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn chains_and_owners_read_back() {
        let nodes = [NodeId(3), NodeId(0xab), NodeId(u64::MAX)];
        assert_eq!(parse_chain(&chain(&nodes)).unwrap(), nodes);
        for bad in ["", "1,", "1,1", "0", "1,2,3,4,5,6,7,8,9,a,b"] {
            assert!(parse_chain(bad).is_none(), "{bad}");
        }
        let times = [(NodeId(3), Duration::ZERO), (NodeId(0xab), Duration::from_millis(70))];
        assert_eq!(parse_kept(&show_kept(&times)).unwrap(), times);
        for bad in ["", "1", "1=", "=1", "1=-1", "1=1,", "1=1,1=2", "0x1=1"] {
            assert!(parse_kept(bad).is_none(), "{bad}");
        }
        let body = BodyId { session: SessionId(7), counter: u64::MAX };
        let whose = Owner { body, chunk: u32::MAX };
        assert_eq!(parse_owner(&owner(whose)).unwrap(), whose);
        for bad in ["", "1-2", "1-2.", "1.2", "1-2.100000000"] {
            assert!(parse_owner(bad).is_none(), "{bad}");
        }
    }

    fn info(block: BlockId) -> BlockInfo {
        let body = BodyId { session: SessionId(9), counter: block.counter };
        BlockInfo { block, owner: Owner { body, chunk: 3 }, length: 17 }
    }

    #[test]
    fn usage_reads_back() {
        let usage = Usage { blocks: 1, free_bytes: u64::MAX, corrupt_reads: 9, ..Usage::default() };
        assert_eq!(decode_usage(&encode_usage(&usage)).unwrap(), usage);
    }

    proptest! {
        #[test]
        fn pages_read_back(ids in prop::collection::btree_set(any::<(u64, u64)>(), 0..20)) {
            let page: Vec<BlockInfo> = ids.iter().map(|(s, c)| info(id(*s, *c))).collect();
            prop_assert_eq!(decode_page(&encode_page(&page)).unwrap(), page.clone());
            let blocks: Vec<BlockId> = page.iter().map(|info| info.block).collect();
            if !blocks.is_empty() {
                prop_assert_eq!(decode_ids(&encode_ids(&blocks)).unwrap(), blocks);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = (Path::parse(&text), PageQuery::parse(Some(&text)), parse_chain(&text));
            let _ = (parse_owner(&text), parse_crc(&text), decode_ids(&bytes));
            let _ = parse_kept(&text);
            if let Ok(page) = decode_page(&bytes) {
                prop_assert_eq!(&encode_page(&page)[..], &bytes[..]);
            }
            let _ = decode_usage(&bytes.into());
        }
    }
}
