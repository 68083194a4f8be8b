//! The subject of a call, for the table of requests in flight.

use std::sync::Arc;

use cairn_base::inflight::{About, Request};
use cairn_base::trace::Trace;

use crate::desk::{Client, Desk};
use crate::limits::{HANDLE_BYTES, MOUNT, MOUNT_BYTES, NAME_BYTES, NFS};
use crate::rpc::Call;
use crate::watch::PROCEDURES;
use crate::xdr::{Garbage, Reader};

/// Returns a call as a request in flight. `procedure` is its index in [`PROCEDURES`].
pub fn in_flight(
    trace: Trace,
    desk: &Arc<Desk>,
    client: &Client,
    call: &Call,
    procedure: usize,
) -> Request {
    let (desk, arguments) = (Arc::clone(desk), call.arguments.clone());
    let (of, address) = ((call.program, call.procedure), client.address);
    let uid = client.identity.as_ref().map(|identity| identity.uid);
    let about = move || About {
        door: "nfs",
        operation: PROCEDURES.get(procedure).copied().unwrap_or_default().into(),
        object: object(&desk, of, arguments.clone()).unwrap_or_default(),
        client: match uid {
            Some(uid) => format!("{address}, uid {uid}"),
            None => address.to_string(),
        },
        ..About::default()
    };
    Request::new(Some(trace), about)
}

/// Returns the object of a call: the inode, a name below it, or the path to be mounted. Inodes have
/// no known path.
pub fn object(desk: &Desk, of: (u32, u32), mut arguments: Reader) -> Result<String, Garbage> {
    // LOOKUP; CREATE to RENAME.
    let has_name = matches!(of, (NFS, 3 | 8..=14));
    match of {
        (NFS, 1..) => {
            let handle = arguments.bytes(HANDLE_BYTES)?;
            let Some(ino) = desk.inode(&handle) else { return Ok("(no handle)".to_owned()) };
            if !has_name {
                return Ok(format!("(inode {ino})"));
            }
            let name = arguments.bytes(NAME_BYTES)?;
            Ok(format!("(inode {ino})/{}", name.escape_ascii()))
        }
        (MOUNT, 1 | 3) => Ok(arguments.bytes(MOUNT_BYTES)?.escape_ascii().to_string()),
        _ => Ok(String::new()),
    }
}
