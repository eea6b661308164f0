//! `network`: bytes, packets and errors of interfaces, from /proc/net/dev.

use flatbuffers::FlatBufferBuilder;

use super::cursor::Cursor;
use super::text;
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::{HostFile, HostRoot, Records};
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{InterfaceCounters, Network, NetworkArgs};

/// The agent's own network namespace.
const FILE: &str = "proc/net/dev";
/// The namespace of the host's first process: /proc/net is a link into the reader's own process, which another /proc
/// does not have.
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/dev";
/// Longest line of the kernel: a name of 16 bytes and sixteen numbers of up to twenty digits.
const LINE_BYTES_MAX: usize = 512;
/// Most interfaces in one sample.
const INTERFACES_MAX: usize = 4096;
/// Lines of headings in front.
const HEADINGS: usize = 2;

/// Include and exclude speak of interfaces.
pub(super) const ENTRY: Entry = Entry {
    name: "network",
    root: "flatcap.host.Network",
    schema: include_bytes!("../../../generated/host/network.bfbs"),
    files: &[FILE],
    refresh: "at each packet",
    selects: "interfaces, such as eth0",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let path = of_namespace(opening.host, FILE, FILE_OF_ANOTHER_ROOT);
    let file = host_file(opening.host, path, "")?.of_records(Records::UpTo(LINE_BYTES_MAX));
    let chosen = Chosen::new(opening.selection());
    Ok(Opened::built(NetworkSampler { path, file, chosen, interfaces: Vec::new() }))
}

/// Which of two files to read: that of the agent's own network namespace, or under another root, where it is there, that of the host's
/// first process.
pub(super) fn of_namespace(host: &HostRoot, own: &'static str, another: &'static str) -> &'static str {
    if !host.is_own() && host.path(another).exists() { another } else { own }
}

#[derive(Debug)]
struct NetworkSampler {
    path: &'static str,
    file: HostFile,
    chosen: Chosen,
    interfaces: Vec<InterfaceCounters>, // reused
}

impl Sampler for NetworkSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = parse(self.file.content(), &mut self.chosen, &mut self.interfaces);
        let interfaces = builder.create_vector(&self.interfaces);
        let root = Network::create(builder, &NetworkArgs { interfaces: Some(interfaces) });
        builder.finish_minimal(root);
        shortfall
    }
}

fn parse(content: &[u8], chosen: &mut Chosen, interfaces: &mut Vec<InterfaceCounters>) -> Shortfall {
    interfaces.clear();
    let (mut cursor, mut shortfall) = Cursor::of(content);
    for _ in 0..HEADINGS {
        shortfall |= Shortfall::CUT.unless(!cursor.is_at_end());
        cursor.next_line();
    }
    let mut at = 0;
    while !cursor.is_at_end() {
        shortfall |= line(&mut cursor, at, chosen, interfaces);
        cursor.next_line();
        at += 1;
    }
    shortfall
}

/// Takes the interface of one line, if it is wanted. What it lacks.
fn line(
    cursor: &mut Cursor<'_>,
    at: usize,
    chosen: &mut Chosen,
    interfaces: &mut Vec<InterfaceCounters>,
) -> Shortfall {
    let Some(name) = cursor.up_to_last(b':') else { return Shortfall::UNREADABLE };
    let name = name.trim_ascii();
    if !chosen.wants(at, name) {
        return Shortfall::NONE;
    }
    let Some(name) = text::name::<16>(name) else { return Shortfall::UNREADABLE };
    if interfaces.len() == INTERFACES_MAX {
        return Shortfall::TOO_MANY;
    }
    let mut lacks = Shortfall::NONE;
    interfaces.push(interface(&name, &cursor.numbers(&mut lacks)));
    lacks
}

fn interface(name: &[u8; 16], counters: &[u64; 16]) -> InterfaceCounters {
    let [
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        rx_fifo,
        rx_frame,
        rx_compressed,
        rx_multicast,
        tx @ ..,
    ] = *counters;
    let [tx_bytes, tx_packets, tx_errors, tx_dropped, tx_fifo, tx_collisions, tx_carrier, tx_compressed] = tx;
    InterfaceCounters::new(
        name,
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        rx_fifo,
        rx_frame,
        rx_compressed,
        rx_multicast,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
        tx_fifo,
        tx_collisions,
        tx_carrier,
        tx_compressed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled, sampled_under};
    use crate::sampling::sources::text::ABSENT;

    const TEXT: &[u8] = b"Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
        eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";

    fn name(interface: &InterfaceCounters) -> String {
        interface.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<InterfaceCounters>, Shortfall) {
        let mut interfaces = Vec::new();
        let shortfall = parse(text, &mut Chosen::default(), &mut interfaces);
        (interfaces, shortfall)
    }

    // Goal: every value is in its place, with and without a space behind the name. Method: counters equal to their place.
    #[test]
    fn every_value_is_in_its_place() {
        let (interfaces, shortfall) = parsed(TEXT);
        assert!(shortfall.is_none());
        assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), ["lo", "eth0"]);
        let eth0 = interfaces[1];
        assert_eq!(
            (eth0.rx_bytes(), eth0.rx_multicast(), eth0.tx_bytes(), eth0.tx_compressed()),
            (1, 8, 9, 16)
        );
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let (interfaces, shortfall) = parsed(text);
            shortfall.is_none() && interfaces.len() == 2
        });
        let (interfaces, shortfall) = parsed(b"a\nb\nlo: 1 2\n");
        assert_eq!((interfaces[0].rx_errors(), shortfall), (ABSENT, Shortfall::CUT));
        let (interfaces, shortfall) = parsed(b"a\nb\nlo 1 2\na-name-that-is-too-long: 1\n");
        assert_eq!((interfaces.len(), shortfall), (0, Shortfall::UNREADABLE));
        let many: Vec<String> = (0..=INTERFACES_MAX)
            .map(|at| format!("i{at}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"))
            .collect();
        let (interfaces, shortfall) = parsed(format!("a\nb\n{}", many.concat()).as_bytes());
        assert_eq!((interfaces.len(), shortfall), (INTERFACES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: interfaces are chosen by name, and one that nobody wants is no shortfall, however it reads. Method: a tree.
    #[test]
    fn interfaces_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let text = [TEXT, b"veth1: x\n"].concat();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let (payload, shortfall) = sampled_under(&ENTRY, "exclude = [\"veth*\", \"lo\"]", folder.path());
        let network = flatbuffers::root::<Network<'_>>(&payload).unwrap();
        assert_eq!(network.interfaces().iter().map(name).collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(shortfall, Shortfall::NONE);
    }

    // Goal: live and captured hosts are read whole, interface by interface. Method: a naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        let payload = sampled(&ENTRY);
        let network = flatbuffers::root::<Network<'_>>(&payload).unwrap();
        let names = |text: &str| -> Vec<String> {
            text.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect()
        };
        let live = std::fs::read_to_string("/proc/net/dev").unwrap();
        assert_eq!(network.interfaces().iter().map(name).collect::<Vec<_>>(), names(&live));
        if let Some(text) = fixture("./proc/net/dev") {
            let (interfaces, shortfall) = parsed(&text);
            assert!(shortfall.is_none());
            let text = String::from_utf8(text).unwrap();
            assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), names(&text));
        }
    }
}
