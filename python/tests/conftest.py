"""Recordings for the tests: a second of this host, and the conformance files of the format."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("FLATCAP", ROOT / "target/debug/flatcap"))
CONFORMANCE = sorted((ROOT / "tests/conformance").glob("*.bin"))
SOURCES = ["cpu@10ms", "memory@50ms", "disk@20ms", "network@20ms", "pressure@50ms", "process@100ms", "load@100ms"]


def flatcap(*arguments):
    """Runs the command. Returns its output."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A recorded second of this host, with a mark."""
    path = tmp_path_factory.mktemp("recording") / "data"
    chosen = [argument for source in SOURCES for argument in ("--source", source)]
    flatcap("record", "--data-dir", path, "--for", "1500ms", *chosen)
    return path


@pytest.fixture(scope="session")
def recording(folder):
    import flatcap

    return flatcap.open(folder)
