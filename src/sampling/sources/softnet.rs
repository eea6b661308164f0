//! `softnet`: packets of each core's backlog, from `/proc/net/softnet_stat`.

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Softnet, SoftnetArgs, SoftnetCore};

/// The same in each network namespace.
const FILE: &str = "proc/net/softnet_stat";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/softnet_stat";
/// Most cores in one sample; Linux is built for at most as many.
const CORES_MAX: usize = 8192;
/// Columns that are known, and how many kernels print: since 6.4, 5.10, 3.11, 2.6.35 and before.
const COLUMNS: usize = 15;
const COLUMNS_OF_KERNELS: [usize; 5] = [COLUMNS, 13, 11, 10, 9];

/// Include and exclude speak of nothing.
pub(super) const ENTRY: Entry = Entry {
    name: "softnet",
    root: "flatcap.host.Softnet",
    schema: include_bytes!("../../../generated/host/softnet.bfbs"),
    files: &[FILE],
    refresh: "at each round of packets",
    selects: "",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let path = super::network::of_namespace(opening.host, FILE, FILE_OF_ANOTHER_ROOT);
    Ok(Opened::built(SoftnetSampler { path, file: host_file(opening.host, path, "")?, cores: Vec::new() }))
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

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = parse(self.file.content(), &mut self.cores);
        let cores = builder.create_vector(&self.cores);
        let root = Softnet::create(builder, &SoftnetArgs { cores: Some(cores) });
        builder.finish_minimal(root);
        shortfall
    }
}

fn parse(content: &[u8], cores: &mut Vec<SoftnetCore>) -> Shortfall {
    cores.clear();
    let (lines, mut shortfall) = text::whole_lines(content);
    for line in lines {
        if cores.len() == CORES_MAX {
            shortfall |= Shortfall::TOO_MANY;
            break;
        }
        let (core, lacks) = core(line);
        cores.push(core);
        shortfall |= lacks;
    }
    shortfall
}

/// One core and what it lacks.
fn core(line: &[u8]) -> (SoftnetCore, Shortfall) {
    let mut columns = [ABSENT; COLUMNS];
    let mut given = 0;
    let mut shortfall = Shortfall::NONE;
    for field in text::fields(line) {
        // Columns that a later kernel adds behind are passed over.
        if let Some(place) = columns.get_mut(given) {
            let value = text::hexadecimal(field);
            shortfall |= Shortfall::UNREADABLE.unless(value.is_some());
            *place = value.unwrap_or(ABSENT);
        }
        given += 1;
    }
    shortfall |= Shortfall::CUT.unless(COLUMNS_OF_KERNELS.contains(&given.min(COLUMNS)));
    // The fourth to the eighth are no longer used.
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
    (core, shortfall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled};

    fn parsed(text: &[u8]) -> (Vec<SoftnetCore>, Shortfall) {
        let mut cores = Vec::new();
        let shortfall = parse(text, &mut cores);
        (cores, shortfall)
    }

    // Goal: every value is in its place, for each generation of kernels. Method: columns equal to their place.
    #[test]
    fn every_value_is_in_its_place() {
        for count in COLUMNS_OF_KERNELS.into_iter().chain([18]) {
            let columns: Vec<String> = (1..=count).map(|at| format!("{at:08x}")).collect();
            let (cores, shortfall) = parsed(format!("{}\n", columns.join(" ")).as_bytes());
            assert!(shortfall.is_none());
            let since = |column: usize| if count >= column { column as u64 } else { ABSENT };
            let core = cores[0];
            assert_eq!((core.processed(), core.dropped(), core.time_squeeze()), (1, 2, 3));
            assert_eq!((core.cpu_collision(), core.received_rps()), (9, since(10)));
            assert_eq!((core.flow_limit(), core.backlog(), core.core()), (since(11), since(12), since(13)));
            assert_eq!((core.input_queue(), core.process_queue()), (since(14), since(15)));
        }
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        let text = b"00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008 00000009\n";
        assert_composed(text, |text| {
            let (cores, shortfall) = parsed(text);
            shortfall.is_none() && cores.len() == 1
        });
        let (cores, shortfall) = parsed(b"1 -2 3 4 5 6 7 8 9 10000000000000000\n");
        assert_eq!((cores[0].dropped(), cores[0].received_rps()), (ABSENT, ABSENT));
        assert_eq!(shortfall, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"1 2 3 4 5 6 7 8\n").1, Shortfall::CUT);
        let (cores, shortfall) = parsed(&b"1 2 3 4 5 6 7 8 9\n".repeat(CORES_MAX + 1));
        assert_eq!((cores.len(), shortfall), (CORES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: live and captured hosts are read whole, core by core. Method: a naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        let naive = |text: &str| -> Vec<Vec<u64>> {
            let line = |line: &str| {
                line.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap()).collect()
            };
            text.lines().map(line).collect()
        };
        let payload = sampled(&ENTRY);
        let softnet = flatbuffers::root::<Softnet<'_>>(&payload).unwrap();
        let live = naive(&std::fs::read_to_string("/proc/net/softnet_stat").unwrap());
        assert_eq!(softnet.cores().len(), live.len());
        for (ours, theirs) in softnet.cores().iter().zip(&live) {
            assert!(ours.processed() <= theirs[0] && theirs[0] - ours.processed() < 1_000_000);
            assert_eq!(ours.core(), theirs.get(12).copied().unwrap_or(ABSENT));
        }
        if let Some(text) = fixture("net/softnet_stat") {
            let (cores, shortfall) = parsed(&text);
            assert!(shortfall.is_none());
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
