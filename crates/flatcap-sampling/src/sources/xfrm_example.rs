//! An example of a source, for docs/ARCHITECTURE.md, "How to add a source". The example is not in
//! the catalog of sources.

use std::time::Duration;

use flatcap_os::host::RecordStructure;

use super::counter_tables::{CounterTableSampler, LINES};
use super::counters::CounterFile;
use super::network::namespace_path;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::OpenedSampler;

const FILE: &str = "proc/net/xfrm_stat";

/// `include` and `exclude` match fields, such as `in_no_states`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "xfrm",
    about: "Errors of IPsec.",
    root: "flatcap.host.Xfrm",
    schema: include_bytes!("../../../../tests/data/schema/xfrm.bfbs"),
    files: &[FILE],
    // Errors are rare, and no error is missed because the counters accumulate them.
    period: Duration::from_secs(1),
    refresh: "at each packet that is dropped",
    selects: "fields, such as in_no_states",
    hint: ": this kernel was built without IPsec statistics (CONFIG_XFRM_STATISTICS)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let path = namespace_path(context.host, FILE, "proc/1/net/xfrm_stat")?;
    let file = CounterFile { path, layout: LINES, records: RecordStructure::One, is_optional: false };
    CounterTableSampler::open(context, &SPEC, &[file])
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;
    use flatcap_os::host::HostRoot;

    use super::*;
    use crate::sources::tests::{decoded, host_with};
    use crate::{OwnSettings, SourceSettings};

    // Proves that the example reads its file. Values are assigned to their fields, and the value of
    // a line that the kernel does not print is absent.
    #[test]
    fn the_example_is_a_source() {
        let host = host_with(&[("proc/1/net/xfrm_stat", "XfrmInError 5\nXfrmInNoStates \t7\n")]);
        let (include, exclude) = ([], []);
        let own = OwnSettings::None;
        let settings =
            SourceSettings { period: SPEC.period, budget: 1_000, include: &include, exclude: &exclude, own };
        let context = OpenContext { host: &HostRoot::new(host.path()), settings };
        let mut sampler = SPEC.open(&context).unwrap();
        sampler.read().unwrap();
        let (payload, incomplete) = sampler.payload(0, &mut FlatBufferBuilder::new());
        assert!(incomplete.is_none(), "{incomplete}");
        let counters = &decoded(&SPEC, &payload)["counters"];
        assert_eq!(counters["in_no_states"], 7);
        assert!(counters["out_pol_block"].is_null(), "{counters}");
    }
}
