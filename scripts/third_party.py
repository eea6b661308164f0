#!/usr/bin/env python3
"""Prints the licences of every crate that is linked into the program, with their texts, from what cargo has unpacked."""

import json
import pathlib
import subprocess
import sys

# A crate for another system is not linked; cargo leaves it out for the target that is named.
arguments = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", sys.argv[1]]
metadata = json.loads(subprocess.run(arguments, check=True, capture_output=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

# From the program on, over what is linked: neither tools of the build nor those of the tests.
root = metadata["resolve"]["root"]
linked, waiting = set(), [root]
while waiting:
    package = waiting.pop()
    if package in linked:
        continue
    linked.add(package)
    for dependency in nodes[package]["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            waiting.append(dependency["pkg"])

for package in sorted((packages[one] for one in linked - {root}), key=lambda one: (one["name"], one["version"])):
    print("=" * 100)
    print(f"{package['name']} {package['version']}: {package['license'] or 'see below'}\n")
    folder = pathlib.Path(package["manifest_path"]).parent
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE")):
            print(f"--- {file.name}")
            print(file.read_text(encoding="utf-8", errors="replace"))
