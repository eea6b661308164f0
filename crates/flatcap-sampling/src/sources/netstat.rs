//! `netstat`: extended counters of TCP and IP, from /proc/net/netstat.

use std::time::Duration;

use flatcap_os::host::RecordStructure;

use super::counter_tables::CounterTableSampler;
use super::counters::{CounterFile, CounterLayout};
use super::network::namespace_path;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::OpenedSampler;

const FILE: &str = "proc/net/netstat";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/netstat";

/// `include` and `exclude` match fields, such as `tcp_timeouts`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "netstat",
    about: "Extended counters of TCP and IP: retransmissions, overflows.",
    root: "flatcap.host.Netstat",
    schema: include_bytes!("../../../../generated/host/netstat.bfbs"),
    files: &[FILE],
    // The source has the same period as snmp.
    period: Duration::from_millis(100),
    refresh: "at each packet",
    selects: "fields, such as tcp_timeouts",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let path = namespace_path(context.host, FILE, FILE_OF_ANOTHER_ROOT)?;
    let (layout, records) = (CounterLayout::Headed, RecordStructure::One);
    CounterTableSampler::open(context, &SPEC, &[CounterFile { path, layout, records, is_optional: false }])
}
