"""Presigned URLs (SigV4), made fast enough for a benchmark."""

import hashlib
import hmac
import time

from harness.doors import canonical_query, sha256_hex, signing_key
from harness.server import KEY, REGION, SECRET


def presigned(host, method, path, expires=3600, at=None, secret=SECRET):
    """The request target of a presigned URL for a path that is already quoted."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at or time.time()))
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    line = canonical_query(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{KEY}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": "host",
        }
    )
    canonical = f"{method}\n{path}\n{line}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256_hex(canonical.encode())}"
    key = signing_key(secret, stamp[:8], REGION)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"{path}?{line}&X-Amz-Signature={signature}"


def presigned_paths(url, bucket, count):
    host = url.split("//")[1]
    return [presigned(host, "PUT", f"/{bucket}/put-{n}") for n in range(count)]
