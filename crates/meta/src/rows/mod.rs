//! The values of the metadata. Every row starts with a format byte, then tagged fields; fields of
//! a newer version are kept. `docs/format.md` has the tables.

mod acl;
mod algorithm;
mod attributes;
mod bucket;
mod calls;
mod cluster;
mod cors;
mod counter;
mod credentials;
mod directory;
mod drains;
mod export;
mod extents;
mod hold;
mod inode;
mod locks;
mod login;
mod master_epochs;
mod public_access;
mod resumable;
mod session;
mod share_link;
mod store_identity;
mod upload;
mod user_totals;
mod website;
mod wire_form;

pub use acl::{Acl, AclSubject};
pub use algorithm::Algorithm;
pub use attributes::{Checksum, ChecksumKind, ObjectAttributes, decode_pairs, encode_pairs};
pub use bucket::{Bucket, BucketKind, Usage};
pub use calls::{Calls, DoneCall};
pub use cluster::IssuedToken;
pub use cors::{CorsRule, CorsRules};
pub use counter::{Counter, decode_number, encode_number};
pub use credentials::{AccessKey, Token, User, UserLimits};
pub use directory::{Entry, EntryOrder, OrderStage, Tally};
pub use drains::{BlockToFree, Drain, Draining};
pub use export::{Export, Squash};
pub use extents::{Extent, Extents, Place};
pub use hold::Hold;
pub use inode::{Content, Inode, Kind};
pub use locks::{Lock, Locks, Space};
pub use login::Login;
pub use master_epochs::MasterEpochs;
pub use public_access::{BucketMark, BucketMarks, PublicAccessBlock};
pub use resumable::Resumable;
pub use session::{MOUNT, ReservedInos, Session, SessionState, Slot};
pub use share_link::{ShareLink, UploadLimits};
pub use store_identity::StoreIdentity;
pub use upload::{Part, Upload};
pub use user_totals::{UserQuotas, UserTotals};
pub use website::{StoredWebsite, WebRedirect, WebRule, Website};

use bytes::Bytes;
use cairn_base::{Error, Result};

/// The format byte of all rows of this version.
pub const FORMAT: u8 = 1;

/// A value that can be stored as a row.
pub trait Row: Sized {
    fn encode(&self) -> Bytes;

    /// Decodes a row.
    ///
    /// # Errors
    /// `Corrupt` for anything that neither [`Row::encode`] nor a newer version made.
    fn decode(row: &Bytes) -> Result<Self>;
}

fn unexpected(what: &str, got: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("metadata row of a {what}"), got, "a known value")
}

/// Returns exactly `N` bytes of a field.
fn array<const N: usize>(what: &str, bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| unexpected(what, format!("{} bytes", bytes.len())))
}

fn narrow<T: TryFrom<u64>>(what: &str, number: u64) -> Result<T> {
    T::try_from(number).map_err(|_| unexpected(what, number))
}

/// Maps signed numbers to unsigned numbers that stay short near 0 (zigzag).
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use cairn_base::codec::Writer;
    use cairn_base::{GroupId, Ino, JoinGrant, Roles, SessionId, Timestamp, TokenHash, UserId};

    use super::*;

    /// Decodes a row and encodes it.
    type Again = fn(&Bytes) -> Result<Bytes>;

    /// Returns a row of every type, with the file that defines it.
    fn rows() -> Vec<(&'static str, Bytes, Again)> {
        fn again<R: Row>(row: &Bytes) -> Result<Bytes> {
            Ok(R::decode(row)?.encode())
        }
        fn of<R: Row>(source: &'static str, row: &R) -> (&'static str, Bytes, Again) {
            (source, row.encode(), again::<R>)
        }
        let hash = TokenHash::from_bytes([1; 32]);
        let (roles, expires) = (Roles::NONE, Timestamp(1));
        let grant = JoinGrant { hash, roles, expires, used: None };
        let access = AccessKey { user: UserId(1), ..AccessKey::default() };
        let token = Token { user: UserId(1), ..Token::default() };
        vec![
            of("attributes", &ObjectAttributes::default()),
            of("bucket", &Bucket::default()),
            of("bucket", &Usage { objects: 1, ..Usage::default() }),
            of("calls", &Calls::default()),
            of("cluster", &IssuedToken { grant, unknown: Vec::new() }),
            of("counter", &Counter::new(7)),
            of("credentials", &User::default()),
            of("credentials", &access),
            of("credentials", &token),
            of("directory", &Entry::new(Ino(7), Kind::File)),
            of("directory", &Tally::default()),
            of("session", &Session::default()),
            of(
                "session",
                &ReservedInos { ranges: vec![(Ino(1), Ino(2))], ..ReservedInos::default() },
            ),
            of("session", &Slot::default()),
            of("drains", &Draining::from(Drain::Prepared { session: SessionId(1) })),
            of("drains", &BlockToFree::new(GroupId(1))),
            of("export", &Export { user: UserId(1), ..Export::default() }),
            of("hold", &Hold { owner: "x".into(), ..Hold::default() }),
            of("inode", &Inode::default()),
            of("locks", &Locks::default()),
            of("master_epochs", &MasterEpochs::default()),
            of("login", &Login { credential: "x".into(), ..Login::default() }),
            of("user_totals", &UserTotals::default()),
            of("resumable", &Resumable::default()),
            of("share_link", &ShareLink::default()),
            of("upload", &Upload::default()),
            of("upload", &Part { etag: "x".into(), ..Part::default() }),
        ]
    }

    #[test]
    fn an_extent_of_a_later_release_is_an_error_and_no_hole() {
        for tag in [4, 90] {
            let mut later = Writer::new(FORMAT);
            later.bytes(tag, &[0, 9, 1]);
            let error = Extents::decode(&later.finish()).unwrap_err();
            assert_eq!(error.kind(), "not_implemented", "{error}");
        }
    }

    /// An older version that rewrites a row must destroy nothing of a newer one.
    #[test]
    fn every_row_keeps_the_fields_of_a_newer_version() {
        let mut newer = Writer::new(FORMAT);
        newer.number(90, 7).text(4000, "from the future");
        let unknown = &newer.finish()[1..];
        for (source, row, again) in rows() {
            let future = Bytes::from([&row[..], unknown].concat());
            let written = again(&future).unwrap();
            assert_eq!(written, future, "a row of {source}.rs");
        }
    }

    #[test]
    fn the_list_of_rows_has_all_types() {
        for (name, source) in [
            ("acl", include_str!("acl.rs")),
            ("attributes", include_str!("attributes.rs")),
            ("bucket", include_str!("bucket.rs")),
            ("calls", include_str!("calls.rs")),
            ("cluster", include_str!("cluster.rs")),
            ("counter", include_str!("counter.rs")),
            ("credentials", include_str!("credentials.rs")),
            ("directory", include_str!("directory.rs")),
            ("export", include_str!("export.rs")),
            ("drains", include_str!("drains.rs")),
            ("hold", include_str!("hold.rs")),
            ("inode", include_str!("inode.rs")),
            ("locks", include_str!("locks.rs")),
            ("master_epochs", include_str!("master_epochs.rs")),
            ("user_totals", include_str!("user_totals.rs")),
            ("resumable", include_str!("resumable.rs")),
            ("session", include_str!("session.rs")),
            ("share_link", include_str!("share_link.rs")),
            ("upload", include_str!("upload.rs")),
        ] {
            let types = source.matches("impl Row for").count();
            let listed = rows().iter().filter(|(source, ..)| *source == name).count();
            assert_eq!(types, listed, "types of {name}.rs, and rows of it in the list");
        }
    }
}
