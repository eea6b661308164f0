//! `interrupts`: interrupts by line and core, from /proc/interrupts.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{InterruptLine, Interrupts, InterruptsArgs};

use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/interrupts";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;
/// Maximum number of lines in one sample.
const LINES_MAX: usize = 8192;
/// Maximum number of counts in one sample. A host with 1,152 cores has 1,056 lines.
const COUNTS_MAX: usize = (14 << 20) / 8;
// A sample with the maximum number of counts fits into a frame of the default `frame_max`.
const _: () =
    assert!((COUNTS_MAX + CORES_MAX) * 8 + LINES_MAX * size_of::<InterruptLine>() + (64 << 10) <= 16 << 20);
/// Maximum length of a description in the schema, in bytes, including its terminating zero byte.
const DESCRIPTION_BYTES: usize = 96;

/// `include` and `exclude` match a numbered line by its devices (`eth0-Tx-Rx-0`), or by its number
/// if it has no devices. `include` and `exclude` match any line without a number by its name
/// (`NMI`).
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "interrupts",
    about: "Interrupts by line and core, with the lines' names.",
    root: "flatcap.host.Interrupts",
    schema: include_bytes!("../../../../generated/host/interrupts.bfbs"),
    files: &[FILE],
    // A sample is expensive, since it takes 50 us. The total number of interrupts is also in cpu.
    period: Duration::from_secs(1),
    refresh: "at each interrupt",
    selects: "devices, such as eth0-rx-0, or names of lines, such as LOC",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = host_file(context.host, FILE, "")?;
    let table =
        InterruptTable { filter: CachedNameFilter::new(context.selection()), ..InterruptTable::default() };
    Ok(OpenedSampler::built(InterruptsSampler { file, table }))
}

#[derive(Debug)]
struct InterruptsSampler {
    file: HostFile,
    table: InterruptTable, // reused
}

/// Parsed content of the file.
#[derive(Debug, Default)]
struct InterruptTable {
    cores: Vec<u64>,
    lines: Vec<InterruptLine>,
    counts: Vec<u64>, // each lines[i].offset + lines[i].length <= counts.len()
    filter: CachedNameFilter,
}

impl Sampler for InterruptsSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = self.table.parse(self.file.content());
        let incomplete = odd_text::in_file(incomplete, self.file.content(), format_args!("/{FILE}"));
        let counts = builder.create_vector(&self.table.counts);
        let lines = builder.create_vector(&self.table.lines);
        let cores = builder.create_vector(&self.table.cores);
        let root = Interrupts::create(
            builder,
            &InterruptsArgs { cores: Some(cores), lines: Some(lines), counts: Some(counts) },
        );
        builder.finish_minimal(root);
        incomplete
    }
}

impl InterruptTable {
    /// Parses all values present, and returns the reasons why others are missing.
    fn parse(&mut self, content: &[u8]) -> Incomplete {
        self.lines.clear();
        self.counts.clear();
        let (mut lines, cut) = text::whole_lines(content);
        let mut incomplete = cut | self.columns(lines.next().unwrap_or_default());
        if self.cores.is_empty() {
            return incomplete | Incomplete::CUT;
        }
        let mut place = 0;
        for line in lines {
            // On some architectures, the file ends with a line of spaces.
            if line.iter().all(|byte| *byte == b' ') {
                continue;
            }
            incomplete |= self.push(place, line);
            place += 1;
        }
        incomplete | Incomplete::CUT.unless(place > 0)
    }

    /// Parses the numbers of the cores. If one of these numbers is invalid, all of them are
    /// discarded.
    fn columns(&mut self, line: &[u8]) -> Incomplete {
        self.cores.clear();
        for name in text::fields(line) {
            let core = name.strip_prefix(b"CPU").and_then(text::number);
            let Some(core) = core.filter(|_| self.cores.len() < CORES_MAX) else {
                self.cores.clear();
                return if core.is_some() { Incomplete::TOO_MANY } else { odd_text::unreadable(name) };
            };
            self.cores.push(core);
        }
        Incomplete::NONE
    }

    /// Adds one line, which is line number `place` of the file.
    fn push(&mut self, place: usize, line: &[u8]) -> Incomplete {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return odd_text::unreadable(line);
        };
        let (name, rest) = line.split_at(colon);
        let name = name.trim_ascii_start();
        let Some(fixed_name) = text::name(name).filter(|_| !name.is_empty()) else {
            return odd_text::unreadable(line);
        };
        if self.lines.len() == LINES_MAX || self.counts.len() + self.cores.len() > COUNTS_MAX {
            return Incomplete::TOO_MANY;
        }
        let mut incomplete = Incomplete::NONE;
        let offset = self.counts.len();
        let description = self.counts(rest.get(1..).unwrap_or_default(), &mut incomplete);
        let is_numbered = name.iter().all(u8::is_ascii_digit);
        let devices = if is_numbered { devices(description) } else { None };
        if !self.filter.matches(place, devices.unwrap_or(name)) {
            self.counts.truncate(offset);
            return Incomplete::NONE;
        }
        let length = self.counts.len() - offset;
        let is_per_core = length == self.cores.len() && !(description.is_empty() && length == 1);
        // Some lines only name a device, as in `FIQ:  usb_fiq`. A line that has numbers elsewhere
        // has unreadable counts.
        let is_number = |field: &[u8]| field.iter().all(u8::is_ascii_digit);
        let is_total = [&b"ERR"[..], b"MIS"].iter().any(|total| name.eq_ignore_ascii_case(total));
        let has_none = length == 0 && !is_total && !text::fields(description).any(is_number);
        let has_none = has_none && !description.is_empty();
        if !is_per_core && !has_none && (length != 1 || !description.is_empty()) {
            // If there are fewer counts than cores, they cannot be assigned to cores.
            self.counts.truncate(offset);
            self.counts.resize(offset + self.cores.len(), ABSENT);
            odd_text::note(line, 0);
            incomplete |= Incomplete::CUT;
        }
        self.lines.push(InterruptLine::new(
            &fixed_name,
            &single_spaced(description),
            offset as u64,
            (self.counts.len() - offset) as u64,
            u64::from(is_per_core || self.counts.len() - offset > 1),
        ));
        incomplete
    }

    /// Appends the counts at the start of a line, which are at most one per core. Returns the text
    /// after the counts.
    fn counts<'a>(&mut self, mut rest: &'a [u8], incomplete: &mut Incomplete) -> &'a [u8] {
        for _ in 0..self.cores.len() {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            let (field, tail) = rest.split_at(end);
            // A word of digits is a count, even if the count is too large to be read.
            if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
                break;
            }
            self.counts.push(text::value(Some(field), incomplete));
            rest = tail;
        }
        rest.trim_ascii()
    }
}

/// Returns the devices of a numbered line, that is, the part of its description after the last two
/// consecutive spaces.
fn devices(description: &[u8]) -> Option<&[u8]> {
    let at = description.windows(2).rposition(|two| two == b"  ")?;
    description.get(at + 2..)
}

/// Replaces runs of spaces by one space and truncates the text to fit. The last byte is zero.
fn single_spaced(text: &[u8]) -> [u8; DESCRIPTION_BYTES] {
    let mut fixed = [0; DESCRIPTION_BYTES];
    let mut places = fixed.iter_mut().take(DESCRIPTION_BYTES - 1);
    let mut last = b' ';
    for byte in text.iter().copied().filter(|byte| *byte != 0) {
        if byte == b' ' && last == b' ' {
            continue;
        }
        let Some(place) = places.next() else { break };
        *place = byte;
        last = byte;
    }
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{
        assert_damage_is_marked, captured_host, open_sampler, sample_this_host, sample_under,
    };

    const TEXT: &[u8] = b"           CPU0       CPU2       \n  0:         18          1  IO-APIC   2-edge      timer\n \
        25:         3          4  PCI-MSI 512000-edge      ehci_hcd:usb1, mmc0\nNMI:   5    6   Non-maskable interrupts\n\
        IPI0:2768808080 2844211768       Rescheduling interrupts\nERR:          7\n 77:         8          9\n";

    fn words(bytes: impl IntoIterator<Item = u8>) -> String {
        bytes.into_iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    /// Name, description and counts of each line, and whether the counts are per core.
    type InterruptRows = Vec<(String, String, Vec<u64>, bool)>;

    fn rows(table: &InterruptTable) -> InterruptRows {
        let lines = table.lines.iter();
        lines
            .map(|line| {
                let from = usize::try_from(line.offset()).unwrap();
                let counts = &table.counts[from..from + usize::try_from(line.length()).unwrap()];
                let is_per_core = line.is_per_core() == 1;
                (words(line.name().iter()), words(line.description().iter()), counts.to_vec(), is_per_core)
            })
            .collect()
    }

    fn parsed(text: &[u8]) -> (InterruptTable, Incomplete) {
        let mut table = InterruptTable::default();
        let incomplete = table.parse(text);
        (table, incomplete)
    }

    /// Reads the same values with a naive parser, which splits lines into words and takes the
    /// counts first.
    fn naive(text: &str) -> (Vec<u64>, InterruptRows) {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let head = lines.next().unwrap();
        let cores: Vec<u64> = head.split_whitespace().map(|name| name[3..].parse().unwrap()).collect();
        let rows = lines.map(|line| {
            let (name, rest) = line.split_once(':').unwrap();
            let words: Vec<&str> = rest.split_whitespace().collect();
            let length = if words.len() < cores.len() { 1 } else { cores.len() };
            let counts = words[..length].iter().map(|word| word.parse().unwrap()).collect();
            let description: String = words[length..].join(" ").chars().take(DESCRIPTION_BYTES - 1).collect();
            (name.trim().to_owned(), description, counts, length == cores.len())
        });
        let rows = rows.collect();
        (cores, rows)
    }

    // Proves that every value ends up in its field, for lines with devices, with words, with one
    // number and with no number.
    #[test]
    fn every_value_is_in_its_place() {
        let (table, incomplete) = parsed(TEXT);
        assert_eq!(incomplete, Incomplete::NONE);
        assert_eq!(table.cores, [0, 2]);
        let row = |name: &str, description: &str, counts: &[u64], is_per_core| {
            (name.to_owned(), description.to_owned(), counts.to_vec(), is_per_core)
        };
        let expected = [
            row("0", "IO-APIC 2-edge timer", &[18, 1], true),
            row("25", "PCI-MSI 512000-edge ehci_hcd:usb1, mmc0", &[3, 4], true),
            row("NMI", "Non-maskable interrupts", &[5, 6], true),
            row("IPI0", "Rescheduling interrupts", &[2_768_808_080, 2_844_211_768], true),
            row("ERR", "", &[7], false),
            row("77", "", &[8, 9], true),
        ];
        assert_eq!(rows(&table), expected);
    }

    // Proves that damaged text never causes a panic, that offsets stay within the counts, and that
    // a truncated file is always marked.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let (table, incomplete) = parsed(text);
            let rows = rows(&table);
            incomplete.is_none() && rows.len() == 6
        });
    }

    // Proves that counts that cannot be assigned to cores are absent and marked.
    #[test]
    fn counts_without_a_core_are_absent() {
        let (table, incomplete) = parsed(b" CPU0 CPU1 CPU2\n 1: 5 6  IO-APIC 2-edge timer\n");
        assert_eq!((rows(&table)[0].2.clone(), incomplete), (vec![ABSENT; 3], Incomplete::CUT));
        let (table, incomplete) = parsed(b" CPU0 CPU1 CPU2\n 1: 5 6\nERR: 1\n");
        assert_eq!((rows(&table)[0].2.clone(), incomplete), (vec![ABSENT; 3], Incomplete::CUT));
        let (table, incomplete) = parsed(b" CPU0 CPU1\n 1: 5 99999999999999999999  IO-APIC timer\n");
        assert_eq!((rows(&table)[0].2.clone(), incomplete), (vec![5, ABSENT], Incomplete::UNREADABLE));
        let (table, incomplete) = parsed(b" CPU0 CPU\n 1: 5 6\n");
        assert!(table.lines.is_empty() && incomplete == Incomplete::UNREADABLE | Incomplete::CUT);
        let (table, incomplete) = parsed(b" CPU0 CPU1\n : 5 6\n no name\n 2: 7 8\n");
        assert_eq!((rows(&table).len(), incomplete), (1, Incomplete::UNREADABLE));
    }

    // Proves that a line that only names a device does not make the sample incomplete.
    #[test]
    fn a_line_without_counts_is_complete() {
        let text = b"           CPU0       CPU1\n 17: 5 6 timer\nFIQ:              usb_fiq\nIPI0: 1 2 Timer\nErr: 0\n";
        let (table, incomplete) = parsed(text);
        assert_eq!((table.counts.as_slice(), incomplete), (&[5, 6, 1, 2, 0][..], Incomplete::NONE));
        let lengths: Vec<u64> = table.lines.iter().map(InterruptLine::length).collect();
        assert_eq!(lengths, [2, 0, 2, 1]);
    }

    // Proves that all lines of a host with 1,152 cores are recorded.
    #[test]
    fn a_host_of_many_cores_fits() {
        let header: Vec<String> = (0..1152).map(|core| format!(" CPU{core}")).collect();
        let counts = " 1".repeat(1152);
        let lines: Vec<String> = (0..1050).map(|line| format!("{line}:{counts} edge\n")).collect();
        let (header, lines) = (header.concat(), lines.concat());
        let (table, incomplete) = parsed(format!("{header}\n{lines}LOC:{counts} Local\n").as_bytes());
        assert_eq!((table.lines.len(), table.counts.len()), (1051, 1051 * 1152));
        assert_eq!(incomplete, Incomplete::NONE);
    }

    // Proves that patterns match devices and names, and that offsets remain correct.
    #[test]
    fn patterns_leave_lines_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let keys = "include = [\"ehci_hcd:*\", \"ERR\", \"7?\", \"timer\"]\nexclude = [\"timer\", \"NMI\"]";
        let (payload, incomplete) = sample_under(&SPEC, keys, folder.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let sample = flatbuffers::root::<Interrupts<'_>>(&payload).unwrap();
        let offsets = sample.lines().iter().map(|line| (words(line.name().iter()), line.offset()));
        assert_eq!(offsets.collect::<Vec<_>>(), [("25".into(), 0), ("ERR".into(), 2), ("77".into(), 3)]);
        assert_eq!(sample.counts().iter().collect::<Vec<_>>(), [3, 4, 7, 8, 9]);
    }

    // Proves that added and removed cores and lines do not mark the sample as incomplete.
    #[test]
    fn cores_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        let one =
            b"  CPU2\n  0:  1  IO-APIC   2-edge      timer\n  5:  2  IO-APIC   5-edge      new\nERR: 3\n";
        for (text, cores, counts) in [
            (TEXT, vec![0, 2], vec![18, 1, 3, 4, 5, 6, 2_768_808_080, 2_844_211_768, 7, 8, 9]),
            (&one[..], vec![2], vec![1, 2, 3]),
        ] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
            let sample = flatbuffers::root::<Interrupts<'_>>(builder.finished_data()).unwrap();
            assert_eq!(sample.cores().iter().collect::<Vec<_>>(), cores);
            assert_eq!(sample.counts().iter().collect::<Vec<_>>(), counts);
            let whole_host = sample.lines().iter().filter(|line| line.is_per_core() == 0);
            assert_eq!(whole_host.map(|line| words(line.name().iter())).collect::<Vec<_>>(), ["ERR"]);
        }
    }

    // Proves that a large host is read completely, with 512 cores and 900 lines.
    #[test]
    fn many_cores_are_read() {
        let (cores, lines) = (512_u64, 900_u64);
        let names: Vec<String> = (0..cores).map(|core| format!("CPU{core}")).collect();
        let mut text = format!("      {}", names.join("       "));
        for line in 0..lines {
            let counts: Vec<String> = (line..line + cores).map(|count| format!("{count:>4}")).collect();
            let line = [
                format!("\n{line:>4}: "),
                counts.join(" "),
                format!("  IR-PCI-MSI {line}-edge      eth{line}"),
            ];
            text.extend(line);
        }
        let (table, incomplete) = parsed((text + "\n").as_bytes());
        assert_eq!(incomplete, Incomplete::NONE);
        assert_eq!((table.lines.len(), table.counts.len()), (900, 900 * 512));
        assert_eq!(table.counts.last(), Some(&(899 + 511)));
    }

    // Proves agreement with a naive parser for files of this host and files captured from other
    // hosts. Live counters may grow between two reads.
    #[test]
    fn agrees_with_a_naive_reading() {
        let live = std::fs::read_to_string("/proc/interrupts").unwrap();
        let captured =
            [("procfs", FILE), ("node-exporter", FILE), ("node-exporter", "proc/interrupts_aarch64")];
        let captured = captured.into_iter().filter_map(|(archive, path)| {
            let host = captured_host(archive, &[path])?;
            Some(std::fs::read_to_string(host.path().join(path)).unwrap())
        });
        for text in captured.chain([live.clone()]) {
            let (table, incomplete) = parsed(text.as_bytes());
            assert_eq!(incomplete, Incomplete::NONE);
            assert_eq!((table.cores.clone(), rows(&table)), naive(&text));
        }
        let payload = sample_this_host(&SPEC);
        let sample = flatbuffers::root::<Interrupts<'_>>(&payload).unwrap();
        let (cores, rows) = naive(&live);
        assert_eq!(sample.cores().iter().collect::<Vec<_>>(), cores);
        let before: Vec<u64> = rows.into_iter().flat_map(|row| row.2).collect();
        assert_eq!(sample.counts().len(), before.len());
        assert!(sample.counts().iter().zip(before).all(|(ours, before)| ours >= before));
    }
}
