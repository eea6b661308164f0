#!/usr/bin/env bash
# Runs the property tests that take many minutes, with thousands of seeds. They cover accounting of
# failed writes, kills and recoveries; disks that other programs fill; concurrent rescue,
# compression, shipping and retention; queries compared with naive readers; what applications push
# under any name and in any role; and links that change while root writes. Arguments select tests by
# name.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_LONG=1 FLATCAP_FULL=1
if [ $# -eq 0 ]; then
  set -- accounting:: shared_disk:: source_pool:: cpu_budget:: interleavings:: identity_tests:: \
    rate_tests:: forgery_tests:: pushed_tests::
  cargo test --locked --features packaged --test suite -- push_limits:: foreign_folders::
fi
cargo test --workspace --features packaged --locked --lib -- "$@"
cargo test --locked --package flatcap-promql --test staleness
