"""restic, unchanged: backup, check of all data, restore."""

from harness import hashes, tree


def test_backup_check_restore(server, any_bucket, shell, work):
    source = tree.build(work / "source", 1500)
    expected = tree.digests(source)
    env = {
        "RESTIC_REPOSITORY": f"s3:{server.s3}/{any_bucket}/repo",
        "RESTIC_PASSWORD": "correct horse",
        "RESTIC_CACHE_DIR": str(work / "cache"),
        "RESTIC_PROGRESS_FPS": "0.1",
    }

    def restic(*arguments):
        return shell("restic", *arguments, env=env, cwd=work)

    restic("init")
    restic("backup", "source")
    # restic names its data by their sha256: the other door can check them without restic.
    for name, digest in hashes.through(server, "http", any_bucket, "repo/data/").items():
        assert name.split("/")[-1] == digest
    server.restart()
    restic("check", "--read-data")
    restic("restore", "latest", "--target", "back")
    tree.assert_same(expected, tree.digests(work / "back/source"))

    (source / "more").write_bytes(b"more")
    restic("backup", "source")
    restic("forget", "--keep-last", "1", "--prune")
    restic("check", "--read-data")
    assert "1 snapshots" in restic("snapshots").stdout
