//! `conntrack`: use of the connection tracking table, from `/proc/net/stat/nf_conntrack` and two
//! files below /proc/sys/net/netfilter.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{Conntrack, ConntrackArgs, ConntrackCore};

use super::counters::{CounterKeys, CounterOrder, CounterWriter};
use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/net/stat/nf_conntrack";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/stat/nf_conntrack";
/// Number of tracked connections. Whatever the configured root, this file describes the network
/// namespace of the reading process. So this file is read only if the source also reads [`FILE`].
const COUNT: &str = "proc/sys/net/netfilter/nf_conntrack_count";
const COUNT_MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;

/// There is nothing to select with `include` and `exclude`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "conntrack",
    about: "Use of the connection tracking table.",
    root: "flatcap.host.Conntrack",
    schema: include_bytes!("../../../../generated/host/conntrack.bfbs"),
    files: &[FILE, COUNT, COUNT_MAX],
    // A connection tracking table takes seconds to fill.
    period: Duration::from_secs(1),
    refresh: "at each connection",
    hint: ": connection tracking is not active here (module nf_conntrack)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let path = super::network::namespace_path(context.host, FILE, FILE_OF_ANOTHER_ROOT)?;
    let number = |file| (path == FILE).then(|| host_file(context.host, file, SPEC.hint).ok()).flatten();
    Ok(OpenedSampler::built(ConntrackSampler {
        path,
        file: host_file(context.host, path, SPEC.hint)?,
        count: number(COUNT),
        count_max: number(COUNT_MAX),
        columns: ConntrackColumns::new(),
        cores: Vec::new(),
    }))
}

#[derive(Debug)]
struct ConntrackSampler {
    path: &'static str,
    file: HostFile,
    count: Option<HostFile>,
    count_max: Option<HostFile>,
    columns: ConntrackColumns,
    cores: Vec<ConntrackCore>, // reused
}

impl Sampler for ConntrackSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })?;
        for (file, path) in [(&mut self.count, COUNT), (&mut self.count_max, COUNT_MAX)] {
            if let Some(file) = file {
                file.read().map_err(|error| ReadError { file: path, error })?;
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let content = self.file.content();
        let lacks = self.columns.parse(content, &mut self.cores);
        let mut incomplete = odd_text::in_file(lacks, content, format_args!("/{}", self.path));
        let [count, count_max] = [(&self.count, COUNT), (&self.count_max, COUNT_MAX)].map(|(file, path)| {
            let Some(file) = file else { return ABSENT };
            let (mut lines, mut lacks) = text::whole_lines(file.content());
            let value = text::value(lines.next(), &mut lacks);
            incomplete |= odd_text::in_file(lacks, file.content(), format_args!("/{path}"));
            value
        });
        let cores = builder.create_vector(&self.cores);
        let root = Conntrack::create(builder, &ConntrackArgs { count, count_max, cores: Some(cores) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// The columns of the table. The first line has their names.
#[derive(Debug)]
struct ConntrackColumns {
    keys: CounterKeys,
    order: CounterOrder,
}

impl ConntrackColumns {
    fn new() -> Self {
        let keys = CounterKeys::of(&SPEC, "cores", &NameFilter::default());
        Self { keys, order: CounterOrder::default() }
    }

    fn parse(&mut self, content: &[u8], cores: &mut Vec<ConntrackCore>) -> Incomplete {
        cores.clear();
        let (mut lines, mut incomplete) = text::whole_lines(content);
        let heading = lines.next().unwrap_or_default();
        for line in lines {
            if cores.len() == CORES_MAX {
                incomplete |= Incomplete::TOO_MANY;
                break;
            }
            let mut core = ConntrackCore::default();
            let mut writer = CounterWriter::new(&self.keys, &mut core.0);
            let mut fields = text::fields(line);
            for (at, name) in text::fields(heading).enumerate() {
                let field = fields.next();
                // Columns that the schema does not have are skipped.
                if let Some(index) = self.order.find(at, &self.keys, b"", name) {
                    writer.store(index, field, text::hexadecimal);
                }
            }
            incomplete |= writer.incomplete;
            if fields.next().is_some() {
                incomplete |= odd_text::unreadable(line);
            }
            cores.push(core);
        }
        incomplete | Incomplete::CUT.unless(!cores.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{
        assert_damage_is_marked, captured_host, open_sampler, sample_this_host, sample_under,
    };

    const TEXT: &[u8] = b"entries  clashres found fresh search_restart\n\
        00000021  00000002 00000003 00000004  0000000a\n00000021  00000012 00000013 00000014  0000001a\n";

    fn parsed(text: &[u8]) -> (Vec<ConntrackCore>, Incomplete) {
        let mut cores = Vec::new();
        let incomplete = ConntrackColumns::new().parse(text, &mut cores);
        (cores, incomplete)
    }

    // Proves that every value is assigned by the name of its column, and that unknown columns are
    // skipped.
    #[test]
    fn every_value_is_in_its_place() {
        let (cores, incomplete) = parsed(TEXT);
        assert!(incomplete.is_none() && cores.len() == 2);
        let core = cores[1];
        assert_eq!(
            (core.entries(), core.clashres(), core.found(), core.search_restart()),
            (0x21, 0x12, 0x13, 0x1A)
        );
        assert_eq!((core.added(), core.searched(), core.dropped()), (ABSENT, ABSENT, ABSENT));
        let origins = ConntrackColumns::new().keys.origins();
        assert_eq!(origins.len() * 8, size_of::<ConntrackCore>());
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (cores, incomplete) = parsed(text);
            incomplete.is_none() && cores.len() == 2
        });
        let (cores, incomplete) = parsed(b"entries found\n1\n");
        assert_eq!((cores[0].entries(), cores[0].found(), incomplete), (1, ABSENT, Incomplete::CUT));
        assert_eq!(parsed(b"entries found\n1 2 3\n").1, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"entries found\n1 g\n").1, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"entries found\n").1, Incomplete::CUT);
        let (cores, incomplete) = parsed(&[&b"entries\n"[..], &b"1\n".repeat(CORES_MAX + 1)].concat());
        assert_eq!((cores.len(), incomplete), (CORES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that the files captured from a host with another kernel generation are read
    // completely. The expected values were looked up by hand.
    #[test]
    fn a_captured_host_is_read() {
        let paths = ["proc/net/stat/nf_conntrack", "proc/sys/net/netfilter"];
        let Some(folder) = captured_host("node-exporter", &paths) else { return };
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none(), "{incomplete}");
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        assert_eq!((conntrack.count(), conntrack.count_max()), (123, 65_536));
        let cores: Vec<_> = conntrack.cores().iter().copied().collect();
        assert_eq!((cores.len(), cores[0].ignored(), cores[3].invalid()), (4, 0x588A, 0x2F));
        assert_eq!((cores[3].search_restart(), cores[0].entries()), (4, 0x21));
        assert_eq!((cores[0].deleted_late(), cores[0].clashres()), (0, ABSENT));
    }

    // Proves that under another root, numbers of the recorder's own network namespace are not
    // mistaken for the host's.
    #[test]
    fn another_root_has_its_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [(FILE, TEXT), (FILE_OF_ANOTHER_ROOT, TEXT), (COUNT, b"5\n"), (COUNT_MAX, b"6\n")]
        {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        assert_eq!((conntrack.count(), conntrack.count_max()), (ABSENT, ABSENT));
        assert!(conntrack.cores().len() == 2 && incomplete.is_none());
    }

    // Proves that this host is read completely, if it tracks connections.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = open_sampler(&SPEC, "", std::path::Path::new("/")) {
            println!("skipped: {missing}");
            return;
        }
        let payload = sample_this_host(&SPEC);
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        let text = std::fs::read_to_string("/proc/net/stat/nf_conntrack").unwrap();
        assert_eq!(conntrack.cores().len(), text.lines().count() - 1);
        let max: u64 = std::fs::read_to_string(format!("/{COUNT_MAX}")).unwrap().trim().parse().unwrap();
        assert_eq!(conntrack.count_max(), max);
    }
}
