//! `buddy`: free blocks of memory by zone and order, from /proc/buddyinfo.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{Buddy, BuddyArgs, BuddyZone};

use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/buddyinfo";
/// Maximum number of zones in one sample: 1,024 nodes with four zones each.
const ZONES_MAX: usize = 4096;
/// Maximum number of orders (block sizes) of a zone. Higher orders are skipped.
const ORDERS_MAX: usize = 16;

/// `include` and `exclude` match zones, such as `Normal`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "buddy",
    about: "Free memory blocks by zone and order.",
    root: "flatcap.host.Buddy",
    schema: include_bytes!("../../../../generated/host/buddy.bfbs"),
    files: &[FILE],
    // Fragmentation develops over minutes.
    period: Duration::from_secs(1),
    refresh: "whenever memory is allocated or freed",
    selects: "zones, such as Normal",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = host_file(context.host, FILE, "")?;
    let filter = CachedNameFilter::new(context.selection());
    Ok(OpenedSampler::built(BuddySampler { file, filter, orders: 0, zones: Vec::new() }))
}

#[derive(Debug)]
struct BuddySampler {
    file: HostFile,
    filter: CachedNameFilter,
    orders: usize,         // largest number of orders seen on this kernel
    zones: Vec<BuddyZone>, // reused
}

impl Sampler for BuddySampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { file, filter, orders, zones } = self;
        let incomplete = parse(file.content(), filter, orders, zones);
        let incomplete = odd_text::in_file(incomplete, file.content(), format_args!("/{FILE}"));
        let zones = builder.create_vector(zones);
        let root = Buddy::create(builder, &BuddyArgs { zones: Some(zones) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Parses lines of the form `Node 0, zone Normal 4381 1093 ...`, with one count per order.
fn parse(
    content: &[u8],
    filter: &mut CachedNameFilter,
    orders: &mut usize,
    zones: &mut Vec<BuddyZone>,
) -> Incomplete {
    zones.clear();
    let (lines, mut incomplete) = text::whole_lines(content);
    for (at, line) in lines.enumerate() {
        let mut fields = text::fields(line);
        let (words, node) = (fields.next(), fields.next());
        let (Some(b"Node"), Some(b"zone"), Some(zone)) = (words, fields.next(), fields.next()) else {
            incomplete |= odd_text::unreadable(line);
            continue;
        };
        if !filter.matches(at, zone) {
            continue;
        }
        let Some(zone) = text::name::<16>(zone) else {
            incomplete |= odd_text::unreadable(line);
            continue;
        };
        if zones.len() == ZONES_MAX {
            incomplete |= Incomplete::TOO_MANY;
            break;
        }
        let node = text::value(node.map(|node| node.strip_suffix(b",").unwrap_or_default()), &mut incomplete);
        let mut free = [ABSENT; ORDERS_MAX];
        let mut order_count = 0;
        for field in fields {
            match free.get_mut(order_count) {
                Some(place) => *place = text::value(Some(field), &mut incomplete),
                None => incomplete |= Incomplete::TOO_MANY,
            }
            order_count += 1;
        }
        // All zones have the same number of orders, so a line with fewer orders than a previous
        // line was truncated.
        *orders = order_count.max(*orders);
        incomplete |= Incomplete::CUT.unless(order_count == *orders && order_count > 0);
        zones.push(BuddyZone::new(node, &zone, &free));
    }
    incomplete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_this_host, sample_under};

    const TEXT: &[u8] =
        b"Node 0, zone      DMA      1      2      3 \nNode 1, zone   Normal   4381   1093    185 \n";

    fn name(zone: &BuddyZone) -> String {
        zone.zone().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<BuddyZone>, Incomplete) {
        let mut zones = Vec::new();
        let incomplete = parse(text, &mut CachedNameFilter::default(), &mut 0, &mut zones);
        (zones, incomplete)
    }

    // Proves that every value is in the right field.
    #[test]
    fn every_value_is_in_its_place() {
        let (zones, incomplete) = parsed(TEXT);
        assert!(incomplete.is_none());
        let seen: Vec<_> = zones.iter().map(|zone| (zone.node(), name(zone))).collect();
        assert_eq!(seen, [(0, "DMA".to_owned()), (1, "Normal".to_owned())]);
        let free = zones[1].free();
        assert_eq!((free.get(0), free.get(1), free.get(2), free.get(3)), (4381, 1093, 185, ABSENT));
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (zones, incomplete) = parsed(text);
            incomplete.is_none() && zones.len() == 2
        });
        assert_eq!(parsed(b"Node 0, zone DMA 1 2\nNode 0, zone Normal 1\n").1, Incomplete::CUT);
        assert_eq!(parsed(b"Node 0, zone DMA\n").1, Incomplete::CUT);
        let (zones, incomplete) = parsed(b"Node 0 zone DMA 1 x\n");
        assert_eq!((zones[0].node(), zones[0].free().get(1)), (ABSENT, ABSENT));
        assert_eq!(incomplete, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"Nodes\n").1, Incomplete::UNREADABLE);
        let orders = "7 ".repeat(ORDERS_MAX + 1);
        assert_eq!(parsed(format!("Node 0, zone DMA {orders}\n").as_bytes()).1, Incomplete::TOO_MANY);
        let (zones, incomplete) = parsed(&b"Node 0, zone DMA 1\n".repeat(ZONES_MAX + 1));
        assert_eq!((zones.len(), incomplete), (ZONES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that zones are selected by name.
    #[test]
    fn zones_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "exclude = [\"DMA*\"]", folder.path());
        let buddy = flatbuffers::root::<Buddy<'_>>(&payload).unwrap();
        assert_eq!(buddy.zones().iter().map(name).collect::<Vec<_>>(), ["Normal"]);
        assert!(incomplete.is_none());
    }

    // Proves that all zones of this host and of captured hosts are read, and that a naive parser
    // finds the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let naive = |text: &str| -> Vec<(u64, String, usize)> {
            let zone = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                (words[1].trim_end_matches(',').parse().unwrap(), words[3].to_owned(), words.len() - 4)
            };
            text.lines().map(zone).collect()
        };
        let orders = |zone: &BuddyZone| zone.free().iter().filter(|count| *count != ABSENT).count();
        let seen = |zone: &BuddyZone| (zone.node(), name(zone), orders(zone));
        let payload = sample_this_host(&SPEC);
        let buddy = flatbuffers::root::<Buddy<'_>>(&payload).unwrap();
        let live = std::fs::read_to_string("/proc/buddyinfo").unwrap();
        assert_eq!(buddy.zones().iter().map(seen).collect::<Vec<_>>(), naive(&live));
        if let Some(text) = fixture("./proc/buddyinfo") {
            let (zones, incomplete) = parsed(&text);
            assert!(incomplete.is_none());
            assert_eq!(
                zones.iter().map(seen).collect::<Vec<_>>(),
                naive(std::str::from_utf8(&text).unwrap())
            );
            assert_eq!((zones[2].free().get(0), zones[1].free().get(5)), (4381, 45));
        }
    }
}
