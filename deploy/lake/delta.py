#!/usr/bin/env python3
"""Registers the merged hours of a lake as Delta tables, one a source, without copying a row.

    delta.py LAKE [TABLE ...]      LAKE: /srv/lake, file:///srv/lake or s3://bucket/prefix

The log of a table is LAKE/v1/hour/source=TABLE/_delta_log, so that is the table's address: for Spark
`delta.`s3a://bucket/prefix/v1/hour/source=cpu``, for Trino `register_table`. Run it after
`flatcap-ship compact`, as often as you like: hours that are registered are left alone, columns that
are new are added. `date` and `host` are partitions. Segments that are not merged yet, or came after
their hour was merged, are not in the tables; docs/LAKE.md, "Delta tables".

Needs `pip install deltalake pyarrow`. Credentials come from the environment, as for flatcap-ship.
Exit status: 0 done, 1 an hour could not be registered, 2 wrong usage.
"""

import json
import pathlib
import sys
from urllib.parse import unquote

try:
    import pyarrow
    import pyarrow.fs
    import pyarrow.parquet
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as missing:
    sys.exit(f"delta.py: {missing}; pip install deltalake pyarrow")

PARTITIONS = [("date", pyarrow.date32()), ("host", pyarrow.string())]
# Files in a commit: a commit is one object of JSON, some 300 bytes a file.
FILES_MAX = 10_000


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        return register_all(sys.argv[1].rstrip("/"), set(sys.argv[2:]))
    except (OSError, pyarrow.ArrowException, DeltaError) as error:
        print(f"delta.py: {sys.argv[1]}: {error}", file=sys.stderr)
        return 1


def register_all(lake, tables):
    """Registers the objects of some tables, or of all. Returns the exit status."""
    if "://" not in lake:
        lake = pathlib.Path(lake).resolve().as_uri()
    files, folder = pyarrow.fs.FileSystem.from_uri(lake)
    found = hourly_objects(files, f"{folder}/v1")
    if not found:
        print(f"delta.py: {lake} has no merged hour; flatcap-ship compact merges", file=sys.stderr)
        return 1
    for unknown in sorted(tables - found.keys()):
        print(f"delta.py: no merged hour has the table {unknown}; there are {', '.join(sorted(found))}", file=sys.stderr)
    failed = not found.keys() >= tables
    for table in sorted(tables & found.keys() if tables else found):
        failed |= not register(lake, table, found[table], files, f"{folder}/v1/hour/source={table}")
    return 1 if failed else 0


def hourly_objects(files, folder):
    """Returns the objects of complete hours by table: (path in the table, manifest's entry)."""
    found = {}
    selector = pyarrow.fs.FileSelector(f"{folder}/_hours", recursive=True, allow_not_found=True)
    for info in files.get_file_info(selector):
        if info.type != pyarrow.fs.FileType.File or not info.path.endswith(".json"):
            continue
        with files.open_input_stream(info.path) as stream:
            manifest = json.loads(stream.read())
        for entry in manifest.get("objects", []):
            tier, source, path = entry["name"].removeprefix("v1/").split("/", 2)
            if tier == "hour":
                found.setdefault(source.removeprefix("source="), []).append((path, entry))
    return found


def register(lake, table, objects, files, folder):
    """Adds the objects that the table lacks. Returns whether all of them are in it."""
    address = f"{lake}/v1/hour/source={table}"
    try:
        delta = DeltaTable(address)
        known = {unquote(uri).split(f"source={table}/", 1)[1] for uri in delta.file_uris()}
        schema = pyarrow.schema(delta.schema().to_arrow())
    except TableNotFoundError:
        delta, known, schema = None, set(), pyarrow.schema(PARTITIONS)
    is_complete, actions, registered = True, [], schema
    partitions = [name for name, _ in PARTITIONS]
    for path, entry in sorted(objects, key=lambda one: one[0]):
        if path in known:
            continue
        own = nullable(pyarrow.parquet.read_schema(f"{folder}/{path}", filesystem=files))
        try:
            schema = pyarrow.unify_schemas([schema, own])
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            print(f"delta.py: {table}/{path} has other types than the table: {error}", file=sys.stderr)
            is_complete = False
            continue
        date, host = (part.split("=", 1)[1] for part in path.split("/")[:2])
        stats = json.dumps({"numRecords": entry["rows"]})
        actions.append(AddAction(path, entry["bytes"], {"date": date, "host": host}, 0, True, stats))
    for begin in range(0, len(actions), FILES_MAX):
        part = actions[begin : begin + FILES_MAX]
        if delta is None:
            create_table_with_add_actions(
                address, Schema.from_arrow(schema), part, partition_by=partitions, name=table
            )
            delta, registered = DeltaTable(address), schema
            continue
        new = [field for field in schema if field.name not in registered.names]
        if new:
            delta.alter.add_columns(list(Schema.from_arrow(pyarrow.schema(new)).fields))
            registered = schema
        delta.create_write_transaction(part, "append", delta.schema(), partition_by=partitions)
        delta.update_incremental()
    print(f"{table}: {len(actions)} of {len(objects)} objects registered, {len(known)} were")
    return is_complete


def nullable(schema):
    """Returns a schema in which every column may be absent, as it is in hours before it existed."""
    return pyarrow.schema([field.with_nullable(True).remove_metadata() for field in schema])


if __name__ == "__main__":
    sys.exit(main())
