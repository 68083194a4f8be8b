use cairn_audit::AuditOutcome;
use cairn_base::{Error, limits};
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use http::Response;
use s3s::dto::{Delete, DeleteObjectsOutput, DeletedObject, Error as KeyError, ObjectIdentifier};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, invalid, not_implemented, refuse, translate};
use super::super::{reply, xml};
use super::check_version_id;

/// Deletes objects. Each key succeeds or fails on its own.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let Delete { objects, quiet } = xml::parse(&call.xml)?;
    if objects.is_empty() || objects.len() > limits::DELETE_KEYS {
        let what = format!("a request names 1 to {} keys", limits::DELETE_KEYS);
        return Err(refuse(S3ErrorCode::MalformedXML, what));
    }
    let is_quiet = quiet.unwrap_or_default();
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    let mut keys = Vec::with_capacity(objects.len());
    for object in objects {
        match conditions(&object) {
            Ok(conditions) => keys.push((object.key, conditions)),
            Err(error) => errors.push(key_error(object.key, &error)),
        }
    }
    let tell = |key: &str, reply: Result<bool, Error>| {
        if reply.is_ok() {
            call.parts.witness.note(|facts| facts.keys.push(key.to_owned()));
        }
        match reply {
            // A condition on an object that is gone already makes no error.
            Ok(_) | Err(Error::NotFound(_)) if is_quiet => {}
            Ok(_) | Err(Error::NotFound(_)) => {
                deleted.push(DeletedObject { key: Some(key.to_owned()), ..Default::default() });
            }
            Err(error) => errors.push(key_error(key.to_owned(), &told(error))),
        }
    };
    let done = call.store.fs.delete_objects(call.caller, call.bucket(), &keys, tell).await;
    if let Err(error) = done {
        return Err(call.refused(error, Codes::bucket()).await);
    }
    if !errors.is_empty() {
        let is_denied = |error: &&KeyError| error.code.as_deref() == Some("AccessDenied");
        let refused = errors.iter().filter(is_denied).count();
        call.parts.witness.note(|facts| {
            let all = refused == errors.len() && facts.keys.is_empty();
            facts.late = Some(if all { AuditOutcome::Refused } else { AuditOutcome::Failed });
            facts.reason = errors.first().and_then(|error| error.code.clone());
        });
    }
    reply::xml(&DeleteObjectsOutput {
        deleted: Some(deleted),
        errors: Some(errors),
        ..DeleteObjectsOutput::default()
    })
}

fn told(error: Error) -> S3Error {
    let too_large = S3ErrorCode::KeyTooLongError;
    translate(error, Codes { too_large, ..Codes::object() })
}

fn conditions(object: &ObjectIdentifier) -> S3Result<Conditions> {
    check_version_id(object.version_id.as_deref())?;
    if object.last_modified_time.is_some() {
        return Err(not_implemented("deleting an object by its LastModifiedTime"));
    }
    let if_size = match object.size.map(u64::try_from) {
        None => None,
        Some(Ok(size)) => Some(size),
        Some(Err(_)) => return Err(invalid("Size must not be negative")),
    };
    let etag = object.e_tag.as_ref().map(|etag| match etag.value() {
        "*" => EtagMatch::Any,
        value => EtagMatch::OneOf(vec![value.to_owned()]),
    });
    Ok(Conditions { if_match: etag, if_size, ..Conditions::default() })
}

fn key_error(key: String, error: &S3Error) -> KeyError {
    KeyError {
        code: Some(error.code().as_str().to_owned()),
        key: Some(key),
        message: error.message().map(str::to_owned),
        version_id: None,
    }
}
