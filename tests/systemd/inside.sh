#!/usr/bin/env bash
# Started by systemd as PID 1, from run.sh: checks each step of the service's life and prints one
# line per step.
set -euo pipefail
shared=/run/flatcap-test
data=/var/lib/flatcap
config=/etc/flatcap/flatcap.toml
began=$SECONDS

step() { printf '%3d s  %s\n' $((SECONDS - began)) "$*"; }

fail() {
    echo "FAILED: $*"
    systemctl status --no-pager flatcap.service || true
    journalctl --no-pager --lines 40 --unit flatcap.service || true
    exit 1
}

property() { systemctl show --property "$1" --value flatcap.service; }

expect() { # PROPERTY VALUE
    local found
    found=$(property "$1")
    [ "$found" = "$2" ] || fail "$1 is \"$found\", not \"$2\""
}

# Waits up to 20 s for a command to succeed.
eventually() { # WHAT COMMAND...
    local what=$1 tries
    shift
    for ((tries = 0; tries < 200; tries++)); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "not within 20 s: $what"
}

status_has() { [[ $(property StatusText) == *"$1"* ]]; }
restarts_are() { [ "$(property NRestarts)" = "$1" ] && [ "$(property ActiveState)" = active ]; }
is_state() { [ "$(property ActiveState)" = "$1" ]; }
journal_has() { journalctl --no-pager --output cat --unit flatcap.service --since "$1" | grep -qF -- "$2"; }
drop_in() { # NAME LINES
    mkdir -p /etc/systemd/system/flatcap.service.d
    printf '[Service]\n%s\n' "$2" >"/etc/systemd/system/flatcap.service.d/$1.conf"
    systemctl daemon-reload
}
now() { date '+%F %T.%6N'; }

# Prints a value of `flatcap verify --json`.
verified() {
    /usr/bin/flatcap verify --json "$data" | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"
}

assert_explained() { # LOST_MAX
    local intact unexplained lost
    intact=$(verified intact) unexplained=$(verified unexplained) lost=$(verified lost)
    [ "$intact $unexplained" = "True 0" ] || fail "verify: intact $intact, unexplained $unexplained"
    [ "$lost" -le "$1" ] || fail "verify: $lost samples lost, at most $1 allowed"
    step "  verify: intact, unexplained 0, lost $lost (at most $1)"
}

install_by_hand() {
    install -m 755 "$shared/flatcap" /usr/bin/flatcap
    install -D -m 644 "$shared/deploy/flatcap.service" /lib/systemd/system/flatcap.service
    install -D -m 644 "$shared/config/flatcap.toml" "$config"
    mkdir -p /etc/flatcap/conf.d
    systemd-sysusers "$shared/deploy/flatcap.sysusers"
    systemctl daemon-reload
}

package_is_installed() {
    dpkg --install "$shared/flatcap.deb" >/dev/null || fail "dpkg --install"
    eventually "the package starts the service" is_state active
    step "installed $(dpkg-query --show flatcap), and started"
}

package_is_upgraded_and_purged() {
    if [ -e "$shared/newer.deb" ]; then
        local before said
        before=$(property MainPID)
        printf '[storage]\nsegment_sise = "4MiB"\n' >/etc/flatcap/conf.d/60-wrong.toml
        ! said=$(dpkg --install "$shared/newer.deb" 2>&1) || fail "an upgrade to a version that rejects the configuration succeeds"
        [[ $said == *60-wrong.toml:2:1:* && $said == *"keeps running the previous version"* ]] || fail "it does not report why: $said"
        expect MainPID "$before"
        is_state active || fail "the upgrade ended the service"
        step "an upgrade whose version rejects the configuration: dpkg fails with the reason, the same process keeps recording"
        rm /etc/flatcap/conf.d/60-wrong.toml
        dpkg --configure flatcap >/dev/null || fail "dpkg --configure after the correction"
        [ "$(property MainPID)" != "$before" ] || fail "the upgrade did not restart the service"
        step "  dpkg --configure after the correction: restarted"
        before=$(property MainPID)
        dpkg --install "$shared/newer.deb" >/dev/null || fail "upgrade"
        eventually "the service runs after the upgrade" is_state active
        [ "$(property MainPID)" != "$before" ] || fail "the upgrade did not restart the service"
        step "upgraded to $(dpkg-query --show flatcap), and restarted"
        assert_explained 2
    fi
    dpkg --purge flatcap >/dev/null || fail "purge"
    [ ! -e /usr/bin/flatcap ] || fail "a binary is left behind"
    [ ! -e /etc/flatcap/flatcap.toml ] || fail "a configuration is left behind"
    ! pgrep -x flatcap >/dev/null || fail "a process is left behind"
    step "purged: neither binary nor configuration nor process is left"
}

starts() {
    local begin
    begin=$(now)
    systemctl start flatcap.service || fail "start"
    is_state active || fail "systemctl start returned before it was ready"
    compgen -G "$data/*.bin.active" >/dev/null || fail "ready without a segment"
    step "started: systemctl start returned when it was ready; the first segment is open"
    eventually "a status" status_has "samples/s"
    step "status: $(property StatusText)"
    # Other accounts pass through the runtime directory to the push socket: group_reads checks that
    # they get no further.
    [ "$(stat -c '%U %a' "$data") $(stat -c '%U %a' /run/flatcap)" = "flatcap 750 flatcap 751" ] || fail "owners and modes"
    compgen -G "/run/flatcap/*.slabs" >/dev/null || fail "no slabs in the runtime directory: $begin"
    [ "$(ps -o ni= -p "$(property MainPID)" | tr -d ' ')" = -10 ] || fail "the nice value"
    step "  its nice value: -10"
}

# Checks that a member of the group can read recordings without being root, and that others read
# neither them nor samples in memory.
group_reads() {
    local modes
    useradd --system --groups flatcap reader
    useradd --system stranger
    modes=$(find "$data" -name '*.bin*' -printf '%m\n' | sort -u)
    [ "$modes" = 640 ] || fail "modes of segments: $modes"
    [ "$(stat -c %a "$data/flatcap.last-good.toml")" = 600 ] || fail "others may read the last good configuration"
    runuser -u reader -- /usr/bin/flatcap info "$data" >/run/out 2>&1 || fail "info by a member of the group: $(cat /run/out)"
    runuser -u reader -- /usr/bin/flatcap dump "$data" --source cpu --format csv >/run/out 2>&1 || fail "dump: $(tail -n 3 /run/out)"
    [ "$(wc -l </run/out)" -gt 100 ] || fail "dump by a member of the group: $(cat /run/out)"
    ! runuser -u stranger -- /usr/bin/flatcap info "$data" >/dev/null 2>&1 || fail "any account can read recordings"
    ! runuser -u reader -- cat "$data/flatcap.last-good.toml" >/dev/null 2>&1 || fail "a member of the group can read the last good configuration"
    local kept
    ! runuser -u stranger -- ls /run/flatcap >/dev/null 2>&1 || fail "any account can list the runtime directory"
    for kept in /run/flatcap/*.slabs; do
        ! runuser -u stranger -- head -c 1 "$kept" >/dev/null 2>&1 || fail "any account can read $kept"
    done
    ! runuser -u stranger -- /usr/bin/flatcap status >/dev/null 2>&1 || fail "any account can use the control socket"
    step "a member of group flatcap reads the recording (info, dump), other accounts cannot; segments are 0640"
    step "  other accounts can neither list nor read /run/flatcap, nor use its control socket"
}

# With a configuration that is refused at the start, the service records with the last good one and
# reports it until a reload has the corrected one.
refused_falls_back() {
    local begin status=0
    cp "$config" /run/flatcap.toml.good
    printf '[storage]\nsegment_size = "many"\nsegment_aeg = "1m"\n' >"$config"
    begin=$(now)
    systemctl restart flatcap.service || fail "it does not start with its last good configuration"
    flatcap status >/run/out 2>&1 || status=$?
    [ "$status" = 3 ] || fail "flatcap status ended with $status: $(cat /run/out)"
    grep -q 'refused, recording with the last good configuration: /etc/flatcap/flatcap.toml:2:' /run/out || fail "status: $(cat /run/out)"
    status_has "with the last good configuration" || fail "the unit's status: $(property StatusText)"
    local line
    for line in flatcap.toml:2: flatcap.toml:3: "recording with the last good configuration"; do
        journal_has "$begin" "$line" || fail "not in the journal: $line"
    done
    step "start with a refused configuration: records with the last good one, flatcap status exits with 3; $(property StatusText)"
    ! systemctl reload flatcap.service 2>/dev/null || fail "a reload of a refused configuration succeeds"
    cp /run/flatcap.toml.good "$config"
    systemctl reload flatcap.service || fail "a reload of the corrected configuration"
    flatcap status >/run/out 2>&1 || fail "flatcap status after the correction: $(cat /run/out)"
    eventually "the unit's status without it" eval '! status_has "last good"'
    step "  corrected and reloaded: flatcap status exits with 0"
}

# A data directory to which the unit does not permit writing.
elsewhere_needs_a_drop_in() {
    local begin
    begin=$(now)
    install -d -o flatcap -g flatcap -m 750 /srv/recordings
    printf '[recorder]\ndata_dir = "/srv/recordings"\n' >/etc/flatcap/conf.d/70-elsewhere.toml
    /usr/bin/flatcap check-config "$config" 2>&1 >/dev/null | grep -q 'ReadWritePaths=/srv/recordings' || fail "check-config does not report it"
    systemctl stop flatcap.service
    ! timeout 5 systemctl start flatcap.service 2>/dev/null || fail "ProtectSystem=strict is not in effect"
    eventually "the reason in the journal" journal_has "$begin" "ReadWritePaths=/srv/recordings"
    drop_in elsewhere $'ReadWritePaths=/srv/recordings'
    systemctl reset-failed flatcap.service
    systemctl restart flatcap.service || fail "start with the drop-in"
    compgen -G "/srv/recordings/*.bin.active" >/dev/null || fail "nothing is recorded there"
    step "data_dir elsewhere: check-config and the journal name the drop-in, and with it the service records there"
    rm /etc/systemd/system/flatcap.service.d/elsewhere.conf /etc/flatcap/conf.d/70-elsewhere.toml
    systemctl daemon-reload
    systemctl restart flatcap.service
}

list='import json, sys
for row in json.load(sys.stdin):
    print(row["name"], "default" if row["default_enabled"] else "other", row["available"])'

sources_are_seen() {
    under_the_unit "flatcap sources --json" ""
    mv /run/out /run/sources.json
    /usr/bin/flatcap sources --json 2>/dev/null | python3 -c "$list" >/run/outside
    python3 -c "$list" </run/sources.json >/run/inside
    diff <(grep ' default ' /run/outside) <(grep ' default ' /run/inside) || fail "a default source is not available under the unit"
    step "default sources under the unit: $(grep -c ' default True' /run/inside), the same as outside"
    step "  other sources that the unit blocks: $(comm -23 <(grep True /run/outside | sort) <(grep True /run/inside | sort) |
        cut -d' ' -f1 | paste -sd' ' -)"
    local partial
    partial=$(/usr/bin/flatcap info --json "$data" | python3 -c '
import json, sys
print(sum(source["incomplete"] or 0 for source in json.load(sys.stdin)["sources"]))')
    [ "$partial" = 0 ] || fail "$partial samples are incomplete under the unit"
    step "  all of their samples are complete"
}

# Runs a command once as the unit would run the recorder, with these additional lines.
under_the_unit() { # COMMAND LINES
    sed -e 's/^Type=.*/Type=oneshot/; s/^Restart=.*//; s/^WatchdogSec=.*//; s/^\(Exec\|RestartPrevent\|RuntimeDirectory\).*//' \
        -e "s#^User=#ExecStart=/usr/bin/$1\nStandardOutput=truncate:/run/out\nStandardError=truncate:/run/err\nUser=#" \
        /lib/systemd/system/flatcap.service >/run/systemd/system/flatcap-once.service
    mkdir -p /run/systemd/system/flatcap-once.service.d
    printf '[Service]\n%s\n' "$2" >/run/systemd/system/flatcap-once.service.d/more.conf
    systemctl daemon-reload
    systemctl start flatcap-once.service || fail "$1 under the unit: $(cat /run/err)"
}

# Prints the lines of a drop-in of the package.
drop_in_lines() { grep -v '^\(#\|\[\)' "$shared/deploy/flatcap-$1.conf"; }

drop_ins_give_back() {
    local lines partial
    lines='AmbientCapabilities=CAP_SYS_PTRACE
CapabilityBoundingSet=CAP_SYS_PTRACE
AmbientCapabilities=CAP_DAC_READ_SEARCH
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
AmbientCapabilities=CAP_PERFMON
CapabilityBoundingSet=CAP_PERFMON
SystemCallFilter=perf_event_open
AmbientCapabilities=CAP_SYS_NICE
CapabilityBoundingSet=CAP_SYS_NICE
AmbientCapabilities=CAP_IPC_LOCK
CapabilityBoundingSet=CAP_IPC_LOCK
'$(drop_in_lines kmsg)
    under_the_unit "flatcap sources --json" "$lines"
    python3 -c "$list" </run/out >/run/with
    diff /run/outside /run/with || fail "a source is not available with the capabilities of the document"
    step "with the document's capabilities: every source that root has outside"
    cat >/run/capable.toml <<'CONFIG'
[recorder]
lock_memory = true
[group.fast]
priority = 5
[source.synthetic]
enabled = true
period = "10ms"
[source.process]
enabled = true
CONFIG
    local command="flatcap record --for 2s --config /run/capable.toml --source synthetic --source process --data-dir $data/capable"
    under_the_unit "$command" ""
    [ "$(grep -c 'the kernel refuses' /run/err)" = 2 ] || fail "nothing is refused without them: $(cat /run/err)"
    grep -q 'the I/O of .* processes is not recorded' /run/err || fail "process is complete without them: $(cat /run/err)"
    rm -r "$data/capable"
    under_the_unit "$command" "$lines"
    ! grep -E 'refuses|: .* incomplete|is not recorded' /run/err || fail "something is refused or incomplete with them"
    rm -r "$data/capable"
    step "  priority, lock_memory and process: refused and incomplete without them, neither with them"
}

# Here are other process ids than the host's, so switches themselves are not recorded: the drop-in
# must give all that they need.
switches_have_a_drop_in() {
    local lines id=/sys/kernel/tracing/events/sched/sched_waking/id expected=0
    mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
    [ ! -e "$id" ] || expected=$(cat "$id")
    lines=$(drop_in_lines scheduler)
    under_the_unit "cat %d/sched_waking" "$lines"
    [ "$(cat /run/out)" = "$expected" ] || fail "the tracepoint is $(cat /run/out), not $expected"
    under_the_unit "flatcap sources --json" "$lines"
    python3 -c "$list" </run/out | grep -q '^perf .*True' || fail "no events of all threads: $(cat /run/out)"
    step "flatcap-scheduler.conf: events of all threads, and the tracepoint of wakeups ($expected)"
}

kernel_log_has_a_drop_in() {
    local lines
    under_the_unit "flatcap sources --json" ""
    python3 -c "$list" </run/out | grep -q '^kmsg .*False' || fail "kmsg without its drop-in"
    lines=$(drop_in_lines kmsg)
    under_the_unit "flatcap sources --json" "$lines"
    python3 -c "$list" </run/out | grep -q '^kmsg .*True' || fail "no kernel log: $(cat /run/out /run/err)"
    under_the_unit "ls /dev" "$lines"
    ! grep -q loop /run/out || fail "other devices are seen, too: $(cat /run/out)"
    step "flatcap-kmsg.conf: the kernel log, and no other device"
}

score() {
    local said
    said=$(systemd-analyze security --no-pager flatcap.service | tail -n 1)
    step "systemd-analyze security: ${said#*: }"
    # Exactly the hardening that the unit says it does not use. RestrictRealtime= is missing because
    # a busy host delays ticks without a real-time priority.
    systemd-analyze security --no-pager --json=short flatcap.service >/run/out || fail "the analysis"
    python3 - <<'CHECK' || fail "the hardening: $said"
import json
expected = (
    "DeviceAllow IPAddressDeny PrivateNetwork PrivateUsers ProcSubset ProtectHome ProtectProc "
    "RestrictAddressFamilies_AF_INET_INET6 RestrictAddressFamilies_AF_NETLINK "
    "RestrictAddressFamilies_AF_UNIX RestrictRealtime RootDirectoryOrRootImage "
    "SystemCallFilter_resources UMask"
).split()
found = sorted(test["json_field"] for test in json.load(open("/run/out")) if float(test["exposure"] or 0) > 0)
assert found == expected, set(found) ^ set(expected)
CHECK
}

journal_is_structured() {
    local begin=$1 line
    line=$(journalctl --unit flatcap.service --since "$begin" --output json | grep -F "earlier run's segment is completed" | tail -n 1)
    python3 - "$line" <<'CHECK' || fail "the journal's fields: $line"
import json, sys
line = json.loads(sys.argv[1])
assert line["SYSLOG_IDENTIFIER"] == "flatcap" and line["PRIORITY"] == "6", line
assert line["CODE_FILE"].startswith("src/") and line["CODE_LINE"].isdigit(), line
assert int(line["FLATCAP_LOST"]) <= 2 and line["FLATCAP_SEGMENT"], line
assert "lost=" + line["FLATCAP_LOST"] in line["MESSAGE"] and line["_TRANSPORT"] == "journal", line
CHECK
    [ "$(journalctl --unit flatcap.service --since "$begin" --output cat | grep -cF "earlier run's segment is completed")" = 1 ] ||
        fail "the line is there twice"
    step "journal: the line has its fields (FLATCAP_SEGMENT, FLATCAP_LOST, CODE_FILE, PRIORITY=6), once"
}

survives_kill() {
    local begin
    begin=$(now)
    systemctl kill --signal KILL flatcap.service
    eventually "a restart after kill -9" restarts_are 1
    eventually "the recovery" journal_has "$begin" "earlier run's segment is completed"
    step "kill -9: restarted, and the samples in memory are recovered"
    systemctl stop flatcap.service
    # One sample in progress for each sampler thread.
    assert_explained 2
    journal_is_structured "$begin"
    local lost
    lost=$(verified lost)
    systemctl start flatcap.service
    sleep 1
    systemctl stop flatcap.service
    expect Result success
    expect ExecMainStatus 0
    step "plain stop and start: nothing is lost"
    assert_explained "$lost"
    systemctl start flatcap.service
}

reloads() {
    local pid begin
    pid=$(property MainPID) begin=$(now)
    mkdir -p /etc/flatcap/conf.d
    printf '[source.load]\nperiod = "500ms"\n' >/etc/flatcap/conf.d/50-load.toml
    systemctl reload flatcap.service || fail "reload"
    eventually "the change in the journal" journal_has "$begin" "load: period"
    eventually "ready after a reload" status_has "recording"
    expect MainPID "$pid"
    step "reload with a new drop-in: \"$(journalctl --no-pager --output cat --unit flatcap.service --since "$begin" | grep -F 'reloaded: load: period')\", by the same process"
    rm /etc/flatcap/conf.d/50-load.toml
    cp "$config" /run/flatcap.toml.good
    printf '[storage]\nsegment_size = "many"\n' >"$config"
    begin=$(now)
    ! systemctl reload flatcap.service 2>/dev/null || fail "a reload of an invalid configuration succeeds"
    eventually "the mistake in the journal" journal_has "$begin" "flatcap.toml:2"
    eventually "ready after a reload" status_has "recording"
    is_state active || fail "an invalid configuration ended it"
    expect MainPID "$pid"
    step "reload with an invalid configuration: it fails, the journal has the line, the same process keeps recording"
    systemctl kill --signal HUP --kill-who main flatcap.service
    sleep 1
    eventually "ready after SIGHUP" status_has "recording"
    expect MainPID "$pid"
    cp /run/flatcap.toml.good "$config"
}

is_shared_by_nobody() {
    local said status=0
    said=$(runuser -u flatcap -- /usr/bin/flatcap record --quiet --for 1s --data-dir "$data" 2>&1) || status=$?
    [ "$status" = 1 ] || fail "a second recorder of the directory ended with $status: $said"
    is_state active || fail "the first one ended"
    step "a second recorder on the directory: status 1, \"${said##*flatcap: }\""
}

frozen_is_killed() {
    local begin
    drop_in watchdog 'WatchdogSec=4s'
    systemctl restart flatcap.service
    begin=$(now)
    kill -STOP "$(property MainPID)"
    eventually "a restart of the frozen recorder" restarts_are 1
    journal_has "$begin" "Watchdog timeout" || fail "the journal does not mention the watchdog"
    eventually "the recovery" journal_has "$begin" "earlier run's segment is completed"
    step "a frozen recorder (SIGSTOP): killed by the watchdog and restarted"
    systemctl stop flatcap.service
    assert_explained 4
}

stalled_is_not_killed() {
    truncate -s 128M /tmp/image
    mkfs.ext4 -q /tmp/image
    mount -o loop /tmp/image "$data" || fail "no loop device"
    systemctl start flatcap.service
    local pid begin
    pid=$(property MainPID) begin=$(now)
    sleep 1
    fsfreeze --freeze "$data"
    eventually "a status with the stall" status_has "storage has not responded"
    sleep 9
    step "a stalled storage, WatchdogSec=4s, after ten seconds: $(property StatusText)"
    is_state active || fail "it was killed"
    expect MainPID "$pid"
    fsfreeze --unfreeze "$data"
    eventually "a status without the stall" status_has "recording"
    journal_has "$begin" "the storage does not respond" || fail "the stall is not in the journal"
    eventually "the end of the stall in the journal" journal_has "$begin" "the storage responds again"
    step "  it was not killed; the journal has start and end of the stall; now: $(property StatusText)"
    systemctl stop flatcap.service
    expect ExecMainStatus 0
    assert_explained 0
}

# Stops with a full queue, a storage that stalls for longer than TimeoutStopSec=, and losses: status
# 3 counts as success.
stop_takes_its_time() {
    cat >"$config" <<'CONFIG'
[recorder]
memory_max = "12MiB"
cpu_budget = "400%"
[storage]
frame_max = "64KiB"
segment_size = "16MiB"
retain_bytes = "64MiB"
[source.synthetic]
enabled = true
period = "50us"
shape = "wide"
fields = 200
budget = "100%"
CONFIG
    drop_in stop 'TimeoutStopSec=3s'
    systemctl start flatcap.service
    sleep 1
    fsfreeze --freeze "$data"
    sleep 3
    systemctl stop --no-block flatcap.service
    sleep 6
    is_state deactivating || fail "it did not outlast TimeoutStopSec=3s: $(property ActiveState)"
    step "stop with a full queue and a stalled storage, 6 s later, TimeoutStopSec=3s: $(property StatusText)"
    fsfreeze --unfreeze "$data"
    eventually "the end" is_state inactive
    expect Result success
    expect ExecMainStatus 3
    step "  ended with status 3, which is a success; not restarted"
    assert_explained 1000000
    rm /etc/systemd/system/flatcap.service.d/stop.conf
    umount "$data"
}

invalid_does_not_restart() {
    printf '[storage]\nsegment_size = "many"\n' >"$config"
    rm -f "$data/flatcap.last-good.toml"
    systemctl daemon-reload
    ! systemctl start flatcap.service 2>/dev/null || fail "it started with an invalid configuration"
    sleep 4
    is_state failed || fail "it is $(property ActiveState) with an invalid configuration"
    expect NRestarts 0
    expect ExecMainStatus 2
    step "an invalid configuration and no last good one: status 2, failed, not restarted"
    cp /run/flatcap.toml.good "$config"
    systemctl reset-failed flatcap.service
}

step "systemd $(systemctl --version | sed -n '1s/systemd \([^ ]*\).*/\1/p') is PID $(cat /proc/1/comm > /dev/null && echo 1) here"
if [ -e "$shared/flatcap.deb" ]; then
    package_is_installed
    systemctl stop flatcap.service
    rm -rf "${data:?}"/*
else
    install_by_hand
fi
starts
sources_are_seen
drop_ins_give_back
switches_have_a_drop_in
kernel_log_has_a_drop_in
score
group_reads
reloads
refused_falls_back
elsewhere_needs_a_drop_in
is_shared_by_nobody
survives_kill
frozen_is_killed
stalled_is_not_killed
stop_takes_its_time
invalid_does_not_restart
if [ -e "$shared/flatcap.deb" ]; then
    systemctl start flatcap.service
    package_is_upgraded_and_purged
fi
step "all steps passed"
