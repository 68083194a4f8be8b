//! Builds every key of the metadata; no other module does. The first byte is the table; numbers are
//! big-endian, so that keys sort by them. `docs/format.md` has the table.

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

/// `t <ino>`: the properties of a directory that change with every child.
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

/// Returns the key of the other kind of entry with the same name: of a directory, or of anything
/// else.
pub fn entry_of_other_kind(entry_key: &Bytes) -> Option<Bytes> {
    let named = entry_key.strip_prefix(b"d").filter(|named| named.len() > 8)?;
    Some(match named.strip_suffix(b"/") {
        Some(file) => key(&[b"d", file]),
        None => key(&[b"d", named, b"/"]),
    })
}

/// Returns whether a row is an inode, an entry or a tally.
pub fn is_of_tree(key: &[u8]) -> bool {
    matches!(key.first(), Some(b'i' | b'd' | b't'))
}

/// Returns the inode of an inode's key.
pub fn inode_of(key: &[u8]) -> Option<Ino> {
    let ino = key.strip_prefix(b"i")?.try_into().ok()?;
    Some(Ino(u64::from_be_bytes(ino)))
}

/// Returns the directory of the key of an entry or a tally, which are delegated with it.
pub fn directory_of(key: &[u8]) -> Option<Ino> {
    let (b'd' | b't', rest) = key.split_first()? else { return None };
    rest.first_chunk().map(|ino| Ino(u64::from_be_bytes(*ino)))
}

/// `D <directory> <number>`: no row; the name of a delegation in a recall.
pub fn delegation(directory: Ino, number: u64) -> Bytes {
    key(&[b"D", &directory.0.to_be_bytes(), &number.to_be_bytes()])
}

/// Parses the directory and the number of a delegation.
pub fn delegation_parts(delegation_key: &[u8]) -> Option<(Ino, u64)> {
    let (directory, number) = delegation_key.strip_prefix(b"D")?.split_first_chunk()?;
    Some((Ino(u64::from_be_bytes(*directory)), u64::from_be_bytes(number.try_into().ok()?)))
}

/// `A`: no row; the name, in a recall, of all rows, including those of former masters.
pub fn all_rows() -> Bytes {
    Bytes::from_static(b"A")
}

/// Returns whether a row only counts: the next inode number, or the usage of a bucket or a user. An
/// operation does not wait for others that changed such a row before.
pub fn is_counter(key: &[u8]) -> bool {
    key.first() == Some(&b'n') || *key == *b"cnext_ino" || is_owned(key)
}

/// Range of all entries of a directory starting at `from` (a name, with its slash for a directory;
/// inclusive).
pub fn entries_from(parent: Ino, from: &[u8]) -> (Bytes, Bytes) {
    (file_entry(parent, from), after_number(b"d", parent.0))
}

/// Parses the name of an entry's key, with the slash of a directory.
pub fn entry_name(entry_key: &Bytes) -> Bytes {
    entry_key.slice(9.min(entry_key.len())..)
}

/// `H <directory> <hash> <name>`: a copy of an entry, in the order in which clients of NFS list the
/// directory. The name has the slash of a directory.
pub fn ordered_entry(directory: Ino, hash: u64, name: &[u8]) -> Bytes {
    key(&[b"H", &directory.0.to_be_bytes(), &hash.to_be_bytes(), name])
}

/// Range of the ordered entries of a directory from a hash (inclusive) on.
pub fn ordered_from(directory: Ino, hash: u64) -> (Bytes, Bytes) {
    (ordered_entry(directory, hash, b""), after_number(b"H", directory.0))
}

/// Parses the directory, the hash and the name of an ordered entry's key.
pub fn ordered_parts(ordered_key: &Bytes) -> Option<(Ino, u64, Bytes)> {
    let directory = ordered_key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
    let hash = ordered_key.get(9..17)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((Ino(directory), hash, ordered_key.slice(17..)))
}

/// Returns whether a row is an ordered entry, which only the master reads and changes.
pub fn is_ordered_entry(key: &[u8]) -> bool {
    key.first() == Some(&b'H')
}

/// `e <body> <chunk>`: the extents of 64 MiB of a body.
pub fn extents(body: BodyId, chunk: u32) -> Bytes {
    key(&[b"e", &body.to_bytes(), &chunk.to_be_bytes()])
}

pub fn is_of_extents(key: &[u8]) -> bool {
    key.first() == Some(&b'e')
}

/// Range of all extent rows of a body from `chunk` on.
pub fn extents_from(body: BodyId, chunk: u32) -> (Bytes, Bytes) {
    let mut end = extents(body, u32::MAX).to_vec();
    end.push(0);
    (extents(body, chunk), end.into())
}

/// Parses the body of an extent row's key.
pub fn extents_body(extents_key: &[u8]) -> Option<BodyId> {
    Some(BodyId::from_bytes(extents_key.get(1..17)?.try_into().ok()?))
}

/// Parses the chunk number at the end of an extent row's key.
pub fn extents_chunk(extents_key: &[u8]) -> Option<u32> {
    extents_key.get(17..)?.try_into().ok().map(u32::from_be_bytes)
}

/// `r <body>`: number of inodes, parts and extents that refer to a body; without a row, it is 1.
pub fn references(body: BodyId) -> Bytes {
    key(&[b"r", &body.to_bytes()])
}

/// The kind of an `x` row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    /// An extended attribute of POSIX; its name includes the namespace prefix.
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

/// Range of all attributes of one kind.
pub fn attributes(ino: Ino, kind: Attribute) -> (Bytes, Bytes) {
    let end = key(&[b"x", &ino.0.to_be_bytes(), &[kind.byte() + 1]]);
    (attribute(ino, kind, b""), end)
}

/// Range of all attributes of all kinds.
pub fn all_attributes(ino: Ino) -> (Bytes, Bytes) {
    (key(&[b"x", &ino.0.to_be_bytes()]), after_number(b"x", ino.0))
}

/// Parses the name of an attribute's key.
pub fn attribute_name(attribute_key: &Bytes) -> Bytes {
    attribute_key.slice(10.min(attribute_key.len())..)
}

/// `u <bucket> <key> 00 <upload>`: a multipart upload. Keys contain no NUL, so the order is by
/// key, then by upload.
pub fn upload(bucket: BucketId, object: &[u8], upload: UploadId) -> Bytes {
    key(&[b"u", &bucket.0.to_be_bytes(), object, b"\0", &upload.0.to_be_bytes()])
}

/// Range of the uploads of a bucket from the upload key `from` (inclusive) on.
pub fn uploads_from(bucket: BucketId, object: &[u8]) -> (Bytes, Bytes) {
    (key(&[b"u", &bucket.0.to_be_bytes(), object]), after_number(b"u", bucket.0))
}

/// Parses the object key and the upload of an upload's key.
pub fn upload_parts(upload_key: &Bytes) -> Option<(Bytes, UploadId)> {
    let split = upload_key.len().checked_sub(9).filter(|split| *split >= 9)?;
    let id = upload_key.get(split + 1..)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((upload_key.slice(9..split), UploadId(id)))
}

/// `p <upload> <part>`: a part of an upload, later a line of the part table of its object.
pub fn part(upload: UploadId, number: u32) -> Bytes {
    key(&[b"p", &upload.0.to_be_bytes(), &number.to_be_bytes()])
}

/// Range of the parts of an upload from `number` on.
pub fn parts_from(upload: UploadId, number: u32) -> (Bytes, Bytes) {
    (part(upload, number), after_number(b"p", upload.0))
}

/// Parses the part number at the end of a part's key.
pub fn part_number(part_key: &[u8]) -> Option<u32> {
    part_key.get(9..)?.try_into().ok().map(u32::from_be_bytes)
}

/// `b <bucket>`: settings of a bucket.
pub fn bucket(bucket: BucketId) -> Bytes {
    key(&[b"b", &bucket.0.to_be_bytes()])
}

/// Range of the buckets after one of them.
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

/// Range of all sessions.
pub fn sessions() -> (Bytes, Bytes) {
    (Bytes::from_static(b"s"), Bytes::from_static(b"t"))
}

/// `j <session>`: inode numbers that are reserved for a session.
pub fn reserved(session: SessionId) -> Bytes {
    key(&[b"j", &session.0.to_be_bytes()])
}

/// Most operations of one session that may be on their way at the same time.
pub const SLOTS: u16 = 1024;

/// `q <session> <slot>`: the last reply of a slot.
pub fn slot(session: SessionId, slot: u16) -> Bytes {
    key(&[b"q", &session.0.to_be_bytes(), &slot.to_be_bytes()])
}

/// Range of all slots of a session.
pub fn slots(session: SessionId) -> (Bytes, Bytes) {
    let end =
        session.0.checked_add(1).map_or(key(&[b"r"]), |next| key(&[b"q", &next.to_be_bytes()]));
    (key(&[b"q", &session.0.to_be_bytes()]), end)
}

/// `o <session> <ino>`: a file that a session has open; it counts as one more name of the file.
pub fn retained(session: SessionId, ino: Ino) -> Bytes {
    key(&[b"o", &session.0.to_be_bytes(), &ino.0.to_be_bytes()])
}

/// Range of all files that a session retains.
pub fn all_retained(session: SessionId) -> (Bytes, Bytes) {
    (key(&[b"o", &session.0.to_be_bytes()]), after_number(b"o", session.0))
}

/// Parses the session and the file of an `o` key.
pub fn retained_parts(retained_key: &[u8]) -> Option<(SessionId, Ino)> {
    let session = retained_key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
    let ino = retained_key.get(9..)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((SessionId(session), Ino(ino)))
}

/// `l f <ino>`: the locks on a file.
pub fn locks(ino: Ino) -> Bytes {
    key(&[b"lf", &ino.0.to_be_bytes()])
}

/// Range of the locks on all files, or on the files after one.
pub fn locks_after(after: Option<Ino>) -> (Bytes, Bytes) {
    let start = after.map_or_else(|| key(&[b"lf"]), |after| key(&[&locks(after), b"\0"]));
    (start, Bytes::from_static(b"lg"))
}

/// Parses the file of an `l f` key.
pub fn locks_of(locks_key: &[u8]) -> Option<Ino> {
    let ino = locks_key.strip_prefix(b"lf")?;
    Some(Ino(u64::from_be_bytes(ino.try_into().ok()?)))
}

/// `l s <session> <ino>`: mark that a session has locks on a file.
pub fn locked(session: SessionId, ino: Ino) -> Bytes {
    key(&[b"ls", &session.0.to_be_bytes(), &ino.0.to_be_bytes()])
}

/// Range of all files on which a session has locks.
pub fn all_locked(session: SessionId) -> (Bytes, Bytes) {
    let end = session.0.checked_add(1).map(|next| key(&[b"ls", &next.to_be_bytes()]));
    (key(&[b"ls", &session.0.to_be_bytes()]), end.unwrap_or_else(|| key(&[b"lt"])))
}

/// Parses the session and the file of an `l s` key.
pub fn locked_parts(locked_key: &[u8]) -> Option<(SessionId, Ino)> {
    let (session, ino) = locked_key.strip_prefix(b"ls")?.split_at_checked(8)?;
    let session = SessionId(u64::from_be_bytes(session.try_into().ok()?));
    Some((session, Ino(u64::from_be_bytes(ino.try_into().ok()?))))
}

/// `a <address> <set>`: some executed calls of a client.
pub fn calls(client: [u8; 16], set: u16) -> Bytes {
    key(&[b"a", &client, &set.to_be_bytes()])
}

/// Range of the calls of all clients after a key.
pub fn calls_after(after: Option<&Bytes>) -> (Bytes, Bytes) {
    let start = after.map_or_else(|| key(&[b"a"]), |after| key(&[after, b"\0"]));
    (start, Bytes::from_static(b"b"))
}

/// Parses the client of a row of calls.
pub fn client_of_calls(calls_key: &[u8]) -> Option<[u8; 16]> {
    calls_key.get(1..17)?.try_into().ok()
}

/// Returns whether a key belongs to the calls of a client.
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

/// Range of everything to drain.
pub fn drains() -> (Bytes, Bytes) {
    (Bytes::from_static(b"z"), Bytes::from_static(b"{"))
}

/// The target of a drain key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainTarget {
    Body(BodyId),
    Upload(UploadId),
}

/// Parses a drain key.
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

/// Range of the blocks freed by batches before `batch`.
pub fn freed_before(batch: u64) -> (Bytes, Bytes) {
    (Bytes::from_static(b"f"), key(&[b"f", &batch.to_be_bytes()]))
}

/// Parses the batch and the block of an `f` key.
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

/// `k e <bucket>`: the export of a bucket to clients without credentials.
pub fn export(bucket: BucketId) -> Bytes {
    key(&[b"ke", &bucket.0.to_be_bytes()])
}

/// `k l <user> <id>`: a share link.
pub fn share_link(user: UserId, id: &str) -> Bytes {
    key(&[b"kl", &user.0.to_be_bytes(), id.as_bytes()])
}

/// Range of the share links of a user, or of those after one of them.
pub fn share_links(user: UserId, after: Option<&str>) -> (Bytes, Bytes) {
    let start = match after {
        Some(after) => key(&[&share_link(user, after), b"\0"]),
        None => share_link(user, ""),
    };
    let end = user.0.checked_add(1).map(|next| share_link(UserId(next), ""));
    (start, end.unwrap_or_else(|| key(&[b"km"])))
}

/// Parses the user and the id of a share link.
pub fn share_link_parts(share_key: &[u8]) -> Option<(UserId, String)> {
    let (user, id) = share_key.strip_prefix(b"kl")?.split_first_chunk()?;
    Some((UserId(u64::from_be_bytes(*user)), String::from_utf8(id.to_vec()).ok()?))
}

/// `k r <user> <upload>`: a resumable upload.
pub fn resumable(user: UserId, upload: UploadId) -> Bytes {
    key(&[b"kr", &user.0.to_be_bytes(), &upload.0.to_be_bytes()])
}

/// Range of the resumable uploads of a user.
pub fn resumables(user: UserId) -> (Bytes, Bytes) {
    let start = resumable(user, UploadId(0));
    let end = user.0.checked_add(1).map(|next| resumable(UserId(next), UploadId(0)));
    (start, end.unwrap_or_else(|| key(&[b"ks"])))
}

/// Parses the user and the upload of a resumable upload.
pub fn resumable_parts(resumable_key: &[u8]) -> Option<(UserId, UploadId)> {
    let (user, upload) = resumable_key.strip_prefix(b"kr")?.split_first_chunk()?;
    let upload = upload.try_into().ok().map(u64::from_be_bytes)?;
    Some((UserId(u64::from_be_bytes(*user)), UploadId(upload)))
}

/// `k c <user> <hash>`: a login of a user to the console.
pub fn login(user: UserId, hash: &TokenHash) -> Bytes {
    key(&[b"kc", &user.0.to_be_bytes(), hash])
}

/// Range of all logins of a user.
pub fn logins(user: UserId) -> (Bytes, Bytes) {
    let start = key(&[b"kc", &user.0.to_be_bytes()]);
    match user.0.checked_add(1) {
        Some(next) => (start, key(&[b"kc", &next.to_be_bytes()])),
        None => (start, key(&[b"kd"])),
    }
}

/// Parses the user of a `k c` key.
pub fn user_of_login(login_key: &[u8]) -> Option<UserId> {
    let (user, hash) = login_key.strip_prefix(b"kc")?.split_first_chunk()?;
    (hash.len() == size_of::<TokenHash>()).then(|| UserId(u64::from_be_bytes(*user)))
}

/// Range of all rows of one sort below `k`: `a` access keys, `t` tokens, `u` users, `n` user names,
/// `e` exports, `l` share links, `r` resumable uploads, `c` logins.
pub fn credentials(sort: u8) -> (Bytes, Bytes) {
    (key(&[b"k", &[sort]]), key(&[b"k", &[sort + 1]]))
}

/// `c <name>`: counters and the identity of the store.
pub fn config(name: &str) -> Bytes {
    key(&[b"c", name.as_bytes()])
}

/// `c cluster`: the identity of the cluster, or of a store that is alone.
pub fn cluster() -> Bytes {
    config("cluster")
}

/// `c read_only`: mark that the store refuses changes.
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

/// Range of all holds.
pub fn holds() -> (Bytes, Bytes) {
    (config(HOLD), config("hold0"))
}

/// Parses the id of a hold's key.
pub fn hold_id(hold_key: &[u8]) -> Option<u64> {
    let digits = hold_key.strip_prefix(b"c")?.strip_prefix(HOLD.as_bytes())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

const HOLD: &str = "hold/";

/// `c owned/<user>`: the usage of a user, 16 hexadecimal digits.
pub fn owned(user: UserId) -> Bytes {
    config(&format!("{OWNED}{:016x}", user.0))
}

/// Returns whether a row is the usage of a user.
pub fn is_owned(key: &[u8]) -> bool {
    key.strip_prefix(b"c").is_some_and(|name| name.starts_with(OWNED.as_bytes()))
}

/// The user of a row of what belongs to a user.
pub fn user_of_owned(key: &Bytes) -> Option<UserId> {
    let digits = key.strip_prefix(b"c")?.strip_prefix(OWNED.as_bytes())?;
    let user = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(UserId)?;
    (*key == owned(user)).then_some(user)
}

const OWNED: &str = "owned/";

/// `c bucket/<user>/<name>`: a bucket that the user owns or has rights in. The user has 16
/// hexadecimal digits.
pub fn bucket_of(user: UserId, name: &[u8]) -> Bytes {
    key(&[b"c", BUCKET_OF.as_bytes(), format!("{:016x}/", user.0).as_bytes(), name])
}

const BUCKET_OF: &str = "bucket/";

/// Range of the buckets that a user owns or has rights in, from a name (inclusive) on.
pub fn buckets_of(user: UserId, from: &[u8]) -> (Bytes, Bytes) {
    let end = key(&[b"c", BUCKET_OF.as_bytes(), format!("{:016x}0", user.0).as_bytes()]);
    (bucket_of(user, from), end)
}

/// Ranges of the usage of all users, and of the index of buckets.
pub fn all_owned() -> [(Bytes, Bytes); 2] {
    [(config(OWNED), config("owned0")), (config(BUCKET_OF), config("bucket0"))]
}

/// `c owned_epoch`: the epoch of the last master that counted the usage of users, and the one since
/// which all masters have kept ordered entries.
pub fn owned_epoch() -> Bytes {
    config("owned_epoch")
}

/// Returns the first key after all `<table> <number> ...`.
fn after_number(table: &[u8], number: u64) -> Bytes {
    match number.checked_add(1) {
        Some(next) => key(&[table, &next.to_be_bytes()]),
        None => key(&[&[table[0] + 1]]),
    }
}
