#!/usr/bin/env bash
# The tests in full size, in release: every operation, bit and seed of which `cargo test` takes some, 1,000 flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_FULL=1
# Optimized, but not as a whole program and not to the last, which takes three times as long to build; with the checks of a debug build.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
cargo test --release --locked --lib --test suite -- --include-ignored \
    block:: config::print damage:: recorder::crashes recorder::faults recorder::recoveries schema:: seal:: segment:: stream::fuzzing
