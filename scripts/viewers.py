#!/usr/bin/env python3
"""What viewers of the live page cost the recorder beside it.

    scripts/viewers.py [--seconds SECONDS] [--rounds ROUNDS] [--before PROGRAM]

Each round records the default sources three times: alone, beside a server that sends 20 viewers as
many bytes as the page does but reads no recording, and beside `flatcap view --web`. One of the
viewers never reads, and 1,000 connections ask for nothing. Prints the 99 % lateness of the source
`cpu`, and the CPU time of the server. With --before, the page of another program is measured, too.
Needs nothing but Python and the programs in target/release, or PROGRAMS.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(os.environ.get("PROGRAMS", ROOT / "target/release"))
VIEWERS = 20
CONNECTIONS = 1000
# An event of the page with the default sources.
EVENT_BYTES = 9000
EVENT_S = 0.25
# From the connections to what is measured.
SETTLE_S = 3
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=40, help="length of each recording")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--before", type=Path, help="another flatcap, whose page is measured too")
    return parser.parse_args()


def serve(port):
    """Sends events to whoever asks for them, until it is ended."""
    asking = set()

    async def answer(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        writer.write(HEAD)
        asking.add(writer)

    async def send():
        event = b"data: " + b"x" * EVENT_BYTES + b"\n\n"
        while True:
            await asyncio.sleep(EVENT_S)
            for writer in list(asking):
                # One that does not read is dropped, as the page does.
                if writer.transport.get_write_buffer_size() > 16 * EVENT_BYTES:
                    asking.discard(writer)
                    writer.transport.abort()
                else:
                    writer.write(event)

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=CONNECTIONS)
        async with server:
            await send()

    asyncio.run(run())


class Clients:
    """The viewers, and the connections that ask for nothing."""

    def __init__(self, port, token):
        self.selector = selectors.DefaultSelector()
        self.bytes = 0
        request = f"GET /api/v1/live HTTP/1.1\r\nHost: localhost:{port}\r\n"
        request += f"Authorization: Bearer {token}\r\n\r\n"
        self.sockets = []
        for number in range(VIEWERS):
            viewer = socket.create_connection(("127.0.0.1", port))
            viewer.sendall(request.encode())
            self.sockets.append(viewer)
            if number > 0:
                self.selector.register(viewer, selectors.EVENT_READ)
        for _ in range(CONNECTIONS):
            try:
                self.sockets.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            except OSError:
                break

    def read(self, until):
        while (left := until - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                data = key.fileobj.recv(1 << 16)
                self.bytes += len(data)
                if not data:
                    sys.exit("the server ended a viewer that reads")

    def close(self):
        for one in self.sockets:
            one.close()
        self.selector.close()


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def served(kind, program, data):
    """Starts a server. Returns how to end it, its process id, its port and its token."""
    if kind == "sender":
        port = free_port()
        process = multiprocessing.Process(target=serve, args=(port,), daemon=True)
        process.start()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        return process.terminate, process.pid, port, "none"
    view = subprocess.Popen([program, "view", "--web", data], stdout=subprocess.PIPE, text=True)
    address = view.stdout.readline().strip()
    port, _, token = address.removeprefix("http://127.0.0.1:").partition("/#token=")
    return view.terminate, view.pid, int(port), token


def measure(kind, program, seconds):
    """Records beside a server. Returns the lateness in microseconds, and what the server took."""
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data"
        environment = {
            **os.environ,
            "FLATCAP_CONTROL__SOCKET": f"{work}/control.sock",
            "FLATCAP_STORAGE__MIN_FREE": "0",
        }
        command = [PROGRAMS / "flatcap", "record", "--quiet", "--data-dir", data]
        record = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        time.sleep(2)
        load = None
        since_ns = time.time_ns()
        if kind == "alone":
            time.sleep(seconds)
        else:
            end, pid, port, token = served(kind, program, data)
            clients = Clients(port, token)
            clients.read(time.monotonic() + SETTLE_S)
            clients.bytes, since_ns = 0, time.time_ns()
            before, began = cpu_seconds(pid), time.monotonic()
            clients.read(began + seconds)
            elapsed = time.monotonic() - began
            share = (cpu_seconds(pid) - before) / elapsed
            each = clients.bytes / elapsed / 1000 / (VIEWERS - 1)
            load = f"{share:6.1%} of a core, {each:5.1f} kB/s each"
            clients.close()
            end()
        record.send_signal(signal.SIGTERM)
        record.wait()
        return late_us(data, since_ns), load


def late_us(data, since_ns):
    """Returns the 99 % lateness of `cpu` from a wall time on, in microseconds."""

    def told(*arguments):
        called = subprocess.run([PROGRAMS / "flatcap", *arguments], capture_output=True, check=True)
        return called.stdout

    sources = json.loads(told("info", "--json", data))["sources"]
    cpu = next(one for one in sources if one["name"] == "cpu")
    rows = told("dump", data, "--fields", "cpu.forks", "--format", "jsonl")
    rows = [json.loads(row) for row in rows.splitlines()]
    # Samples are due once a period. The median lateness is known, so the lateness of each sample is
    # known, too.
    period = cpu["period_ns"]
    middle = statistics.median(row["mono_ns"] % period for row in rows)
    half = period / 2
    own = sorted(
        (row["mono_ns"] - middle + half) % period - half
        for row in rows
        if row["wall_ns"] >= since_ns
    )
    return (cpu["lateness_ns"]["p50"] + own[len(own) * 99 // 100]) / 1000


def main():
    options = arguments()
    for program in [PROGRAMS / "flatcap", options.before]:
        if program and not program.is_file():
            sys.exit(f"{program}: no such program; build it, or set PROGRAMS to its directory")
    kinds = [("alone", None), ("sender", None), ("page", PROGRAMS / "flatcap")]
    if options.before:
        kinds.append(("page before", options.before))
    found = {kind: [] for kind, _ in kinds}
    for number in range(options.rounds):
        # Each kind is first, second, ... in turn, since the machine changes over time.
        for kind, program in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            late_us, load = measure(kind, program, options.seconds)
            found[kind].append(late_us)
            print(f"{kind:12} {late_us:6.0f} us  {load or ''}", flush=True)
    sender = found["sender"]
    for kind, all_us in found.items():
        ratios = sorted(one / other for one, other in zip(all_us, sender))
        print(
            f"{kind:12} median {statistics.median(all_us):4.0f} us,"
            f" {statistics.median(ratios):.2f} times the sender's"
        )


if __name__ == "__main__":
    main()
