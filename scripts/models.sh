#!/usr/bin/env bash
# Model checks: our lock-free code, in every order of threads that the memory model allows.
# Arguments select models by name.
set -euo pipefail
cd "$(dirname "$0")/.."

# With an explicit target, RUSTFLAGS does not apply to build scripts and macros, so they are not
# rebuilt. No model reads a recording, so its code need not be fast; optimizing the model checker
# itself takes ten seconds of processor time and saves three minutes.
optimized=()
for package in loom generator flatcap-lane; do optimized+=(--config "profile.dev.package.$package.opt-level=2"); done
RUSTFLAGS="--cfg flatcap_model" LOOM_MAX_BRANCHES=10000 \
    cargo test --target "$(rustc -vV | sed -n 's/^host: //p')" --lib --locked \
    --package flatcap-slab --package flatcap-metrics --package flatcap-lane \
    --config 'profile.dev.package.flatcap-format.opt-level=0' "${optimized[@]}" -- model_ "$@"
