//! Calls and replies of ONC RPC, version 2 (RFC 5531).

use bytes::Bytes;
use cairn_auth::Posix;

use crate::limits::{AUTH_BYTES, GROUPS, MACHINE_BYTES};
use crate::record::LAST;
use crate::watch::Outcome;
use crate::xdr::{Garbage, Reader, Writer, padding};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const VERSION: u32 = 2;

const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

const SUCCESS: u32 = 0;
const PROGRAM_UNAVAILABLE: u32 = 1;
const PROGRAM_MISMATCH: u32 = 2;
const PROCEDURE_UNAVAILABLE: u32 = 3;
const GARBAGE_ARGUMENTS: u32 = 4;

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
/// Authentication error: the credentials are malformed, or of an unsupported kind.
const BAD_CREDENTIALS: u32 = 1;

// Statuses of results that mean more than a refused call.
const OK: u32 = 0;
const IO: u32 = 5;
const NO_SPACE: u32 = 28;
const FAULT: u32 = 10_006;
const NOT_NOW: u32 = 10_008;

/// Bytes of the mark of a record.
const MARK_BYTES: usize = 4;
/// Initial capacity of a reply, bytes: enough for most, without bytes of files.
const MOST_REPLIES: usize = 320;

const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;

/// A call.
pub struct Call {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    /// The user as the client states it, without proof.
    pub identity: Option<Posix>,
    pub arguments: Reader,
}

/// An incoming record.
pub enum Incoming {
    Call(Call),
    /// A call that is refused with this reply, whatever it asks for.
    Refused(Reply),
}

/// A reply as a record: its head, and bytes of a file, which are not copied.
pub struct Reply {
    /// The head, beginning with the mark of the record.
    pub record: Bytes,
    data: Vec<Bytes>,
}

/// Reads a call.
///
/// # Errors
/// [`Garbage`] if the record is not a call; it gets no reply.
pub fn read(record: Bytes) -> Result<Incoming, Garbage> {
    let mut reader = Reader::new(record);
    let xid = reader.number()?;
    if reader.number()? != CALL {
        return Err(Garbage);
    }
    if reader.number()? != VERSION {
        let mut reply = reply(xid);
        reply.number(DENIED).number(RPC_MISMATCH).number(VERSION).number(VERSION);
        return Ok(Incoming::Refused(reply.into()));
    }
    let (program, version, procedure) = (reader.number()?, reader.number()?, reader.number()?);
    let (flavor, credentials) = (reader.number()?, reader.bytes(AUTH_BYTES)?);
    let (_, _) = (reader.number()?, reader.bytes(AUTH_BYTES)?);
    let Ok(identity) = identity(flavor, credentials) else {
        let mut reply = reply(xid);
        reply.number(DENIED).number(AUTH_ERROR).number(BAD_CREDENTIALS);
        return Ok(Incoming::Refused(reply.into()));
    };
    let arguments = reader;
    Ok(Incoming::Call(Call { xid, program, version, procedure, identity, arguments }))
}

fn identity(flavor: u32, credentials: Bytes) -> Result<Option<Posix>, Garbage> {
    let mut reader = Reader::new(credentials);
    match flavor {
        AUTH_NONE => Ok(None),
        AUTH_SYS => {
            let _stamp = reader.number()?;
            let _machine = reader.bytes(MACHINE_BYTES)?;
            let (uid, gid, count) = (reader.number()?, reader.number()?, reader.number()?);
            if count as usize > GROUPS {
                return Err(Garbage);
            }
            let groups = (0..count).map(|_| reader.number()).collect::<Result<_, _>>()?;
            reader.end()?;
            Ok(Some(Posix { uid, gid, groups }))
        }
        _ => Err(Garbage),
    }
}

/// Returns the head of a reply, with room for the mark of its record, which is known at the end.
fn reply(xid: u32) -> Writer {
    let mut reply = Writer::with_room(MOST_REPLIES);
    reply.number(0).number(xid).number(REPLY);
    reply
}

/// Returns the head of a reply to an accepted call, with an empty verifier.
fn accepted(xid: u32, outcome: u32) -> Writer {
    let mut reply = reply(xid);
    reply.number(ACCEPTED).number(AUTH_NONE).bytes(&[]).number(outcome);
    reply
}

/// Returns the head of an anonymous call to another server. The arguments follow.
pub fn call(program: u32, version: u32, procedure: u32) -> Writer {
    let mut call = Writer::default();
    call.number(1).number(CALL).number(VERSION);
    call.number(program).number(version).number(procedure);
    call.number(AUTH_NONE).bytes(&[]).number(AUTH_NONE).bytes(&[]);
    call
}

/// Returns the result in a reply to a call.
///
/// # Errors
/// [`Garbage`] if there is none.
pub fn result(reply: Bytes) -> Result<Reader, Garbage> {
    let mut reader = Reader::new(reply);
    let (_xid, kind, denied) = (reader.number()?, reader.number()?, reader.number()?);
    let (_, _) = (reader.number()?, reader.bytes(AUTH_BYTES)?);
    let accepted = reader.number()?;
    match (kind, denied, accepted) {
        (REPLY, ACCEPTED, SUCCESS) => Ok(reader),
        _ => Err(Garbage),
    }
}

/// Returns the head of a successful reply. The result follows.
pub fn success(xid: u32) -> Writer {
    accepted(xid, SUCCESS)
}

pub fn no_program(xid: u32) -> Reply {
    accepted(xid, PROGRAM_UNAVAILABLE).into()
}

/// Returns the reply to a call of a program in another version than `version`.
pub fn no_version(xid: u32, version: u32) -> Reply {
    let mut reply = accepted(xid, PROGRAM_MISMATCH);
    reply.number(version).number(version);
    reply.into()
}

pub fn no_procedure(xid: u32) -> Reply {
    accepted(xid, PROCEDURE_UNAVAILABLE).into()
}

pub fn garbage(xid: u32) -> Reply {
    accepted(xid, GARBAGE_ARGUMENTS).into()
}

impl From<Writer> for Reply {
    fn from(head: Writer) -> Reply {
        Reply::with_data(head, Vec::new())
    }
}

impl Reply {
    /// Returns a reply whose result ends with bytes, preceded by their length.
    pub fn with_data(mut head: Writer, mut data: Vec<Bytes>) -> Reply {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let padding = padding(bytes);
        if padding > 0 {
            data.push(Bytes::from_static(&[0; 3]).slice(..padding));
        }
        let len = (head.len() + bytes + padding).saturating_sub(MARK_BYTES);
        head.begin_with(LAST | u32::try_from(len).unwrap_or(0));
        Reply { record: head.finish(), data }
    }

    /// Returns a reply without bytes of a file, from the record of an earlier reply.
    pub fn again(record: Bytes) -> Reply {
        Reply { record, data: Vec::new() }
    }

    /// Returns the head without the mark of the record.
    pub fn head(&self) -> Bytes {
        self.record.slice(MARK_BYTES.min(self.record.len())..)
    }

    /// Returns the length of the whole record, bytes.
    pub fn len(&self) -> usize {
        self.record.len() + self.data.iter().map(Bytes::len).sum::<usize>()
    }

    /// Returns the first number of the result: `None` if there is no result.
    fn result(&self) -> Option<Option<u32>> {
        Some(result(self.head()).ok()?.number().ok())
    }

    /// Returns the status of the result, and `OK` for results without a status; `None` if there is
    /// no result.
    pub fn status(&self, has_status: bool) -> Option<u32> {
        let first = self.result()?;
        Some(first.filter(|_| has_status).unwrap_or(OK))
    }

    /// Returns the outcome of the call according to the reply. Not all results begin with a status.
    pub fn outcome(&self, has_status: bool) -> Outcome {
        match self.status(has_status) {
            Some(OK) => Outcome::Fine,
            Some(NOT_NOW) => Outcome::NotNow,
            Some(IO | NO_SPACE | FAULT) => Outcome::Failed,
            Some(_) | None => Outcome::Refused,
        }
    }

    /// Returns the parts of the record, in order.
    pub fn into_parts(self) -> impl Iterator<Item = Bytes> {
        std::iter::once(self.record).chain(self.data)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(version: u32, flavor: u32, credentials: &[u8]) -> Bytes {
        let mut writer = Writer::default();
        writer.number(9).number(CALL).number(version).number(100_003).number(3).number(1);
        writer.number(flavor).bytes(credentials).number(AUTH_NONE).bytes(&[]);
        writer.number(77);
        writer.finish()
    }

    fn sys(groups: u32) -> Bytes {
        let mut writer = Writer::default();
        writer.number(1).bytes(b"machine").number(7).number(8).number(groups);
        for group in 0..groups {
            writer.number(100 + group);
        }
        writer.finish()
    }

    fn refusal(record: Bytes) -> Vec<u32> {
        let Ok(Incoming::Refused(reply)) = read(record) else { panic!("not refused") };
        let mut reader = Reader::new(reply.head());
        std::iter::from_fn(|| reader.number().ok()).collect()
    }

    #[test]
    fn a_reply_says_how_the_call_went() {
        let of = |status: u32| {
            let mut result = success(7);
            result.number(status);
            Reply::from(result).outcome(true)
        };
        let outcomes = [0, 2, 5, 13, 28, 10_008].map(of);
        use Outcome::{Failed, Fine, NotNow, Refused};
        assert_eq!(outcomes, [Fine, Refused, Failed, Refused, Failed, NotNow]);
        assert_eq!(Reply::from(success(7)).outcome(true), Fine);
        for refused in [garbage(7), no_program(7), Reply::from(reply(7))] {
            assert_eq!(refused.outcome(true), Refused);
        }
        let mut result = success(7);
        result.number(1);
        assert_eq!(Reply::from(result).outcome(false), Fine);
    }

    #[test]
    fn a_reply_is_a_record_with_its_length_before_it() {
        for parts in [&[][..], &["abc"], &["abcd", "e"], &["", "abcdef"]] {
            let mut head = success(7);
            head.number(0);
            let data = parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
            let reply = Reply::with_data(head, data);
            let (len, outcome) = (reply.len(), reply.outcome(true));
            let whole = reply.into_parts().collect::<Vec<_>>().concat();
            let mark = u32::from_be_bytes(*whole.first_chunk().unwrap());
            assert_eq!((mark & !LAST) as usize + MARK_BYTES, whole.len());
            assert_eq!((len, outcome, whole.len() % 4), (whole.len(), Outcome::Fine, 0));
            assert!(whole[MARK_BYTES + 28..].starts_with(parts.concat().as_bytes()));
        }
    }

    #[test]
    fn a_call_says_who_asks() {
        let Ok(Incoming::Call(mut read_call)) = read(call(2, AUTH_SYS, &sys(16))) else {
            panic!("not a call")
        };
        let identity = read_call.identity.unwrap();
        assert_eq!((identity.uid, identity.gid, identity.groups.len()), (7, 8, 16));
        assert_eq!((read_call.xid, read_call.arguments.number()), (9, Ok(77)));
        let Ok(Incoming::Call(anonymous)) = read(call(2, AUTH_NONE, &[])) else {
            panic!("not a call")
        };
        assert_eq!(anonymous.identity, None);
    }

    #[test]
    fn what_is_not_there_is_refused_as_it_must_be() {
        assert_eq!(refusal(call(3, AUTH_NONE, &[])), [9, REPLY, DENIED, RPC_MISMATCH, 2, 2]);
        let bad = [9, REPLY, DENIED, AUTH_ERROR, BAD_CREDENTIALS];
        // Kerberos is 6, TLS is 7.
        for (flavor, credentials) in
            [(6, Bytes::new()), (7, Bytes::new()), (AUTH_SYS, sys(17)), (AUTH_SYS, Bytes::new())]
        {
            assert_eq!(refusal(call(2, flavor, &credentials)), bad);
        }
        let longer = Bytes::from([&sys(1)[..], &[0; 4]].concat());
        assert_eq!(refusal(call(2, AUTH_SYS, &longer)), bad);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_call_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            changes in proptest::collection::vec((0usize..200, any::<u8>()), 0..6),
            groups in 0u32..20,
        ) {
            let _ = read(bytes.clone().into());
            let mut nearly = call(2, AUTH_SYS, &sys(groups)).to_vec();
            for (at, byte) in changes {
                let at = at % nearly.len();
                nearly[at] = byte;
            }
            nearly.extend(bytes);
            if let Ok(Incoming::Call(read)) = read(nearly.clone().into()) {
                prop_assert!(read.identity.is_none_or(|found| found.groups.len() <= GROUPS));
            }
        }
    }

    #[test]
    fn what_is_no_call_gets_no_reply() {
        let whole = call(2, AUTH_SYS, &sys(2));
        for len in 0..whole.len() - 4 {
            assert!(read(whole.slice(..len)).is_err(), "{len} bytes");
        }
        let mut reply = Writer::default();
        reply.number(9).number(REPLY);
        assert!(read(reply.finish()).is_err());
    }
}
