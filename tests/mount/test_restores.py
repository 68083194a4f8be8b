"""Restores from a backup into a server that runs: a tree as mounts make it, with everything that a file can have,
what else a store has, and what is there already."""

import os
import random
import signal
import socket
import stat
import struct
import subprocess
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.mount import Mount
from harness.server import KEY, REGION, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

MIB = 1 << 20
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NOBODY = 0xFFFFFFFF


def acl(group_of_9):
    entries = [(1, 7, NOBODY), (2, 5, 1009), (4, group_of_9, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def make(root):
    """Files, directories and links with all attributes."""
    (root / "a/b/empty").mkdir(parents=True)
    (root / "a/small").write_bytes(b"small")
    (root / "a/nothing").touch()
    (root / "a/b/large").write_bytes(random.Random(1).randbytes(9 * MIB + 5))
    with open(root / "a/b/holes", "wb") as file:
        for at in (0, 3 * MIB, 70 * MIB):
            os.pwrite(file.fileno(), random.Random(at).randbytes(5000), at)
        file.truncate(90 * MIB)
    (root / "few-holes").touch()
    os.truncate(root / "few-holes", 5000)
    os.symlink("../a/small", root / "a/b/link")
    os.symlink("/nowhere", root / "dangling")
    os.link(root / "a/small", root / "a/b/same")
    os.link(root / "a/small", root / "same too")
    os.mkfifo(root / "a/fifo", 0o620)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "a/s"))
    (root / "grün 日本").write_bytes(b"name")
    for number in range(300):
        (root / f"z{number}").write_text(str(number))
    os.setxattr(root / "a/small", "user.color", b"red")
    os.setxattr(root / "a/b/empty", "user.of", b"a directory")
    os.setxattr(root / "a/small", "trusted.secret", b"\0\1")
    os.chown(root / "a/small", 1001, 2001)
    os.chmod(root / "a/small", 0o4750)
    os.chown(root / "dangling", 1002, 2002, follow_symlinks=False)
    os.setxattr(root / "a/b/large", ACCESS, acl(5))
    os.setxattr(root / "a/b", DEFAULT, acl(4))
    os.chmod(root / "a/b/empty", 0o1733)
    for at, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18 + at, 10**18 + 10**9 * at + 7), follow_symlinks=False)


def seen(root):
    """Everything below a directory, by path."""
    found, numbers = {}, {}
    for path in [root, *sorted(root.rglob("*"))]:
        it = path.lstat()
        what = [stat.filemode(it.st_mode), it.st_uid, it.st_gid, it.st_mtime_ns]
        names = sorted(os.listxattr(path, follow_symlinks=False))
        what.append([(name, os.getxattr(path, name, follow_symlinks=False)) for name in names])
        if stat.S_ISLNK(it.st_mode):
            what.append(os.readlink(path))
        elif stat.S_ISREG(it.st_mode):
            what += [it.st_nlink, it.st_size, path.read_bytes()]
        if not stat.S_ISDIR(it.st_mode):
            # The first of the names of the same file.
            what.append(numbers.setdefault(it.st_ino, path.relative_to(root)))
        found[str(path.relative_to(root))] = what
    return found


def run(server, *words, code=0):
    env = {"PATH": os.environ["PATH"], "CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
    words = [binary(), *map(str, words)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def s3(server, key=KEY, secret=SECRET):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=server.s3, aws_access_key_id=key, aws_secret_access_key=secret,
                        region_name=REGION, config=config)  # fmt: skip


def mounted(server, work, bucket, name):
    return Mount(server, work / name, bucket=bucket)


def contents(server, work, bucket):
    with mounted(server, work, bucket, f"look-{bucket}-{time.monotonic_ns()}") as mount:
        return seen(mount.root)


def test_a_tree_comes_back_with_everything_and_a_second_run_changes_nothing():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        run(first, "bucket", "create", "tree")
        with mounted(first, work, "tree", "one") as mount:
            make(mount.root)
            wanted = seen(mount.root)
        place = work / "backup"
        run(first, "backup", "create", place)
        said = run(second, "restore", place, "--to-server", "--bucket", "tree", "--scratch", work)
        assert "failed" not in said and "left" not in said, said
        found = contents(second, work, "tree")
        for path in wanted:
            assert found.get(path) == wanted[path], path
        assert found.keys() == wanted.keys()
        with mounted(second, work, "tree", "blocks") as mount:
            # Holes are holes.
            with open(mount.root / "a/b/holes", "rb") as file:
                assert os.lseek(file.fileno(), 10 * MIB, os.SEEK_DATA) == 70 * MIB
                assert os.lseek(file.fileno(), 70 * MIB, os.SEEK_HOLE) < 71 * MIB
        said = run(second, "restore", place, "--to-server", "--bucket", "tree")
        assert "restored" in said and " 0 files" in said and "directories" not in said, said
        assert contents(second, work, "tree") == found
        assert "0 are not" in run(second, "restore", place, "--to-server", "--bucket", "tree", "--check")
        second.stop()
        code, said = second.fsck()
        assert code == 0, said


def test_names_that_are_there_stay_or_are_replaced_or_come_elsewhere():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as server:
        run(server, "bucket", "create", "tree")
        with mounted(server, work, "tree", "one") as mount:
            make(mount.root)
            wanted = seen(mount.root)
            place = work / "backup"
            run(server, "backup", "create", place)
            (mount.root / "a/b/large").unlink()
            (mount.root / "z1").write_bytes(b"newer")
            (mount.root / "new").write_bytes(b"new")
            (mount.root / "z2").unlink()
            (mount.root / "z2").mkdir()
            os.chmod(mount.root / "a", 0o711)
            (mount.root / "a/b/same").unlink()
        back = ["restore", place, "--to-server", "--bucket", "tree"]
        # What is compared only, stays.
        said = run(server, *back, "--check", code=1)
        for name in ("a/b/large", "z1", "z2", "a", "a/b/same"):
            assert f"failed tree/{name}: " in said, said
        said = run(server, *back)
        assert "left tree/z1: " in said and "left tree/z2: " in said and "left tree/a: " in said, said
        with mounted(server, work, "tree", "two") as mount:
            assert (mount.root / "z1").read_bytes() == b"newer"
            assert (mount.root / "new").read_bytes() == b"new"
            assert (mount.root / "a").stat().st_mode & 0o777 == 0o711
            assert (mount.root / "a/b/same").stat().st_nlink == 3
            assert seen(mount.root)["a/b/large"] == wanted["a/b/large"]
        # One file under another name; one directory elsewhere.
        run(server, *back, "--path", "z1", "--as", "tree/old/z1 of before")
        run(server, *back, "--path", "a/b", "--as", "copy/b")
        said = run(server, *back, "--prefix", "z1", "--as", "copy/by-prefix")
        assert "111 files" in said, said
        with mounted(server, work, "tree", "three") as mount:
            assert (mount.root / "old/z1 of before").read_bytes() == b"1"
            assert (mount.root / "z1").read_bytes() == b"newer"
        copied = contents(server, work, "copy")
        for path in ("b", "b/empty", "b/large", "b/link", "b/holes"):
            assert copied[path][:6] == wanted["a/" + path][:6], path
        for path in ("b/large", "b/holes"):
            assert copied[path][7] == wanted["a/" + path][7], path
        assert copied["by-prefix/z10"][-2] == b"10"
        # A directory that is in the way is not removed.
        said = run(server, *back, "--replace")
        assert "left tree/z2: " in said and said.count("left ") == 1, said
        with mounted(server, work, "tree", "four") as mount:
            (mount.root / "z2").rmdir()
        run(server, *back, "--replace")
        with mounted(server, work, "tree", "five") as mount:
            (mount.root / "new").unlink()
            (mount.root / "old/z1 of before").unlink()
            (mount.root / "old").rmdir()
            found = seen(mount.root)
        for path in set(wanted) - {"."}:
            assert found.get(path) == wanted[path], path


def test_a_run_that_was_killed_goes_on():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        run(first, "bucket", "create", "tree")
        with mounted(first, work, "tree", "one") as mount:
            make(mount.root)
            wanted = seen(mount.root)
        place = work / "backup"
        run(first, "backup", "create", place)
        words = [binary(), "restore", str(place), "--to-server", "--bucket", "tree", "--jobs", "2"]
        env = {"CAIRN_SERVER": second.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET, "TMPDIR": str(work)}
        rng, ended = random.Random(3), False
        for _ in range(3):
            process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            is_there = lambda: process.poll() is not None or b"tree" in subprocess.run(
                [binary(), "bucket", "ls"], env=env, capture_output=True).stdout  # fmt: skip
            eventually(is_there, "the bucket is made")
            try:
                ended = process.wait(timeout=rng.random()) == 0
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            if ended:
                break
        said = run(second, *words[1:])
        assert "left" not in said and "failed" not in said, said
        assert contents(second, work, "tree") == wanted


def test_users_keys_and_settings_come_back_with_the_store():
    work = scratch("restores")
    work.chmod(0o755)
    (work / "pass").write_text("a passphrase\n")
    place = ["--passphrase-file", work / "pass", work / "backup"]
    secret = "a-secret-of-alice-0123456789"
    with Server() as first, Server() as second:
        (work / "secret").write_text(secret + "\n")
        run(first, "key", "create", "alice", "--id", "ALICEALICEALICE00001", "--secret-file", work / "secret")
        alice = s3(first, "ALICEALICEALICE00001", secret)
        alice.create_bucket(Bucket="objects")
        alice.put_object(Bucket="objects", Key="a", Body=b"beside", ContentType="text/x-a", Metadata={"m": "1"})
        alice.put_object(Bucket="objects", Key="a/b//c", Body=b"hidden", Tagging="k=v")
        alice.put_object(Bucket="objects", Key="a/b/c", Body=b"plain", Tagging="color=red")
        alice.put_bucket_tagging(Bucket="objects", Tagging={"TagSet": [{"Key": "of", "Value": "alice"}]})
        upload = alice.create_multipart_upload(Bucket="objects", Key="parts")["UploadId"]
        parts = []
        for number in (1, 2):
            part = alice.upload_part(Bucket="objects", Key="parts", UploadId=upload, PartNumber=number,
                                     Body=bytes([number]) * 5 * MIB)  # fmt: skip
            parts.append({"PartNumber": number, "ETag": part["ETag"]})
        alice.complete_multipart_upload(Bucket="objects", Key="parts", UploadId=upload,
                                        MultipartUpload={"Parts": parts})  # fmt: skip
        run(first, "bucket", "create", "shared")
        run(first, "bucket", "set", "shared", "--grant", "alice:read,write", "--quota", "1g")
        run(first, "export", "add", "shared", "--client", "10.0.0.0/8", "--as", "alice")
        env = {"CAIRN_SERVER": first.http, "CAIRN_KEY": "ALICEALICEALICE00001", "CAIRN_SECRET": secret}
        shared = subprocess.run([binary(), "share", "add", "objects/a/b/c"], env=env, capture_output=True, text=True)
        assert shared.returncode == 0, shared.stderr
        link = shared.stdout.strip().removeprefix(first.http)
        run(first, "backup", "create", *place, "--keys", first.directory)
        said = run(second, "restore", "--to-server", *place)
        assert "failed" not in said and "left" not in said, said

        alice = s3(second, "ALICEALICEALICE00001", secret)
        listed = {one["Key"]: one["ETag"] for one in alice.list_objects_v2(Bucket="objects")["Contents"]}
        before = s3(first).list_objects_v2(Bucket="objects")["Contents"]
        assert listed == {one["Key"]: one["ETag"] for one in before}
        got = alice.get_object(Bucket="objects", Key="a")
        assert (got["Body"].read(), got["ContentType"], got["Metadata"]) == (b"beside", "text/x-a", {"m": "1"})
        was = s3(first).get_object(Bucket="objects", Key="a")
        assert got["LastModified"] == was["LastModified"]
        for key, tags in (("a/b//c", [("k", "v")]), ("a/b/c", [("color", "red")])):
            found = alice.get_object_tagging(Bucket="objects", Key=key)["TagSet"]
            assert [(tag["Key"], tag["Value"]) for tag in found] == tags
        assert alice.get_bucket_tagging(Bucket="objects")["TagSet"] == [{"Key": "of", "Value": "alice"}]
        alice.put_object(Bucket="shared", Key="by-alice", Body=b"x")
        assert "alice" in run(second, "export", "ls")
        stat = run(second, "bucket", "stat", "shared")
        assert "alice:read,write" in stat and "1.00 GiB" in stat, stat
        curl = subprocess.run(["curl", "-sf", second.http + link], capture_output=True)
        assert curl.stdout == b"plain", link

        said = run(second, "restore", "--to-server", *place)
        assert " 0 files" in said and "users, keys" not in said, said
        # Without the key of the secrets, keys are named and nothing else is lacking.
        with Server() as third:
            run(first, "backup", "create", work / "plain")
            said = run(third, "restore", "--to-server", work / "plain", code=1)
            assert "failed access key ALICEALICEALICE00001" in said and "--secret-key" in said, said


def body(server, bucket, key):
    return s3(server).get_object(Bucket=bucket, Key=key)["Body"].read()


def test_objects_and_directories_of_one_name_come_back_beside_each_other():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        kept = {"a": b"a", "a/b": b"b", "logs": b"all", "x/y": b"y", "x/y/z": b"z", "x/y//w": b"w"}
        for server in (first, second):
            s3(server).create_bucket(Bucket="objects")
        for key, value in kept.items():
            s3(first).put_object(Bucket="objects", Key=key, Body=value)
        s3(second).put_object(Bucket="objects", Key="a", Body=b"another")
        s3(second).put_object(Bucket="objects", Key="logs/1", Body=b"one")
        place = work / "backup"
        run(first, "backup", "create", place)
        back = ["restore", place, "--to-server", "--bucket", "objects"]
        said = run(second, *back)
        assert "left objects/a: " in said and said.count("left ") == 1 and "failed" not in said, said
        listed = {one["Key"] for one in s3(second).list_objects_v2(Bucket="objects")["Contents"]}
        assert listed == set(kept) | {"logs/1"}
        assert body(second, "objects", "a") == b"another"
        said = run(second, *back)
        assert " 0 files" in said and said.count("left ") == 1, said
        said = run(second, *back, "--replace")
        assert "left" not in said and "failed" not in said, said
        for key, value in (kept | {"logs/1": b"one"}).items():
            assert body(second, "objects", key) == value, key
        assert "0 are not" in run(second, *back, "--check")
        # A path brings back both, also under other names.
        run(second, *back, "--path", "x/y", "--as", "copy/new")
        listed = {one["Key"] for one in s3(second).list_objects_v2(Bucket="copy")["Contents"]}
        assert listed == {"new", "new/z", "new//w"}
        assert body(second, "copy", "new") == b"y"
        second.stop()
        code, said = second.fsck()
        assert code == 0, said


def test_one_file_brings_no_settings_of_its_bucket():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as server:
        run(server, "bucket", "create", "www", "--visibility", "public")
        s3(server).put_object(Bucket="www", Key="f", Body=b"of the backup")
        place = work / "backup"
        run(server, "backup", "create", place)
        run(server, "bucket", "set", "www", "--visibility", "private")
        for some in (["--path", "f"], ["--prefix", "f"]):
            s3(server).put_object(Bucket="www", Key="f", Body=b"newer")
            said = run(server, "restore", place, "--to-server", "--bucket", "www", *some, "--replace")
            assert "left" not in said and "failed" not in said, said
            assert body(server, "www", "f") == b"of the backup"
            assert "private" in run(server, "bucket", "stat", "www")
        said = run(server, "restore", place, "--to-server", "--bucket", "www")
        assert "left www: the settings of the bucket" in said, said
        run(server, "restore", place, "--to-server", "--bucket", "www", "--replace")
        assert "public" in run(server, "bucket", "stat", "www")


def test_a_quota_and_a_read_only_bucket_come_back_after_the_files():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        run(first, "bucket", "create", "closed")
        with mounted(first, work, "closed", "one") as mount:
            os.setxattr(mount.root, "user.of", b"the bucket")
            for number in range(3):
                (mount.root / f"f{number}").write_text(str(number))
            wanted = seen(mount.root)
        # Fewer than there are.
        run(first, "bucket", "set", "closed", "--quota-files", "1")
        run(first, "read-only", "on", "closed")
        place = work / "backup"
        run(first, "backup", "create", place)
        said = run(second, "restore", place, "--to-server", "--bucket", "closed")
        assert "left" not in said and "failed" not in said, said
        assert contents(second, work, "closed") == wanted
        shown = run(second, "bucket", "stat", "closed")
        assert "quota of files 1\n" in shown, shown
        run(second, "restore", place, "--to-server", "--bucket", "closed", "--check")
        try:
            s3(second).put_object(Bucket="closed", Key="new", Body=b"x")
        except ClientError:
            pass
        else:
            raise AssertionError("the bucket takes changes")
        # Elsewhere a quota refuses one file after the other, and ends nothing.
        run(second, "bucket", "create", "narrow")
        run(second, "bucket", "set", "narrow", "--quota-files", "1")
        said = run(second, "restore", place, "--to-server", "--bucket", "closed", "--as", "narrow/d", code=1)
        assert said.count("failed narrow/d/f") == 2 and "quota" in said, said


def test_missing_hard_links_are_names_of_the_file_that_is_there():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as server:
        run(server, "bucket", "create", "tree")
        with mounted(server, work, "tree", "one") as mount:
            for name in ("d", "e"):
                (mount.root / name).mkdir()
            (mount.root / "d/first").write_bytes(b"one file")
            os.link(mount.root / "d/first", mount.root / "e/second")
            os.link(mount.root / "d/first", mount.root / "e/third")
            os.utime(mount.root / "d", ns=(10**18, 10**18 + 7))
            wanted = seen(mount.root)
        place = work / "backup"
        run(server, "backup", "create", place)
        with mounted(server, work, "tree", "two") as mount:
            (mount.root / "d/first").unlink()
            (mount.root / "e/second").unlink()
        said = run(server, "restore", place, "--to-server", "--bucket", "tree")
        assert "left" not in said and "failed" not in said and "2 files" in said, said
        found = contents(server, work, "tree")
        for path in ("d", "d/first", "e/second", "e/third"):
            assert found[path] == wanted[path], path


def test_an_export_of_a_directory_that_was_moved_is_listed():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        for server in (first, second):
            run(server, "key", "create", "alice")
        run(first, "bucket", "create", "tree")
        run(first, "bucket", "set", "tree", "--grant", "alice:read")
        with mounted(first, work, "tree", "one") as mount:
            (mount.root / "d").mkdir()
        run(first, "export", "add", "tree/d", "--client", "10.0.0.0/8", "--as", "alice")
        place = work / "backup"
        run(first, "backup", "create", place)
        said = run(second, "restore", place, "--to-server", "--bucket", "tree")
        assert "failed" not in said and "tree/d" in run(second, "export", "ls"), said
        run(second, "export", "remove", "tree")
        with mounted(first, work, "tree", "two") as mount:
            (mount.root / "d").rename(mount.root / "e")
            (mount.root / "d").mkdir()
        run(first, "backup", "create", place)
        said = run(second, "restore", place, "--to-server", "--bucket", "tree", code=1)
        assert "failed export of tree: its directory is not at d in the backup" in said, said
        assert "tree/d" not in run(second, "export", "ls")


def test_directories_on_the_way_to_a_damaged_file_are_finished():
    work = scratch("restores")
    work.chmod(0o755)
    with Server() as first, Server() as second:
        run(first, "bucket", "create", "tree")
        with mounted(first, work, "tree", "one") as mount:
            (mount.root / "a/b").mkdir(parents=True)
            (mount.root / "a/b/f").write_bytes(random.Random(5).randbytes(9 * MIB))
            os.chmod(mount.root / "a", 0o750)
        place = work / "backup"
        run(first, "backup", "create", place)
        pack = max((place / "packs").iterdir(), key=lambda path: path.stat().st_size)
        assert pack.stat().st_size > 9 * MIB
        with open(pack, "r+b") as file:
            os.pwrite(file.fileno(), bytes(1000), 5 * MIB)
        said = run(second, "restore", place, "--to-server", "--bucket", "tree", "--path", "a/b/f", code=1)
        assert "failed tree/a/b/f: in the backup: " in said, said
        with mounted(second, work, "tree", "two") as mount:
            assert stat.S_IMODE((mount.root / "a").stat().st_mode) == 0o750
            assert stat.S_IMODE((mount.root / "a/b").stat().st_mode) == 0o755
            assert not (mount.root / "a/b/f").exists()
