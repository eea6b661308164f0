#!/usr/bin/env bash
# Model checks: what is lock-free and ours, in every order of threads that the memory model allows. Arguments choose models by name.
set -euo pipefail
cd "$(dirname "$0")/.."

# With a target that is named, build scripts and macros are those of every other build.
RUSTFLAGS="--cfg flatcap_model" LOOM_MAX_BRANCHES=10000 \
    cargo test --target "$(rustc -vV | sed -n 's/^host: //p')" --lib --locked -- model_ "$@"
