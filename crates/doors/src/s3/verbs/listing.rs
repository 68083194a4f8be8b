//! The common parts of all listings: the encoding of names, owners, and continuation tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use cairn_auth::{Caller, Principal};
use cairn_fs::ops::list_objects::{ListObjects, ListedObject, Page};
use s3s::S3Result;
use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, ETag, EncodingType, Object, ObjectStorageClass, Owner,
};

use super::super::call::Call;
use super::super::error::{Codes, invalid};
use super::super::query::Query;
use super::super::{checksums, owner, sigv4};
use super::{page_size, time};

/// The common parameters of the three listings of objects.
pub(super) struct ListParameters<'a> {
    pub(super) names: Names,
    pub(super) prefix: &'a str,
    pub(super) delimiter: &'a str,
    pub(super) max_keys: usize,
}

impl<'a> ListParameters<'a> {
    pub(super) fn of(query: &'a Query) -> S3Result<ListParameters<'a>> {
        let (max_keys, names) = (query.parsed("max-keys")?, Names::of(query)?);
        let max_keys = page_size(max_keys, "max-keys")?;
        let [prefix, delimiter] =
            ["prefix", "delimiter"].map(|name| query.get(name).unwrap_or_default());
        Ok(ListParameters { names, prefix, delimiter, max_keys })
    }

    /// Returns the objects after a key.
    pub(super) async fn page(&self, call: &Call<'_>, after: String) -> S3Result<Page> {
        let verb = ListObjects {
            bucket: call.bucket().to_owned(),
            prefix: self.prefix.to_owned(),
            delimiter: self.delimiter.to_owned(),
            after,
            max_keys: self.max_keys,
        };
        call.read(Codes::bucket(), verb).await
    }
}

/// Beginning of tokens, which keeps parsers from mistaking them for numbers; no base64 begins so.
const TOKEN: &str = "k.";

/// Returns a token with which a listing continues.
pub(super) fn token_of(name: &str) -> String {
    format!("{TOKEN}{}", BASE64URL.encode(name))
}

/// Decodes a token. Older tokens lack the beginning.
pub(super) fn decode(token: &str) -> S3Result<String> {
    let token = token.strip_prefix(TOKEN).unwrap_or(token);
    let key = BASE64URL.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| invalid("the continuation token provided is incorrect"))
}

/// Returns the owner of a bucket whose keys the caller may list. Only users see names of users.
pub(super) async fn bucket_owner(call: &Call<'_>) -> S3Result<Owner> {
    let bucket = call.store.bucket(&Caller::system(), call.bucket()).await?;
    match call.caller.principal() {
        Principal::Anonymous => Ok(Owner { display_name: None, id: Some(owner::id(bucket.owner)) }),
        _ => owner::owner(&call.store.fs, bucket.owner).await,
    }
}

/// The encoding of names in a listing.
#[derive(Clone, Copy)]
pub(super) struct Names {
    is_url: bool,
}

impl Names {
    /// Returns the encoding that a query asks for.
    pub(super) fn of(query: &Query) -> S3Result<Names> {
        match query.get("encoding-type") {
            None => Ok(Names { is_url: false }),
            Some(EncodingType::URL) => Ok(Names { is_url: true }),
            Some(_) => Err(invalid("invalid Encoding Method specified in Request")),
        }
    }

    pub(super) fn encoding(self) -> Option<EncodingType> {
        self.is_url.then(|| EncodingType::from_static(EncodingType::URL))
    }

    pub(super) fn write(self, name: &str) -> String {
        if !self.is_url {
            return name.to_owned();
        }
        let mut out = String::with_capacity(name.len());
        sigv4::encode_into(&mut out, name.as_bytes(), false);
        out
    }

    /// Returns `None` for an empty name.
    pub(super) fn write_some(self, name: &str) -> Option<String> {
        (!name.is_empty()).then(|| self.write(name))
    }

    pub(super) fn prefixes(self, prefixes: &[String]) -> Vec<CommonPrefix> {
        let write = |prefix: &String| CommonPrefix { prefix: Some(self.write(prefix)) };
        prefixes.iter().map(write).collect()
    }

    pub(super) fn page(
        self,
        page: Page,
        owner: Option<&Owner>,
    ) -> (Vec<Object>, Vec<CommonPrefix>) {
        let prefixes = self.prefixes(&page.prefixes);
        let objects = page.objects.into_iter().map(|listed| self.object(listed, owner));
        (objects.collect(), prefixes)
    }

    fn object(self, listed: ListedObject, owner: Option<&Owner>) -> Object {
        let ListedObject { key, ino, inode } = listed;
        let sums = inode.object.as_ref().map(|object| object.checksums.as_slice());
        let sums = sums.unwrap_or_default();
        let algorithms: Vec<ChecksumAlgorithm> =
            sums.iter().map(|sum| checksums::to_algorithm(sum.algorithm)).collect();
        Object {
            checksum_algorithm: (!algorithms.is_empty()).then_some(algorithms),
            checksum_type: checksums::type_of(sums),
            e_tag: Some(ETag::Strong(inode.etag(ino))),
            key: Some(self.write(&key)),
            last_modified: Some(time(inode.mtime)),
            owner: owner.cloned(),
            restore_status: None,
            size: Some(if inode.is_directory() { 0 } else { inode.size as i64 }),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        }
    }
}
