#!/bin/bash
# curl with Cairn: objects, listings, appends, a rename, a share link, a zip archive.
#
# To run it, start `cairn server ./data`, and set the credentials that were printed:
#
#     export CAIRN_KEY=CK... CAIRN_SECRET=...
#     examples/http.sh                  # CAIRN_SERVER names another address than http://127.0.0.1:8080
#
# It makes a bucket `example-http-...`, and deletes it at its end.
set -euo pipefail

server=${CAIRN_SERVER:-http://127.0.0.1:8080}
bucket=example-http-$$
store=$server/storage/$bucket
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# -f: a refusal ends the script, and its text names the reason.
ask() { curl --fail-with-body -sS -u "$CAIRN_KEY:$CAIRN_SECRET" "$@"; }

ask -X PUT "$store"                                        # a private bucket

# An object. When curl returns, it is on disk.
echo hello >hello.txt
ask -T hello.txt -H 'Content-Type: text/plain' "$store/notes/hello.txt"
ask "$store/notes/hello.txt" | cmp - hello.txt
ask -r 0-3 "$store/notes/hello.txt"; echo                  # a range: hell
ask -I "$store/notes/hello.txt"                            # type, length, ETag, time

# It is made only if there is none: the second one gets 412.
ask -T hello.txt -H 'If-None-Match: *' "$store/once.txt"
status=$(curl -s -o refusal -w '%{http_code}' -u "$CAIRN_KEY:$CAIRN_SECRET" \
    -T hello.txt -H 'If-None-Match: *' "$store/once.txt")
[ "$status" = 412 ] || { echo "expected 412, not $status" >&2; exit 1; }

# Lines from any number of writers: each is appended in one piece.
for line in one two three; do
    ask -X POST -d "$line" "$store/diary.txt?append" >/dev/null
done
[ "$(ask "$store/diary.txt" | wc -l)" = 3 ]

ask -X POST "$store/once.txt?move-to=notes/twice.txt"      # a rename, in one step

# Listings, cut at the next slash or not.
ask "$store/"; echo
ask "$store/?recursive"; echo

# All below notes/ as one file.
ask -o notes.zip "$store/notes/?zip"
python3 -m zipfile -l notes.zip

# A link for somebody without credentials: one hour, three downloads.
ask -H 'Content-Type: application/json' "$server/shares" \
    -d "{\"bucket\": \"$bucket\", \"key\": \"notes/hello.txt\", \"expires_s\": 3600, \"downloads\": 3}" >link.json
path=$(python3 -c 'import json; print(json.load(open("link.json"))["path"])')
curl --fail -sS "$server$path" | cmp - hello.txt

# Everything in it, up to 1,000 objects at a time; there is no way back.
until [ "$(ask -X DELETE "$store?content")" = '{"more":false}' ]; do :; done
ask -X DELETE "$store"
echo done
