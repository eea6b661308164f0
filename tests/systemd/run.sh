#!/usr/bin/env bash
# Tests the service unit under the real systemd. Boots /lib/systemd/systemd as PID 1 of new pid,
# mount, uts, ipc and cgroup namespaces on an overlay of this host's root, installs flatcap there
# and runs inside.sh. The host is not changed: writes go to a tmpfs that ends with the namespaces.
#
#   tests/systemd/run.sh [flatcap.deb [newer.deb]]
#
# Without a package, the built binary and deploy/ are installed as the package would (FLATCAP_BINARY
# names another binary). Needs root, systemd, overlayfs and cgroup2; prints a notice and passes
# without them. Takes a minute, mostly waiting.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

pass_over() {
    echo "skipped: $*"
    exit 0
}

# Runs as the new PID 1 in the new namespaces: builds the root and becomes systemd.
boot() {
    local folder=$1 group=$2
    mount --make-rprivate /
    mount -t tmpfs -o size=2G none "$folder"
    mkdir "$folder"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
    cd "$folder/root"
    mount -t proc proc proc
    # Protects the host's kernel settings: services write them only if these files are writable.
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 none run
    mount -t tmpfs -o mode=1777 none tmp
    mount -t tmpfs -o mode=755 none dev
    mkdir dev/{pts,shm}
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
    mount -t tmpfs -o mode=1777 none dev/shm
    local name major minor
    while read -r name major minor; do
        mknod -m 666 "dev/$name" c "$major" "$minor"
    done <<<$'kmsg 1 11\nnull 1 3\nzero 1 5\nfull 1 7\nrandom 1 8\nurandom 1 9\ntty 5 0'
    mknod -m 600 dev/loop-control c 10 237
    for minor in {0..63}; do
        mknod -m 600 "dev/loop$minor" b 7 "$minor"
    done
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd

    # Removes the host's own services.
    rm -rf etc/systemd/system/*.wants etc/systemd/system/*.requires var/log/journal etc/fstab
    : >etc/fstab
    # Container images use this file to stop packages from starting services.
    rm -f usr/sbin/policy-rc.d
    local unit
    for unit in timers.target systemd-udevd.service systemd-udev-trigger.service systemd-random-seed.service systemd-sysctl.service; do
        ln -sf /dev/null "etc/systemd/system/$unit"
    done
    mkdir -p run/flatcap-test
    mount --rbind "$group" run/flatcap-test
    cat >etc/systemd/system/flatcap-test.service <<'UNIT'
[Unit]
Description=The test
# A unit that names another keeps it loaded; otherwise its last exit status would be forgotten.
After=basic.target systemd-journald.service flatcap.service
[Service]
Type=oneshot
ExecStart=/bin/bash /run/flatcap-test/inside.sh
ExecStopPost=/bin/systemctl --no-block exit $EXIT_STATUS
StandardOutput=append:/run/flatcap-test/log
StandardError=append:/run/flatcap-test/log
UNIT
    hostname flatcap-test
    mkdir -p mnt
    pivot_root . mnt
    cd /
    umount -l /mnt
    # As systemd does on a host, but not in a container: credentials are mounted by another process.
    mount --make-rshared /
    exec env -i container=flatcap-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --unit=flatcap-test.service --show-status=no \
        --log-target=journal >/dev/null 2>&1 </dev/null
}

if [ "${1:-}" = --boot ]; then
    boot "$2" "$3"
fi

[ "$(id -u)" = 0 ] || pass_over "needs root"
[ -x /lib/systemd/systemd ] || pass_over "there is no /lib/systemd/systemd"
modprobe overlay 2>/dev/null || true
grep -qw overlay /proc/filesystems || pass_over "this kernel has no overlayfs"
cgroup=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET || true)
[ -n "$cgroup" ] || pass_over "no cgroup2 is mounted"

binary=${FLATCAP_BINARY:-${CARGO_TARGET_DIR:-$root/target}/debug/flatcap}
[ $# -gt 0 ] || [ -x "$binary" ] || pass_over "there is no $binary; run cargo build, or name a package"

work=$(mktemp -d /tmp/flatcap-systemd.XXXXXX)
group=$cgroup/flatcap-test-$$
# shellcheck disable=SC2317 # the trap calls it
finish() {
    # Loop devices and cgroups outlive the processes that created them.
    if [ -d "$group" ]; then
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/root" "$work/shared"
cp "$here/inside.sh" "$work/shared/"
cp -r "$root/deploy" "$root/config" "$work/shared/"
if [ $# -gt 0 ]; then
    cp "$1" "$work/shared/flatcap.deb"
    [ $# -lt 2 ] || cp "$2" "$work/shared/newer.deb"
else
    cp "$binary" "$work/shared/flatcap"
fi
: >"$work/shared/log"
mkdir "$group" || pass_over "cannot create a control group in $cgroup"
tail -n +1 -f "$work/shared/log" &
tail=$!
status=0
# Enters its own cgroup before the cgroup namespace is created, so that this cgroup is its root.
(
    echo $BASHPID >"$group/cgroup.procs"
    exec timeout --kill-after=5 300 unshare --fork --pid --mount --uts --ipc --cgroup --kill-child \
        "$here/run.sh" --boot "$work/root" "$work/shared"
) || status=$?
sleep 0.2
kill "$tail"
case $status in
    0) ;;
    124 | 137) echo "FAILED: not done after five minutes" ;;
    *) echo "FAILED: status $status" ;;
esac
exit "$status"
