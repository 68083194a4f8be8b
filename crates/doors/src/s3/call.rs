//! A request that was admitted and routed: everything that its verb receives.

use bytes::Bytes;
use cairn_auth::{Action, BucketAccess, Caller, Resource, authorize};
use cairn_base::Error;
use cairn_fs::rows::Bucket;
use cairn_fs::{Object, WireVerb};
use http::header::HeaderMap;
use s3s::{S3Error, S3Result};

use super::error::{Codes, translate};
use super::parts::Parts;
use super::payload::Payload;
use super::query::Query;
use super::store::Store;

pub(super) struct Call<'a> {
    pub(super) store: &'a Store,
    pub(super) caller: &'a Caller,
    pub(super) action: Action,
    pub(super) parts: &'a Parts,
    /// The body as it arrives. A verb of bytes reads it to its end, or refuses it.
    pub(super) payload: &'a mut Payload,
    /// The whole body, if it is XML.
    pub(super) xml: Bytes,
}

impl<'a> Call<'a> {
    /// Returns the bucket; empty if the request names none.
    pub(super) fn bucket(&self) -> &'a str {
        self.parts.address.bucket().unwrap_or_default()
    }

    /// Returns the key; empty if the request names none.
    pub(super) fn key(&self) -> &'a str {
        self.parts.address.key().unwrap_or_default()
    }

    pub(super) fn query(&self) -> &'a Query {
        &self.parts.query
    }

    pub(super) fn headers(&self) -> &'a HeaderMap {
        &self.parts.headers
    }

    /// Runs an operation that may change the metadata.
    pub(super) async fn run<V: WireVerb>(&self, codes: Codes, verb: V) -> S3Result<V::Reply> {
        self.store.run(self.caller, self.bucket(), codes, verb).await
    }

    /// Runs an operation that only reads.
    pub(super) async fn read<V: WireVerb>(&self, codes: Codes, verb: V) -> S3Result<V::Reply> {
        self.store.read(self.caller, self.bucket(), codes, verb).await
    }

    /// Opens the object.
    pub(super) async fn open(&self) -> S3Result<Object> {
        match self.store.fs.open(self.caller, self.bucket(), self.key()).await {
            Ok(object) => Ok(object),
            Err(error) => Err(self.refused(error, Codes::object()).await),
        }
    }

    /// Returns the bucket, if the caller may know its settings.
    pub(super) async fn settings(&self) -> S3Result<Bucket> {
        let bucket = self.store.bucket(self.caller, self.bucket()).await?;
        self.authorize(bucket.access())?;
        Ok(bucket)
    }

    /// Returns the bucket, if the caller may do the action of this request in it.
    pub(super) async fn allowed(&self) -> S3Result<Bucket> {
        let bucket = self.store.bucket(&Caller::system(), self.bucket()).await?;
        self.authorize(bucket.access())?;
        Ok(bucket)
    }

    /// Decides on the action of the request, for operations of the store that serve other actions,
    /// too.
    pub(super) fn authorize(&self, bucket: BucketAccess<'_>) -> S3Result<()> {
        let resource = match self.parts.address.key() {
            Some(key) => Resource::Object(bucket, Some(key)),
            None => Resource::Bucket(bucket),
        };
        let context = self.caller.context(self.store.fs.clock().now());
        let decided = authorize(self.caller, self.action, resource, &context);
        decided.map_err(|error| translate(error, Codes::bucket()))
    }

    pub(super) async fn may_write(&self) -> S3Result<()> {
        self.store.may_write(self.caller, self.bucket()).await
    }

    /// Returns the error for the client.
    pub(super) async fn refused(&self, error: Error, codes: Codes) -> S3Error {
        self.store.refused(self.caller, &[self.bucket()], error, codes).await
    }
}
