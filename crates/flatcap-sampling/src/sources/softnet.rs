//! `softnet`: packets in each core's backlog, from `/proc/net/softnet_stat`.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{Softnet, SoftnetArgs, SoftnetCore};

use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

/// Path of the file. The file has the same content in each network namespace.
const FILE: &str = "proc/net/softnet_stat";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/softnet_stat";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;
/// Number of supported columns. The next constant lists the number of columns in Linux since 6.4,
/// since 5.10, since 3.11, since 2.6.35, and before 2.6.35.
const COLUMNS: usize = 15;
const COLUMNS_OF_KERNELS: [usize; 5] = [COLUMNS, 13, 11, 10, 9];

/// There is nothing to select with `include` and `exclude`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "softnet",
    about: "Packets, drops and squeezes of each core's backlog.",
    root: "flatcap.host.Softnet",
    schema: include_bytes!("../../../../generated/host/softnet.bfbs"),
    files: &[FILE],
    // Drops come in bursts of milliseconds, but no drop is missed because the counters accumulate
    // them.
    period: Duration::from_millis(100),
    refresh: "at each round of packets",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let path = super::network::namespace_path(context.host, FILE, FILE_OF_ANOTHER_ROOT)?;
    Ok(OpenedSampler::built(SoftnetSampler {
        path,
        file: host_file(context.host, path, "")?,
        cores: Vec::new(),
    }))
}

#[derive(Debug)]
struct SoftnetSampler {
    path: &'static str,
    file: HostFile,
    cores: Vec<SoftnetCore>, // reused
}

impl Sampler for SoftnetSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = parse(self.file.content(), &mut self.cores);
        let incomplete = odd_text::in_file(incomplete, self.file.content(), format_args!("/{}", self.path));
        let cores = builder.create_vector(&self.cores);
        let root = Softnet::create(builder, &SoftnetArgs { cores: Some(cores) });
        builder.finish_minimal(root);
        incomplete
    }
}

fn parse(content: &[u8], cores: &mut Vec<SoftnetCore>) -> Incomplete {
    cores.clear();
    let (lines, mut incomplete) = text::whole_lines(content);
    for line in lines {
        if cores.len() == CORES_MAX {
            incomplete |= Incomplete::TOO_MANY;
            break;
        }
        let (core, lacks) = core(line);
        cores.push(core);
        incomplete |= lacks;
    }
    incomplete
}

/// Parses one core. Also returns the reasons why the values are incomplete.
fn core(line: &[u8]) -> (SoftnetCore, Incomplete) {
    let mut columns = [ABSENT; COLUMNS];
    let mut count = 0;
    let mut incomplete = Incomplete::NONE;
    for field in text::fields(line) {
        // A later kernel may append columns, which are skipped.
        if let Some(place) = columns.get_mut(count) {
            let value = text::hexadecimal(field);
            if value.is_none() {
                incomplete |= odd_text::unreadable(field);
            }
            *place = value.unwrap_or(ABSENT);
        }
        count += 1;
    }
    if !COLUMNS_OF_KERNELS.contains(&count.min(COLUMNS)) {
        odd_text::note(line, 0);
        incomplete |= Incomplete::CUT;
    }
    // The kernel no longer uses the fourth to the eighth column.
    let [processed, dropped, time_squeeze, _, _, _, _, _, cpu_collision, received_rps, flow_limit, rest @ ..] =
        columns;
    let [backlog, core, input_queue, process_queue] = rest;
    let core = SoftnetCore::new(
        core,
        processed,
        dropped,
        time_squeeze,
        cpu_collision,
        received_rps,
        flow_limit,
        backlog,
        input_queue,
        process_queue,
    );
    (core, incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_this_host};

    fn parsed(text: &[u8]) -> (Vec<SoftnetCore>, Incomplete) {
        let mut cores = Vec::new();
        let incomplete = parse(text, &mut cores);
        (cores, incomplete)
    }

    // Proves that every value ends up in its field, for each generation of kernels. In this test,
    // the value of each column equals the column's position.
    #[test]
    fn every_value_is_in_its_place() {
        for count in COLUMNS_OF_KERNELS.into_iter().chain([18]) {
            let columns: Vec<String> = (1..=count).map(|at| format!("{at:08x}")).collect();
            let (cores, incomplete) = parsed(format!("{}\n", columns.join(" ")).as_bytes());
            assert!(incomplete.is_none());
            let since = |column: usize| if count >= column { column as u64 } else { ABSENT };
            let core = cores[0];
            assert_eq!((core.processed(), core.dropped(), core.time_squeeze()), (1, 2, 3));
            assert_eq!((core.cpu_collision(), core.received_rps()), (9, since(10)));
            assert_eq!((core.flow_limit(), core.backlog(), core.core()), (since(11), since(12), since(13)));
            assert_eq!((core.input_queue(), core.process_queue()), (since(14), since(15)));
        }
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        let text = b"00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008 00000009\n";
        assert_damage_is_marked(text, |text| {
            let (cores, incomplete) = parsed(text);
            incomplete.is_none() && cores.len() == 1
        });
        let (cores, incomplete) = parsed(b"1 -2 3 4 5 6 7 8 9 10000000000000000\n");
        assert_eq!((cores[0].dropped(), cores[0].received_rps()), (ABSENT, ABSENT));
        assert_eq!(incomplete, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"1 2 3 4 5 6 7 8\n").1, Incomplete::CUT);
        let (cores, incomplete) = parsed(&b"1 2 3 4 5 6 7 8 9\n".repeat(CORES_MAX + 1));
        assert_eq!((cores.len(), incomplete), (CORES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that all cores of this host and of files captured from other hosts are read, and that
    // a naive parser finds the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let naive = |text: &str| -> Vec<Vec<u64>> {
            let line = |line: &str| {
                line.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap()).collect()
            };
            text.lines().map(line).collect()
        };
        let payload = sample_this_host(&SPEC);
        let softnet = flatbuffers::root::<Softnet<'_>>(&payload).unwrap();
        let live = naive(&std::fs::read_to_string("/proc/net/softnet_stat").unwrap());
        assert_eq!(softnet.cores().len(), live.len());
        for (ours, theirs) in softnet.cores().iter().zip(&live) {
            assert!(ours.processed() <= theirs[0] && theirs[0] - ours.processed() < 1_000_000);
            assert_eq!(ours.core(), theirs.get(12).copied().unwrap_or(ABSENT));
        }
        if let Some(text) = fixture("net/softnet_stat") {
            let (cores, incomplete) = parsed(&text);
            assert!(incomplete.is_none());
            let naive = naive(std::str::from_utf8(&text).unwrap());
            assert_eq!(cores.len(), naive.len());
            for (ours, theirs) in cores.iter().zip(&naive) {
                assert_eq!(
                    (ours.processed(), ours.dropped(), ours.time_squeeze()),
                    (theirs[0], theirs[1], theirs[2])
                );
                assert_eq!(ours.flow_limit(), theirs.get(10).copied().unwrap_or(ABSENT));
            }
        }
    }
}
