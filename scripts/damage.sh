#!/usr/bin/env bash
# Runs the tests in full size: every operation, bit and seed, of which `cargo test` uses a part, and
# 1,000 bit flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_FULL=1
# Optimized is only what these tests run, with the checks of a debug build; the other dependencies
# are those of `cargo test`, which are not built again.
optimized=()
for package in flatbuffers flatcap-stream flatcap-lane flatcap-format; do
    optimized+=(--config "profile.dev.package.$package.opt-level=1")
done
cargo test --locked "${optimized[@]}" \
    --package flatcap --package flatcap-stream --package flatcap-lane --package flatcap-format --package flatcap-trigger \
    --lib --test suite -- --include-ignored \
    block:: config::print damage:: recorder::tests schema:: compress:: segment:: fuzzing
