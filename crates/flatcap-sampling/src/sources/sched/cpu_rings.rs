//! The rings of all CPUs that are online, and the events that write into them.

use std::io::{self, ErrorKind};

use flatcap_os::perf_batch::{BatchLimits, PerfBatch};
use flatcap_os::perf_record::{PerfRecord, SampleContent};
use flatcap_os::perf_ring::{EventFile, PerfRing, RingEvent};

use crate::Incomplete;
use crate::sources::perf_groups::incomplete_reason;

/// Limits on the data that one sample takes from the rings. The limits correspond to about 65,000
/// records of switches.
pub(super) const LIMITS: BatchLimits = BatchLimits { bytes: 4 << 20, records: usize::MAX };

/// The rings.
#[derive(Debug)]
pub(super) struct CpuRings {
    wakeups: Option<u64>, // number of the tracepoint, if wakeups are recorded
    ring_bytes: usize,
    cpus: Vec<CpuRing>, // in the order of their numbers
    are_switches_on: bool,
    incomplete: Incomplete, // reasons from the last update
    batch: PerfBatch,       // copies the rings of `cpus`
}

/// The ring of a CPU. All events of the CPU write into this ring, so the records are in the order
/// of time.
#[derive(Debug)]
struct CpuRing {
    number: u32,
    ring: PerfRing, // opened with the event of threads, which is never stopped
    switches: EventFile,
    wakeups: Option<EventFile>,
}

impl CpuRings {
    /// Opens the rings of the CPUs in `numbers`, in the order of their numbers, and starts to
    /// record.
    ///
    /// # Errors
    /// Fails if the kernel refuses to record events on the first CPU. If the kernel refuses only
    /// wakeups, this function succeeds and [`has_wakeups`](Self::has_wakeups) returns false.
    pub(super) fn open(numbers: &[u32], wakeups: Option<u64>, ring_bytes: usize) -> io::Result<Self> {
        let first = numbers.first().ok_or(ErrorKind::InvalidData)?;
        let (first, wakeups) = match CpuRing::open(*first, wakeups, ring_bytes) {
            Ok(ring) => (ring, wakeups),
            Err(_) if wakeups.is_some() => (CpuRing::open(*first, None, ring_bytes)?, None),
            Err(error) => return Err(error),
        };
        first.start(true)?;
        let mut rings = Self {
            wakeups,
            ring_bytes,
            cpus: vec![first],
            are_switches_on: true,
            incomplete: Incomplete::NONE,
            batch: PerfBatch::new(SampleContent::Tracepoint, LIMITS, numbers.len(), ring_bytes),
        };
        rings.open_missing(numbers);
        Ok(rings)
    }

    /// Returns whether wakeups are recorded.
    pub(super) fn has_wakeups(&self) -> bool {
        self.wakeups.is_some()
    }

    /// Returns the reasons why events of some CPUs are missing.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete
    }

    /// Closes the rings that the kernel has stopped because their CPU went offline. Returns whether
    /// any ring was closed.
    pub(super) fn close_stopped(&mut self) -> bool {
        let before = self.cpus.len();
        self.cpus.retain_mut(|cpu| cpu.ring.goes_on());
        self.cpus.len() < before
    }

    /// Closes the rings of all CPUs that are not in `numbers`.
    pub(super) fn close_others(&mut self, numbers: &[u32]) {
        self.cpus.retain(|cpu| numbers.contains(&cpu.number));
    }

    /// Returns whether a CPU has a ring.
    pub(super) fn has(&self, number: u32) -> bool {
        self.cpus.binary_search_by_key(&number, |cpu| cpu.number).is_ok()
    }

    /// Opens the missing rings of the CPUs in `numbers`.
    pub(super) fn open_missing(&mut self, numbers: &[u32]) {
        self.incomplete = Incomplete::NONE;
        for number in numbers {
            let Err(place) = self.cpus.binary_search_by_key(number, |cpu| cpu.number) else { continue };
            let opened = CpuRing::open(*number, self.wakeups, self.ring_bytes)
                .and_then(|ring| ring.start(self.are_switches_on).map(|()| ring));
            match opened {
                Ok(ring) => self.cpus.insert(place, ring),
                Err(error) => self.incomplete |= incomplete_reason(&error),
            }
        }
    }

    /// Starts or stops the recording of switches and wakeups. The begin and end of threads are
    /// always recorded.
    pub(super) fn switch(&mut self, are_on: bool) {
        self.are_switches_on = are_on;
        for cpu in &self.cpus {
            // An event that was opened can be started and stopped, so an error is unexpected.
            if let Err(error) = cpu.switch(are_on) {
                self.incomplete |= incomplete_reason(&error);
            }
        }
    }

    /// Copies the content of the rings.
    pub(super) fn copy(&mut self) {
        self.batch.copy(self.cpus.iter().map(|cpu| &cpu.ring));
    }

    /// Begins a sample of the copied records, as [`PerfBatch::begin`] does.
    pub(super) fn begin(&mut self, begin_ns: u64, until_ns: u64) {
        self.batch.begin(begin_ns, until_ns);
    }

    /// Passes the records of the sample to `take`, each with its CPU, in the order of time. Returns
    /// the end time of the sample, and the number of malformed records.
    pub(super) fn take(&mut self, mut take: impl FnMut(u16, &PerfRecord<'_>)) -> (u64, u64) {
        let Self { cpus, batch, .. } = self;
        batch.take(|ring, record| {
            let number = cpus.get(ring).map_or(0, |cpu| cpu.number);
            take(u16::try_from(number).unwrap_or(u16::MAX), record);
        });
        let malformed = batch.release(cpus.iter_mut().map(|cpu| &mut cpu.ring));
        (batch.end_ns(), malformed)
    }
}

impl CpuRing {
    fn open(number: u32, wakeups: Option<u64>, ring_bytes: usize) -> io::Result<Self> {
        let ring = PerfRing::open(number, RingEvent::Tasks, ring_bytes)?;
        let switches = ring.add(RingEvent::Switches)?;
        let wakeups = wakeups.map(|number| ring.add(RingEvent::Tracepoint(number))).transpose()?;
        Ok(Self { number, ring, switches, wakeups })
    }

    fn start(&self, are_switches_on: bool) -> io::Result<()> {
        self.ring.event().start()?;
        if are_switches_on { self.switch(true) } else { Ok(()) }
    }

    fn switch(&self, are_on: bool) -> io::Result<()> {
        for event in [Some(&self.switches), self.wakeups.as_ref()].into_iter().flatten() {
            if are_on { event.start()? } else { event.stop()? }
        }
        Ok(())
    }
}
