#!/usr/bin/env bash
# Makes docs/images/page-explain.png, the picture of the README: records this host while a backup
# writes to its disk, and shows the page at the largest spike. Run it on an idle host, with Debian's
# chromium, node, and `npm ci` in web/. Arguments: the program (target/release/flatcap); a recording
# to use instead.
set -euo pipefail
cd "$(dirname "$0")/.."
flatcap=$(realpath "${1:-target/release/flatcap}")
recording=${2:-}
work=$(mktemp -d)
view=
trap '[ -z "$view" ] || kill "$view"; rm -rf "$work"' EXIT

cat >"$work/backup.sh" <<'BACKUP'
#!/bin/sh
tar -C "$1" -cf "$2" . && sync -f "$2"
BACKUP
chmod +x "$work/backup.sh"
if [ -z "$recording" ]; then
    "$flatcap" record --quiet --for 30s --data-dir "$work/data" &
    sleep 20
    "$work/backup.sh" "$(dirname "$flatcap")" "$work/backup.tar"
    wait
fi
data=${recording:-$work/data}
"$flatcap" explain "$data"

"$flatcap" view --web "$data" >"$work/address" 2>&1 &
view=$!
for _ in $(seq 100); do
    address=$(grep -o 'http://[^ ]*' "$work/address" || true)
    [ -z "$address" ] || break
    sleep 0.1
done
# The cursor is 20 ms after the field that changed most began to change.
read -r since until cursor < <("$flatcap" explain "$data" --json | python3 -c 'if True:
    import json, sys
    answer = json.load(sys.stdin)
    window, first = answer["window"], answer["fields"][0]
    print(window["first_wall_ns"], window["last_wall_ns"], first["first_wall_ns"] + 20_000_000)')
node tests/browser/incident.mjs /usr/bin/chromium "$address" "$since" "$until" "$cursor" \
    docs/images/page-explain.png
