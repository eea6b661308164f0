//! Checked payloads of the source `profile`.

use flatbuffers::{ForwardsUOffset, Vector};

use crate::error::{PayloadError, check_index, check_times};
use crate::generated::kernel::{
    CodeKind, CodeObject, SampledThread, Stack, StackFrame, StackSample, root_as_profile,
};
use crate::task::{TaskName, ThreadInfo};

/// A payload of the source `profile`, which samples the code that threads were running.
#[derive(Debug, Clone, Copy)]
pub struct ProfileBatch<'p> {
    begin_ns: u64,
    end_ns: u64,
    interval_ns: u64,
    lost: u64,
    threads: Vector<'p, SampledThread>,
    samples: Vector<'p, StackSample>,
    stacks: Vector<'p, ForwardsUOffset<Stack<'p>>>,
    frames: Vector<'p, StackFrame>,
    objects: Vector<'p, ForwardsUOffset<CodeObject<'p>>>,
}

/// A sample of the code that a thread was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackSampleView {
    /// Time in monotonic nanoseconds.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadInfo,
    /// The CPU on which the thread ran.
    pub cpu: u16,
    /// Index of the call chain, for [`ProfileBatch::stack`].
    pub stack: u16,
}

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodePlace {
    /// Offset in the file of the object, or an address for objects without a file.
    pub offset: u64,
    /// Index of the object, for [`ProfileBatch::object`].
    pub object: u16,
}

/// An object that contains code, such as an executable or a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeObjectView<'p> {
    /// Kind of the object. The kind may have a value that this version of the schema does not
    /// define.
    pub kind: CodeKind,
    /// Path of the file, as the process sees it, or a name in brackets.
    pub path: &'p str,
    /// The build id, which is empty if it is unknown.
    pub build_id: &'p [u8],
    /// The version of a file that has no build id.
    pub version: Option<FileVersion>,
}

/// The size and the modification time of a file. Together with the path, they identify the content
/// of a file without a build id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileVersion {
    /// The file's size.
    pub bytes: u64,
    /// Time of the last modification of the file, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl CodeObjectView<'_> {
    /// Returns whether a build id or a version identifies the file that the process had mapped.
    pub(super) fn is_identified(&self) -> bool {
        !self.build_id.is_empty() || self.version.is_some()
    }
}

impl<'p> ProfileBatch<'p> {
    /// Checks a payload, including its whole structure, its times, and every index in it.
    ///
    /// # Errors
    /// Fails if the payload is malformed.
    pub fn read(payload: &'p [u8]) -> Result<Self, PayloadError> {
        let profile = root_as_profile(payload)?;
        let batch = Self {
            begin_ns: profile.begin(),
            end_ns: profile.end(),
            interval_ns: profile.interval(),
            lost: profile.lost(),
            threads: profile.threads(),
            samples: profile.samples(),
            stacks: profile.stacks(),
            frames: profile.frames(),
            objects: profile.objects(),
        };
        batch.check()?;
        Ok(batch)
    }

    fn check(&self) -> Result<(), PayloadError> {
        check_times(self.begin_ns, self.end_ns)?;
        for sample in self.samples {
            check_index(("samples", sample.thread()), ("threads", self.threads.len()))?;
            check_index(("samples", sample.stack()), ("stacks", self.stacks.len()))?;
        }
        for stack in self.stacks {
            for frame in stack.frames() {
                check_index(("stacks", frame), ("frames", self.frames.len()))?;
            }
        }
        for frame in self.frames {
            check_index(("frames", frame.object()), ("objects", self.objects.len()))?;
        }
        Ok(())
    }

    /// Returns the start of the time range that the payload's samples cover, in monotonic
    /// nanoseconds.
    pub fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// Returns the exclusive end of the time range that the payload's samples cover, in monotonic
    /// nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the CPU time that each sample represents, in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Returns the number of records that the kernel could not deliver since the source was opened.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the samples in time order.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = StackSampleView> + use<'p> {
        let threads = self.threads;
        self.samples.iter().map(move |sample| StackSampleView {
            time_ns: sample.time(),
            thread: thread_at(threads, sample.thread()),
            cpu: sample.cpu(),
            stack: sample.stack(),
        })
    }

    /// Returns the positions of a call chain, the innermost function first. The iterator is empty
    /// if the payload has no chain with this index.
    pub fn stack(&self, stack: u16) -> impl Iterator<Item = CodePlace> + use<'p> {
        let (at, frames) = (usize::from(stack), self.frames);
        let own = (at < self.stacks.len()).then(|| self.stacks.get(at).frames());
        own.into_iter().flatten().filter_map(move |frame| {
            let at = usize::from(frame);
            let frame = (at < frames.len()).then(|| frames.get(at))?;
            Some(CodePlace { offset: frame.offset(), object: frame.object() })
        })
    }

    /// Returns all objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = CodeObjectView<'p>> + use<'p> {
        self.objects.iter().map(object_view)
    }

    /// Returns an object, or `None` if the payload has no object with this index.
    pub fn object(&self, object: u16) -> Option<CodeObjectView<'p>> {
        let at = usize::from(object);
        let object = (at < self.objects.len()).then(|| self.objects.get(at))?;
        Some(object_view(object))
    }
}

fn object_view(object: CodeObject<'_>) -> CodeObjectView<'_> {
    CodeObjectView {
        kind: object.kind(),
        path: object.path(),
        build_id: object.build_id().map_or(&[][..], |bytes| bytes.bytes()),
        version: object.size().zip(object.modified()).map(version),
    }
}

fn version((bytes, modified_ns): (u64, i64)) -> FileVersion {
    FileVersion { bytes, modified_ns }
}

/// Returns the thread at an index that was already checked.
fn thread_at(threads: Vector<'_, SampledThread>, index: u16) -> ThreadInfo {
    let index = usize::from(index);
    if index >= threads.len() {
        return ThreadInfo::default();
    }
    let thread = threads.get(index);
    let name: [u8; 16] = thread.name().into();
    ThreadInfo { thread: thread.thread(), process: thread.process(), name: TaskName::new(&name) }
}
