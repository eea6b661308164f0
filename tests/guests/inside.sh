#!/bin/busybox sh
# Process 1 of a guest, started by run.sh: records every source, compares with tools, takes a CPU
# and devices away and back, suspends, and writes the recording and the tools' output to /dev/vdb.
/bin/busybox --install -s /bin
export PATH=/bin LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in cpu memory io pids; do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done 2>/dev/null
exec >/dev/ttyS0 2>&1
uname -a

while read -r module; do
    parameters=
    [ "$module" = i2c-stub.ko ] && parameters=chip_addr=0x48
    insmod "/modules/$module" $parameters || echo "no module $module"
done </modules/order
# A temperature of 25 degrees.
for bus in /sys/bus/i2c/devices/i2c-*; do
    if grep -q stub "$bus/name" 2>/dev/null; then
        mdev -s
        i2cset -y "${bus##*-}" 0x48 0 0x0019 w
        echo lm75 0x48 >"$bus/new_device"
    fi
done
/tools/ip link set lo up
/tools/ip link set eth0 up
/tools/ip addr add 10.0.2.15/24 dev eth0
mkdir /data
mount -t ext4 /dev/vda /data
mkdir -p /sys/fs/cgroup/work.slice

# Writes the output of a command to /out, with CLOCK_MONOTONIC before and after in nanoseconds.
now() { sed -n 's/^now at \([0-9]*\).*/\1/p;/^now at/q' /proc/timer_list; }
noted=0
note() { # PHASE COMMAND...
    local phase=$1 begin
    shift
    noted=$((noted + 1))
    begin=$(now)
    # By their paths: the shell prefers programs of its own, such as another ip.
    "/tools/$@" >"/out/tool.$noted" 2>&1
    printf '%s\t%s\t%s\t%s\t%s\n' "$noted" "$phase" "$begin" "$(now)" "$*" >>/out/tools
}
# Begins a phase: events that the comparison knows by name.
phase() { printf '%s\t%s\n' "$1" "$(now)" >>/out/phases; echo "phase $1"; }

# Some work of every kind, so that counters move.
work() {
    dd if=/dev/zero of=/data/file bs=64k count=64 conv=fsync 2>/dev/null
    echo 3 >/proc/sys/vm/drop_caches
    cat /data/file >/dev/null
    ping -q -c 2 -i 0.2 -W 1 127.0.0.1 >/dev/null
    ping -q -c 2 -i 0.2 -W 1 10.0.2.2 >/dev/null
    wget -q -O /dev/null http://127.0.0.1:8000/hello
    sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done'
}
compare() { # PHASE
    sleep 1
    note "$1" vmstat -s
    note "$1" vmstat -d
    note "$1" vmstat -m
    note "$1" iostat -d -k
    note "$1" ip -s -s link
    note "$1" ip -s -s -j link
    note "$1" ss -s
    note "$1" lsblk -b -J -o NAME,MAJ:MIN,SIZE,MOUNTPOINT,FSSIZE,FSAVAIL
    note "$1" df -B1 -a
    sleep 1
}

flatcap sources --json >/out/sources.json 2>/out/sources.log || flatcap sources >/out/sources.txt 2>&1
cat >/tmp/guest.toml <<'END'
[recorder]
data_dir = "/data/recording"
# An emulated processor is slow.
cpu_budget = "1000%"
[compress]
enabled = false
[storage]
min_free = "0%"
END
for source in cpu memory vmstat load disk network pressure self schedstat softirqs interrupts \
    cpufreq thermal hwmon power numa slab buddy hugepages filesystem sockets snmp netstat softnet \
    conntrack ethtool process cgroup perf sched profile kmsg; do
    printf '[source.%s]\nenabled = true\nperiod = "250ms"\nbudget = "100%%"\n' "$source" >>/tmp/guest.toml
    [ "$source" = disk ] && printf 'include = ["*"]\n' >>/tmp/guest.toml
done
flatcap check-config /tmp/guest.toml >/out/check-config 2>&1 || cat /out/check-config
echo hello >/tmp/hello
httpd -p 8000 -h /tmp
flatcap record --config /tmp/guest.toml >/out/record.log 2>&1 &
recorder=$!
sleep 4
phase begin
work
compare begin

phase core-gone
echo 0 >/sys/devices/system/cpu/cpu1/online
work
compare core-gone
echo 1 >/sys/devices/system/cpu/cpu1/online
phase core-back
work
compare core-back
# Away and back between two samples.
echo 0 >/sys/devices/system/cpu/cpu1/online
echo 1 >/sys/devices/system/cpu/cpu1/online
phase core-flicker
work
compare core-flicker

card=$(readlink -f /sys/class/net/eth0/device/..)
phase device-gone
/tools/ip link add dummy7 type dummy 2>/dev/null
echo 1 >"$card/remove"
compare device-gone
echo 1 >/sys/bus/pci/rescan
sleep 1
/tools/ip link set eth0 up
/tools/ip addr add 10.0.2.15/24 dev eth0
phase device-back
work
compare device-back

suspends=$(sed -n 's/.*flatcap.suspend=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
[ -n "$suspends" ] || suspends=$(cat /sys/power/state)
for kind in $suspends; do
    case $kind in freeze* | mem*) ;; *) continue ;; esac
    phase "suspend-$kind"
    case $kind in *-test) is_test=1 ;; *) is_test=0 ;; esac
    if [ $is_test = 1 ]; then
        # All of suspend but the wait for a wakeup: five seconds instead.
        case $kind in freeze*) echo platform ;; *) echo core ;; esac >/sys/power/pm_test
        echo "${kind%-test}" >/sys/power/state
        result=$?
        echo none >/sys/power/pm_test
        [ $result = 0 ]
    else
        [ "$kind" = mem ] && echo deep >/sys/power/mem_sleep
        echo "$kind" >/sys/power/state
    fi && echo "$kind" >>/out/suspended
    phase "resumed-$kind"
    sleep 2
    work
    compare "resumed-$kind"
done
phase end
sleep 1
kill -TERM $recorder
wait $recorder
echo "$?" >/out/status
flatcap info /data/recording >/out/info 2>&1
flatcap verify /data/recording >/out/verify 2>&1
dmesg >/out/dmesg
cp -r /data/recording /out/
tar -C /out -cf /dev/vdb .
sync
phase off
# QEMU ends at a reboot; some kernels do not power off after a suspend.
reboot -f
