#!/usr/bin/env bash
# Tests the sources on other kernels, and across CPU hotplug, device hotplug and suspend. Boots
# Debian's kernels under QEMU and records every source that the guest has. Then it compares the
# samples with vmstat, iostat, ip, ss, lsblk and df of the guest. inside.sh has the steps,
# compare.py the rules. A proof of many minutes, run by hand: no step of .ci/run.
#
#   tests/guests/run.sh [5.10|6.1|6.12]...
#
# FLATCAP_BINARY names another program than target/release/flatcap. FLATCAP_GUESTS is the directory
# of kernels, disks and results, by default target/guests. Needs no virtualization and no root, but
# the packages qemu-system-x86, busybox-static, kmod, cpio, xz-utils, e2fsprogs, procps, sysstat and iproute2,
# and Debian's package registry for the kernels. The guest has no network but its own devices.
# A busy host makes it slower and does not change the result: only the whole guest has a time limit.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
flatcap=${FLATCAP_BINARY:-$root/target/release/flatcap}
work=${FLATCAP_GUESTS:-$root/target/guests}
[ $# -gt 0 ] || set -- 5.10 6.1 6.12
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin

# Real time until a guest that does not answer is ended, in seconds.
limit=1500
# Programs of this host that run in the guest.
tools=(vmstat iostat ip ss lsblk df)
# Disk and network of the guest, a sensor, and devices that the steps make.
modules=(virtio_pci virtio_blk virtio_net ext4 dummy dm-mod nf_conntrack i2c-dev i2c-stub lm75 thermal)

for tool in qemu-system-x86_64 xz busybox modprobe depmod cpio mkfs.ext4 dpkg-deb python3 "${tools[@]}"; do
    command -v "$tool" >/dev/null || {
        echo "$tool is not installed; see the packages at the top of this script"
        exit 1
    }
done
[ -x "$flatcap" ] || {
    echo "$flatcap does not exist: build it with cargo build --release, or name another with FLATCAP_BINARY"
    exit 1
}
mkdir -p "$work"
work=$(cd "$work" && pwd)

# Unpacks the newest kernel of a version into $work/VERSION, of any release of Debian.
unpack_kernel() {
    local version=$1 apt site package
    [ -d "$work/$version/lib/modules" ] && return
    apt=("-oDir::Etc::SourceList=$work/sources.list" -oDir::Etc::SourceParts=/dev/null
        "-oDir::State::Lists=$work/lists" "-oDir::Cache=$work/cache" -oAPT::Sandbox::User=root)
    if [ ! -e "$work/sources.list" ]; then
        mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
        # The registry that this host is set up for.
        site=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | sed -n 's/^Debian //p' | grep -v security | head -n 1)
        for release in bullseye bookworm trixie; do
            echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main"
        done >"$work/sources.list"
        apt-get "${apt[@]}" update -qq
    fi
    package=$(apt-cache "${apt[@]}" pkgnames linux-image- | grep -E "^linux-image-${version//./\\.}\.[0-9+]+[^ ]*-amd64\$" | grep -vE 'cloud|rt|unsigned|dbg' | sort -V | tail -n 1)
    [ -n "$package" ] || {
        echo "no kernel $version in Debian's registry"
        return 1
    }
    (cd "$work" && apt-get "${apt[@]}" download -qq "$package")
    rm -rf "$work/$version.part"
    dpkg-deb -x "$work/$package"_*.deb "$work/$version.part"
    rm "$work/$package"_*.deb
    # Releases in which /lib is a link have the modules below /usr.
    [ -d "$work/$version.part/lib" ] || ln -s usr/lib "$work/$version.part/lib"
    depmod -b "$work/$version.part" "$(ls "$work/$version.part/lib/modules")"
    mv "$work/$version.part" "$work/$version"
}

# Copies a program and its libraries into the root of the guest.
copy_program() {
    local program=$1 to=$2 library
    install -D "$program" "$initrd/$to"
    { ldd "$program" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$initrd/$library" ] || install -D "$library" "$initrd/$library"
    done
}

# Packs the root of the guest: busybox, the tools, flatcap, and the modules in their order.
make_initrd() {
    local version=$1 release module path
    release=$(ls "$work/$version/lib/modules")
    initrd=$work/$version/initrd
    rm -rf "$initrd"
    mkdir -p "$initrd"/{bin,proc,sys,dev,tmp,run,out,modules}
    for tool in "${tools[@]}"; do copy_program "$(command -v "$tool")" "tools/$tool"; done
    copy_program "$flatcap" bin/flatcap
    install "$(command -v busybox)" "$initrd/bin/busybox"
    install "$here/inside.sh" "$initrd/init"
    for module in "${modules[@]}"; do
        { modprobe -d "$work/$version" -S "$release" --show-depends "$module" 2>/dev/null || true; } |
            sed -n 's/^insmod //p'
    done | awk '{ print $1 }' | awk '!seen[$0]++' | while read -r path; do
        module=$(basename "$path" .xz)
        # Busybox unpacks no modules.
        case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac >"$initrd/modules/$module"
        echo "$module" >>"$initrd/modules/order"
    done
    (cd "$initrd" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/$version/initrd.gz"
    rm -rf "$initrd"
}

# Prints the kinds of suspend for a kernel: the kernel's own tests, and a real suspend, from which 6.1
# does not come back in QEMU.
suspends() { if [ "$1" = 6.1 ]; then echo freeze-test,mem-test; else echo freeze-test,mem-test,mem; fi; }

# Wakes the guest whenever it is suspended, until it ends.
wake() {
    exec python3 - "$1" <<'END'
import socket, sys, time
while True:
    time.sleep(3)
    try:
        monitor = socket.socket(socket.AF_UNIX)
        monitor.connect(sys.argv[1])
        monitor.settimeout(2)
        monitor.sendall(b"info status\n")
        answer = b""
        while answer.count(b"(qemu)") < 2:
            answer += monitor.recv(4096)
        if b"suspended" in answer:
            time.sleep(2)
            monitor.sendall(b"system_wakeup\n")
            monitor.recv(4096)
        monitor.close()
    except OSError:
        continue
END
}

boot() {
    local version=$1 folder=$work/$1
    truncate -s 0 "$folder"/{data,out}.img
    truncate -s 256M "$folder"/{data,out}.img
    mkfs.ext4 -q -F "$folder/data.img"
    wake "$folder/monitor" &
    local waker=$!
    timeout "$limit" nice qemu-system-x86_64 -accel tcg,thread=multi -cpu max,pmu=off \
        -machine q35 -smp 2 -m 1024 -nodefaults -display none -serial stdio -monitor "unix:$folder/monitor,server,nowait" \
        -global ICH9-LPC.disable_s3=0 -no-reboot -kernel "$folder"/boot/vmlinuz-* -initrd "$folder/initrd.gz" \
        -append "console=ttyS0 quiet loglevel=4 panic=-1 no_console_suspend random.trust_cpu=on flatcap.suspend=$(suspends "$version")" \
        -drive "file=$folder/data.img,if=virtio,format=raw" -drive "file=$folder/out.img,if=virtio,format=raw" \
        -netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net </dev/null >"$folder/console" 2>&1 || true
    kill "$waker"
    rm -rf "$folder/out"
    mkdir "$folder/out"
    tar -C "$folder/out" -xf "$folder/out.img" 2>/dev/null || {
        tail -n 40 "$folder/console"
        echo "$version: the guest did not end in $limit s; its console is $folder/console"
        return 1
    }
}

failed=0
for version in "$@"; do
    unpack_kernel "$version"
    make_initrd "$version"
    if boot "$version"; then
        python3 "$here/compare.py" "$flatcap" "$work/$version/out" || failed=1
    else
        failed=1
    fi
done
exit "$failed"
