#!/usr/bin/env bash
# Counts the instructions of the stream library's hot paths under callgrind and reports those that
# grew by more than 2 % against benches/regression/baseline.txt. With --update, rewrites the
# baseline. Installs valgrind and the runner if needed.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed_percent=2
runner_version=0.19.4 # same as gungraun in benches/regression/Cargo.toml
baseline=benches/regression/baseline.txt

if ! command -v valgrind >/dev/null; then
    apt-get update -qq && apt-get install -y -qq valgrind >/dev/null
fi
runner=$(scripts/tool.sh gungraun-runner "$runner_version")

# Counts depend only on the compiler and on the processor features that the C library detects.
made_with="# $(rustc --version), glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2), $(uname -m)"
measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
(cd benches/regression && GUNGRAUN_RUNNER=$runner cargo bench --locked --bench stream) |
    awk '/^stream::/ { split($1, path, "::"); split($2, id, ":"); name = path[3] "/" id[1] }
         /Instructions:/ { split($2, count, "|"); print name, count[1] }' >"$measured"
[ -s "$measured" ] || { echo "no counts were measured" >&2; exit 1; }

if [ "${1:-}" = --update ]; then
    { echo "$made_with"; cat "$measured"; } >"$baseline"
    echo "$baseline updated: $(wc -l <"$measured") counts"
    exit
fi

if [ "$(head -n 1 "$baseline")" != "$made_with" ]; then
    echo "skipped: the baseline was made with another compiler or C library:"
    echo "  baseline $(head -n 1 "$baseline")"
    echo "  here     $made_with"
    exit
fi
awk -v allowed="$allowed_percent" '
    /^#/ { next }
    NR == FNR { before[$1] = $2; next }
    !($1 in before) { print "new: " $1 " " $2; next }
    { seen[$1] = 1; change = 100 * ($2 / before[$1] - 1) }
    change > allowed { printf "slower: %s %d -> %d instructions (%+.1f %%)\n", $1, before[$1], $2, change; failed = 1 }
    change < -allowed { printf "faster: %s %d -> %d instructions (%+.1f %%)\n", $1, before[$1], $2, change }
    END {
        for (name in before) if (!(name in seen)) { print "gone: " name; failed = 1 }
        if (failed) { print "if this is intended: scripts/regression.sh --update, and give the reason in the commit message"; exit 1 }
        print FNR " counts, none more than " allowed " % above the baseline"
    }' "$baseline" "$measured"
