//! Sampled stacks as lines of text, with the number of samples of each stack.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flatcap_format::schema::text_of;
use flatcap_symbols::{BuildId, CodeLocation, CodeProcess, ObjectKey, ObjectKind, ObjectVersion, Symbolizer};
use flatcap_tasks::schema::CodeKind;
use flatcap_tasks::{CodeObjectInfo, KnownCode, ProfileBatch, StackTotal, StackTotals, TaskName};

use crate::error::ColumnarError;
use crate::kernel_samples::{KernelPayload, KernelRun, KernelSample, read_kernel_samples};
use crate::request::{ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::watch::ExportWatch;

/// Number of samples after which the functions of the collected stacks are named.
const SAMPLES_AT_ONCE: u64 = 8192;
/// Maximum number of bytes of all lines. Further stacks are left out and counted.
const LINES_BYTES_MAX: usize = 256 << 20;
/// Maximum number of processes whose names are kept.
const PROCESSES_MAX: usize = 1 << 16;
/// Maximum number of object files that are reported as lacking function names.
const ERRORS_SHOWN: usize = 8;

/// The stacks to export, and the settings for their names.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct StackOptions {
    /// Only the stacks of this process: its name or its id.
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
    /// Look for executables and debug files in this directory first; can be repeated.
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) symbol_directories: Vec<PathBuf>,
}

/// Stacks as text.
#[derive(Debug, Default)]
pub(crate) struct StackLines {
    /// The samples of each stack `process;outer;...;inner`, sorted by this text.
    pub(crate) lines: BTreeMap<String, StackCount>,
    /// Number of all samples in the lines.
    pub(crate) samples: u64,
    /// CPU time of all stacks, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// The names of the hosts.
    pub(crate) hosts: BTreeSet<String>,
}

/// The samples of a stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StackCount {
    pub(crate) samples: u64,
    /// CPU time of these samples, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

impl StackLines {
    /// Writes folded stacks, the input of tools for flame graphs. These are lines
    /// `process;outer;...;inner count`, sorted by their text.
    pub(crate) fn put_folded(&self, out: &mut SingleOutput) -> Result<(), ColumnarError> {
        let mut lines = self.lines.iter();
        lines.try_for_each(|(line, total)| out.put(format!("{line} {}\n", total.samples).as_bytes()))
    }
}

/// Writes the selected stacks with the function `write`. With a path, the output is a file, which
/// gets its name when it is complete. Without a path, it is standard output. The output is
/// deterministic, so the same stacks always give the same bytes.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn write_stacks(
    request: &ColumnarRequest,
    path: Option<&Path>,
    options: &StackOptions,
    watch: &mut ExportWatch<'_>,
    write: impl FnOnce(&StackLines, &mut SingleOutput) -> Result<(), ColumnarError>,
) -> Result<ColumnarReport, ColumnarError> {
    let mut collector = StackCollector::new(options);
    let mut take = |sample: KernelSample<'_>| {
        collector.add(&sample);
        Ok(())
    };
    let has_source = read_kernel_samples(request, &[KernelPayload::Profile], watch, &mut take)?;
    collector.name_functions();
    if collector.stacks.samples == 0 {
        watch.check_readable()?;
        return Err(collector.no_stacks(request, has_source)?);
    }
    let report = collector.report();
    let mut out = SingleOutput::create(path, request.should_replace)?;
    write(&collector.stacks, &mut out)?;
    let files = out.complete(request.should_replace, (None, collector.stacks.samples))?;
    Ok(ColumnarReport { files, ..report })
}

/// Adds up samples. Names the functions of the collected samples whenever there are enough of them.
struct StackCollector<'o> {
    options: &'o StackOptions,
    symbolizer: Symbolizer,
    run: KernelRun,
    window: Range<u64>,
    totals: StackTotals,
    /// The code in the files that the run has described so far.
    known_code: KnownCode,
    /// The names of the run's processes. A process has the name of its first thread.
    processes: HashMap<u32, TaskName>,
    stacks: StackLines,
    bytes: usize,
    left_out: u64,
    other_samples: u64,
    malformed: u64,
    lost: u64,
    last_lost: Option<u64>,
    unnamed_places: u64,
    places: u64,
}

impl<'o> StackCollector<'o> {
    fn new(options: &'o StackOptions) -> Self {
        Self {
            options,
            symbolizer: Symbolizer::new(options.symbol_directories.clone()),
            run: KernelRun::default(),
            window: 0..0,
            totals: StackTotals::new(0..0),
            known_code: KnownCode::default(),
            processes: HashMap::new(),
            stacks: StackLines::default(),
            bytes: 0,
            left_out: 0,
            other_samples: 0,
            malformed: 0,
            lost: 0,
            last_lost: None,
            unnamed_places: 0,
            places: 0,
        }
    }

    fn add(&mut self, sample: &KernelSample<'_>) {
        let Ok(batch) = ProfileBatch::read(sample.payload) else {
            self.malformed += 1;
            return;
        };
        if *sample.run != self.run {
            self.name_functions();
            if sample.run.run_id != self.run.run_id {
                self.processes.clear();
                self.known_code = KnownCode::default();
                self.last_lost = None;
            }
            self.stacks.hosts.insert(sample.run.host.clone());
            self.run = sample.run.clone();
        }
        if sample.window != self.window || self.totals.samples() >= SAMPLES_AT_ONCE {
            self.name_functions();
            self.window = sample.window.clone();
            self.totals = StackTotals::new(sample.window.clone());
        }
        if batch.begin_ns() < sample.window.end && batch.end_ns() > sample.window.start {
            let before = self.last_lost.unwrap_or(batch.lost());
            self.lost = self.lost.saturating_add(batch.lost().saturating_sub(before));
        }
        self.last_lost = Some(batch.lost());
        for thread in batch.samples().map(|sample| sample.thread) {
            let is_known = self.processes.contains_key(&thread.process);
            let is_first_thread = thread.thread == thread.process && !thread.name.is_empty();
            if is_first_thread && (is_known || self.processes.len() < PROCESSES_MAX) {
                self.processes.insert(thread.process, thread.name);
            }
        }
        self.known_code.add(&batch);
        self.totals.add(&batch);
    }

    /// Converts the collected stacks to lines.
    fn name_functions(&mut self) {
        let mut totals = std::mem::replace(&mut self.totals, StackTotals::new(self.window.clone()));
        totals.complete_objects(&self.known_code);
        let objects = totals.objects().iter();
        let objects: Vec<ObjectKey> =
            objects.map(|object| object_key(object, self.run.boot_id.as_deref())).collect();
        // The code locations are sorted by object, so that a large file is read only one time, even
        // if the symbolizer cannot keep all objects.
        let mut places: BTreeSet<(u32, u64, bool)> = BTreeSet::new();
        for stack in totals.stacks().into_iter().filter(|stack| self.is_named(stack)) {
            let frames = stack.frames.iter().enumerate();
            let frames = frames.filter_map(|(depth, frame)| Some((depth, totals.frame(*frame)?)));
            places.extend(frames.map(|(depth, frame)| (frame.object, frame.offset, depth > 0)));
        }
        for (object, offset, is_return) in places {
            let Some(object) = objects.get(object as usize) else { continue };
            self.symbolizer.names(object, CodeLocation { offset, is_return });
        }
        let mut named = 0;
        for stack in totals.stacks() {
            named += stack.samples;
            // Process 0 contains the idle loops of the CPUs.
            if stack.process == 0 {
                continue;
            }
            let process = self.process_name(stack);
            if !self.is_wanted(stack.process, process) {
                self.other_samples += stack.samples;
                continue;
            }
            let mut line = if process.is_empty() {
                format!("[process {}]", stack.process)
            } else {
                part(&text_of(process.as_bytes()))
            };
            if stack.frames.is_empty() {
                line.push_str(";[unknown]");
            }
            for (depth, frame) in stack.frames.iter().enumerate().rev() {
                let Some(frame) = totals.frame(*frame) else { continue };
                let Some(object) = objects.get(frame.object as usize) else { continue };
                let location = CodeLocation { offset: frame.offset, is_return: depth > 0 };
                let found = self.symbolizer.names(object, location);
                self.places += stack.samples;
                self.unnamed_places += if found.is_known { 0 } else { stack.samples };
                for name in found.names.iter().rev() {
                    line.push(';');
                    line.push_str(&part(name));
                }
            }
            self.put(line, StackCount { samples: stack.samples, cpu_ns: stack.ns });
        }
        // These samples have stacks beyond the limits of `totals`.
        self.left_out += totals.samples().saturating_sub(named);
    }

    fn put(&mut self, line: String, count: StackCount) {
        let bytes = line.len() + size_of::<(String, StackCount)>();
        if !self.stacks.lines.contains_key(&line) {
            if self.bytes + bytes > LINES_BYTES_MAX {
                self.left_out += count.samples;
                return;
            }
            self.bytes += bytes;
        }
        let total = self.stacks.lines.entry(line).or_default();
        total.samples += count.samples;
        total.cpu_ns = total.cpu_ns.saturating_add(count.cpu_ns);
        self.stacks.samples += count.samples;
        self.stacks.cpu_ns = self.stacks.cpu_ns.saturating_add(count.cpu_ns);
    }

    /// Returns the name of the process of a stack.
    fn process_name(&self, stack: &StackTotal) -> TaskName {
        self.processes.get(&stack.process).copied().unwrap_or(stack.name)
    }

    /// Returns whether a stack becomes a line.
    fn is_named(&self, stack: &StackTotal) -> bool {
        stack.process != 0 && self.is_wanted(stack.process, self.process_name(stack))
    }

    fn is_wanted(&self, id: u32, name: TaskName) -> bool {
        let is_own = |wanted: &str| wanted == text_of(name.as_bytes()) || wanted == id.to_string();
        self.options.process.as_deref().is_none_or(is_own)
    }

    fn report(&self) -> ColumnarReport {
        let mut remarks = symbol_remarks(&self.symbolizer);
        if self.unnamed_places > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = 100.0 * self.unnamed_places as f64 / self.places.max(1) as f64;
            remarks.push(format!("{share:.1} % of the places in stacks have no name of a function"));
        }
        if self.left_out > 0 {
            remarks.push(format!("{} samples are left out: too many different stacks", self.left_out));
        }
        if self.lost > 0 {
            remarks.push(format!("the kernel could not deliver {} records of this time", self.lost));
        }
        ColumnarReport { undecodable: self.malformed, remarks, ..ColumnarReport::default() }
    }

    /// Returns the error for an export without stacks.
    fn no_stacks(&self, request: &ColumnarRequest, has_source: bool) -> Result<ColumnarError, ColumnarError> {
        if let Some(process) = self.options.process.as_deref().filter(|_| self.other_samples > 0) {
            let text = format!("--process {process}: no process of that name or id was sampled in this time");
            return Ok(ColumnarError::Usage(text));
        }
        if !has_source {
            let text = "the recording has no stacks: the source profile records them, if it is enabled";
            return Ok(ColumnarError::Usage(text.to_owned()));
        }
        let none = || ColumnarError::NoSamples("the source profile has none at all".to_owned());
        Ok(request.no_samples()?.unwrap_or_else(none))
    }
}

/// Returns remarks for the user about missing names of functions.
pub(crate) fn symbol_remarks(symbolizer: &Symbolizer) -> Vec<String> {
    let errors = symbolizer.errors();
    let shown = errors.iter().take(ERRORS_SHOWN).map(|error| format!("no names of functions: {error}"));
    let mut remarks: Vec<String> = shown.collect();
    if errors.len() > ERRORS_SHOWN {
        remarks.push(format!("no names of functions for {} further files", errors.len() - ERRORS_SHOWN));
    }
    remarks
}

/// Returns the key of an object for the symbolizer.
pub(crate) fn object_key(object: &CodeObjectInfo, boot_id: Option<&str>) -> ObjectKey {
    let kind = match object.kind {
        CodeKind::File => ObjectKind::File,
        CodeKind::Kernel => ObjectKind::Kernel,
        CodeKind::KernelAddress => ObjectKind::KernelAddress,
        _ => ObjectKind::Unknown,
    };
    let is_of_boot =
        matches!(kind, ObjectKind::Kernel | ObjectKind::KernelAddress) || object.process.is_some();
    let version = object.version;
    ObjectKey {
        kind,
        path: object.path.to_string(),
        build_id: BuildId::new(&object.build_id),
        version: version
            .map(|version| ObjectVersion { bytes: version.bytes, modified_ns: version.modified_ns }),
        process: object.process.map(|process| CodeProcess { id: process.id, first_ns: process.first_ns }),
        boot_id: boot_id.filter(|_| is_of_boot).map(str::to_owned),
    }
}

/// Returns a name in a form that can be a part of a line. `;` and line ends are replaced, because
/// they would end the part.
fn part(name: &str) -> String {
    let plain = |c: char| match c {
        ';' => ':',
        c if c.is_control() => '?',
        c => c,
    };
    name.chars().map(plain).collect()
}
