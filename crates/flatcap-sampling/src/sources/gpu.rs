//! `gpu`: utilization, memory, power and temperature of graphics cards, from amdgpu's files and
//! NVIDIA's library.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::gpu_cards::{Card, CardIdentity, CardMetrics, Cards};
use flatcap_os::host::{HostDirectory, HostFile};
use flatcap_os::nvidia::nvidia_cards;
use flatcap_schemas::host::{Gpu, GpuArgs, GpuDriver, GpuState};

use super::devices;
use super::guarded_reads::{BlockingRead, GuardedElement, GuardedReads};
use super::text::{self, ABSENT};
use super::text_values::ABSENT_INTEGER;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const DRM: &str = "sys/class/drm";
/// File that exists while NVIDIA's driver is loaded.
const NVIDIA: &str = "proc/driver/nvidia/version";
/// Name by which log lines refer to the list of NVIDIA's cards.
const NVIDIA_LIST: &str = "the list of NVIDIA cards";
/// Maximum number of cards per driver.
const CARDS_MAX: usize = 64;
/// Content of `power/runtime_status` of a suspended card.
const SUSPENDED: &[u8] = b"suspended\n";
/// Error number of a device that is gone.
const NO_DEVICE: i32 = 19;

/// `include` and `exclude` match bus addresses, such as 0000:09:00.0. A card whose driver does not
/// answer has no values, and is tried again with growing intervals.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "gpu",
    about: "Use, memory, power and temperature of graphics processors.",
    root: "flatcap.host.Gpu",
    schema: include_bytes!("../../../../generated/host/gpu.bfbs"),
    files: &[DRM, NVIDIA],
    // Drivers refresh these values a few times a second.
    period: Duration::from_secs(1),
    may_block: true,
    refresh: "a few times a second, as the driver polls",
    selects: "bus addresses, such as 0000:09:00.0",
    hint: ": no amdgpu card and no NVIDIA driver (/proc/driver/nvidia/version)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let nvidia: Option<Result<Box<dyn Cards>, String>> =
        context.host.open(NVIDIA).ok().map(|_| nvidia_cards());
    let (nvidia, library_error) = match nvidia {
        Some(Ok(cards)) => (Some(cards), None),
        Some(Err(reason)) => (None, Some(reason)),
        None => (None, None),
    };
    let drm = context.host.directory(DRM);
    let (drm, directory_error) = match drm {
        Ok(drm) => (Some(drm), None),
        Err(error) => (None, Some(error)),
    };
    let mut sampler = GpuSampler::new(drm, nvidia, context.selection());
    sampler.list_amd();
    if sampler.amd.is_empty() && sampler.nvidia.is_none() {
        if let Some(reason) = library_error {
            let error = io::Error::new(
                ErrorKind::NotFound,
                format!("NVIDIA's driver is loaded but its library is not: {reason}"),
            );
            return Err(Unavailable::of(error));
        }
        let error =
            directory_error.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, "no supported card"));
        return Err(Unavailable { file: DRM, error, hint: SPEC.hint });
    }
    if let Some(reason) = library_error {
        tracing::info!(
            source = "gpu",
            "NVIDIA's driver is loaded but its library is not: {reason}; its cards are skipped"
        );
    }
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct GpuSampler {
    drm: Option<HostDirectory>,
    selection: NameFilter,
    reads: GuardedReads<GpuRead>,
    amd: Vec<GuardedCard>,    // in the order of their numbers
    present: Vec<ListedCard>, // all cards; reused
    ignored: Vec<ListedCard>, // cards that are not amdgpu's, or not wanted
    nvidia: Option<NvidiaList>,
    nvidia_cards: Vec<GuardedCard>, // the wanted cards
    listing_incomplete: Incomplete,
    rows: Vec<GpuState>, // reused
    cpu_ns: u64,         // CPU time of the last read in other threads
}

/// A card whose driver may hang. If the driver does not answer, the row has no values, and other
/// cards are still read.
#[derive(Debug)]
struct GuardedCard {
    listed: ListedCard,
    row: GpuState, // the row without the values
    card: GuardedElement<GpuRead>,
}

/// The list of NVIDIA's cards.
#[derive(Debug)]
struct NvidiaList {
    list: GuardedElement<GpuRead>,
}

/// A read that may hang while other reads continue.
#[derive(Debug)]
enum GpuRead {
    Amd(AmdCard),
    NvidiaList { cards: Box<dyn Cards>, listed: Option<Vec<(CardIdentity, Box<dyn Card>)>> },
    Nvidia { card: Box<dyn Card>, sample: CardMetrics },
}

/// A listed card. A later card with the same number has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ListedCard {
    number: u32,
    inode: u64,
}

/// A card of amdgpu with its open files. The files still belong to this card even if another card
/// gets its number.
#[derive(Debug)]
struct AmdCard {
    status: Option<HostFile>,
    files: Vec<(Figure, HostFile, FigureRead)>,
    is_suspended: bool,
    is_gone: bool,
}

/// Result of reading a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FigureRead {
    Done,
    /// The file was skipped, because reading it would wake the card.
    Skipped,
    Failed(Incomplete),
}

/// A kind of value of a card.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    Busy,
    MemoryBusy,
    MemoryUsed,
    MemoryTotal,
    Power,
    PowerLimit,
    Energy,
    Temperature,
    Clock,
    MemoryClock,
    Fan,
}

/// Files below the card's directory `device`.
const DEVICE_FILES: [(Figure, &str); 4] = [
    (Figure::Busy, "gpu_busy_percent"),
    (Figure::MemoryBusy, "mem_busy_percent"),
    (Figure::MemoryUsed, "mem_info_vram_used"),
    (Figure::MemoryTotal, "mem_info_vram_total"),
];

/// Files below `device/hwmon/hwmonN`, in the kernel's units of microwatts, thousandths of a degree
/// and hertz. Older cards report average power, and newer cards report current power.
const SENSOR_FILES: [(Figure, &[&str]); 7] = [
    (Figure::Power, &["power1_average", "power1_input"]),
    (Figure::PowerLimit, &["power1_cap"]),
    (Figure::Energy, &["energy1_input"]),
    (Figure::Temperature, &["temp1_input"]),
    (Figure::Clock, &["freq1_input"]),
    (Figure::MemoryClock, &["freq2_input"]),
    (Figure::Fan, &["fan1_input"]),
];

impl Sampler for GpuSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        let failed = |error| ReadError { file: DRM, error };
        self.list_amd();
        self.list_nvidia().map_err(failed)?;
        for cards in [&mut self.amd, &mut self.nvidia_cards] {
            let read = self.reads.read(cards, |card| &mut card.card, GuardedCard::shown);
            self.cpu_ns += self.reads.cpu_ns();
            read.map_err(failed)?;
        }
        Ok(())
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.listing_incomplete;
        self.rows.clear();
        for card in self.amd.iter().chain(&self.nvidia_cards) {
            let mut row = card.row;
            incomplete |= card.fill(&mut row);
            self.rows.push(row);
        }
        let cards = builder.create_vector(&self.rows);
        let root = Gpu::create(builder, &GpuArgs { cards: Some(cards) });
        builder.finish_minimal(root);
        incomplete
    }
}

impl GpuSampler {
    fn new(drm: Option<HostDirectory>, nvidia: Option<Box<dyn Cards>>, selection: NameFilter) -> Self {
        let nvidia = nvidia.map(|cards| NvidiaList {
            list: GuardedElement::new(GpuRead::NvidiaList { cards, listed: None }),
        });
        Self {
            drm,
            selection,
            reads: GuardedReads::new(SPEC.name),
            amd: Vec::new(),
            present: Vec::new(),
            ignored: Vec::new(),
            nvidia,
            nvidia_cards: Vec::new(),
            listing_incomplete: Incomplete::NONE,
            rows: Vec::new(),
            cpu_ns: 0,
        }
    }

    /// Updates the list of amdgpu's cards.
    fn list_amd(&mut self) {
        let Self { drm, selection, reads, amd, present, ignored, listing_incomplete, .. } = self;
        *listing_incomplete = Incomplete::NONE;
        if let Some(drm) = drm {
            present.clear();
            let all = drm.list_with_inodes(|name, inode| {
                present.extend(card_number(name).map(|number| ListedCard { number, inode }));
            });
            if all.is_err() {
                *listing_incomplete |= Incomplete::MISSING;
            }
            present.sort_unstable();
            let keeps = |card: &GuardedCard| {
                let is_gone = card.card.with(|read| matches!(read, GpuRead::Amd(card) if card.is_gone));
                is_gone != Some(true) && present.contains(&card.listed)
            };
            reads.retain(amd, keeps, |card| &mut card.card);
            ignored.retain(|card| present.contains(card));
            for listed in present.iter() {
                if ignored.contains(listed) {
                    continue;
                }
                let Err(place) = amd.binary_search_by_key(listed, |card| card.listed) else { continue };
                if amd.len() == CARDS_MAX {
                    *listing_incomplete |= Incomplete::TOO_MANY;
                    break;
                }
                match AmdCard::open(drm, *listed, selection) {
                    Some((row, card)) => {
                        let card = reads.element(GpuRead::Amd(card));
                        amd.insert(place, GuardedCard { listed: *listed, row, card });
                    }
                    None => ignored.push(*listed),
                }
            }
        }
    }

    /// Updates the list of NVIDIA's cards.
    fn list_nvidia(&mut self) -> io::Result<()> {
        let Self { selection, reads, nvidia, nvidia_cards, listing_incomplete, .. } = self;
        self.cpu_ns = 0;
        let Some(nvidia) = nvidia else { return Ok(()) };
        let lists = std::slice::from_mut(nvidia);
        reads.read(lists, |nvidia| &mut nvidia.list, |_| NVIDIA_LIST.to_owned())?;
        self.cpu_ns += reads.cpu_ns();
        let listed = nvidia.list.with(|read| match read {
            GpuRead::NvidiaList { listed, .. } => listed.take(),
            _ => None,
        });
        if listed.is_none() {
            odd_text::note_hanging(NVIDIA_LIST);
            *listing_incomplete |= Incomplete::UNREADABLE;
        }
        let Some(cards) = listed.flatten() else { return Ok(()) };
        let wanted = cards.into_iter().take(CARDS_MAX);
        let wanted = wanted.filter(|(identity, _)| selection.matches(identity.address.as_bytes()));
        let wanted: Vec<_> = wanted
            .map(|(identity, card)| {
                (row(identity.address.as_bytes(), identity.name.as_bytes(), GpuDriver::Nvidia), card)
            })
            .collect();
        // A known card keeps its state, because it may be suspended.
        let is_listed =
            |own: &GuardedCard| wanted.iter().any(|(row, _)| devices::shown(row.address()) == own.shown());
        reads.retain(nvidia_cards, is_listed, |card| &mut card.card);
        for ((row, card), number) in wanted.into_iter().zip(0..) {
            if nvidia_cards.iter().any(|own| own.shown() == devices::shown(row.address())) {
                continue;
            }
            let card = reads.element(GpuRead::Nvidia { card, sample: CardMetrics::default() });
            nvidia_cards.push(GuardedCard { listed: ListedCard { number, inode: 0 }, row, card });
        }
        Ok(())
    }
}

impl BlockingRead for GpuRead {
    fn read(&mut self) {
        match self {
            Self::Amd(card) => card.read(),
            // A list that the source has not yet taken over is kept, because the source had
            // suspended this slow call.
            Self::NvidiaList { cards, listed } => *listed = cards.list_if_changed().or(listed.take()),
            Self::Nvidia { card, sample } => *sample = card.read(),
        }
    }
}

impl GuardedCard {
    /// Returns the card's bus address in the form that patterns match.
    fn shown(&self) -> String {
        devices::shown(self.row.address())
    }

    /// Sets the values of a row.
    fn fill(&self, row: &mut GpuState) -> Incomplete {
        let filled = self.card.with(|read| match read {
            GpuRead::Amd(card) => card.fill(row),
            GpuRead::Nvidia { sample, .. } => fill_nvidia(sample, row),
            GpuRead::NvidiaList { .. } => Incomplete::NONE,
        });
        filled.unwrap_or_else(|| {
            odd_text::note_hanging(&self.shown());
            Incomplete::UNREADABLE
        })
    }
}

impl AmdCard {
    /// Opens the files of a card. Returns `None` if the card is not an amdgpu card, or if the
    /// filter does not select it.
    fn open(drm: &HostDirectory, listed: ListedCard, selection: &NameFilter) -> Option<(GpuState, Self)> {
        let device = drm.directory(&path(&format!("card{}/device", listed.number))?).ok()?;
        let content = |name: &str| {
            let mut file = device.open(&path(name)?).ok()?;
            file.read().ok()?;
            Some(file.content().to_vec())
        };
        let uevent = content("uevent")?;
        let line = |key: &[u8]| text::whole_lines(&uevent).0.find_map(|line| line.strip_prefix(key));
        let address = line(b"PCI_SLOT_NAME=").unwrap_or_default();
        if line(b"DRIVER=") != Some(b"amdgpu") || !selection.matches(address) {
            return None;
        }
        let open = |directory: &HostDirectory, name: &str| directory.open(&path(name)?).ok();
        let mut files: Vec<(Figure, HostFile, FigureRead)> = Vec::new();
        for (figure, name) in DEVICE_FILES {
            files.extend(open(&device, name).map(|file| (figure, file, FigureRead::Skipped)));
        }
        if let Some(sensors) = sensors(&device) {
            for (figure, names) in SENSOR_FILES {
                let file = names.iter().find_map(|name| open(&sensors, name));
                files.extend(file.map(|file| (figure, file, FigureRead::Skipped)));
            }
        }
        let name = content("product_name").unwrap_or_default();
        let row = row(address, name.trim_ascii(), GpuDriver::Amdgpu);
        let status = open(&device, "power/runtime_status");
        Some((row, Self { status, files, is_suspended: false, is_gone: false }))
    }

    fn read(&mut self) {
        // A suspended card is not woken. A card whose status cannot be read is treated as awake.
        self.is_suspended = match &mut self.status {
            Some(status) => status.read().is_ok() && status.content() == SUSPENDED,
            None => false,
        };
        for (_, file, read) in &mut self.files {
            *read = if self.is_suspended {
                FigureRead::Skipped
            } else {
                match file.read() {
                    Ok(()) => FigureRead::Done,
                    Err(error) => {
                        self.is_gone |= error.raw_os_error() == Some(NO_DEVICE);
                        FigureRead::Failed(incomplete_reason(&error))
                    }
                }
            };
        }
    }

    fn fill(&self, row: &mut GpuState) -> Incomplete {
        let mut incomplete = Incomplete::NONE;
        row.set_suspended(u64::from(self.is_suspended));
        for (figure, file, read) in &self.files {
            match read {
                FigureRead::Skipped => {}
                FigureRead::Failed(reason) => incomplete |= *reason,
                FigureRead::Done => {
                    let (mut lines, cut) = text::whole_lines(file.content());
                    let line = lines.next().map(<[u8]>::trim_ascii);
                    incomplete |= cut;
                    if *figure == Figure::Temperature {
                        let number = line.and_then(signed_number);
                        incomplete |= Incomplete::UNREADABLE.unless(number.is_some());
                        row.set_temperature(number.unwrap_or(ABSENT_INTEGER));
                    } else {
                        let value = text::value(line, &mut incomplete);
                        figure.set(row, value);
                    }
                }
            }
        }
        incomplete
    }
}

/// Sets the values of a row from the metrics of one of NVIDIA's cards.
fn fill_nvidia(sample: &CardMetrics, row: &mut GpuState) -> Incomplete {
    const THOUSAND: u64 = 1_000;
    const MILLION: u64 = 1_000_000;
    let wide = |value: Option<u32>| value.map(u64::from);
    let times = |value: Option<u64>, by| value.and_then(|value| value.checked_mul(by)).unwrap_or(ABSENT);
    row.set_suspended(0);
    row.set_busy(times(wide(sample.busy), 1));
    row.set_memory_busy(times(wide(sample.memory_busy), 1));
    row.set_memory_used(times(sample.memory_used, 1));
    row.set_memory_total(times(sample.memory_total, 1));
    row.set_power(times(wide(sample.power), THOUSAND));
    row.set_power_limit(times(wide(sample.power_limit), THOUSAND));
    row.set_energy(times(sample.energy, THOUSAND));
    row.set_temperature(sample.temperature.map_or(ABSENT_INTEGER, |value| i64::from(value) * 1_000));
    row.set_clock(times(wide(sample.clock), MILLION));
    row.set_memory_clock(times(wide(sample.memory_clock), MILLION));
    row.set_fan(times(wide(sample.fan), 1));
    Incomplete::MISSING.unless(sample.failures == 0)
}

impl Figure {
    /// Sets a value other than the temperature.
    fn set(self, row: &mut GpuState, value: u64) {
        match self {
            Self::Busy => row.set_busy(value),
            Self::MemoryBusy => row.set_memory_busy(value),
            Self::MemoryUsed => row.set_memory_used(value),
            Self::MemoryTotal => row.set_memory_total(value),
            Self::Power => row.set_power(value),
            Self::PowerLimit => row.set_power_limit(value),
            Self::Energy => row.set_energy(value),
            Self::Temperature => {}
            Self::Clock => row.set_clock(value),
            Self::MemoryClock => row.set_memory_clock(value),
            Self::Fan => row.set_fan(value),
        }
    }
}

/// Creates a row with all values absent.
fn row(address: &[u8], name: &[u8], driver: GpuDriver) -> GpuState {
    let mut row = GpuState([0xFF; size_of::<GpuState>()]); // ABSENT in every counter
    row.set_address(&text::name(address).unwrap_or_default());
    row.set_name(&text::name(name).unwrap_or([0; 64]));
    row.set_driver(driver);
    row.set_temperature(ABSENT_INTEGER);
    row
}

/// Returns the number of a card such as `card0`, or `None` for connectors such as `card0-DP-1`.
fn card_number(name: &CStr) -> Option<u32> {
    let number = text::number(name.to_bytes().strip_prefix(b"card")?)?;
    u32::try_from(number).ok()
}

/// Opens the card's directory of sensors, which is its first `hwmonN`.
fn sensors(device: &HostDirectory) -> Option<HostDirectory> {
    let mut all = device.directory(c"hwmon").ok()?;
    let mut first: Option<CString> = None;
    all.list(|name| {
        if first.is_none() && name.to_bytes().starts_with(b"hwmon") {
            first = Some(name.to_owned());
        }
    })
    .ok()?;
    all.directory(&first?).ok()
}

fn path(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

fn signed_number(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    Some(sign * i64::try_from(text::number(digits)?).ok()?)
}

/// Returns the reason why a sample is incomplete after the read error `error`.
fn incomplete_reason(error: &io::Error) -> Incomplete {
    match error.kind() {
        ErrorKind::PermissionDenied => Incomplete::DENIED,
        _ if error.raw_os_error() == Some(NO_DEVICE) => Incomplete::MISSING,
        _ => Incomplete::UNREADABLE,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own that come and go")]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Barrier};

    use flatcap_os::host::HostRoot;

    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, open_sampler, rename};
    use crate::test_settings::TestSettings;

    const BELOW: &str = "sys/class/drm";

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(BELOW).join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Creates a card whose values are `first`, `first` + 1 and so on, in the order of the files.
    fn card(root: &Path, number: u32, address: &str, first: u64) {
        let below = format!("card{number}/device");
        write(root, &format!("{below}/uevent"), &format!("DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n"));
        write(root, &format!("{below}/product_name"), "Vega 64\n");
        write(root, &format!("{below}/power/runtime_status"), "active\n");
        let device = DEVICE_FILES.iter().map(|(_, name)| format!("{below}/{name}"));
        let sensors = SENSOR_FILES.iter().map(|(_, names)| format!("{below}/hwmon/hwmon3/{}", names[0]));
        for (file, value) in device.chain(sensors).zip(first..) {
            write(root, &file, &format!("{value}\n"));
        }
    }

    fn sample(sampler: &mut dyn Sampler) -> (Vec<GpuState>, Incomplete) {
        let mut builder = FlatBufferBuilder::new();
        sampler.read().unwrap();
        let incomplete = sampler.build(0, &mut builder);
        let gpu = flatbuffers::root::<Gpu<'_>>(builder.finished_data()).unwrap();
        (gpu.cards().iter().copied().collect(), incomplete)
    }

    fn figures(row: &GpuState) -> [u64; 11] {
        [
            row.busy(),
            row.memory_busy(),
            row.memory_used(),
            row.memory_total(),
            row.power(),
            row.power_limit(),
            row.energy(),
            row.temperature().cast_unsigned(),
            row.clock(),
            row.memory_clock(),
            row.fan(),
        ]
    }

    fn address(row: &GpuState) -> String {
        row.address().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    // Proves that every value ends up in its field, that connectors and other drivers' cards are
    // ignored, and that patterns apply. Cards can be added, suspended, renumbered and removed, and
    // can lose a file.
    #[test]
    fn cards_of_amdgpu_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        card(root, 1, "0000:09:00.0", 100);
        card(root, 2, "0000:0a:00.0", 200);
        write(root, "card1-DP-1/status", "connected\n");
        write(root, "card0/device/uevent", "DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0\n");
        let mut sampler = open_sampler(&SPEC, "exclude = [\"0000:0a:*\"]", root).unwrap();
        let (rows, incomplete) = sample(&mut *sampler);
        assert_eq!((rows.len(), incomplete), (1, Incomplete::NONE));
        let expected: Vec<u64> = (100..111).collect();
        assert_eq!(figures(&rows[0])[..], expected);
        assert_eq!((address(&rows[0]).as_str(), rows[0].driver()), ("0000:09:00.0", GpuDriver::Amdgpu));
        assert!(rows[0].name().iter().take(8).eq(*b"Vega 64\0") && rows[0].suspended() == 0);

        write(root, "card1/device/power/runtime_status", "suspended\n");
        let (rows, incomplete) = sample(&mut *sampler);
        assert_eq!((rows[0].suspended(), incomplete), (1, Incomplete::NONE));
        assert!(
            figures(&rows[0])
                .iter()
                .all(|value| *value == ABSENT || *value == ABSENT_INTEGER.cast_unsigned())
        );

        write(root, "card1/device/power/runtime_status", "active\n");
        write(root, "card1/device/hwmon/hwmon3/temp1_input", "-5000\n");
        write(root, "card1/device/hwmon/hwmon3/fan1_input", "x\n");
        card(root, 0, "0000:03:00.0", 300);
        let (rows, incomplete) = sample(&mut *sampler);
        assert_eq!((rows.len(), incomplete), (1, Incomplete::UNREADABLE));
        assert_eq!((rows[0].temperature(), rows[0].fan()), (-5000, ABSENT));

        std::fs::remove_dir_all(root.join(BELOW).join("card0")).unwrap();
        let _ = sample(&mut *sampler);
        card(root, 0, "0000:03:00.0", 300);
        write(root, "card1/device/hwmon/hwmon3/fan1_input", "7\n");
        let (rows, incomplete) = sample(&mut *sampler);
        let addresses: Vec<String> = rows.iter().map(address).collect();
        assert_eq!(
            (addresses, incomplete),
            (vec!["0000:03:00.0".to_owned(), "0000:09:00.0".to_owned()], Incomplete::NONE)
        );
        // Between two samples, another card takes the number of a card that is not recorded.
        write(root, "card3/device/uevent", "DRIVER=i915\n");
        assert_eq!(sample(&mut *sampler).0.len(), 2);
        rename(&root.join(BELOW).join("card3"), &root.join("away"));
        card(root, 3, "0000:0b:00.0", 400);
        assert_eq!(sample(&mut *sampler).0.len(), 3);
        for card in ["card0", "card1", "card3"] {
            std::fs::remove_dir_all(root.join(BELOW).join(card)).unwrap();
        }
        assert_eq!(sample(&mut *sampler).0.len(), 0);
    }

    // Proves that a damaged file never causes a panic and that a truncated number is never
    // recorded.
    #[test]
    fn damaged_text_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        card(folder.path(), 0, "0000:09:00.0", 1);
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        for file in ["gpu_busy_percent", "hwmon/hwmon3/temp1_input"] {
            let file = format!("card0/device/{file}");
            assert_damage_is_marked(b"45\n", |text| {
                std::fs::write(folder.path().join(BELOW).join(&file), text).unwrap();
                sample(&mut *sampler).1.is_none()
            });
            write(folder.path(), &file, "45\n");
        }
    }

    // Proves that the error of a host without a driver names the places that were searched. If a
    // host has only NVIDIA's driver, the error names the missing library. The second part of the
    // test is skipped if the library is present.
    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = || open_sampler(&SPEC, "", folder.path()).map(drop).map_err(|error| error.to_string());
        assert_eq!(error(), Err(format!("/{DRM}: No such file or directory (os error 2){}", SPEC.hint)));
        write(folder.path(), "card0/device/uevent", "DRIVER=virtio\n");
        assert_eq!(error(), Err(format!("/{DRM}: no supported card{}", SPEC.hint)));
        let version = folder.path().join(NVIDIA);
        std::fs::create_dir_all(version.parent().unwrap()).unwrap();
        std::fs::write(version, "NVRM version: 1\n").unwrap();
        match error() {
            Ok(()) => println!("skipped: NVIDIA's library is here"),
            Err(error) => assert!(
                error.starts_with("NVIDIA's driver is loaded but its library is not: libnvidia-ml.so.1"),
                "{error}"
            ),
        }
    }

    /// Cards as NVIDIA's library would report them.
    #[derive(Debug)]
    struct FakeCards(Option<Vec<CardIdentity>>, CardMetrics);

    #[derive(Debug)]
    struct FakeCard(CardMetrics);

    impl Cards for FakeCards {
        fn list_if_changed(&mut self) -> Option<Vec<(CardIdentity, Box<dyn Card>)>> {
            let card = |(identity, place)| -> (CardIdentity, Box<dyn Card>) {
                (identity, Box::new(FakeCard(CardMetrics { busy: Some(place), ..self.1 })))
            };
            Some(self.0.take()?.into_iter().zip(0..).map(card).collect())
        }
    }

    impl Card for FakeCard {
        fn read(&mut self) -> CardMetrics {
            self.0
        }
    }

    /// A list of simulated cards. Either some cards or the list itself does not answer.
    #[derive(Debug)]
    struct HangingCards {
        list: bool,
        barrier: Arc<Barrier>,
        listed: bool,
    }

    #[derive(Debug)]
    struct HangingCard(Option<Arc<Barrier>>);

    impl Cards for HangingCards {
        fn list_if_changed(&mut self) -> Option<Vec<(CardIdentity, Box<dyn Card>)>> {
            if self.list {
                self.barrier.wait();
            }
            if std::mem::replace(&mut self.listed, true) {
                return None;
            }
            let card = |hangs: bool, address: &str| -> (CardIdentity, Box<dyn Card>) {
                let identity = CardIdentity { address: address.to_owned(), name: "H100".to_owned() };
                (identity, Box::new(HangingCard(hangs.then(|| Arc::clone(&self.barrier)))))
            };
            Some(vec![card(true, "0000:01:00.0"), card(false, "0000:02:00.0")])
        }
    }

    impl Card for HangingCard {
        fn read(&mut self) -> CardMetrics {
            if let Some(barrier) = &self.0 {
                barrier.wait();
            }
            CardMetrics { busy: Some(7), ..CardMetrics::default() }
        }
    }

    // Proves that if a card or a driver's list does not answer, only this card or list is left out,
    // and it is named. Other cards of both drivers are recorded.
    #[test]
    fn a_card_that_hangs_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        card(folder.path(), 0, "0000:09:00.0", 100);
        for list in [false, true] {
            let barrier = Arc::new(Barrier::new(2));
            let cards = HangingCards { list, barrier: Arc::clone(&barrier), listed: false };
            let drm = HostRoot::new(folder.path()).directory(DRM).unwrap();
            let mut sampler = GpuSampler::new(Some(drm), Some(Box::new(cards)), NameFilter::default());
            for _ in 0..2 {
                let (rows, incomplete) = sample(&mut sampler);
                let busy: Vec<(String, u64)> = rows.iter().map(|row| (address(row), row.busy())).collect();
                let row = |address: &str, busy| (address.to_owned(), busy);
                let amd = row("0000:09:00.0", 100);
                let nvidia = vec![amd.clone(), row("0000:01:00.0", ABSENT), row("0000:02:00.0", 7)];
                assert_eq!(
                    (busy, incomplete),
                    (if list { vec![amd] } else { nvidia }, Incomplete::UNREADABLE)
                );
                let noted = odd_text::take().map(|text| text.to_string()).unwrap_or_default();
                let name = if list { NVIDIA_LIST } else { "0000:01:00.0" };
                assert!(noted.contains(&format!("{name} does not answer")), "{noted}");
            }
            barrier.wait();
        }
    }

    // Proves that NVIDIA's values are converted to the same units, that patterns apply, and that
    // values that a card lacks are absent.
    #[test]
    fn figures_of_nvidia_are_converted() {
        let identity = |address: &str| CardIdentity { address: address.to_owned(), name: "H100".to_owned() };
        let cards = ["0000:01:00.0", "0000:02:00.0"].map(identity).to_vec();
        let reading = CardMetrics {
            busy: None,
            memory_busy: Some(2),
            memory_used: Some(3),
            memory_total: Some(4),
            power: Some(5),
            power_limit: None,
            energy: Some(7),
            temperature: Some(8),
            clock: Some(9),
            memory_clock: Some(10),
            fan: Some(11),
            failures: 0,
        };
        let selection = opened_selection("exclude = [\"0000:01:*\"]");
        let mut sampler = GpuSampler::new(None, Some(Box::new(FakeCards(Some(cards), reading))), selection);
        let (rows, incomplete) = sample(&mut sampler);
        assert_eq!((rows.len(), incomplete), (1, Incomplete::NONE));
        let expected = [1, 2, 3, 4, 5_000, ABSENT, 7_000, 8_000, 9_000_000, 10_000_000, 11];
        assert_eq!((figures(&rows[0]), rows[0].driver()), (expected, GpuDriver::Nvidia));
        assert_eq!(sample(&mut sampler).0.len(), 1, "cards that stay are not listed again");
        let lost = CardMetrics { failures: 9, ..CardMetrics::default() };
        let cards = Some(vec![identity("0000:05:00.0")]);
        let mut sampler =
            GpuSampler::new(None, Some(Box::new(FakeCards(cards, lost))), NameFilter::default());
        assert_eq!(sample(&mut sampler).1, Incomplete::MISSING);
    }

    fn opened_selection(keys: &str) -> NameFilter {
        TestSettings::new(&SPEC, keys).get().selection()
    }

    // Proves that the files captured from a card are read completely.
    #[test]
    fn a_captured_card_is_read() {
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/hosts/procfs-fixtures.tar.gz");
        if !archive.exists() {
            println!("skipped: no {}", archive.display());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let unpacked = std::process::Command::new("tar")
            .args([
                "-xzf",
                archive.to_str().unwrap(),
                "-C",
                folder.path().to_str().unwrap(),
                "./sys/class/drm",
            ])
            .status();
        if !unpacked.is_ok_and(|status| status.success()) {
            println!("skipped: no ./sys/class/drm in {}", archive.display());
            return;
        }
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        let (rows, incomplete) = sample(&mut *sampler);
        assert_eq!((rows.len(), incomplete), (1, Incomplete::NONE));
        let naive = |file: &str| -> u64 {
            let path = folder.path().join("sys/class/drm/card0/device").join(file);
            std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        assert_eq!(address(&rows[0]), "0000:09:00.0");
        assert_eq!(rows[0].busy(), naive("gpu_busy_percent"));
        assert_eq!(rows[0].memory_used(), naive("mem_info_vram_used"));
        assert_eq!(rows[0].memory_total(), naive("mem_info_vram_total"));
    }
}
