"""POSIX access control lists, beside a local file system that has them: whatever is done by whomever, both
give the same answer, the same modes and the same lists."""

import errno
import os
import random
import struct

from harness.server import scratch

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
NOBODY = 0xFFFFFFFF
UIDS, GIDS = (1001, 1002, 1003), (2001, 2002, 2003)


def encode(entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def some_list(rng):
    """Mostly one that is valid."""
    perms = lambda: rng.randrange(8)
    users = [(USER, perms(), uid) for uid in sorted(rng.sample(UIDS, rng.randrange(3)))]
    groups = [(NAMED_GROUP, perms(), gid) for gid in sorted(rng.sample(GIDS, rng.randrange(3)))]
    mask = [(MASK, perms(), NOBODY)] if users or groups or rng.random() < 0.3 else []
    entries = [(OWNER, perms(), NOBODY), *users, (GROUP, perms(), NOBODY), *groups, *mask,
               (OTHER, perms(), NOBODY)]
    if rng.random() < 0.1:
        entries.pop(rng.randrange(len(entries)))
    return encode(entries)


def as_user(uid, gids, action):
    """What `action` returns or fails with, done by a process of that user: a text."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(gids[1:])
            os.setresgid(*[gids[0]] * 3)
            os.setresuid(uid, uid, uid)
            answer = repr(action())
        except OSError as error:
            answer = errno.errorcode[error.errno]
        os.write(send, answer.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as stream:
        answer = stream.read().decode()
    os.waitpid(child, 0)
    return answer


def lists(path):
    found = {}
    for name in (ACCESS, DEFAULT):
        try:
            found[name] = os.getxattr(path, name, follow_symlinks=False)
        except OSError as error:
            found[name] = errno.errorcode[error.errno]
    return found


def state(root):
    """Mode, owner and lists of all there is."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in sorted([*names, *files]):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            own = (status.st_mode, status.st_uid, status.st_gid)
            shown = sorted(n for n in os.listxattr(path, follow_symlinks=False) if n.startswith("system."))
            found[os.path.relpath(path, root)] = (own, lists(path), shown)
    return found


def make(path, mode, umask, kind):
    os.umask(umask)
    if kind == "file":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    elif kind == "directory":
        os.mkdir(path, mode)
    elif kind == "link":
        os.symlink("target", path)
    else:
        os.mkfifo(path, mode)


def read(path):
    with open(path, "rb") as stream:
        return stream.read()


def write(path):
    os.close(os.open(path, os.O_WRONLY))


def step(rng, names, number):
    """One action: its name, itself as a function of a root, and what it makes."""
    name = rng.choice(names)
    fresh = os.path.join(rng.choice(names), f"n{number}")
    mode, umask = rng.randrange(0o1000), rng.choice((0, 0o022, 0o027, 0o077))
    kind = rng.choice(("file", "file", "directory", "directory", "fifo", "link"))
    which, value = rng.choice((ACCESS, DEFAULT)), some_list(rng)
    setgid, gid = rng.choice((0, 0, 0o6000)), rng.choice(GIDS)
    made = fresh if kind not in ("link", "fifo") else None
    actions = {
        f"make {kind} {fresh} {mode:o} less {umask:o}":
            (3, lambda root: make(f"{root}/{fresh}", mode, umask, kind), made),
        f"set {which} of {name} to {value.hex()}":
            (2, lambda root: os.setxattr(f"{root}/{name}", which, value), None),
        f"remove {which} of {name}":
            (1, lambda root: os.removexattr(f"{root}/{name}", which), None),
        f"chmod {name} {mode | setgid:o}":
            (1, lambda root: os.chmod(f"{root}/{name}", mode | setgid), None),
        f"chgrp {name} {gid}": (1, lambda root: os.chown(f"{root}/{name}", -1, gid), None),
        f"read {name}": (1, lambda root: read(f"{root}/{name}"), None),
        f"write {name}": (1, lambda root: write(f"{root}/{name}"), None),
        f"list {name}": (1, lambda root: sorted(os.listdir(f"{root}/{name}")), None),
        f"search {name}": (1, lambda root: os.access(f"{root}/{name}", os.X_OK), None),
    }
    weights = [weight for weight, *_ in actions.values()]
    [(what, (_, action, made))] = rng.choices(list(actions.items()), weights)
    return what, action, made


def test_lists_are_obeyed_as_by_a_local_file_system(here):
    rng = random.Random(20)
    local = scratch("acl")
    for path in (local.parent, local, here):
        path.chmod(0o777)
    roots = [str(local), str(here)]
    for root in roots:
        os.umask(0)
        os.mkdir(f"{root}/top", 0o777)
    names = ["top"]
    denied = done = 0
    for number in range(int(os.environ.get("CAIRN_TEST_ACL_STEPS", 400))):
        what, action, made = step(rng, names, number)
        uid = rng.choice((0, *UIDS))
        gids = rng.sample(GIDS, 2) if uid else [0]
        answers = [as_user(uid, gids, lambda root=root: action(root)) for root in roots]
        assert answers[0] == answers[1], f"step {number}, uid {uid}, groups {gids}: {what}"
        if made and answers[0] == "None":
            names.append(made)
        denied += answers[0] in ("EACCES", "EPERM")
        done += answers[0][0] != "E"
        if number % 10 == 0:
            assert state(roots[0]) == state(roots[1]), f"after step {number}"
    assert state(roots[0]) == state(roots[1])
    assert denied > 50 and done > 80, (denied, done)


def test_a_list_set_here_holds_there(mounts):
    one, two, _ = mounts
    (one / "secret").write_bytes(b"secret")
    (one / "secret").chmod(0o600)
    elsewhere = lambda: as_user(UIDS[0], [GIDS[0]], lambda: read(two / "secret"))
    assert elsewhere() == "EACCES"
    entries = [(OWNER, 6, NOBODY), (USER, 4, UIDS[0]), (GROUP, 0, NOBODY), (MASK, 4, NOBODY),
               (OTHER, 0, NOBODY)]
    os.setxattr(one / "secret", ACCESS, encode(entries))
    assert elsewhere() == repr(b"secret")
    assert os.stat(two / "secret").st_mode & 0o777 == 0o640
    os.chmod(one / "secret", 0o600)
    assert elsewhere() == "EACCES"
    assert os.getxattr(two / "secret", ACCESS) == encode(
        [*entries[:3], (MASK, 0, NOBODY), entries[4]])
