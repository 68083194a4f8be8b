"""Programs that nobody here wrote."""

import os
import re
import sqlite3
import subprocess

import pytest

from harness.server import ROOT
from harness.wait import PATIENCE_SECONDS

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def source(work, directory="crates/base"):
    """A small repository of files that are there anyway."""
    path = work / "source"
    run("cp", "-r", str(ROOT / directory), str(path))
    run(*GIT, "init", "-q", cwd=path)
    run(*GIT, "add", ".", cwd=path)
    run(*GIT, "commit", "-qm", "first", cwd=path)
    return path


def test_git_clones_commits_and_finds_nothing_wrong(here, work):
    run(*GIT, "clone", "-q", str(source(work)), str(here / "repo"))
    # By the times that it saw when it wrote them it knows that files have not changed.
    debug = run(*GIT, "ls-files", "--debug", cwd=here / "repo")
    listed = re.findall(r"^(\S+)\n.*\n +mtime: ([0-9:]+)", debug, re.M)
    assert listed
    for name, time in listed:
        seconds, nanos = map(int, time.split(":"))
        assert os.stat(here / "repo" / name).st_mtime_ns == seconds * 10**9 + nanos, name
    (here / "repo" / "new").write_text("new")
    run(*GIT, "add", ".", cwd=here / "repo")
    run(*GIT, "commit", "-qm", "second", cwd=here / "repo")
    run(*GIT, "gc", "-q", cwd=here / "repo")
    run(*GIT, "fsck", "--strict", cwd=here / "repo")
    assert run(*GIT, "status", "--short", cwd=here / "repo") == ""


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_sqlite_finds_its_database_whole(here, mode):
    path = str(here / "db")
    database = sqlite3.connect(path)
    database.execute(f"pragma journal_mode={mode}")
    database.execute("create table t(a integer primary key, b text)")
    for number in range(25):
        with database:
            rows = [("x" * (number * 7 % 900),) for _ in range(20)]
            database.executemany("insert into t(b) values(?)", rows)
            database.execute("delete from t where a % 7 = ?", (number % 7,))
    other = sqlite3.connect(path)
    assert other.execute("pragma integrity_check").fetchone() == ("ok",)
    count = other.execute("select count(*) from t").fetchone()
    other.close()
    database.close()
    again = sqlite3.connect(path)
    assert again.execute("pragma integrity_check").fetchone() == ("ok",)
    assert again.execute("select count(*) from t").fetchone() == count
    again.close()


def test_tar_and_rsync_bring_back_what_they_took(here, work):
    tree = source(work)
    run("tar", "cf", str(here / "tar"), "-C", str(tree), ".")
    (here / "tree").mkdir()
    run("tar", "xf", str(here / "tar"), "-C", str(here / "tree"))
    run("diff", "-r", str(tree), str(here / "tree"))
    run("rsync", "-a", f"{here}/tree/", f"{here}/copy/")
    run("rsync", "-a", f"{here}/copy/", str(work / "back"))
    run("diff", "-r", str(tree), str(work / "back"))
    assert run("rsync", "-ain", f"{tree}/", f"{here}/copy/") == ""


def test_a_program_is_built_and_run(here):
    for number in range(5):
        (here / f"part{number}.c").write_text(f"int part{number}(void) {{ return {number}; }}\n")
    calls = "+".join(f"part{number}()" for number in range(5))
    declared = "".join(f"int part{number}(void);" for number in range(5))
    (here / "main.c").write_text(f"{declared} int main(void) {{ return {calls}; }}\n")
    for path in sorted(here.glob("*.c")):
        run("cc", "-c", "-o", str(path.with_suffix(".o")), str(path))
    run("cc", "-o", str(here / "main"), *map(str, here.glob("*.o")))
    assert subprocess.run([here / "main"]).returncode == 10


@pytest.mark.parametrize("engine,pattern", [
    ("psync", "randwrite"), ("psync", "write"), ("mmap", "randwrite"), ("libaio", "randrw"),
])
def test_fio_reads_what_it_wrote(here, engine, pattern):
    direct = ["--direct=1"] if engine == "libaio" else []
    run("fio", "--name=verify", f"--directory={here}", f"--ioengine={engine}", f"--rw={pattern}",
        "--bs=4k", "--size=6m", "--numjobs=2", "--verify=crc32c", "--verify_fatal=1",
        "--verify_state_save=0", "--fsync=128", *direct)


def test_a_directory_of_many_files(here):
    for number in range(3000):
        os.close(os.open(here / f"{number:05}", os.O_WRONLY | os.O_CREAT))
    assert len(os.listdir(here)) == 3000
    with os.scandir(here) as entries:
        assert sum(entry.stat().st_size for entry in entries) == 0
    assert not (here / "99999").exists()
