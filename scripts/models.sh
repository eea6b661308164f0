#!/usr/bin/env bash
# Model checks: what is lock-free and ours, in every order of threads that the memory model allows. Arguments choose models by name.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTFLAGS="--cfg flatcap_model" LOOM_MAX_BRANCHES=10000 \
    cargo test --target-dir "${CARGO_TARGET_DIR:-target}/models" --lib --locked -- model_ "$@"
