#!/usr/bin/env bash
# Runs the property tests that take many minutes, with thousands of seeds. They cover accounting of
# failed writes, kills and recoveries; disks that other programs fill; concurrent rescue,
# compression, shipping and retention; and queries compared with naive readers. Arguments select
# tests by name.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_LONG=1 FLATCAP_FULL=1
[ $# -gt 0 ] || set -- accounting:: shared_disk:: interleavings:: identity_tests:: rate_tests:: forgery_tests::
cargo test --locked --lib -- "$@"
cargo test --locked --package flatcap-promql --test staleness
