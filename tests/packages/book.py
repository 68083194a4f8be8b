"""The operator's book: its chapters, and their commands."""

import re

from harness.server import ROOT

BOOK = ROOT / "docs/operating.md"
RECIPES = ROOT / "docs/clients.md"
CLUSTER = ROOT / "docs/cluster.md"


def chapters(path, level="##"):
    """{title: text} of the chapters of a document, or of parts of them."""
    parts = re.split(rf"^{level} (.*)\n", path.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text):
    """The commands of root in blocks marked `console`, without prompts and comments."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        for line in (line[2:] for line in lines if line.startswith("# ")):
            if command := re.sub(r"\s{2,}#.*", "", line).strip():
                yield command


def unmarked(path):
    """Blocks of commands that no test runs, and before which the book does not say so."""
    text = path.read_text()
    for found in re.finditer(r"^```text\n(?:# |\$ )(.*)", text, re.M):
        before = text[: found.start()].rstrip().rsplit("\n\n", 1)[-1]
        if "not executed" not in " ".join(before.split()).lower():
            yield found[1]


class Reader:
    """Runs commands on a machine as a reader would: with what earlier ones printed."""

    def __init__(self, machine):
        self.machine, self.said = machine, ""

    def own(self, command):
        token = re.findall(r"cairn-join-1\.\S+", self.said)
        secret = re.findall(r"^\s*(?:access|secret) key\s+(\S+)$", self.said, re.M)
        for known, own in (
            ("cairn-join-1.…", token[-1] if token else "?"),
            ("CAIRN_KEY=CK...", f"CAIRN_KEY={secret[-2]}" if secret else "?"),
            ("CAIRN_SECRET=...", f"CAIRN_SECRET={secret[-1]}" if secret else "?"),
        ):
            command = command.replace(known, own)
        return command

    def run(self, command):
        command = self.own(command)
        print(f"# {command}", flush=True)
        if command.startswith("export "):
            # Values may name variables of before.
            for name, value in re.findall(r"(\w+)=(\S*)", command):
                self.machine.env[name] = self.machine.run(f"echo -n {value}")
        else:
            self.said += self.machine.run(command) + "\n"

    def read(self, text):
        for command in commands(text):
            self.run(command)
