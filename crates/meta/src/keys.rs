//! Every key of the metadata, built here and nowhere else. The first byte is the table, numbers
//! are big-endian, so that the order of bytes is the order meant. `docs/format.md` has the table.

use bytes::Bytes;
use cairn_auth::TokenHash;
use cairn_base::{BlockId, BodyId, BucketId, Ino, SessionId, TokenId, UploadId, UserId};

fn key(parts: &[&[u8]]) -> Bytes {
    Bytes::from(parts.concat())
}

/// `i <ino>`: an inode.
pub fn inode(ino: Ino) -> Bytes {
    key(&[b"i", &ino.0.to_be_bytes()])
}

/// `t <ino>`: what of a directory changes with every child.
pub fn tally(directory: Ino) -> Bytes {
    key(&[b"t", &directory.0.to_be_bytes()])
}

/// `d <parent> <name>`: the entry of anything but a directory.
pub fn file_entry(parent: Ino, name: &[u8]) -> Bytes {
    key(&[b"d", &parent.0.to_be_bytes(), name])
}

/// `d <parent> <name>/`: the entry of a directory. The slash makes a depth-first walk in key order
/// the order of S3 keys, and lets object `a` live beside `a/b`.
pub fn directory_entry(parent: Ino, name: &[u8]) -> Bytes {
    key(&[b"d", &parent.0.to_be_bytes(), name, b"/"])
}

/// The other row of two: the entry of a directory and that of anything else, of the same name.
pub fn entry_of_other_kind(entry_key: &Bytes) -> Option<Bytes> {
    let named = entry_key.strip_prefix(b"d").filter(|named| named.len() > 8)?;
    Some(match named.strip_suffix(b"/") {
        Some(file) => key(&[b"d", file]),
        None => key(&[b"d", named, b"/"]),
    })
}

/// Whether a row is an inode, an entry or a tally.
pub fn is_of_tree(key: &[u8]) -> bool {
    matches!(key.first(), Some(b'i' | b'd' | b't'))
}

/// The inode whose row this is.
pub fn inode_of(key: &[u8]) -> Option<Ino> {
    let ino = key.strip_prefix(b"i")?.try_into().ok()?;
    Some(Ino(u64::from_be_bytes(ino)))
}

/// The directory whose entry or tally a row is: what is delegated with it.
pub fn directory_of(key: &[u8]) -> Option<Ino> {
    let (b'd' | b't', rest) = key.split_first()? else { return None };
    rest.first_chunk().map(|ino| Ino(u64::from_be_bytes(*ino)))
}

/// `D <directory> <number>`: no row, but how a recall names a delegation.
pub fn delegation(directory: Ino, number: u64) -> Bytes {
    key(&[b"D", &directory.0.to_be_bytes(), &number.to_be_bytes()])
}

/// The directory and the number of a delegation.
pub fn delegation_parts(delegation_key: &[u8]) -> Option<(Ino, u64)> {
    let (directory, number) = delegation_key.strip_prefix(b"D")?.split_first_chunk()?;
    Some((Ino(u64::from_be_bytes(*directory)), u64::from_be_bytes(number.try_into().ok()?)))
}

/// `A`: no row, but how a recall names all rows, those of former masters too.
pub fn all_rows() -> Bytes {
    Bytes::from_static(b"A")
}

/// Whether a row only counts, so that no operation hangs on who counted before it: the next number
/// of an inode, or what a bucket or a user holds.
pub fn is_counter(key: &[u8]) -> bool {
    key.first() == Some(&b'n') || *key == *b"cnext_ino" || is_owned(key)
}

/// The range of all entries of a directory from `from` (a name, with its slash for a directory;
/// inclusive) on.
pub fn entries_from(parent: Ino, from: &[u8]) -> (Bytes, Bytes) {
    (file_entry(parent, from), after_number(b"d", parent.0))
}

/// The name within an entry's key, with the slash if it is a directory's.
pub fn entry_name(entry_key: &Bytes) -> Bytes {
    entry_key.slice(9.min(entry_key.len())..)
}

/// `e <body> <chunk>`: the extents of 64 MiB of a body.
pub fn extents(body: BodyId, chunk: u32) -> Bytes {
    key(&[b"e", &body.to_bytes(), &chunk.to_be_bytes()])
}

pub fn is_of_extents(key: &[u8]) -> bool {
    key.first() == Some(&b'e')
}

/// All extent rows of a body from `chunk` on.
pub fn extents_from(body: BodyId, chunk: u32) -> (Bytes, Bytes) {
    let mut end = extents(body, u32::MAX).to_vec();
    end.push(0);
    (extents(body, chunk), end.into())
}

/// The body within an extent row's key.
pub fn extents_body(extents_key: &[u8]) -> Option<BodyId> {
    Some(BodyId::from_bytes(extents_key.get(1..17)?.try_into().ok()?))
}

/// The chunk number at the end of an extent row's key.
pub fn extents_chunk(extents_key: &[u8]) -> Option<u32> {
    extents_key.get(17..)?.try_into().ok().map(u32::from_be_bytes)
}

/// `r <body>`: how many inodes, parts and extents refer to a body; an absent row means 1.
pub fn references(body: BodyId) -> Bytes {
    key(&[b"r", &body.to_bytes()])
}

/// The kind of an `x` row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    /// An extended attribute as POSIX knows it; its name with the namespace prefix.
    Xattr,
    /// A tag of an object; its name is the tag's key.
    Tag,
}

impl Attribute {
    fn byte(self) -> u8 {
        match self {
            Attribute::Xattr => b'u',
            Attribute::Tag => b't',
        }
    }
}

/// `x <ino> <attribute> <name>`.
pub fn attribute(ino: Ino, attribute: Attribute, name: &[u8]) -> Bytes {
    key(&[b"x", &ino.0.to_be_bytes(), &[attribute.byte()], name])
}

/// All attributes of one kind.
pub fn attributes(ino: Ino, kind: Attribute) -> (Bytes, Bytes) {
    let end = key(&[b"x", &ino.0.to_be_bytes(), &[kind.byte() + 1]]);
    (attribute(ino, kind, b""), end)
}

/// All attributes of all kinds.
pub fn all_attributes(ino: Ino) -> (Bytes, Bytes) {
    (key(&[b"x", &ino.0.to_be_bytes()]), after_number(b"x", ino.0))
}

/// The name within an attribute's key.
pub fn attribute_name(attribute_key: &Bytes) -> Bytes {
    attribute_key.slice(10.min(attribute_key.len())..)
}

/// `u <bucket> <key> 00 <upload>`: a multipart upload. Keys contain no NUL, so the order is by
/// key, then by upload.
pub fn upload(bucket: BucketId, object: &[u8], upload: UploadId) -> Bytes {
    key(&[b"u", &bucket.0.to_be_bytes(), object, b"\0", &upload.0.to_be_bytes()])
}

/// The uploads of a bucket from the upload key `from` (inclusive) on.
pub fn uploads_from(bucket: BucketId, object: &[u8]) -> (Bytes, Bytes) {
    (key(&[b"u", &bucket.0.to_be_bytes(), object]), after_number(b"u", bucket.0))
}

/// The object key and the upload within an upload's key.
pub fn upload_parts(upload_key: &Bytes) -> Option<(Bytes, UploadId)> {
    let split = upload_key.len().checked_sub(9).filter(|split| *split >= 9)?;
    let id = upload_key.get(split + 1..)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((upload_key.slice(9..split), UploadId(id)))
}

/// `p <upload> <part>`: a part of an upload, later a line of the part table of its object.
pub fn part(upload: UploadId, number: u32) -> Bytes {
    key(&[b"p", &upload.0.to_be_bytes(), &number.to_be_bytes()])
}

/// The parts of an upload from `number` on.
pub fn parts_from(upload: UploadId, number: u32) -> (Bytes, Bytes) {
    (part(upload, number), after_number(b"p", upload.0))
}

/// The part number at the end of a part's key.
pub fn part_number(part_key: &[u8]) -> Option<u32> {
    part_key.get(9..)?.try_into().ok().map(u32::from_be_bytes)
}

/// `b <bucket>`: settings of a bucket.
pub fn bucket(bucket: BucketId) -> Bytes {
    key(&[b"b", &bucket.0.to_be_bytes()])
}

/// The buckets after one of them.
pub fn buckets_after(after: BucketId) -> (Bytes, Bytes) {
    (key(&[b"b", &after.0.to_be_bytes(), b"\0"]), Bytes::from_static(b"c"))
}

/// `n <bucket>`: usage of a bucket.
pub fn usage(bucket: BucketId) -> Bytes {
    key(&[b"n", &bucket.0.to_be_bytes()])
}

/// `s <session>`.
pub fn session(session: SessionId) -> Bytes {
    key(&[b"s", &session.0.to_be_bytes()])
}

/// All sessions.
pub fn sessions() -> (Bytes, Bytes) {
    (Bytes::from_static(b"s"), Bytes::from_static(b"t"))
}

/// `j <session>`: numbers of inodes that are reserved for it.
pub fn reserved(session: SessionId) -> Bytes {
    key(&[b"j", &session.0.to_be_bytes()])
}

/// Operations of one session that may be on their way at a time.
pub const SLOTS: u16 = 1024;

/// `q <session> <slot>`: the last reply of a slot.
pub fn slot(session: SessionId, slot: u16) -> Bytes {
    key(&[b"q", &session.0.to_be_bytes(), &slot.to_be_bytes()])
}

/// All slots of a session.
pub fn slots(session: SessionId) -> (Bytes, Bytes) {
    let end =
        session.0.checked_add(1).map_or(key(&[b"r"]), |next| key(&[b"q", &next.to_be_bytes()]));
    (key(&[b"q", &session.0.to_be_bytes()]), end)
}

/// `o <session> <ino>`: a file that a session has open counts as one more name of it.
pub fn retained(session: SessionId, ino: Ino) -> Bytes {
    key(&[b"o", &session.0.to_be_bytes(), &ino.0.to_be_bytes()])
}

/// All files that a session retains.
pub fn all_retained(session: SessionId) -> (Bytes, Bytes) {
    (key(&[b"o", &session.0.to_be_bytes()]), after_number(b"o", session.0))
}

/// The session and the file of an `o` key.
pub fn retained_parts(retained_key: &[u8]) -> Option<(SessionId, Ino)> {
    let session = retained_key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
    let ino = retained_key.get(9..)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((SessionId(session), Ino(ino)))
}

/// `l f <ino>`: the locks on a file.
pub fn locks(ino: Ino) -> Bytes {
    key(&[b"lf", &ino.0.to_be_bytes()])
}

/// Locks on all files, or on those after one.
pub fn locks_after(after: Option<Ino>) -> (Bytes, Bytes) {
    let start = after.map_or_else(|| key(&[b"lf"]), |after| key(&[&locks(after), b"\0"]));
    (start, Bytes::from_static(b"lg"))
}

/// The file of an `l f` key.
pub fn locks_of(locks_key: &[u8]) -> Option<Ino> {
    let ino = locks_key.strip_prefix(b"lf")?;
    Some(Ino(u64::from_be_bytes(ino.try_into().ok()?)))
}

/// `l s <session> <ino>`: a session has locks on a file.
pub fn locked(session: SessionId, ino: Ino) -> Bytes {
    key(&[b"ls", &session.0.to_be_bytes(), &ino.0.to_be_bytes()])
}

/// All files on which a session has locks.
pub fn all_locked(session: SessionId) -> (Bytes, Bytes) {
    let end = session.0.checked_add(1).map(|next| key(&[b"ls", &next.to_be_bytes()]));
    (key(&[b"ls", &session.0.to_be_bytes()]), end.unwrap_or_else(|| key(&[b"lt"])))
}

/// The session and the file of an `l s` key.
pub fn locked_parts(locked_key: &[u8]) -> Option<(SessionId, Ino)> {
    let (session, ino) = locked_key.strip_prefix(b"ls")?.split_at_checked(8)?;
    let session = SessionId(u64::from_be_bytes(session.try_into().ok()?));
    Some((session, Ino(u64::from_be_bytes(ino.try_into().ok()?))))
}

/// `a <address> <set>`: some calls of a client that were done.
pub fn calls(client: [u8; 16], set: u16) -> Bytes {
    key(&[b"a", &client, &set.to_be_bytes()])
}

/// Those of all clients, behind a key.
pub fn calls_after(after: Option<&Bytes>) -> (Bytes, Bytes) {
    let start = after.map_or_else(|| key(&[b"a"]), |after| key(&[after, b"\0"]));
    (start, Bytes::from_static(b"b"))
}

/// Whose calls a row has.
pub fn client_of_calls(calls_key: &[u8]) -> Option<[u8; 16]> {
    calls_key.get(1..17)?.try_into().ok()
}

/// Whether a key is of calls of a client.
pub fn is_of_calls(calls_key: &[u8]) -> bool {
    calls_key.len() == 1 + 16 + 2
}

/// `z b <body>`: a body to drain.
pub fn drain_body(body: BodyId) -> Bytes {
    key(&[b"zb", &body.to_bytes()])
}

/// `z u <upload>`: parts to drain.
pub fn drain_upload(upload: UploadId) -> Bytes {
    key(&[b"zu", &upload.0.to_be_bytes()])
}

/// Everything to drain.
pub fn drains() -> (Bytes, Bytes) {
    (Bytes::from_static(b"z"), Bytes::from_static(b"{"))
}

/// The target that a drain key names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainTarget {
    Body(BodyId),
    Upload(UploadId),
}

/// Reads a drain key.
pub fn drain_target(drain_key: &[u8]) -> Option<DrainTarget> {
    let rest = drain_key.get(2..)?;
    match drain_key.get(1)? {
        b'b' => Some(DrainTarget::Body(BodyId::from_bytes(rest.try_into().ok()?))),
        b'u' => Some(DrainTarget::Upload(UploadId(u64::from_be_bytes(rest.try_into().ok()?)))),
        _ => None,
    }
}

/// `f <batch> <block>`: a block to free, and the batch that freed it.
pub fn freed(batch: u64, block: BlockId) -> Bytes {
    key(&[b"f", &batch.to_be_bytes(), &block.to_bytes()])
}

/// Blocks freed by batches before `batch`.
pub fn freed_before(batch: u64) -> (Bytes, Bytes) {
    (Bytes::from_static(b"f"), key(&[b"f", &batch.to_be_bytes()]))
}

/// The batch and the block within an `f` key.
pub fn freed_parts(freed_key: &[u8]) -> Option<(u64, BlockId)> {
    let batch = freed_key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
    let block = freed_key.get(9..)?.try_into().ok().map(BlockId::from_bytes)?;
    Some((batch, block))
}

/// `k a <access key id>`.
pub fn access_key(id: &str) -> Bytes {
    key(&[b"ka", id.as_bytes()])
}

/// `k t <token id>`.
pub fn token(id: &str) -> Bytes {
    key(&[b"kt", id.as_bytes()])
}

/// `k u <user>`.
pub fn user(user: UserId) -> Bytes {
    key(&[b"ku", &user.0.to_be_bytes()])
}

/// `k n <user name>`.
pub fn user_name(name: &str) -> Bytes {
    key(&[b"kn", name.as_bytes()])
}

/// `k e <bucket>`: the export of a bucket to clients that have no credentials.
pub fn export(bucket: BucketId) -> Bytes {
    key(&[b"ke", &bucket.0.to_be_bytes()])
}

/// `k l <user> <id>`: a share link.
pub fn share_link(user: UserId, id: &str) -> Bytes {
    key(&[b"kl", &user.0.to_be_bytes(), id.as_bytes()])
}

/// The share links of a user behind one of them.
pub fn share_links(user: UserId, after: Option<&str>) -> (Bytes, Bytes) {
    let start = match after {
        Some(after) => key(&[&share_link(user, after), b"\0"]),
        None => share_link(user, ""),
    };
    let end = user.0.checked_add(1).map(|next| share_link(UserId(next), ""));
    (start, end.unwrap_or_else(|| key(&[b"km"])))
}

/// The user and the id of a share link.
pub fn share_link_parts(share_key: &[u8]) -> Option<(UserId, String)> {
    let (user, id) = share_key.strip_prefix(b"kl")?.split_first_chunk()?;
    Some((UserId(u64::from_be_bytes(*user)), String::from_utf8(id.to_vec()).ok()?))
}

/// `k r <user> <upload>`: a resumable upload.
pub fn resumable(user: UserId, upload: UploadId) -> Bytes {
    key(&[b"kr", &user.0.to_be_bytes(), &upload.0.to_be_bytes()])
}

/// The resumable uploads of a user.
pub fn resumables(user: UserId) -> (Bytes, Bytes) {
    let start = resumable(user, UploadId(0));
    let end = user.0.checked_add(1).map(|next| resumable(UserId(next), UploadId(0)));
    (start, end.unwrap_or_else(|| key(&[b"ks"])))
}

/// The user and the upload of a resumable upload.
pub fn resumable_parts(resumable_key: &[u8]) -> Option<(UserId, UploadId)> {
    let (user, upload) = resumable_key.strip_prefix(b"kr")?.split_first_chunk()?;
    let upload = upload.try_into().ok().map(u64::from_be_bytes)?;
    Some((UserId(u64::from_be_bytes(*user)), UploadId(upload)))
}

/// `k c <user> <hash>`: a login of a user to the console.
pub fn login(user: UserId, hash: &TokenHash) -> Bytes {
    key(&[b"kc", &user.0.to_be_bytes(), hash])
}

/// All logins of a user.
pub fn logins(user: UserId) -> (Bytes, Bytes) {
    let start = key(&[b"kc", &user.0.to_be_bytes()]);
    match user.0.checked_add(1) {
        Some(next) => (start, key(&[b"kc", &next.to_be_bytes()])),
        None => (start, key(&[b"kd"])),
    }
}

/// The user of a `k c` key.
pub fn user_of_login(login_key: &[u8]) -> Option<UserId> {
    let (user, hash) = login_key.strip_prefix(b"kc")?.split_first_chunk()?;
    (hash.len() == size_of::<TokenHash>()).then(|| UserId(u64::from_be_bytes(*user)))
}

/// All rows of one sort below `k`: `a` access keys, `t` tokens, `u` users, `n` user names, `e`
/// exports, `l` share links, `r` resumable uploads, `c` logins.
pub fn credentials(sort: u8) -> (Bytes, Bytes) {
    (key(&[b"k", &[sort]]), key(&[b"k", &[sort + 1]]))
}

/// `c <name>`: counters and the identity of the store.
pub fn config(name: &str) -> Bytes {
    key(&[b"c", name.as_bytes()])
}

/// `c read_only`: whether the store takes no changes.
pub fn read_only() -> Bytes {
    config("read_only")
}

/// `c map`: the cluster map.
pub fn map() -> Bytes {
    config("map")
}

/// `c join/<token>`: a join token, 16 hexadecimal digits.
pub fn join_token(token: TokenId) -> Bytes {
    config(&format!("join/{:016x}", token.0))
}

/// `c hold/<id>`: a hold of a backup, 16 hexadecimal digits.
pub fn hold(id: u64) -> Bytes {
    config(&format!("{HOLD}{id:016x}"))
}

/// All holds.
pub fn holds() -> (Bytes, Bytes) {
    (config(HOLD), config("hold0"))
}

/// The id of a hold, by its key.
pub fn hold_id(hold_key: &[u8]) -> Option<u64> {
    let digits = hold_key.strip_prefix(b"c")?.strip_prefix(HOLD.as_bytes())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

const HOLD: &str = "hold/";

/// `c owned/<user>`: how much belongs to a user, 16 hexadecimal digits.
pub fn owned(user: UserId) -> Bytes {
    config(&format!("{OWNED}{:016x}", user.0))
}

/// Whether a row is one of what belongs to a user.
pub fn is_owned(key: &[u8]) -> bool {
    key.strip_prefix(b"c").is_some_and(|name| name.starts_with(OWNED.as_bytes()))
}

const OWNED: &str = "owned/";

/// `c bucket/<user>/<name>`: a bucket that the user owns or has rights in. The user has 16
/// hexadecimal digits.
pub fn bucket_of(user: UserId, name: &[u8]) -> Bytes {
    key(&[b"c", BUCKET_OF.as_bytes(), format!("{:016x}/", user.0).as_bytes(), name])
}

const BUCKET_OF: &str = "bucket/";

/// The buckets that a user owns or has rights in, from a name (inclusive) on.
pub fn buckets_of(user: UserId, from: &[u8]) -> (Bytes, Bytes) {
    let end = key(&[b"c", BUCKET_OF.as_bytes(), format!("{:016x}0", user.0).as_bytes()]);
    (bucket_of(user, from), end)
}

/// All rows of what belongs to users, and those of the index of buckets.
pub fn all_owned() -> [(Bytes, Bytes); 2] {
    [(config(OWNED), config("owned0")), (config(BUCKET_OF), config("bucket0"))]
}

/// `c owned_epoch`: the epoch of the last master that counted what belongs to users.
pub fn owned_epoch() -> Bytes {
    config("owned_epoch")
}

/// The first key after all `<table> <number> ...`.
fn after_number(table: &[u8], number: u64) -> Bytes {
    match number.checked_add(1) {
        Some(next) => key(&[table, &next.to_be_bytes()]),
        None => key(&[&[table[0] + 1]]),
    }
}
