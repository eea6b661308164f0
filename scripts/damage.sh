#!/usr/bin/env bash
# The damage tests in full size, in release: every bit under every checksum, 1,000 flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
# Optimized, but not as a whole program and not to the last, which takes three times as long to build.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
cargo test --release --locked --test suite -- --ignored damage::
