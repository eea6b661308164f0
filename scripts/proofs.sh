#!/usr/bin/env bash
# Runs the tests with the most cases: thousands of seeds, which take many hours. Arguments select
# tests by name, such as accounting:: (failed writes, kills and recoveries), interleavings::
# (concurrent rescue, compression, shipping and retention), tests::identity:: and tests::rates::
# (queries compared with naive readers), forgery_tests:: and pushed_tests:: (what applications push
# under any name).
set -euo pipefail
cd "$(dirname "$0")/.."
export FLATCAP_LONG=1 FLATCAP_FULL=1
cargo test --workspace --features packaged --locked -- "$@"
