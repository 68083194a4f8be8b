"""How long the death of a master, and of its machine, is felt; started by bench/masters failover.

The loads, the faults and the checks are those of `tests/cluster/machine_episodes.py`: three machines,
each in a network namespace. The roles of a machine are one process, and then three processes. Times
of all runs of one commit are collected.
"""

import argparse
import sys

from compare import ROOT, WORK, commit, machine

# Here `cluster` is the one of the tests.
sys.path.insert(0, str(ROOT / "tests"))

from cluster import machine_episodes  # noqa: E402
from cluster.machine_faults import FELT  # noqa: E402
from harness import net  # noqa: E402
from harness.wait import PATIENCE_SECONDS  # noqa: E402

# What is killed, and whether the roles are processes of their own.
DEATHS = [("kill_serving_machine", False), ("kill_serving_master", True)]
EXAMPLES = """examples:
  bench/masters failover --rounds 20    20 times kill -9 of each
  bench/masters failover --rounds 0     shows what runs of this commit have measured
"""


def measure(fault, apart, rounds, collected):
    try:
        wrong = machine_episodes.run(
            rounds, only=[fault], apart=apart, resume_seconds=PATIENCE_SECONDS, live_seconds=0,
            times=collected, echo=lambda text: print(text, flush=True),
        )  # fmt: skip
    except net.Unavailable as error:
        raise SystemExit(f"three machines need network namespaces: {error}") from None
    if wrong:
        raise SystemExit(f"{fault}: {len(wrong)} violations, so that the times say nothing")


def table(times):
    lines = ["| seconds until the first success of | p50 | p99 | most | measured |", "|---|---|---|---|---|"]
    for kind, shown in FELT.items():
        if found := times[kind]:
            p50, p99 = (machine_episodes.percentile(found, percent) for percent in (50, 99))
            lines.append(f"| {shown} | {p50:.1f} | {p99:.1f} | {max(found):.1f} | {len(found)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        prog="bench/masters failover", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=20, help="deaths of each kind")
    options = parser.parse_args()
    collected = WORK / f"failover-{commit().split()[-1]}"
    for fault, apart in DEATHS if options.rounds else []:
        measure(fault, apart, options.rounds, collected)
    if not collected.exists():
        raise SystemExit(f"{collected} is not there: nothing was measured yet")
    command = " ".join(["bench/masters failover", *sys.argv[1:]])
    print(f"\n`{command}` on {machine(commit())}; all runs in {collected.relative_to(ROOT)}.\n")
    print(table(machine_episodes.read_times(collected)))


if __name__ == "__main__":
    main()
