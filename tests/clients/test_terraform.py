"""Terraform's AWS provider: the calls with which it makes, reads and destroys a bucket, in its order."""

import itertools

import pytest
from botocore.exceptions import ClientError

from clients.test_boto3 import connect, refused
from harness.doors import Http
from harness.server import Server

OWNERSHIP = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
BLOCK = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
numbers = itertools.count(1)


@pytest.fixture
def boto(server):
    return connect(server.s3)


@pytest.fixture
def name():
    return f"terraform-{next(numbers)}"


def read(boto, bucket):
    """What aws_s3_bucket reads after each change, and for each plan; returns what is not as in a new bucket."""
    boto.head_bucket(Bucket=bucket)
    refused("NoSuchBucketPolicy", boto.get_bucket_policy, Bucket=bucket)
    grants = boto.get_bucket_acl(Bucket=bucket)["Grants"]
    assert [grant["Permission"] for grant in grants] == ["FULL_CONTROL"]
    refused("NoSuchCORSConfiguration", boto.get_bucket_cors, Bucket=bucket)
    refused("NoSuchWebsiteConfiguration", boto.get_bucket_website, Bucket=bucket)
    versioning = boto.get_bucket_versioning(Bucket=bucket).get("Status")
    assert "Status" not in boto.get_bucket_accelerate_configuration(Bucket=bucket)
    assert boto.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    assert "LoggingEnabled" not in boto.get_bucket_logging(Bucket=bucket)
    refused(
        "NoSuchLifecycleConfiguration", boto.get_bucket_lifecycle_configuration, Bucket=bucket
    )
    refused("ReplicationConfigurationNotFoundError", boto.get_bucket_replication, Bucket=bucket)
    refused(
        "ServerSideEncryptionConfigurationNotFoundError", boto.get_bucket_encryption, Bucket=bucket
    )
    refused(
        "ObjectLockConfigurationNotFoundError", boto.get_object_lock_configuration, Bucket=bucket
    )
    assert boto.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    refused("NoSuchTagSet", boto.get_bucket_tagging, Bucket=bucket)
    return versioning


def test_a_bucket_is_made_read_and_destroyed(boto, name):
    named = {"Bucket": name}
    boto.create_bucket(**named)
    assert read(boto, name) is None
    # aws_s3_bucket_public_access_block: it waits until what it put is there.
    boto.put_public_access_block(**named, PublicAccessBlockConfiguration=BLOCK)
    shown = boto.get_public_access_block(**named)
    assert shown["PublicAccessBlockConfiguration"] == BLOCK
    # aws_s3_bucket_ownership_controls.
    assert boto.get_bucket_ownership_controls(**named)["OwnershipControls"] == OWNERSHIP
    boto.put_bucket_ownership_controls(**named, OwnershipControls=OWNERSHIP)
    assert boto.get_bucket_ownership_controls(**named)["OwnershipControls"] == OWNERSHIP
    # aws_s3_bucket_versioning with `status = "Suspended"`.
    boto.put_bucket_versioning(**named, VersioningConfiguration={"Status": "Suspended"})
    assert read(boto, name) == "Suspended"
    # Settings of modules that are off, each by a resource of its own.
    boto.put_bucket_logging(**named, BucketLoggingStatus={})
    boto.put_bucket_notification_configuration(**named, NotificationConfiguration={})
    boto.put_bucket_request_payment(
        **named, RequestPaymentConfiguration={"Payer": "BucketOwner"}
    )
    # The next plan finds no difference.
    assert read(boto, name) == "Suspended"
    shown = boto.get_public_access_block(**named)
    assert shown["PublicAccessBlockConfiguration"] == BLOCK
    # Destroy: versioning is suspended, and each resource is deleted and waited for.
    boto.put_bucket_versioning(**named, VersioningConfiguration={"Status": "Suspended"})
    boto.delete_bucket_ownership_controls(**named)
    code = "OwnershipControlsNotFoundError"
    refused(code, boto.get_bucket_ownership_controls, **named)
    boto.delete_public_access_block(**named)
    refused("NoSuchPublicAccessBlockConfiguration", boto.get_public_access_block, **named)
    for delete in ("policy", "lifecycle", "encryption", "replication", "cors", "website"):
        done = getattr(boto, f"delete_bucket_{delete}")(**named)
        assert done["ResponseMetadata"]["HTTPStatusCode"] == 204, delete
    boto.delete_bucket(**named)
    with pytest.raises(ClientError) as caught:
        boto.head_bucket(**named)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_clean_ups_bypass_a_retention_that_nothing_has(boto, bucket):
    for key in ("a", "b"):
        boto.put_object(Bucket=bucket, Key=key, Body=b"x")
    boto.delete_object(Bucket=bucket, Key="a", BypassGovernanceRetention=True)
    objects = {"Objects": [{"Key": "b", "VersionId": "null"}]}
    done = boto.delete_objects(Bucket=bucket, Delete=objects, BypassGovernanceRetention=True)
    assert "Errors" not in done
    named = {"Bucket": bucket, "Key": "a"}
    boto.put_object(**named, Body=b"x")
    refused("InvalidRequest", boto.get_object_retention, **named)
    refused("InvalidRequest", boto.get_object_legal_hold, **named)
    retention = {"Mode": "GOVERNANCE", "RetainUntilDate": "2030-01-01"}
    refused("InvalidRequest", boto.put_object_retention, **named, Retention=retention)


def test_a_block_holds_at_every_door(work):
    """What S3 has blocked is not public by HTTP or as a website, and cannot be made so there; also after a restart."""
    bucket = "www.example.com"
    with Server(args=["--website", "127.0.0.1:0"], directory=work / "data") as server:
        boto, http, anybody = connect(server.s3), Http(server.http), Http(server.http, credentials=None)
        boto.create_bucket(Bucket=bucket)
        boto.put_object(Bucket=bucket, Key="index.html", Body=b"home")
        website = {"IndexDocument": {"Suffix": "index.html"}}
        boto.put_bucket_website(Bucket=bucket, WebsiteConfiguration=website)

        def make(visibility):
            return http.request("PATCH", f"/storage/{bucket}?visibility={visibility}")

        def seen():
            site = Http(server.website, credentials=None)
            page = site.request("GET", "/", headers={"Host": bucket})
            return anybody.object("GET", bucket, "index.html").status, page.status

        assert make("public").status == 204 and seen() == (200, 200)
        for flag in ("IgnorePublicAcls", "RestrictPublicBuckets"):
            block = {**dict.fromkeys(BLOCK, False), flag: True}
            boto.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
            assert seen() == (401, 403), flag
            refused = make("public")
            assert refused.status == 403 and b"delete-public-access-block" in refused.body
            boto.delete_public_access_block(Bucket=bucket)
            assert seen() == (200, 200), flag
        assert make("private").status == 204
        for flag in ("BlockPublicAcls", "BlockPublicPolicy"):
            block = {**dict.fromkeys(BLOCK, False), flag: True}
            boto.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
            assert make("public").status == 403, flag
            assert seen() == (401, 403), flag
        server.restart()
        http.connection.close()
        anybody.connection.close()
        assert make("public").status == 403 and seen() == (401, 403)
        assert http.request("GET", f"/storage/{bucket}").json()["public_access_block"] == [flag]
