#!/usr/bin/env python3
"""Compares what the sources read from captured hosts with naive parsers. Run by hand.

    tests/hosts/captured.py FLATCAP DIRECTORY

DIRECTORY has captured hosts, as directories or .tgz archives with proc and sys, and single files of
/proc such as interrupts-2cpu-s390x. The captures of Performance Co-Pilot (its directory qa/linux)
are such; they are not part of this repository. Prints each difference, and for each incomplete
sample the reason that the recorder logged; exit status 1 if a value differs, or a sample is
incomplete without a reason that names the file.
"""

import bz2
import collections
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FLATCAP, CAPTURES = os.path.abspath(sys.argv[1]), Path(sys.argv[2])
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas/host"
# Paths on a host of single files, by the beginning of their names.
SINGLE = {
    "interrupts-": "proc/interrupts",
    "softirqs-": "proc/softirqs",
    "procnet-snmp6-": "proc/net/snmp6",
    "procnet-snmp-": "proc/net/snmp",
    "proc_net_snmp": "proc/net/snmp",
    "proc_net_netstat": "proc/net/netstat",
    "proc_net_sockstat6": "proc/net/sockstat6",
    "proc_net_sockstat": "proc/net/sockstat",
}
SOURCES = (
    "cpu memory vmstat load disk network pressure schedstat softirqs interrupts cpufreq numa slab buddy hugepages "
    "sockets snmp netstat softnet process cgroup"
).split()
compared, differences, incomplete, unexplained, without = collections.Counter(), [], [], [], []


def origins(schema, struct):
    """Returns the fields of a struct by their line in the file, which `origin` names."""
    text = (SCHEMAS / f"{schema}.fbs").read_text()
    body = re.search(rf"struct {struct} {{(.*?)\n}}", text, re.S)[1]
    fields = re.findall(r"^\s+(\w+): \w+ \((.*)\);", body, re.M)
    return {
        (re.search(r'origin: "([^"]*)"', attributes) or [0, name])[1]: name for name, attributes in fields
    }


def same(root, what, ours, right):
    compared[what.split()[0]] += 1
    if ours != right:
        differences.append(f"{root}: {what}: {ours} instead of {right}")


def number(word, base=10):
    """The number of a word; None for what does not fit: the sources leave such values out."""
    try:
        value = int(word, base)
    except ValueError:
        return None
    return value if 0 <= value < 2**64 - 1 else None


def read(root, *names):
    for name in names:
        try:
            return (root / name).read_text(errors="surrogateescape")
        except OSError:
            pass
    return ""


def keyed(root, source, schema, struct, text, ours):
    fields = origins(schema, struct)
    for line in text.splitlines():
        words = line.replace(":", " ", 1).split()
        if len(words) > 1 and words[0] in fields:
            same(root, f"{source} {words[0]}", ours[fields[words[0]]], number(words[1]))


def cpu(root, data):
    names = "user nice system idle iowait irq softirq steal guest guest_nice".split()
    cores = {core["core"]: core["times"] for core in data["cores"]}
    simple = {
        "ctxt": "context_switches",
        "btime": "boot_time",
        "procs_running": "running",
        "procs_blocked": "blocked",
        "intr": "interrupts",
        "softirq": "softirqs",
    }
    for line in read(root, "proc/stat").splitlines():
        words = line.split()
        if re.fullmatch(r"cpu\d*", words[0]):
            times = data["total"] if words[0] == "cpu" else cores[int(words[0][3:])]
            for name, word in zip(names, words[1:]):
                same(root, f"cpu {words[0]} {name}", times[name], number(word))
        elif words[0] in simple:
            same(root, f"cpu {words[0]}", data[simple[words[0]]], number(words[1]))


def disk(root, data):
    names = "reads reads_merged sectors_read read_time writes writes_merged sectors_written write_time in_flight io_time weighted_io_time discards discards_merged sectors_discarded discard_time flushes flush_time".split()
    devices = {device["name"]: device for device in data["devices"]}
    for line in read(root, "proc/diskstats").splitlines():
        words = line.split()
        # Partitions of old kernels have four numbers.
        if len(words) < 14:
            continue
        for name, word in zip(names, words[3:]):
            value = number(word)
            value = None if name == "in_flight" and value is not None and value > 2**31 - 1 else value
            same(root, f"disk {words[2]} {name}", devices[words[2]][name], value)


def network(root, data):
    names = [
        f"{side}_{name}"
        for side, list in (
            ("rx", "bytes packets errors dropped fifo frame compressed multicast"),
            ("tx", "bytes packets errors dropped fifo collisions carrier compressed"),
        )
        for name in list.split()
    ]
    interfaces = {one["name"]: one for one in data["interfaces"]}
    for line in read(root, "proc/1/net/dev", "proc/net/dev").splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        for field, word in zip(names, rest.split()):
            same(root, f"network {name.strip()} {field}", interfaces[name.strip()][field], number(word))


def headed(root, source, text, ours):
    fields = origins(source, source.capitalize() + "Counters")
    lines = [line for line in text.splitlines() if line.strip()]
    for names, values in zip(lines[::2], lines[1::2]):
        section, *names = names.split()
        for name, word in zip(names, values.split()[1:]):
            if section + name in fields:
                value = int(word) if section + name == "Tcp:MaxConn" else number(word)
                same(root, f"{source} {section}{name}", ours[fields[section + name]], value)


def snmp(root, data):
    headed(root, "snmp", read(root, "proc/1/net/snmp", "proc/net/snmp"), data["counters"])
    keyed(
        root,
        "snmp",
        "snmp",
        "SnmpCounters",
        read(root, "proc/1/net/snmp6", "proc/net/snmp6"),
        data["counters"],
    )


def sockets(root, data):
    fields = origins("sockets", "SocketCounters")
    for line in (
        read(root, "proc/1/net/sockstat", "proc/net/sockstat")
        + read(root, "proc/1/net/sockstat6", "proc/net/sockstat6")
    ).splitlines():
        section, *words = line.split()
        for name, word in zip(words[::2], words[1::2]):
            if section + name in fields:
                same(root, f"sockets {section}{name}", data["counters"][fields[section + name]], number(word))


def softirqs(root, data):
    head, *lines = read(root, "proc/softirqs").splitlines()
    cores = {core["core"]: core for core in data["cores"]}
    for line in lines:
        name, *words = line.replace(":", " ").split()
        field = {
            "HI": "hi",
            "TIMER": "timer",
            "NET_TX": "net_tx",
            "NET_RX": "net_rx",
            "BLOCK": "block",
            "IRQ_POLL": "irq_poll",
            "BLOCK_IOPOLL": "irq_poll",
            "TASKLET": "tasklet",
            "SCHED": "sched",
            "HRTIMER": "hrtimer",
            "RCU": "rcu",
        }.get(name)
        for core, word in zip(head.split(), words):
            if field in next(iter(cores.values())):
                same(root, f"softirqs {name} {core}", cores[int(core[3:])][field], number(word))


def interrupts(root, data):
    head, *lines = read(root, "proc/interrupts").splitlines()
    ours = collections.defaultdict(list)
    for line in data["lines"]:
        ours[line["name"]].append(data["counts"][line["offset"] : line["offset"] + line["length"]])
    for line in lines:
        name, colon, rest = line.partition(":")
        if colon:
            counts = [int(word) for word in re.match(r"(\s+\d+(?=\s|$))*", rest)[0].split()][
                : len(head.split())
            ]
            same(root, f"interrupts {name.strip()}", ours[name.strip()].pop(0), counts)


def slab(root, data):
    names = "active_objects objects object_size objects_per_slab pages_per_slab".split()
    caches = {cache["name"]: cache for cache in data["caches"]}
    for line in read(root, "proc/slabinfo").splitlines():
        found = re.match(
            r"(\S.*?)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+) : tunables .* slabdata\s+(\d+)\s+(\d+)", line
        )
        if found:
            for name, word in zip(names + ["active_slabs", "slabs"], found.groups()[1:]):
                same(root, f"slab {found[1]} {name}", caches[found[1]][name], number(word))


def buddy(root, data):
    zones = {(zone["node"], zone["zone"]): zone["free"] for zone in data["zones"]}
    for line in read(root, "proc/buddyinfo").splitlines():
        words = line.split()
        free = zones[int(words[1].rstrip(",")), words[3]]
        for order, word in enumerate(words[4:]):
            same(root, f"buddy {words[3]} {order}", free[order], number(word))


def pressure(root, data):
    for file in ("cpu", "memory", "io"):
        for line in read(root, f"proc/pressure/{file}").splitlines():
            kind, *words = line.split()
            for word in words:
                name, _, value = word.partition("=")
                same(
                    root,
                    f"pressure {file}_{kind} {name}",
                    data[f"{file}_{kind}"][name],
                    int(value) if name == "total" else float(value),
                )


def numa(root, data):
    fields = origins("numa", "NumaNode")
    for node in data["nodes"]:
        folder = f"sys/devices/system/node/node{node['node']}/"
        for file, skip in (("meminfo", 2), ("numastat", 0), ("vmstat", 0)):
            for line in read(root, folder + file).splitlines():
                words = line.replace(":", " ").split()[skip:]
                if words and f"{file}:{words[0]}" in fields:
                    same(
                        root,
                        f"numa {node['node']} {words[0]}",
                        node[fields[f"{file}:{words[0]}"]],
                        number(words[1]),
                    )


def load(root, data):
    words = read(root, "proc/loadavg").replace("/", " ").split()
    same(
        root,
        "load",
        [data[name] for name in ("load1", "load5", "load15", "runnable", "tasks", "last_pid")],
        [float(word) for word in words[:3]] + [int(word) for word in words[3:6]],
    )


def softnet(root, data):
    lines = read(root, "proc/1/net/softnet_stat", "proc/net/softnet_stat").splitlines()
    for core, line in zip(data["cores"], lines):
        same(
            root,
            "softnet",
            [core[name] for name in ("processed", "dropped", "time_squeeze")],
            [number(word, 16) for word in line.split()[:3]],
        )
    same(root, "softnet cores", len(data["cores"]), len(lines))


def process(root, data):
    processes = {one["pid"]: one for one in data["processes"]}
    places = {
        "parent": 1,
        "minor_faults": 7,
        "major_faults": 9,
        "user_time": 11,
        "system_time": 12,
        "threads": 17,
        "start": 19,
        "virtual_size": 20,
    }
    for path in root.glob("proc/[0-9]*/stat"):
        text = path.read_text(errors="surrogateescape")
        words = text[text.rindex(")") + 1 :].split()
        ours = processes[int(path.parent.name)]
        for name, place in places.items():
            same(root, f"process {path.parent.name} {name}", ours[name], number(words[place]))
        same(root, f"process {path.parent.name} state", ours["state"], words[0])


def hugepages(root, data):
    names = {
        "total": "nr_hugepages",
        "free": "free_hugepages",
        "reserved": "resv_hugepages",
        "surplus": "surplus_hugepages",
    }
    for pool in data["pools"]:
        for field, file in names.items():
            text = read(root, f"sys/kernel/mm/hugepages/hugepages-{pool['page_size']}kB/{file}")
            same(root, f"hugepages {pool['page_size']} {file}", pool[field], number(text) if text else None)


CHECKS = {
    "cpu": cpu,
    "disk": disk,
    "network": network,
    "snmp": snmp,
    "sockets": sockets,
    "softirqs": softirqs,
    "interrupts": interrupts,
    "slab": slab,
    "buddy": buddy,
    "pressure": pressure,
    "numa": numa,
    "load": load,
    "softnet": softnet,
    "process": process,
    "hugepages": hugepages,
    "memory": lambda root, data: keyed(
        root, "memory", "memory", "MemoryCounters", read(root, "proc/meminfo"), data["counters"]
    ),
    "vmstat": lambda root, data: keyed(
        root, "vmstat", "vmstat", "VmstatCounters", read(root, "proc/vmstat"), data["counters"]
    ),
    "netstat": lambda root, data: headed(
        root, "netstat", read(root, "proc/1/net/netstat", "proc/net/netstat"), data["counters"]
    ),
}


def compare(root, folder):
    """Records the host below `root`, and compares the first sample of each source."""
    lines = [
        f'[recorder]\ndata_dir = "{folder}/data"\nrun_dir = "{folder}/run"\nhost_root = "{root}"',
        '[control]\nenabled = false\n[compress]\nenabled = false\n[storage]\nmin_free = "0%"',
        "[source.self]\nenabled = false",
    ]
    for source in SOURCES:
        lines.append(f'[source.{source}]\nenabled = true\nperiod = "100ms"')
        lines += ['include = ["*"]'] if source == "disk" else []
    config = folder / "host.toml"
    config.write_text("\n".join(lines) + "\n")
    called = subprocess.run(
        [FLATCAP, "record", "--config", config, "--for", "1s"], capture_output=True, text=True
    )
    if "none of the configured sources" in called.stderr:
        without.append(root)
        return
    if called.returncode not in (0, 3) or "did not end within" in called.stderr:
        unexplained.append(f"{root}: status {called.returncode}: {called.stderr[-300:]}")
        return
    rows = subprocess.run(
        [FLATCAP, "dump", folder / "data", "--format", "jsonl"],
        capture_output=True,
        text=True,
        errors="surrogateescape",
    ).stdout
    seen = set()
    for row in map(json.loads, rows.splitlines()):
        if row["source"] in seen:
            continue
        seen.add(row["source"])
        if row["source"] in CHECKS:
            try:
                CHECKS[row["source"]](root, row["data"])
            except (KeyError, IndexError, ValueError, StopIteration) as error:
                differences.append(f"{root}: {row['source']}: {type(error).__name__} {error}")
        if row["flags"]:
            reasons = [
                line.partition("samples are incomplete: ")[2]
                for line in called.stderr.splitlines()
                if f'source="{row["source"]}"' in line and "samples are incomplete" in line
            ]
            incomplete.append(f"{root}: {row['source']}: {reasons}")
            if not reasons or not any("/" in reason or "more elements" in reason for reason in reasons):
                unexplained.append(f"{root}: {row['source']}: flags {row['flags']}: {reasons}")


with tempfile.TemporaryDirectory() as work:
    work, roots = Path(work), []
    for path in sorted(CAPTURES.iterdir()):
        kind = next(
            (file for prefix, file in SINGLE.items() if path.name.startswith(prefix) and path.is_file()), None
        )
        if path.suffix == ".tgz":
            with tarfile.open(path) as archive:
                members = [
                    member for member in archive if member.isfile() or member.isdir() or member.issym()
                ]
                archive.extractall(
                    work / path.name, members, filter="data" if sys.version_info >= (3, 12) else None
                )
            roots.append(work / path.name)
        elif kind:
            text = path.read_bytes()
            target = work / path.name / kind
            target.parent.mkdir(parents=True)
            target.write_bytes(bz2.decompress(text) if path.suffix == ".bz2" else text)
            roots.append(work / path.name)
        elif path.is_dir():
            roots.append(path)
    hosts = sorted(
        {
            found.parent
            for root in roots
            for depth in ("", "*/", "*/*/")
            for found in root.glob(f"{depth}proc")
        }
        | {
            found.parent
            for root in roots
            for depth in ("", "*/", "*/*/")
            for found in root.glob(f"{depth}sys")
        }
    )
    for at, host in enumerate(hosts):
        folder = work / f"record-{at}"
        folder.mkdir()
        compare(host, folder)
counts = ", ".join(f"{name} {count}" for name, count in sorted(compared.items()))
print(f"{len(hosts)} hosts, {len(without)} of them without these sources")
print(f"{sum(compared.values())} values compared ({counts}); {len(differences)} differences")
print(f"{len(incomplete)} sources incomplete, {len(unexplained)} of them without a place")
for words in differences[:50] + ["-- incomplete:"] + incomplete + ["-- without a place:"] + unexplained:
    print("  " + words)
sys.exit(1 if differences or unexplained else 0)
