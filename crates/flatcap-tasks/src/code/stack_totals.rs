//! Sums the CPU time of each call chain of each process in a window.

use std::collections::HashMap;
use std::ops::Range;

use super::batch::{CodeObjectView, FileVersion, ProfileBatch};
use super::known_code::KnownCode;
use crate::generated::kernel::CodeKind;
use crate::task::TaskName;

/// Maximum number of distinct call chains of processes.
const STACKS_MAX: usize = 1 << 14;
/// Maximum number of positions of a call chain that are stored, counted from the innermost
/// function. By default the kernel records up to 127 positions (`kernel.perf_event_max_stack`).
pub const STACK_DEPTH_MAX: usize = 512;
/// Maximum number of distinct positions in the code.
const FRAMES_MAX: usize = 1 << 18;
/// Maximum number of distinct objects, such as executables and libraries.
const OBJECTS_MAX: usize = 1 << 12;
/// The path of the object that represents all addresses outside known mappings. Such addresses are
/// rarely code.
const NOWHERE: &str = "[unknown]";

/// Sums samples of call chains. Equal call chains of one process are merged.
#[derive(Debug, Default)]
pub struct StackTotals {
    window: Range<u64>,
    objects: Vec<CodeObjectInfo>,
    object_numbers: HashMap<CodeObjectInfo, u32>,
    frames: Vec<CodeFrame>,
    frame_numbers: HashMap<CodeFrame, u32>,
    stacks: Vec<StackTotal>,
    stack_numbers: HashMap<(u32, Box<[u32]>), u32>,
    total_ns: u64,
    samples: u64,
    left_out_ns: u64,
    lost: u64,
    last_lost: Option<u64>,
}

/// An object that contains code, such as an executable or a library.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CodeObjectInfo {
    /// Kind of the object.
    pub kind: CodeKind,
    /// Path of the file, as the process saw it, or a name in brackets.
    pub path: Box<str>,
    /// The build id, which is empty if it is unknown.
    pub build_id: Box<[u8]>,
    /// The version of a file that has no build id.
    pub version: Option<FileVersion>,
    /// The process that owned the memory, if the object is memory without a file. The process is
    /// needed because other processes may have different code at the same addresses.
    pub process: Option<SampledProcess>,
}

/// A process whose memory has code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampledProcess {
    /// Process id.
    pub id: u32,
    /// The time of the process's first sample in the run, in monotonic nanoseconds. The value is 0
    /// before [`StackTotals::complete_objects`] is called.
    pub first_ns: u64,
}

impl CodeObjectInfo {
    /// Describes an object of a payload, for the samples of one process.
    pub fn of(object: &CodeObjectView<'_>, process: u32) -> Self {
        let is_memory = object.kind == CodeKind::Unknown && object.path != NOWHERE;
        let process = is_memory.then_some(SampledProcess { id: process, first_ns: 0 });
        Self {
            kind: object.kind,
            path: object.path.into(),
            build_id: object.build_id.into(),
            version: object.version,
            process,
        }
    }

    /// Adds the object's identity if other payloads of the run contain this identity.
    pub fn complete(&mut self, known: &KnownCode) {
        let view = CodeObjectView {
            kind: self.kind,
            path: &self.path,
            build_id: &self.build_id,
            version: self.version,
        };
        let completed = known.completed(view);
        let (build_id, version) = (completed.build_id.into(), completed.version);
        (self.build_id, self.version) = (build_id, version);
        // Code of an unknown process gets no names of functions, because the number of the process
        // may also belong to another process.
        self.process = self
            .process
            .and_then(|own| known.first_sample_ns(own.id).map(|first_ns| SampledProcess { first_ns, ..own }));
    }
}

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeFrame {
    /// Index of the object in [`StackTotals::objects`].
    pub object: u32,
    /// Offset in the file of the object, or an address for objects without a file.
    pub offset: u64,
}

/// A call chain of a process, and the CPU time of this chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackTotal {
    /// Process id.
    pub process: u32,
    /// Name of the thread. If the names of the process's threads differ, this is the name in the
    /// last sample.
    pub name: TaskName,
    /// The positions in the code, as indexes of [`StackTotals::frames`]. The first position is in
    /// the innermost function. The list is empty if the chain is unknown.
    pub frames: Box<[u32]>,
    /// Number of samples.
    pub samples: u64,
    /// CPU time that the samples represent, in nanoseconds.
    pub ns: u64,
}

/// The CPU time of a function in a process, or of a position whose function is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameTotal {
    /// Process id.
    pub process: u32,
    /// Name of one of the process's threads.
    pub name: TaskName,
    /// Name of the function, if it is known.
    pub function: Option<String>,
    /// The innermost position of the function in its call chain with the most CPU time, as an index
    /// of [`StackTotals::frames`].
    pub frame: u32,
    /// Time in the function's own code, in nanoseconds.
    pub self_ns: u64,
    /// Time in the function and in the functions that it called, in nanoseconds.
    pub total_ns: u64,
}

impl StackTotals {
    /// Creates empty sums for a time window in monotonic nanoseconds.
    pub fn new(window: Range<u64>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Adds the samples of a payload that are in the window.
    pub fn add(&mut self, batch: &ProfileBatch<'_>) {
        let last_lost = self.last_lost.replace(batch.lost()).unwrap_or(batch.lost());
        if batch.begin_ns() < self.window.end && batch.end_ns() > self.window.start {
            self.lost = self.lost.saturating_add(batch.lost().saturating_sub(last_lost));
        }
        // Caches for the indexes of the payload's objects and of the positions in its call chains.
        let mut known_objects = HashMap::<(u16, u32), Option<u32>>::new();
        let mut known_stacks = HashMap::<(u16, u32), Option<Box<[u32]>>>::new();
        let window = self.window.clone();
        for sample in batch.samples().filter(|sample| window.contains(&sample.time_ns)) {
            let frames = known_stacks
                .entry((sample.stack, sample.thread.process))
                .or_insert_with_key(|stack| self.number_stack(batch, *stack, &mut known_objects));
            let ns = batch.interval_ns();
            self.samples += 1;
            self.total_ns = self.total_ns.saturating_add(ns);
            let place = frames.as_ref().and_then(|frames| self.place(sample.thread.process, frames));
            let Some(total) = place.and_then(|place| self.stacks.get_mut(place)) else {
                self.left_out_ns = self.left_out_ns.saturating_add(ns);
                continue;
            };
            total.name = sample.thread.name;
            total.samples += 1;
            total.ns = total.ns.saturating_add(ns);
        }
    }

    /// Fills in the time of the first sample of each process, and the missing build ids and
    /// versions of files. Then merges positions and call chains that have become equal.
    pub fn complete_objects(&mut self, known: &KnownCode) {
        let mut objects = std::mem::take(&mut self.objects);
        for object in &mut objects {
            object.complete(known);
        }
        let frames = std::mem::take(&mut self.frames);
        let stacks = std::mem::take(&mut self.stacks);
        self.object_numbers.clear();
        self.frame_numbers.clear();
        self.stack_numbers.clear();
        let number = |object| number_of(&mut self.objects, &mut self.object_numbers, object, OBJECTS_MAX);
        let numbers: Vec<Option<u32>> = objects.into_iter().map(number).collect();
        for stack in stacks {
            // There are at most as many positions as before, so each position gets an index.
            let numbered = stack.frames.iter().filter_map(|frame| {
                let frame = frames.get(*frame as usize)?;
                let object = (*numbers.get(frame.object as usize)?)?;
                let frame = CodeFrame { object, ..*frame };
                number_of(&mut self.frames, &mut self.frame_numbers, frame, FRAMES_MAX)
            });
            let numbered: Box<[u32]> = numbered.collect();
            let place = self.place(stack.process, &numbered);
            let Some(total) = place.and_then(|place| self.stacks.get_mut(place)) else { continue };
            total.name = stack.name;
            total.samples += stack.samples;
            total.ns = total.ns.saturating_add(stack.ns);
        }
    }

    /// Returns the call chains, sorted by CPU time, longest first.
    pub fn stacks(&self) -> Vec<&StackTotal> {
        let mut stacks: Vec<&StackTotal> = self.stacks.iter().collect();
        stacks.sort_by_key(|stack| (std::cmp::Reverse(stack.ns), stack.process));
        stacks
    }

    /// Returns all positions in the code. Each position is part of a call chain.
    pub fn frames(&self) -> &[CodeFrame] {
        &self.frames
    }

    /// Returns all objects, such as executables and libraries.
    pub fn objects(&self) -> &[CodeObjectInfo] {
        &self.objects
    }

    /// Returns the object of a position.
    pub fn object(&self, frame: CodeFrame) -> Option<&CodeObjectInfo> {
        self.objects.get(frame.object as usize)
    }

    /// Returns a position by its index.
    pub fn frame(&self, frame: u32) -> Option<CodeFrame> {
        self.frames.get(frame as usize).copied()
    }

    /// Returns the time of each function in each process, sorted by the function's own time,
    /// longest first. Positions with the same name in one object are merged into one function.
    /// Positions without a name stay separate. A recursive function is counted once per call chain.
    pub fn functions(&self, mut name: impl FnMut(&CodeObjectInfo, u64) -> Option<String>) -> Vec<FrameTotal> {
        let names: Vec<Option<String>> = self
            .frames
            .iter()
            .map(|frame| self.object(*frame).and_then(|object| name(object, frame.offset)))
            .collect();
        // A function is identified by its object and its name. A position without a function name
        // is identified by its index.
        let mut functions = HashMap::<(u32, &str), u32>::new();
        let mut function_of: Vec<u32> = Vec::with_capacity(self.frames.len());
        for ((number, frame), name) in (0..).zip(&self.frames).zip(&names) {
            function_of.push(match name {
                Some(name) => *functions.entry((frame.object, name)).or_insert(number),
                None => number,
            });
        }
        let mut totals = HashMap::<(u32, u32), (FrameTotal, u64)>::new();
        // For each function, the number of the last call chain in which the function was seen,
        // counted from 1.
        let mut seen_in = vec![0_usize; self.frames.len()];
        for (stack_number, stack) in self.stacks.iter().enumerate() {
            for (depth, frame) in stack.frames.iter().enumerate() {
                let Some(function) = function_of.get(*frame as usize).copied() else { continue };
                let Some(seen_in) = seen_in.get_mut(function as usize) else { continue };
                if std::mem::replace(seen_in, stack_number + 1) == stack_number + 1 {
                    continue;
                }
                let (total, most_ns) = totals.entry((stack.process, function)).or_insert_with(|| {
                    let function = names.get(*frame as usize).cloned().flatten();
                    let (process, name) = (stack.process, stack.name);
                    (FrameTotal { process, name, function, frame: *frame, self_ns: 0, total_ns: 0 }, 0)
                });
                total.total_ns = total.total_ns.saturating_add(stack.ns);
                if depth == 0 {
                    total.self_ns = total.self_ns.saturating_add(stack.ns);
                }
                if stack.ns > *most_ns {
                    (*most_ns, total.frame) = (stack.ns, *frame);
                }
            }
        }
        let mut totals: Vec<FrameTotal> = totals.into_values().map(|(total, _)| total).collect();
        totals.sort_by_key(|total| {
            (std::cmp::Reverse((total.self_ns, total.total_ns)), total.process, total.frame)
        });
        totals
    }

    /// Returns the CPU time of all samples, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Returns the number of all samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the CPU time of call chains that were left out because of the limits, in
    /// nanoseconds.
    #[cfg(test)]
    pub(crate) fn left_out_ns(&self) -> u64 {
        self.left_out_ns
    }

    /// Returns the number of records that the kernel could not deliver while it recorded the
    /// payloads in the window.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the indexes of a call chain's positions, or `None` if a limit is reached.
    fn number_stack(
        &mut self,
        batch: &ProfileBatch<'_>,
        (stack, process): (u16, u32),
        known_objects: &mut HashMap<(u16, u32), Option<u32>>,
    ) -> Option<Box<[u32]>> {
        batch
            .stack(stack)
            .take(STACK_DEPTH_MAX)
            .map(|place| {
                let object = *known_objects.entry((place.object, process)).or_insert_with(|| {
                    let info = CodeObjectInfo::of(&batch.object(place.object)?, process);
                    number_of(&mut self.objects, &mut self.object_numbers, info, OBJECTS_MAX)
                });
                let object = object?;
                let frame = CodeFrame { object, offset: place.offset };
                number_of(&mut self.frames, &mut self.frame_numbers, frame, FRAMES_MAX)
            })
            .collect()
    }

    /// Returns the index of a call chain of a process, or `None` if the limit is reached.
    fn place(&mut self, process: u32, frames: &[u32]) -> Option<usize> {
        // Each lookup allocates a box for the key. This is acceptable because samples are rare, a
        // hundred per second on each CPU.
        let key = (process, Box::from(frames));
        if let Some(place) = self.stack_numbers.get(&key) {
            return usize::try_from(*place).ok();
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let place = self.stacks.len();
        self.stack_numbers.insert(key, u32::try_from(place).ok()?);
        let name = TaskName::default();
        self.stacks.push(StackTotal { process, name, frames: frames.into(), samples: 0, ns: 0 });
        Some(place)
    }
}

/// Returns the index of an item, and adds the item if it is new. Returns `None` if the limit is
/// reached.
fn number_of<T: Clone + Eq + std::hash::Hash>(
    items: &mut Vec<T>,
    numbers: &mut HashMap<T, u32>,
    item: T,
    most: usize,
) -> Option<u32> {
    if let Some(number) = numbers.get(&item) {
        return Some(*number);
    }
    let number = u32::try_from(items.len()).ok().filter(|_| items.len() < most)?;
    items.push(item.clone());
    numbers.insert(item, number);
    Some(number)
}
