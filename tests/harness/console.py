"""A browser at the console, without its scripts."""

import contextlib
import http.client
import urllib.parse

from harness.wait import PATIENCE_SECONDS


class Browser:
    """Somebody at the console."""

    def __init__(self, url):
        self.url, self.cookie = url, None

    def ask(self, method, target, form=None):
        connection = http.client.HTTPConnection(self.url.split("//")[1], timeout=PATIENCE_SECONDS)
        headers = {"Sec-Fetch-Site": "same-origin", "Origin": self.url}
        if self.cookie:
            headers["Cookie"] = self.cookie
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form, doseq=True)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        with contextlib.closing(connection):
            connection.request(method, target, body, headers)
            reply = connection.getresponse()
            reply.body = reply.read()
        if cookie := reply.getheader("Set-Cookie"):
            self.cookie = cookie.split(";")[0]
        return reply
