//! The step from a call to its procedure.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Scope, inflight, stage};
use cairn_posix::{Attempt, SettleOutcome};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use crate::desk::{Client, Desk};
use crate::limits::{MOUNT, NFS, VERSION};
use crate::replies::checksum;
use crate::rpc::{self, Call, Reply};
use crate::status::{Done, Refusal, Status};
use crate::subject::{in_flight, object};
use crate::watch::{self, CallRecord, Outcome, Ran};
use crate::xdr::{Reader, Writer};
use crate::{files, inodes, listing, mount, names, portmap, removes, space};

const PORTMAP: u32 = 100_000;
const PORTMAP_VERSION: u32 = 2;

/// Bytes of a reply without file data or a listing, at most.
const REPLY_BYTES: usize = 512;

/// Time for which the outcome of a call is looked for, and the shortest and longest pause between
/// attempts.
const UNKNOWN: Duration = Duration::from_secs(60);
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

const READ: u32 = 6;
const WRITE: u32 = 7;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

/// Returns about how many bytes the reply to a call has at most.
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

/// Returns whether a call is to MOUNT or to the portmapper, which also take datagrams.
pub fn is_for_datagrams(call: &Call) -> bool {
    matches!(call.program, MOUNT | PORTMAP)
}

/// Returns whether a procedure is not idempotent: a second run would have another effect.
fn acts(procedure: u32) -> bool {
    // SETATTR; CREATE to LINK.
    matches!(procedure, 2 | 8..=15)
}

/// A call that runs. When it is dropped, the audit receives one record of it, however often it was
/// tried, also if it was given up. It is made wherever a procedure of NFS or of MOUNT is called;
/// procedures are called nowhere else.
struct Running<'a> {
    desk: &'a Desk,
    client: &'a Client,
    call: &'a Call,
    procedure: usize,
    reply: Option<(Option<u32>, Outcome)>,
}

impl<'a> Running<'a> {
    fn new(desk: &'a Desk, client: &'a Client, call: &'a Call, procedure: usize) -> Running<'a> {
        Running { desk, client, call, procedure, reply: None }
    }

    fn end(mut self, reply: &Reply) {
        if self.desk.watch.audit.is_none() {
            return;
        }
        let has_status = matches!((self.call.program, self.call.procedure), (NFS, 1..) | (_, 1));
        self.reply = Some((reply.status(has_status), reply.outcome(has_status)));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Running { desk, client, call, procedure, reply } = self;
        let Some(audit) = &desk.watch.audit else { return };
        let (status, outcome) = reply.unwrap_or((None, Outcome::NotNow));
        let is_refused = status.is_some_and(|status| Status(status).is_refusal());
        let is_change = call.program == NFS && (acts(call.procedure) || call.procedure == WRITE);
        if !is_change && !is_refused {
            return;
        }
        let of = (call.program, call.procedure);
        audit(Ran {
            procedure: watch::PROCEDURES.get(*procedure).copied().unwrap_or_default(),
            status,
            outcome,
            is_refused,
            client: client.address,
            uid: client.identity.as_ref().map(|identity| identity.uid),
            user: inflight::current().and_then(|request| request.user()),
            object: object(desk, of, call.arguments.clone()).unwrap_or_default(),
            trace: stage::trace(),
        });
    }
}

/// Answers a call; `record` is the whole call. Returns `None` if the outcome of the call is
/// unknown.
pub async fn answer(desk: Arc<Desk>, client: Client, call: Call, record: Bytes) -> Option<Reply> {
    let procedure = match call.program {
        NFS => watch::of_nfs(call.procedure),
        MOUNT => watch::of_mount(call.procedure),
        PORTMAP => watch::of_portmap(),
        _ => watch::of_none(),
    };
    let has_status = matches!((call.program, call.procedure), (NFS, _) | (MOUNT, 1));
    let received = record.len() as u64;
    let begun = (desk.watch.begin)();
    let request = in_flight(begun.trace, &desk, &client, &call, procedure);
    let work = Box::pin(find(Arc::clone(&desk), client, call, record));
    let mut work = Scope::of(begun, request, work);
    let reply = (&mut work).await;
    let mut stages = work.stages.unwrap_or(begun);
    stages.settle();
    let outcome = reply.as_ref().map_or(Outcome::NotNow, |reply| reply.outcome(has_status));
    let sent = reply.as_ref().map_or(0, Reply::len) as u64;
    (desk.watch.end)(CallRecord { procedure, outcome, stages, received, sent });
    reply
}

async fn find(desk: Arc<Desk>, client: Client, call: Call, record: Bytes) -> Option<Reply> {
    if (call.program, call.version) == (NFS, VERSION) && acts(call.procedure) {
        // Boxed, so that calls that only read need not carry the room for it.
        return Box::pin(act(&desk, client, &call, &record)).await;
    }
    Some(look(&desk, &client, &call).await)
}

/// Runs a call that acts, and answers it once its outcome is known. A client that gets
/// `NFS3ERR_JUKEBOX` tries later with another call, under another number (RFC 1813), and that call
/// would find done what may have been done for the first one. A client that gets no reply sends the
/// same call again.
async fn act(desk: &Desk, client: Client, call: &Call, record: &[u8]) -> Option<Reply> {
    let (checksum, came) = (checksum(record), Instant::now());
    let work = async {
        let running = Running::new(desk, &client, call, watch::of_nfs(call.procedure));
        let (mut patience, mut acted) = (Patience::new(), false);
        loop {
            let (client, tried) = client.calling(checksum, came);
            let attempt = attempt(desk, &client, &tried, call, &mut acted);
            if let Some(reply) = attempt.await {
                running.end(&reply);
                return Some(reply.record);
            }
            if !patience.wait().await {
                return None;
            }
        }
    };
    desk.replies.once(client.address, checksum, work).await.map(Reply::again)
}

/// The pauses between attempts to find out the outcome of a call.
struct Patience {
    began: Instant,
    pause: Duration,
}

impl Patience {
    fn new() -> Patience {
        Patience { began: Instant::now(), pause: PAUSES[0] }
    }

    /// Waits, longer each time. Returns false at once when [`UNKNOWN`] has passed.
    async fn wait(&mut self) -> bool {
        if self.began.elapsed() >= UNKNOWN {
            return false;
        }
        sleep(self.pause).await;
        self.pause = PAUSES[1].min(2 * self.pause);
        true
    }
}

/// Returns the reply to a call that acts, once no other attempt at the same call, here or
/// elsewhere, can have another outcome. Returns `None` if that is unknown, or if another attempt
/// turns out to have acted; `acted` is set then.
async fn attempt(
    desk: &Desk,
    client: &Client,
    attempt: &Attempt,
    call: &Call,
    acted: &mut bool,
) -> Option<Reply> {
    let reply = nfs(desk, client, call).await;
    let status = match reply.status(true).map(Status) {
        Some(Status::JUKEBOX) => return is_planted(Bug::UnknownAnswered).then_some(reply),
        // Every attempt at this call gets the same status.
        None | Some(Status::BADHANDLE | Status::ROFS) => return Some(reply),
        Some(status) => status,
    };
    match desk.posix.settle(attempt, status.0).await {
        Ok(SettleOutcome::Kept) => Some(reply),
        Ok(SettleOutcome::Refused(before)) if before == status.0 => Some(reply),
        Ok(SettleOutcome::Refused(before)) => {
            Some(Refusal::Failed(Status(before)).reply(call.xid, absent(call.procedure)))
        }
        // Either the result of another attempt is gone, or this attempt failed to find it. A status
        // that only describes the store may be passing, so it is no answer.
        Ok(SettleOutcome::Done) if *acted => (!is_of_the_store(status)).then_some(reply),
        // Another attempt has acted: the next attempt finds its result.
        Ok(SettleOutcome::Done) => {
            *acted = true;
            None
        }
        // The master is of an earlier version.
        Err(Error::NotImplemented(_)) => Some(reply),
        // Nobody can find out whether another attempt has acted. None will act from here on.
        Err(error @ Error::Corrupt { .. }) => {
            let status = Status::of(&error);
            Some(Refusal::Failed(status).reply(call.xid, absent(call.procedure)))
        }
        Err(error) => {
            tracing::debug!(%error, "it is not known whether a call is settled");
            None
        }
    }
}

/// Returns whether a status only describes the state of the store, and nothing about the object of
/// the call.
fn is_of_the_store(status: Status) -> bool {
    matches!(status, Status::IO | Status::NOSPC | Status::SERVERFAULT)
}

async fn look(desk: &Desk, client: &Client, call: &Call) -> Reply {
    match (call.program, call.version) {
        (NFS, VERSION) => {
            let running = Running::new(desk, client, call, watch::of_nfs(call.procedure));
            let reply = nfs(desk, client, call).await;
            running.end(&reply);
            reply
        }
        (MOUNT, VERSION) => mount(desk, client, call).await,
        (PORTMAP, PORTMAP_VERSION) => ports(desk, call),
        (NFS | MOUNT, _) => rpc::no_version(call.xid, VERSION),
        (PORTMAP, _) => rpc::no_version(call.xid, PORTMAP_VERSION),
        _ => rpc::no_program(call.xid),
    }
}

async fn nfs(desk: &Desk, client: &Client, call: &Call) -> Reply {
    if call.procedure > COMMIT {
        return rpc::no_procedure(call.xid);
    }
    let (arguments, result) = (call.arguments.clone(), rpc::success(call.xid));
    // Each future is in a box of its own: one box for all would be as large as the largest, and
    // copied each time.
    let work: Work<'_> = match call.procedure {
        0 => Box::pin(async move { nothing(&arguments, result) }),
        1 => Box::pin(inodes::getattr(desk, client, arguments, result)),
        2 => Box::pin(inodes::setattr(desk, client, arguments, result)),
        3 => Box::pin(names::lookup(desk, client, arguments, result)),
        4 => Box::pin(inodes::access(desk, client, arguments, result)),
        5 => Box::pin(inodes::readlink(desk, client, arguments, result)),
        READ => Box::pin(files::read(desk, client, arguments, result)),
        WRITE => Box::pin(files::write(desk, client, arguments, result)),
        8 => Box::pin(names::create(desk, client, arguments, result)),
        9 => Box::pin(names::mkdir(desk, client, arguments, result)),
        10 => Box::pin(names::symlink(desk, client, arguments, result)),
        11 => Box::pin(names::mknod(desk, client, arguments, result)),
        12 => Box::pin(removes::remove(desk, client, arguments, result)),
        13 => Box::pin(removes::rmdir(desk, client, arguments, result)),
        14 => Box::pin(removes::rename(desk, client, arguments, result)),
        15 => Box::pin(names::link(desk, client, arguments, result)),
        READDIR => Box::pin(listing::readdir(desk, client, arguments, result)),
        READDIRPLUS => Box::pin(listing::readdirplus(desk, client, arguments, result)),
        18 => Box::pin(space::fsstat(desk, client, arguments, result)),
        19 => Box::pin(space::fsinfo(desk, client, arguments, result)),
        20 => Box::pin(space::pathconf(desk, client, arguments, result)),
        COMMIT => Box::pin(files::commit(desk, client, arguments, result)),
        _ => Box::pin(async { Err(Refusal::Garbage) }),
    };
    caught(work).await.unwrap_or_else(|refusal| refusal.reply(call.xid, absent(call.procedure)))
}

/// A procedure at work.
type Work<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// Runs a procedure, also through a panic. The connection goes on: a client that lost it would send
/// the same call again, for ever.
async fn caught(work: Work<'_>) -> Done {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a call panicked, and is answered SERVERFAULT: please report this");
        Err(Refusal::Failed(Status::SERVERFAULT))
    })
}

/// Returns the number of optional fields in the result of a procedure that failed.
fn absent(procedure: u32) -> u32 {
    match procedure {
        0 | 1 => 0,
        2 | 7..=13 | 21 => 2,
        14 => 4,
        15 => 3,
        _ => 1,
    }
}

/// Runs a procedure of MOUNT. There is no other way to these procedures.
async fn mount(desk: &Desk, client: &Client, call: &Call) -> Reply {
    let running = Running::new(desk, client, call, watch::of_mount(call.procedure));
    let reply = mount_procedure(desk, client, call).await;
    running.end(&reply);
    reply
}

async fn mount_procedure(desk: &Desk, client: &Client, call: &Call) -> Reply {
    let (arguments, result) = (call.arguments.clone(), rpc::success(call.xid));
    let done = match call.procedure {
        0 => nothing(&arguments, result),
        1 => caught(Box::pin(mount::mnt(desk, client, arguments, result))).await,
        2 => mount::dump(&arguments, result),
        3 => mount::umnt(arguments, result),
        4 => mount::umntall(&arguments, result),
        5 => caught(Box::pin(mount::export(desk, client, arguments, result))).await,
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

/// Answers the NULL procedure, with which a client checks that the server is there.
fn nothing(arguments: &Reader, result: Writer) -> Done {
    arguments.end()?;
    Ok(result.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::IO_BYTES;
    use crate::rpc::Incoming;

    #[tokio::test]
    async fn a_call_that_panics_is_answered() {
        let panics = async { panic!("on purpose") };
        assert_eq!(
            caught(Box::pin(panics)).await.err(),
            Some(Refusal::Failed(Status::SERVERFAULT))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_unknown_is_given_up_after_a_minute() {
        let (began, mut patience, mut attempts) = (Instant::now(), Patience::new(), 1);
        while patience.wait().await {
            attempts += 1;
        }
        assert!((UNKNOWN..UNKNOWN + PAUSES[1]).contains(&began.elapsed()));
        assert!((10..30).contains(&attempts), "{attempts}");
    }

    proptest! {
        /// Any procedure with any arguments.
        #[test]
        fn a_call_is_counted_for_no_more_than_it_may_get(
            program in prop_oneof![Just(NFS), Just(MOUNT), Just(PORTMAP), any::<u32>()],
            procedure in 0u32..24,
            arguments in proptest::collection::vec(any::<u8>(), 0..120),
            handle in any::<bool>(),
        ) {
            let mut call = Writer::default();
            call.number(1).number(0).number(2).number(program).number(3).number(procedure);
            call.number(0).number(0).number(0).number(0);
            if handle {
                call.bytes(&[7; 44]);
            }
            let call = [&call.finish()[..], &arguments].concat();
            let Ok(Incoming::Call(call)) = rpc::read(call.into()) else { panic!("no call") };
            prop_assert!(reply_bytes(&call) <= REPLY_BYTES + IO_BYTES as usize);
        }
    }
}
