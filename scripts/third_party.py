#!/usr/bin/env python3
"""Prints name, licence and licence texts of every crate linked into the programs, from cargo's sources, and of what the
page of `view --web` contains, from web/licences. With a manifest as the second argument, those linked into its package."""

import json
import pathlib
import subprocess
import sys

# For a named target, cargo omits crates of other systems, which are not linked.
arguments = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", sys.argv[1]]
manifest = sys.argv[2:3]
arguments += ["--manifest-path", *manifest] if manifest else []
metadata = json.loads(subprocess.run(arguments, check=True, capture_output=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

# Follow linked dependencies from the programs, skipping dependencies of builds and tests.
roots = {one["id"] for one in metadata["packages"] if one["source"] is None and one["name"] in ("flatcap", "flatcap-convert", "flatcap-python", "flatcap-ship")}
linked, waiting = set(), list(roots)
while waiting:
    package = waiting.pop()
    if package in linked:
        continue
    linked.add(package)
    for dependency in nodes[package]["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            waiting.append(dependency["pkg"])

for package in sorted((packages[one] for one in linked - roots), key=lambda one: (one["name"], one["version"])):
    print("=" * 100)
    print(f"{package['name']} {package['version']}: {package['license'] or 'see below'}\n")
    folder = pathlib.Path(package["manifest_path"]).parent
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE")):
            print(f"--- {file.name}")
            print(file.read_text(encoding="utf-8", errors="replace"))

if manifest:
    sys.exit()
# web/assets contains these, which cargo does not know.
web = pathlib.Path(__file__).parent.parent / "web"
versions = json.loads((web / "package-lock.json").read_text(encoding="utf-8"))["packages"]
for file in sorted((web / "licences").iterdir()):
    package = versions[f"node_modules/{file.name}"]
    print("=" * 100)
    print(f"{file.name} {package['version']}: {package['license']}\n")
    print(f"--- {file.name}")
    print(file.read_text(encoding="utf-8"))
