//! `profile`: the code that runs on each CPU (on-CPU profiling), as call chains of the event
//! cpu-clock of `perf_event_open(2)`.
//!
//! The perf rings of the call chains also contain the mappings of processes. So an address can be
//! recorded as an offset in a file, even after the process has ended. This module does not resolve
//! symbols. Readers of a recording resolve the symbols.

mod address_space;
mod build_id_lookups;
mod call_chains;
mod code_file;
mod existing_processes;
mod kernel_code;
mod stack_tables;
mod task_table;
mod thread_names;

use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::host::HostFile;
use flatcap_os::perf_batch::{BatchLimits, PerfBatch, SETTLE_NS};
use flatcap_os::perf_record::SampleContent;
use flatcap_os::perf_ring::{PerfRing, RingEvent};
use flatcap_tasks::PAYLOAD_NS_MAX;
use flatcap_tasks::schema::{CodeKind, PROFILE, PROFILE_ROOT};

use self::call_chains::CallChains;
use self::existing_processes::ReadProcesses;
use self::kernel_code::{NOTES, SYMBOLS};
use self::stack_tables::ProfileSpan;
use super::core_list::{ONLINE, parse_core_list};
use super::perf_access::{PARANOID, denied, require_host_ids, require_short_period};
use super::perf_groups::incomplete_reason;
use super::ring_memory::RingSizes;
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, OpenedSampler, OwnSettings, ProfileConfig, ReadError, Sampler};

/// Interval between checks for CPUs that went online or offline.
const ONLINE_INTERVAL_NS: u64 = NS_PER_S;
/// Maximum length of a record with a call chain of 127 frames, including its contexts.
const SAMPLE_BYTES: u64 = 1100;
/// Minimum size of a ring, in bytes. The smallest ring also holds the mappings of about 100
/// programs that start within a period.
const RING_BYTES_MIN: u64 = 128 << 10;
const RING_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of records in a sample, so that the tables of the sample have an index for each
/// record's stack and thread.
const RECORDS_MAX: usize = 1 << 15;
/// Limits of the data that one sample takes from the rings.
const LIMITS: BatchLimits = BatchLimits { bytes: 8 << 20, records: RECORDS_MAX };

pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "profile",
    about: "Code that runs on each CPU: call chains, sampled.",
    root: PROFILE_ROOT,
    schema: PROFILE,
    files: &[PARANOID, ONLINE, SYMBOLS, NOTES, "proc/PID/maps", "proc/PID/task", "proc/PID/comm"],
    // A sample is a batch in which each call chain has its own time. Shorter periods would repeat
    // the files and threads that most call chains mention. Longer periods would delay the data.
    period: Duration::from_millis(100),
    refresh: "at each sample, 99 times per second of CPU time by default (`frequency`)",
    needs: &["CAP_PERFMON", "CAP_SYS_PTRACE (code of others' processes that were already running)"],
    hint: ": this kernel has no performance events (CONFIG_PERF_EVENTS)",
    keys: OwnKeys::Profile,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let paranoid = host_file(context.host, PARANOID, SPEC.hint)?;
    let online = host_file(context.host, ONLINE, "")?;
    let OwnSettings::Profile(config) = context.settings.own else {
        return Err(Unavailable::of(ErrorKind::InvalidInput.into()));
    };
    require_host_ids(SPEC.name, context.host)?;
    require_short_period(context.settings.period)?;
    let interval_ns = interval_ns(config);
    let mut numbers = Vec::new();
    parse_core_list(online.content(), &mut numbers);
    let ring_bytes = ring_bytes(interval_ns, context.settings.period);
    let mut sampler = ProfileSampler {
        online,
        listed_content: Vec::new(),
        listed_ns: monotonic_ns(),
        rings: Vec::new(),
        ring_bytes,
        batch: PerfBatch::new(SampleContent::CallChain, LIMITS, numbers.len(), ring_bytes),
        numbers,
        chains: CallChains::new(context.host, interval_ns).map_err(Unavailable::of)?,
        interval_ns,
        begin_ns: monotonic_ns(),
        until_ns: 0,
        incomplete: Incomplete::NONE,
    };
    // The rings are opened before the processes are read, so that new mappings of these processes
    // are in the rings.
    match sampler.update_rings() {
        Some(error) if sampler.rings.is_empty() => {
            return Err(Unavailable::of(match error.kind() {
                ErrorKind::PermissionDenied => denied("recording", &error, paranoid.content()),
                kind => io::Error::new(kind, format!("cannot record call chains: {error}")),
            }));
        }
        _ => {}
    }
    let read = sampler.chains.read_processes(context.host).map_err(Unavailable::of)?;
    log_unknown(read, sampler.chains.kernel_kind());
    Ok(OpenedSampler::built(sampler))
}

/// Logs which code of the host will be unknown.
fn log_unknown(read: ReadProcesses, kernel: CodeKind) {
    if read.denied > 0 {
        tracing::info!(
            source = "profile",
            "the code of {} of {} processes that already run is not known, since it needs \
             CAP_SYS_PTRACE (since Linux 6.15 CAP_PERFMON)",
            read.denied,
            read.denied + read.known
        );
    }
    if read.failed > 0 {
        tracing::info!(
            source = "profile",
            "the code of {} processes that already run is not known: their list of mappings cannot be read, or is too \
             long",
            read.failed
        );
    }
    if !read.is_complete {
        tracing::info!(
            source = "profile",
            "the code of some processes that already run is not known: reading it took too long"
        );
    }
    if kernel == CodeKind::KernelAddress {
        tracing::info!(
            source = "profile",
            "stacks have addresses of the kernel instead of offsets, since this process may not \
             read them in /proc/kallsyms (CAP_SYSLOG)"
        );
    }
}

/// Returns the sizes of the rings.
pub(super) fn ring_sizes(config: ProfileConfig, period: Duration) -> RingSizes {
    let holders = ["rings of the kernel for profile", "copy of the rings of profile"];
    RingSizes { holders, ring_bytes: ring_bytes(interval_ns(config), period), limits: LIMITS }
}

/// Returns the CPU time between two call chains.
fn interval_ns(config: ProfileConfig) -> u64 {
    NS_PER_S / u64::from(config.frequency.max(1))
}

/// Returns the size of a ring with space for twice as many samples as one period produces.
fn ring_bytes(interval_ns: u64, period: Duration) -> usize {
    let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    let bytes = (period_ns / interval_ns.max(1)).saturating_mul(2 * SAMPLE_BYTES);
    let bytes = bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two();
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[derive(Debug)]
struct ProfileSampler {
    online: HostFile,
    listed_content: Vec<u8>, // list of CPUs from which `rings` was made
    listed_ns: u64,
    numbers: Vec<u32>,    // reused
    rings: Vec<PerfRing>, // in the order of their CPUs
    ring_bytes: usize,
    batch: PerfBatch,
    chains: CallChains,
    interval_ns: u64,
    begin_ns: u64,          // begin of the next sample, which is the end of the last
    until_ns: u64,          // time of the last read
    incomplete: Incomplete, // set if a CPU has no ring
}

impl Sampler for ProfileSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        // The clock is read before the copy, so that no record that is older than this time comes
        // later.
        let now_ns = monotonic_ns();
        self.until_ns = now_ns.saturating_sub(SETTLE_NS).min(self.begin_ns.saturating_add(PAYLOAD_NS_MAX));
        if now_ns.saturating_sub(self.listed_ns) >= ONLINE_INTERVAL_NS {
            self.listed_ns = now_ns;
            self.online.read().map_err(|error| ReadError { file: ONLINE, error })?;
            let have_stopped = self.close_stopped();
            let is_missing = self.incomplete != Incomplete::NONE;
            if have_stopped || is_missing || self.online.content() != self.listed_content {
                // The samples report that a CPU has no ring.
                let _refused = self.update_rings();
            }
        }
        self.batch.copy(self.rings.iter());
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { rings, batch, chains, begin_ns, until_ns, .. } = self;
        batch.begin(*begin_ns, *until_ns);
        chains.begin();
        batch.take(|ring, record| chains.note(rings.get(ring).map_or(0, PerfRing::cpu), record));
        chains.count_lost(batch.release(rings.iter_mut()));
        let end_ns = batch.end_ns();
        chains.build(ProfileSpan { begin_ns: *begin_ns, end_ns }, builder);
        *begin_ns = end_ns;
        self.incomplete
    }
}

impl ProfileSampler {
    /// Closes the rings that the kernel has stopped because their CPU went offline. Returns whether
    /// any ring was closed.
    fn close_stopped(&mut self) -> bool {
        let before = self.rings.len();
        self.rings.retain_mut(PerfRing::goes_on);
        self.rings.len() < before
    }

    /// Opens the rings of new CPUs, and closes the rings of removed CPUs, including their unread
    /// data. Returns the error of a CPU whose ring could not be opened.
    fn update_rings(&mut self) -> Option<io::Error> {
        self.listed_content.clear();
        self.listed_content.extend_from_slice(self.online.content());
        let is_whole = parse_core_list(&self.listed_content, &mut self.numbers);
        self.incomplete = Incomplete::UNREADABLE.unless(is_whole);
        let mut refusal = None;
        let Self { numbers, rings, ring_bytes, interval_ns, .. } = self;
        rings.retain(|ring| numbers.contains(&ring.cpu()));
        for number in numbers {
            let Err(place) = rings.binary_search_by_key(number, PerfRing::cpu) else { continue };
            let event = RingEvent::CallChains { interval_ns: *interval_ns };
            let opened = PerfRing::open(*number, event, *ring_bytes)
                .and_then(|ring| ring.event().start().map(|()| ring));
            match opened {
                Ok(ring) => rings.insert(place, ring),
                Err(error) => {
                    self.incomplete |= incomplete_reason(&error);
                    refusal = Some(error);
                }
            }
        }
        refusal
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::hint::black_box;
    use std::path::Path;

    use flatcap_os::build_id::{ElfBuildId, FileContentId};
    use flatcap_tasks::schema::{Profile, StackSample};

    use super::*;
    use crate::Sampler;
    use crate::sources::tests::open_sampler;

    /// Maximum time that a test waits for samples, which the kernel takes about a hundred times a
    /// second.
    const WATCHDOG_NS: u64 = 120 * NS_PER_S;

    /// A process that computes until the end of its test.
    struct KilledAtEnd(u32);

    impl Drop for KilledAtEnd {
        fn drop(&mut self) {
            let process = rustix::process::Pid::from_raw(self.0.cast_signed()).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        }
    }

    fn next_payload(sampler: &mut dyn Sampler) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
        builder.finished_data().to_vec()
    }

    /// Computes for 50 ms.
    fn spin() {
        let end_ns = monotonic_ns() + 50_000_000;
        let mut sum = 0_u64;
        while monotonic_ns() < end_ns {
            (0..10_000).for_each(|number| sum = black_box(sum.wrapping_mul(3) + number));
        }
    }

    /// Returns the build id of this program, and the ranges of the file that contain its code.
    fn own_code(path: &str) -> (Option<ElfBuildId>, Vec<(u64, u64)>) {
        use std::os::unix::fs::MetadataExt;
        let inode = std::fs::metadata(path).unwrap().ino();
        let program = CString::new(path).unwrap();
        let content = ElfBuildId::of_mapped_file(Path::new("/"), &program, inode).unwrap();
        let build_id = match content {
            Some(FileContentId::BuildId(build_id)) => Some(build_id),
            _ => None,
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let code = maps.lines().filter(|line| line.ends_with(path) && line.contains(" r-xp "));
        let range = |line: &str| {
            let mut fields = line.split(' ');
            let (start, end) = fields.next().unwrap().split_once('-').unwrap();
            let offset = hex(fields.nth(1).unwrap());
            (offset, offset + hex(end) - hex(start))
        };
        (build_id, code.map(range).collect())
    }

    // Proves that the code of a busy thread of this program is recorded with its thread, file,
    // build id and an offset in its code. Each sample begins at the end of the previous sample. The
    // test is skipped where the kernel allows no events.
    #[test]
    fn own_code_is_recorded() {
        let mut sampler = match open_sampler(&SPEC, "frequency = 999", Path::new("/")) {
            Ok(sampler) => sampler,
            Err(missing) => return println!("skipped: {missing}"),
        };
        let program = std::env::current_exe().unwrap();
        let path = program.to_str().unwrap();
        let (build_id, code) = own_code(path);
        let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let deadline_ns = monotonic_ns() + WATCHDOG_NS;
        let mut end_ns = None;
        loop {
            assert!(monotonic_ns() < deadline_ns, "this thread is in no sample");
            spin();
            let payload = next_payload(&mut *sampler);
            let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
            assert!(end_ns.is_none_or(|end_ns| end_ns == profile.begin()) && profile.begin() < profile.end());
            end_ns = Some(profile.end());
            let times = || profile.samples().iter().map(StackSample::time);
            assert!(
                times().is_sorted() && times().all(|time| (profile.begin()..profile.end()).contains(&time))
            );
            assert_eq!(profile.interval(), NS_PER_S / 999);
            let is_found = profile.samples().iter().any(|sample| {
                let thread = profile.threads().get(usize::from(sample.thread()));
                let frames = profile.stacks().get(usize::from(sample.stack())).frames();
                (thread.thread(), thread.process()) == (own, std::process::id())
                    && frames.iter().any(|frame| {
                        let frame = profile.frames().get(usize::from(frame));
                        let object = profile.objects().get(usize::from(frame.object()));
                        let found_id = object.build_id().map(|found| found.bytes());
                        object.path() == path
                            && object.kind() == CodeKind::File
                            // The build id is looked up only after the file was first seen.
                            && found_id == build_id.as_ref().map(ElfBuildId::as_bytes)
                            && code.iter().any(|(begin, end)| (*begin..*end).contains(&frame.offset()))
                    })
            });
            if is_found {
                break;
            }
        }
    }

    // Proves that a program that starts after the source was opened, and its child, are recorded
    // with their file and name. The test is skipped where the kernel allows no events.
    #[test]
    fn a_new_program_is_recorded() {
        let mut sampler = match open_sampler(&SPEC, "frequency = 999", Path::new("/")) {
            Ok(sampler) => sampler,
            Err(missing) => return println!("skipped: {missing}"),
        };
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", "(while :; do :; done) & echo $!; wait"]);
        shell = shell.stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        let child_guard = KilledAtEnd(child);
        let program = std::fs::read_link(format!("/proc/{child}/exe")).unwrap();
        let deadline_ns = monotonic_ns() + WATCHDOG_NS;
        let found = loop {
            assert!(monotonic_ns() < deadline_ns, "the child is in no sample");
            flatcap_os::wake_event::WakeEvent::new().wait_until(monotonic_ns() + 20_000_000);
            let payload = next_payload(&mut *sampler);
            let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
            let thread = profile.threads().iter().find(|thread| thread.process() == child);
            let object = profile.objects().iter().any(|object| Path::new(object.path()) == program);
            if let Some(thread) = thread.filter(|_| object) {
                break crate::sources::tests::fixed_text(thread.name().iter());
            }
        };
        drop(child_guard);
        shell.wait().unwrap();
        assert_eq!(found, "sh");
    }

    // Proves that rings have space for twice the samples of a period, within limits.
    #[test]
    fn rings_hold_a_period() {
        let interval_ns = NS_PER_S / 99;
        assert_eq!(ring_bytes(interval_ns, Duration::from_millis(100)), 128 << 10);
        assert_eq!(ring_bytes(interval_ns, Duration::from_secs(1)), 256 << 10);
        assert_eq!(ring_bytes(interval_ns, Duration::from_secs(3600)), 4 << 20);
        assert_eq!(ring_bytes(1, Duration::from_secs(3600)), 4 << 20);
    }
}
