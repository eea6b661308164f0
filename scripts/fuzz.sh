#!/usr/bin/env bash
# Runs the fuzz targets from their seeds: a proof by hand, of some time each. Ends with 1 if an input
# makes one fail; the input is in target/fuzz/failed. Needs nightly Rust, which it installs.
#
#   scripts/fuzz.sh [SECONDS [TARGET]...]   SECONDS of each target, 60 by default; all by default
#
# FLATCAP_FUZZ_JOBS is how many run at a time, 4 by default.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
jobs=${FLATCAP_FUZZ_JOBS:-4}
rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
fuzz=$(scripts/tool.sh cargo-fuzz 0.13.2)
PATH=$(dirname "$fuzz"):$PATH
export RUSTUP_TOOLCHAIN=nightly
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then mapfile -t targets < <(cargo fuzz list); fi

# With debug assertions, as in tests.
for target in "${targets[@]}"; do cargo fuzz build -a "$target"; done
built=fuzz/target/$(rustc -vV | sed -n 's/^host: //p')/release

run() { # TARGET: fuzzes it, and prints a line
    local target=$1 folder=target/fuzz/$1 seeds=()
    mkdir -p "$folder" target/fuzz/failed
    for seed in "fuzz/corpus/$target" "fuzz/regressions/$target"; do
        [ ! -d "$seed" ] || seeds+=("$seed")
    done
    case $target in segment | complete | query) seeds+=(tests/corpus) ;; esac
    if "$built/$target" -max_total_time="$seconds" -artifact_prefix="target/fuzz/failed/$target-" \
        "$folder" ${seeds[@]+"${seeds[@]}"} >"$folder.log" 2>&1; then
        echo "$target: $(grep '^Done' "$folder.log")"
    else
        echo "$target: FAILED, see $folder.log"
        tail -n 40 "$folder.log"
        return 1
    fi
}
export -f run
export seconds built
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I TARGET bash -c 'run TARGET'
