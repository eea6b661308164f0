#!/usr/bin/env python3
"""Compares the recording of a guest with what tools printed in it: see run.sh.

A tool runs between two samples. So a counter lies between those of the two, and a value that falls,
too, lies within the range of the samples around it, with a tolerance that its rule states.
Every source must go on after the last suspend: with the elements of the first phase, and without
a flag that it did not have then. Prints each difference; exit status 1 if there are any.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

FLATCAP, OUT = sys.argv[1], Path(sys.argv[2])
# Sources that each of the guests has.
EXPECTED = set(
    "cpu memory vmstat load disk network pressure self schedstat softirqs interrupts numa slab buddy "
    "hugepages filesystem sockets snmp netstat softnet conntrack ethtool process cgroup perf sched "
    "profile kmsg".split()
)
# Fields that name an element of a list.
NAMES = ("core", "node", "name", "mount_point", "interface", "chip", "event", "type", "label")
# Lists of what happened or runs, which differ from sample to sample.
PASSING = {"processes", "exits", "threads", "samples", "stacks", "frames", "objects", "lines", "groups"}

differences, compared = [], {}


def rows(source):
    text = subprocess.run(
        [FLATCAP, "dump", OUT / "recording", "--source", source, "--format", "jsonl"],
        capture_output=True,
        text=True,
    ).stdout
    # Gaps and marks are rows without data.
    return [row for row in map(json.loads, text.splitlines()) if "data" in row]


def differs(*words):
    differences.append(" ".join(str(word) for word in words))


def around(source, begin, end):
    """Returns the samples from the last before `begin` to the first after `end`."""
    found = [row for row in SAMPLES[source]]
    before = [row for row in found if row["mono_ns"] + row["duration_ns"] <= begin][-1:]
    within = [
        row
        for row in found
        if row not in before and begin < row["mono_ns"] + row["duration_ns"] and row["mono_ns"] < end
    ]
    after = [row for row in found if row["mono_ns"] >= end][:1]
    if not before or not after:
        return []
    return [row["data"] for row in before + within + after]


def check(what, source, begin, end, value, read, tolerance=0, scale=1):
    """Compares one value of a tool with what `read` returns of the samples around it."""
    found = [read(data) for data in around(source, begin, end)]
    found = [number for number in found if number is not None]
    compared[what.split()[0]] = compared.get(what.split()[0], 0) + 1
    if not found:
        differs(what, "is", value, "but no sample of", source, "has it")
    elif not min(found) - tolerance <= value * scale <= max(found) + tolerance:
        differs(what, "is", value * scale, "but", source, "has", min(found), "to", max(found))


def element(list_name, **named):
    """Returns a function that finds an element of a list by its fields."""

    def find(data):
        for item in data[list_name]:
            if all(item[key] == value for key, value in named.items()):
                return item
        return None

    return find


def field(find, *names):
    """Returns a function that adds up fields of what `find` returns."""

    def read(data):
        item = find(data)
        return None if item is None else sum(item[name] for name in names)

    return read


def vmstat_s(text, *span):
    memory = lambda *names: ("memory", field(lambda data: data["counters"], *names), 4096)
    time = lambda *names: ("cpu", field(lambda data: data["total"], *names), 0)
    pages = lambda name: ("vmstat", field(lambda data: data["counters"], name), 0)
    table = {
        "K total memory": memory("mem_total"),
        "K active memory": memory("active"),
        "K inactive memory": memory("inactive"),
        "K free memory": memory("mem_free"),
        "K buffer memory": memory("buffers"),
        "K swap cache": memory("cached", "s_reclaimable"),
        "K total swap": memory("swap_total"),
        "K free swap": memory("swap_free"),
        "non-nice user cpu ticks": time("user"),
        "nice user cpu ticks": time("nice"),
        "system cpu ticks": time("system"),
        "idle cpu ticks": time("idle"),
        "IO-wait cpu ticks": time("iowait"),
        "IRQ cpu ticks": time("irq"),
        "softirq cpu ticks": time("softirq"),
        "stolen cpu ticks": time("steal"),
        "K paged in": pages("pgpgin"),
        "K paged out": pages("pgpgout"),
        "pages swapped in": pages("pswpin"),
        "pages swapped out": pages("pswpout"),
        "interrupts": ("cpu", lambda data: data["interrupts"], 0),
        "CPU context switches": ("cpu", lambda data: data["context_switches"], 0),
        "boot time": ("cpu", lambda data: data["boot_time"], 0),
        "forks": ("cpu", lambda data: data["forks"], 0),
    }
    seen = 0
    for line in text.splitlines():
        number, _, name = line.strip().partition(" ")
        if name.strip() in table:
            source, read, tolerance = table[name.strip()]
            check("vmstat-s " + name.strip(), source, *span, int(number), read, tolerance)
            seen += 1
    if seen != len(table):
        differs("vmstat -s: only", seen, "of", len(table), "lines are known")


def vmstat_d(text, *span):
    names = (
        "reads",
        "reads_merged",
        "sectors_read",
        "read_time",
        "writes",
        "writes_merged",
        "sectors_written",
        "write_time",
    )
    for line in text.splitlines()[2:]:
        words = line.split()
        for name, value in zip(names, words[1:]):
            check(
                f"vmstat-d {words[0]} {name}",
                "disk",
                *span,
                int(value),
                field(element("devices", name=words[0]), name),
            )


def vmstat_m(text, *span):
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) != 5 or not words[1].isdigit():
            continue
        find = element("caches", name=words[0])
        size = max(64, int(words[2]) // 4)
        check(f"vmstat-m {words[0]} total", "slab", *span, int(words[2]), field(find, "objects"), size)
        check(f"vmstat-m {words[0]} size", "slab", *span, int(words[3]), field(find, "object_size"))


def iostat(text, *span):
    header = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("Device"):
            header = words
        elif header and len(words) == len(header):
            found = dict(zip(header, words))
            for column, name in (
                ("kB_read", "sectors_read"),
                ("kB_wrtn", "sectors_written"),
                ("kB_dscd", "sectors_discarded"),
            ):
                # Sectors of half a KiB, which the tool rounds down.
                check(
                    f"iostat {words[0]} {name}",
                    "disk",
                    *span,
                    int(found[column]),
                    field(element("devices", name=words[0]), name),
                    1,
                    2,
                )


# The fields of /proc/net/dev, by the names that `ip` uses for the kernel's statistics.
RECEIVED = {
    "bytes": ("rx_bytes",),
    "packets": ("rx_packets",),
    "errors": ("rx_errors",),
    "multicast": ("rx_multicast",),
    "mcast": ("rx_multicast",),
}
SENT = {
    "bytes": ("tx_bytes",),
    "packets": ("tx_packets",),
    "errors": ("tx_errors",),
    "dropped": ("tx_dropped",),
}
SUMS = {
    "rx_dropped": ("rx", "dropped", "missed"),
    "rx_frame": ("rx", "length", "crc", "frame", "overrun"),
    "rx_fifo": ("rx", "fifo"),
    "tx_carrier": ("tx", "carrier", "aborted", "window", "heartbeat", "heartbt"),
    "tx_collisions": ("tx", "collsns"),
    "tx_fifo": ("tx", "fifo"),
}


def ip_text(text, *span):
    name, side, header, found, seen = None, None, [], {}, 0
    for line in text.splitlines():
        begin = re.match(r"\d+: ([^:@]+)[:@]", line)
        if begin:
            name, found = begin[1], {}
            continue
        words = line.split()
        if words and words[0] in ("RX:", "TX:", "RX", "TX"):
            # "RX:  bytes packets errors dropped  missed   mcast" or "RX errors:  length crc ..."
            side, header = words[0][:2].lower(), line.replace(":", " ").split()[1:]
            header = header[1:] if header[0] == "errors" and "bytes" not in header else header
            continue
        if side and words and all(word.isdigit() for word in words):
            for key, value in zip(header, words):
                found.setdefault((side, key), int(value))
            if len(header) > len(words):
                differs("ip: no value below", header[len(words) :], "of", name)
            table = RECEIVED if side == "rx" else SENT
            for key, names in table.items():
                if key in header:
                    check(
                        f"ip {name} {side} {key}",
                        "network",
                        *span,
                        found[side, key],
                        field(element("interfaces", name=name), *names),
                    )
                    seen += 1
            if "bytes" not in header:
                for target, (of, *keys) in SUMS.items():
                    if of == side:
                        value = sum(found.get((side, key), 0) for key in keys)
                        check(
                            f"ip {name} {target}",
                            "network",
                            *span,
                            value,
                            field(element("interfaces", name=name), target),
                        )
            side = None
    if not seen:
        differs("ip: no statistics in", repr(text[:80]))


def ip_json(text, *span):
    try:
        found = json.loads(text)
    except ValueError as error:
        # The tool's own fault, not of the comparison: the text has the same numbers.
        print(f"ip -j: no JSON: {error}: {text[max(0, error.pos - 60) : error.pos + 20]!r}")
        return
    for link in found:
        for side, table in (("rx", RECEIVED), ("tx", SENT)):
            for key, names in table.items():
                value = link.get("stats64", {}).get(side, {}).get(key)
                if value is not None:
                    check(
                        f"ip-json {link['ifname']} {side} {key}",
                        "network",
                        *span,
                        value,
                        field(element("interfaces", name=link["ifname"]), *names),
                    )


def ss(text, *span):
    socket = lambda name: ("sockets", field(lambda data: data["counters"], name))
    found = re.search(r"Total: (\d+)", text)
    check("ss total", "sockets", *span, int(found[1]), socket("used")[1], 2)
    found = re.search(r"estab (\d+).*orphaned (\d+), timewait (\d+)", text)
    check("ss orphaned", "sockets", *span, int(found[2]), socket("tcp_orphan")[1])
    check("ss timewait", "sockets", *span, int(found[3]), socket("tcp_tw")[1], 1)
    check("ss estab", "snmp", *span, int(found[1]), lambda data: data["counters"]["tcp_curr_estab"])
    for name in ("RAW", "UDP", "TCP", "FRAG"):
        words = re.search(rf"^{name}\s+(\d+)\s+(\d+)\s+(\d+)", text, re.M)
        lower = name.lower()
        check(f"ss {name} IPv4", "sockets", *span, int(words[2]), socket(f"{lower}_inuse")[1], 1)
        check(f"ss {name} IPv6", "sockets", *span, int(words[3]), socket(f"{lower}6_inuse")[1], 1)


def lsblk(text, *span):
    for device in json.loads(text)["blockdevices"]:
        name = device["name"]
        numbers = element("devices", name=name)
        major, minor = device["maj:min"].split(":")
        check(f"lsblk {name} major", "disk", *span, int(major), field(numbers, "major"))
        check(f"lsblk {name} minor", "disk", *span, int(minor), field(numbers, "minor"))
        if device["mountpoint"]:
            mount = element("mounts", mount_point=device["mountpoint"])
            bytes_of = lambda key: (
                lambda data: None if mount(data) is None else mount(data)[key] * mount(data)["block_size"]
            )
            check(f"lsblk {name} size", "filesystem", *span, int(device["fssize"]), bytes_of("blocks"))
            check(
                f"lsblk {name} available",
                "filesystem",
                *span,
                int(device["fsavail"]),
                bytes_of("blocks_available"),
                1 << 16,
            )


def df(text, *span):
    known = {mount["mount_point"] for data in around("filesystem", *span) for mount in data["mounts"]}
    for line in text.splitlines()[1:]:
        words = line.split()
        if words[-1] not in known or not words[1].isdigit():
            continue
        mount = element("mounts", mount_point=words[-1])
        bytes_of = lambda key: (
            lambda data: None if mount(data) is None else mount(data)[key] * mount(data)["block_size"]
        )
        check(f"df {words[-1]} size", "filesystem", *span, int(words[1]), bytes_of("blocks"))
        check(
            f"df {words[-1]} available",
            "filesystem",
            *span,
            int(words[3]),
            bytes_of("blocks_available"),
            1 << 20,
        )


def elements(value, path=""):
    """Returns the elements of a sample's lists, by the fields that name them."""
    found = set()
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in PASSING:
                found |= elements(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            name = ""
            if isinstance(item, dict):
                name = ",".join(str(item[key]) for key in NAMES if key in item)
                found |= elements(item, f"{path}[{name}]")
            found.add(f"{path}[{name}]")
    return found


def survived(source, first, last):
    """Checks that a source records at the end what it recorded in the first phase."""
    begin = [row for row in SAMPLES[source] if first[0] <= row["mono_ns"] < first[1]]
    end = [row for row in SAMPLES[source] if row["mono_ns"] >= last]
    if len(begin) < 3 or len(end) < 3:
        differs(source, "has", len(begin), "samples before and", len(end), "after: it did not go on")
        return
    flags = {row["flags"] for row in end} - {row["flags"] for row in begin}
    if flags:
        differs(source, "has samples with flags", sorted(flags), "after, and had none of them before")
    lost = elements(begin[-1]["data"]) - elements(end[-1]["data"])
    if lost:
        differs(source, "lacks at the end", sorted(lost)[:5])
    # Sources of events must see events of both cores again.
    for name in ("samples", "switches", "events"):
        if any(row["data"].get(name) for row in begin) and not any(row["data"].get(name) for row in end):
            differs(source, "has no", name, "at the end")


PHASES = [line.split("\t") for line in (OUT / "phases").read_text().splitlines()]
PHASES = [(name, int(at)) for name, at in PHASES]
AVAILABLE = [
    source["name"] for source in json.loads((OUT / "sources.json").read_text()) if source["available"]
]
SAMPLES = {source: rows(source) for source in AVAILABLE if source not in ("synthetic", "gpu")}

absent = EXPECTED - {source for source, found in SAMPLES.items() if found}
if absent:
    differs("no samples of", sorted(absent))
# A read may time out on an emulated processor; each such sample must be accounted for.
if (OUT / "status").read_text().strip() not in ("0", "3"):
    differs("the recorder ended with status", (OUT / "status").read_text().strip())
if not re.search(r"^intact: .* 0 unexplained", (OUT / "verify").read_text(), re.M):
    differs("verify:", (OUT / "verify").read_text().strip().splitlines()[-1])

TOOLS = {
    "vmstat -s": vmstat_s,
    "vmstat -d": vmstat_d,
    "vmstat -m": vmstat_m,
    "iostat": iostat,
    "ip -s -s link": ip_text,
    "ip -s -s -j": ip_json,
    "ss": ss,
    "lsblk": lsblk,
    "df": df,
}
for line in (OUT / "tools").read_text().splitlines():
    number, phase, begin, end, command = line.split("\t")
    text = (OUT / f"tool.{number}").read_text(errors="replace")
    at = len(differences)
    tool = next(tool for name, tool in TOOLS.items() if command.startswith(name))
    tool(text, int(begin), int(end))
    differences[at:] = [f"{phase}: {words}" for words in differences[at:]]

resumed = [at for name, at in PHASES if name.startswith("resumed-")]
suspended = (OUT / "suspended").read_text().split() if (OUT / "suspended").exists() else []
if not suspended:
    differs("the guest was never suspended")
for source in sorted(SAMPLES):
    survived(source, (PHASES[0][1], PHASES[1][1]), resumed[-1] if resumed else PHASES[-2][1])
gone = dict(PHASES)["core-gone"], dict(PHASES)["core-back"]
cores = {
    len(row["data"]["cores"]) for row in SAMPLES["cpu"] if gone[0] + 10**9 < row["mono_ns"] < gone[1] - 10**9
}
if cores != {1}:
    differs("cpu has", cores, "cores while one is gone")

kernel = re.search(r"Linux version (\S+)", (OUT / "dmesg").read_text())
print(
    f"{kernel[1] if kernel else OUT}: {len(SAMPLES)} sources; suspended: {', '.join(suspended)}; "
    f"{sum(compared.values())} comparisons ({', '.join(f'{name} {count}' for name, count in sorted(compared.items()))}); "
    f"{len(differences)} differences"
)
for words in differences:
    print("  " + words)
sys.exit(1 if differences else 0)
