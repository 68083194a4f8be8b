"""Commands in README.md and docs/ do what they say: those that one machine can run are run.

Each command of a block marked `sh` or `console` is run, in order and in a directory of its document,
or it is in `NOT_RUN` with the reason. Addresses and directories are replaced by free ones.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest

from harness.documents import commands
from harness.ports import free_ports
from harness.server import ROOT, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually
from packages.book import unmarked

STOPPED = "needs systemd, and tests/packages/test_book.py runs it"
NOT_RUN = {
    "cairn cluster upgrade-check": "wants machines that may be stopped, and tests/cluster has them",
    "cairn bench reports": "starts clusters and measures for minutes, and tests/bench runs it",
    "for pair in": "measures for minutes",
    "cairn node": "needs three machines: tests/cluster/test_machines.py runs these commands on three",
    "cairn cluster token /srv/cairn --machine": "the same",
    "cairn cluster add-disk": "needs one of these machines, and that test adds a disk",
    "cairn cluster remove /srv/cairn 1 2 3": "and replaces one of them",
    "cairn cluster join /srv/cairn-master": "needs a second machine, and tests/cluster/test_masters.py has more",
    "cairn master /srv/cairn-master --listen 10.0.0.2": "the same",
    "cairn cluster adopt": "wants a server that is stopped: tests/cluster/test_adoption.py runs these commands",
    "cairn cluster finalize": "the same",
    "cairn cluster replicas /srv/cairn 3": "wants three machines, and that test has them",
    "cairn cluster status /srv/cairn --wait": "the same",
    "systemctl": STOPPED,
    "cairn meta dump /srv/cairn-master": STOPPED,
    "mv /srv/cairn-master/meta": STOPPED,
    "echo 'meta raft'": STOPPED,
    "cairn meta load /root/metadata.dump": STOPPED,
    "cairn mount https://g1.example.org": "needs two gateways with names and certificates",
    "grpcurl": "is not installed, and tests/cluster/test_grpc.py asks the same with another client",
    "systemd-journal-upload": "may not be installed, and tests/logs runs it",
    "cairn logs tail -n 100 -f": "goes on until it is stopped, and tests/logs runs it",
    "mount -t nfs": "needs the kernel's client of NFS, and tests/nfs has it where there is one",
}
# Measurements that are long enough to be believed are too long to be a test.
SHORTER = {
    "cairn bench http": "-d 50ms --warm-up 0s -r 1",
    "cairn bench rate": "-d 50ms",
    "cairn bench s3": "-d 50ms --warm-up 0s -r 1 -c 2 --objects 4",
    "cairn bench fs": "-d 50ms -r 1 -j 1 --size 1m --files 4",
    # Following goes on until it is stopped: it must have begun.
    "curl -N": "-f -s --max-time 2 || [ $? = 28 ]",
}
STORE = ["cairn server ./data", "export CAIRN_KEY=CK... CAIRN_SECRET=..."]
OBJECT = [*STORE, "cairn bucket create photos", "cairn put cat.jpg photos/cat.jpg"]
PUBLIC = [*OBJECT, "cairn bucket set photos --visibility public"]
MOUNT = [*OBJECT, "cairn mount http://127.0.0.1:8080 /mnt/cairn"]
# What the text around the commands takes for granted.
GIVEN = {
    "docs/backup.md": ["cairn server /srv/cairn", *OBJECT[1:]],
    "docs/bench.md": [*PUBLIC, "cairn bucket create bench", *MOUNT[-1:]],
    "docs/doctor.md": STORE,
    "docs/from-gluster.md": STORE,
    "docs/from-minio.md": STORE,
    "docs/http.md": OBJECT,
    "docs/inflight.md": MOUNT,
    "docs/logs.md": STORE,
    "docs/mount.md": OBJECT,
    "docs/rights.md": STORE,
    "docs/timing.md": MOUNT,
    "docs/top.md": STORE,
}
NGINX = (
    """printf '%s\\n' '{"create":{}}' '{"message":"timed out"}' | curl -f -u $CAIRN_KEY:$CAIRN_SECRET """
    """-H 'Content-Type: application/json' --data-binary @- http://127.0.0.1:8080/nginx/_bulk"""
)
BEFORE = {
    "cairn meta load": ["STOP", "rm -r ./data/meta"],
    # Without the templates that were shown before.
    "curl -N": ["cairn server ./data", NGINX],
}
# Documents of which tests/packages runs all commands on machines of their own, and the chapters that are run here.
ELSEWHERE = {"docs/operating.md": "First store", "docs/clients.md": None}
SERVERS = ("server", "master", "chunkserver", "gateway")


def documents():
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def found(table, command):
    """What a table has for a command, whatever variables are set before it."""
    command = re.sub(r"^(\w+=\S+ )+", "", command)
    return next((value for start, value in table.items() if command.startswith(start)), None)


def name_of(document):
    return str(document.relative_to(ROOT))


def read_here(document):
    text = document.read_text()
    if (chapter := ELSEWHERE.get(name_of(document), "")) != "":
        text = re.split(r"^## ", text, flags=re.M)
        text = "".join(part for part in text if chapter and part.startswith(chapter + "\n"))
    return text


ALL = {name_of(document): list(commands(read_here(document))) for document in documents()}


class Reader:
    """Runs commands as a reader would, with one shell's directory and variables."""

    def __init__(self):
        self.work = scratch("documents")
        for name in ("srv/disk1", "backup", "mnt", "Pictures", "bin"):
            (self.work / name).mkdir(parents=True)
        for name in ("cat.jpg", "Pictures/a.jpg"):
            (self.work / name).write_bytes(os.urandom(155_000))
        (self.work / "bin/cairn").symlink_to(binary())
        path = f"{self.work}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        self.env = {"PATH": path, "HOME": str(self.work), "LC_ALL": "C.UTF-8"}
        self.running, self.said, self.addresses = [], "", {}

    def address(self, known):
        """The free address that stands for one of a document, the same each time."""
        if known not in self.addresses:
            self.addresses[known] = f"127.0.0.1:{free_ports(1)[0]}"
        return self.addresses[known]

    def own(self, command):
        """The command with addresses and directories of this test."""
        token = re.findall(r"cairn-join-1\.\S+", self.said)
        secret = re.findall(r"^  (?:access|secret) key  (\S+)$", self.said, re.M)
        for known, own in (
            ("cargo run --release -p cairn --", "cairn"),
            ("--compare nginx=http://10.0.0.2/", "--compare nginx=http://127.0.0.1:8080/storage/photos/"),
            ("--tls-cert … --tls-key …", ""),
            ("cairn-join-1.…", token[-1] if token else "?"),
            ("KEY=CK...", "KEY=..."),
            ("CAIRN_KEY=...", f"CAIRN_KEY={secret[0]}" if secret else "?"),
            ("CAIRN_SECRET=...", f"CAIRN_SECRET={secret[1]}" if secret else "?"),
            ("--seconds 10", "--seconds 1"),
            ("/var/tmp", str(self.work)),
            ("/mnt/cairn", f"{self.work}/mnt"),
        ):
            command = command.replace(known, own)
        command = re.sub(r"(?<=\s)/(srv|backup|var/log)/", rf"{self.work}/\1/", command)
        if command.startswith("cairn server") and "--s3" not in command:
            command += " --s3 127.0.0.1:9000 --http 127.0.0.1:8080"
        if added := found(SHORTER, command):
            command += f" {added}"
        address = r"(?<![\d.])(?:127\.0\.0\.1|0\.0\.0\.0|10\.0\.0\.\d):\d{4}\b"
        return re.sub(address, lambda known: self.address(known[0]), command)

    def run(self, command):
        if command == "STOP":
            return self.stop()
        for given in found(BEFORE, command) or []:
            self.run(given)
        command = self.own(command)
        words = shlex.split(command)
        if words[0] == "export":
            self.env.update(word.split("=", 1) for word in shlex.split(self.expanded(command))[1:])
        elif words[0] == "cairn" and words[1] in SERVERS:
            self.serve(words)
        else:
            self.env["CAIRN_SERVER"] = f"http://{self.address('127.0.0.1:8080')}"
            if words[:3] == ["cairn", "cluster", "status"]:
                # It fails until each node has said that it is there.
                eventually(lambda: self.is_up(words), f"{command} finds all nodes up")
                return
            self.answer(command)

    def expanded(self, command):
        echo = ["bash", "-c", f'echo "{command}"']
        done = subprocess.run(echo, cwd=self.work, env=self.env, capture_output=True, text=True)
        return done.stdout

    def answer(self, command):
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        # A `_bulk` is answered with 200 even if no item was stored.
        assert '"errors":true' not in done.stdout, f"{command}: {done.stdout}"
        self.said += done.stdout

    def serve(self, words):
        """Starts a process that serves, and waits until it does; one that is there is replaced."""
        if any(words[:3] == process.args[:3] for process in self.running):
            self.stop()
        log = self.work / f"log-{len(self.running)}"
        with open(log, "wb") as output:
            process = subprocess.Popen(words, cwd=self.work, env=self.env, stdout=output, stderr=output)
        self.running.append(process)
        ready = {"server": "^http ", "gateway": "^http ", "master": "serves", "chunkserver": ""}[words[1]]

        def is_ready():
            assert process.poll() is None, f"{words}: {log.read_text()}"
            return re.search(ready, log.read_text(), re.M)

        if words[1] == "master":
            status = ["cairn", "cluster", "status", words[2]]
            eventually(lambda: self.is_up(status), f"{words} serves")
        else:
            eventually(is_ready, f"{words} serves", 60)
        time.sleep(0.1)
        self.said += log.read_text()

    def is_up(self, status):
        """Whether all nodes are up: the documents start too few chunkservers for writes, which is status 3."""
        done = subprocess.run(status, cwd=self.work, env=self.env, capture_output=True)
        return done.returncode in (0, 3)

    def stop(self):
        subprocess.run(["umount", "-l", self.work / "mnt"], capture_output=True)
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(timeout=PATIENCE_SECONDS)
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is None:
            shutil.rmtree(self.work, ignore_errors=True)


@pytest.mark.parametrize("document", [name for name, commands in ALL.items() if commands])
def test_commands_of_a_document(document):
    run = [command for command in ALL[document] if not found(NOT_RUN, command)]
    with Reader() as reader:
        for command in [*GIVEN.get(document, []), *run] if run else []:
            reader.run(command)


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_commands_that_no_test_runs_are_marked(document):
    assert not list(unmarked(document))


# Rows of the table of requests without a command.
NOT_SHOWN = {
    "GET /admin/blocks/GROUP/BLOCK/LENGTH": "only a dump names blocks, and the tests of `cairn backup` read them",
}
# What stands for a name in the path of a row.
NAMES = {"KEY": "[^?]*[^?/]", "DIR": "[^?]+"}


def request_of(command):
    """The method and the path of a command of curl."""
    words = shlex.split(re.sub(r"\$\([^()]*\)", "X", command[command.index("curl ") :]))
    flags, is_of = set(words), {"-I": "HEAD", "-T": "PUT", "-d": "POST", "--data-binary": "POST", "-F": "POST"}
    method = words[words.index("-X") + 1] if "-X" in flags else None
    method = method or next((method for flag, method in is_of.items() if flag in flags), "GET")
    [url] = [word for word in words if word.startswith("http://")]
    return method, re.sub(r"^http://[^/]*", "", url).split("?")[0]


def test_every_request_of_the_table_is_a_command():
    text = (ROOT / "docs/http.md").read_text().split("<!-- The tests read this table. -->\n\n")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\S+ \S+)` \|", text, re.M)
    assert len(rows) > 50, rows
    run = [command for document in ("docs/http.md", "docs/logs.md") for command in ALL[document]]
    run = [request_of(command) for command in run if "curl " in command and not found(NOT_RUN, command)]

    def is_run(row):
        method, path = row.split(" ")
        path = re.sub("[A-Z]+", lambda name: NAMES.get(name[0], "[^/?]+"), re.escape(path))
        return any(method == one and re.fullmatch(path, other) for one, other in run)

    assert [row for row in rows if not is_run(row)] == list(NOT_SHOWN)


def test_configurations_of_shippers_are_executed():
    """Each has the heading by which `documented` finds it."""
    section = (ROOT / "docs/logs.md").read_text().split("\n## Configurations\n")[1]
    tests = "".join(file.read_text() for file in (ROOT / "tests/logs").glob("test_*.py"))
    headings = re.findall(r"^### (.*)$", section, re.M)
    assert headings and not [name for name in headings if f'"{name}"' not in tests]
    assert section.count("```") == 2 * len(headings), "one configuration for each heading"


def without_blocks(document):
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)


def places(document):
    """What may come after `#` in a link to the document: its headings as GitHub writes them, and its anchors."""
    text = without_blocks(document)
    shown = [re.sub(r"\]\(.*?\)", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    found = {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in shown}
    return found | set(re.findall(r'<a id="([^"]+)"', text))


def leads_nowhere(document, link):
    path, _, place = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    return not target.exists() or (place and target.suffix == ".md" and place not in places(target))


def test_links_lead_to_files_and_headings():
    others = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")]
    read = [*documents(), *others, *(ROOT / "docs/decisions").glob("*.md")]
    links = [(one, link) for one in read for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(one))]
    links = [(one, link) for one, link in links if not re.match(r"\w+:", link)]
    assert len(links) > 300
    assert not [f"{name_of(one)}: {link}" for one, link in links if leads_nowhere(one, link)]


def test_the_index_lists_every_page_and_each_says_for_whom_it_is():
    index = (ROOT / "docs/README.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name != "README.md":
            assert f"]({page.name})" in index, f"docs/README.md does not list {page.name}"
            assert re.match(r"# .+\n\n\*For [a-z ]+\.\*", page.read_text()), f"{page.name} does not say for whom it is"


def test_the_index_of_decisions_has_their_titles_and_status():
    """Each begins with its number and title, and then its status."""
    index = (ROOT / "docs/decisions/README.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\((\1-\S+)\) \| (.+?) \| (.+?) \| .+ \|$", index, re.M)
    files = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert [name for _, name, _, _ in rows] == [file.name for file in files]
    for number, name, title, status in rows:
        start = f"# {number}: {title}\n\nStatus: {status}\n\n"
        assert (ROOT / "docs/decisions" / name).read_text().startswith(start), name
        assert re.match(r"accepted|proposed$|superseded by \[\d{4}\]|folded into \[", status), name


def test_exceptions_are_of_commands():
    everything = [command for commands in ALL.values() for command in commands]
    for table in (NOT_RUN, SHORTER, BEFORE):
        for start in table:
            assert any(found({start: 1}, command) for command in everything), f"no document has {start}"
    assert set(GIVEN) <= {name for name, commands in ALL.items() if commands}


def test_the_console_links_to_pages_that_are_there():
    sources = (ROOT / "crates/console/src").rglob("*.rs")
    named = {name for file in sources for name in re.findall(r'\bdocument\("([^"]+)"\)', file.read_text())}
    assert named and all((ROOT / "docs" / name).exists() for name in named), named


@pytest.mark.parametrize("option", ["--help", "--list"])
def test_what_the_test_command_only_prints_needs_nothing(option, tmp_path):
    """There is nothing here that could be installed, nor what would install it."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/run", tmp_path / "tests/run")
    shutil.copytree(ROOT / "tests/steps", tmp_path / "tests/steps")
    done = subprocess.run([tmp_path / "tests/run", option], capture_output=True, text=True)
    said = {"--help": "tests/run --long seeds", "--list": "powercuts  power cuts"}[option]
    assert done.returncode == 0 and said in done.stdout, done
