//! Our errors as codes of gRPC, and back. The code is for programs of others. Ours read the error
//! itself, which is sent beside the code, and so print what the master said.

use std::io;

use bytes::Bytes;
use cairn_base::Error;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::limits::ADMIN_ERROR_BYTES;

/// The error as [`Error::to_bytes`] writes it.
const ERROR: &str = "cairn-error-bin";

pub fn to_status(error: &Error) -> Status {
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(ADMIN_ERROR_BYTES));
    let mut status = Status::new(code(error), text);
    let bytes = error.to_bytes();
    if bytes.len() <= ADMIN_ERROR_BYTES {
        status.metadata_mut().insert_bin(ERROR, MetadataValue::from_bytes(&bytes));
    }
    status
}

pub fn from_status(status: &Status) -> Error {
    let sent = status.metadata().get_bin(ERROR).and_then(|value| value.to_bytes().ok());
    let error = sent.and_then(|bytes: Bytes| Error::from_bytes(&bytes).ok());
    error.unwrap_or_else(|| of_code(status.code(), status.message().to_owned()))
}

fn code(error: &Error) -> Code {
    match error {
        Error::NotFound(_) => Code::NotFound,
        Error::Exists(_) => Code::AlreadyExists,
        Error::Denied(_) => Code::PermissionDenied,
        Error::Conflict(_) => Code::Aborted,
        Error::Unavailable(_) => Code::Unavailable,
        Error::Full(_) | Error::TooLarge(_) => Code::ResourceExhausted,
        Error::Corrupt { .. } => Code::DataLoss,
        Error::Invalid(_) | Error::BadDigest(_) => Code::InvalidArgument,
        Error::RangeNotSatisfiable { .. } => Code::OutOfRange,
        Error::NotImplemented(_) => Code::Unimplemented,
        Error::Io(_) => Code::Internal,
        _ => Code::FailedPrecondition,
    }
}

/// Makes an error of a code that others sent: the library, or a proxy.
fn of_code(code: Code, text: String) -> Error {
    match code {
        Code::NotFound => Error::NotFound(text),
        Code::AlreadyExists => Error::Exists(text),
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(text),
        Code::Aborted => Error::Conflict(text),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Error::Unavailable(text),
        Code::ResourceExhausted | Code::OutOfRange => Error::TooLarge(text),
        Code::DataLoss => Error::corrupt(text, "an answer of a master", "whole data"),
        Code::InvalidArgument => Error::Invalid(text),
        Code::FailedPrecondition => Error::PreconditionFailed(text),
        Code::Unimplemented => Error::NotImplemented(text),
        Code::Internal | Code::Unknown | Code::Ok => Error::Io(io::Error::other(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_on_the_other_side() {
        for error in [
            Error::NotFound("größer als /x".into()),
            Error::Conflict("node 4 is in 3 groups".into()),
            Error::Unavailable("this master stands by".into()),
            Error::NotEmpty(String::new()),
            Error::corrupt("map", 1, 2),
            Error::Io(io::Error::other("disk")),
        ] {
            let status = to_status(&error);
            assert_eq!(status.message(), error.to_string());
            let answer = status.into_http::<()>();
            let read = from_status(&Status::from_header_map(answer.headers()).unwrap());
            assert_eq!(format!("{read:?}"), format!("{error:?}"));
        }
    }

    #[test]
    fn a_long_text_becomes_shorter_and_stays_of_its_kind() {
        let error = Error::NotFound("ä".repeat(ADMIN_ERROR_BYTES));
        let status = to_status(&error);
        assert!(status.message().len() <= ADMIN_ERROR_BYTES);
        assert!(matches!(from_status(&status), Error::NotFound(_)));
    }

    #[test]
    fn codes_of_others_and_garbage_have_a_kind() {
        for number in 0..17 {
            let mut status = Status::new(Code::from(number), "said by others");
            let bad = MetadataValue::from_bytes(b"\xff\xff\xff garbage");
            status.metadata_mut().insert_bin(ERROR, bad);
            assert!(from_status(&status).to_string().contains("said by others"));
        }
        assert!(matches!(from_status(&Status::unavailable("")), Error::Unavailable(_)));
    }
}
