use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use cairn_auth::{Caller, Principal};
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::list_objects::{ListObjects, Listed, Page};
use s3s::S3Result;
use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, ETag, EncodingType, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass,
    Owner,
};

use super::super::error::{Codes, invalid};
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{checksums, owner, sigv4};
use super::{page_size, time};

pub(crate) async fn version_1(
    store: &Store,
    asked: Asked,
    input: ListObjectsInput,
) -> S3Result<ListObjectsOutput> {
    let names = Names::new(input.encoding_type)?;
    let max_keys = page_size(input.max_keys, "max-keys")?;
    let verb = ListObjects {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after: input.marker.clone().unwrap_or_default(),
        max_keys,
    };
    let page = store.read(&asked.caller, &input.bucket, Codes::bucket(), verb).await?;
    let owner = bucket_owner(store, &asked, &input.bucket).await?;
    let next_marker = page.next.as_deref().map(|next| names.write(next));
    let (contents, common_prefixes) = names.page(page, Some(&owner));
    Ok(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        marker: Some(names.write(input.marker.as_deref().unwrap_or_default())),
        max_keys: Some(max_keys as i32),
        is_truncated: Some(next_marker.is_some()),
        next_marker,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(input.delimiter),
        encoding_type: names.encoding(),
        request_charged: None,
    })
}

pub(crate) async fn version_2(
    store: &Store,
    asked: Asked,
    input: ListObjectsV2Input,
) -> S3Result<ListObjectsV2Output> {
    let names = Names::new(input.encoding_type)?;
    let max_keys = page_size(input.max_keys, "max-keys")?;
    let token = input.continuation_token.as_deref().filter(|token| !token.is_empty());
    let after = match token {
        Some(token) => decode(token)?,
        None => input.start_after.clone().unwrap_or_default(),
    };
    let verb = ListObjects {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after,
        max_keys,
    };
    let page = store.read(&asked.caller, &input.bucket, Codes::bucket(), verb).await?;
    let owner = match input.fetch_owner {
        Some(true) => Some(bucket_owner(store, &asked, &input.bucket).await?),
        _ => None,
    };
    let next = page.next.as_deref().map(token_of);
    let (contents, common_prefixes) = names.page(page, owner.as_ref());
    Ok(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        max_keys: Some(max_keys as i32),
        key_count: Some((contents.len() + common_prefixes.len()) as i32),
        continuation_token: input.continuation_token,
        is_truncated: Some(next.is_some()),
        next_continuation_token: next,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(input.delimiter),
        encoding_type: names.encoding(),
        start_after: names.write_some(input.start_after),
        request_charged: None,
    })
}

/// Begins so that no parser takes a token for a number; no base64 does.
const TOKEN: &str = "k.";

/// A token that a listing goes on with.
pub(super) fn token_of(name: &str) -> String {
    format!("{TOKEN}{}", BASE64URL.encode(name))
}

/// Tokens without the beginning were given out before.
pub(super) fn decode(token: &str) -> S3Result<String> {
    let token = token.strip_prefix(TOKEN).unwrap_or(token);
    let key = BASE64URL.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| invalid("the continuation token provided is incorrect"))
}

/// Each object once, as the version `null`: nothing keeps former ones.
pub(crate) async fn versions(
    store: &Store,
    asked: Asked,
    input: ListObjectVersionsInput,
) -> S3Result<ListObjectVersionsOutput> {
    let names = Names::new(input.encoding_type)?;
    let max_keys = page_size(input.max_keys, "max-keys")?;
    let after = input.key_marker.clone().unwrap_or_default();
    let version = input.version_id_marker.clone().filter(|marker| !marker.is_empty());
    match version.as_deref() {
        Some(_) if after.is_empty() => {
            return Err(invalid("a version-id marker cannot be specified without a key marker"));
        }
        None | Some("null") => {}
        Some(_) => return Err(invalid("Invalid version id specified")),
    }
    let verb = ListObjects {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after,
        max_keys,
    };
    let page = store.read(&asked.caller, &input.bucket, Codes::bucket(), verb).await?;
    let owner = bucket_owner(store, &asked, &input.bucket).await?;
    let next = page.next.as_deref().map(|next| names.write(next));
    let (contents, common_prefixes) = names.page(page, Some(&owner));
    Ok(ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        key_marker: Some(names.write(input.key_marker.as_deref().unwrap_or_default())),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        max_keys: Some(max_keys as i32),
        is_truncated: Some(next.is_some()),
        next_version_id_marker: next.is_some().then(|| "null".to_owned()),
        next_key_marker: next,
        versions: Some(contents.into_iter().map(only_version).collect()),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(input.delimiter),
        encoding_type: names.encoding(),
        ..ListObjectVersionsOutput::default()
    })
}

fn only_version(object: Object) -> ObjectVersion {
    ObjectVersion {
        checksum_algorithm: object.checksum_algorithm,
        checksum_type: object.checksum_type,
        e_tag: object.e_tag,
        is_latest: Some(true),
        key: object.key,
        last_modified: object.last_modified,
        owner: object.owner,
        restore_status: None,
        size: object.size,
        storage_class: Some(ObjectVersionStorageClass::from_static(
            ObjectVersionStorageClass::STANDARD,
        )),
        version_id: Some("null".to_owned()),
    }
}

/// Of a bucket whose keys the caller may list. Names of users are told to users only.
async fn bucket_owner(store: &Store, asked: &Asked, bucket: &str) -> S3Result<Owner> {
    let verb = GetBucket { name: bucket.to_owned() };
    let (opened, _) = store.read(&Caller::system(), bucket, Codes::bucket(), verb).await?;
    match asked.caller.principal() {
        Principal::Anonymous => {
            Ok(Owner { display_name: None, id: Some(owner::id(opened.bucket.owner)) })
        }
        _ => owner::owner(&store.fs, opened.bucket.owner).await,
    }
}

/// How names are written into a listing.
#[derive(Clone, Copy)]
pub(super) struct Names {
    is_url: bool,
}

impl Names {
    pub(super) fn new(encoding: Option<EncodingType>) -> S3Result<Names> {
        match encoding.as_ref().map(EncodingType::as_str) {
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

    pub(super) fn write_some(self, name: Option<String>) -> Option<String> {
        name.filter(|name| !name.is_empty()).map(|name| self.write(&name))
    }

    pub(super) fn prefixes(self, prefixes: &[String]) -> Vec<CommonPrefix> {
        let write = |prefix: &String| CommonPrefix { prefix: Some(self.write(prefix)) };
        prefixes.iter().map(write).collect()
    }

    fn page(self, page: Page, owner: Option<&Owner>) -> (Vec<Object>, Vec<CommonPrefix>) {
        let prefixes = self.prefixes(&page.prefixes);
        let objects = page.objects.into_iter().map(|listed| self.object(listed, owner));
        (objects.collect(), prefixes)
    }

    fn object(self, listed: Listed, owner: Option<&Owner>) -> Object {
        let Listed { key, ino, inode } = listed;
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
