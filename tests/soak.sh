#!/usr/bin/env bash
# Checks that nothing grows: one hour (or $1: 90s, 10m, 2h) of six host sources at 1 kHz with the
# release binary, on the disk of cargo's target directory (or in $2).
#
# Every ten seconds: resident set, open files, threads, CPU time. A segment lasts one sixtieth of
# the run, so that the run rotates and removes segments as a long one does (at most 4 GiB are
# retained). Lateness and missed ticks are those of each sealed segment.
#
# Flat means: the median of the last quarter compared with that of the first
#     resident set            at most 1 % more
#     open files, threads     not more
#     CPU time                at most 1.2 x, or half a percent of a core more
#     lateness p50 and p99    at most 1.2 x, or 10 us more (medians over the segments of a quarter)
#     ticks missed            at most 1.2 x, or 5 % of all ticks more (likewise)
# and no sample is lost and the remaining segments pass verification. Missed ticks count because a
# run that samples less also uses less. Exit status: 0 all flat, 1 not flat, 2 could not run. Needs
# Python 3.
set -euo pipefail
cd "$(dirname "$0")/.."

asked=${1:-1h}
case $asked in
    *h) seconds=$((${asked%h} * 3600)) ;;
    *m) seconds=$((${asked%m} * 60)) ;;
    *s) seconds=${asked%s} ;;
    *) seconds=$asked ;;
esac
if [ "$seconds" -lt 60 ]; then
    echo "soak: duration $asked is too short; use at least 60s" >&2
    exit 2
fi
step=$((seconds / 24))
[ "$step" -le 10 ] || step=10

cargo build --release --quiet --bin flatcap
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
flatcap=$target/release/flatcap
place=$(mktemp -d -p "${2:-$target}" soak-XXXXXX)
run_dir=$(mktemp -d -p /dev/shm flatcap-soak-XXXXXX)
recorder=
finish() {
    if [ -n "$recorder" ]; then kill "$recorder" 2>/dev/null || true; fi
    rm -rf "$place" "$run_dir"
}
trap finish EXIT

age=$((seconds / 60))
[ "$age" -ge 1 ] || age=1
cat >"$place/flatcap.toml" <<TOML
[storage]
segment_size = "1GiB"
segment_age = "${age}s"
retain_bytes = "4GiB"
min_free = "1%"
TOML
mkdir "$place/infos"

# Saves the info of each segment before retention removes it.
ask_segments() {
    for segment in "$place"/data/*.bin; do
        [ -e "$segment" ] || continue
        info=$place/infos/$(basename "$segment").json
        # A segment that was removed in the meantime has no info.
        [ -s "$info" ] || "$flatcap" info --json "$segment" >"$info" 2>/dev/null || rm -f "$info"
    done
}

started=$(date +%s)
RUNTIME_DIRECTORY=$run_dir "$flatcap" record --quiet --config "$place/flatcap.toml" --data-dir "$place/data" \
    --source cpu@1ms --source memory@1ms --source vmstat@1ms --source disk@1ms --source network@1ms --source pressure@1ms &
recorder=$!
ticks=$(getconf CLK_TCK)
next=$started
while now=$(date +%s) && [ $((now - started)) -lt "$seconds" ]; do
    next=$((next + step))
    [ "$next" -le "$now" ] || sleep $((next - now))
    if ! kill -0 "$recorder" 2>/dev/null; then
        echo "soak: the recorder has ended" >&2
        exit 1
    fi
    memory=$(awk '/^VmRSS:/ {print $2}' "/proc/$recorder/status")
    threads=$(awk '/^Threads:/ {print $2}' "/proc/$recorder/status")
    files=$(find "/proc/$recorder/fd" -mindepth 1 | wc -l)
    # utime and stime are words 14 and 15; the second word, the name, has no blanks.
    spent=$(awk '{print $14 + $15}' "/proc/$recorder/stat")
    echo "$(date +%s.%N) $memory $files $threads $spent" >>"$place/samples"
    ask_segments
done
status=0
kill -TERM "$recorder"
wait "$recorder" || status=$?
recorder=
ask_segments
verified=0
"$flatcap" verify "$place/data" >"$place/verified" 2>&1 || verified=$?
[ "$verified" -eq 0 ] || cat "$place/verified" >&2

python3 - "$place" "$ticks" "$status" "$verified" "$seconds" "$(cut -d' ' -f1 /proc/loadavg)" <<'PYTHON'
import glob
import json
import sys
from statistics import median

place, ticks, status, verified, seconds, load = sys.argv[1:]
samples = [[float(word) for word in line.split()] for line in open(place + "/samples")]
begin = samples[0][0]
# A quarter of the time between the first and the last sample.
span = (samples[-1][0] - begin) / 4 or 1
quarters = [[] for _ in range(4)]
for before, after in zip(samples, samples[1:]):
    core = (after[4] - before[4]) / int(ticks) / (after[0] - before[0]) * 100
    quarters[min(3, int((before[0] - begin) / span))].append((after[1], after[2], after[3], core))

segments = [json.load(open(path)) for path in sorted(glob.glob(place + "/infos/*.json"))]
lost = sum(source["lost"] for segment in segments for source in segment["sources"])
missed = sum(source["missed"] for segment in segments for source in segment["sources"])
recorded = sum(source["recorded"] for segment in segments for source in segment["sources"])
# All segments but the last cover the same time.
whole = segments[:-1] if len(segments) > 4 else segments
late = [[] for _ in range(4)]
for at, segment in enumerate(whole):
    sources = segment["sources"]
    missed_here = sum(source["missed"] for source in sources)
    ticks_here = missed_here + sum(source["recorded"] + source["lost"] for source in sources)
    late[at * 4 // len(whole)].append(
        [median(source["lateness_ns"][which] for source in sources) / 1e3 for which in ("p50", "p99")]
        + [missed_here / max(ticks_here, 1) * 100]
    )

def row(name, unit, values, ratio, slack):
    values = [median(quarter) for quarter in values]
    is_flat = values[3] <= max(values[0] * ratio, values[0] + slack)
    figures = "".join(f"{value:12.1f}" for value in values)
    print(f"{name:28}{figures}  {unit:8} {'flat' if is_flat else 'NOT FLAT'}")
    return is_flat

print(f"{seconds} s of six host sources at 1 kHz; load {load} at the end; {len(segments)} segments seen")
print(f"{'':28}" + "".join(f"{name:>12}" for name in ("1st quarter", "2nd", "3rd", "4th")))
flat = [
    row("resident set", "KiB", [[value[0] for value in quarter] for quarter in quarters], 1.01, 0),
    row("open files", "", [[value[1] for value in quarter] for quarter in quarters], 1, 0),
    row("threads", "", [[value[2] for value in quarter] for quarter in quarters], 1, 0),
    row("CPU time", "% of one", [[value[3] for value in quarter] for quarter in quarters], 1.2, 0.5),
    row("lateness p50", "us", [[value[0] for value in quarter] for quarter in late], 1.2, 10),
    row("lateness p99", "us", [[value[1] for value in quarter] for quarter in late], 1.2, 10),
    row("ticks missed", "% of all", [[value[2] for value in quarter] for quarter in late], 1.2, 5),
]
print(f"recorded {recorded}, lost {lost}, missed {missed} ticks; record ended with {status}, verify with {verified}")
sys.exit(0 if all(flat) and lost == 0 and status == "0" and verified == "0" else 1)
PYTHON
