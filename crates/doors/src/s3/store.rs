//! The operations as the library names them; each is a file in `verbs`.

use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::Error;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::{Fs, WireVerb};
use s3s::dto::*;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::error::{Codes, refuse, translate};
use super::library::Asked;
use super::verbs;

/// What the verbs work on.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) fs: Fs,
    pub(super) region: String,
    pub(super) patience: Duration,
}

/// What was established about a request. There is no operation without.
pub(super) fn asked<T>(request: &S3Request<T>) -> S3Result<Asked> {
    match request.extensions.get::<Asked>() {
        Some(asked) => Ok(asked.clone()),
        None => Err(refuse(S3ErrorCode::AccessDenied, "nobody said who is asking")),
    }
}

impl Store {
    /// Runs an operation that may change the metadata.
    pub(super) async fn run<V: WireVerb>(
        &self,
        caller: &Caller,
        bucket: &str,
        codes: Codes,
        verb: V,
    ) -> S3Result<V::Reply> {
        match self.fs.run(caller, verb).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.refused(caller, &[bucket], error, codes).await),
        }
    }

    /// Runs an operation that only reads.
    pub(super) async fn read<V: WireVerb>(
        &self,
        caller: &Caller,
        bucket: &str,
        codes: Codes,
        verb: V,
    ) -> S3Result<V::Reply> {
        let outcome = match self.fs.read_now(caller, &verb) {
            Some(outcome) => outcome,
            None => self.fs.read(caller, verb).await,
        };
        match outcome {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.refused(caller, &[bucket], error, codes).await),
        }
    }

    /// What the client is told. Where something was not found, a look at the buckets tells whether
    /// it was one of them.
    pub(super) async fn refused(
        &self,
        caller: &Caller,
        buckets: &[&str],
        error: Error,
        mut codes: Codes,
    ) -> S3Error {
        if matches!(error, Error::NotFound(_)) {
            for bucket in buckets {
                let verb = GetBucket { name: (*bucket).to_owned() };
                if let Err(Error::NotFound(_)) = self.fs.read(caller, verb).await {
                    codes.not_found = S3ErrorCode::NoSuchBucket;
                }
            }
        }
        translate(error, codes)
    }
}

/// Every operation of this door: method, input, output, and the function in `verbs`.
macro_rules! operations {
    ($($name:ident: $input:ident -> $output:ident = $verb:path;)*) => {
        impl S3 for Store {
            $(
                fn $name<'s, 'a>(
                    &'s self,
                    request: S3Request<$input>,
                ) -> std::pin::Pin<Box<
                    dyn Future<Output = S3Result<S3Response<$output>>> + Send + 'a,
                >>
                where
                    's: 'a,
                    Self: 'a,
                {
                    Box::pin(async move {
                        let asked = asked(&request)?;
                        Ok(S3Response::new($verb(self, asked, request.input).await?))
                    })
                }
            )*
        }
    };
}

operations! {
    list_buckets: ListBucketsInput -> ListBucketsOutput = verbs::list_buckets::run;
    create_bucket: CreateBucketInput -> CreateBucketOutput = verbs::create_bucket::run;
    head_bucket: HeadBucketInput -> HeadBucketOutput = verbs::head_bucket::run;
    delete_bucket: DeleteBucketInput -> DeleteBucketOutput = verbs::delete_bucket::run;
    get_bucket_location: GetBucketLocationInput -> GetBucketLocationOutput
        = verbs::get_bucket::location;
    get_bucket_versioning: GetBucketVersioningInput -> GetBucketVersioningOutput
        = verbs::get_bucket::versioning;
    get_bucket_policy_status: GetBucketPolicyStatusInput -> GetBucketPolicyStatusOutput
        = verbs::get_bucket::policy_status;
    get_bucket_acl: GetBucketAclInput -> GetBucketAclOutput = verbs::acl::get_bucket;
    put_bucket_acl: PutBucketAclInput -> PutBucketAclOutput = verbs::acl::put_bucket;
    get_object_acl: GetObjectAclInput -> GetObjectAclOutput = verbs::acl::get_object;
    put_object_acl: PutObjectAclInput -> PutObjectAclOutput = verbs::acl::put_object;
    get_bucket_tagging: GetBucketTaggingInput -> GetBucketTaggingOutput
        = verbs::bucket_tagging::get;
    put_bucket_tagging: PutBucketTaggingInput -> PutBucketTaggingOutput
        = verbs::bucket_tagging::put;
    delete_bucket_tagging: DeleteBucketTaggingInput -> DeleteBucketTaggingOutput
        = verbs::bucket_tagging::delete;
    get_object_tagging: GetObjectTaggingInput -> GetObjectTaggingOutput
        = verbs::object_tagging::get;
    put_object_tagging: PutObjectTaggingInput -> PutObjectTaggingOutput
        = verbs::object_tagging::put;
    delete_object_tagging: DeleteObjectTaggingInput -> DeleteObjectTaggingOutput
        = verbs::object_tagging::delete;
    list_objects: ListObjectsInput -> ListObjectsOutput = verbs::list_objects::version_1;
    list_objects_v2: ListObjectsV2Input -> ListObjectsV2Output = verbs::list_objects::version_2;
    list_object_versions: ListObjectVersionsInput -> ListObjectVersionsOutput
        = verbs::list_objects::versions;
    put_object: PutObjectInput -> PutObjectOutput = verbs::put_object::run;
    copy_object: CopyObjectInput -> CopyObjectOutput = verbs::copy_object::run;
    delete_object: DeleteObjectInput -> DeleteObjectOutput = verbs::delete_object::run;
    delete_objects: DeleteObjectsInput -> DeleteObjectsOutput = verbs::delete_objects::run;
    get_object_attributes: GetObjectAttributesInput -> GetObjectAttributesOutput
        = verbs::get_object_attributes::run;
    create_multipart_upload: CreateMultipartUploadInput -> CreateMultipartUploadOutput
        = verbs::create_multipart_upload::run;
    upload_part: UploadPartInput -> UploadPartOutput = verbs::upload_part::run;
    upload_part_copy: UploadPartCopyInput -> UploadPartCopyOutput = verbs::upload_part_copy::run;
    complete_multipart_upload: CompleteMultipartUploadInput -> CompleteMultipartUploadOutput
        = verbs::complete_multipart_upload::run;
    abort_multipart_upload: AbortMultipartUploadInput -> AbortMultipartUploadOutput
        = verbs::abort_multipart_upload::run;
    list_parts: ListPartsInput -> ListPartsOutput = verbs::list_parts::run;
    list_multipart_uploads: ListMultipartUploadsInput -> ListMultipartUploadsOutput
        = verbs::list_multipart_uploads::run;
}
