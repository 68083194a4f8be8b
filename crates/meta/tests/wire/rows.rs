//! Rows of every kind, with all their fields.

use bytes::Bytes;
use cairn_auth::{Network, Rights, Visibility};
use cairn_base::{
    BlockId, BodyId, BucketId, Capability, CapabilitySet, GroupId, Ino, JoinGrant, KeyHash, NodeId,
    Redundancy, Result, Roles, SessionId, Timestamp, TokenHash, UploadId, UserId,
};
use cairn_meta::rows::*;

/// A row, by the name of its type.
pub struct Sample {
    pub name: &'static str,
    pub bytes: Bytes,
    /// Decodes a row and encodes it.
    pub again: fn(&Bytes) -> Result<Bytes>,
    /// Decodes a row, changes it and encodes it.
    pub change: fn(&Bytes) -> Result<Bytes>,
}

fn again<R: Row>(row: &Bytes) -> Result<Bytes> {
    Ok(R::decode(row)?.encode())
}

macro_rules! samples {
    ($($row:ident, |$changed:ident| $change:expr, [$($value:expr),* $(,)?];)*) => {
        pub const NAMES: [&str; [$(stringify!($row)),*].len()] = [$(stringify!($row)),*];

        pub fn samples() -> Vec<Sample> {
            let mut all = Vec::new();
            $(for row in [$($value),*] {
                let bytes = Row::encode(&row);
                assert_eq!($row::decode(&bytes).unwrap(), row);
                let change = |row: &Bytes| {
                    let mut $changed = $row::decode(row)?;
                    $change;
                    Ok($changed.encode())
                };
                all.push(Sample { name: stringify!($row), bytes, again: again::<$row>, change });
            })*
            all
        }
    };
}

samples! {
    AccessKey, |row| row.sealed.push(1), [AccessKey {
        user: UserId(300),
        sealed: vec![7; 40],
        created: Timestamp(1_700_000_000_000_000_000),
        unknown: vec![],
    }];
    Bucket, |row| row.redirect = !row.redirect, [
        bucket(), Bucket { name: "b".into(), ..Bucket::default() },
    ];
    Calls, |row| row.done.truncate(1), [
        Calls { done: vec![done_call(1), done_call(2)], unknown: vec![] },
        Calls {
            done: vec![DoneCall { status: 17, ..done_call(3) }, done_call(4)],
            unknown: vec![],
        },
    ];
    Counter, |row| row.value += 1, [Counter::new(0), Counter::new(70_000)];
    Draining, |row| row.drain = Drain::Prepared { session: SessionId(8) }, [
        Draining::from(Drain::Body),
        Draining::from(Drain::Prepared { session: SessionId(9) }),
        Draining::from(Drain::Aborted),
        Draining::from(Drain::Completed { body: body(1) }),
        Draining::from(Drain::PartTable { body: None }),
        Draining::from(Drain::PartTable { body: Some(body(2)) }),
    ];
    Entry, |row| row.ino = Ino(9), [
        Entry::new(Ino(300), Kind::File),
        Entry::new(Ino(301), Kind::Directory),
        Entry::new(Ino(302), Kind::Symlink),
        Entry::new(Ino(303), Kind::Fifo),
        Entry::new(Ino(304), Kind::Socket),
    ];
    Export, |row| row.uid += 1, [export(Squash::Root), export(Squash::All), export(Squash::None)];
    Extents, |row| row.extents.truncate(1), [extents()];
    BlockToFree, |row| row.group = GroupId(9), [BlockToFree::new(GroupId(300))];
    Hold, |row| row.batch += 1, [Hold {
        owner: "backup of a to b".into(),
        batch: 300,
        begun: Timestamp(1_700_000_000_000_000_000),
        ends: Timestamp(1_700_003_600_000_000_000),
        unknown: vec![],
    }];
    IssuedToken, |row| row.grant.expires = Timestamp(-1), [
        grant(None), grant(Some((KeyHash([3; 32]), NodeId(7)))),
    ];
    Inode, |row| row.size += 1, [inode(), symlink(), Inode::default()];
    Locks, |row| row.held.truncate(1), [locks()];
    Login, |row| row.seen = Timestamp(9), [Login {
        credential: "CK7".into(),
        created: Timestamp(1_700_000_000_000_000_000),
        seen: Timestamp(1_700_000_100_000_000_000),
        expires: Timestamp(1_700_040_000_000_000_000),
        unknown: vec![],
    }];
    MasterEpochs, |row| row.counted += 1, [
        MasterEpochs::default(),
        MasterEpochs { counted: 300, ordered_since: 200, unknown: vec![] },
    ];
    ObjectAttributes, |row| row.tag_count += 1, [object(), ObjectAttributes::default()];
    Part, |row| row.size += 1, [part(), Part { etag: "e-1".into(), ..Part::default() }];
    ReservedInos, |row| row.ranges.truncate(1), [ReservedInos {
        ranges: vec![(Ino(300), Ino(400)), (Ino(500), Ino(600))],
        unknown: vec![],
    }];
    Session, |row| row.state = SessionState::Reaped, [
        Session::default(),
        Session {
            state: SessionState::Ended,
            started: Timestamp(-5),
            owner: 1 << 63 | 7,
            loaded: false,
            bound: 0,
            unknown: vec![],
        },
    ];
    Resumable, |row| row.offset += 1, [Resumable {
        bucket: BucketId(300),
        key: "a/b".into(),
        length: 1 << 40,
        offset: 1 << 33,
        parts: 7,
        expires: Timestamp(1_800_000_000_000_000_000),
        is_done: true,
        unknown: vec![],
    }];
    ShareLink, |row| row.downloaded += 1, [share_link(None), share_link(Some(UploadLimits {
        files: 0,
        bytes: 1 << 30,
    }))];
    StoreIdentity, |row| row.cluster += 1, [
        StoreIdentity::new(70_000),
        StoreIdentity {
            capabilities: CapabilitySet::NONE.with(Capability::RequiredFields),
            ..StoreIdentity::new(70_000)
        },
    ];
    Slot, |row| row.sequence += 1, [
        Slot { sequence: 300, reply: vec![1, 2, 3].into(), unknown: vec![] },
    ];
    Tally, |row| row.entries += 1, [
        Tally { entries: 300, directories: 2, mtime: Timestamp(-7), ..Tally::default() },
    ];
    Token, |row| row.expires = Timestamp(5), [Token {
        user: UserId(300),
        hash: [9; 32],
        created: Timestamp(1_700_000_000_000_000_000),
        expires: Timestamp(1_800_000_000_000_000_000),
        unknown: vec![],
    }];
    Upload, |row| row.change += 1, [upload(), Upload::default()];
    Usage, |row| row.objects += 1, [Usage {
        objects: 300,
        bytes: 1 << 40,
        uploads: 2,
        quota_objects: 1_000,
        quota_bytes: 1 << 41,
        upload_bytes: 0,
        unknown: vec![],
    }];
    User, |row| row.disabled = !row.disabled, [
        User { name: "anna".into(), created: Timestamp(5), disabled: true, ..User::default() },
        User { name: "bert".into(), ..User::default() },
    ];
    UserTotals, |row| row.buckets += 1, [UserTotals {
        buckets: 2,
        objects: 3,
        bytes: 1 << 40,
        upload_bytes: 5,
        uploads: 1,
        unknown: vec![],
    }];
}

/// All of them, and rows with fields that came later: no message was recorded with those.
pub fn stored() -> Vec<Sample> {
    let rules = CorsRules::new(&[CorsRule {
        id: "pages".into(),
        origins: vec!["https://*.example.com".into()],
        methods: vec!["GET".into(), "PUT".into()],
        headers: vec!["x-amz-*".into()],
        exposed: vec!["ETag".into()],
        max_age_s: Some(600),
    }]);
    let ruled = Bucket { cors: rules, ..bucket() };
    let change = |row: &Bytes| {
        let row = Bucket::decode(row)?;
        Ok(Bucket { redirect: !row.redirect, ..row }.encode())
    };
    let listed = Bucket { html_listing: true, ..ruled.clone() };
    let mut all = samples();
    let to = WebRedirect {
        protocol: "https".into(),
        host: "www.example.com".into(),
        key: None,
        prefix: Some("new/".into()),
        status: 301,
    };
    let website = Website {
        index: "index.html".into(),
        error: "404.html".into(),
        redirect_all: None,
        rules: vec![WebRule { prefix: "old/".into(), status: 404, to }],
    };
    let website = Bucket { website: StoredWebsite::new(&website), ..listed.clone() };
    let resumable = Upload { takes_any_size: true, ..upload() };
    let changed = |row: &Bytes| {
        let row = Upload::decode(row)?;
        Ok(Upload { change: row.change + 1, ..row }.encode())
    };
    let checksum = Some((Algorithm::XxHash128, ChecksumKind::Composite));
    let announced = Upload { checksum, ..upload() };
    for row in [resumable, Upload { bytes: 1 << 40, ..upload() }, announced] {
        let (bytes, again) = (row.encode(), again::<Upload>);
        all.push(Sample { name: "Upload", bytes, again, change: changed });
    }
    all.extend(counted());
    all.extend(ordered());
    all.extend(summed());
    let kept = Bucket { read_only: true, ..website.clone() };
    let mut blocked = kept.clone();
    blocked.set_public_access_block(Some(PublicAccessBlock {
        block_acls: true,
        ignore_acls: true,
        ..PublicAccessBlock::default()
    }));
    blocked.marks.set(BucketMark::VersioningSuspended, true);
    for row in [ruled, listed, website, kept, blocked] {
        all.push(Sample { name: "Bucket", bytes: row.encode(), again: again::<Bucket>, change });
    }
    all
}

/// Rows with what is counted for quotas.
fn counted() -> Vec<Sample> {
    let mut all = Vec::new();
    let usage = Usage { objects: 1, upload_bytes: 1 << 40, ..Usage::default() };
    let more = |row: &Bytes| {
        let row = Usage::decode(row)?;
        Ok(Usage { objects: row.objects + 1, ..row }.encode())
    };
    all.push(Sample { name: "Usage", bytes: usage.encode(), again: again::<Usage>, change: more });
    let quotas = UserQuotas { bytes: 1 << 40, objects: 5, buckets: 7, uploads: 9 };
    let user = User { name: "anna".into(), quotas, ..User::default() };
    let other = |row: &Bytes| {
        let row = User::decode(row)?;
        Ok(User { disabled: !row.disabled, ..row }.encode())
    };
    all.push(Sample { name: "User", bytes: user.encode(), again: again::<User>, change: other });
    all
}

/// Tallies of directories with ordered entries.
fn ordered() -> Vec<Sample> {
    let name = Bytes::from_static(b"name");
    let more = |row: &Bytes| {
        let row = Tally::decode(row)?;
        Ok(Tally { entries: row.entries + 1, ..row }.encode())
    };
    let sample = |stage| {
        let order = Some(EntryOrder { since: 7, stage });
        let bytes = Tally { entries: 300, order, ..Tally::default() }.encode();
        Sample { name: "Tally", bytes, again: again::<Tally>, change: more }
    };
    [OrderStage::Clear, OrderStage::Build(name), OrderStage::Complete].map(sample).into()
}

/// Rows with checksums of every algorithm.
fn summed() -> Vec<Sample> {
    let of = |algorithm: Algorithm| Checksum {
        algorithm,
        kind: ChecksumKind::Composite,
        value: vec![8; algorithm.checksum_bytes()].into(),
    };
    let checksums = Vec::from(Algorithm::ALL.map(of));
    let part = Part { checksums: checksums.clone(), ..part() };
    let longer = |row: &Bytes| {
        let row = Part::decode(row)?;
        Ok(Part { size: row.size + 1, ..row }.encode())
    };
    let object = ObjectAttributes { checksums, ..object() };
    let tagged = |row: &Bytes| {
        let row = ObjectAttributes::decode(row)?;
        Ok(ObjectAttributes { tag_count: row.tag_count + 1, ..row }.encode())
    };
    let bytes = object.encode();
    vec![
        Sample {
            name: "ObjectAttributes",
            bytes,
            again: again::<ObjectAttributes>,
            change: tagged,
        },
        Sample { name: "Part", bytes: part.encode(), again: again::<Part>, change: longer },
    ]
}

fn done_call(step: u8) -> DoneCall {
    DoneCall {
        checksum: [step; 16],
        time: Timestamp(1_700_000_000_000_000_000),
        step,
        result: 300,
        status: 0,
    }
}

fn body(counter: u64) -> BodyId {
    BodyId { session: SessionId(0x0102_0304_0506_0708), counter }
}

fn pairs() -> Vec<(String, String)> {
    vec![("color".into(), "größer".into()), ("empty".into(), String::new())]
}

fn bucket() -> Bucket {
    Bucket {
        name: "photos".into(),
        kind: BucketKind::Posix,
        owner: UserId(300),
        visibility: Visibility::Public,
        created: Timestamp(1_700_000_000_000_000_000),
        cache_control: "max-age=60".into(),
        grants: vec![(UserId(2), Rights::READ), (UserId(301), Rights::ALL)],
        tags: pairs(),
        redundancy: Redundancy::from_number(2),
        redirect: true,
        cors: CorsRules::default(),
        html_listing: false,
        website: StoredWebsite::default(),
        read_only: false,
        public_access_block: None,
        is_public_behind: false,
        marks: BucketMarks::default(),
        unknown: vec![],
    }
}

fn export(squash: Squash) -> Export {
    let clients = ["10.0.0.0/8", "fd00::/8"].map(|text| Network::parse(text).unwrap());
    Export {
        number: 300,
        user: UserId(2),
        read_only: squash == Squash::All,
        squash,
        uid: 65_534,
        gid: 65_533,
        clients: clients.to_vec(),
        created: Timestamp(5),
        top: if squash == Squash::All { Ino(9) } else { Ino(0) },
        path: if squash == Squash::All { "a/b".into() } else { String::new() },
        unknown: vec![],
    }
}

fn share_link(uploads: Option<UploadLimits>) -> ShareLink {
    ShareLink {
        hash: [9; 32],
        credential: "CK7".into(),
        bucket: BucketId(300),
        key: "a/b/".into(),
        created: Timestamp(5),
        expires: Timestamp(1_800_000_000_000_000_000),
        password: vec![7; 52],
        downloads: if uploads.is_some() { 0 } else { 300 },
        downloaded: 2,
        uploads,
        uploaded: UploadLimits { files: 3, bytes: 4 },
        unknown: vec![],
    }
}

pub fn extents() -> Extents {
    let block = BlockId { session: SessionId(7), counter: 9 };
    let place = Place::Block { group: GroupId(3), block, offset: 4096 };
    let first = Extent { offset: 0, len: 4 << 20, place };
    let place = Place::Inline(Bytes::from_static(b"abc"));
    let second = Extent { offset: 5 << 20, len: 3, place };
    let place = Place::Body { body: body(4), offset: 1 << 30 };
    let third = Extent { offset: 6 << 20, len: 1 << 21, place };
    Extents { extents: vec![first, second, third] }
}

fn grant(used: Option<(KeyHash, NodeId)>) -> IssuedToken {
    let (hash, roles) = (TokenHash::from_bytes([5; 32]), Roles::from_bits(6));
    IssuedToken { grant: JoinGrant { hash, roles, expires: Timestamp(700), used }, unknown: vec![] }
}

fn acl() -> Box<Acl> {
    let named = vec![(AclSubject::User(1_000), 6), (AclSubject::Group(1_001), 4)];
    Box::new(Acl { owner: 7, group: 5, other: 4, mask: Some(7), named })
}

fn object() -> ObjectAttributes {
    let value = Bytes::from_static(&[1, 2, 3, 4]);
    let crc = Checksum { algorithm: Algorithm::Crc32c, kind: ChecksumKind::FullObject, value };
    let value = Bytes::from(vec![6; 32]);
    let sha = Checksum { algorithm: Algorithm::Sha256, kind: ChecksumKind::Composite, value };
    ObjectAttributes {
        etag: "0123456789abcdef0123456789abcdef-3".into(),
        content_type: "text/plain".into(),
        content_encoding: "gzip".into(),
        content_disposition: "inline".into(),
        content_language: "de".into(),
        cache_control: "no-cache".into(),
        expires: "Thu, 01 Dec 1994 16:00:00 GMT".into(),
        user_metadata: pairs(),
        checksums: vec![crc, sha],
        part_count: 3,
        part_table: Some(UploadId(400)),
        tag_count: 2,
        unknown: vec![],
    }
}

fn inode() -> Inode {
    Inode {
        kind: Kind::File,
        bucket: BucketId(2),
        parent: Ino(3),
        mode: 0o4755,
        uid: 1_000,
        gid: 1_001,
        nlink: 2,
        size: 1 << 33,
        atime: Timestamp(1_700_000_000_000_000_001),
        mtime: Timestamp(1_700_000_000_000_000_002),
        ctime: Timestamp(1_700_000_000_000_000_003),
        btime: Timestamp(-4),
        change: 300,
        data_change: 299,
        implicit: true,
        content: Content::Body(body(3)),
        xattr_count: 4,
        acl: Some(acl()),
        default_acl: Some(acl()),
        object: Some(Box::new(object())),
        unknown: vec![],
    }
}

fn symlink() -> Inode {
    let content = Content::Inline(Bytes::from_static(b"../target"));
    Inode { kind: Kind::Symlink, bucket: BucketId(2), size: 9, content, ..Inode::default() }
}

fn locks() -> Locks {
    let lock = |owner, exclusive, space| Lock {
        session: SessionId(7),
        owner,
        pid: 4_000,
        exclusive,
        start: 10,
        last: u64::MAX,
        space,
    };
    let held = vec![
        lock(1, false, Space::Both),
        lock(2, false, Space::Fcntl),
        lock(3, true, Space::Flock),
    ];
    Locks { held, unknown: vec![] }
}

fn part() -> Part {
    Part {
        size: 5 << 20,
        etag: "0123456789abcdef0123456789abcdef".into(),
        modified: Timestamp(5),
        checksums: object().checksums,
        content: Content::Body(body(5)),
        taken: Some(body(6)),
        further_references: 2,
        unknown: vec![],
    }
}

fn upload() -> Upload {
    Upload {
        initiator: UserId(300),
        initiated: Timestamp(5),
        object: object(),
        tags: pairs(),
        checksum: Some((Algorithm::Sha1, ChecksumKind::Composite)),
        change: 7,
        takes_any_size: false,
        bytes: 0,
        unknown: vec![],
    }
}
