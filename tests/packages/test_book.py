"""Commands of the operator's book do what it says, on fresh machines.

Chapters that follow on each other are read on one machine.
"""

import pytest

from packages.book import BOOK, RECIPES, Reader, chapters, commands, unmarked
from packages.machine import CLIENTS, Machine, packages

WAYS = {
    "one machine": ["Install", "A store under systemd", "Mounts under systemd", "Upgrade", "Backup", "TLS", "Uninstall"],
    "three machines": ["Install", "Three machines"],
    "a cluster": ["Install", "First cluster", "Replacing disks and nodes"],
}


def test_every_chapter_with_commands_is_read():
    read = {chapter for way in WAYS.values() for chapter in way}
    has_commands = {title for title, text in chapters(BOOK).items() if list(commands(text))}
    assert read == has_commands


@pytest.mark.parametrize("document", [BOOK, RECIPES], ids=lambda path: path.name)
def test_commands_that_no_test_runs_are_marked(document):
    assert not list(unmarked(document))


@pytest.mark.parametrize("way", WAYS)
def test_the_book_is_true(way):
    texts = chapters(BOOK)
    with Machine() as machine:
        machine.put("/root", *packages(), *packages("0.1.0+1"))
        reader = Reader(machine)
        for chapter in WAYS[way]:
            print(f"== {chapter}")
            reader.read(texts[chapter])


@pytest.mark.parametrize("client", [title for title, text in chapters(RECIPES).items() if list(commands(text))])
def test_a_recipe_for_a_client_works(client):
    texts = chapters(RECIPES)
    with Machine(CLIENTS) as machine:
        machine.install(*packages()[:2])
        reader = Reader(machine)
        reader.read(texts["Before you begin"])
        if client != "Before you begin":
            reader.read(texts[client])
