"""The commands in README.md and docs/."""

import re

from harness.server import ROOT


def commands(text):
    """The commands of a document, without prompts, comments and line ends within."""
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```", text, re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        if kind == "console":
            lines = [line[2:] for line in lines if line.startswith(("$ ", "# "))]
        for line in lines:
            if command := re.sub(r"\s{2,}#.*", "", line).strip():
                yield re.sub(r"\s+", " ", command)


def chapter(document, heading):
    """What is below a heading of a document, up to the next one of its level or above."""
    level, found, is_code = heading.index(" "), None, False
    for line in (ROOT / document).read_text().splitlines(keepends=True):
        is_code ^= line.startswith("```")
        is_heading = not is_code and re.match(rf"#{{1,{level}}} ", line)
        if found is not None and is_heading:
            break
        if found is not None:
            found += line
        elif line.rstrip() == heading:
            found = ""
    assert found, f"{document} has no {heading}"
    return found
