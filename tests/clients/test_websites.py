"""A site of static files, put by boto3 and read by curl, at the door for websites."""

import json

from harness.doors import S3
from harness.server import KEY, SECRET, Server


def test_a_static_site_is_served(shell, work):
    import boto3

    with Server(args=["--website", "127.0.0.1:0", "--website-domain", "sites.test"]) as server:
        boto = boto3.client(
            "s3", endpoint_url=server.s3, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
        )
        bucket = "www.example.com"
        S3(server.s3).create_bucket(bucket)
        pages = {"index.html": "<h1>home</h1>", "posts/first/index.html": "first", "404.html": "lost", "a.css": "p {}"}
        for key, text in pages.items():
            boto.put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="text/html")
        configuration = {
            "IndexDocument": {"Suffix": "index.html"},
            "ErrorDocument": {"Key": "404.html"},
            "RoutingRules": [
                {"Condition": {"KeyPrefixEquals": "blog/"}, "Redirect": {"ReplaceKeyPrefixWith": "posts/"}}
            ],
        }
        boto.put_bucket_website(Bucket=bucket, WebsiteConfiguration=configuration)
        shown = boto.get_bucket_website(Bucket=bucket)
        assert shown["IndexDocument"] == {"Suffix": "index.html"}
        assert shown["RoutingRules"][0]["Redirect"]["ReplaceKeyPrefixWith"] == "posts/"

        def get(path, host=bucket):
            form = json.dumps({"status": "%{http_code}", "to": "%{redirect_url}"})
            done = shell("curl", "-sS", "-H", f"Host: {host}", "-w", "\n" + form, server.website + path)
            body, _, told = done.stdout.rpartition("\n")
            told = json.loads(told)
            return int(told["status"]), body, told["to"]

        assert get("/")[0] == 403
        auth = ["-u", f"{KEY}:{SECRET}"]
        shell("curl", "-sSf", *auth, "-X", "PATCH", f"{server.http}/storage/{bucket}?visibility=public")
        assert get("/") == (200, "<h1>home</h1>", "")
        assert get("/posts/first/")[1] == "first"
        assert get("/posts/first")[0] == 302
        assert get("/none")[:2] == (404, "lost")
        status, _, to = get("/blog/first/")
        assert status == 301 and to == f"http://{bucket}/posts/first/"
        assert get("/", host="other.sites.test")[0] == 404
        boto.delete_bucket_website(Bucket=bucket)
        assert get("/")[0] == 404
