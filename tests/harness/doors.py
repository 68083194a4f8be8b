"""Bare clients of the two doors, with nothing between the test and the wire.

`Http` speaks to /storage, `S3` signs with SigV4 itself. Both keep one connection alive and are
used by one thread at a time. Neither retries: what was not acknowledged is unknown.
"""

import base64
import hashlib
import hmac
import http.client
import json
import ssl
import time
import urllib.parse
import xml.etree.ElementTree as ET

from harness.server import KEY, REGION, SECRET
from harness.wait import PATIENCE_SECONDS

XMLNS = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def quote(key):
    return urllib.parse.quote(key, safe="/-_.~")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"

    def json(self):
        return json.loads(self.body)

    def xml(self):
        return ET.fromstring(self.body)

    def code(self):
        """The <Code> of an S3 error."""
        found = self.xml().find("Code") if self.body.startswith(b"<") else None
        return None if found is None else found.text


class Connection:
    """A keep-alive connection that reopens itself after an error."""

    def __init__(self, url, timeout=PATIENCE_SECONDS, cafile=None):
        self.url = urllib.parse.urlsplit(url)
        self.timeout, self.cafile, self.connection = timeout, cafile, None

    def send(self, method, target, headers, body):
        if self.connection is None:
            self.connection = self._open()
        try:
            try:
                self.connection.request(method, target, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all of the body was sent: the answer says why
            response = self.connection.getresponse()
            data = response.read()
        except BaseException:
            self.close()
            raise
        return Reply(response.status, response.headers, data)

    def _open(self):
        host, port = self.url.hostname, self.url.port
        if self.url.scheme == "https":
            context = ssl.create_default_context(cafile=self.cafile)
            return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self.timeout)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Http:
    def __init__(self, url, credentials=(KEY, SECRET), **options):
        self.connection = Connection(url, **options)
        self.auth = {}
        if credentials:
            token = base64.b64encode(":".join(credentials).encode()).decode()
            self.auth = {"Authorization": "Basic " + token}

    def request(self, method, target, body=None, headers=None):
        return self.connection.send(method, target, {**self.auth, **(headers or {})}, body)

    def object(self, method, bucket, key, body=None, headers=None):
        return self.request(method, f"/storage/{bucket}/{quote(key)}", body, headers)

    def create_bucket(self, bucket, visibility="private"):
        reply = self.request("PUT", f"/storage/{bucket}?visibility={visibility}")
        assert reply.status in (200, 201, 204), reply
        return reply

    def list(self, bucket, prefix=""):
        """Every object below a prefix, as {key: {size, etag, ...}}, page by page."""
        objects, after = {}, ""
        while True:
            query = urllib.parse.urlencode({"recursive": "", "after": after, "limit": 1000})
            reply = self.request("GET", f"/storage/{bucket}/{quote(prefix)}?{query}")
            assert reply.status == 200, reply
            page = reply.json()
            for entry in page["objects"]:
                assert entry["key"] not in objects, f"listed twice: {entry['key']}"
                objects[entry["key"]] = entry
            after = page.get("next")
            if not after:
                return objects


def sha256_hex(data):
    return hashlib.sha256(data).hexdigest()


def canonical_query(query):
    pairs = sorted(
        (urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~"))
        for k, v in query.items()
    )
    return "&".join(f"{k}={v}" for k, v in pairs)


def signing_key(secret, day, region):
    key = ("AWS4" + secret).encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


class S3:
    """Path-style requests signed in the Authorization header."""

    def __init__(self, url, credentials=(KEY, SECRET), region=REGION, **options):
        self.connection = Connection(url, **options)
        self.host = urllib.parse.urlsplit(url).netloc
        self.credentials, self.region = credentials, region

    def sign(self, method, path, query, headers, payload_hash):
        """The headers of a signed request: `headers` and Host, date, payload hash, signature."""
        key, secret = self.credentials
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {k.lower(): v for k, v in headers.items()}
        headers.update({"host": self.host, "x-amz-date": stamp})
        headers["x-amz-content-sha256"] = payload_hash
        names = ";".join(sorted(headers))
        lines = "".join(f"{n}:{' '.join(headers[n].split())}\n" for n in sorted(headers))
        canonical = "\n".join([method, path, canonical_query(query), lines, names, payload_hash])
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256_hex(canonical.encode())}"
        signer = signing_key(secret, stamp[:8], self.region)
        signature = hmac.new(signer, text.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def request(self, method, path, query=None, body=b"", headers=None, payload_hash=None):
        query = query or {}
        if payload_hash is None:
            payload_hash = sha256_hex(body)
        target = path + ("?" + canonical_query(query) if query else "")
        if self.credentials:
            headers = self.sign(method, path, query, headers or {}, payload_hash)
        return self.connection.send(method, target, headers or {}, body or None)

    def object(self, method, bucket, key, query=None, body=b"", headers=None, **options):
        return self.request(method, f"/{bucket}/{quote(key)}", query, body, headers, **options)

    def create_bucket(self, bucket):
        reply = self.request("PUT", f"/{bucket}")
        assert reply.status == 200, reply

    def list(self, bucket, prefix=""):
        """Every object below a prefix, as {key: (size, etag)}, page by page."""
        objects, query = {}, {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            reply = self.request("GET", f"/{bucket}", query)
            assert reply.status == 200, reply
            page = reply.xml()
            for entry in page.iter(XMLNS + "Contents"):
                key = urllib.parse.unquote(entry.find(XMLNS + "Key").text)
                assert key not in objects, f"listed twice: {key}"
                size = int(entry.find(XMLNS + "Size").text)
                objects[key] = (size, entry.find(XMLNS + "ETag").text.strip('"'))
            token = page.find(XMLNS + "NextContinuationToken")
            if token is None:
                return objects
            query["continuation-token"] = token.text

    # The multipart family, as far as a load needs it.

    def create_upload(self, bucket, key):
        reply = self.object("POST", bucket, key, {"uploads": ""})
        assert reply.status == 200, reply
        return reply.xml().find(XMLNS + "UploadId").text

    def upload_part(self, bucket, key, upload, number, body, payload_hash=None):
        query = {"partNumber": str(number), "uploadId": upload}
        reply = self.object("PUT", bucket, key, query, body, payload_hash=payload_hash)
        assert reply.status == 200, reply
        return reply.headers["ETag"]

    def complete_upload(self, bucket, key, upload, etags):
        parts = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"
            for n, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        return self.object("POST", bucket, key, {"uploadId": upload}, body)
