#!/usr/bin/env bash
# Tests the packages as a new user would install them: with the commands of deploy/README.md, then
# with mistakes. Each root file system is an overlay over this host's, in its own mount and process
# namespace, and is removed at the end; the host is not changed.
#
#   tests/packages.sh [FOLDER]     output of scripts/package.sh; default target/package
#
# Needs root. lintian, mandoc, rpm, zsh and fish are used if installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != --inside ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "skipped: only root can create the file systems for the package tests"
        exit
    fi
    exec unshare --mount --propagation private --pid --fork --kill-child --uts --ipc "$0" --inside "${1:-target/package}"
fi

packages=$(realpath "$2")
work=$(mktemp -d)
mount -t tmpfs -o mode=0755 packages "$work"
checked=0
chroot=$(command -v chroot) # called with an empty environment, without a PATH

passed() { checked=$((checked + 1)); echo "ok: $*"; }
failed() { echo "FAILED: $*" >&2; exit 1; }
absent() { echo "skipped: $1 is not installed"; }
there() { for path in "$@"; do [ -e "$path" ] || return 1; done; }
gone() { for path in "$@"; do [ ! -e "$path" ] || return 1; done; }
one() { # PATTERN: prints the newest matching file
    # shellcheck disable=SC2086,SC2012 # the pattern is expanded here; the names are ours
    ls -t $1 2>/dev/null | head -n 1 || true # no match is not a failure
}

# Packages of this version; packages for upgrade tests may be in the same folder.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
deb=$(one "$packages/flatcap_$version-1_*.deb")
rpm=$(one "$packages/flatcap-$version-1.*.rpm")
archive=$(one "$packages/flatcap-$version-linux-*.tar.gz")
there "${deb:-/none}" "${rpm:-/none}" || failed "no packages in $packages: run scripts/package.sh"

mounted() { # ROOT: mounts /proc, devices, an empty /run and /tmp
    mkdir -p "$1/proc" "$1/dev" "$1/run" "$1/tmp"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
    mount -t tmpfs run "$1/run"
    mount -t tmpfs -o mode=1777 tmp "$1/tmp"
}

new_root() { # NAME: a temporary overlay over this host's files, with the packages in /packages
    local upper=$work/$1.upper root=$work/$1
    mkdir -p "$upper" "$work/$1.work" "$root"
    mount -t overlay -o "lowerdir=/,upperdir=$upper,workdir=$work/$1.work" overlay "$root"
    mounted "$root"
    mkdir "$root/packages"
    cp "$deb" "$rpm" "$root/packages/"
    [ -z "$archive" ] || cp "$archive" "$root/packages/"
    # Removes an installed flatcap and its recordings.
    rm -rf "$root/etc/flatcap" "$root/var/lib/flatcap"
}

inside() { # ROOT COMMAND...: runs a command as at a terminal, with an empty environment
    local root=$1
    shift
    chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

follow_readme() { # ROOT SECTION: runs the commands of the section
    awk -v heading="## $2" '
        $0 == heading { here = 1; next }
        /^## / { here = 0 }
        /^```/ { code = here && $0 == "```sh"; next }
        code' deploy/README.md >"$1/tmp/typed"
    [ -s "$1/tmp/typed" ] || failed "deploy/README.md has no commands under $2"
    inside "$1" bash -c 'cd /packages && exec bash -eux /tmp/typed' >"$work/log" 2>&1 ||
        { cat "$work/log"; failed "deploy/README.md, $2"; }
    passed "deploy/README.md, $2: $(grep -c '^+ ' "$work/log") commands"
}

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; failed "$*"; }; }

judged() { # Checks the packages with other programs.
    if command -v lintian >/dev/null; then
        quietly lintian --allow-root --fail-on error,warning "$deb"
        passed "lintian reports nothing that is not explained"
    else
        absent lintian
    fi
    dpkg-deb --extract "$deb" "$work/unpacked"
    local page
    for page in "$work"/unpacked/usr/share/man/man?/*.gz; do
        gunzip --keep "$page"
        page=${page%.gz}
        if command -v mandoc >/dev/null; then
            # The sentence of a verb in NAME is one line of any length.
            mandoc -T lint "$page" >"$work/log" || { cat "$work/log"; failed "mandoc: $page"; }
        fi
        if command -v groff >/dev/null && command -v man >/dev/null; then
            [ -z "$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)" ] || failed "man: $page"
            lexgrog "$page" >/dev/null || failed "lexgrog: $page"
        fi
    done
    passed "manual pages are read without a warning"
    local share=$work/unpacked/usr/share
    # shellcheck disable=SC2016 # expanded by the inner shell
    bash -c '. "$1" && complete -p flatcap' bash "$share/bash-completion/completions/flatcap" >/dev/null || failed "bash"
    ! command -v zsh >/dev/null || zsh -n "$share/zsh/vendor-completions/_flatcap" || failed "zsh"
    ! command -v fish >/dev/null || fish -n "$share/fish/vendor_completions.d/flatcap.fish" || failed "fish"
    passed "shells read their completions"
    local examples="flatcap.toml flatcap-kmsg.conf flatcap-notify-reload.conf flatcap-scheduler.conf grafana.json grafana-ship.json kubernetes-daemonset.yaml kubernetes-podmonitor.yaml lake-datafusion.sql lake-delta.py lake-duckdb.sql lake-spark.sql minimal.toml prometheus-alerts.yaml prometheus-ship-alerts.yaml ship.toml"
    local example list
    dpkg-deb --contents "$deb" >"$work/list.deb"
    [ -z "$archive" ] || tar -tzf "$archive" >"$work/list.archive"
    ! command -v rpm >/dev/null || rpm -qpl "$rpm" >"$work/list.rpm" 2>/dev/null
    for example in $examples; do
        for list in "$work"/list.*; do
            grep -q "/examples/$example\$" "$list" || failed "no example $example in ${list##*/list.}"
        done
    done
    passed "the .deb, the .rpm and the archive have the examples, alerts and the dashboard"
    local unit
    for unit in flatcap.service flatcap-view.service flatcap-ship.service; do
        for list in "$work"/list.*; do
            grep -q "/$unit\$" "$list" || failed "no unit $unit in ${list##*/list.}"
        done
    done
    passed "they have the units, too"
    printf '[ship]\ndata_dir = "/x"\nto = "file:///x"\n[ship.nats]\nurl = "nats://bus"\n' >"$work/nats.toml"
    quietly "$work/unpacked/usr/bin/flatcap-ship" check-config --config "$work/nats.toml"
    passed "flatcap-ship is built with messages"
    for list in "$work"/list.*; do
        grep -q "/flatcap-convert\$" "$list" || failed "no flatcap-convert in ${list##*/list.}"
    done
    printf 'time,value\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:01Z,2\n' >"$work/rows.csv"
    quietly "$work/unpacked/usr/bin/flatcap" import csv "$work/rows.csv" --data-dir "$work/imported"
    quietly "$work/unpacked/usr/bin/flatcap" export "$work/imported" --to parquet -o "$work/parquet"
    passed "flatcap imports and exports with the package's flatcap-convert"
}

upgraded() { # An upgrade with a changed configuration and a different default file.
    local root=$work/upgrade
    new_root upgrade
    dpkg-deb --raw-extract "$deb" "$root/tmp/old"
    echo "# as it was" >>"$root/tmp/old/etc/flatcap/flatcap.toml"
    sed -i 's/^Version: .*/Version: 0.0.1-1/' "$root/tmp/old/DEBIAN/control"
    quietly dpkg-deb --root-owner-group -Zgzip -z1 --build "$root/tmp/old" "$root/tmp/old.deb"
    quietly inside "$root" dpkg -i /tmp/old.deb
    printf '\n[storage]\nretain_bytes = "2GiB"\n' >>"$root/etc/flatcap/flatcap.toml"
    echo "[source.cpu]" >"$root/etc/flatcap/conf.d/50-own.toml"
    quietly inside "$root" apt-get install --yes -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "/packages/${deb##*/}"
    grep -q 'retain_bytes = "2GiB"' "$root/etc/flatcap/flatcap.toml" || failed "the administrator's configuration is gone"
    [ -e "$root/etc/flatcap/flatcap.toml.dpkg-dist" ] || failed "the new configuration is not beside the changed one"
    [ -e "$root/etc/flatcap/conf.d/50-own.toml" ] || failed "a drop-in is gone"
    quietly inside "$root" flatcap check-config /etc/flatcap/flatcap.toml
    passed "an upgrade keeps a changed configuration and drop-ins"
    quietly inside "$root" dpkg -i "/packages/${deb##*/}"
    passed "installing the same version again changes nothing"

    # For a configuration that this version refuses, dpkg fails with an error that names the
    # mistake, and succeeds once the mistake is corrected.
    printf '[storage]\nsegment_sise = "4MiB"\n' >"$root/etc/flatcap/conf.d/60-wrong.toml"
    ! inside "$root" dpkg -i "/packages/${deb##*/}" >"$work/log" 2>&1 || failed "an upgrade to a version that refuses the configuration succeeds"
    if ! grep -q "60-wrong.toml:2:1: " "$work/log" || ! grep -q "then: dpkg --configure flatcap" "$work/log"; then
        cat "$work/log"
        failed "the upgrade does not report what is wrong"
    fi
    # shellcheck disable=SC2016 # a format of dpkg
    [ "$(inside "$root" dpkg-query --show --showformat '${db:Status-Status}' flatcap)" = half-configured ] || failed "dpkg reports it as installed"
    rm "$root/etc/flatcap/conf.d/60-wrong.toml"
    quietly inside "$root" dpkg --configure flatcap
    passed "an upgrade stops at a configuration that the new version refuses, and continues when it is corrected"
}

purged() { # With foreign files in the directory, and with a running recorder.
    local root=$work/foreign data
    new_root foreign
    inside "$root" useradd --system --home-dir /srv/elsewhere --shell /bin/sh flatcap
    data=$root/var/lib/flatcap
    mkdir -p "$data/kept"
    touch "$data/notes.txt" "$data/0000000001-not-ours.bin"
    # Files that a kill leaves during compression and while writing the last good configuration.
    touch "$data/0000000001-20260101T000000Z-00000000000000aa.bin.compressing" "$data/.flatcap-x.partial" "$data/flatcap.last-good.toml"
    local name=20260101T000000.000Z-io-stall
    mkdir -p "$data/snapshots/$name" "$data/snapshots/$name.partial" "$data/snapshots/mine" "$data/ring"
    touch "$data/snapshots/$name/snapshot.json" "$data/snapshots/mine/notes.txt" \
        "$data/ring/0000000001-20260101T000000Z-00000000000000aa.bin.active"
    quietly inside "$root" dpkg -i "/packages/${deb##*/}"
    inside "$root" getent passwd flatcap | grep -q /srv/elsewhere || failed "the existing account was changed"
    inside "$root" getent group flatcap-push | grep -q ':$' || failed "no group flatcap-push, or one with members"
    quietly inside "$root" flatcap record --quiet --config /etc/flatcap/flatcap.toml --for 1s
    [ -n "$(one "$data/*Z-*.bin")" ] || failed "nothing was recorded"
    # A killed run leaves its reserved space.
    touch "$data/flatcap.reserve"
    quietly inside "$root" dpkg --purge flatcap
    [ -z "$(one "$data/*Z-*.bin")" ] || failed "recordings outlive a purge"
    there "$data/notes.txt" "$data/0000000001-not-ours.bin" "$data/kept" || failed "a file that is not flatcap's is gone"
    there "$data/snapshots/mine/notes.txt" || failed "a snapshots directory of others is gone"
    gone "$data/snapshots/$name" "$data/snapshots/$name.partial" "$data/ring" || failed "snapshots or the ring outlive a purge"
    gone "$data/flatcap.lock" "$data"/*.compressing "$data"/.*.partial "$data/flatcap.last-good.toml" "$data/flatcap.reserve" "$root/etc/flatcap" || failed "the lock or /etc/flatcap outlives a purge"
    inside "$root" getent passwd flatcap >/dev/null || failed "the account is gone"
    passed "a purge removes recordings and configuration, and nothing that is not flatcap's"

    quietly inside "$root" dpkg -i "/packages/${deb##*/}"
    # shellcheck disable=SC2016 # expanded by the inner shell
    inside "$root" sh -c 'echo $$ >/tmp/recorder; exec flatcap record --quiet --config /etc/flatcap/flatcap.toml' &
    local recorder=$! waited=0
    until [ -n "$(one "$data/*.bin.active")" ]; do
        sleep 0.1
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || failed "no running recorder after a minute"
    done
    inside "$root" dpkg --purge flatcap >"$work/log" 2>&1 || { cat "$work/log"; failed "a purge with a running recorder"; }
    grep -q "a recorder is still running" "$work/log" || failed "a purge does not mention the running recorder"
    [ -n "$(one "$data/*.bin.active")" ] || failed "a purge removed the files of a running recorder"
    kill -TERM "$(cat "$root/tmp/recorder")"
    wait "$recorder" || failed "the recorder did not exit cleanly: $?"
    cp "$work/unpacked/usr/bin/flatcap" "$root/tmp/flatcap"
    quietly inside "$root" /tmp/flatcap verify /var/lib/flatcap
    passed "a purge leaves a running recorder its files, and it exits cleanly"
}

installed_by_rpm() {
    if ! command -v rpm >/dev/null; then
        absent rpm
        return
    fi
    local root=$work/rpm
    rpm -qp --scripts "$rpm" 2>/dev/null | grep -q 'postinstall scriptlet' || failed "the rpm has no scripts"
    rpm -qp --configfiles "$rpm" 2>/dev/null | grep -qx /etc/flatcap/flatcap.toml || failed "the rpm does not mark its configuration as such"
    new_root rpm
    # dpkg knows this host's libraries; rpm does not.
    quietly inside "$root" rpm --install --nodeps "/packages/${rpm##*/}"
    quietly inside "$root" flatcap check-config /etc/flatcap/flatcap.toml
    [ -d "$root/etc/flatcap/conf.d" ] || failed "no conf.d"
    inside "$root" getent passwd flatcap >/dev/null || failed "no account"
    echo "# mine" >>"$root/etc/flatcap/flatcap.toml"
    quietly inside "$root" rpm --install --force --nodeps "/packages/${rpm##*/}"
    grep -q "# mine" "$root/etc/flatcap/flatcap.toml" || failed "the rpm wrote over a changed configuration"
    quietly inside "$root" rpm --erase flatcap
    gone "$root/usr/bin/flatcap" || failed "the program outlives its package"
    there "$root/etc/flatcap/flatcap.toml.rpmsave" || failed "a changed configuration is gone with the rpm"
    passed "the rpm is installed, installed again, erased"
}

without_anything() { # The static program in an empty root: no libraries, no /proc, no devices.
    local root=$work/empty
    mkdir -p "$root/host/proc" "$root/host/sys" "$root/data"
    cp "$packages/static/flatcap" "$root/flatcap"
    mount --rbind /proc "$root/host/proc"
    mount --rbind /sys "$root/host/sys"
    printf '[recorder]\nhost_root = "/host"\ndata_dir = "/data"\n' >"$root/flatcap.toml"
    quietly env -i "$chroot" "$root" /flatcap record --config /flatcap.toml --for 2s
    quietly env -i "$chroot" "$root" /flatcap verify --strict /data
    passed "the static program records and verifies in an empty root"

    # A driver without its library, and a program that cannot load libraries.
    mkdir -p "$root/card/proc/driver/nvidia"
    echo "NVRM version: none" >"$root/card/proc/driver/nvidia/version"
    printf '[recorder]\nhost_root = "/card"\n[source.gpu]\nenabled = true\nrequired = true\n' >"$root/gpu.toml"
    if env -i "$chroot" "$root" /flatcap record --config /gpu.toml --source gpu --for 1s >"$work/log" 2>&1; then
        failed "the static program claims to read NVIDIA's driver"
    fi
    grep -q "Dynamic loading not supported" "$work/log" || { cat "$work/log"; failed "no reason why gpu is absent"; }
    passed "the static program reports why it has no gpu"
}

contained() { # Builds the tree of the Containerfile and runs it as a container engine would.
    local root=$work/container file=deploy/container/Containerfile line from to owner user variables=() command
    mkdir -p "$root"
    while read -r line; do
        # shellcheck disable=SC2086 # words of the line
        set -- $line
        case $1 in
            COPY)
                owner=0:0
                case $2 in --chown=*) owner=${2#--chown=}; shift ;; esac
                from=${2/#target\/package/$packages} to=$root$3
                if [ -d "$from" ]; then
                    mkdir -p "$to"
                    cp -r "$from/." "$to/"
                else
                    mkdir -p "$(dirname "$to")"
                    cp "$from" "$to"
                fi
                chown "$owner" "$to"
                ;;
            USER) user=$2 ;;
            ENV) variables+=("$2") ;;
            ENTRYPOINT | CMD)
                shift
                command="${command:-} $(tr -d '[]",' <<<"$*")"
                ;;
            FROM) [ "$2" = scratch ] || failed "FROM $2" ;;
            VOLUME | STOPSIGNAL) ;;
            *) failed "$file: this test does not know $1" ;;
        esac
    done < <(grep -v -e '^#' -e '^$' "$file")
    mounted "$root"
    mkdir -p "$root/host/proc" "$root/host/sys"
    mount --rbind -o ro /proc "$root/host/proc"
    mount --rbind -o ro /sys "$root/host/sys"
    # shellcheck disable=SC2086 # words of the command
    set -- $command
    local run=(env -i "${variables[@]}" "$chroot" "--userspec=$user" --groups= "$root")
    quietly "${run[@]}" "$@" --for 2s
    quietly "${run[@]}" "$1" verify --strict /var/lib/flatcap
    quietly "${run[@]}" "$1" check-config /etc/flatcap/flatcap.toml
    "${run[@]}" "$1" dump /var/lib/flatcap --source cpu --format jsonl 2>/dev/null | head -n 1 | grep -q '"cpu"' || failed "no row"
    passed "the container's tree records as $user, verifies and checks its configuration"
}

manifests() { # Checks the manifests against the container, and their configuration with the program.
    if ! python3 -c 'import yaml' 2>/dev/null; then
        absent "python3-yaml"
        return
    fi
    python3 - "$work/unpacked/usr/bin/flatcap" "$work/configmap" <<'CHECK' || failed "deploy/container: a manifest"
import json, os, subprocess, sys, yaml
kinds = {item["kind"]: item for item in yaml.safe_load_all(open("deploy/container/daemonset.yaml"))}
monitor = yaml.safe_load(open("deploy/container/podmonitor.yaml"))
name = "flatcap"
for item in (kinds["ConfigMap"], kinds["DaemonSet"], kinds["ServiceAccount"], monitor):
    assert item["metadata"]["namespace"] == kinds["Namespace"]["metadata"]["name"] == name, item["kind"]
os.mkdir(sys.argv[2])
for file, text in kinds["ConfigMap"]["data"].items():
    open(f"{sys.argv[2]}/{file}", "w").write(text)
pod = kinds["DaemonSet"]["spec"]["template"]["spec"]
assert pod["priorityClassName"] == kinds["PriorityClass"]["metadata"]["name"] and not pod["automountServiceAccountToken"]
assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
recorder, = pod["containers"]
containerfile = open("deploy/container/Containerfile").read()
command = next(line[4:] for line in containerfile.splitlines() if line.startswith("CMD "))
assert recorder["args"] == json.loads(command), (recorder["args"], command)
port, = recorder["ports"]
for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
    assert recorder[probe]["httpGet"]["port"] == port["name"], probe
assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
mounted = {mount["name"] for container in pod["containers"] + pod["initContainers"] for mount in container["volumeMounts"]}
assert mounted == {volume["name"] for volume in pod["volumes"]}, mounted
for container in pod["containers"] + pod["initContainers"]:
    assert not container["image"].endswith(":latest") and ":" in container["image"], container["image"]
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"] and context["capabilities"]["drop"] == ["ALL"]
variables = {item["name"]: item.get("value", "").replace("$(HOST_IP)", "192.0.2.1") for item in recorder["env"]}
assert str(port["containerPort"]) in variables["FLATCAP_CONTROL__METRICS_LISTEN"]
variables = {key: value for key, value in variables.items() if key.startswith("FLATCAP_")}
subprocess.run([sys.argv[1], "check-config", f"{sys.argv[2]}/flatcap.toml"], env=variables, check=True, stdout=subprocess.DEVNULL)
CHECK
    passed "the manifests for Kubernetes agree with the container and with each other"
}

judged
manifests
new_root debian
follow_readme "$work/debian" "Debian, Ubuntu"
[ -z "$archive" ] || { new_root archive; follow_readme "$work/archive" "Any Linux, from the archive"; }
upgraded
purged
installed_by_rpm
if [ -n "$archive" ]; then
    without_anything
    contained
else
    absent "the static program"
fi
echo "$checked passed, 0 failed"
