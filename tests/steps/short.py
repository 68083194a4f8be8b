"""The short form: every test there is, random campaigns with few fixed seeds."""

import subprocess
import sys
import time

from steps import jobs, times

FOLDERS = ["bench", "clients", "cluster", "console", "csi", "doctor", "hostile", "kill", "limits", "logs"]
FOLDERS += ["mount", "nfs", "timing"]
# With the features of the whole build, so that what one has built the other need not build again:
# those of all crates, and of what only tests depend on, which counts where examples are asked for.
# The examples are measurements of layers.
PROGRAM = ["cargo", "build", "--workspace", "--bin", "cairn", "--examples"]
# Looks at the whole machine, so nothing runs beside it.
ALONE = "doctor/"


def files(wanted):
    """The Python files of folders, files, or files with a test, below tests/."""
    for name in wanted:
        path = jobs.ROOT / "tests" / name.split("::")[0]
        if not path.exists():
            sys.exit(f"tests/{name}: there is no such folder or file")
        found = sorted(path.glob("test_*.py")) if path.is_dir() else [path]
        for file in found:
            shown = file.relative_to(jobs.ROOT / "tests")
            yield name if "::" in name else str(shown)


def run(wanted, is_rust_only, installed_seconds):
    began, steps, work = time.monotonic() - installed_seconds, {}, []
    steps["install"] = installed_seconds
    if not wanted:
        steps["fmt"] = jobs.step("fmt", "cargo", "fmt", "--all", "--check")
        lint = ["cargo", "clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]
        steps["clippy"] = jobs.step("clippy", *lint)
        steps["build"], programs = jobs.test_programs()
        work += [jobs.rust(*program) for program in programs]
    else:
        steps["build"] = jobs.step("build", *PROGRAM)
    if not is_rust_only:
        work += [jobs.python(file) for file in files(wanted or FOLDERS)]
    _, before = times.read(times.PREVIOUS)
    alone = [job for job in work if job.name.startswith(ALONE)]
    jobs.run_all([job for job in work if job not in alone], before)
    jobs.run_all(alone, before, width=1)
    steps.update((job.name, job.seconds) for job in work)
    steps["total"] = time.monotonic() - began
    is_whole = not wanted and not is_rust_only
    return summary(work, steps, is_whole)


def summary(work, steps, is_whole):
    """Prints the times and the closing line; returns the exit code."""
    head = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(head, cwd=jobs.ROOT, capture_output=True, text=True).stdout.strip()
    if is_whole:
        times.write(commit, steps)
    tests = [(job.name, test) for job in work for test in job.tests]
    times.show(steps, tests)
    count = dict.fromkeys(("ok", "FAILED", "skipped"), 0)
    for _, test in tests:
        count[test.outcome] += 1
    broken = [job.name for job in work if not job.is_ok]
    for name in broken:
        print(f"FAILED: {name}")
    for name, test in tests:
        if test.outcome == "FAILED":
            print(f"FAILED: {name} {test.name}")
    # A program that failed outside of its tests counts as one.
    lost = sum(not any(test.outcome == "FAILED" for test in job.tests) for job in work if not job.is_ok)
    failed = count["FAILED"] + lost
    print(f"\n{count['ok']} passed, {failed} failed, {count['skipped']} skipped")
    return 1 if failed else 0
