#!/usr/bin/env bash
# Runs our unsafe and lock-free code under the address sanitizer, in a model checker, and under the
# thread sanitizer: only the crates that have such code. It has its own target directory, so it can run
# at the same time as other builds. If it cannot install a tool, it says so in one line.
#
#   scripts/sanitizers.sh [push]   push: instead, all tests of the library for applications under
#                                  both sanitizers; by hand, since it takes four minutes to build
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/sanitizer
target=x86_64-unknown-linux-gnu

case "${1:-}" in
    "") ;;
    push)
        for sanitizer in address thread; do
            echo "-- $sanitizer sanitizer: the library for applications, beside a recorder in a thread"
            # Not the C and the Python program: they have no sanitizer.
            RUSTFLAGS="-Zsanitizer=$sanitizer" cargo +nightly test -Zbuild-std --target "$target" --locked \
                --config 'profile.dev.package.flatcap-format.opt-level=0' \
                --package flatcap-push --lib --test push -- --skip interfaces
        done
        exit
        ;;
    *) echo "sanitizers.sh: $1: only push is known" >&2 && exit 2 ;;
esac

echo "-- address sanitizer: unsafe code stays within its arrays and mappings"
if rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal; then
    # The skipped test counts page faults, and the sanitizer causes some. Few tests run, so
    # optimizing what they use takes longer than it saves.
    address() {
        RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --target "$target" --locked --lib \
            --config 'profile.dev.package.flatcap-format.opt-level=0' "$@"
    }
    address --package flatcap-slab -- --skip pages_are_mapped_ahead
    address --package flatcap-os --package flatcap-format --package flatcap-lane --package flatcap-push -- \
        xxh3 size_estimate shared_memory mapping::tests c_abi::tests --skip pages_are_mapped_ahead
else
    echo "skipped: cannot install nightly Rust"
fi

echo "-- miri: the library for applications keeps to Rust's rules for raw pointers"
if rustup component add miri rust-src --toolchain nightly >/dev/null 2>&1; then
    # The omitted tests request sockets from the kernel, which miri does not support.
    cargo +nightly miri test --package flatcap-push --lib --locked -- mapping::tests c_abi::tests
else
    echo "skipped: cannot install miri"
fi

echo "-- models: our lock-free code, in every order that the memory model allows"
scripts/models.sh

echo "-- thread sanitizer: no data race between samplers, recorder and syncer"
if rustup component add rust-src --toolchain nightly >/dev/null 2>&1; then
    # With the standard library instrumented as well: otherwise its fences and locks look like
    # races.
    race() {
        RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -Zbuild-std --target "$target" --locked --lib "$@"
    }
    race --package flatcap-slab --package flatcap-metrics
    race --package flatcap-os --package flatcap-recorder -- wake_event tests::faults
else
    echo "skipped: cannot install nightly Rust with rust-src"
fi
