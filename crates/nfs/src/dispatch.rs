//! From a call to the procedure that it is of.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Scope;

use crate::desk::{Client, Desk};
use crate::limits::{MOUNT, NFS, VERSION};
use crate::replies::checksum;
use crate::rpc::{self, Call, Reply};
use crate::status::Done;
use crate::watch::{self, Ended};
use crate::xdr::{Reader, Writer};
use crate::{files, inodes, listing, mount, names, portmap, removes, space};

const PORTMAP: u32 = 100_000;
const PORTMAP_VERSION: u32 = 2;

/// Bytes of a reply that is none of many bytes.
const REPLY_BYTES: usize = 512;

const READ: u32 = 6;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;

/// How many bytes the reply to a call has, about, at most.
pub fn reply_bytes(call: &Call) -> usize {
    let arguments = call.arguments.clone();
    let wanted = match (call.program, call.procedure) {
        (NFS, READ) => files::read_bytes(arguments),
        (NFS, READDIR) => listing::list_bytes(arguments, false),
        (NFS, READDIRPLUS) => listing::list_bytes(arguments, true),
        _ => Ok(0),
    };
    REPLY_BYTES + wanted.unwrap_or(0) as usize
}

/// Whether a call is one to MOUNT or to the portmapper, which are answered to datagrams.
pub fn is_for_datagrams(call: &Call) -> bool {
    matches!(call.program, MOUNT | PORTMAP)
}

/// Whether a call does something that a second time would not be the same.
fn acts(procedure: u32) -> bool {
    // SETATTR; CREATE to LINK.
    matches!(procedure, 2 | 8..=15)
}

/// Answers a call, of which `record` is all.
pub async fn answer(desk: Arc<Desk>, client: Client, call: Call, record: Bytes) -> Reply {
    let Some(watch) = desk.watch.clone() else { return find(desk, client, call, record).await };
    let procedure = match call.program {
        NFS => watch::of_nfs(call.procedure),
        MOUNT => watch::of_mount(call.procedure),
        PORTMAP => watch::of_portmap(),
        _ => watch::of_none(),
    };
    let has_status = matches!((call.program, call.procedure), (NFS, _) | (MOUNT, 1));
    let received = record.len() as u64;
    let begun = (watch.begin)();
    let mut work = Scope::new(Some(begun), Box::pin(find(desk, client, call, record)));
    let reply = (&mut work).await;
    let mut stages = work.stages.unwrap_or(begun);
    stages.settle();
    let (outcome, sent) = (reply.outcome(has_status), (reply.head.len() + reply.data.len()) as u64);
    (watch.end)(Ended { procedure, outcome, stages, received, sent });
    reply
}

async fn find(desk: Arc<Desk>, client: Client, call: Call, record: Bytes) -> Reply {
    match (call.program, call.version) {
        (NFS, VERSION) if acts(call.procedure) => {
            let checksum = checksum(&record);
            let client = client.calling(checksum);
            let work = async { nfs(&desk, &client, &call).await.head };
            let head = desk.replies.once(client.address, checksum, work).await;
            Reply { head, data: Bytes::new() }
        }
        (NFS, VERSION) => nfs(&desk, &client, &call).await,
        (MOUNT, VERSION) => mount(&desk, &client, &call).await,
        (PORTMAP, PORTMAP_VERSION) => ports(&desk, &call),
        (NFS | MOUNT, _) => rpc::no_version(call.xid, VERSION),
        (PORTMAP, _) => rpc::no_version(call.xid, PORTMAP_VERSION),
        _ => rpc::no_program(call.xid),
    }
}

async fn nfs(desk: &Desk, client: &Client, call: &Call) -> Reply {
    let (arguments, result) = (call.arguments.clone(), rpc::success(call.xid));
    // How it went, and how many optional fields a result of nothing but a status has.
    let (done, absent) = match call.procedure {
        0 => (nothing(&arguments, result), 0),
        1 => (inodes::getattr(desk, client, arguments, result).await, 0),
        2 => (inodes::setattr(desk, client, arguments, result).await, 2),
        3 => (names::lookup(desk, client, arguments, result).await, 1),
        4 => (inodes::access(desk, client, arguments, result).await, 1),
        5 => (inodes::readlink(desk, client, arguments, result).await, 1),
        READ => (files::read(desk, client, arguments, result).await, 1),
        7 => (files::write(desk, client, arguments, result).await, 2),
        8 => (names::create(desk, client, arguments, result).await, 2),
        9 => (names::mkdir(desk, client, arguments, result).await, 2),
        10 => (names::symlink(desk, client, arguments, result).await, 2),
        11 => (names::mknod(desk, client, arguments, result).await, 2),
        12 => (removes::remove(desk, client, arguments, result).await, 2),
        13 => (removes::rmdir(desk, client, arguments, result).await, 2),
        14 => (removes::rename(desk, client, arguments, result).await, 4),
        15 => (names::link(desk, client, arguments, result).await, 3),
        READDIR => (listing::readdir(desk, client, arguments, result).await, 1),
        READDIRPLUS => (listing::readdirplus(desk, client, arguments, result).await, 1),
        18 => (space::fsstat(desk, client, arguments, result).await, 1),
        19 => (space::fsinfo(desk, client, arguments, result).await, 1),
        20 => (space::pathconf(desk, client, arguments, result).await, 1),
        21 => (files::commit(desk, client, arguments, result).await, 2),
        _ => return rpc::no_procedure(call.xid),
    };
    done.unwrap_or_else(|refusal| refusal.reply(call.xid, absent))
}

async fn mount(desk: &Desk, client: &Client, call: &Call) -> Reply {
    let (arguments, result) = (call.arguments.clone(), rpc::success(call.xid));
    let done = match call.procedure {
        0 => nothing(&arguments, result),
        1 => mount::mnt(desk, client, arguments, result).await,
        2 => mount::dump(&arguments, result),
        3 => mount::umnt(arguments, result),
        4 => mount::umntall(&arguments, result),
        5 => mount::export(desk, client, arguments, result).await,
        _ => return rpc::no_procedure(call.xid),
    };
    done.unwrap_or_else(|refusal| refusal.reply(call.xid, 0))
}

fn ports(desk: &Desk, call: &Call) -> Reply {
    let (arguments, result) = (call.arguments.clone(), rpc::success(call.xid));
    let done = match call.procedure {
        0 => nothing(&arguments, result),
        1 | 2 => portmap::set(arguments, result),
        3 => portmap::getport(arguments, result, desk.port),
        4 => portmap::dump(&arguments, result, desk.port),
        _ => return rpc::no_procedure(call.xid),
    };
    done.unwrap_or_else(|refusal| refusal.reply(call.xid, 0))
}

/// Whether somebody is there.
fn nothing(arguments: &Reader, result: Writer) -> Done {
    arguments.end()?;
    Ok(result.into())
}
