"""The rows of the metadata of a server that runs, from a dump of them (docs/format-dump.md)."""

import struct

# What users see: names, files, contents, buckets, their usage, uploads, users and their credentials,
# and settings. Not sessions, replies that are kept, garbage, locks and numbers that are reserved.
SEEN = {b"i", b"d", b"t", b"x", b"u", b"p", b"b", b"n", b"k", b"c"}
COUNTERS = (b"cnext_", b"cowned_epoch")


def rows(root):
    """What users see, as {key: value}; `root` is root's client of the HTTP door."""
    reply = root.request("GET", "/admin/meta/dump")
    assert reply.status == 200, reply
    data, at, found = reply.body, 36, {}
    assert data[:8] == b"CAIRNDMP"
    while data[at : at + 4] == b"SECT":
        (count,) = struct.unpack_from("<I", data, at + 4)
        at += 32
        for _ in range(count):
            key_length, length = struct.unpack_from("<HI", data, at)
            at += 6
            key, value = data[at : at + key_length], data[at + key_length : at + key_length + length]
            at += key_length + length
            if key[:1] in SEEN and not key.startswith(COUNTERS):
                found[key] = value
    assert data[at : at + 4] == b"TAIL"
    # Parts of an upload that ended are collected some time later, and nobody sees them.
    uploads = {key[-8:] for key in found if key[:1] == b"u"}
    return {key: value for key, value in found.items() if key[:1] != b"p" or key[1:9] in uploads}

