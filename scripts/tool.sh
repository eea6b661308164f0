#!/usr/bin/env bash
# Prints the path of a program from the package registry, in a pinned version; builds it first if
# this user does not have it. All clones of a user share it: building the tools takes minutes.
#
#   scripts/tool.sh NAME VERSION [ARGUMENT OF CARGO INSTALL]...
set -euo pipefail

name=$1 version=$2
shift 2
root=${XDG_CACHE_HOME:-$HOME/.cache}/flatcap/tools
folder=$root/$name-$version
if ! [ -x "$folder/bin/$name" ]; then
    mkdir -p "$root"
    # The folder appears when it is complete, so an interrupted build leaves no half of a tool.
    new=$(mktemp -d "$root/.$name-XXXXXX")
    trap 'rm -rf "$new"' EXIT
    # Not optimized: building a tool takes longer than running it.
    cargo install --quiet --debug --locked --root "$new" --target-dir "$new/build" --version "$version" "$@" "$name" >&2
    rm -rf "$new/build"
    mv -T "$new" "$folder" 2>/dev/null || [ -x "$folder/bin/$name" ]
fi
echo "$folder/bin/$name"
