//! Call chains of a host, and the state that locates their code. The state consists of the mappings
//! of the host's processes and the names of its threads. Records of the kernel update this state.

use std::io;
use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::build_id::ElfBuildId;
use flatcap_os::host::HostRoot;
use flatcap_os::perf_record::{CallChain, MappingRecord, PerfRecord, RecordedEvent, ThreadId};
use flatcap_tasks::schema::CodeKind;

use super::address_space::CodeMapping;
use super::build_id_lookups::BuildIdLookups;
use super::code_file::{CodeFile, CodeFiles, FileIdentity};
use super::existing_processes::{self, ReadProcesses};
use super::kernel_code::KernelCode;
use super::stack_tables::{Moment, ProfileSpan, StackTables};
use super::task_table::{TaskTable, ThreadName};
use super::thread_names::ThreadNames;

/// Maximum number of frames of a recorded call chain. Chains have more than 127 frames only if
/// `kernel.perf_event_max_stack` allows this.
const FRAMES_MAX: usize = 1024;
/// Ids of code that is not in a file, and the first id of a file.
const KERNEL_ID: u64 = 0;
const UNKNOWN_ID: u64 = 1;
const FIRST_FILE_ID: u64 = 2;
/// Name of code that is in no known mapping.
const UNKNOWN: &str = "[unknown]";

/// The call chains of a sample, and the known state of the host.
#[derive(Debug)]
pub(super) struct CallChains {
    tables: StackTables,
    files: CodeFiles,
    tasks: TaskTable,
    names: ThreadNames,
    lookups: BuildIdLookups,
    kernel: KernelCode,
    unknown: Arc<CodeFile>,
    frames: Vec<u16>, // of one chain, reused
    interval_ns: u64, // CPU time between two call chains
    lost: u64,        // number of lost records
}

impl CallChains {
    /// Creates the state before anything is known about the host. `interval_ns` is the CPU time
    /// that each call chain represents.
    ///
    /// # Errors
    /// Fails if the list of the host's processes cannot be opened, or if the kernel refuses another
    /// thread.
    pub(super) fn new(host: &HostRoot, interval_ns: u64) -> io::Result<Self> {
        Ok(Self {
            tables: StackTables::default(),
            files: CodeFiles::new(FIRST_FILE_ID),
            tasks: TaskTable::default(),
            names: ThreadNames::open(host)?,
            lookups: BuildIdLookups::start(host)?,
            kernel: KernelCode::read(host, KERNEL_ID),
            unknown: Arc::new(CodeFile::other(UNKNOWN_ID, CodeKind::Unknown, UNKNOWN, None)),
            frames: Vec::with_capacity(FRAMES_MAX),
            interval_ns,
            lost: 0,
        })
    }

    /// Reads the mappings of processes that already run.
    ///
    /// # Errors
    /// Returns the same errors as [`existing_processes::read`].
    pub(super) fn read_processes(&mut self, host: &HostRoot) -> io::Result<ReadProcesses> {
        existing_processes::read(host, &mut self.files, &mut self.tasks)
    }

    /// Returns the code kind with which code of the kernel is recorded.
    pub(super) fn kernel_kind(&self) -> CodeKind {
        self.kernel.object.kind
    }

    /// Begins a sample.
    pub(super) fn begin(&mut self) {
        self.tables.clear();
    }

    /// Adds `records` to the number of lost records.
    pub(super) fn count_lost(&mut self, records: u64) {
        self.lost += records;
    }

    /// Finishes the payload of the sample.
    pub(super) fn build(&mut self, span: ProfileSpan, builder: &mut FlatBufferBuilder<'static>) {
        self.tables.build(span, self.interval_ns, self.lost, builder);
    }

    /// Updates the state with the next record, in time order.
    pub(super) fn note(&mut self, cpu: u32, record: &PerfRecord<'_>) {
        let tasks = &mut self.tasks;
        match record.event {
            RecordedEvent::Fork { child, parent } => {
                self.names.forget(child.thread);
                tasks.fork((child.process, child.thread), (parent.process, parent.thread));
            }
            RecordedEvent::Exit { thread, .. } => {
                self.names.forget(thread.thread);
                tasks.exit(thread.thread);
            }
            RecordedEvent::Name { thread, name, is_exec } => {
                if is_exec {
                    tasks.exec(thread.process, thread.thread);
                }
                tasks.set_name(thread.process, thread.thread, name);
            }
            RecordedEvent::Mapping(mapping) => self.map(&mapping),
            RecordedEvent::CallChain(chain) => {
                let has_space = self.add(cpu, record, chain);
                self.lost += u64::from(!has_space);
            }
            RecordedEvent::Lost(records) => self.lost += records,
            _ => {}
        }
    }

    fn map(&mut self, mapping: &MappingRecord<'_>) {
        if !mapping.is_executable || mapping.is_kernel {
            return;
        }
        let identity = FileIdentity {
            path: mapping.path,
            build_id: ElfBuildId::new(mapping.build_id),
            device: mapping.device,
            inode: mapping.inode,
        };
        let Some(file) = self.files.get(&identity) else { return };
        let addresses = (mapping.address, mapping.address.saturating_add(mapping.length));
        let ThreadId { process, thread } = mapping.thread;
        self.tasks.map(process, thread, CodeMapping::new(addresses, mapping.file_offset, file));
    }

    /// Adds a call chain to the sample. Returns false if there is no space for it.
    fn add(&mut self, cpu: u32, record: &PerfRecord<'_>, chain: CallChain<'_>) -> bool {
        let Self { tables, tasks, names, lookups, kernel, unknown, frames, .. } = self;
        let ThreadId { process, thread } = record.current;
        frames.clear();
        let mut context = None;
        let mut is_exact = true;
        for address in chain.addresses().take(FRAMES_MAX) {
            if address >= CallChain::CONTEXT_MIN {
                context = Some(address);
                is_exact = true;
                continue;
            }
            // The recorded address of a caller is the address after the call instruction, which may
            // be the end of a mapping.
            let inside = address.wrapping_sub(u64::from(!is_exact));
            is_exact = false;
            let (file, offset) = match context {
                Some(CallChain::CONTEXT_KERNEL) => (&kernel.object, kernel.offset_of(address)),
                Some(CallChain::CONTEXT_USER) => match tasks.find(process, inside) {
                    Some(mapping) => {
                        lookups.request(&mapping.file, process);
                        (&mapping.file, mapping.offset_of(address))
                    }
                    None => (&*unknown, address),
                },
                // The address belongs to the guest of a virtual machine.
                _ => continue,
            };
            let Some(frame) = tables.frame(file, offset) else { return false };
            frames.push(frame);
        }
        let moment =
            Moment { time_ns: record.time, cpu: u16::try_from(cpu).unwrap_or(u16::MAX), process, thread };
        tables.add(moment, frames, || name(tasks, names, record.current))
    }
}

/// Returns the name of a thread, or an empty name if it is not known. A name from /proc is not
/// stored in the task table, because a thread runs for a while after its end was recorded. After
/// that, no record would remove the name from the table.
fn name(tasks: &TaskTable, names: &mut ThreadNames, id: ThreadId) -> ThreadName {
    tasks.name(id.thread).or_else(|| names.get(id.thread)).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, reason = "numbers as the kernel of this host writes them")]
mod tests {
    use flatcap_os::perf_record::{PerfRecords, SampleContent};
    use flatcap_tasks::schema::Profile;

    use super::*;
    use crate::sources::tests::{fixed_text, host_with};

    const SPAN: ProfileSpan = ProfileSpan { begin_ns: 100, end_ns: 200 };
    const CPU: u32 = 3;
    const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;

    /// Creates the call chains of a host whose process 5 maps a program at 0x1000 and memory at
    /// 0x8000.
    fn chains() -> (tempfile::TempDir, CallChains) {
        let folder = host_with(&[
            ("proc/5/comm", "worker\n"),
            (
                "proc/5/maps",
                "1000-3000 r-xp 00000500 08:01 77 /bin/worker\n8000-9000 r-xp 00000000 00:00 0 \n",
            ),
            ("proc/kallsyms", "ffffffff81000000 T _text\n"),
        ]);
        std::fs::create_dir_all(folder.path().join("proc/5/task/5")).unwrap();
        let host = HostRoot::new(folder.path());
        let mut chains = CallChains::new(&host, 10).unwrap();
        assert_eq!(chains.read_processes(&host).unwrap().known, 1);
        chains.begin();
        (folder, chains)
    }

    fn id(process: u32, thread: u32) -> ThreadId {
        ThreadId { process, thread }
    }

    fn note(chains: &mut CallChains, event: RecordedEvent<'_>) {
        chains.note(CPU, &PerfRecord { time: 150, current: id(5, 5), event });
    }

    /// Notes a call chain in the form in which the kernel writes it.
    fn note_chain(chains: &mut CallChains, time: u64, current: ThreadId, addresses: &[u64]) {
        let length = 8 * (4 + addresses.len() as u64);
        let header = if cfg!(target_endian = "big") { 9 << 32 | length } else { 9 | length << 48 };
        let (process, thread) = (u64::from(current.process), u64::from(current.thread));
        let current =
            if cfg!(target_endian = "big") { process << 32 | thread } else { process | thread << 32 };
        let words = [&[header, current, time, addresses.len() as u64][..], addresses].concat();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut records = PerfRecords::new(&bytes, SampleContent::CallChain);
        chains.note(CPU, &records.next().unwrap());
        assert_eq!((records.next(), records.malformed()), (None, 0));
    }

    fn payload(chains: &mut CallChains) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        chains.build(SPAN, &mut builder);
        builder.finished_data().to_vec()
    }

    /// Returns the frames of the call chain of a sample as pairs of path and offset.
    fn frames(profile: &Profile<'_>, sample: usize) -> Vec<(String, u64)> {
        let stack = profile.stacks().get(usize::from(profile.samples().get(sample).stack()));
        let frame = |index| {
            let frame = *profile.frames().get(usize::from(index));
            (profile.objects().get(usize::from(frame.object())).path().to_owned(), frame.offset())
        };
        stack.frames().iter().map(frame).collect()
    }

    fn owned(frames: &[(&str, u64)]) -> Vec<(String, u64)> {
        frames.iter().map(|(path, offset)| ((*path).to_owned(), *offset)).collect()
    }

    // Proves that each address becomes an offset in its mapping, including the address after a call
    // at the end of a mapping. A thread keeps the name that it had before the source was opened.
    #[test]
    fn addresses_become_offsets() {
        let (_host, mut chains) = chains();
        let (kernel, user) = (CallChain::CONTEXT_KERNEL, CallChain::CONTEXT_USER);
        let addresses =
            [kernel, KERNEL + 16, KERNEL + 32, user, 0x1000, 0x3000, 0x8010, 0x7000, 7, u64::MAX - 7, 1];
        note_chain(&mut chains, 150, id(5, 5), &addresses);
        note_chain(&mut chains, 155, id(6, 6), &[user, 0x1000]);
        note_chain(&mut chains, 160, id(5, 5), &[]);
        let payload = payload(&mut chains);
        let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
        let expected = owned(&[
            ("[kernel]", 16),
            ("[kernel]", 32),
            ("/bin/worker", 0x500),
            ("/bin/worker", 0x2500),
            ("[anon]", 0x8010),
            ("[unknown]", 0x7000),
            ("[unknown]", 7),
        ]);
        assert_eq!(frames(&profile, 0), expected, "contexts other than these are left out");
        assert_eq!(frames(&profile, 1), owned(&[("[unknown]", 0x1000)]), "another process");
        assert_eq!(frames(&profile, 2), []);
        let threads = profile.threads();
        assert_eq!((threads.len(), fixed_text(threads.get(0).name().iter())), (2, "worker".to_owned()));
        assert_eq!(fixed_text(threads.get(1).name().iter()), "");
        let second = profile.samples().get(1);
        assert_eq!((second.time(), second.cpu(), second.thread()), (155, 3, 1));
        assert_eq!(profile.lost(), 0);
    }

    // Proves that mappings, forks and execs update the known code of a process, and that lost
    // records are counted.
    #[test]
    fn code_follows_the_records() {
        let (_host, mut chains) = chains();
        let user = CallChain::CONTEXT_USER;
        let mapping = MappingRecord {
            thread: id(6, 6),
            address: 0x1000,
            length: 0x1000,
            file_offset: 0,
            build_id: b"id",
            device: (0, 0),
            inode: 0,
            is_executable: true,
            is_kernel: false,
            path: b"/bin/other",
        };
        note(&mut chains, RecordedEvent::Fork { child: id(6, 6), parent: id(5, 5) });
        note_chain(&mut chains, 151, id(6, 6), &[user, 0x1000]);
        note(&mut chains, RecordedEvent::Name { thread: id(6, 6), name: [b'x'; 16], is_exec: true });
        note_chain(&mut chains, 152, id(6, 6), &[user, 0x1000]);
        note(&mut chains, RecordedEvent::Mapping(mapping));
        let data = MappingRecord { is_executable: false, path: b"/data", ..mapping };
        note(&mut chains, RecordedEvent::Mapping(data));
        note(&mut chains, RecordedEvent::Mapping(MappingRecord { is_kernel: true, ..data }));
        note_chain(&mut chains, 153, id(6, 6), &[user, 0x1000]);
        note(&mut chains, RecordedEvent::Exit { thread: id(6, 6), parent: 5 });
        note_chain(&mut chains, 154, id(6, 6), &[user, 0x1000]);
        note(&mut chains, RecordedEvent::Lost(7));
        chains.count_lost(2);
        let payload = payload(&mut chains);
        let profile = flatbuffers::root::<Profile<'_>>(&payload).unwrap();
        let paths: Vec<String> = (0..4).map(|sample| frames(&profile, sample)[0].0.clone()).collect();
        assert_eq!(paths, ["/bin/worker", "[unknown]", "/bin/other", "[unknown]"]);
        assert_eq!(profile.lost(), 9);
        let other = profile.objects().iter().find(|object| object.path() == "/bin/other").unwrap();
        assert_eq!((other.kind(), other.build_id().unwrap().bytes()), (CodeKind::File, &b"id"[..]));
    }
}
