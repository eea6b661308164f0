#!/usr/bin/env bash
# Regenerates generated/ from schemas/; with --check, reports whether it is up to date. Generated
# files are committed, so that compiling the benches needs none of these tools.
#
# Needs: flatc (found as in scripts/generate.sh, or FLATC), Cap'n Proto's `capnp` (Debian:
# capnproto), a Java runtime of 17 or later (Debian: openjdk-17-jre-headless), cargo and curl.
# Pinned tools are downloaded into target/generate.
set -euo pipefail
cd "$(dirname "$0")"

flatc_version=25.12.19
capnpc_version=0.27.0 # the newest compiler plugin for the crate capnp 0.27
sbe_version=1.38.1
sbe_sha256=fa3fbba1fee169d03b82a659dfb4f3e1a996cc0936a818901ec9bc40d512f374
agrona_version=2.4.1 # the version required by sbe-tool's project file
agrona_sha256=85fdd2a94421611abb6601d815d9fa1fca0f2611ede22bbe25b2227f1768d256

tools=$PWD/target/generate
mkdir -p "$tools"

flatc=${FLATC:-../../target/flatc-$flatc_version/bin/flatc}
if ! "$flatc" --version 2>/dev/null | grep -qx "flatc version $flatc_version"; then
    echo "flatc $flatc_version is needed: run scripts/generate.sh at the root, which fetches it, or set FLATC" >&2
    exit 1
fi

if ! [ -x "$tools/bin/capnpc-rust" ]; then
    cargo install --quiet --locked --root "$tools" --version "$capnpc_version" capnpc
fi

# Downloads from Maven Central or the mirror in MAVEN_CENTRAL.
jar() { # group's path, name, version, digest
    local file=$tools/$2-$3.jar
    if ! [ -e "$file" ]; then
        curl --fail --silent --show-error --location --output "$file" \
            "${MAVEN_CENTRAL:-https://repo1.maven.org/maven2}/$1/$2/$3/$2-$3.jar"
    fi
    echo "$4  $file" | sha256sum --check --quiet
}
jar uk/co/real-logic sbe-tool "$sbe_version" "$sbe_sha256"
jar org/agrona agrona "$agrona_version" "$agrona_sha256"

out=generated
if [ "${1:-}" = --check ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
else
    rm -rf generated/shootout*
    mkdir -p generated
fi

"$flatc" --rust -o "$out" schemas/shootout.fbs
"$flatc" --binary --schema --bfbs-comments --bfbs-builtins --bfbs-filenames schemas -o "$out" schemas/shootout.fbs
capnp compile -o"$tools/bin/capnpc-rust:$out" --src-prefix=schemas schemas/shootout.capnp
# Its Rust target writes a crate named after the schema's package.
java -Dsbe.output.dir="$out" -Dsbe.target.language=Rust -Dsbe.validation.stop.on.error=true \
    -cp "$tools/sbe-tool-$sbe_version.jar:$tools/agrona-$agrona_version.jar" uk.co.real_logic.sbe.SbeTool schemas/shootout.xml

if [ "${1:-}" = --check ]; then
    for made in "$out"/*; do
        if ! diff -r "$made" "generated/$(basename "$made")"; then
            echo "generated/ does not match schemas/: run benches/rivals/generate.sh and commit the result" >&2
            exit 1
        fi
    done
    echo "benches/rivals/generated/ is up to date"
fi
