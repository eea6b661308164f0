#!/usr/bin/env bash
# Proves that the black box keeps a stall of storage: a device stops for 40 ms once in five minutes
# (or in $1 seconds), while a program writes to it.
#
#     tests/stall.sh [SECONDS]     default: 300, at least 60
#
# Records six host sources at 1 kHz, processes, and context switches in the ring alone, with the
# rule device-stall of config/triggers.toml. The device is a loop device over a file in a file
# system that is frozen for 40 ms. Then there must be one snapshot of at most 5 MB, and `explain` of
# it must show the device and the program that waited. Prints what `explain` says.
#
# Exit status: 0 if all holds, 1 if not, 2 if it could not run. Needs root, loop devices, mkfs.ext4
# and Python 3. If other devices stall during the test, their firings are real, so the machine
# should be idle.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-300}
[[ $seconds =~ ^[0-9]+$ && $seconds -ge 60 ]] || { echo "stall: SECONDS is $seconds; write a number from 60 on" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "stall: needs root to mount and to freeze" >&2; exit 2; }
cargo build --release --quiet --bin flatcap || exit 2
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
exec unshare --mount python3 - "$target/release/flatcap" "$seconds" config/triggers.toml <<'PYTHON'
import ctypes
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

flatcap, seconds = sys.argv[1], int(sys.argv[2])
rule = pathlib.Path(sys.argv[3]).read_text().split("[trigger.device-stall]\nenabled = false\n")[1].split("\n\n")[0]
SOURCES = ["cpu", "memory", "vmstat", "disk", "network", "pressure"]
CONFIG = """[blackbox]
window = "60s"
disk_period = "100ms"
[source.sched]
enabled = true
mode = "armed"
budget = "20%"
"""
STALL_S = 0.04
SNAPSHOT_BYTES_MAX = 5_000_000
# linux/fs.h, linux/prctl.h
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


class CannotRun(Exception):
    """Something that the test needs is missing."""


def call(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(args)}: {done.stderr.strip()}")
    return done.stdout.strip()


def asked(*args):
    return subprocess.run([flatcap, *args], cwd=place, capture_output=True, text=True).stdout


def write_forever(path):
    """Starts a program `writer` that writes and syncs 200 times a second. Returns its id."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(PR_SET_NAME, b"writer", 0, 0, 0)
        with open(path, "r+b", buffering=0) as file:
            while True:
                file.seek(0)
                file.write(os.urandom(4096))
                os.fdatasync(file.fileno())
                time.sleep(0.005)
    finally:
        os._exit(1)


def stall(mount):
    """Freezes a file system for a while. Returns when that began, and how long it took in ms."""
    frozen = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(frozen, FIFREEZE, 0)
        began = time.time_ns()
        try:
            time.sleep(STALL_S)
        finally:
            fcntl.ioctl(frozen, FITHAW, 0)
        return began, (time.time_ns() - began) / 1e6
    finally:
        os.close(frozen)


def mount_images():
    """Mounts a file system whose device is a file in another one. Returns both mounts."""
    images = place / "images"
    images.mkdir()
    # In memory, so that only what is frozen delays a write.
    call("mount", "-t", "tmpfs", "-o", "size=160M", "none", str(images))
    mounted.append(images)
    image = images / "outer.ext4"
    for mount, size in ((place / "outer", 128 << 20), (place / "inner", 64 << 20)):
        # Written out, so that the inner one needs no space of the outer one.
        with open(image, "wb") as file:
            file.write(b"\1" * size)
        call("mkfs.ext4", "-q", "-E", "nodiscard", "-F", str(image))
        mount.mkdir()
        call("mount", "-o", "loop", str(image), str(mount))
        mounted.append(mount)
        image = mount / "inner.ext4"
    return mounted[1:]


def judge(began, device):
    """Returns what of the targets is not reached."""
    found = json.loads(asked("snapshots", "--json", "--dir", "data"))
    failed = [] if len(found) == 1 else [f"{len(found)} snapshots instead of one"]
    for snapshot in found:
        path = str(place / snapshot["path"])
        size = sum(file.stat().st_size for file in pathlib.Path(path).rglob("*") if file.is_file())
        fired = (snapshot["fired_wall_ns"] - began) / 1e6
        print(f"{snapshot['name']}: {size / 1e6:.2f} MB, fired {fired:.1f} ms after the stall began")
        print(asked("explain", path))
        failed += [f"{size} bytes"] if size > SNAPSHOT_BYTES_MAX else []
        said = json.loads(asked("explain", path, "--json"))
        slept = [sleep["longest_ns"] for sleep in said["sleeps"] if sleep["name"] == "writer"]
        if max(slept, default=0) < STALL_S * 0.75e9:
            failed.append(f"the writer slept {slept} ns")
        if not any(f"({device}: " in marker["text"] for marker in said["markers"]):
            failed.append(f"no mark names {device}: {said['markers']}")
    return failed


place = pathlib.Path(tempfile.mkdtemp(prefix="flatcap-stall-"))
memory = pathlib.Path(tempfile.mkdtemp(prefix="flatcap-stall-", dir="/dev/shm"))
mounted, writer, recorder, status = [], None, None, 2
try:
    outer, inner = mount_images()
    device = pathlib.Path(call("findmnt", "-no", "SOURCE", str(inner))).name
    (inner / "file").write_bytes(bytes(4096))
    writer = write_forever(inner / "file")
    (place / "flatcap.toml").write_text(f"{CONFIG}[trigger.device-stall]\n{rule}\n")
    sources = [part for source in SOURCES for part in ("--source", f"{source}@1ms")]
    sources += ["--source", "process", "--source", "sched"]
    args = [flatcap, "record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data", *sources]
    recorder = subprocess.Popen(args, cwd=place, env={**os.environ, "RUNTIME_DIRECTORY": str(memory)})
    before_s = random.uniform(20, seconds - 20)
    time.sleep(before_s)
    began, lasted = stall(outer)
    print(f"{device} was stalled for {lasted:.1f} ms after {before_s:.0f} s")
    time.sleep(seconds - before_s)
    recorder.send_signal(signal.SIGTERM)
    ended = recorder.wait()
    # 3: it has lost samples, and says so.
    if ended not in (0, 3):
        raise CannotRun(f"the recorder ended with {ended}")
    failed = judge(began, device)
    for line in failed:
        print(f"NOT REACHED: {line}")
    status = 1 if failed else 0
except CannotRun as error:
    print(f"stall: {error}", file=sys.stderr)
finally:
    if recorder and recorder.poll() is None:
        recorder.kill()
        recorder.wait()
    if writer:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    for mount in reversed(mounted):
        subprocess.run(["umount", str(mount)])
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(memory, ignore_errors=True)
sys.exit(status)
PYTHON
