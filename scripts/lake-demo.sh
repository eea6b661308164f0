#!/usr/bin/env bash
# A lake on this machine: records this host for some seconds, ships the recording as that of many
# hosts, merges the hour, and asks DuckDB.
#
#   scripts/lake-demo.sh [--hosts N] [--seconds N] [--s3] [--keep DIR]
#
#   --hosts N     hosts to simulate; 20 by default
#   --seconds N   how long to record; 10 by default
#   --s3          ship to moto, an S3 of PyPI, instead of a directory
#   --keep DIR    leave recording and lake there
#
# Needs the programs (cargo build --release -p flatcap -p flatcap-ship) in target/release, or in
# PROGRAMS, and Python 3; installs DuckDB, and for --s3 moto and pyarrow, in a virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."

hosts=20 seconds=10 s3='' keep=''
while [ $# -gt 0 ]; do
    case $1 in
        --hosts) hosts=$2; shift 2 ;;
        --seconds) seconds=$2; shift 2 ;;
        --s3) s3=yes; shift ;;
        --keep) keep=$2; shift 2 ;;
        *) echo "scripts/lake-demo.sh: unknown argument $1" >&2; exit 2 ;;
    esac
done
programs=$(realpath "${PROGRAMS:-target/release}")
for program in flatcap flatcap-ship; do
    [ -x "$programs/$program" ] || { echo "$programs/$program is missing; build it, or set PROGRAMS" >&2; exit 1; }
done

work=${keep:-$(mktemp -d)}
mkdir -p "$work"
work=$(realpath "$work")
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -n "$keep" ] || rm -rf "$work"
}
trap cleanup EXIT
step() { printf '\n== %s\n' "$*"; }

step "tools: DuckDB${s3:+, moto and pyarrow}"
venv=target/tools/lake
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet duckdb==2.0.1 ${s3:+"moto[server]" pyarrow==26.0.1}
python=$PWD/$venv/bin/python

step "recording this host for $seconds s"
printf '[storage]\nsegment_age = "%ss"\n' "$((seconds / 3 > 0 ? seconds / 3 : 1))" >"$work/record.toml"
"$programs/flatcap" record --config "$work/record.toml" --quiet --data-dir "$work/recording" --for "${seconds}s"

lake=$work/lake to=file://$work/lake
if [ -n "$s3" ]; then
    step "an S3 on port 5566"
    "$venv/bin/moto_server" --host 127.0.0.1 --port 5566 >"$work/moto.log" 2>&1 &
    server=$!
    export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo AWS_REGION=us-east-1
    export AWS_ENDPOINT_URL=http://127.0.0.1:5566 AWS_ALLOW_HTTP=true
    for _ in $(seq 100); do
        curl --silent --fail --request PUT "$AWS_ENDPOINT_URL/lake" >/dev/null && break
        sleep 0.2
    done
    to=s3://lake
fi

step "shipping it as that of $hosts hosts"
for host in $(seq "$hosts"); do
    printf '[ship]\nhost = "host-%03d"\nlabels = { role = "%s" }\ncpu_budget = "400%%"\n' \
        "$host" "$([ $((host % 2)) = 0 ] && echo web || echo db)" >"$work/ship.toml"
    "$programs/flatcap-ship" once --config "$work/ship.toml" --data-dir "$work/recording" --to "$to" | tail -n 1
done

step "merging the hour"
"$programs/flatcap-ship" compact --to "$to" --settle 0s --grace 0s
"$programs/flatcap-ship" compact --to "$to" --settle 0s --grace 0s

step "the fleet, by its manifests"
"$programs/flatcap-ship" status --fleet --from "$to" | head -n 5

if [ -n "$s3" ]; then
    step "copying the bucket: DuckDB's extension for S3 is not a package of PyPI"
    "$python" -c '
import sys
from pyarrow import fs
store = fs.S3FileSystem(endpoint_override="127.0.0.1:5566", scheme="http", region="us-east-1")
fs.copy_files("lake", sys.argv[1], source_filesystem=store, destination_filesystem=fs.LocalFileSystem())
' "$lake"
fi

step "DuckDB: rows by host; what is missing; hosts that waited for I/O in the same second"
"$python" - deploy/lake/duckdb.sql "$lake" <<'END'
import sys
import time

import duckdb

connection = duckdb.connect()
connection.execute("set timezone = 'UTC'")
connection.execute(open(sys.argv[1]).read())
lake = sys.argv[2]
for question in [
    f"select count(distinct host) as hosts, count(*) as samples, min(time), max(time) from lake_rows('{lake}', 'cpu')",
    f"select count(*) as samples from lake_rows('{lake}', 'cpu') where host = 'host-001'",
    f"select count(*) as missing from lake_missing('{lake}')",
    f"select second, hosts, round(largest_percent, 1) as percent from lake_stalled('{lake}', 0.1) limit 5",
]:
    start = time.monotonic()
    print(question.split(" from ")[0], "...")
    print(connection.execute(question).fetchall(), f"{time.monotonic() - start:.2f} s")
END
