//! `buddy`: free blocks of memory by zone and order, from /proc/buddyinfo.

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Buddy, BuddyArgs, BuddyZone};

const FILE: &str = "proc/buddyinfo";
/// Most zones in one sample: 1,024 nodes with four each.
const ZONES_MAX: usize = 4096;
/// Most orders of a zone; those beyond are left out.
const ORDERS_MAX: usize = 16;

/// Include and exclude speak of zones, such as `Normal`.
pub(super) const ENTRY: Entry = Entry {
    name: "buddy",
    root: "flatcap.host.Buddy",
    schema: include_bytes!("../../../generated/host/buddy.bfbs"),
    files: &[FILE],
    refresh: "whenever memory is taken or given back",
    selects: "zones, such as Normal",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let file = host_file(opening.host, FILE, "")?;
    let chosen = Chosen::new(opening.selection());
    Ok(Opened::built(BuddySampler { file, chosen, orders: 0, zones: Vec::new() }))
}

#[derive(Debug)]
struct BuddySampler {
    file: HostFile,
    chosen: Chosen,
    orders: usize,         // of this kernel, as far as is known
    zones: Vec<BuddyZone>, // reused
}

impl Sampler for BuddySampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let Self { file, chosen, orders, zones } = self;
        let shortfall = parse(file.content(), chosen, orders, zones);
        let zones = builder.create_vector(zones);
        let root = Buddy::create(builder, &BuddyArgs { zones: Some(zones) });
        builder.finish_minimal(root);
        shortfall
    }
}

/// `Node 0, zone   Normal   4381   1093 ...`, one count an order.
fn parse(content: &[u8], chosen: &mut Chosen, orders: &mut usize, zones: &mut Vec<BuddyZone>) -> Shortfall {
    zones.clear();
    let (lines, mut shortfall) = text::whole_lines(content);
    for (at, line) in lines.enumerate() {
        let mut fields = text::fields(line);
        let (words, node) = (fields.next(), fields.next());
        let (Some(b"Node"), Some(b"zone"), Some(zone)) = (words, fields.next(), fields.next()) else {
            shortfall |= Shortfall::UNREADABLE;
            continue;
        };
        if !chosen.wants(at, zone) {
            continue;
        }
        let Some(zone) = text::name::<16>(zone) else {
            shortfall |= Shortfall::UNREADABLE;
            continue;
        };
        if zones.len() == ZONES_MAX {
            shortfall |= Shortfall::TOO_MANY;
            break;
        }
        let node = text::value(node.map(|node| node.strip_suffix(b",").unwrap_or_default()), &mut shortfall);
        let mut free = [ABSENT; ORDERS_MAX];
        let mut given = 0;
        for field in fields {
            match free.get_mut(given) {
                Some(place) => *place = text::value(Some(field), &mut shortfall),
                None => shortfall |= Shortfall::TOO_MANY,
            }
            given += 1;
        }
        // All zones have the same orders.
        *orders = given.max(*orders);
        shortfall |= Shortfall::CUT.unless(given == *orders && given > 0);
        zones.push(BuddyZone::new(node, &zone, &free));
    }
    shortfall
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled, sampled_under};

    const TEXT: &[u8] =
        b"Node 0, zone      DMA      1      2      3 \nNode 1, zone   Normal   4381   1093    185 \n";

    fn name(zone: &BuddyZone) -> String {
        zone.zone().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<BuddyZone>, Shortfall) {
        let mut zones = Vec::new();
        let shortfall = parse(text, &mut Chosen::default(), &mut 0, &mut zones);
        (zones, shortfall)
    }

    // Goal: every value is in its place. Method: a file with all values different.
    #[test]
    fn every_value_is_in_its_place() {
        let (zones, shortfall) = parsed(TEXT);
        assert!(shortfall.is_none());
        let seen: Vec<_> = zones.iter().map(|zone| (zone.node(), name(zone))).collect();
        assert_eq!(seen, [(0, "DMA".to_owned()), (1, "Normal".to_owned())]);
        let free = zones[1].free();
        assert_eq!((free.get(0), free.get(1), free.get(2), free.get(3)), (4381, 1093, 185, ABSENT));
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let (zones, shortfall) = parsed(text);
            shortfall.is_none() && zones.len() == 2
        });
        assert_eq!(parsed(b"Node 0, zone DMA 1 2\nNode 0, zone Normal 1\n").1, Shortfall::CUT);
        assert_eq!(parsed(b"Node 0, zone DMA\n").1, Shortfall::CUT);
        let (zones, shortfall) = parsed(b"Node 0 zone DMA 1 x\n");
        assert_eq!((zones[0].node(), zones[0].free().get(1)), (ABSENT, ABSENT));
        assert_eq!(shortfall, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"Nodes\n").1, Shortfall::UNREADABLE);
        let orders = "7 ".repeat(ORDERS_MAX + 1);
        assert_eq!(parsed(format!("Node 0, zone DMA {orders}\n").as_bytes()).1, Shortfall::TOO_MANY);
        let (zones, shortfall) = parsed(&b"Node 0, zone DMA 1\n".repeat(ZONES_MAX + 1));
        assert_eq!((zones.len(), shortfall), (ZONES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: zones are chosen by name. Method: a tree.
    #[test]
    fn zones_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let (payload, shortfall) = sampled_under(&ENTRY, "exclude = [\"DMA*\"]", folder.path());
        let buddy = flatbuffers::root::<Buddy<'_>>(&payload).unwrap();
        assert_eq!(buddy.zones().iter().map(name).collect::<Vec<_>>(), ["Normal"]);
        assert!(shortfall.is_none());
    }

    // Goal: live and captured hosts are read whole, zone by zone. Method: a naive parser beside ours.
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
        let payload = sampled(&ENTRY);
        let buddy = flatbuffers::root::<Buddy<'_>>(&payload).unwrap();
        let live = std::fs::read_to_string("/proc/buddyinfo").unwrap();
        assert_eq!(buddy.zones().iter().map(seen).collect::<Vec<_>>(), naive(&live));
        if let Some(text) = fixture("./proc/buddyinfo") {
            let (zones, shortfall) = parsed(&text);
            assert!(shortfall.is_none());
            assert_eq!(
                zones.iter().map(seen).collect::<Vec<_>>(),
                naive(std::str::from_utf8(&text).unwrap())
            );
            assert_eq!((zones[2].free().get(0), zones[1].free().get(5)), (4381, 45));
        }
    }
}
