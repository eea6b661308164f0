#!/usr/bin/env bash
# Other platforms than this one. `check` compiles the libraries for macOS and Windows; `aarch64` runs
# the libraries' tests on aarch64 under qemu-user and builds the program for it. Installs what it
# needs; says in one line what it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

libraries=(--package flatcap-stream --package flatcap-lane --package flatcap-format --package flatcap-query)

# cargo check runs the build script of zstd, which compiles C. Only its Rust part is checked here, so
# that no foreign C compiler is needed: this one compiles nothing.
stand_in() {
    mkdir -p target/tools
    printf '#!/bin/sh\nexit 0\n' >target/tools/no-compiler
    chmod +x target/tools/no-compiler
    echo "$PWD/target/tools/no-compiler"
}

check() {
    local target name compiler
    compiler=$(stand_in)
    for target in aarch64-apple-darwin x86_64-pc-windows-gnu; do
        if ! rustup target add "$target" >/dev/null 2>&1; then
            echo "skipped: cannot install Rust for $target"
            continue
        fi
        name=${target//-/_}
        env "CC_$name=$compiler" "AR_$name=$compiler" cargo check --target "$target" "${libraries[@]}" --locked
    done
}

aarch64() {
    local target=aarch64-unknown-linux-gnu packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
    if ! rustup target add "$target" >/dev/null 2>&1; then
        echo "skipped: cannot install Rust for $target"
        return
    fi
    if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; } ||
            { echo "skipped: cannot install ${packages[*]}"; return; }
    fi
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    # The option -L of qemu would be shorter, but with it the path `/` is the directory of the
    # libraries. This emulator lacks openat2(2), as do kernels before 5.6: paths are resolved
    # without it here.
    local libraries_path=/usr/aarch64-linux-gnu/lib
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 $libraries_path/ld-linux-aarch64.so.1 --library-path $libraries_path"
    # Under qemu, optimizing takes half a minute of processor time and saves five.
    local optimized=() package
    for package in flatcap-format flatcap-lane flatcap-query flatcap-stream; do
        optimized+=(--config "profile.dev.package.$package.opt-level=2")
    done
    FLATCAP_BRIEF=1 cargo test --target "$target" "${libraries[@]}" --package flatcap-push --lib --tests --locked "${optimized[@]}"
    cargo build --target "$target" --package flatcap --locked
}

"$1"
