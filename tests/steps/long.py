"""The long form: random campaigns, sizes and what needs a quiet machine.

A part is a list of units. A unit that passed is not run again while the tree is the same, so a part
that was ended goes on where it was.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from steps import jobs
from steps.jobs import Job, python, rust

KEPT = jobs.ROOT / "target/test-long"
SCALED = {"CAIRN_TEST_SCALE": "8"}
HOUR = 60 * 60
CARGO_DENY = "0.20.2"
MACHINE_RUNS = 6


def scaled(programs, crate, target, *words):
    job = rust(*programs[crate, target], *words, env=SCALED, timeout=HOUR)
    job.name += "".join(f" {word}" for word in words)
    return job


def models(programs):
    yield scaled(programs, "meta", "posix", "operations_agree_with_the_model")
    yield scaled(programs, "meta", "master", "any_interleaving")
    yield scaled(programs, "fs", "it", "listings_agree")
    yield scaled(programs, "fs", "it", "churn_with_crashes")


def powercuts(programs):
    yield scaled(programs, "blocks", "it", "power_cuts_lose_nothing_acknowledged")
    for words in ("power_cuts", "io_errors", "bit_flips"):
        yield scaled(programs, "meta", "engine", words)
    for words in ("every_flipped_bit", "errors_of_the_disk"):
        yield scaled(programs, "blocks", "it", words)
    yield scaled(programs, "fs", "it", "power_cuts_lose_nothing_acknowledged")


def seeds(programs):
    """1,000 seeds of each kind, none of them in the short form."""
    for first in range(1_000, 2_000, 125):
        env = {"CAIRN_SEED": str(first), "CAIRN_SEEDS": "125"}
        job = rust(*programs["sim", "it"], "cluster::", env=env, timeout=HOUR)
        job.name += f" from {first}"
        yield job


def raft(programs):
    """1,000 seeds of masters that stay and of those that come and go, none in the short form."""
    for first in range(1_000, 2_000, 125):
        env = {"CAIRN_RAFT_SEED": str(first), "CAIRN_RAFT_SEEDS": "125"}
        job = rust(*programs["sim", "it"], "masters::what_masters_acknowledge", env=env, timeout=HOUR)
        job.name += f" of raft from {first}"
        yield job


def episodes(_):
    for seed in range(11, 15):
        command = [jobs.PYTHON, "-B", "tests/cluster/episodes.py", "--episodes", "10"]
        yield Job(f"episodes of seed {seed}", [*command, "--seed", str(seed)], timeout=HOUR)


def machines(_):
    """60 episodes of three machines, in runs that share one deck of faults; then all are judged."""
    results = KEPT / tree() / "machines/results"
    for part in range(1, MACHINE_RUNS + 1):
        command = [jobs.PYTHON, "-B", "tests/cluster/machine_episodes.py", "--episodes", "60"]
        command += ["--deck-part", f"{part}/{MACHINE_RUNS}", "--seed", str(100 + part)]
        yield Job(f"machines of seed {100 + part}", [*command, "--results", results], timeout=HOUR)
    command = [jobs.PYTHON, "-B", "tests/cluster/machine_report.py", results]
    yield Job("machines in all", [*command, "--parts", str(MACHINE_RUNS)], is_shown=True)


def returns(_):
    """200 rounds, in runs that can go on after a break."""
    for seed in range(21, 27):
        command = [jobs.PYTHON, "-B", "tests/cluster/returns.py", "--rounds", "30"]
        yield Job(f"returns of seed {seed}", [*command, "--seed", str(seed)], timeout=HOUR)
    command = [jobs.PYTHON, "-B", "tests/cluster/returns.py", "--rounds", "20", "--seed", "27", "--all"]
    yield Job("returns of all machines, 20 times", command, timeout=HOUR)
    yield python("cluster/test_sick_disks.py", env={"CAIRN_TEST_SICK_DISKS": "all"}, timeout=HOUR)


def failover(_):
    """100 kills, and cuts and stops, of the machine whose master serves. What is printed are figures."""
    yield Job("what a balancer needs", ["tests/install", "--patroni"], timeout=HOUR)
    yield python("cluster/test_balancer.py", timeout=HOUR)
    runs = [("kill", 50), ("kill", 50), ("cut", 20), ("stop", 20)]
    for number, (how, rounds) in enumerate(runs, 1):
        command = [jobs.PYTHON, "-B", "tests/cluster/failover.py", "--rounds", str(rounds), "--how", how]
        yield Job(f"failover {number}, by {how}, {rounds} times", command, timeout=HOUR, is_shown=True)


def rot(_):
    """280 flips and 14 truncations beside many flips at once, in runs that can go on after a break."""
    for seed in range(1, 5):
        command = [jobs.PYTHON, "-B", "tests/cluster/rot.py", "--rounds", "14", "--seed", str(seed)]
        yield Job(f"rot of seed {seed}", command, timeout=HOUR)


def kills(_):
    for seed in range(11, 15):
        command = [jobs.PYTHON, "-B", "tests/kill/kill.py", "--rounds", "25"]
        yield Job(f"kills of seed {seed}", [*command, "--seed", str(seed)], timeout=HOUR)


def deaths(_):
    for number in range(1, 6):
        env = {"CAIRN_TEST_MOUNT_KILLS": "10"}
        job = python("mount/test_survival.py", "-k", "killed_at_any_moment", env=env, timeout=HOUR)
        job.name = f"deaths of mounts {number}"
        yield job


def logs(_):
    units = [
        ("logs/test_clients.py", "nothing_acknowledged", {"KILLS": 50}),
        ("logs/test_failover.py", "a_server_that_is_killed", {"KILLS": 50}),
        ("logs/test_failover.py", "masters_and_gateways", {"FAILOVERS": 25}),
        ("logs/test_follow.py", "many_followers", {"FOLLOWERS": 1000}),
    ]
    for file, test, numbers in units:
        env = {f"CAIRN_TEST_LOG_{name}": str(number) for name, number in numbers.items()}
        # What is printed are figures.
        job = python(file, "-s", "-k", test, env=env, timeout=HOUR)
        job.name += f" {test}"
        yield job


def mounts(_):
    env = {
        "CAIRN_TEST_MOUNT_OPERATIONS": "100000",
        "CAIRN_TEST_MOUNT_CHANGES": "10000",
        "CAIRN_TEST_MOUNT_FILES": "5000",
        "CAIRN_TEST_CLUSTER_MOUNT_CHANGES": "1000",
        "CAIRN_TEST_ACL_STEPS": "2000",
    }
    names = ["model", "coherence", "own_directories", "cluster_mount", "acl"]
    for file in (f"mount/test_{name}.py" for name in names):
        yield python(file, env=env, timeout=HOUR)
    env = {"CAIRN_TEST_STALL_SECONDS": "30"}
    yield python("mount/test_stalled_disk.py", env=env, timeout=HOUR)


def ends(_):
    yield python("mount/test_ends.py", "-s", env={"CAIRN_TEST_MOUNT_ENDS": "30"}, timeout=2 * HOUR)


def memory(_):
    """Two million files that one mount makes and removes. What is printed are figures."""
    env = {"CAIRN_TEST_MEMORY_FILES": "2000000"}
    yield python("limits/test_long_life.py", "-s", env=env, timeout=2 * HOUR)


def nfs(programs):
    """Emulation is slow: each unit takes some minutes."""
    env = {"CAIRN_TEST_NFS_OPERATIONS": "1000000"}
    yield rust(*programs["nfs", "door"], "files_have_the_bytes", env=env, timeout=HOUR)
    yield of_nfs("test_calls", "asks_no_more", LISTED=10_000)
    yield of_nfs("test_programs", "find_a_file_system", PROGRAM_FILES=300)
    yield of_nfs("test_programs", "many_files", FOUND=100_000)
    yield of_nfs("test_again", "interrupts", AGAIN=1000)
    for first in (0, 25):
        yield of_nfs("test_kernel", "was_killed", KILLS=25, FIRST=first)
    for first in (0, 10):
        yield of_nfs("test_kernel", "another_gateway", FAILOVERS=10, FIRST=first)
    yield of_nfs("test_coherence", "how_late", DELAYS=5)
    yield of_nfs("test_listings", "ends_complete", NAMES=1_000_000)


def nfs2(_):
    """100,000 operations of each sort in the guest, and 10,000 changes."""
    for first in (0, 2):
        yield of_nfs("test_kernel", "in_memory", OPERATIONS=50_000, FIRST=first)
    for first in range(4):
        yield of_nfs("test_coherence", "seen_at_all", CHANGES=2500, FIRST=first)


def nfs3(_):
    """Creating a million names and listing them in the guest takes long, and so does the first listing's order."""
    yield of_nfs("test_kernel_listings", "names_go", NAMES=70_000)
    yield of_nfs("test_kernel_listings", "names_go", hours=3, NAMES=1_000_000, GOES=50)
    yield of_nfs("test_kernel_listings", "another_gateway", NAMES=70_000, LISTING_FAILOVERS=5)
    yield of_nfs("test_kernel_listings", "another_gateway", hours=3, NAMES=1_000_000, GOES=50, LISTING_FAILOVERS=5)


def of_nfs(file, test, hours=1, **numbers):
    env = {f"CAIRN_TEST_NFS_{name}": str(number) for name, number in numbers.items()}
    # What is printed are figures.
    job = python(f"nfs/{file}.py", "-s", "-k", test, env=env, timeout=hours * HOUR)
    job.name += f" {test}" + (f" from {numbers['FIRST']}" if "FIRST" in numbers else "")
    job.name += f" of {numbers['NAMES']}" if "NAMES" in numbers else ""
    return job


def sizes(_):
    env = {
        "CAIRN_TEST_HUGE_GIB": "10",
        "CAIRN_TEST_OBJECTS": "100000",
        "CAIRN_TEST_BACKUP_GIB": "20",
        "CAIRN_TEST_DIRECTORY_ENTRIES": "1000000",
        "CAIRN_TEST_TREE_FILES": "5200",
        "CAIRN_TEST_BIG_MIB": "1024",
        "CAIRN_TEST_ARCHIVE_GIB": "4.5",
        "CAIRN_TEST_TUS_KILLS": "20",
    }
    names = [
        "clients/test_archives.py",
        "clients/test_tus.py",
        "clients/test_aws_cli.py",
        "limits/test_backups.py",
        "limits/test_big_uploads.py",
        "mount/test_big_directory.py",
    ]
    for file in names:
        yield python(file, env=env, timeout=HOUR)
    yield python("kill/test_kill.py", "-k", "many_objects", env=env, timeout=HOUR)


def folders(_):
    yield Job("what pyarrow needs", ["tests/install", "--arrow"], timeout=HOUR)
    yield python("clients/test_folders.py", env={"CAIRN_TEST_ARROW": "1"})


def browser(_):
    env = {
        "CAIRN_TEST_BROWSER_FILES": "500",
        "CAIRN_TEST_BROWSER_MIB": "2048",
        "CAIRN_TEST_BROWSER_ROWS": "1000000",
        "CAIRN_TEST_BROWSER_TALL": "2000000",
        "CAIRN_TEST_BROWSER_IDLE_SECONDS": "60",
    }
    for name in ["browser", "uploads", "live", "managing", "attacks", "accessibility"]:
        yield python(f"console/test_{name}.py", env=env, timeout=2 * HOUR)


def hostile(_):
    env = {"CAIRN_TEST_HOSTILE_SECONDS": "600"}
    yield python("hostile/test_hostile.py", "-k", "notice", env=env, timeout=HOUR)
    places = {"CAIRN_TEST_PLACES_SECONDS": "180"}
    yield python("hostile/test_places.py", "-k", "closes", env=places, timeout=HOUR)
    attack = {"CAIRN_TEST_ATTACK_SECONDS": "600"}
    # What is printed are figures.
    yield python("hostile/test_attack.py", "-s", env=attack, timeout=HOUR)
    requests = {"CAIRN_TEST_RECORDS_REQUESTS": "100000"}
    yield python("hostile/test_records.py", "-s", "-k", "many_requests", env=requests, timeout=HOUR)


def supply(_):
    """Built without optimisation: it runs for seconds."""
    place = jobs.ROOT / "target/deny"
    install = ["cargo", "install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--debug"]
    yield Job("cargo-deny", [*install, "--root", place, "--target-dir", place / "build"], timeout=HOUR)
    for manifest in ("Cargo.toml", "tools/proto/Cargo.toml"):
        what = ["--locked", "--config", jobs.ROOT / "deny.toml", "--manifest-path", manifest]
        checks = ["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]
        yield Job(f"dependencies of {manifest}", [place / "bin/cargo-deny", *what, *checks])


def versions(_):
    """The commit that `tests/previous` names is built in a work tree of its own, and goes after."""
    place = jobs.ROOT / "target/previous"
    commit = (jobs.ROOT / "tests/previous").read_text().split()[1]
    program = place / "target/debug/cairn"
    if place.exists():
        yield Job("the version before, again", ["git", "-C", place, "checkout", "--force", commit])
    else:
        yield Job("the version before", ["git", "worktree", "add", "--detach", place, commit])
    build = ["cargo", "build", "--locked", "-p", "cairn", "--target-dir", place / "target"]
    yield Job("the version before, built", build, directory=place, timeout=HOUR)
    env = {"CAIRN_PREVIOUS": str(program), "CAIRN_BIN": str(jobs.ROOT / "target/debug/cairn")}
    yield python("cluster/test_versions.py", env=env, timeout=HOUR)
    yield python("cluster/test_upgrade.py", "-s", env=env, timeout=HOUR)


def quiet(programs):
    env = {"CAIRN_TEST_DOCTOR": "all"}
    yield python("doctor/test_doctor.py", env=env, timeout=HOUR)
    yield rust(*programs["bench", "it"], "percentiles_are", env={"CAIRN_TEST_QUIET": "1"})


def packages(_):
    """Machines of systemd-nspawn over fresh roots of Debian: wants root and Debian's packages."""
    yield Job("what packages need", ["tests/install", "--packages"], timeout=HOUR)
    for name in ("packages", "image", "chart"):
        yield python(f"packages/test_{name}.py", timeout=HOUR)
    # What is printed are commands, and the seconds of each chapter.
    yield python("packages/test_book.py", "-s", timeout=HOUR)


def csi(_):
    """A driver in the guest of NFS, by emulation."""
    yield python("nfs/test_csi.py", "-s", env={"CAIRN_TEST_CSI_GUEST": "1"}, timeout=HOUR)


def patroni(_):
    """PostgreSQL on three machines, as docs/postgres.md has it: wants root and Debian's packages."""
    yield Job("what Patroni needs", ["tests/install", "--patroni"], timeout=HOUR)
    # What is printed are figures.
    yield python("database/test_patroni.py", "-s", env={"CAIRN_TEST_PATRONI_ROUNDS": "5"}, timeout=HOUR)


PARTS = {
    "models": (models, "models beside state machines, 8 times the short form"),
    "powercuts": (powercuts, "power cuts at every sync point, 8 times the short form; every call and bit"),
    "seeds": (seeds, "5,000 simulated clusters, 1,000 of them with masters that keep the metadata together"),
    "raft": (raft, "1,000 seeds of simulated masters that stay, and 1,000 of masters that come and go"),
    "episodes": (episodes, "40 faults of real clusters under load"),
    "machines": (machines, "60 faults of three machines under load, each kind twice, 100,000 operations, and a table of the times"),
    "returns": (returns, "200 kills of one, two or all of three machines under load, which come back within 20 s; disks that fail"),
    "failover": (failover, "140 losses of the machine whose master serves, and how long each is felt; HAProxy before gateways; wants Debian's packages"),
    "rot": (rot, "flips and truncations of the files of one master of three, which heals by itself"),
    "kills": (kills, "100 kill -9 of a server under load"),
    "deaths": (deaths, "50 kill -9 of mounts, servers or both"),
    "logs": (logs, "50 kill -9 of a server under each client of logs, 25 fail-overs and nights, 1,000 followers"),
    "mounts": (mounts, "100,000 operations beside a local directory, 10,000 looked at from all doors"),
    "ends": (ends, "60 servers that end while their mounts are unmounted"),
    "memory": (memory, "2,000,000 files that come and go through one mount, and the memory of both ends"),
    "nfs": (nfs, "NFS: 1,000,000 operations; in a guest: programs, 100,000 files, 50 kills, 20 fail-overs"),
    "nfs2": (nfs2, "NFS in a guest: 100,000 operations of each sort, 10,000 changes at 4 doors"),
    "nfs3": (nfs3, "NFS in a guest: listings of 70,000 and 1,000,000 long names that go, with restarts and fail-overs"),
    "sizes": (sizes, "10 GiB objects, 1,000,000 entries in a directory, backups of 100,000 objects and 20 GiB"),
    "folders": (folders, "folders of S3 programs in buckets of both kinds, also by pyarrow; wants a registry"),
    "browser": (browser, "the console: 500 files and one of 2 GiB, a folder of 1,000,000 objects, 10 idle pages for a minute"),
    "hostile": (hostile, "10 minutes of hostile clients beside honest ones, 100,000 requests against the audit; a quiet machine"),
    "versions": (versions, "nodes, mounts and stores of this version and of the one in tests/previous"),
    "supply": (supply, "licences, sources and duplicates of dependencies; wants a registry"),
    "packages": (packages, "packages, the image and the chart; the operator's book and recipes on fresh machines; wants a registry"),
    "csi": (csi, "the driver for Kubernetes over NFS in a guest: its own tests and csi-sanity"),
    "patroni": (patroni, "20 fail-overs and switch-overs of PostgreSQL under Patroni; wants Debian's packages"),
    "quiet": (quiet, "every planted bottleneck, 20 looks at healthy systems, percentiles within 1 %"),
}


def show():
    for name, (_, what) in PARTS.items():
        print(f"{name:10} {what}")
    return 0


@functools.cache
def tree():
    """The hash of the work tree as it is, of files that are not committed, too."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "GIT_INDEX_FILE": f"{scratch}/index"}
        subprocess.run(["git", "add", "--all"], cwd=jobs.ROOT, env=env, check=True)
        written = ["git", "write-tree"]
        done = subprocess.run(written, cwd=jobs.ROOT, env=env, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()


def run(wanted):
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.exit(f"{' '.join(unknown)}: no such part; tests/run --list")
    _, built = jobs.test_programs()
    programs = {(crate.name, target): (crate, target, file) for crate, target, file in built}
    kept = KEPT / tree()
    failed = []
    for name in wanted or PARTS:
        began = time.monotonic()
        make, what = PARTS[name]
        print(f"== {name}: {what}", flush=True)
        for job in make(programs):
            failed += [] if passes(job, kept / name) else [job.name]
        print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    for name in failed:
        print(f"FAILED: {name}")
    print(f"results: {kept.relative_to(jobs.ROOT)}")
    return 1 if failed else 0


def passes(job, kept: Path):
    """Runs a unit, or says that it passed before."""
    result = kept / job.log.name
    if result.exists():
        print(f"== {job.name}: passed before")
        if job.is_shown:
            print(result.read_text())
        return True
    job.run()
    job.report()
    if job.is_ok:
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(job.log, result)
    return job.is_ok
