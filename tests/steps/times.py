"""How long steps and tests took, beside an earlier commit."""

from pathlib import Path

from steps.jobs import ROOT

# Kept with the commit that each closed issue ends with.
PREVIOUS = ROOT / "tests/previous"
WRITTEN = ROOT / "target/test-times"
SHOWN = 10


def read(path: Path):
    """(commit, {step: seconds}) of a file of `write`."""
    if not path.exists():
        return "", {}
    first, *rest = path.read_text().splitlines()
    return first.removeprefix("commit "), {
        name: float(seconds) for seconds, name in (line.split(" ", 1) for line in rest)
    }


def write(commit, steps):
    WRITTEN.write_text(
        f"commit {commit}\n" + "".join(f"{steps[name]:.1f} {name}\n" for name in sorted(steps))
    )


def show(steps, tests):
    """Prints the steps and the tests that took longest."""
    commit, before = read(PREVIOUS)
    print(f"\n{'step':46} {'seconds':>9} {commit[:12] or 'before':>12}")
    slowest = sorted(steps, key=lambda name: -steps[name])
    for name in [*[name for name in slowest if name != "total"][:SHOWN], "total"]:
        earlier = f"{before[name]:.1f}" if name in before else "-"
        print(f"{name:46} {steps[name]:9.1f} {earlier:>12}")
    print("\nthe slowest tests")
    for name, test in sorted(tests, key=lambda pair: -pair[1].seconds)[:SHOWN]:
        print(f"{test.seconds:10.1f} s {name} {test.name}")
