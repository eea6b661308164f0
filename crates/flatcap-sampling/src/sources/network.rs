//! `network`: bytes, packets and errors of interfaces, from /proc/net/dev.

use std::io::ErrorKind;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::{HostFile, HostRoot, RecordStructure};
use flatcap_schemas::host::{InterfaceCounters, Network, NetworkArgs};

use super::cursor::Cursor;
use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

/// The file of the recorder's own network namespace.
const FILE: &str = "proc/net/dev";
/// The file of the host's first process. Under another root, the source reads this file, because
/// /proc/net is a link to the reading process, which the /proc of another root does not contain.
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/dev";
/// Maximum length of a line, which has a name of 16 bytes and sixteen numbers of up to twenty
/// digits.
const LINE_BYTES_MAX: usize = 512;
/// Maximum number of interfaces in one sample.
const INTERFACES_MAX: usize = 4096;
/// Number of counters of an interface.
const COUNTERS: usize = 16;
/// Number of heading lines at the start of the file.
const HEADING_LINES: usize = 2;

const NAMESPACE_HINT: &str = ": the network of the host is that of its first process, which /proc hides from the recorder \
     (mount option hidepid); give it CAP_SYS_PTRACE, or mount /proc with gid= of a group of its user";

/// `include` and `exclude` match interfaces.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "network",
    about: "Packets, bytes and errors of each network interface.",
    root: "flatcap.host.Network",
    schema: include_bytes!("../../../../generated/host/network.bfbs"),
    files: &[FILE],
    // Bursts last milliseconds. A sample costs 5 us.
    period: Duration::from_millis(10),
    is_on_by_default: true,
    refresh: "at each packet",
    selects: "interfaces, such as eth0",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let path = namespace_path(context.host, FILE, FILE_OF_ANOTHER_ROOT)?;
    let file = host_file(context.host, path, "")?.with_records(RecordStructure::UpTo(LINE_BYTES_MAX));
    let filter = CachedNameFilter::new(context.selection());
    Ok(OpenedSampler::built(NetworkSampler { path, file, filter, interfaces: Vec::new() }))
}

/// Returns the path of the file to read. `own` is the file of the recorder's network namespace.
/// Under another root, the function returns `another`, which is the file of the host's first
/// process. A captured tree may have either file.
///
/// # Errors
/// Fails if the recorder may not access the first process. The recorder's own network is no
/// substitute, because it may be the network of a container.
pub(super) fn namespace_path(
    host: &HostRoot,
    own: &'static str,
    another: &'static str,
) -> Result<&'static str, Unavailable> {
    if host.is_own_root() {
        return Ok(own);
    }
    let denied = |error| Err(Unavailable { file: another, error, hint: NAMESPACE_HINT });
    match std::fs::metadata(host.path(another)) {
        Ok(_) => Ok(another),
        Err(error) if error.kind() != ErrorKind::NotFound => denied(error),
        Err(_) if host.hides_first_process() => denied(ErrorKind::PermissionDenied.into()),
        // This host lacks the file, even if the recorder's own network namespace has it.
        Err(_) if host.has_procfs() => Ok(another),
        Err(_) => Ok(own),
    }
}

#[derive(Debug)]
struct NetworkSampler {
    path: &'static str,
    file: HostFile,
    filter: CachedNameFilter,
    interfaces: Vec<InterfaceCounters>, // reused
}

impl Sampler for NetworkSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = parse(self.file.content(), &mut self.filter, &mut self.interfaces);
        let incomplete = odd_text::in_file(incomplete, self.file.content(), format_args!("/{}", self.path));
        let interfaces = builder.create_vector(&self.interfaces);
        let root = Network::create(builder, &NetworkArgs { interfaces: Some(interfaces) });
        builder.finish_minimal(root);
        incomplete
    }
}

fn parse(
    content: &[u8],
    filter: &mut CachedNameFilter,
    interfaces: &mut Vec<InterfaceCounters>,
) -> Incomplete {
    interfaces.clear();
    let (mut cursor, mut incomplete) = Cursor::of(content);
    for _ in 0..HEADING_LINES {
        incomplete |= Incomplete::CUT.unless(!cursor.is_at_end());
        cursor.next_line();
    }
    incomplete | cursor.each_line(|cursor, at| line(cursor, at, filter, interfaces))
}

/// Adds the interface of one line, if the filter selects it. Returns the reasons why this line is
/// incomplete.
fn line(
    cursor: &mut Cursor<'_>,
    at: usize,
    filter: &mut CachedNameFilter,
    interfaces: &mut Vec<InterfaceCounters>,
) -> Incomplete {
    let Some(name) = cursor.until_last(b':') else { return cursor.unreadable() };
    let name = name.trim_ascii();
    if !filter.matches(at, name) {
        return Incomplete::NONE;
    }
    let Some(name) = text::name::<16>(name) else { return odd_text::unreadable(name) };
    if interfaces.len() == INTERFACES_MAX {
        return Incomplete::TOO_MANY;
    }
    let mut lacks = Incomplete::NONE;
    // The counters have the same order in the schema and in the file.
    let counters = cursor.numbers::<COUNTERS>(&mut lacks);
    interfaces.push(InterfaceCounters(text::row(&[], &name, &counters)));
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_this_host, sample_under};
    use crate::sources::text::ABSENT;

    const TEXT: &[u8] = b"Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
        eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";

    fn name(interface: &InterfaceCounters) -> String {
        interface.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<InterfaceCounters>, Incomplete) {
        let mut interfaces = Vec::new();
        let incomplete = parse(text, &mut CachedNameFilter::default(), &mut interfaces);
        (interfaces, incomplete)
    }

    // Proves that every value ends up in its field, with and without a space after the name.
    #[test]
    fn every_value_is_in_its_place() {
        let (interfaces, incomplete) = parsed(TEXT);
        assert!(incomplete.is_none());
        assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), ["lo", "eth0"]);
        let eth0 = interfaces[1];
        assert_eq!(
            (eth0.rx_bytes(), eth0.rx_multicast(), eth0.tx_bytes(), eth0.tx_compressed()),
            (1, 8, 9, 16)
        );
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (interfaces, incomplete) = parsed(text);
            incomplete.is_none() && interfaces.len() == 2
        });
        let (interfaces, incomplete) = parsed(b"a\nb\nlo: 1 2\n");
        assert_eq!((interfaces[0].rx_errors(), incomplete), (ABSENT, Incomplete::CUT));
        let (interfaces, incomplete) = parsed(b"a\nb\nlo 1 2\na-name-that-is-too-long: 1\n");
        assert_eq!((interfaces.len(), incomplete), (0, Incomplete::UNREADABLE));
        let many: Vec<String> = (0..=INTERFACES_MAX)
            .map(|at| format!("i{at}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"))
            .collect();
        let (interfaces, incomplete) = parsed(format!("a\nb\n{}", many.concat()).as_bytes());
        assert_eq!((interfaces.len(), incomplete), (INTERFACES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that interfaces are selected by name, and that an unwanted line never makes a sample
    // incomplete.
    #[test]
    fn interfaces_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let text = [TEXT, b"veth1: x\n"].concat();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "exclude = [\"veth*\", \"lo\"]", folder.path());
        let network = flatbuffers::root::<Network<'_>>(&payload).unwrap();
        assert_eq!(network.interfaces().iter().map(name).collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(incomplete, Incomplete::NONE);
    }

    // Proves that all interfaces of this host and of files captured from other hosts are read, and
    // that a naive parser finds the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let payload = sample_this_host(&SPEC);
        let network = flatbuffers::root::<Network<'_>>(&payload).unwrap();
        let names = |text: &str| -> Vec<String> {
            text.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect()
        };
        let live = std::fs::read_to_string("/proc/net/dev").unwrap();
        assert_eq!(network.interfaces().iter().map(name).collect::<Vec<_>>(), names(&live));
        if let Some(text) = fixture("./proc/net/dev") {
            let (interfaces, incomplete) = parsed(&text);
            assert!(incomplete.is_none());
            let text = String::from_utf8(text).unwrap();
            assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), names(&text));
        }
    }
}
