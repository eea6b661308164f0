"""Compares exported files with the samples that `flatcap dump --format jsonl` prints.

    agree.py SAMPLES.jsonl FOLDER [SAMPLES.jsonl FOLDER]...

FOLDER has files of some sources: Parquet, Arrow files (.arrow) and streams (.arrows). Each reader in
READERS must return every value of every sample, bit by bit; Spark reads Parquet only, and is skipped
if pyspark or Java is missing. An absent list has no rows, as an empty one. Prints the number of
values; exits with 1 at the first difference.
"""

import atexit
import datetime
import decimal
import functools
import importlib.util
import json
import math
import os
import pathlib
import shutil
import struct
import sys
import tempfile

import duckdb
import polars
import pyarrow.ipc
import pyarrow.parquet

ENVELOPE = ["time", "wall_ns", "mono_ns", "duration_ns", "seq", "flags", "run"]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def arrow_table(path):
    is_stream = path.suffix == ".arrows"
    return (pyarrow.ipc.open_stream if is_stream else pyarrow.ipc.open_file)(path).read_all()


def by_duckdb(path):
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    if path.suffix == ".parquet":
        relation = f"'{path}'"
    else:
        connection.register("samples", arrow_table(path))
        relation = "samples"
    unit = "us" if path.suffix == ".parquet" else "ns"
    cursor = connection.execute(f"select epoch_{unit}(time) as time, * exclude (time) from {relation}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def by_polars(path):
    read = {".parquet": polars.read_parquet, ".arrow": polars.read_ipc, ".arrows": polars.read_ipc_stream}
    frame = read[path.suffix](path)
    return frame.with_columns(polars.col("time").to_physical()).to_dicts()


def by_pyarrow(path):
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
    else:
        table = arrow_table(path)
    time = table.column("time").cast("int64")
    return table.set_column(table.schema.get_field_index("time"), "time", time).to_pylist()


@functools.cache
def spark_session():
    """Starts Spark, which takes seconds; the one session reads all files."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tempfile.TemporaryDirectory(prefix="agree-", ignore_cleanup_errors=True)
    options = {
        # The quick compiler only: the process is short.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder.name} -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "512m",
        "spark.local.dir": folder.name,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder.name}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
    # The last one registered is called first.
    atexit.register(folder.cleanup)
    atexit.register(session.stop)
    return session


def by_spark(path):
    from pyspark.sql.functions import unix_micros

    frame = spark_session().read.parquet(str(path))
    rows = frame.withColumn("time", unix_micros("time")).collect()
    return [without_decimals(row.asDict(recursive=True)) for row in rows]


def without_decimals(value):
    """Spark has no unsigned numbers: those of 64 bits are of the type decimal(20, 0)."""
    if isinstance(value, dict):
        return {name: without_decimals(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_decimals(element) for element in value]
    return int(value) if isinstance(value, decimal.Decimal) else value


READERS = {"DuckDB": by_duckdb, "Polars": by_polars, "pyarrow": by_pyarrow, "Spark": by_spark}


def at(value, path):
    """Returns the values at a path, in lists along the way one after the other."""
    for number, name in enumerate(path):
        if value is None:
            return None
        if isinstance(value, list):
            rest = path[number:]
            return [one for element in value for one in as_list(at(element, rest))]
        value = value[name]
    return value


def as_list(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def paths_of(value, path, found):
    """Collects the paths of all values of a sample."""
    if isinstance(value, dict):
        for name, inner in value.items():
            paths_of(inner, path + [name], found)
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        for element in value:
            paths_of(element, path, found)
    elif value is not None and value != []:
        found.add(".".join(path))


def columns_of(path, source):
    """Returns of each column: its name, the field's path up to the last list, the path in an element of
    this, the name in the struct, and whether it has floats of 32 bits. Paths are those that the file
    itself gives."""
    if path.suffix == ".parquet":
        schema = pyarrow.parquet.read_schema(path)
    else:
        schema = arrow_table(path).schema

    def parts(field):
        text = field.metadata[b"path"].decode()
        assert text.startswith(source + "."), text
        path_of_list, is_list, rest = text[len(source) + 1 :].rpartition("[*]")
        if not is_list:
            return rest.split("."), []
        return path_of_list.replace("[*]", "").split("."), rest.strip(".").split(".") if rest else []

    def is_float32(field):
        is_list = pyarrow.types.is_list(field.type)
        return pyarrow.types.is_float32(field.type.value_type if is_list else field.type)

    columns = []
    for field in schema:
        if field.name in ENVELOPE:
            continue
        if pyarrow.types.is_list(field.type) and pyarrow.types.is_struct(field.type.value_type):
            # The names of elements are derived; what they are derived from is compared.
            inner = [one for one in field.type.value_type if one.metadata and b"path" in one.metadata]
            columns += [(field.name, *parts(one), one.name, is_float32(one)) for one in inner]
        else:
            columns.append((field.name, *parts(field), None, is_float32(field)))
    return columns


def is_same(read, written, is_float32):
    if isinstance(written, list) or isinstance(read, list):
        read, written = as_list(read), as_list(written)
        return len(read) == len(written) and all(
            is_same(one, other, is_float32) for one, other in zip(read, written)
        )
    if read is None or written is None:
        return read is written or (isinstance(read, float) and not math.isfinite(read))
    if isinstance(read, float):
        written = float(written)
        if is_float32:
            # Printed with the digits that it needs.
            (written,) = struct.unpack("f", struct.pack("f", written))
        return struct.pack("d", read) == struct.pack("d", written)
    if isinstance(written, (int, float)) and isinstance(read, str):
        return read == str(written)  # an enum's value without a name
    return type(read) is type(written) and read == written


def compare(reader, path, samples):
    rows = READERS[reader](path)
    place = f"{reader}: {path.parent.name}/{path.name}"
    assert len(rows) == len(samples), f"{place}: {len(rows)} rows of {len(samples)} samples"
    expected, known, values = set(), set(), 0
    columns = columns_of(path, samples[0]["source"])
    for row, sample in zip(rows, samples):
        for name in ["wall_ns", "mono_ns", "duration_ns", "seq", "flags"]:
            assert row[name] == sample[name], f"{place}: {name} is {row[name]}, not {sample[name]}"
        divisor = 1000 if path.suffix == ".parquet" else 1
        assert row["time"] == sample["wall_ns"] // divisor, f"{place}: time {row['time']}"
        paths_of(sample["data"], [], expected)
        for name, path_of_list, path_in_element, key, is_float32 in columns:
            read = row[name]
            written = at(sample["data"], path_of_list)
            if key is not None:
                read = [element[key] for element in read]
            if path_in_element:
                # One value an element, absent ones too.
                written = [at(element, path_in_element) for element in as_list(written)]
            difference = f"{place}: {name} {key} of {sample['seq']}: {read} is not {written}"
            assert is_same(read, written, is_float32), difference
            values += len(read) if isinstance(read, list) else 1
            known.add(".".join(path_of_list + path_in_element))
    missing = expected - known
    assert not missing, f"{place}: no column of {sorted(missing)}"
    return values


def judge(reader, lines, folder):
    """Compares the files of a folder with the samples, Spark only those of Parquet."""
    sources = {}
    with open(lines, encoding="utf-8") as file:
        for line in file:
            sample = json.loads(line)
            if "seq" in sample and "payload" not in sample["data"]:
                sources.setdefault(sample["source"], []).append(sample)
    files = sorted(path for path in folder.iterdir() if path.stem in sources)
    if reader == "Spark" and files:
        files = [path for path in files if path.suffix == ".parquet"]
        if not files:
            return
    values = sum(compare(reader, path, sources[path.stem]) for path in files)
    is_complete = len({path.stem for path in files}) == len(sources)
    end = ", all sources" if is_complete else ""
    print(f"{reader}: {values} values of {len(files)} files are equal{end}")


def main():
    args = [pathlib.Path(arg) for arg in sys.argv[1:]]
    pairs = list(zip(args[::2], args[1::2], strict=True))
    has_spark = importlib.util.find_spec("pyspark") and shutil.which("java")
    for reader in READERS:
        if reader == "Spark" and not has_spark:
            print("skipped: no Spark, which needs pyspark and Java")
            continue
        for lines, folder in pairs:
            judge(reader, lines, folder)


main()
