"""Real directory trees, with names added that break careless software."""

import hashlib
import os
import random
import shutil
import time
from pathlib import Path

from harness.server import ROOT

# At most 240 bytes: aws-cli downloads to a temporary name that is 9 bytes longer.
HOSTILE = [
    "a-", "a.", "a0", "a/b", "a+b c", "plus+plus", "per%20cent", "100%", "%2F", "space name",
    " leading", "trailing ", "trailing.dot.", "three dots...", ".hidden", "..twodots", "-dash",
    "--option", "~tilde", "#hash", "question?mark", "amp&semi;eq=", "quo'te", 'dou"ble',
    "<angle>", "back\\slash", "comma,colon:", "star*", "pipe|", "brackets[1]{2}(3)", "at@sign",
    "dollar$", "café-nfc", "café-nfd", "Straße", "日本語/ファイル", "עברית", "emoji-🪨🗻",
    "\u2028line-separator", "zero-width-\u200b", "tab\tname", "UPPER", "upper", "n" * 240,
    "/".join(["deep"] * 60) + "/leaf", "ü" * 120, "index.html", "storage/storage", "con", "nul.txt",
]  # fmt: skip


def sources():
    """Files of the test environment (aws-cli, botocore, pip and their documents): everywhere
    the tests run, thousands of them, of real sizes."""
    base = ROOT / "target/venv/lib"
    for directory, names, files in os.walk(base):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                yield path, path.relative_to(base)


def build(target, files, seed=1, hostile=True):
    """Copies `files` real files, and the hostile ones, into a new directory. All were last
    modified a day ago: S3 tells times in whole seconds, and a client that compares times sends
    again what was uploaded within the second in which it was written."""
    chosen = list(sources())
    if len(chosen) > files:
        chosen = random.Random(seed).sample(chosen, files)
    for path, relative in chosen:
        copy = target / "tree" / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    rng = random.Random(seed)
    for name in HOSTILE if hostile else []:
        path = target / "hostile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice([0, 1, 430, 70_000])))
    yesterday = time.time() - 86_400
    for path in target.rglob("*"):
        os.utime(path, (yesterday, yesterday))
    return target


def digests(directory):
    """{relative path: sha256} of every file."""
    found = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[path.relative_to(directory).as_posix()] = digest
    return found


def assert_same(expected, found):
    """Compares two {name: digest}, naming a few of the differences."""
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    differ = sorted(k for k in expected.keys() & found.keys() if expected[k] != found[k])
    assert not (missing or extra or differ), (
        f"{len(missing)} missing {missing[:5]}, {len(extra)} extra {extra[:5]}, "
        f"{len(differ)} differ {differ[:5]}, of {len(expected)}"
    )
