"""Stock programs in a guest, on what it has mounted."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from nfs import guest, rpc

FILES = int(os.environ.get("CAIRN_TEST_NFS_PROGRAM_FILES", 6))
FOUND = int(os.environ.get("CAIRN_TEST_NFS_FOUND", 2000))
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")

TREE = """
mkdir -p tree/a tree/b/c; i=0
while [ $i -lt {files} ]; do
    for at in tree tree/a tree/b/c; do echo "$i of $at" > $at/file$i; done
    ln -s file$i tree/a/link$i; i=$((i+1))
done
head -c 3000000 /dev/urandom > tree/large; chmod 4751 tree/a/file0; mkfifo tree/pipe
"""
GIT = """
ln -s git /programs/git-upload-pack
git config --global init.templateDir /tmp; git config --global user.name test; git config --global user.email test@example.com
git init -q -b main repository; cd repository
cp -r ../tree/a ../tree/b .; git add .; git commit -q -m one
git mv b d; echo more >> a/file0; git commit -q -a -m two; git repack -q -a -d
cd ..; git clone -q --no-local repository clone; git -C clone fsck --full --strict
test "$(git -C clone rev-parse HEAD)" = "$(git -C repository rev-parse HEAD)"
test -z "$(git -C clone status --porcelain)"
diff -r tree/b clone/d
"""
SQLITE = """
for mode in delete wal; do
    echo "pragma journal_mode=$mode; create table t (n integer primary key, v blob);" > /tmp/sql
    i=0; while [ $i -lt 5 ]; do
        echo "begin; with recursive c(x) as (select 1 union all select x+1 from c where x<{files})
              insert into t(v) select randomblob(500) from c; commit;
              update t set v = randomblob(700) where n % 3 = 0; delete from t where n % 7 = 0;"
        i=$((i+1))
    done >> /tmp/sql
    echo "vacuum; pragma integrity_check;" >> /tmp/sql
    sqlite3 $mode.db < /tmp/sql | tail -n 1 | grep -qx ok
    test "$(sqlite3 $mode.db 'select count(*) > 0 from t')" = 1
done
"""
TAR = """
/programs/tar -cf /tmp/tar tree; mkdir out; /programs/tar -xpf /tmp/tar -C out; rm out/tree/pipe
cp -r tree kept; rm kept/pipe; diff -r kept out/tree
test "$(stat -c %a out/tree/a/file0)" = 4751; test "$(readlink out/tree/a/link0)" = file0
/programs/tar -df /tmp/tar --exclude=pipe -C out
"""
RSYNC = """
rsync -a tree/ synced/; test -z "$(rsync -ai --checksum tree/ synced/)"
echo changed > tree/a/file1; rm tree/b/c/file1
rsync -a --inplace --delete tree/ synced/; test -z "$(rsync -ai --delete --checksum tree/ synced/)"
rm -rf synced; test ! -e synced
"""
COMPILE = """
mkdir build; cd build; i=0; echo 'int main(void){{int s=0;' > main.body
while [ $i -lt {files} ]; do
    echo "int f$i(int x) {{ return x + $i; }}" > f$i.c; echo "int f$i(int);" >> main.c
    echo "s = f$i(s);" >> main.body; i=$((i+1))
done
(echo '#include <stdio.h>'; cat main.c main.body; echo 'printf("%d\\n", s); return 0;}}') > all.c
mv all.c main.c; for file in *.c; do tcc -c $file; done; tcc -L/lib64 -o sum *.o
test "$(./sum)" = $(({files} * ({files} - 1) / 2))
"""


def compiler():
    """tcc with what a program of C is made of."""
    files = guest.programs("tcc")
    needed = [LIBRARIES / name for name in ("crt1.o", "crti.o", "crtn.o", "libc.so", "libc.so.6")]
    needed += [LIBRARIES / "libc_nonshared.a", *(LIBRARIES / "tcc").rglob("*")]
    said = subprocess.run(
        ["cc", "-M", "-xc", "-"], input="#include <stdio.h>\n", capture_output=True, text=True
    )
    needed += map(Path, re.findall(r"/usr/\S+", said.stdout))
    return files | {str(at).lstrip("/"): at.read_bytes() for at in needed if at.is_file()}


@pytest.fixture
def client(nfs, exported, work):
    more = guest.programs("git", "sqlite3", "tar", "rsync") | compiler()
    with guest.Guest(work / "guest", nfs.port, exported, more) as client:
        yield client


@guest.ready
def test_programs_find_a_file_system(client):
    client.do("run", TREE.format(files=FILES))
    for script in (TAR, GIT, SQLITE, RSYNC, COMPILE):
        client.do("forget")
        client.do("run", script.format(files=FILES))


@guest.ready
def test_a_directory_of_many_files(nfs, exported, work):
    maker = rpc.Client(nfs.nfs)
    top = maker.mount(f"/{exported}")
    many = maker.made(rpc.mkdir(top, "many"))
    maker.all_made([rpc.create(many, f"file-{number}") for number in range(FOUND)])
    with guest.Guest(work / "guest", nfs.port, exported) as client:
        assert client.do("run", "find many -type f | wc -l").strip() == str(FOUND)
        names = client.do("run", "find many -name 'file-*' | sort -u | wc -l")
        assert names.strip() == str(FOUND)
        client.do("run", "find many -name '*7' | xargs rm")
        left = sum(number % 10 != 7 for number in range(FOUND))
        assert client.do("run", "ls many | wc -l").strip() == str(left)
