//! Adds the kernel's sources to a trace of Perfetto. These are the scheduler, sampled stacks, and
//! the kernel log.

use std::collections::HashMap;

use flatcap_symbols::Symbolizer;
use flatcap_tasks::{KnownCode, LogBatch, ProfileBatch, SchedBatch};

use crate::error::ColumnarError;
use crate::kernel_samples::{KernelPayload, KernelRun, KernelSample, read_kernel_samples};
use crate::perfetto_log::LogTrack;
use crate::perfetto_packets::TracePacket;
use crate::perfetto_sched::SchedTracks;
use crate::perfetto_stacks::StackTracks;
use crate::request::ColumnarRequest;
use crate::stack_lines::{StackOptions, symbol_remarks};
use crate::watch::ExportWatch;

/// Maximum number of runs whose build ids are read before the export.
const RUNS_MAX: usize = 1 << 10;

/// The sequence of a packet. Packets of a sequence may refer to data that the same sequence
/// interned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelSequence {
    /// Events of the scheduler, and lines of the log.
    Events,
    Stacks,
}

/// The result of adding the kernel's sources.
#[derive(Debug, Default)]
pub(crate) struct KernelTrace {
    pub(crate) malformed: u64,
    pub(crate) remarks: Vec<String>,
}

/// A trace that accepts packets of the kernel's sources.
pub(crate) trait KernelTraceSink {
    /// Returns time in the trace minus monotonic time of a run. If no other sample of the run was
    /// selected, begins the clocks of the run at these times.
    fn offset_ns(&mut self, run: &KernelRun, mono_ns: u64, wall_ns: i64) -> Result<i64, ColumnarError>;

    /// Adds a packet.
    fn put_kernel(&mut self, sequence: KernelSequence, packet: TracePacket) -> Result<(), ColumnarError>;
}

/// Adds the kernel's sources to a trace.
pub(crate) fn read_kernel_trace(
    request: &ColumnarRequest,
    options: &StackOptions,
    watch: &mut ExportWatch<'_>,
    sink: &mut dyn KernelTraceSink,
) -> Result<KernelTrace, ColumnarError> {
    let mut tracks = KernelTracks {
        known_code: read_known_code(request, watch)?,
        no_known_code: KnownCode::default(),
        sched: SchedTracks::default(),
        stacks: StackTracks::new(Symbolizer::new(options.symbol_directories.clone())),
        log: LogTrack::default(),
        run: KernelRun::default(),
        offset_ns: 0,
        other_host: None,
        malformed: 0,
    };
    let mut take = |sample: KernelSample<'_>| {
        tracks.add(&sample, sink)?;
        tracks.put(sink)
    };
    let sources = [KernelPayload::Sched, KernelPayload::Profile, KernelPayload::Log];
    read_kernel_samples(request, &sources, watch, &mut take)?;
    tracks.sched.end(tracks.offset_ns);
    tracks.put(sink)?;
    let mut remarks = symbol_remarks(tracks.stacks.symbolizer());
    if let Some(host) = &tracks.other_host {
        // Process ids of two hosts cannot be distinguished, so only one host is in the trace.
        remarks.push(format!(
            "the trace has the scheduler and stacks of the host {} alone; --host {host} selects those of another",
            tracks.run.host
        ));
    }
    Ok(KernelTrace { malformed: tracks.malformed, remarks })
}

/// Before the export, reads the build ids of files for each run. This is needed because some build
/// ids are recorded after the stacks that refer to them.
fn read_known_code(
    request: &ColumnarRequest,
    watch: &mut ExportWatch<'_>,
) -> Result<HashMap<u64, KnownCode>, ColumnarError> {
    let mut known = HashMap::<u64, KnownCode>::new();
    let mut take = |sample: KernelSample<'_>| {
        let run_id = sample.run.run_id;
        if let Ok(batch) = ProfileBatch::read(sample.payload)
            && (known.len() < RUNS_MAX || known.contains_key(&run_id))
        {
            known.entry(run_id).or_default().add(&batch);
        }
        Ok(())
    };
    read_kernel_samples(request, &[KernelPayload::Profile], watch, &mut take)?;
    Ok(known)
}

struct KernelTracks {
    known_code: HashMap<u64, KnownCode>,
    /// The empty code information, for runs whose build ids were not read before the export.
    no_known_code: KnownCode,
    sched: SchedTracks,
    stacks: StackTracks,
    log: LogTrack,
    run: KernelRun,
    offset_ns: i64,
    /// The name of another host in the recording.
    other_host: Option<String>,
    malformed: u64,
}

impl KernelTracks {
    fn add(
        &mut self,
        sample: &KernelSample<'_>,
        sink: &mut dyn KernelTraceSink,
    ) -> Result<(), ColumnarError> {
        let KernelRun { run_id, host, machine_id, .. } = sample.run;
        let is_first = self.run == KernelRun::default();
        if !is_first && (host, machine_id) != (&self.run.host, &self.run.machine_id) {
            self.other_host = Some(host.clone());
            return Ok(());
        }
        // A sample after the selected time must not begin a clock.
        if sample.window.is_empty() {
            return Ok(());
        }
        let offset_ns = sink.offset_ns(sample.run, sample.mono_ns, sample.wall_ns)?;
        if *run_id != self.run.run_id {
            self.sched.end(self.offset_ns);
            self.log.begin_run();
            self.run = sample.run.clone();
        }
        self.offset_ns = offset_ns;
        let is_read = match sample.source {
            KernelPayload::Sched => SchedBatch::read(sample.payload)
                .map(|batch| self.sched.add(&batch, &sample.window, offset_ns)),
            KernelPayload::Profile => ProfileBatch::read(sample.payload).map(|batch| {
                for sampled in batch.samples().filter(|sampled| sample.window.contains(&sampled.time_ns)) {
                    self.sched.describe(sampled.thread, sampled.time_ns, offset_ns);
                }
                let boot_id = sample.run.boot_id.as_deref();
                let known_code = self.known_code.get(run_id).unwrap_or(&self.no_known_code);
                self.stacks.add(&batch, (boot_id, known_code), (&sample.window, offset_ns));
            }),
            KernelPayload::Log => LogBatch::read(sample.payload)
                .map(|batch| self.log.add((&batch, sample.mono_ns), &sample.window, offset_ns)),
        };
        self.malformed += u64::from(is_read.is_err());
        Ok(())
    }

    fn put(&mut self, sink: &mut dyn KernelTraceSink) -> Result<(), ColumnarError> {
        for packet in self.sched.take().into_iter().chain(self.log.take()) {
            sink.put_kernel(KernelSequence::Events, packet)?;
        }
        for packet in self.stacks.take() {
            sink.put_kernel(KernelSequence::Stacks, packet)?;
        }
        Ok(())
    }
}
