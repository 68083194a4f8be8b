"""The measurement of NFS behind docs/performance.md; started by bench/nfs.

`cairn bench nfs` is the client: it runs each load on all servers in turns. Client and servers share
the machine.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from harness.doors import S3  # noqa: E402
from harness.ports import free_ports  # noqa: E402
from harness.server import KEY, SECRET, Server, binary  # noqa: E402

WORK = ROOT / "target/bench/nfs"
CONF = """
NFS_CORE_PARAM {{
    NFS_Port = {port}; MNT_Port = {mount}; Bind_addr = 127.0.0.1; NFS_Protocols = 3;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}}
EXPORT {{
    Export_Id = 1; Path = {root}; Pseudo = /bench; Protocols = 3; Transports = TCP;
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; PrivilegedPort = false;
    FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""
# Ganesha does not start without an rpcbind: it gets one that nobody else sees.
START = """mount -t tmpfs run /run && mkdir /run/ganesha || exit 1
unshare -n rpcbind -f &
until [ -S /run/rpcbind.sock ]; do sleep 0.02; done
exec ganesha.nfsd -F -f "$0" -L "$1" -p /run/ganesha/pid"""
# What the report of a load is compared with: calls a second and for a second of the server's CPU.
TARGETS = {
    "GETATTR": (1.5, 3), "LOOKUP": (1.5, 3), "READ of 430 B": (None, 2), "READ of 93 KiB": (None, 2),
    "READ in sequence": (1.2, None), "WRITE in sequence, and COMMIT": (1.2, None),
}  # fmt: skip


@contextlib.contextmanager
def ganesha(name, root):
    """Serves a directory; its URL and its process."""
    port, mount = free_ports(2)
    conf, log = WORK / f"{name}.conf", WORK / f"{name}.log"
    conf.write_text(CONF.format(port=port, mount=mount, root=root))
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, conf, log]
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL)
    try:
        for address in (port, mount):
            wait(lambda address=address: is_listening(address), name)
        yield f"nfs://127.0.0.1{root}?nfsport={port}&mountport={mount}", process.pid
    finally:
        process.kill()
        process.wait()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait(condition, what):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not start")
        time.sleep(0.05)


@contextlib.contextmanager
def synced_directory():
    """A file system of its own, mounted so that each name is durable."""
    image, at = WORK / "image", WORK / "synced"
    at.mkdir()
    subprocess.run(["truncate", "-s", "2G", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True, env={"PATH": "/usr/sbin:/sbin"})
    subprocess.run(["mount", "-o", "loop,sync,dirsync", image, at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def measure(options, servers, loads, result):
    (first, (url, _)), *others = servers.items()
    command = [binary(), "bench", "nfs", url, "--name", first, "--json", result, "--loads", loads]
    for name, (url, _) in others:
        command += ["--compare", f"{name}={url}"]
    for name, (_, pid) in servers.items():
        command += ["--pid", f"{name}={pid}"]
    command += ["--rounds", options.rounds, "-d", f"{options.seconds}s", "--size", options.size]
    command += ["--connections", options.connections, "--in-flight", options.in_flight]
    subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL)
    return json.loads(result.read_text())["cells"]


def rows(cells):
    """A line for each load of each server, with ratios to the first peer."""
    loads = list(dict.fromkeys((cell["what"], cell["axis"]["value"]) for cell in cells))
    for what, connections in loads:
        of = [c for c in cells if (c["what"], c["axis"]["value"]) == (what, connections)]
        peer = next((cell for cell in of if cell["target"] != "Cairn"), None)
        for cell in of:
            rate, cores = cell["rate"], cell["server_cores"]
            each = rate["median"] / cores if cores else 0
            ratios = ["", ""]
            if cell is not peer:
                wanted = TARGETS.get(what, (None, None)) if cell["target"] == "Cairn" else (None, None)
                base = peer["rate"]["median"] / peer["server_cores"]
                numbers = (rate["median"] / peer["rate"]["median"], each / base)
                ratios = [ratio(number, target) for number, target in zip(numbers, wanted)]
            spread = f"{rate['median']:,.0f} ({rate['min']:,.0f} to {rate['max']:,.0f})"
            yield [f"{what}, {connections:.0f} connections", cell["target"], spread, ratios[0],
                   f"{each:,.0f}", ratios[1]]  # fmt: skip


def ratio(number, target):
    if target is None:
        return f"{number:.2f}"
    verdict = "met" if number >= target else f"**missed by {1 - number / target:.0%}**"
    return f"{number:.2f} (target {target}: {verdict})"


def table(cells):
    head = ["", "server", "a second, median (worst to best)", "ratio", "for a CPU second", "ratio"]
    lines = [head, ["---"] * len(head), *rows(cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--size", default="1g")
    parser.add_argument("--connections", default="4")
    parser.add_argument("--in-flight", default="8")
    parser.add_argument("--loads", default="getattr,lookup,read,stream-write,stream-read")
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "plain").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        server = Server(WORK / "store/data", args=["--nfs", "127.0.0.1:0"])
        (WORK / "store").mkdir()
        cairn = stack.enter_context(server)
        S3(cairn.s3).create_bucket("bench")
        command = ["export", "add", "bench", "--client", "127.0.0.0/8", "--as", "root"]
        env = {**os.environ, "CAIRN_SERVER": cairn.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
        subprocess.run([binary(), *command, "--squash", "none"], env=env, check=True)
        port = cairn.nfs.rsplit(":", 1)[1]
        servers = {"Cairn": (f"nfs://127.0.0.1/bench?nfsport={port}", cairn.process.pid)}
        servers["Ganesha"] = stack.enter_context(ganesha("plain", WORK / "plain"))
        cells = measure(options, servers, options.loads, WORK / "all.json")
        synced = stack.enter_context(synced_directory())
        servers = {
            "Cairn": servers["Cairn"],
            "Ganesha, sync,dirsync": stack.enter_context(ganesha("synced", synced)),
            "Ganesha, nothing durable": servers["Ganesha"],
        }
        TARGETS["CREATE"] = (3, None)
        cells += measure(options, servers, "create", WORK / "create.json")
    print(table(cells))
    shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    main()
