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
echo "Each line is from one sample of the pressure to the next. The busy loops run from second 2 to 4;"
echo "then the application is killed, and starts again."
echo
echo "second  stalled for a processor  orders  longest pause between two"
"$flatcap" dump "$place" --source orders --source pressure --format jsonl |
    sed -n 's/.*"source":"\(orders\|pressure\)".*"mono_ns":\([0-9]*\).*/\1 \2 &/p' |
    awk '
        { begin = begin ? begin : $2; at = ($2 - begin) / 1e9 }
        $1 == "orders" {
            if (last && $2 - last > pause) pause = $2 - last
            last = $2
            orders++
        }
        $1 == "pressure" && match($0, /"cpu_some":{[^}]*"total":[0-9]+/) {
            text = substr($0, RSTART, RLENGTH)
            sub(/.*"total":/, "", text)
            if (before && lines++ % 3 == 0)
                printf "%6.1f  %22.1f%%  %6d  %23.1f ms\n", at, (text - total) / ($2 - before) * 1e5, orders, pause / 1e6
            total = text; before = $2; orders = 0; pause = 0
        }'
echo
echo "What the recording accounts for:"
"$flatcap" verify "$place"
