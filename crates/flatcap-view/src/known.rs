//! The charts and columns that users of host sources look for first. Fields of all other sources
//! are shown according to their units and kinds.

use super::element_shape::ElementShape;

/// A value computed from well-known fields.
#[derive(Debug, Clone, Copy)]
pub(super) enum KnownValue {
    /// The sum of fields with the same unit.
    Sum(&'static [&'static str]),
    /// The sum of the first group of fields, divided by the sum of both groups.
    Share(&'static [&'static str], &'static [&'static str]),
    /// The first field minus the second field, divided by the first field.
    Used(&'static str, &'static str),
    /// The time in the first group of fields, in milliseconds, divided by the count of operations
    /// in the second group.
    TimePer(&'static [&'static str], &'static [&'static str]),
    /// A string.
    Text(&'static str),
}

/// A chart of the overview.
#[derive(Debug)]
pub(super) struct KnownChart {
    pub(super) title: &'static str,
    pub(super) source: &'static str,
    /// Path of the list whose largest value is shown, or empty if the fields are in no list.
    pub(super) list: &'static str,
    pub(super) value: KnownValue,
}

// `guest` is left out, because the kernel also counts this time as `user`.
const TOTAL_BUSY: [&str; 6] =
    ["total.user", "total.nice", "total.system", "total.irq", "total.softirq", "total.steal"];
// A CPU that waits for a disk can run other threads, so `iowait` is counted as idle.
const TOTAL_IDLE: [&str; 2] = ["total.idle", "total.iowait"];
const CORE_BUSY: [&str; 6] =
    ["times.user", "times.nice", "times.system", "times.irq", "times.softirq", "times.steal"];
const CORE_IDLE: [&str; 2] = ["times.idle", "times.iowait"];

const fn chart(title: &'static str, source: &'static str, value: KnownValue) -> KnownChart {
    KnownChart { title, source, list: "", value }
}

const fn largest(
    title: &'static str,
    source: &'static str,
    list: &'static str,
    value: KnownValue,
) -> KnownChart {
    KnownChart { title, source, list, value }
}

/// The charts of the overview, the most informative first.
pub(super) const CHARTS: [KnownChart; 19] = [
    chart("cpu pressure", "pressure", KnownValue::Sum(&["cpu_some.total"])),
    chart("memory pressure", "pressure", KnownValue::Sum(&["memory_some.total"])),
    chart("io pressure", "pressure", KnownValue::Sum(&["io_some.total"])),
    chart("cpu", "cpu", KnownValue::Share(&TOTAL_BUSY, &TOTAL_IDLE)),
    largest("busiest core", "cpu", "cores", KnownValue::Share(&CORE_BUSY, &CORE_IDLE)),
    chart("memory used", "memory", KnownValue::Used("counters.mem_total", "counters.mem_available")),
    chart("swap used", "memory", KnownValue::Used("counters.swap_total", "counters.swap_free")),
    largest("disk busy", "disk", "devices", KnownValue::Sum(&["io_time"])),
    largest("disk read", "disk", "devices", KnownValue::Sum(&["sectors_read"])),
    largest("disk write", "disk", "devices", KnownValue::Sum(&["sectors_written"])),
    largest("net receive", "network", "interfaces", KnownValue::Sum(&["rx_bytes"])),
    largest("net send", "network", "interfaces", KnownValue::Sum(&["tx_bytes"])),
    largest("net drops", "network", "interfaces", KnownValue::Sum(&NETWORK_DROPS)),
    chart("tasks running", "cpu", KnownValue::Sum(&["running"])),
    chart("tasks blocked", "cpu", KnownValue::Sum(&["blocked"])),
    chart("new tasks", "cpu", KnownValue::Sum(&["forks"])),
    chart("switches", "cpu", KnownValue::Sum(&["context_switches"])),
    chart("load", "load", KnownValue::Sum(&["load1"])),
    largest("recorder late", "self", "sources", KnownValue::Sum(&["lateness.max_ns"])),
];

const NETWORK_ERRORS: [&str; 2] = ["rx_errors", "tx_errors"];
const NETWORK_DROPS: [&str; 2] = ["rx_dropped", "tx_dropped"];
const DISK_TIMES: [&str; 2] = ["read_time", "write_time"];
const DISK_REQUESTS: [&str; 2] = ["reads", "writes"];
const PROCESSOR_TIME: [&str; 2] = ["user_time", "system_time"];

/// A column of a table: title and value.
type KnownColumn = (&'static str, KnownValue);

const PROCESSES: [KnownColumn; 12] = [
    ("S", KnownValue::Text("state")),
    ("CPU%", KnownValue::Sum(&["run_time"])),
    ("RSS", KnownValue::Sum(&["resident_size"])),
    ("READ/s", KnownValue::Sum(&["read_from_storage"])),
    ("WRITE/s", KnownValue::Sum(&["written_to_storage"])),
    ("WAIT%", KnownValue::Sum(&["wait_time"])),
    ("THR", KnownValue::Sum(&["threads"])),
    ("MAJFLT/s", KnownValue::Sum(&["major_faults"])),
    ("USR+SYS%", KnownValue::Sum(&PROCESSOR_TIME)),
    ("MINFLT/s", KnownValue::Sum(&["minor_faults"])),
    ("IOWAIT%", KnownValue::Sum(&["io_delay"])),
    ("VIRT", KnownValue::Sum(&["virtual_size"])),
];

const CGROUPS: [KnownColumn; 11] = [
    ("CPU%", KnownValue::Sum(&["cpu_usage"])),
    ("MEM", KnownValue::Sum(&["memory_current"])),
    ("READ/s", KnownValue::Sum(&["read_bytes"])),
    ("WRITE/s", KnownValue::Sum(&["written_bytes"])),
    ("THROTTLE%", KnownValue::Sum(&["cpu_throttled"])),
    ("CPU-PSI%", KnownValue::Sum(&["cpu_some"])),
    ("MEM-PSI%", KnownValue::Sum(&["memory_some"])),
    ("IO-PSI%", KnownValue::Sum(&["io_some"])),
    ("TASKS", KnownValue::Sum(&["pids_current"])),
    ("MAJFLT/s", KnownValue::Sum(&["pgmajfault"])),
    ("OOM/s", KnownValue::Sum(&["memory_oom_kill"])),
];

const DISKS: [KnownColumn; 11] = [
    ("BUSY%", KnownValue::Sum(&["io_time"])),
    ("READ/s", KnownValue::Sum(&["sectors_read"])),
    ("WRITE/s", KnownValue::Sum(&["sectors_written"])),
    ("READS/s", KnownValue::Sum(&["reads"])),
    ("WRITES/s", KnownValue::Sum(&["writes"])),
    ("LATENCY", KnownValue::TimePer(&DISK_TIMES, &DISK_REQUESTS)),
    ("QUEUED", KnownValue::Sum(&["in_flight"])),
    ("FLUSH/s", KnownValue::Sum(&["flushes"])),
    ("DISCARD/s", KnownValue::Sum(&["sectors_discarded"])),
    ("RMERGE/s", KnownValue::Sum(&["reads_merged"])),
    ("WMERGE/s", KnownValue::Sum(&["writes_merged"])),
];

const INTERFACES: [KnownColumn; 8] = [
    ("RECV/s", KnownValue::Sum(&["rx_bytes"])),
    ("SEND/s", KnownValue::Sum(&["tx_bytes"])),
    ("RPKT/s", KnownValue::Sum(&["rx_packets"])),
    ("SPKT/s", KnownValue::Sum(&["tx_packets"])),
    ("DROPS/s", KnownValue::Sum(&NETWORK_DROPS)),
    ("ERRORS/s", KnownValue::Sum(&NETWORK_ERRORS)),
    ("MCAST/s", KnownValue::Sum(&["rx_multicast"])),
    ("FIFO/s", KnownValue::Sum(&["rx_fifo", "tx_fifo"])),
];

/// Returns the columns of a list, the most informative first.
pub(super) fn columns(shape: ElementShape) -> &'static [KnownColumn] {
    match shape {
        ElementShape::Processes => &PROCESSES,
        ElementShape::ControlGroups => &CGROUPS,
        ElementShape::Disks => &DISKS,
        ElementShape::Interfaces => &INTERFACES,
    }
}
