"""Asks lakes in DuckDB, Spark and DataFusion, by the queries in deploy/lake, and compares the answers
with what was recorded.

    engines.py DEPLOY/LAKE LAKE EXPECTED.json [LAKE EXPECTED.json]...

EXPECTED.json has for each table the number of its rows, and for each column their sum. Each engine must
find exactly these rows, once, and as many lost samples and marks. The sums of the columns that every
table has, and the rows of one host on a day, must be the same in all engines. Prints the number of rows
of each lake; exits with 1 at the first difference.
"""

import json
import os
import pathlib
import sys
import tempfile

import datafusion
import duckdb
from pyspark.sql import SparkSession

# Columns that each table of samples has.
COMMON = ["wall_ns", "mono_ns", "duration_ns", "seq", "flags", "segment"]
DATE = "2023-11-14"


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")


def statements(file, lake, table):
    """Returns the statements of a file, of which a user replaces LAKE and `cpu`."""
    text = file.read_text()
    if file.name == "datafusion.sql" and not pathlib.Path(lake, "v1/hour").exists():
        text = text.split("-- From the first compaction on, also this")[0]
    lines = text.replace("LAKE", lake).replace("cpu", table).splitlines()
    code = "\n".join(line for line in lines if not line.startswith("--"))
    return [statement for statement in code.split(";") if statement.strip()]


class DuckDb:
    """Each engine has a session; opens a table, by its file; and returns the rows of an answer."""

    name, quote = "DuckDB", '"'

    def __init__(self, deploy, _):
        self.session = duckdb.connect()
        self.session.execute((deploy / "duckdb.sql").read_text())

    def open(self, lake, table):
        return f"lake_rows('{lake}', '{table}')"

    def ask(self, question):
        return self.session.execute(question).fetchall()


class Spark:
    name, quote = "Spark", "`"

    def __init__(self, deploy, temporary):
        self.file = deploy / "spark.sql"
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        options = {
            # The quick compiler only: the process is short.
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1",
            "spark.driver.memory": "512m",
            "spark.local.dir": temporary,
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{temporary}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        self.session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()

    def open(self, lake, table):
        for statement in statements(self.file, lake, table):
            self.session.sql(statement)
        return f"`{table}`"

    def ask(self, question):
        return [tuple(row) for row in self.session.sql(question).collect()]


class DataFusion:
    name, quote = "DataFusion", '"'

    def __init__(self, deploy, _):
        self.file = deploy / "datafusion.sql"
        self.session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(2))

    def open(self, lake, table):
        for statement in statements(self.file, lake, table):
            self.session.sql(statement)
        return f'"{table}"'

    def ask(self, question):
        batches = self.session.sql(question).collect()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def totals(engine, source, columns, others=()):
    """Returns the number of rows, the exact sum of each column, and what else is asked."""
    quoted = [f"{engine.quote}{column}{engine.quote}" for column in columns]
    asked = ["count(*)", *(f"sum(CAST({name} AS DECIMAL(38, 0)))" for name in quoted), *others]
    selected = ", ".join(f"{one} AS c{at}" for at, one in enumerate(asked))
    (found,) = engine.ask(f"SELECT {selected} FROM {source}")
    end = 1 + len(columns)
    return int(found[0]), dict(zip(columns, map(int, found[1:end]))), found[end:]


def judge(engine, lake, expected):
    """Compares one lake with what was recorded. Returns what all engines must agree on besides."""
    common = {}
    for table, facts in expected["tables"].items():
        place = f"{engine.name}: {table}"
        source = engine.open(lake, table)
        # A run always has 16 digits.
        others = ["count(DISTINCT concat(run, seq))", "count(DISTINCT host)", "min(host)"]
        rows, sums, (distinct, hosts, host) = totals(engine, source, [*facts["sums"], *COMMON], others)
        check(f"{place}: rows", rows, facts["rows"])
        check(f"{place}: distinct rows", distinct, facts["rows"])
        for column, total in facts["sums"].items():
            check(f"{place}: sum of {column}", sums[column], int(total))
        check(f"{place}: hosts", hosts, expected["hosts"])
        of_host, _, _ = totals(engine, f"{source} WHERE host = '{host}' AND date = '{DATE}'", [])
        common[table] = {**sums, f"rows of {host}": of_host}
    _, lost, _ = totals(engine, engine.open(lake, "_gaps"), ["count"])
    check(f"{engine.name}: lost samples", lost["count"], int(expected["lost"]))
    marks, _, _ = totals(engine, engine.open(lake, "_marks"), [])
    check(f"{engine.name}: marks", marks, expected["marks"])
    return common


def main(deploy, *lakes):
    with tempfile.TemporaryDirectory(prefix="engines-", ignore_cleanup_errors=True) as temporary:
        engines = [engine(pathlib.Path(deploy), temporary) for engine in (DuckDb, Spark, DataFusion)]
        try:
            for lake, file in zip(lakes[::2], lakes[1::2], strict=True):
                expected = json.loads(pathlib.Path(file).read_text())
                first, *others = [(engine.name, judge(engine, lake, expected)) for engine in engines]
                for name, common in others:
                    check(f"{name}, of what {first[0]} finds", common, first[1])
                print(sum(facts["rows"] for facts in expected["tables"].values()), "rows")
        finally:
            engines[1].session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
