//! Keys of objects, and the names of directories and entries that they contain.

use cairn_base::{Error, limits};

use crate::rows::{Bucket, BucketKind};

/// Checks an object's key: not empty, not too long, no NUL.
pub fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::Invalid("an object's key must not be empty".into()));
    }
    if key.len() > limits::KEY_BYTES {
        let what = format!("key of {} bytes; at most {}", key.len(), limits::KEY_BYTES);
        return Err(Error::TooLarge(what));
    }
    if key.contains('\0') {
        return Err(Error::Invalid("an object's key must not contain NUL".into()));
    }
    Ok(())
}

/// Checks the names in the key of a file against the kind of the bucket: a bucket of kind `posix`
/// takes only names that POSIX can show. `a//b`, `x/` and `..` are keys for S3 alone.
pub fn check_names(bucket: &Bucket, key: &str) -> Result<(), Error> {
    if bucket.kind == BucketKind::S3 {
        return Ok(());
    }
    match key.split('/').find(|name| !is_shown(name.as_bytes())) {
        None => Ok(()),
        Some(name) => {
            let most = limits::NAME_BYTES;
            let rule = format!("whose keys have names of 1 to {most} bytes, not . or ..");
            Err(Error::Invalid(format!("name {name:?}: {}", of_files(bucket, &rule))))
        }
    }
}

/// Returns whether a bucket of kind `posix` refuses bytes under a key: POSIX cannot show one of its
/// names, or it ends in `/` and names a directory.
pub fn is_for_s3_alone(key: &str) -> bool {
    key.split('/').any(|name| !is_shown(name.as_bytes()))
}

/// Checks that a bucket takes an object with bytes under a key.
///
/// # Errors
/// `Invalid` in a bucket of kind `posix`, unless the key is that of a file.
pub fn check_bytes(bucket: &Bucket, key: &str) -> Result<(), Error> {
    if is_directory_key(bucket, key) { Err(no_bytes(bucket)) } else { check_names(bucket, key) }
}

/// Makes the error for bytes under the key of a directory.
pub fn no_bytes(bucket: &Bucket) -> Error {
    let rule = "where a key with / at its end is a directory and has no bytes";
    Error::Invalid(of_files(bucket, rule))
}

/// Returns whether a key names a directory: `x/` in a bucket of kind `posix`.
pub fn is_directory_key(bucket: &Bucket, key: &str) -> bool {
    bucket.kind == BucketKind::Posix && key.ends_with('/') && key != "/"
}

/// Says which rule of a bucket of kind `posix` a key breaks, and what else there is.
pub fn of_files(bucket: &Bucket, rule: &str) -> String {
    format!(
        "bucket {} is of kind {} (posix), {rule}: use another key, or a bucket of kind {}, which \
         takes every key of S3 (cairn bucket create NAME --kind objects)",
        bucket.name,
        BucketKind::Posix.word(),
        BucketKind::S3.word()
    )
}

/// Returns whether POSIX can show a name. S3 has names that it cannot show.
pub fn is_shown(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && name.len() <= limits::NAME_BYTES
}

/// Splits a key into the directories on the way to an object, and its name in the last of them.
/// `a/b/c` is `c` in `a`, `b`; `x/` is the empty name in `x`; `a//b` is `b` in `a` and the empty
/// name in it.
pub fn split_key(key: &str) -> (Vec<&str>, &str) {
    let mut parts: Vec<&str> = key.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    (parts, name)
}
