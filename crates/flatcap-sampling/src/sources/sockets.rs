//! `sockets`: number of sockets by protocol, from /proc/net/sockstat and, for IPv6,
//! /proc/net/sockstat6.

use std::time::Duration;

use flatcap_os::host::RecordStructure;

use super::counter_tables::CounterTableSampler;
use super::counters::{CounterFile, CounterLayout};
use super::network::namespace_path;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::OpenedSampler;

const FILE: &str = "proc/net/sockstat";
const FILE6: &str = "proc/net/sockstat6";

/// `include` and `exclude` match fields, such as `tcp_inuse`. A host without IPv6 lacks the file
/// for IPv6, so the fields of that file are absent.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "sockets",
    about: "Sockets in use by protocol.",
    root: "flatcap.host.Sockets",
    schema: include_bytes!("../../../../generated/host/sockets.bfbs"),
    files: &[FILE, FILE6],
    // The files are short. At this rate, leaks and bursts of connections are visible.
    period: Duration::from_millis(100),
    refresh: "whenever a socket is opened or closed",
    selects: "fields, such as tcp_inuse",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = |own, another, is_optional| {
        namespace_path(context.host, own, another).map(|path| CounterFile {
            path,
            layout: CounterLayout::Pairs,
            records: RecordStructure::One,
            is_optional,
        })
    };
    let files = [file(FILE, "proc/1/net/sockstat", false)?, file(FILE6, "proc/1/net/sockstat6", true)?];
    CounterTableSampler::open(context, &SPEC, &files)
}
