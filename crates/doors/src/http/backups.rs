//! `/admin/holds` and `/admin/blocks`: the requests of `cairn backup` in addition to the dump.

use cairn_auth::Caller;
use cairn_base::{BlockId, Error, GroupId, Result};
use cairn_fs::ops::holds::{AddHold, HeldNow, ListHolds, RemoveHold, RenewHold};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Body, json_of, no_content, rfc3339};
use crate::admit::Admit;

/// Number of blocks that are read at the same time for all backups, so that other requests go on.
const READS: usize = 8;
static PLACES: Semaphore = Semaphore::const_new(READS);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    owner: String,
    seconds: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    seconds: u32,
}

#[derive(Serialize)]
struct ShownHold {
    id: String,
    owner: String,
    batch: u64,
    begun: String,
    ends: String,
}

impl From<HeldNow> for ShownHold {
    fn from(hold: HeldNow) -> ShownHold {
        ShownHold {
            id: format!("{:016x}", hold.id),
            owner: hold.owner,
            batch: hold.batch,
            begun: rfc3339(hold.begun),
            ends: rfc3339(hold.ends),
        }
    }
}

fn id_of(text: &str) -> Result<u64> {
    let digits = Some(text).filter(|text| text.len() == 16);
    let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    id.ok_or_else(|| Error::NotFound("a hold of this id: use 16 hexadecimal digits".into()))
}

pub async fn list(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    let now = admit.fs().clock().now();
    let holds = admit.fs().read(caller, ListHolds).await?.into_iter();
    let holds: Vec<ShownHold> = holds.filter(|hold| hold.ends > now).map(ShownHold::from).collect();
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "holds": holds })))
}

pub async fn add(admit: &Admit, caller: &Caller, new: New) -> Result<Response<Body>> {
    let verb = AddHold { id: admit.rng().next_u64(), owner: new.owner, seconds: new.seconds };
    let added = admit.fs().run(caller, verb).await?;
    Ok(json_of(StatusCode::CREATED, &ShownHold::from(added)))
}

pub async fn renew(
    admit: &Admit,
    caller: &Caller,
    id: &str,
    renewal: Renewal,
) -> Result<Response<Body>> {
    let verb = RenewHold { id: id_of(id)?, seconds: renewal.seconds };
    let renewed = admit.fs().run(caller, verb).await?;
    Ok(json_of(StatusCode::OK, &ShownHold::from(renewed)))
}

pub async fn remove(admit: &Admit, caller: &Caller, id: &str) -> Result<Response<Body>> {
    admit.fs().run(caller, RemoveHold { id: id_of(id)? }).await?;
    Ok(no_content())
}

/// Reads `GROUP/BLOCK/LENGTH`: the group, the block as 32 hexadecimal digits, and the number of
/// bytes.
fn wanted(path: &str) -> Option<(GroupId, BlockId, u32)> {
    let mut parts = path.split('/');
    let group = parts.next()?.parse().ok().map(GroupId)?;
    let block = parts.next().filter(|digits| digits.len() == 32)?;
    let block = u128::from_str_radix(block, 16).ok()?;
    let length = parts.next()?.parse().ok()?;
    let block = BlockId::from_bytes(block.to_be_bytes());
    parts.next().is_none().then_some((group, block, length))
}

pub async fn block(admit: &Admit, caller: &Caller, path: &str) -> Result<Response<Body>> {
    let (group, block, length) = wanted(path).ok_or_else(|| {
        Error::Invalid("a block: use /admin/blocks/GROUP/BLOCK/LENGTH".to_owned())
    })?;
    let ended = |_| Error::Unavailable("no blocks are read any more".into());
    let _place = PLACES.acquire().await.map_err(ended)?;
    let bytes = admit.fs().read_block(caller, group, block, length).await?;
    let mut reply = Response::new(Body::Full(bytes));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_named_by_group_id_and_length() {
        let id = "0123456789abcdef0000000000000007";
        let (group, block, length) = wanted(&format!("3/{id}/4096")).unwrap();
        assert_eq!((group, length), (GroupId(3), 4096));
        assert_eq!((block.session.0, block.counter), (0x0123_4567_89ab_cdef, 7));
        for bad in ["", "3", "3/7/1", &format!("3/{id}"), &format!("3/{id}/1/2"), "x/y/z"] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
