//! Exports: buckets that clients reach without credentials, by their addresses.

use std::net::IpAddr;

use bytes::Bytes;
use cairn_auth::{Network, Posix};
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Ino, Result, Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row, narrow, unexpected, unzigzag, zigzag};

/// The identities of clients that are squashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Squash {
    /// Only root's identity.
    #[default]
    Root,
    /// Every identity.
    All,
    /// No identity.
    None,
}

/// The export of a bucket: the row `k e <bucket>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Export {
    /// Number that no other export ever has: handles of a former export of the bucket open nothing.
    pub number: u64,
    /// User that the clients act as.
    pub user: UserId,
    pub read_only: bool,
    pub squash: Squash,
    /// User id that squashed clients act with.
    pub uid: u32,
    pub gid: u32,
    /// Networks from which clients are admitted.
    pub clients: Vec<Network>,
    pub created: Timestamp,
    /// Directory that is exported; 0 for the whole bucket.
    pub top: Ino,
    /// Path of `top` in the bucket when it was exported, for display.
    pub path: String,
    pub unknown: Vec<u8>,
}

impl Export {
    pub fn admits(&self, address: IpAddr) -> bool {
        self.clients.iter().any(|network| network.contains(address))
    }

    /// Returns the identity of a client that claims `claimed`; without a claim it acts as nobody.
    pub fn identity(&self, claimed: Option<Posix>) -> Posix {
        let nobody = || Posix { uid: self.uid, gid: self.gid, groups: Vec::new() };
        // `chown` takes this number for "no change": no user and no file has it.
        let is_id = |id: u32| id != u32::MAX;
        let claimed = claimed.filter(|claimed| is_id(claimed.uid)).map(|mut claimed| {
            claimed.groups.retain(|group| is_id(*group));
            let gid = if is_id(claimed.gid) { claimed.gid } else { self.gid };
            Posix { gid, ..claimed }
        });
        match (self.squash, claimed) {
            (Squash::All, _) | (_, None) => nobody(),
            (Squash::None, Some(claimed)) => claimed,
            (Squash::Root, Some(claimed)) if claimed.uid == 0 => nobody(),
            (Squash::Root, Some(Posix { uid, gid, groups })) => {
                // Nor does anybody act in the group of root.
                let squashed = |group: u32| if group == 0 { self.gid } else { group };
                let groups = groups.into_iter().map(squashed).collect();
                Posix { uid, gid: squashed(gid), groups }
            }
        }
    }
}

impl Row for Export {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        let squash = match self.squash {
            Squash::Root => 0,
            Squash::All => 1,
            Squash::None => 2,
        };
        writer
            .number(1, self.number)
            .number(2, self.user.0)
            .number(3, u64::from(self.read_only))
            .number(4, squash)
            .number(5, self.uid.into())
            .number(6, self.gid.into());
        for client in &self.clients {
            writer.bytes(7, &client.to_bytes());
        }
        writer.number(8, zigzag(self.created.0));
        if self.top != Ino(0) {
            writer.number(9, self.top.0).text(10, &self.path);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Export> {
        let mut export = Export::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => export.number = field.number()?,
                2 => export.user = UserId(field.number()?),
                3 => export.read_only = field.number()? != 0,
                4 => {
                    export.squash = match field.number()? {
                        0 => Squash::Root,
                        1 => Squash::All,
                        2 => Squash::None,
                        other => return Err(unexpected("squash of an export", other)),
                    };
                }
                5 => export.uid = narrow("uid", field.number()?)?,
                6 => export.gid = narrow("gid", field.number()?)?,
                7 => {
                    let network = Network::from_bytes(&field.value);
                    let bad = |_| unexpected("client of an export", format!("{:?}", field.value));
                    export.clients.push(network.map_err(bad)?);
                }
                8 => export.created = Timestamp(unzigzag(field.number()?)),
                9 => export.top = Ino(field.number()?),
                10 => export.path = field.text()?,
                _ => field.keep(&mut export.unknown),
            }
        }
        match export.user {
            UserId::NOBODY => Err(unexpected("export", "no user")),
            _ => Ok(export),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_what_was_written() {
        for (top, path) in [(Ino(0), ""), (Ino(77), "a/b")] {
            let user = UserId(1);
            let export = Export { user, top, path: path.into(), ..Export::default() };
            assert_eq!(Export::decode(&export.encode()).unwrap(), export);
        }
    }

    #[test]
    fn clients_act_as_the_squash_says() {
        let of = |squash| Export { squash, uid: 65_534, gid: 65_533, ..Export::default() };
        let posix = |uid, gid, groups: &[u32]| Posix { uid, gid, groups: groups.to_vec() };
        let nobody = posix(65_534, 65_533, &[]);
        for (squash, claimed, is) in [
            (Squash::Root, posix(7, 8, &[9, 0]), posix(7, 8, &[9, 65_533])),
            (Squash::Root, posix(7, 0, &[]), posix(7, 65_533, &[])),
            (Squash::Root, posix(0, 8, &[9]), nobody.clone()),
            (Squash::All, posix(7, 8, &[9]), nobody.clone()),
            (Squash::None, posix(0, 0, &[9]), posix(0, 0, &[9])),
            (Squash::None, posix(u32::MAX, 0, &[9]), nobody.clone()),
            (Squash::None, posix(7, u32::MAX, &[u32::MAX, 9]), posix(7, 65_533, &[9])),
            (Squash::Root, posix(u32::MAX, 8, &[9]), nobody.clone()),
        ] {
            assert_eq!(of(squash).identity(Some(claimed)), is);
            assert_eq!(of(squash).identity(None), nobody);
        }
    }
}
