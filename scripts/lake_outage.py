#!/usr/bin/env python3
"""A store that is away: what the recorder notices, and how the backlog drains.

    scripts/lake_outage.py --backlog DIR [--away SECONDS] [--retain BYTES] [--keep DIR]

A recorder works in a directory that already holds the recording in --backlog, say that of a day,
as if the store had been away so long. It runs alone, then beside `flatcap-ship run` without a
store, where a snapshot is ordered, and then while an S3 (moto) that has come back takes the
backlog. Prints the lateness of the samplers in each part, and what was lost; checks that the
directory never exceeds --retain, that snapshots are shipped first and segments by age, and that
every segment of the backlog has a manifest or was reported as removed. Needs the programs in
target/release or PROGRAMS, and in the interpreter `moto[server]` and boto3.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(os.environ.get("PROGRAMS", ROOT / "target/release"))
PORT = 5577
ALONE_S = 60


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backlog", type=Path, required=True, help="recording that waits for the store"
    )
    parser.add_argument("--away", type=int, default=120, help="seconds with ship, without a store")
    parser.add_argument(
        "--retain", type=int, default=0, help="retain_bytes; 0: no limit but the disk's"
    )
    parser.add_argument("--keep", type=Path, help="leave everything there")
    return parser.parse_args()


class Outage:
    """The recorder, its directory, and the service that ships it."""

    def __init__(self, work, options):
        self.data = work / "recording"
        self.socket = work / "control.sock"
        self.status_file = work / "status.json"
        self.log = work / "ship.log"
        self.record_log = work / "record.log"
        self.data.mkdir(parents=True)
        self.retain = options.retain
        self.largest = 0
        self.processes = []
        for segment in options.backlog.glob("*.bin"):
            shutil.copy(segment, self.data)
        receipts = work / "receipts"
        receipts.touch()
        retain = f'retain_bytes = "{self.retain}B"\n' if self.retain else ""
        self.record_toml = work / "record.toml"
        self.record_toml.write_text(
            f'[storage]\nsegment_age = "20s"\nsegment_size = "64MiB"\nmin_free = "0"\n{retain}'
            f'keep_until_shipped = "{receipts}"\n'
            f'[control]\nsocket = "{self.socket}"\n[blackbox]\nwindow = "30s"\n'
            f'[recorder]\nrun_dir = "{work / "run"}"\n'
        )
        self.ship_toml = work / "ship.toml"
        self.ship_toml.write_text(
            f'[ship]\ndata_dir = "{self.data}"\nto = "s3://lake"\nhost = "outage"\n'
            f'status_file = "{self.status_file}"\nreceipts = "{receipts}"\n'
        )
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self, program, *args, log=subprocess.DEVNULL):
        started = subprocess.Popen([program, *args], stdout=subprocess.DEVNULL, stderr=log)
        self.processes.append(started)
        return started

    def end(self):
        """Ends what still runs, as after a failed check."""
        for process in self.processes:
            process.kill()
            process.wait()

    def look(self, seconds, until=lambda: False):
        """Waits, and notes the largest size of the directory."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            sizes = []
            for path in self.data.rglob("*"):
                try:
                    sizes.append(path.stat().st_blocks * 512)
                except FileNotFoundError:
                    pass
            self.largest = max(self.largest, sum(sizes))
            time.sleep(1)

    def is_drained(self):
        """Returns whether everything was shipped since the service started."""
        try:
            return json.loads(self.status_file.read_text())["complete"] is not None
        except (FileNotFoundError, json.JSONDecodeError):
            return False

    def backlog(self):
        """Returns the lines of the service that say what waits."""
        command = [PROGRAMS / "flatcap-ship", "status", "--config", self.ship_toml]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        return (shown.stdout + shown.stderr).strip()

    def lateness(self, since, until):
        """Returns the median of the samplers' p99 of lateness in a time, in microseconds."""
        command = [PROGRAMS / "flatcap", "dump", self.data, "--source", "self", "--format", "jsonl"]
        times = ["--since", f"@{since:.3f}", "--until", f"@{until:.3f}"]
        shown = subprocess.run([*command, *times], capture_output=True, text=True, check=False)
        found = []
        for line in shown.stdout.splitlines():
            sources = json.loads(line).get("data", {}).get("sources", [])
            found += [
                source["lateness"]["p99_ns"] / 1000
                for source in sources
                if source.get("lateness", {}).get("p99_ns")
            ]
        return statistics.median(found) if found else None


def wait_for_bucket(client):
    for _ in range(200):
        try:
            return client.create_bucket(Bucket="lake")
        except Exception:  # not there yet, in one of many ways
            time.sleep(0.1)
    sys.exit("moto did not start")


def shipped(client, kind):
    """Returns the manifests of segments or snapshots, and when they were put, in that order."""
    found = []
    for page in client.get_paginator("list_objects_v2").paginate(
        Bucket="lake", Prefix=f"v1/{kind}/"
    ):
        for item in page.get("Contents", []):
            body = client.get_object(Bucket="lake", Key=item["Key"])["Body"].read()
            found.append((item["LastModified"], json.loads(body)))
    return sorted(found, key=lambda entry: entry[0])


def run(outage, options):
    before = {path.name for path in outage.data.glob("*.bin")}
    recorder = outage.start(
        PROGRAMS / "flatcap",
        "record",
        "--config",
        outage.record_toml,
        "--quiet",
        "--data-dir",
        outage.data,
        log=outage.record_log.open("w"),
    )
    time.sleep(5)
    if recorder.poll() is not None:
        sys.exit(outage.record_log.read_text())
    times = [time.time()]
    outage.look(ALONE_S)
    times.append(time.time())
    with outage.log.open("w") as log:
        ship = outage.start(PROGRAMS / "flatcap-ship", "run", "--config", outage.ship_toml, log=log)
    outage.look(options.away / 2)
    ordered = subprocess.run(
        [
            PROGRAMS / "flatcap",
            "snapshot",
            "--last",
            "10s",
            "--reason",
            "away",
            "--socket",
            outage.socket,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    print("snapshot:", (ordered.stdout + ordered.stderr).strip())
    outage.look(options.away / 2)
    print(f"without the store:\n{outage.backlog()}")
    times.append(time.time())
    moto = Path(sys.executable).parent / "moto_server"
    outage.start(moto, "--host", "127.0.0.1", "--port", str(PORT))
    client = boto3.client("s3")
    wait_for_bucket(client)
    began = time.monotonic()
    outage.look(3600, outage.is_drained)
    drained = time.monotonic() - began
    times.append(time.time())
    print(f"drained in {drained:.0f} s:\n{outage.backlog()}")
    for process in (ship, recorder):
        process.send_signal(signal.SIGTERM)
        process.wait()
    check(outage, client, before, times)


def check(outage, client, before, times):
    segments, snapshots = shipped(client, "_segments"), shipped(client, "_snapshots")
    print(f"{len(segments)} segments and {len(snapshots)} snapshots have manifests")
    assert snapshots and snapshots[0][0] <= segments[0][0], "the snapshot was not shipped first"
    # The store knows when an object was put to the second.
    ages = [(put, manifest["created"]) for put, manifest in segments]
    by_age = sorted(ages, key=lambda entry: entry[1])
    assert [put for put, _ in by_age] == [put for put, _ in ages], "not shipped by age"
    names = {manifest["file"] for _, manifest in segments}
    there = {path.name for path in outage.data.glob("*.bin")}
    assert before & there <= names, f"not shipped: {sorted(before & there - names)}"
    removed = before - there - names
    said = outage.log.read_text() + outage.record_log.read_text()
    print(f"{len(removed)} segments were removed by retention before they could be shipped")
    assert all(name in said for name in removed), "a removed segment was not reported"
    held, limit = outage.largest / 1e6, outage.retain / 1e6
    print(f"largest size of the directory: {held:.0f} MB, retain_bytes {limit:.0f} MB")
    assert not outage.retain or outage.largest <= outage.retain, "retention did not hold"
    for what, since, until in zip(["alone", "without the store", "draining"], times, times[1:]):
        print(f"lateness {what}: {outage.lateness(since, until)} us")
    verified = subprocess.run(
        [PROGRAMS / "flatcap", "verify", outage.data], capture_output=True, text=True, check=False
    )
    print(verified.stdout.strip().splitlines()[-1])
    assert verified.returncode == 0, verified.stdout + verified.stderr


def main():
    options = arguments()
    if not any(options.backlog.glob("*.bin")):
        sys.exit(f"{options.backlog}: no segments; --backlog is the directory of a recording")
    work = options.keep or Path(tempfile.mkdtemp())
    outage = Outage(work.resolve(), options)
    try:
        run(outage, options)
    finally:
        outage.end()
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
