"""Makes fuzz/corpus/<target>/ anew, the same each time: golden frames of flatstream 0.2.7, their cuts and their flips.

python3 fuzz/corpus.py ../shared/data/flatstream
"""

import pathlib
import shutil
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
for target in ("deframe", "slice", "recover"):
    folder = corpus / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
