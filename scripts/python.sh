#!/usr/bin/env bash
# Builds the wheel of the Python package and tries it in a clean virtual environment: values,
# explanations and times against the command, by pandas, Polars, DuckDB and pyarrow. Says in one line
# what it cannot install.
#
#   FLATCAP=FILE    the command; without it, the debug build is used, and made first
set -euo pipefail
cd "$(dirname "$0")/.."

tools=target/tools/maturin
[ -x "$tools/bin/python" ] || python3 -m venv "$tools" || { echo "skipped: cannot create a virtual environment"; exit 0; }
"$tools/bin/pip" install --quiet maturin==1.16.0 || { echo "skipped: cannot install maturin"; exit 0; }
wheels=target/wheels
rm -rf "$wheels"
CARGO_TARGET_DIR=target "$tools/bin/maturin" build --quiet --locked --profile dev --manifest-path python/Cargo.toml --out "$wheels"

# Nothing of an earlier run is in it.
venv=target/tools/wheel
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --no-index --no-deps "$wheels"/flatcap-*.whl
"$venv/bin/python" -c 'import flatcap, sys; assert not {"pyarrow", "polars", "pandas", "matplotlib"} & set(sys.modules)'
"$venv/bin/pip" install --quiet pytest==9.2.0 duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 pandas==3.1.1 matplotlib==3.11.2 ||
    { echo "skipped: cannot install the libraries that take the streams"; exit 0; }
if [ -z "${FLATCAP:-}" ]; then
    cargo build --quiet --locked --package flatcap
    export FLATCAP=$PWD/target/debug/flatcap
fi
# The recordings are small; on a disk that others have almost filled, they are made nevertheless.
export FLATCAP_STORAGE__MIN_FREE=0
"$venv/bin/python" -m pytest -q python/tests

"$venv/bin/pip" install --quiet nbmake==1.5.5 ipykernel==7.4.0 || { echo "skipped: cannot install what executes the notebook"; exit 0; }
"$venv/bin/python" -m pytest -q --nbmake examples/notebook
