"""The configurations that docs/logs.md shows, for a server under test."""

import re

from harness.server import KEY, ROOT, SECRET


def documented(heading, server, **replaced):
    """The configuration below a heading of docs/logs.md."""
    text = (ROOT / "docs/logs.md").read_text()
    section = text.split(f"\n### {heading}\n")[1]
    block = re.search(r"```\w*\n(.*?)```", section, re.S).group(1)
    host, port = server.http.split("//")[1].rsplit(":", 1)
    words = {"127.0.0.1": host, "8080": port, "KEY": KEY, "SECRET": SECRET, **replaced}
    for word, instead in words.items():
        block = re.sub(rf"\b{re.escape(word)}\b", lambda _, to=str(instead): to, block)
    return block
