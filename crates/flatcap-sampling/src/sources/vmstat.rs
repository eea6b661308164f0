//! `vmstat`: counters of the kernel's memory management, from /proc/vmstat.

use std::time::Duration;

use flatcap_os::host::RecordStructure;

use super::counter_tables::{CounterTableSampler, LINES};
use super::counters::CounterFile;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::OpenedSampler;

const FILE: &str = "proc/vmstat";
/// Maximum length of a line. A line has a name and a number. The lines of the kernel are far
/// shorter than this limit.
const LINE_BYTES_MAX: usize = 128;

/// `include` and `exclude` match fields, such as `pgfault`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "vmstat",
    about: "Counters of the kernel's memory management: page faults, reclaim, swapping.",
    root: "flatcap.host.Vmstat",
    schema: include_bytes!("../../../../generated/host/vmstat.bfbs"),
    files: &[FILE],
    // This is the most expensive default sample, since it takes 16 us. Its values are used as rates
    // rather than to show bursts.
    period: Duration::from_millis(100),
    is_on_by_default: true,
    refresh: "page faults hundreds of times a second; some counters are summed up once a second",
    selects: "fields, such as pgfault",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let records = RecordStructure::UpTo(LINE_BYTES_MAX);
    let file = CounterFile { path: FILE, layout: LINES, records, is_optional: false };
    CounterTableSampler::open(context, &SPEC, &[file])
}
