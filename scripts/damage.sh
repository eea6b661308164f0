#!/usr/bin/env bash
# Runs the tests in full size: every operation, bit and seed, of which `cargo test` uses a part, and
# 1,000 bit flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_FULL=1
# All packages, as in `cargo test`, whose build this uses.
cargo test --workspace --features packaged --locked --lib --test suite -- --include-ignored \
    block:: config::print damage:: tests::crashes:: tests::faults:: tests::recoveries:: tests::rings:: \
    snapshot::tests:: schema:: compress:: segment:: fuzzing
