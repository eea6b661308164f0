#!/usr/bin/env bash
# Runs the proofs that take many minutes, with thousands of seeds: the accounting of failed writes,
# kills and recoveries; disks that other programs fill; rescue, compression, shipping and retention
# at the same time; and queries against naive readers. Arguments select tests by name.
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_LONG=1 FLATCAP_FULL=1
[ $# -gt 0 ] || set -- accounting:: shared_disk:: interleavings:: identity_tests:: rate_tests:: forgery_tests::
cargo test --locked --lib -- "$@"
cargo test --locked --package flatcap-promql --test staleness
