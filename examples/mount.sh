#!/bin/bash
# The store as a file system: what is written in a mount is at once at all other doors, and the other way round.
#
# To run it, start `cairn server ./data`, set the credentials that were printed, and run it as root, or as another
# user with the package `fuse3`:
#
#     export CAIRN_KEY=CK... CAIRN_SECRET=...
#     examples/mount.sh                 # CAIRN_SERVER names another address than http://127.0.0.1:8080
#
# `cairn` must be in the PATH. The script makes a bucket `example-mount-...`, and deletes it at its end.
set -euo pipefail

export CAIRN_SERVER=${CAIRN_SERVER:-http://127.0.0.1:8080}
bucket=example-mount-$$
point=$(mktemp -d)
trap 'umount "$point" 2>/dev/null || fusermount3 -u "$point" 2>/dev/null || true; rmdir "$point"' EXIT

cairn bucket create "$bucket"                       # in a mount each bucket is a directory
cairn mount "$CAIRN_SERVER" "$point"                # returns when it is mounted

# From the mount to the other doors.
mkdir -p "$point/$bucket/trip"
echo 'sea, sun' >"$point/$bucket/trip/diary.txt"    # visible everywhere when the shell has closed it
sync "$point/$bucket/trip/diary.txt"                # and durable after fsync
[ "$(cairn get "$bucket/trip/diary.txt" -)" = 'sea, sun' ]

# From another door to the mount, without a delay.
echo 'a photo' | cairn put - "$bucket/trip/photo.jpg"
[ "$(cat "$point/$bucket/trip/photo.jpg")" = 'a photo' ]

# A rename is one step, and so it is for readers at every door.
mv "$point/$bucket/trip" "$point/$bucket/holiday"
cairn ls -r "$bucket"

# Locks hold on all mounts of the store.
flock "$point/$bucket/holiday/diary.txt" echo locked

cairn stats "$point" | head -5                      # requests, latencies, calls to the server

rm -r "$point/$bucket/holiday"
umount "$point" 2>/dev/null || fusermount3 -u "$point"
cairn bucket rm "$bucket"
echo done
