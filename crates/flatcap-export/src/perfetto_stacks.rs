//! Sampled stacks in a trace of Perfetto. Functions, files and stacks are interned: each item is
//! written once. Later packets refer to the item by an id.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use flatcap_symbols::{CodeLocation, ObjectKey, ObjectKind, Symbolizer};
use flatcap_tasks::{CodeObjectInfo, KnownCode, ProfileBatch, STACK_DEPTH_MAX, StackSampleView};

use crate::perfetto_packets::{
    InternedData, InternedString, MODE_KERNEL, MODE_USER, PerfSample, PerfSampleDefaults, SEQUENCE_BEGINS,
    SEQUENCE_CONTINUES, SW_CPU_CLOCK, Timebase, TraceCallstack, TraceFrame, TraceMapping, TracePacket,
    TracePacketDefaults,
};
use crate::stack_lines::object_key;

/// Maximum number of interned items of one kind. Beyond this number, all items are forgotten and
/// interned again.
const INTERNED_MAX: usize = 1 << 17;

/// Creates packets from the samples of a host.
#[derive(Debug)]
pub(crate) struct StackTracks {
    symbolizer: Symbolizer,
    interned: InternedNumbers,
    /// The time that one sample represents according to the last packet, in nanoseconds.
    interval_ns: Option<u64>,
    packets: Vec<TracePacket>,
}

/// The ids of interned data.
#[derive(Debug, Default)]
struct InternedNumbers {
    functions: HashMap<String, u64>,
    paths: HashMap<String, u64>,
    build_ids: HashMap<Vec<u8>, u64>,
    mappings: HashMap<ObjectKey, u64>,
    frames: HashMap<(u64, u64, u64), u64>,
    callstacks: HashMap<Vec<u64>, u64>,
    /// The interned data that the next packet must contain.
    fresh: InternedData,
}

impl StackTracks {
    pub(crate) fn new(symbolizer: Symbolizer) -> Self {
        Self { symbolizer, interned: InternedNumbers::default(), interval_ns: None, packets: Vec::new() }
    }

    /// Returns the symbolizer that named the functions.
    pub(crate) fn symbolizer(&self) -> &Symbolizer {
        &self.symbolizer
    }

    /// Adds those samples of a payload that are in the selected time range. `boot_id` and
    /// `known_code` belong to the run of the payload. `offset_ns` is time in the trace minus
    /// monotonic time.
    pub(crate) fn add(
        &mut self,
        batch: &ProfileBatch<'_>,
        (boot_id, known_code): (Option<&str>, &KnownCode),
        (window, offset_ns): (&Range<u64>, i64),
    ) {
        let is_selected = |sample: &StackSampleView| window.contains(&sample.time_ns);
        // The stacks of the idle loops of the CPUs are not interesting.
        let samples = batch.samples().filter(is_selected).filter(|sample| !sample.thread.is_idle());
        let mut known: HashMap<(u16, u32), (u64, i32)> = HashMap::new();
        for sample in samples {
            self.begin(batch.interval_ns());
            let stack = known.entry((sample.stack, sample.thread.process));
            let (callstack, mode) =
                *stack.or_insert_with_key(|stack| self.stack(batch, *stack, (boot_id, known_code)));
            let perf_sample = PerfSample {
                cpu: Some(u32::from(sample.cpu)),
                pid: Some(sample.thread.process),
                tid: Some(sample.thread.thread),
                callstack_iid: Some(callstack),
                cpu_mode: Some(mode),
            };
            self.packets.push(TracePacket {
                timestamp: Some(sample.time_ns.saturating_add_signed(offset_ns)),
                sequence_flags: Some(SEQUENCE_CONTINUES),
                interned_data: self.interned.take(),
                perf_sample: Some(perf_sample),
                ..TracePacket::default()
            });
        }
        if self.interned.is_full() {
            self.interned = InternedNumbers::default();
            self.interval_ns = None;
        }
    }

    /// Returns the packets that were added since the last call.
    pub(crate) fn take(&mut self) -> Vec<TracePacket> {
        std::mem::take(&mut self.packets)
    }

    /// Begins the interned data, unless it has begun.
    fn begin(&mut self, interval_ns: u64) {
        if self.interval_ns.replace(interval_ns) == Some(interval_ns) {
            return;
        }
        self.interned = InternedNumbers::default();
        let timebase = Timebase { period: Some(interval_ns), counter: Some(SW_CPU_CLOCK) };
        let perf_sample_defaults = Some(PerfSampleDefaults { timebase: Some(timebase) });
        self.packets.push(TracePacket {
            sequence_flags: Some(SEQUENCE_BEGINS),
            defaults: Some(TracePacketDefaults { perf_sample_defaults }),
            ..TracePacket::default()
        });
    }

    /// Returns the id of a stack, and the mode in which the innermost function of the stack ran.
    fn stack(
        &mut self,
        batch: &ProfileBatch<'_>,
        (stack, process): (u16, u32),
        (boot_id, known_code): (Option<&str>, &KnownCode),
    ) -> (u64, i32) {
        let (mut frames, mut mode) = (Vec::new(), MODE_USER);
        for (depth, place) in batch.stack(stack).take(STACK_DEPTH_MAX).enumerate() {
            let Some(object) = batch.object(place.object) else { continue };
            let mut info = CodeObjectInfo::of(&object, process);
            info.complete(known_code);
            let object = object_key(&info, boot_id);
            if depth == 0 && matches!(object.kind, ObjectKind::Kernel | ObjectKind::KernelAddress) {
                mode = MODE_KERNEL;
            }
            let location = CodeLocation { offset: place.offset, is_return: depth > 0 };
            let found = self.symbolizer.names(&object, location);
            let mapping = self.interned.mapping(&object, &info.build_id);
            for name in found.names {
                frames.push(self.interned.frame(mapping, place.offset, name));
            }
        }
        // The trace stores the outermost frame first.
        frames.reverse();
        (self.interned.callstack(frames), mode)
    }
}

impl InternedNumbers {
    fn is_full(&self) -> bool {
        [self.functions.len(), self.frames.len(), self.callstacks.len(), self.mappings.len()]
            .into_iter()
            .any(|count| count > INTERNED_MAX)
    }

    /// Returns the interned data that the next packet must contain, if there is any.
    fn take(&mut self) -> Option<InternedData> {
        let fresh = std::mem::take(&mut self.fresh);
        (fresh != InternedData::default()).then_some(fresh)
    }

    fn mapping(&mut self, object: &ObjectKey, build_id: &[u8]) -> u64 {
        if let Some(iid) = self.mappings.get(object) {
            return *iid;
        }
        let parts = object.path.split('/').filter(|part| !part.is_empty());
        let path_string_ids = parts
            .map(|part| {
                let (iid, is_new) = number(&mut self.paths, part.to_owned());
                self.fresh.mapping_paths.extend(is_new.then(|| string(iid, part.as_bytes())));
                iid
            })
            .collect();
        let build_id = (!build_id.is_empty()).then(|| {
            let (iid, is_new) = number(&mut self.build_ids, build_id.to_vec());
            self.fresh.build_ids.extend(is_new.then(|| string(iid, build_id)));
            iid
        });
        let (iid, _) = number(&mut self.mappings, object.clone());
        self.fresh.mappings.push(TraceMapping { iid: Some(iid), build_id, path_string_ids });
        iid
    }

    fn frame(&mut self, mapping: u64, offset: u64, name: String) -> u64 {
        let text = name.clone();
        let (function, is_new) = number(&mut self.functions, name);
        self.fresh.function_names.extend(is_new.then(|| string(function, text.as_bytes())));
        let (iid, is_new) = number(&mut self.frames, (mapping, offset, function));
        let frame = || TraceFrame {
            iid: Some(iid),
            function_name_id: Some(function),
            mapping_id: Some(mapping),
            rel_pc: Some(offset),
        };
        self.fresh.frames.extend(is_new.then(frame));
        iid
    }

    fn callstack(&mut self, frames: Vec<u64>) -> u64 {
        let (iid, is_new) = number(&mut self.callstacks, frames.clone());
        let callstack = || TraceCallstack { iid: Some(iid), frame_ids: frames };
        self.fresh.callstacks.extend(is_new.then(callstack));
        iid
    }
}

/// Returns the id of an item, and whether the item is new. Ids begin with 1.
fn number<T: Eq + Hash>(numbers: &mut HashMap<T, u64>, item: T) -> (u64, bool) {
    let next = numbers.len() as u64 + 1;
    let iid = *numbers.entry(item).or_insert(next);
    (iid, iid == next)
}

fn string(iid: u64, text: &[u8]) -> InternedString {
    InternedString { iid: Some(iid), str: Some(text.to_vec()) }
}
