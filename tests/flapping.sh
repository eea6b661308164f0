#!/usr/bin/env bash
# Proves that rules that flap stay within their limits: for an hour (or $1 seconds), a condition
# becomes true once a second and false again, without hold_off.
#
#     tests/flapping.sh [SECONDS]     default: 3600, at least 60
#
# Records the default sources and a triangle wave at 1 kHz with a ring. One rule may fire 10,000
# times a day, and makes a snapshot a second; another may fire an eighth as often as it would. Twice
# a second: the bytes and the number of all snapshots, at most keep_bytes and keep_count. Every ten
# seconds: the CPU time of the recorder, at most cpu_budget. At the end: each rule has fired at most
# max_per_day times, and the second one exactly so often; every firing is a snapshot or counted;
# every snapshot that is left is complete and passes verification; no sample is lost.
#
# Exit status: 0 if all holds, 1 if not, 2 if it could not run. Needs Python 3.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-3600}
[[ $seconds =~ ^[0-9]+$ && $seconds -ge 60 ]] || { echo "flapping: SECONDS is $seconds; write a number from 60 on" >&2; exit 2; }
cargo build --release --quiet --bin flatcap || exit 2
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
exec python3 - "$target/release/flatcap" "$target" "$seconds" <<'PYTHON'
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

flatcap, target, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
KEEP_BYTES, KEEP_COUNT, CPU_BUDGET = 1 << 20, 40, 0.25
PER_DAY = seconds // 8
CONFIG = f"""[recorder]
cpu_budget = "{CPU_BUDGET:.0%}"
[blackbox]
window = "10s"
keep_bytes = "1MiB"
keep_count = {KEEP_COUNT}
"""
RULE = """[trigger.{name}]
when = "synthetic.wave {condition}"
before = "200ms"
after = "100ms"
hold_off = "0s"
max_per_day = {most}
capture = []
"""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def command(*args):
    return subprocess.run([flatcap, *args], cwd=place, capture_output=True, text=True)


def held():
    """Returns bytes and number of the snapshots, those that are being written included."""
    size, count = 0, 0
    for directory, _, files in os.walk(place / "data/snapshots"):
        count += "snapshot.json" in files
        for name in files:
            try:
                size += os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                # Removed meanwhile.
                pass
    return size, count


def metrics():
    """Returns the metrics of the recorder: name with labels, and value."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(control))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        said = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    body = said.partition("\r\n\r\n")[2]
    lines = (line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def of_rule(found, name, rule):
    return int(found[f'{name}{{rule="{rule}"}}'])


def watch(recorder):
    """Returns the most bytes, the most snapshots and the largest share of a core."""
    bytes_most, count_most, share_most = 0, 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, used = time.monotonic(), cpu_s(recorder.pid)
        for _ in range(20):
            time.sleep(0.5)
            size, count = held()
            bytes_most, count_most = max(bytes_most, size), max(count_most, count)
        share = (cpu_s(recorder.pid) - used) / (time.monotonic() - began)
        share_most = max(share_most, share)
    return bytes_most, count_most, share_most


place = pathlib.Path(tempfile.mkdtemp(prefix="flapping-", dir=target))
memory = pathlib.Path(tempfile.mkdtemp(prefix="flatcap-flapping-", dir="/dev/shm"))
control = memory / "control.sock"
rules = {"often": ("> 0.98", 10_000), "limited": ("< 0.02", PER_DAY)}
text = CONFIG + "".join(
    RULE.format(name=name, condition=condition, most=most) for name, (condition, most) in rules.items()
)
(place / "flatcap.toml").write_text(text)
args = [flatcap, "record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data"]
args += ["--source", "+synthetic@1ms"]
log = open(place / "log", "w")
recorder = subprocess.Popen(args, cwd=place, env={**os.environ, "RUNTIME_DIRECTORY": str(memory)}, stderr=log)
failed = []


def judge(what, reached, holds, limit):
    print(f"{what:44} {reached:>12}   {limit:<16} {'reached' if holds else 'NOT REACHED'}")
    failed.extend([] if holds else [what])


try:
    time.sleep(2)
    bytes_most, count_most, share_most = watch(recorder)
    found, used = metrics(), cpu_s(recorder.pid)
    recorder.send_signal(signal.SIGTERM)
    ended = recorder.wait()
    print(f"{seconds} s, two rules that flap once a second; load {os.getloadavg()[0]:.1f} at the end")
    judge("snapshots, most bytes", bytes_most, bytes_most <= KEEP_BYTES, f"<= {KEEP_BYTES}")
    judge("snapshots, most", count_most, count_most <= KEEP_COUNT, f"<= {KEEP_COUNT}")
    judge("CPU time in 10 s, most, of a core", f"{share_most:.1%}", share_most <= CPU_BUDGET, f"<= {CPU_BUDGET:.0%}")
    print(f"{'CPU time of the whole run, of a core':44} {used / (seconds + 2):>12.1%}")
    for name, (_, most) in rules.items():
        fired = of_rule(found, "flatcap_trigger_fired_total", name)
        judge(f"rule {name}: fired", fired, 0 < fired <= most, f"<= {most}")
    fired = of_rule(found, "flatcap_trigger_fired_total", "limited")
    judge("rule limited: as often as it may", fired, fired == PER_DAY, f"= {PER_DAY}")
    ordered, kept = found["flatcap_snapshots_ordered_total"], found["flatcap_snapshots_kept_total"]
    lost = found["flatcap_snapshots_failed_total"]
    print(f"snapshots: {ordered:.0f} ordered, {kept:.0f} kept, {lost:.0f} failed, {found['flatcap_snapshots_incomplete_total']:.0f} incomplete")
    judge("snapshots that failed", int(lost), lost == 0, "= 0")
    left = json.loads(command("snapshots", "--json", "--dir", "data").stdout)
    whole = [snapshot for snapshot in left if snapshot["complete"]]
    judge("snapshots left that are complete", f"{len(whole)} of {len(left)}", left and whole == left, "all")
    intact = [command("verify", str(place / snapshot["path"])).returncode == 0 for snapshot in left]
    judge("snapshots left that pass verification", sum(intact), all(intact), "all")
    judge("exit status of the recorder", ended, ended == 0, "= 0: none lost")
finally:
    if recorder.poll() is None:
        recorder.kill()
        recorder.wait()
    if failed:
        print((place / "log").read_text()[-2000:], file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(memory, ignore_errors=True)
sys.exit(1 if failed else 0)
PYTHON
