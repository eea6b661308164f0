//! `network`: bytes, packets and errors of interfaces, from /proc/net/dev.

use flatbuffers::FlatBufferBuilder;

use super::text;
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{InterfaceCounters, Network, NetworkArgs};

/// The agent's own network namespace.
const FILE: &str = "proc/net/dev";
/// The namespace of the host's first process: /proc/net is a link into the reader's own process, which another /proc
/// does not have.
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/dev";
/// Most interfaces in one sample.
const INTERFACES_MAX: usize = 4096;
/// Lines of headings in front.
const HEADINGS: usize = 2;

pub(super) const ENTRY: Entry = Entry {
    name: "network",
    root: "flatcap.host.Network",
    schema: include_bytes!("../../../generated/host/network.bfbs"),
    files: &[FILE],
    refresh: "at each packet",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Sampler>, Unavailable> {
    let is_elsewhere = !opening.host.is_own() && opening.host.path(FILE_OF_ANOTHER_ROOT).exists();
    let path = if is_elsewhere { FILE_OF_ANOTHER_ROOT } else { FILE };
    Ok(Box::new(NetworkSampler { path, file: host_file(opening.host, path, "")?, interfaces: Vec::new() }))
}

#[derive(Debug)]
struct NetworkSampler {
    path: &'static str,
    file: HostFile,
    interfaces: Vec<InterfaceCounters>, // reused
}

impl Sampler for NetworkSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let is_whole = parse(self.file.content(), &mut self.interfaces);
        let interfaces = builder.create_vector(&self.interfaces);
        let root = Network::create(builder, &NetworkArgs { interfaces: Some(interfaces) });
        builder.finish_minimal(root);
        Shortfall::UNREADABLE.unless(is_whole)
    }
}

fn parse(content: &[u8], interfaces: &mut Vec<InterfaceCounters>) -> bool {
    interfaces.clear();
    let (lines, cut) = text::whole_lines(content);
    let mut is_whole = cut.is_none();
    for line in lines.skip(HEADINGS) {
        match interface(line).filter(|_| interfaces.len() < INTERFACES_MAX) {
            Some((interface, all)) => {
                interfaces.push(interface);
                is_whole &= all;
            }
            None => is_whole = false,
        }
    }
    is_whole
}

/// One interface, and whether all its counters were there; none without a name that fits.
fn interface(line: &[u8]) -> Option<(InterfaceCounters, bool)> {
    // An alias has a colon in its name, so the last one ends the name.
    let colon = line.iter().rposition(|byte| *byte == b':')?;
    let (name, rest) = line.split_at(colon);
    let name = text::name::<16>(name.trim_ascii())?;
    let (values, lacks) = text::numbers::<16>(text::fields(rest.strip_prefix(b":")?));
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
    ] = values;
    let [tx_bytes, tx_packets, tx_errors, tx_dropped, tx_fifo, tx_collisions, tx_carrier, tx_compressed] = tx;
    let interface = InterfaceCounters::new(
        &name,
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
    );
    Some((interface, lacks.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled};
    use crate::sampling::sources::text::ABSENT;

    const TEXT: &[u8] = b"Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
        eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";

    fn name(interface: &InterfaceCounters) -> String {
        interface.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    // Goal: every value is in its place, with and without a space behind the name. Method: counters equal to their place.
    #[test]
    fn every_value_is_in_its_place() {
        let mut interfaces = Vec::new();
        assert!(parse(TEXT, &mut interfaces));
        assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), ["lo", "eth0"]);
        let eth0 = interfaces[1];
        assert_eq!(
            (eth0.rx_bytes(), eth0.rx_multicast(), eth0.tx_bytes(), eth0.tx_compressed()),
            (1, 8, 9, 16)
        );
    }

    // Goal: damaged text never panics and a cut file is never called whole. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let mut interfaces = Vec::new();
            parse(text, &mut interfaces) && interfaces.len() == 2
        });
        let mut interfaces = Vec::new();
        assert!(!parse(b"\na\nb\nlo: 1 2\n", &mut interfaces));
        assert_eq!(interfaces[0].rx_errors(), ABSENT);
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
        if let Some(text) = fixture(FILE) {
            let mut interfaces = Vec::new();
            assert!(parse(&text, &mut interfaces));
            let text = String::from_utf8(text).unwrap();
            assert_eq!(interfaces.iter().map(name).collect::<Vec<_>>(), names(&text));
        }
    }
}
