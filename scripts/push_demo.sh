#!/bin/sh
# Frames of an application and the pressure on the host, on one timeline: an application handles
# orders, busy loops take its processors for a while, it is killed in between and starts again.
# Needs flatcap and the example `orders` of crates/flatcap-push; builds them.
#
# usage: scripts/push_demo.sh [FLATCAP ORDERS]

set -eu
cd "$(dirname "$0")/.."
if [ $# -lt 2 ]; then
    cargo build --release -p flatcap
    cargo build --release -p flatcap-push --example orders --features log,tracing
    set -- target/release/flatcap target/release/examples/orders
fi
flatcap=$1
orders=$2
place=$(mktemp -d)
memory=$(mktemp -d /dev/shm/flatcap-demo.XXXXXX)
trap 'kill $recorder $loops 2>/dev/null || true; rm -rf "$place" "$memory"' EXIT
recorder= loops=
printf '[push]\nenabled = true\n[recorder]\ndata_dir = "%s"\nrun_dir = "%s"\n' "$place" "$memory" \
    > "$memory/flatcap.toml"
export RUNTIME_DIRECTORY="$memory"

"$flatcap" record --quiet --config "$memory/flatcap.toml" --source pressure@100ms --source cpu@10ms &
recorder=$!
until [ -S "$memory/push.sock" ]; do sleep 0.05; done

"$orders" "$memory/push.sock" &
application=$!
sleep 2
for _ in 1 2 3 4; do
    while :; do :; done &
    loops="$loops $!"
done
sleep 2
kill -9 "$application"
kill $loops
loops=
"$orders" "$memory/push.sock" 200
"$flatcap" status | grep '^push'
kill "$recorder"
wait "$recorder" || true
recorder=

echo
echo "Orders and the pressure beside them, from 1.9 s after the begin:"
"$flatcap" dump "$place" --source orders --source pressure --format jsonl |
    sed -n '/"source":"orders"/{s/.*"seq":\([0-9]*\).*"time":"\([^"]*\)".*"duration_ns":\([0-9]*\),"fields".*/\2 order \1 took \3 ns/p;}
        /"source":"pressure"/{s/.*"time":"\([^"]*\)".*/\1 pressure/p;}' |
    sed -n '395,420p'
echo
echo "What every recording of it accounts for:"
"$flatcap" verify "$place"
