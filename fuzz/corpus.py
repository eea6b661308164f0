"""Regenerates fuzz/corpus/<target>/, always with the same content: golden frames of flatstream 0.2.7,
the schemas and payloads of tests/data/schema, and cut and bit-flipped copies of them.

Usage: python3 fuzz/corpus.py ../shared/data/flatstream
"""

import pathlib
import shutil
import struct
import sys

golden = pathlib.Path(sys.argv[1])
corpus = pathlib.Path(__file__).parent / "corpus"
HEADER_BYTES = {"default": 4, "crc16": 6, "crc32": 8, "xxhash64": 12}


def flip(data, bit):
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


files = {"nothing": b"", "zeros": bytes(200), "ones": b"\xff" * 12}
for kind, header in HEADER_BYTES.items():
    empty, small, medium = (
        bytes.fromhex((golden / f"{kind}_{size}.hex").read_text()) for size in ("empty", "small", "medium")
    )
    stream = small + empty + small + small + small
    inner = (len(stream)).to_bytes(4, "little") + bytes(header - 4) + stream
    files |= {
        f"{kind}_stream": stream,
        f"{kind}_medium": small + medium + small,
        f"{kind}_cut": stream[: -len(small) // 2],
        f"{kind}_length": flip(stream, 2),
        f"{kind}_length_high": flip(stream, 30),
        f"{kind}_payload": flip(stream, 8 * len(small) - 1),
        f"{kind}_checksum": flip(stream, 8 * (header - 1)),
        f"{kind}_zeros": small + bytes(100) + stream,
        f"{kind}_removed": stream[:5] + stream[9:],
        f"{kind}_inner": inner + stream,
    }


def chain(length):
    """Returns `length` nested tables, each in field 1 of its parent, by one vtable; the last is empty."""
    data = struct.pack("<I6H", 16, 8, 8, 0, 4, 4, 4)
    for _ in range(length - 1):
        data += struct.pack("<iI", len(data) - 4, 4)
    return data + struct.pack("<i", len(data) - 12)


def reflected(root, schema, payload):
    root = f"flatcap.{root}".encode()
    return bytes([len(root)]) + root + len(schema).to_bytes(2, "little") + schema + payload


def schema_files():
    home = pathlib.Path(__file__).parent.parent
    kept = home / "tests" / "data" / "schema"
    yield "nothing", b""
    for name, root in (("shapes", "test.Shapes"), ("marked", "test.Marked"), ("event", "test.Event")):
        schema, payload = (kept / f"{name}.bfbs").read_bytes(), (kept / f"{name}.bin").read_bytes()
        yield name, reflected(root, schema, payload)
        yield f"{name}_cut", reflected(root, schema, payload[: len(payload) // 2])
        yield f"{name}_flip", reflected(root, schema, flip(payload, 8 * (len(payload) // 3)))
        yield f"{name}_schema_flip", reflected(root, flip(schema, 8 * (len(schema) // 3)), payload)
    schema = (kept / "recursive.bfbs").read_bytes()
    yield "recursive", reflected("test.Node", schema, chain(16))
    yield "recursive_deep", reflected("test.Node", schema, chain(17))
    yield "unions", reflected("test.ChosenList", schema, chain(1))
    yield "cpu_empty", reflected("host.Cpu", (home / "generated/host/cpu.bfbs").read_bytes(), chain(1))


def write(target, files):
    folder = corpus / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


for target in ("deframe", "slice", "recover"):
    write(target, files)
write("reflect", dict(schema_files()))
