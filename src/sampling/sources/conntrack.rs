//! `conntrack`: use of the connection tracking table, from `/proc/net/stat/nf_conntrack` and two files
//! below /proc/sys/net/netfilter.

use flatbuffers::FlatBufferBuilder;

use super::counters::{Filling, Keys, Order};
use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{Conntrack, ConntrackArgs, ConntrackCore};

const FILE: &str = "proc/net/stat/nf_conntrack";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/stat/nf_conntrack";
/// They speak of the reader's own network namespace under any root, so they are only read beside [`FILE`].
const COUNT: &str = "proc/sys/net/netfilter/nf_conntrack_count";
const COUNT_MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
const HINT: &str = ": connections are not tracked here (module nf_conntrack)";
/// Most cores in one sample; Linux is built for at most as many.
const CORES_MAX: usize = 8192;

/// Include and exclude speak of nothing.
pub(super) const ENTRY: Entry = Entry {
    name: "conntrack",
    root: "flatcap.host.Conntrack",
    schema: include_bytes!("../../../generated/host/conntrack.bfbs"),
    files: &[FILE, COUNT, COUNT_MAX],
    refresh: "at each connection",
    selects: "",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let path = super::network::of_namespace(opening.host, FILE, FILE_OF_ANOTHER_ROOT);
    let number = |file| (path == FILE).then(|| host_file(opening.host, file, HINT).ok()).flatten();
    Ok(Opened::built(ConntrackSampler {
        path,
        file: host_file(opening.host, path, HINT)?,
        count: number(COUNT),
        count_max: number(COUNT_MAX),
        columns: Columns::new(),
        cores: Vec::new(),
    }))
}

#[derive(Debug)]
struct ConntrackSampler {
    path: &'static str,
    file: HostFile,
    count: Option<HostFile>,
    count_max: Option<HostFile>,
    columns: Columns,
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

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.columns.parse(self.file.content(), &mut self.cores);
        let [count, count_max] = [&self.count, &self.count_max].map(|file| {
            let Some(file) = file else { return ABSENT };
            let (mut lines, lacks) = text::whole_lines(file.content());
            shortfall |= lacks;
            text::value(lines.next(), &mut shortfall)
        });
        let cores = builder.create_vector(&self.cores);
        let root = Conntrack::create(builder, &ConntrackArgs { count, count_max, cores: Some(cores) });
        builder.finish_minimal(root);
        shortfall
    }
}

/// The columns, which have their names in the first line.
#[derive(Debug)]
struct Columns {
    keys: Keys,
    order: Order,
}

impl Columns {
    fn new() -> Self {
        let keys = Keys::of(ENTRY.schema, "flatcap.host.ConntrackCore", &Selection::default());
        Self { keys, order: Order::default() }
    }

    fn parse(&mut self, content: &[u8], cores: &mut Vec<ConntrackCore>) -> Shortfall {
        cores.clear();
        let (mut lines, mut shortfall) = text::whole_lines(content);
        let heading = lines.next().unwrap_or_default();
        for line in lines {
            if cores.len() == CORES_MAX {
                shortfall |= Shortfall::TOO_MANY;
                break;
            }
            let mut core = ConntrackCore::default();
            let mut filling = Filling::new(&self.keys, &mut core.0);
            let mut fields = text::fields(line);
            for (at, name) in text::fields(heading).enumerate() {
                let field = fields.next();
                // A column that the schema does not have is passed over.
                if let Some(index) = self.order.find(at, &self.keys, b"", name) {
                    filling.put(index, field, text::hexadecimal);
                }
            }
            shortfall |= filling.shortfall | Shortfall::UNREADABLE.unless(fields.next().is_none());
            cores.push(core);
        }
        shortfall | Shortfall::CUT.unless(!cores.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, captured, opened, sampled, sampled_under};

    const TEXT: &[u8] = b"entries  clashres found fresh search_restart\n\
        00000021  00000002 00000003 00000004  0000000a\n00000021  00000012 00000013 00000014  0000001a\n";

    fn parsed(text: &[u8]) -> (Vec<ConntrackCore>, Shortfall) {
        let mut cores = Vec::new();
        let shortfall = Columns::new().parse(text, &mut cores);
        (cores, shortfall)
    }

    // Goal: every value goes by the name of its column, unknown columns are passed over. Method: numbers all different.
    #[test]
    fn every_value_is_in_its_place() {
        let (cores, shortfall) = parsed(TEXT);
        assert!(shortfall.is_none() && cores.len() == 2);
        let core = cores[1];
        assert_eq!(
            (core.entries(), core.clashres(), core.found(), core.search_restart()),
            (0x21, 0x12, 0x13, 0x1A)
        );
        assert_eq!((core.added(), core.searched(), core.dropped()), (ABSENT, ABSENT, ABSENT));
        let origins = Columns::new().keys.origins();
        assert_eq!(origins.len() * 8, size_of::<ConntrackCore>());
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let (cores, shortfall) = parsed(text);
            shortfall.is_none() && cores.len() == 2
        });
        let (cores, shortfall) = parsed(b"entries found\n1\n");
        assert_eq!((cores[0].entries(), cores[0].found(), shortfall), (1, ABSENT, Shortfall::CUT));
        assert_eq!(parsed(b"entries found\n1 2 3\n").1, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"entries found\n1 g\n").1, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"entries found\n").1, Shortfall::CUT);
        let (cores, shortfall) = parsed(&[&b"entries\n"[..], &b"1\n".repeat(CORES_MAX + 1)].concat());
        assert_eq!((cores.len(), shortfall), (CORES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: a captured host of another generation is read whole. Method: values that were looked up by hand.
    #[test]
    fn a_captured_host_is_read() {
        let paths = ["proc/net/stat/nf_conntrack", "proc/sys/net/netfilter"];
        let Some(folder) = captured("node-exporter", &paths) else { return };
        let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
        assert!(shortfall.is_none(), "{shortfall}");
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        assert_eq!((conntrack.count(), conntrack.count_max()), (123, 65_536));
        let cores: Vec<_> = conntrack.cores().iter().copied().collect();
        assert_eq!((cores.len(), cores[0].ignored(), cores[3].invalid()), (4, 0x588A, 0x2F));
        assert_eq!((cores[3].search_restart(), cores[0].entries()), (4, 0x21));
        assert_eq!((cores[0].deleted_late(), cores[0].clashres()), (0, ABSENT));
    }

    // Goal: under another root numbers of the agent's own namespace are not taken for the host's. Method: a tree with both.
    #[test]
    fn another_root_has_its_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [(FILE, TEXT), (FILE_OF_ANOTHER_ROOT, TEXT), (COUNT, b"5\n"), (COUNT_MAX, b"6\n")]
        {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        assert_eq!((conntrack.count(), conntrack.count_max()), (ABSENT, ABSENT));
        assert!(conntrack.cores().len() == 2 && shortfall.is_none());
    }

    // Goal: this host is read whole. Method: its files, where it tracks connections.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = opened(&ENTRY, "", std::path::Path::new("/")) {
            println!("passed over: {missing}");
            return;
        }
        let payload = sampled(&ENTRY);
        let conntrack = flatbuffers::root::<Conntrack<'_>>(&payload).unwrap();
        let text = std::fs::read_to_string("/proc/net/stat/nf_conntrack").unwrap();
        assert_eq!(conntrack.cores().len(), text.lines().count() - 1);
        let max: u64 = std::fs::read_to_string(format!("/{COUNT_MAX}")).unwrap().trim().parse().unwrap();
        assert_eq!(conntrack.count_max(), max);
    }
}
