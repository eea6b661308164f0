#!/usr/bin/env bash
# Counts the instructions of the stream library's hot paths under callgrind and names what got more than 2 % longer than
# benches/regression/baseline.txt. With --update, writes the baseline anew. Installs what it needs: valgrind, the runner.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed_percent=2
runner_version=0.19.4 # that of gungraun in benches/regression/Cargo.toml
baseline=benches/regression/baseline.txt
tools=$PWD/target/tools

if ! command -v valgrind >/dev/null; then
    apt-get update -qq && apt-get install -y -qq valgrind >/dev/null
fi
runner=$tools/bin/gungraun-runner
if ! [ -x "$runner" ]; then
    cargo install --quiet --debug --locked --root "$tools" --target-dir "$tools/build" --version "$runner_version" gungraun-runner
fi

# Counts depend on the compiler and on what the C library finds in the processor, and on nothing else.
made_with="# $(rustc --version), glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2), $(uname -m)"
measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
(cd benches/regression && GUNGRAUN_RUNNER=$runner cargo bench --locked --bench stream) |
    awk '/^stream::/ { split($1, path, "::"); split($2, id, ":"); name = path[3] "/" id[1] }
         /Instructions:/ { split($2, count, "|"); print name, count[1] }' >"$measured"
[ -s "$measured" ] || { echo "nothing was measured" >&2; exit 1; }

if [ "${1:-}" = --update ]; then
    { echo "$made_with"; cat "$measured"; } >"$baseline"
    echo "$baseline is written anew: $(wc -l <"$measured") counts"
    exit
fi

if [ "$(head -n 1 "$baseline")" != "$made_with" ]; then
    echo "the baseline was made with another compiler or C library, so its counts say nothing here:"
    echo "  there $(head -n 1 "$baseline")"
    echo "  here  $made_with"
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
        if (failed) { print "if this is meant: scripts/regression.sh --update, and say why in the commit"; exit 1 }
        print FNR " counts, none more than " allowed " % above the baseline"
    }' "$baseline" "$measured"
