//! `memory`: amounts of memory by kind of use, from /proc/meminfo.

use std::time::Duration;

use flatcap_os::host::RecordStructure;

use super::counter_tables::{CounterTableSampler, LINES};
use super::counters::CounterFile;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::OpenedSampler;

const FILE: &str = "proc/meminfo";

/// `include` and `exclude` match fields, such as `mem_free`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "memory",
    about: "Memory by use.",
    root: "flatcap.host.Memory",
    schema: include_bytes!("../../../../generated/host/memory.bfbs"),
    files: &[FILE],
    // The period equals the period of the source cpu, so that both sources are sampled at the same
    // times. A sample costs 5 us.
    period: Duration::from_millis(10),
    is_on_by_default: true,
    refresh: "some values hundreds of times a second, as memory is used",
    selects: "fields, such as mem_free",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let records = RecordStructure::One;
    let file = CounterFile { path: FILE, layout: LINES, records, is_optional: false };
    CounterTableSampler::open(context, &SPEC, &[file])
}
