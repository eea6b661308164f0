#!/usr/bin/env bash
# Runs the tests in full size, in release: every operation, bit and seed, of which `cargo test` uses
# a part, and 1,000 bit flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_FULL=1
# Partly optimized, since full optimization and LTO take three times as long to build; with the
# checks of a debug build.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
cargo test --release --locked --package flatcap --package flatcap-stream --package flatcap-lane --package flatcap-format \
    --package flatcap-trigger --lib --test suite -- --include-ignored \
    block:: config::print damage:: recorder::tests schema:: compress:: segment:: fuzzing
