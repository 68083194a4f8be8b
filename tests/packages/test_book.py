"""Commands of the operator's book do what it says, on fresh machines.

Chapters that follow on each other are read on one machine.
"""

import time

import pytest

from packages.book import BOOK, CLUSTER, RECIPES, Reader, chapters, commands
from packages.machine import CLIENTS, Machine, packages

WAYS = {
    "one machine": [
        "Install",
        "A store under systemd",
        "TLS",
        "Mounts under systemd",
        "Backup",
        "Monitoring",
        "Upgrade",
        "Uninstall",
    ],
    "three machines": ["Install", "Three machines"],
    "a cluster": ["Install", "First cluster", "Replacing disks and nodes"],
}


def test_every_chapter_with_commands_is_read():
    read = {chapter for way in WAYS.values() for chapter in way}
    has_commands = {title for title, text in chapters(BOOK).items() if list(commands(text))}
    assert read == has_commands


@pytest.mark.parametrize("way", WAYS)
def test_the_book_is_true(way):
    texts, files = chapters(BOOK), [*packages(), *packages("0.1.0+1")]
    booted = time.monotonic()
    with Machine() as machine:
        machine.put("/root", *files)
        reader = Reader(machine)
        began = time.monotonic()
        print(f"== {way}: {began - booted:.1f} s until an empty Debian runs")
        for chapter in WAYS[way]:
            start = time.monotonic()
            reader.read(texts[chapter])
            print(f"== {chapter}: {time.monotonic() - start:.1f} s", flush=True)
        print(f"== {way}: {time.monotonic() - began:.1f} s in all", flush=True)


def test_metadata_move_from_one_engine_to_another():
    """As docs/cluster.md says, and then further masters may join."""
    moves = list(commands(chapters(CLUSTER, "###")["Where metadata are"]))
    assert len(moves) == 6, moves
    with Machine() as machine:
        machine.install(*packages()[:2])
        reader = Reader(machine)
        for command in (
            "cairn cluster init /srv/cairn-master --address 10.0.0.1:7400 --engine embedded",
            "echo 'CAIRN_OPTIONS=--listen 10.0.0.1:7400' >> /etc/cairn/master.conf",
            "systemctl enable --now cairn-master",
            "until cairn cluster token /srv/cairn-master --role gateway; do sleep 0.2; done",
            "cairn cluster join /srv/cairn-gateway cairn-join-1.…",
        ):
            reader.run(command)
        assert "raft" not in machine.run("cat /srv/cairn-master/format")
        for command in moves:
            reader.run(command)
        # The gateway joined before, so its node is in the metadata that moved.
        machine.run("systemctl enable --now cairn-gateway")
        machine.eventually("curl -sf http://127.0.0.1:8080/readyz", "the gateway has the master")
        assert "voter" in machine.run("cairn cluster status /srv/cairn-master || true")
        machine.run("cairn cluster token /srv/cairn-master --role master")


@pytest.mark.parametrize("client", [title for title, text in chapters(RECIPES).items() if list(commands(text))])
def test_a_recipe_for_a_client_works(client):
    texts = chapters(RECIPES)
    with Machine(CLIENTS) as machine:
        machine.install(*packages()[:2])
        reader = Reader(machine)
        reader.read(texts["Before you begin"])
        if client != "Before you begin":
            reader.read(texts[client])
