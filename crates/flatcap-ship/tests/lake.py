"""Asks a lake in DuckDB, by deploy/lake/duckdb.sql, and compares it with what was recorded.

    lake.py DUCKDB.SQL LAKE EXPECTED.json

EXPECTED.json has for each table the numbers of its rows, and for each column their sum. Each table must
have exactly these rows, once, and nothing may be missing by the manifests. Then hides one manifest, and
expects that its rows and the hole are noticed. Prints the number of rows; exits with 1 at the first
difference.
"""

import json
import pathlib
import sys

import duckdb


def ask(connection, question):
    return connection.execute(question).fetchall()


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")


def main(sql, lake, expected):
    expected = json.loads(pathlib.Path(expected).read_text())
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.execute(pathlib.Path(sql).read_text())
    rows = 0
    for table, facts in expected["tables"].items():
        source = f"lake_rows('{lake}', '{table}')"
        found = ask(connection, f"select count(*), count(distinct (run, seq)) from {source}")
        check(f"rows of {table}, and distinct ones", found, [(facts["rows"], facts["rows"])])
        for column, total in facts["sums"].items():
            found = ask(connection, f'select sum("{column}")::varchar from {source}')
            check(f"sum of {table}.{column}", found, [(total,)])
        hosts = ask(connection, f"select distinct host from {source} order by host")
        check(f"hosts of {table}", len(hosts), expected["hosts"])
        rows += facts["rows"]
    lost = ask(connection, f"select sum(count)::varchar from lake_rows('{lake}', '_gaps')")
    check("lost samples", lost, [(expected["lost"],)])
    marks = ask(connection, f"select count(*) from lake_rows('{lake}', '_marks')")
    check("marks", marks, [(expected["marks"],)])
    check("missing", ask(connection, f"from lake_missing('{lake}')"), [])
    names = ask(connection, f"select name, segments::int from lake_hosts('{lake}')")
    check("hosts", [list(host) for host in names], expected["names"])
    # Without this manifest its segment does not count, and its neighbours show the hole.
    hidden = pathlib.Path(expected["hidden"])
    hidden.rename(hidden.with_suffix(".hidden"))
    missing = ask(connection, f"select distinct what from lake_missing('{lake}')")
    check("with a hidden manifest", missing, [("segments are missing before this one",)])
    table, facts = next(iter(expected["tables"].items()))
    found = ask(connection, f"select count(*) from lake_rows('{lake}', '{table}')")[0][0]
    if not 0 < found < facts["rows"]:
        sys.exit(f"{table} without a manifest: {found} rows")
    hidden.with_suffix(".hidden").rename(hidden)
    print(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
