//! The portmapper (RFC 1833), version 2: returns the port of a program. It knows the programs of
//! this door, and takes no registrations.

use crate::limits::{MOUNT, NFS, VERSION};
use crate::status::Done;
use crate::xdr::{Garbage, Reader, Writer};

const TCP: u32 = 6;
pub const UDP: u32 = 17;

/// Program, version and protocol of each registration.
pub const KNOWN: [[u32; 3]; 3] =
    [[NFS, VERSION, TCP], [MOUNT, VERSION, TCP], [MOUNT, VERSION, UDP]];

/// Refuses SET and UNSET: no other program registers here.
pub fn set(mut arguments: Reader, mut result: Writer) -> Done {
    let _ = mapping(&mut arguments)?;
    arguments.end()?;
    result.flag(false);
    Ok(result.into())
}

pub fn getport(mut arguments: Reader, mut result: Writer, port: u16) -> Done {
    let asked = mapping(&mut arguments)?;
    arguments.end()?;
    result.number(if KNOWN.contains(&asked) { port.into() } else { 0 });
    Ok(result.into())
}

pub fn dump(arguments: &Reader, mut result: Writer, port: u16) -> Done {
    arguments.end()?;
    for [program, version, protocol] in KNOWN {
        result.flag(true).number(program).number(version).number(protocol).number(port.into());
    }
    result.flag(false);
    Ok(result.into())
}

/// Reads a mapping: program, version and protocol. Its port means nothing in a request.
fn mapping(arguments: &mut Reader) -> Result<[u32; 3], Garbage> {
    let asked = [arguments.number()?, arguments.number()?, arguments.number()?];
    let _port = arguments.number()?;
    Ok(asked)
}
