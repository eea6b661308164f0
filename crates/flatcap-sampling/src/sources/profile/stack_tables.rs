//! The tables of a profile sample. Each thread, stack, code location and file is in a table only
//! once, and other elements refer to it by its index.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_os::build_id::FileContentId;
use flatcap_tasks::schema::{
    CodeObject, CodeObjectArgs, Profile, ProfileArgs, SampledThread, Stack, StackArgs, StackFrame,
    StackSample,
};

use super::code_file::CodeFile;
use super::task_table::ThreadName;

/// Maximum number of elements of a table, because indexes have 16 bits.
const INDEXES_MAX: usize = 1 << 16;
/// Maximum number of frames of all stacks together. This is enough for 8,000 of the deepest stacks
/// that the kernel records by default.
const STACK_FRAMES_MAX: usize = 1 << 20;
/// Maximum number of files. If all paths have the maximum length, this many files take a quarter of
/// a frame.
const OBJECTS_MAX: usize = 4096;

/// The time span of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProfileSpan {
    /// All records are at or after this time.
    pub(super) begin_ns: u64,
    /// All records are before this time.
    pub(super) end_ns: u64,
}

/// The time and place of one sampled call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// The time of the call chain, on `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    /// The CPU.
    pub(super) cpu: u16,
    /// Process and thread.
    pub(super) process: u32,
    pub(super) thread: u32,
}

/// The tables of a sample. The next sample reuses their memory.
#[derive(Debug, Default)]
pub(super) struct StackTables {
    hasher: RandomState,
    samples: Vec<StackSample>,
    threads: Vec<SampledThread>,
    thread_indexes: HashMap<u32, u16>,
    stacks: Vec<u16>, // the frames of all stacks, one after another
    stack_ends: Vec<usize>,
    stack_indexes: HashMap<u64, u16>, // by the hash of their frames
    frames: Vec<StackFrame>,
    frame_indexes: HashMap<(u16, u64), u16>,
    objects: Vec<RecordedObject>,
    object_indexes: HashMap<u64, u16>,       // by the id of the file
    equal_object_indexes: HashMap<u64, u16>, // by the hash of the recorded values
    stack_offsets: Vec<WIPOffset<Stack<'static>>>,
    object_offsets: Vec<WIPOffset<CodeObject<'static>>>,
}

/// A file, with the build id or version that was known when the sample first referred to the file.
#[derive(Debug)]
struct RecordedObject {
    file: Arc<CodeFile>,
    content: Option<FileContentId>,
}

impl StackTables {
    /// Removes all elements of all tables.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.threads.clear();
        self.thread_indexes.clear();
        self.stacks.clear();
        self.stack_ends.clear();
        self.stack_indexes.clear();
        self.frames.clear();
        self.frame_indexes.clear();
        self.objects.clear();
        self.object_indexes.clear();
        self.equal_object_indexes.clear();
    }

    /// Returns the index of a code location, that is, an offset in a file. Returns `None` if the
    /// tables have no space for this location.
    pub(super) fn frame(&mut self, file: &Arc<CodeFile>, offset: u64) -> Option<u16> {
        let object = self.object(file)?;
        if let Some(index) = self.frame_indexes.get(&(object, offset)) {
            return Some(*index);
        }
        let index = next_index(self.frames.len(), INDEXES_MAX)?;
        self.frames.push(StackFrame::new(offset, object));
        self.frame_indexes.insert((object, offset), index);
        Some(index)
    }

    fn object(&mut self, file: &Arc<CodeFile>) -> Option<u16> {
        if let Some(index) = self.object_indexes.get(&file.id) {
            return Some(*index);
        }
        // The recorded values are compared, because the same file may be mapped from two places. A
        // file may also be known by its build id in one process and by its inode in another.
        let content = file.content();
        let hash = self.hasher.hash_one((file.kind.0, &file.path, content));
        let index = if let Some(index) = self.equal_object_indexes.get(&hash) {
            *index
        } else {
            let index = next_index(self.objects.len(), OBJECTS_MAX)?;
            self.objects.push(RecordedObject { file: Arc::clone(file), content });
            self.equal_object_indexes.insert(hash, index);
            index
        };
        self.object_indexes.insert(file.id, index);
        Some(index)
    }

    /// Adds a call chain, given as the indexes of its frames. `name` is called if the thread is
    /// new. Returns false if there is no space.
    pub(super) fn add(&mut self, moment: Moment, frames: &[u16], name: impl FnOnce() -> ThreadName) -> bool {
        let Some(stack) = self.stack(frames) else { return false };
        let thread = if let Some(index) = self.thread_indexes.get(&moment.thread) {
            *index
        } else {
            let Some(index) = next_index(self.threads.len(), INDEXES_MAX) else { return false };
            self.threads.push(SampledThread::new(moment.thread, moment.process, &name()));
            self.thread_indexes.insert(moment.thread, index);
            index
        };
        self.samples.push(StackSample::new(moment.time_ns, thread, moment.cpu, stack));
        true
    }

    fn stack(&mut self, frames: &[u16]) -> Option<u16> {
        let hash = self.hasher.hash_one(frames);
        if let Some(index) = self.stack_indexes.get(&hash) {
            return Some(*index);
        }
        if self.stacks.len() + frames.len() > STACK_FRAMES_MAX {
            return None;
        }
        let index = next_index(self.stack_ends.len(), INDEXES_MAX)?;
        self.stacks.extend_from_slice(frames);
        self.stack_ends.push(self.stacks.len());
        self.stack_indexes.insert(hash, index);
        Some(index)
    }

    /// Finishes the payload. Each call chain represents `interval_ns` of CPU time. `lost` is the
    /// number of lost records since the source was opened.
    pub(super) fn build(
        &mut self,
        span: ProfileSpan,
        interval_ns: u64,
        lost: u64,
        builder: &mut FlatBufferBuilder<'static>,
    ) {
        let mut begin = 0;
        self.stack_offsets.clear();
        for end in &self.stack_ends {
            let frames = Some(builder.create_vector(self.stacks.get(begin..*end).unwrap_or_default()));
            self.stack_offsets.push(Stack::create(builder, &StackArgs { frames }));
            begin = *end;
        }
        self.object_offsets.clear();
        for RecordedObject { file, content } in &self.objects {
            let path = Some(builder.create_string(&file.path));
            let mut object = CodeObjectArgs { kind: file.kind, path, ..CodeObjectArgs::default() };
            match content {
                Some(FileContentId::BuildId(id)) => {
                    object.build_id = Some(builder.create_vector(id.as_bytes()));
                }
                Some(FileContentId::Version(version)) => {
                    (object.size, object.modified) = (Some(version.bytes), Some(version.modified_ns));
                }
                None => {}
            }
            self.object_offsets.push(CodeObject::create(builder, &object));
        }
        let profile = ProfileArgs {
            begin: span.begin_ns,
            end: span.end_ns,
            interval: interval_ns,
            lost,
            threads: Some(builder.create_vector(&self.threads)),
            samples: Some(builder.create_vector(&self.samples)),
            stacks: Some(builder.create_vector(&self.stack_offsets)),
            frames: Some(builder.create_vector(&self.frames)),
            objects: Some(builder.create_vector(&self.object_offsets)),
        };
        let root = Profile::create(builder, &profile);
        builder.finish_minimal(root);
    }
}

/// Returns the index of the next element of a table that has `elements` elements. Returns `None` if
/// the table is full.
fn next_index(elements: usize, elements_max: usize) -> Option<u16> {
    u16::try_from(elements).ok().filter(|_| elements < elements_max)
}

#[cfg(test)]
mod tests {
    use flatcap_os::build_id::{ElfBuildId, FileStamp};
    use flatcap_tasks::schema::CodeKind;

    use super::super::RECORDS_MAX;
    use super::super::code_file::{CodeFiles, FileIdentity, PATH_BYTES_MAX};
    use super::*;

    const SPAN: ProfileSpan = ProfileSpan { begin_ns: 1, end_ns: 100 };

    fn payload(tables: &mut StackTables) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        tables.build(SPAN, 10, 3, &mut builder);
        builder.finished_data().to_vec()
    }

    fn moment(thread: u32) -> Moment {
        Moment { time_ns: 5, cpu: 1, process: 7, thread }
    }

    // Proves that an element that is mentioned twice is stored only one time. A file that is
    // identified in two ways is stored as one element, and the frames of a call chain can be found.
    #[test]
    fn everything_is_there_once() {
        let mut files = CodeFiles::new(0);
        let build_id = ElfBuildId::new(b"id");
        let by_id = FileIdentity { path: b"/a", build_id, device: (0, 0), inode: 0 };
        let by_id = files.get(&by_id).unwrap();
        let by_inode = files.get(&FileIdentity { path: b"/a", build_id: None, device: (8, 1), inode: 2 });
        let by_inode = by_inode.unwrap();
        let mut tables = StackTables::default();
        let without = tables.frame(&by_inode, 16).unwrap();
        assert_ne!(tables.frame(&by_id, 16), Some(without), "its build id is not known yet");
        by_inode.finish_lookup(build_id.map(FileContentId::BuildId));
        tables.clear();
        let frames = [tables.frame(&by_id, 16), tables.frame(&by_inode, 32), tables.frame(&by_inode, 16)];
        let frames = frames.map(Option::unwrap);
        assert_eq!(frames, [0, 1, 0]);
        let name = || *b"worker\0\0\0\0\0\0\0\0\0\0";
        assert!(tables.add(moment(8), &frames[..2], name) && tables.add(moment(9), &frames[..2], name));
        assert!(tables.add(moment(8), &frames[1..], || panic!("its name is known")));
        let payload = payload(&mut tables);
        let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
        assert_eq!((profile.begin(), profile.end(), profile.interval(), profile.lost()), (1, 100, 10, 3));
        assert_eq!((profile.threads().len(), profile.stacks().len(), profile.objects().len()), (2, 2, 1));
        let last = profile.samples().get(2);
        let thread = profile.threads().get(usize::from(last.thread()));
        assert_eq!((thread.thread(), thread.process(), last.time(), last.cpu()), (8, 7, 5, 1));
        let stack = profile.stacks().get(usize::from(last.stack()));
        let offsets: Vec<u64> =
            stack.frames().iter().map(|frame| profile.frames().get(usize::from(frame)).offset()).collect();
        assert_eq!(offsets, [32, 16]);
        let object = profile.objects().get(0);
        assert_eq!((object.kind(), object.path()), (CodeKind::File, "/a"));
        assert_eq!(object.build_id().unwrap().bytes(), b"id");
        tables.clear();
        assert_eq!(flatbuffers::root::<Profile<'_>>(&self::payload(&mut tables)).unwrap().samples().len(), 0);
    }

    // Proves that a file without a build id has its version instead.
    #[test]
    fn a_file_without_build_id_has_a_version() {
        let mut files = CodeFiles::new(0);
        let file =
            files.get(&FileIdentity { path: b"/a", build_id: None, device: (8, 1), inode: 2 }).unwrap();
        file.finish_lookup(Some(FileContentId::Version(FileStamp { bytes: 0, modified_ns: -3 })));
        let mut tables = StackTables::default();
        tables.frame(&file, 16).unwrap();
        let payload = payload(&mut tables);
        let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
        let object = profile.objects().get(0);
        assert_eq!(
            (object.build_id().is_none(), object.size(), object.modified()),
            (true, Some(0), Some(-3))
        );
    }

    // Proves that a sample with full tables fits into a frame of the default `frame_max`, and that
    // elements that do not fit into the tables are refused.
    #[test]
    fn full_tables_fit_into_a_frame() {
        let mut files = CodeFiles::new(0);
        let mut tables = StackTables::default();
        let path = "x".repeat(PATH_BYTES_MAX);
        let mut objects = Vec::new();
        for inode in 0..=OBJECTS_MAX as u64 {
            let path = format!("/{inode}{path}");
            let identity = FileIdentity { path: path.as_bytes(), build_id: None, device: (0, 0), inode };
            objects.push(files.get(&identity).unwrap());
        }
        for index in 0..INDEXES_MAX {
            assert!(tables.frame(&objects[index % OBJECTS_MAX], index as u64).is_some());
        }
        assert_eq!(tables.frame(&objects[OBJECTS_MAX], 0), None);
        assert_eq!(tables.frame(&objects[0], u64::MAX), None);
        let mut frames = [0; STACK_FRAMES_MAX / RECORDS_MAX];
        for index in 0..RECORDS_MAX {
            frames[0] = u16::try_from(index).unwrap();
            assert!(tables.add(moment(u32::from(frames[0])), &frames, || [0; 16]));
        }
        assert!(!tables.add(moment(0), &[1], || [0; 16]), "there is no space for another stack");
        let payload = payload(&mut tables);
        assert!(payload.len() <= 15 << 20, "{}", payload.len());
        assert_eq!(flatbuffers::root::<Profile<'_>>(&payload).unwrap().samples().len(), RECORDS_MAX);
    }
}
