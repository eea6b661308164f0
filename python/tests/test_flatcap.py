"""The package against the command: values, explanations, times, errors."""

import csv
import datetime
import io
import json
import shutil
import subprocess
import sys
import threading

import pytest
from conftest import CONFORMANCE, ROOT, flatcap as command

import flatcap

REPORTS = ROOT / "tests/data/reports"
FIELDS = "cpu.total.user,running,memory.counters.mem_available"


def printed(folder, fields, *options):
    """Rows as `flatcap dump --raw` prints them: texts by column."""
    text = command("dump", folder, "--fields", fields, "--raw", "--format", "csv", *options)
    header, *rows = csv.reader(io.StringIO(text))
    return {name: [row[at] for row in rows] for at, name in enumerate(header)}


def as_number(text):
    return None if text == "" else float(text)


def compare(rows, expected):
    """Compares rows with what the command printed, value by value."""
    assert rows.columns == list(expected)
    values = rows.to_pydict()
    assert [str(wall_ns) for wall_ns in values["wall_ns"]] == expected["wall_ns"]
    compared = 0
    for name, column in values.items():
        if name in ("time", "wall_ns"):
            continue
        assert len(column) == len(expected[name])
        for value, text in zip(column, expected[name]):
            if isinstance(value, bool):
                assert text == str(value).lower(), name
            elif isinstance(value, (int, float)):
                assert as_number(text) == pytest.approx(value, rel=1e-12, abs=0), name
            elif value is None:
                assert text == "", name
            else:
                assert text == value, name
            compared += 1
    return compared


def test_fields_of_one_source_are_as_dumped(recording, folder):
    """Columns of one source, which are read as batches."""
    fields = "cpu.total.user,cpu.total.idle,cpu.context_switches"
    assert compare(recording.read(fields), printed(folder, fields)) > 300


def test_joined_fields_are_as_dumped(recording, folder):
    """Columns of several sources, joined on time."""
    assert compare(recording.read(FIELDS), printed(folder, FIELDS)) > 300


@pytest.mark.parametrize("options", [{"every": "100ms"}, {"every": "200ms:max"}, {"every": "100ms:count"}])
@pytest.mark.parametrize("rate", [False, True])
def test_steps_are_as_dumped(recording, folder, options, rate):
    """Steps with and without aggregates, and rates."""
    arguments = ["--every", options["every"], *(["--rate"] if rate else [])]
    assert compare(recording.read(FIELDS, rate=rate, **options), printed(folder, FIELDS, *arguments)) > 15


def test_elements_are_as_dumped(recording, folder):
    """Elements with columns of their own, and as rows; a condition."""
    fields = "cpu.cores[*].times.user,cpu.cores[*].times.idle"
    assert compare(recording.read(fields), printed(folder, fields)) > 100
    long = recording.read(fields, long=True)
    assert compare(long, printed(folder, fields, "--long")) > 100
    chosen = recording.read("cpu.total.user", where="running > 0")
    assert compare(chosen, printed(folder, "cpu.total.user", "--where", "running > 0")) > 0


def test_samples_are_as_dumped_in_every_reader(recording, folder, tmp_path):
    """All sources of the recording and of the conformance files, which have integers above 2^63, texts
    and absent values: DuckDB, Polars and pyarrow read every value as `dump --format jsonl` prints it."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    import pyarrow.ipc

    values = 0
    for number, path in enumerate([folder, *CONFORMANCE]):
        place = tmp_path / str(number)
        place.mkdir()
        opened = flatcap.open(path)
        lines = command("dump", path, "--format", "jsonl")
        (place / "samples.jsonl").write_text(lines)
        sources = {line["source"] for line in map(json.loads, lines.splitlines()) if "seq" in line}
        for source in sources:
            if not opened.fields(source):
                continue
            table = pyarrow.table(opened.samples(source))
            with pyarrow.ipc.new_stream(place / f"{source}.arrows", table.schema) as writer:
                writer.write_table(table)
        judge = ROOT / "crates/flatcap-convert/tests/agree.py"
        done = subprocess.run(
            [sys.executable, judge, place / "samples.jsonl", place], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{path}: {done.stdout}{done.stderr}"
        values += int(done.stdout.split()[1])
    assert values > 10_000


def walked(value, names):
    """The values at or below a path: of all elements of each list on the way."""
    if isinstance(value, list):
        for element in value:
            yield from walked(element, names)
    elif isinstance(value, dict):
        for name, own in value.items():
            is_list = bool(names) and names[0].endswith("[*]")
            if not names or (names[0].removesuffix("[*]") == name and (isinstance(own, list) or not is_list)):
                yield from walked(own, names[1:])
    elif not names:
        yield value


def test_values_are_those_of_the_samples():
    """Each value of recordings whose sources and elements share names, change their schemas, or have odd
    names, against a walk of each sample: once, at its time."""
    compared = 0
    for path in sorted((ROOT / "tests/data/answers").iterdir()):
        lines = [json.loads(line) for line in command("dump", path, "--format", "jsonl").splitlines()]
        opened = flatcap.open(path)
        for text, source in sorted({(field.path, field.source) for field in opened.fields()}):
            names = text.removeprefix(f'"{source}"').removeprefix(source).removeprefix(".").split(".")
            expected = [
                (line["wall_ns"], value)
                for line in lines
                if line.get("source") == source
                for value in walked(line["data"], names)
                if value is not None
            ]
            rows = opened.read(text).to_pydict()
            times = rows.pop("wall_ns")
            rows.pop("time")
            found = [
                (wall_ns, value)
                for column in rows.values()
                for wall_ns, value in zip(times, column, strict=True)
                if value is not None and value not in (float("inf"), float("-inf")) and value == value
            ]
            # JSON has no NaN and no infinities, and the shortest digits of a float of 32 bits.
            found, expected = (
                sorted((wall_ns, f"{value:.6g}" if isinstance(value, float) else repr(value)) for wall_ns, value in all)
                for all in (found, expected)
            )
            assert found == expected, f"{path}: {text}"
            compared += len(found)
    assert compared > 500


def test_every_library_takes_the_stream(recording):
    """Polars, pyarrow, DuckDB and pandas get the same values, with units."""
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    rows = recording.read("cpu.total.user,cpu.context_switches")
    expected = rows.to_pydict()["cpu.context_switches"]
    table = pyarrow.table(rows)
    assert table.column("cpu.context_switches").to_pylist() == expected
    assert table.schema.field("cpu.total.user").metadata[b"unit"] == rows.units["cpu.total.user"].encode()
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    assert polars.DataFrame(rows).get_column("cpu.context_switches").to_list() == expected
    found = duckdb.sql('select "cpu.context_switches" from rows').fetchall()
    assert [value for (value,) in found] == expected
    frame = pandas.DataFrame.from_arrow(rows) if hasattr(pandas.DataFrame, "from_arrow") else table.to_pandas()
    assert frame["cpu.context_switches"].tolist() == expected
    assert pyarrow.schema(rows).names == rows.columns


def test_explanations_are_those_of_the_command(recording, folder):
    """explain and spikes are the JSON of the commands, with attributes."""
    middle = sum(recording.span) // 2
    found = recording.explain(at=middle, window="200ms", before="500ms")
    options = ["--window", "200ms", "--before", "500ms", "--json", "--limit", 1000]
    assert found == json.loads(command("explain", folder, "--at", middle, *options))
    assert found.window.first_wall_ns == found["window"]["first_wall_ns"] and found.notices == []
    assert found.log is None, "no such source"
    with pytest.raises(AttributeError):
        _ = found.suspect
    spikes = recording.spikes(limit=5)
    assert spikes == json.loads(command("spikes", folder, "--json", "--limit", 5))
    assert spikes.ranked >= found.ranked and spikes.host == found.host
    assert {own.reason for own in spikes.unranked} >= {"no_quantity"}


@pytest.mark.parametrize("middle_ms,length_ms", [(20_450, 300), (20_500, 1000), (20_000, 2000), (5000, 300)])
def test_reports_are_those_of_the_command(middle_ms, length_ms):
    """The recording that tests/suite/reports.rs compares on the page: sources of one name, processes
    of one name, absent values, a source that ended, events of the kernel."""
    at = 1_700_000_000_000_000_000 + middle_ms * 1_000_000
    recording = flatcap.open(REPORTS)
    found = recording.explain(at=at, window=f"{length_ms}ms", limit=20)
    shown = command("explain", REPORTS, "--at", at, "--window", f"{length_ms}ms", "--limit", 20, "--json")
    # The order of keys is the same, too.
    assert json.dumps(found) == json.dumps(json.loads(shown))
    assert found.tasks.processes and found.unranked[0].fields
    spikes = recording.spikes(limit=20)
    assert json.dumps(spikes) == json.dumps(json.loads(command("spikes", REPORTS, "--limit", 20, "--json")))
    assert spikes[0].source_id == 5 and spikes[0].pushed_by[0].client == "shop\u202e"


def test_fields_and_hosts_are_described(recording, folder):
    """fields against the JSON of the command; sources and hosts."""
    shown = json.loads(command("fields", folder, "--json"))
    found = [
        {
            "source": field.source,
            "field": field.path,
            "type": field.type,
            "unit": field.unit,
            "kind": field.kind,
            "meaning": field.meaning,
        }
        for field in recording.fields()
    ]
    assert found == shown
    assert "cpu" in recording.sources and recording.fields("cpu")
    (host,) = recording.hosts
    assert host.name in command("info", folder)


def test_times_are_those_of_the_command(recording, folder):
    """Texts, nanoseconds and datetimes select the same rows."""
    first, last = recording.span
    middle = (first + last) // 2 // 1000 * 1000
    moment = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
        microseconds=middle // 1000
    )
    count = lambda **times: len(recording.read("cpu.context_switches", **times).to_pydict()["time"])
    by_number = count(since=middle)
    assert 0 < by_number < count()
    assert count(since=moment) == count(since=str(middle)) == count(since=moment.isoformat()) == by_number
    assert count(since=moment.astimezone().replace(tzinfo=None)) == by_number, "a naive datetime is local"
    assert count(since="-300ms") == len(printed(folder, "cpu.context_switches", "--since", "-300ms")["time"])
    assert count(until=middle) + by_number == count()
    assert count(since="+200ms", until="+400ms") > 0
    timed = recording.read("cpu.context_switches", every=datetime.timedelta(milliseconds=500))
    assert timed.to_pydict() == recording.read("cpu.context_switches", every="500ms").to_pydict()


def test_errors_say_what_to_do(recording, tmp_path):
    """Each kind of error, with the words of the library."""
    with pytest.raises(flatcap.FieldError, match="did you mean"):
        recording.read("cpu.total.usr")
    with pytest.raises(flatcap.FieldError, match="byte"):
        recording.read("cpu.total.user", where="running >")
    with pytest.raises(flatcap.UsageError, match="running is named twice"):
        recording.read(["running", "load1", "running"])
    with pytest.raises(flatcap.FieldError, match="no such source"):
        recording.samples("cpus")
    with pytest.raises(flatcap.UsageError, match="not a point in time"):
        recording.read("running", since="soon")
    with pytest.raises(flatcap.UsageError, match="since must be before until"):
        recording.read("running", since=2, until=1)
    with pytest.raises(flatcap.UsageError, match="every"):
        recording.read("running", every="1s:median")
    with pytest.raises(TypeError, match="is no time"):
        recording.read("running", since=True)
    with pytest.raises(flatcap.NoSamplesError, match="the recording spans"):
        recording.explain(at=1_000)
    with pytest.raises(flatcap.ReadError, match="no segments in"):
        flatcap.open(tmp_path)
    with pytest.raises(flatcap.ReadError):
        flatcap.open(tmp_path / "missing")
    with pytest.raises(flatcap.UsageError, match="no such host"):
        flatcap.open(CONFORMANCE[0], host="nowhere")
    assert issubclass(flatcap.FieldError, flatcap.Error)


def test_damage_is_skipped_and_counted(folder, tmp_path):
    """A flipped byte: the other rows are read, and the place is reported."""
    whole = flatcap.open(folder)
    segment = max(folder.glob("*.bin"), key=lambda path: path.stat().st_size)
    damaged = tmp_path / segment.name
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    rows = flatcap.open(damaged).read("cpu.context_switches")
    assert rows.damage == 0 and rows.notices == []
    read, expected = rows.to_pydict(), whole.read("cpu.context_switches").to_pydict()
    assert 0 < len(read["time"]) <= len(expected["time"])
    assert rows.damage >= 1 and "damage at offset" in rows.notices[0]
    rows.to_pydict()
    assert rows.damage >= 1, "the number of the last reading, not of all"


def test_several_recordings_of_one_host_are_one(folder):
    """Paths by position and as a list."""
    files = sorted(folder.glob("*.bin"))
    whole = flatcap.open(folder).read("cpu.context_switches").to_pydict()
    assert flatcap.open(files).read("cpu.context_switches").to_pydict() == whole
    assert flatcap.open(*map(str, files)).read("cpu.context_switches").to_pydict() == whole


def test_several_hosts_have_a_column(folder):
    """Recordings of two hosts: a column says whose a row is, unless one host is chosen."""
    other = next(path for path in CONFORMANCE if path.name == "level0-types.bin")
    both = flatcap.open(folder, other)
    (own,) = flatcap.open(folder).hosts
    assert len(both.hosts) == 2 and own.name in [host.name for host in both.hosts]
    rows = both.read("cpu.context_switches")
    assert rows.columns == ["time", "wall_ns", "host", "cpu.context_switches"]
    assert set(rows.to_pydict()["host"]) == {own.name}
    chosen = flatcap.open(folder, other, host=own.name).read("cpu.context_switches")
    assert chosen.columns == ["time", "wall_ns", "cpu.context_switches"]
    with pytest.raises(flatcap.UsageError, match="choose one with open"):
        both.spikes()


def test_marks_gaps_and_snapshots_are_listed(recording, folder):
    """Lists against the commands."""
    assert len(recording.markers()) == len(json.loads(command("marks", folder, "--json")))
    lines = command("dump", folder, "--format", "jsonl").splitlines()
    gaps = [json.loads(line)["gap"] for line in lines if line.startswith('{"gap"')]
    assert sorted((gap.source, gap.first, gap.count) for gap in recording.gaps()) == sorted(
        (gap["source"], gap["first"], gap["count"]) for gap in gaps
    )
    assert recording.snapshots() == []


def test_snapshots_are_recordings(folder, tmp_path):
    """A snapshot is listed with what is known of it, and opens; explain is about its moment."""
    data = tmp_path / "data"
    snapshot = data / "snapshots" / "20260101T000000.000Z-io-stall"
    shutil.copytree(folder, data)
    shutil.copytree(folder, snapshot)
    (data / "snapshots" / "20260102T000000.000Z-io-stall.partial").mkdir()
    middle = sum(flatcap.open(folder).span) // 2
    known = {"name": snapshot.name, "rule": "io-stall", "reason": "slow", "fired_wall_ns": middle, "complete": True}
    (snapshot / "snapshot.json").write_text(json.dumps(known))
    (found,) = flatcap.open(data).snapshots()
    assert (found.name, found.rule, found.reason, found.kept) == (snapshot.name, "io-stall", "slow", False)
    assert found.complete and found.path == snapshot
    explained = flatcap.open(found.path).explain()
    assert explained.window.first_wall_ns < middle < explained.window.last_wall_ns


def test_other_threads_run_while_rows_are_read(recording):
    """A thread counts while another one takes the stream, so the interpreter is not held: the
    counter moves in every reading."""
    pyarrow = pytest.importorskip("pyarrow")
    counter, is_over = [0], threading.Event()

    def count():
        while not is_over.is_set():
            counter[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counter[0]
    for _ in range(20):
        pyarrow.table(recording.samples("process"))
    is_over.set()
    thread.join()
    assert counter[0] > before


def test_an_interrupt_ends_a_reading(folder):
    """A signal before a batch: KeyboardInterrupt, not the rows."""
    script = """
import signal, sys, flatcap
rows = flatcap.open(sys.argv[1]).read("cpu.context_switches")
signal.signal(signal.SIGUSR1, signal.default_int_handler)
import os, threading
def interrupted():
    while True:
        rows.to_pydict()
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
try:
    interrupted()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "interrupted\n", done.stderr


def test_plots_end_at_gaps():
    """Lines have a hole where samples were lost."""
    from flatcap import _plot

    xs, ys = _plot.broken([(1, 10), (2, 20), (5, 50)], [5])
    assert xs == [1, 2, 5, 5] and ys[:2] == [10, 20] and ys[2] != ys[2] and ys[3] == 50


def test_rows_are_drawn(recording):
    """plot() draws a line per column, and imports matplotlib only then."""
    assert "matplotlib" not in sys.modules
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = recording.read("cpu.total.user,cpu.total.system", rate=True).plot()
    # On a busy machine, the recorder may have marked times, whose lines have no label of their own.
    labels = [line.get_label() for line in axes.get_lines()]
    assert [label for label in labels if not label.startswith("_")] == [
        "cpu.total.user (jiffies/s)",
        "cpu.total.system (jiffies/s)",
    ]
    long = recording.read("cpu.cores[*].times.user", rate=True, long=True).plot()
    assert len(long.get_lines()) >= 1


def test_the_stub_names_what_is_there():
    """Every public name of the module is in the stub, and the other way round."""
    import ast

    stub = ast.parse((ROOT / "python/flatcap/__init__.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert set(flatcap.__all__) == set(classes) | functions | {"__version__"}
    for name, node in classes.items():
        own = {member for member in vars(getattr(flatcap, name)) if not member.startswith("_")}
        stubbed = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        assert own == {member for member in stubbed if not member.startswith("_")}, name
