#!/usr/bin/env bash
# The damage tests in full size, in release: every bit under every checksum, 1,000 flips in 400,000 frames.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release --locked --test suite -- --ignored damage::
