#!/usr/bin/env bash
# Measures what the black box costs: six host sources at 1 kHz, with a ring of 60 s and without, in
# turns, with the release binary, on the disk of cargo's target directory.
#
#     tests/blackbox.sh [PAIRS [SECONDS]]     default: 3 pairs of 80 s each
#
# Prints for both kinds of run, as medians over the pairs: CPU time (% of a core), lateness p99 of
# the samplers (median over the sources of the last segment), bytes of the ring at the end; then the
# targets: ring at most 32 MiB, at most 3 % of a core more, lateness p99 at most 1.1 x. At the end
# of each run with a ring, `flatcap snapshot --last 15s` is ordered, and the time until its directory
# is published is printed: at most 1 s. Exit status: 0 within all targets, 1 not, 2 could not run.
# Needs Python 3 and an idle machine: the load is printed.
set -euo pipefail
cd "$(dirname "$0")/.."

pairs=${1:-3}
seconds=${2:-80}
[[ $seconds =~ ^[0-9]+$ && $seconds -ge 20 ]] || { echo "blackbox: SECONDS is $seconds; write a number from 20 on" >&2; exit 2; }
cargo build --release --quiet --bin flatcap
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
exec python3 - "$target/release/flatcap" "$target" "$pairs" "$seconds" <<'PYTHON'
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from statistics import median

flatcap, target, pairs, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SOURCES = ["cpu", "memory", "vmstat", "disk", "network", "pressure"]
RING = '[blackbox]\nwindow = "60s"\ndisk_period = "100ms"\n'
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def command(place, *args):
    return subprocess.run([flatcap, *args], cwd=place, capture_output=True, text=True)


def run(has_ring):
    place = pathlib.Path(tempfile.mkdtemp(prefix="blackbox-", dir=target))
    memory = pathlib.Path(tempfile.mkdtemp(prefix="flatcap-blackbox-", dir="/dev/shm"))
    (place / "flatcap.toml").write_text(RING if has_ring else "")
    sources = [part for source in SOURCES for part in ("--source", f"{source}@1ms")]
    args = [flatcap, "record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data", *sources]
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(memory)}
    recorder = subprocess.Popen(args, cwd=place, env=environment)
    found = {}
    try:
        # The start opens sources and maps memory.
        time.sleep(5)
        began, used = time.monotonic(), cpu_s(recorder.pid)
        time.sleep(seconds - 5)
        found["cpu"] = (cpu_s(recorder.pid) - used) / (time.monotonic() - began) * 100
        socket = ["--socket", str(memory / "control.sock")]
        status = json.loads(command(place, "status", "--json", *socket).stdout)
        found["late"] = median(source["lateness_ns"]["p99"] for source in status["sources"]) / 1e3
        if has_ring:
            found["ring"] = status["ring"]["bytes"] / 2**20
            ordered = time.monotonic()
            said = command(place, "snapshot", "--last", "15s", *socket)
            if said.returncode != 0:
                sys.exit(f"blackbox: {said.stderr}")
            while not list((place / "data/snapshots").glob("*/snapshot.json")):
                time.sleep(0.005)
            found["durable"] = time.monotonic() - ordered
            size = sum(file.stat().st_size for file in (place / "data/snapshots").rglob("*") if file.is_file())
            found["snapshot"] = size / 2**20
    finally:
        recorder.send_signal(signal.SIGTERM)
        recorder.wait()
        shutil.rmtree(place)
        shutil.rmtree(memory)
    return found


runs = {False: [], True: []}
for pair in range(pairs):
    for has_ring in (False, True) if pair % 2 == 0 else (True, False):
        runs[has_ring].append(run(has_ring))
        print(f"{'with' if has_ring else 'without'} ring: {runs[has_ring][-1]}", file=sys.stderr)

load = os.getloadavg()[0]
print(f"{pairs} pairs of {seconds} s, six host sources at 1 kHz; load {load:.1f} at the end")
value = lambda has_ring, name: median(found[name] for found in runs[has_ring])
more = value(True, "cpu") - value(False, "cpu")
times = value(True, "late") / value(False, "late")
rows = [
    ("ring, MiB of tmpfs", value(True, "ring"), 32),
    ("CPU time more, % of a core", more, 3),
    ("lateness p99, times as much", times, 1.1),
    ("order to durable snapshot of 15 s, s", value(True, "durable"), 1),
]
for name, reached, most in rows:
    print(f"{name:40} {reached:10.3g}   at most {most:<5} {'reached' if reached <= most else 'NOT REACHED'}")
print(f"CPU time without and with, % of a core:  {value(False, 'cpu'):.3g} {value(True, 'cpu'):.3g}")
print(f"lateness p99 without and with, us:       {value(False, 'late'):.3g} {value(True, 'late'):.3g}")
print(f"the snapshot, MiB:                       {value(True, 'snapshot'):.3g}")
sys.exit(0 if all(reached <= most for _, reached, most in rows) else 1)
PYTHON
