"""Remedies name commands that there are, with options that they have, and the page of remedies names tests
that there are."""

import functools
import re
import subprocess

import pytest

from harness.server import ROOT, binary

PAGE = ROOT / "docs/remedies.md"
# In a text a command is between backticks or parentheses.
COMMAND = re.compile(r"[`(]cairn ([^`()]+)[`)]")
WORD = re.compile(r"[a-z]+(-[a-z]+)*")


def commands_of(text):
    """The words of each command, after `cairn`."""
    return {tuple(found.split()) for found in COMMAND.findall(re.sub(r"\s+", " ", text))}


def texts(source):
    """What is left of a Rust file without its comments, with texts that go on in the next line joined."""
    lines = [line for line in source.read_text().splitlines() if not line.lstrip().startswith("//")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines))


def sources():
    crates = ROOT / "crates"
    return [path for path in crates.glob("*/src/**/*.rs") if path.relative_to(crates).parts[0] != "xtask"]


def all_commands():
    found = {(words, "docs/remedies.md") for words in commands_of(PAGE.read_text())}
    for source in sources():
        found |= {(words, str(source.relative_to(ROOT))) for words in commands_of(texts(source))}
    return found


def name_of(words):
    """The words that name the command: two at most, before anything that is given to it."""
    named = []
    for word in words[:2]:
        if not WORD.fullmatch(word):
            break
        named.append(word)
    return tuple(named)


@functools.cache
def help_of(name):
    """The help of a command, or None if there is no such command."""
    done = subprocess.run([binary(), *name, "--help"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def fault(words):
    """What is wrong with a command of a text, if anything is."""
    shown = help_of(name_of(words))
    if shown is None:
        return "there is no such command"
    options = [word.split("=")[0].rstrip(".,;:") for word in words if word.startswith("--")]
    for option in options:
        if not re.search(rf"^\s+(-\w, )?{option}\b", shown, re.M):
            return f"it has no option {option}"
    usage = re.search(r"^Usage: .*", shown, re.M)[0]
    given = [word for word in words[len(name_of(words)) :] if not word.startswith("--")]
    if options and "<DIR>" in usage and (not given or words.index(given[0]) > len(name_of(words))):
        return "it takes DIR first"
    return None


def test_commands_in_texts_are_there():
    found = sorted(all_commands())
    assert len(found) > 50, found
    # What a text fills in, such as a role, is no name.
    named = [(words, place) for words, place in found if name_of(words)]
    assert not [f"{place}: cairn {' '.join(words)}: {fault(words)}" for words, place in named if fault(words)]


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("start it (cairn cluster token --role master)", "it takes DIR first"),
        ("start it (cairn cluster token DIR --rule master)", "it has no option --rule"),
        ("start it (cairn cluster tokens DIR)", "there is no such command"),
        ("start it (cairn cluster token DIR --role master)", None),
    ],
)
def test_a_wrong_command_is_found(text, wrong):
    [words] = commands_of(text)
    assert fault(words) == wrong


def rows_of_the_page():
    rows = re.findall(r"^\| [^|-].*\|$", PAGE.read_text().split("\n## ", 1)[1], re.M)
    rows = [row.strip("| ").split(" | ") for row in rows if not row.startswith("| fault |")]
    assert len(rows) > 40
    assert all(len(row) == 4 and row[2] for row in rows), rows
    return rows


def test_texts_of_the_page_are_those_of_the_product():
    """What is left out of a text is marked there."""
    product = "".join(map(texts, sources())) + (ROOT / "contrib/prometheus/cairn.rules.yml").read_text()
    quoted = {text for row in rows_of_the_page() for text in re.findall(r"`([^`]+)`", row[1])}
    # Commands are looked at above; a status of HTTP is no text of the product.
    quoted = {text for text in quoted if not re.match(r"cairn |\d", text)}
    parts = {part.strip(" :") for text in quoted for part in text.split("…")} - {""}
    assert len(parts) > 50, parts
    assert not [part for part in parts if part not in product]


def test_tests_of_the_page_are_there():
    """Each row names tests, or says that there is none."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("**/*.py"))
    for row in rows_of_the_page():
        named = re.findall(r"`([^`]+)`", row[3])
        assert named or "not tried" in row[3] or row[3] == "the same", row
        for name in named:
            if name.startswith("test_"):
                assert f"def {name}(" in tests, name
            elif "/" in name:
                assert (ROOT / "tests" / name).exists() or (ROOT / name).exists(), name
            else:
                assert f"def {name}(" in tests, f"no fault {name}"
