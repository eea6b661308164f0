#!/usr/bin/env python3
"""Times one field of a recording as CSV: `flatcap dump` against DuckDB on a zstd Parquet file of the same samples, in
turns, on one processor, to /dev/null. DuckDB has read the file before; flatcap's time includes its start.

  pip install duckdb==2.0.1
  scripts/against_duckdb.py PROGRAM RECORDING [--field cpu.total.user] [--rounds 9]"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import duckdb
except ImportError:
    sys.exit("skipped: the Python package duckdb is not installed")


def dump(program, arguments, output):
    """Runs `dump`, and returns its time in seconds. Ends as it does if it fails: it has said why."""
    start = time.perf_counter()
    status = subprocess.run([program, "dump", *arguments, "--format", "csv"], stdout=output).returncode
    if status not in (0, 3):
        sys.exit(status)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the command flatcap")
    parser.add_argument("recording", help="a directory of segments")
    parser.add_argument("--field", default="cpu.total.user", help="a number of a source, in no list")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    source, _, column = arguments.field.partition(".")
    if not column:
        parser.error(f"--field {arguments.field}: name the source and its field, such as cpu.total.user")
    # Both inherit it.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    database = duckdb.connect()
    database.execute("set threads = 1")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as null:
        text, table = f"{folder}/samples.csv", f"{folder}/samples.parquet"
        with open(text, "wb") as output:
            dump(arguments.program, [arguments.recording, "--source", source], output)
        database.execute(f"copy (from read_csv('{text}', sample_size = -1)) to '{table}' (format parquet, codec zstd)")
        os.remove(text)

        def select(columns, condition="true"):
            """Returns the time that DuckDB takes for some columns, in seconds."""
            start = time.perf_counter()
            query = f"select {columns} from '{table}' where {condition}"
            database.execute(f"copy ({query}) to '{os.devnull}' (format csv)").fetchall()
            return time.perf_counter() - start

        field = ["--fields", arguments.field]
        never = ["--where", f"{arguments.field} > 1e18 jiffies"]
        value, when = f'"{column}"', "make_timestamp_ns(wall_ns), wall_ns"
        cases = {
            "flatcap: time, wall_ns, value": lambda: dump(arguments.program, [arguments.recording, *field], null),
            "DuckDB: time, wall_ns, value": lambda: select(f"{when}, {value}"),
            "DuckDB: wall_ns, value": lambda: select(f"wall_ns, {value}"),
            "flatcap: a condition that no value meets": lambda: dump(
                arguments.program, [arguments.recording, *field, *never], null
            ),
            "DuckDB: a condition that no value meets": lambda: select(f"{when}, {value}", f"{value} > 1e18"),
        }
        times = {name: [] for name in cases}
        for _ in range(arguments.rounds):
            for name, run in cases.items():
                times[name].append(run())
    for name, seconds in times.items():
        print(f"{name:42} {statistics.median(seconds):.3f} s (least {min(seconds):.3f})")


if __name__ == "__main__":
    main()
