//! A recorder in this process, which replies on the push socket, reads lanes and keeps their
//! samples. It shares only the messages and the reader of lanes with the real recorder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use flatcap_lane::{
    LaneBudget, LaneBuffer, LaneClocks, LaneFlags, LaneHeader, LaneReader, LaneResumption, PACKET_BYTES_MAX,
    PushErrorCode, PushReply, PushRequest, ReaderMemory, SourceRegistration, VERSION,
};
use flatcap_stream::ChecksumKind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recvmsg, sendmsg, socket_with,
};
use rustix::time::{ClockId, Timespec, clock_gettime};

pub const WALL_OFFSET_NS: i64 = 1_700_000_000_000_000_000;

/// The size of a recorder's lanes, and its behaviour towards them.
#[derive(Debug, Clone, Copy)]
pub struct LaneShape {
    pub slabs: usize,
    pub slab_bytes: usize,
    pub checksum: ChecksumKind,
    pub run_id: u64,
    /// Whether lanes are read at all.
    pub reads: bool,
    /// Whether the recorder reports lanes that were handed over as rescued.
    pub rescues: bool,
    pub budget: LaneBudget,
}

pub const SHAPE: LaneShape = LaneShape {
    slabs: 4,
    slab_bytes: 65_536,
    checksum: ChecksumKind::Xxh3,
    run_id: 1,
    reads: true,
    rescues: true,
    budget: LaneBudget {
        cpu_ns_per_second: 500_000_000,
        user_frames_per_second: 1000,
        user_bytes_per_second: 0,
    },
};

/// A sample that the recorder has read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundSample {
    pub source: u16,
    pub seq: u64,
    pub mono_ns: u64,
    pub payload: Vec<u8>,
}

/// Everything that a recorder has received.
#[derive(Debug, Default)]
pub struct Seen {
    pub samples: Vec<FoundSample>,
    pub frames: u64,
    pub missing: u64,
    pub begun: BTreeMap<u16, u64>,
    pub sources: Vec<SourceRegistration>,
    pub schemas: Vec<Vec<u8>>,
    pub lanes: usize,
    pub triggers: Vec<String>,
    pub resumed: Vec<FoundSample>,
    pub resumptions: usize,
    pub connections: usize,
    pub refusal: Option<String>,
}

/// A running recorder. Dropping it ends it without a last reading of its lanes, like a kill.
pub struct FakeRecorder {
    pub seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Lane {
    number: u32,
    file: File,
    reader: LaneReader,
    connection: usize,
}

struct Service {
    shape: LaneShape,
    seen: Arc<Mutex<Seen>>,
    connections: BTreeMap<usize, OwnedFd>,
    lanes: Vec<Lane>,
    ids: u16,
    buffer: LaneBuffer,
}

impl FakeRecorder {
    pub fn start(socket: &Path, shape: LaneShape) -> Self {
        std::fs::remove_file(socket).ok();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        listen(&listener, 16).unwrap();
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let thread = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            let mut service = Service {
                shape,
                seen,
                connections: BTreeMap::new(),
                lanes: Vec::new(),
                ids: 0,
                buffer: LaneBuffer::default(),
            };
            std::thread::spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    service.turn(&listener);
                }
            })
        };
        Self { seen, stop, thread: Some(thread) }
    }

    /// Waits until `is_so` returns true for the received data.
    pub fn wait_until(&self, is_so: impl Fn(&Seen) -> bool) {
        while !is_so(&self.seen.lock().unwrap()) {
            assert!(!self.thread.as_ref().unwrap().is_finished(), "the recorder has panicked");
            std::thread::yield_now();
        }
    }
}

impl Drop for FakeRecorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Service {
    fn turn(&mut self, listener: &OwnedFd) {
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(listener.as_fd()).chain(self.connections.values().map(AsFd::as_fd)).collect();
        let mut polled: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 500_000 })).ok();
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            let mut seen = self.seen.lock().unwrap();
            seen.connections += 1;
            self.connections.insert(seen.connections, socket);
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            while self.serve(connection) {}
        }
        for index in 0..self.lanes.len() {
            self.read(index);
        }
    }

    /// Replies to one request. Returns false if there is no request.
    fn serve(&mut self, connection: usize) -> bool {
        let Some(socket) = self.connections.get(&connection) else { return false };
        let mut packet = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut packet)];
        let Ok(received) = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) else {
            return false;
        };
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            self.close(connection);
            return false;
        }
        let request = PushRequest::decode(&packet[..received.bytes]).unwrap();
        assert_eq!(descriptors.len(), request.descriptors());
        let rescued = match &request {
            PushRequest::Resume(LaneResumption { run_id, lane, is_final: true }) if self.shape.rescues => {
                Some(PushReply::Rescued { run_id: *run_id, lane: *lane })
            }
            _ => None,
        };
        let (reply, memory) = self.answer(request, descriptors.pop(), connection);
        if let Some(reply) = reply {
            self.send(connection, &reply, memory.as_ref());
        }
        if let Some(rescued) = rescued {
            self.send(connection, &rescued, None);
        }
        true
    }

    fn send(&self, connection: usize, reply: &PushReply, memory: Option<&File>) {
        let rights = memory.map(|memory| [memory.as_fd()]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(rights) = &rights {
            control.push(SendAncillaryMessage::ScmRights(rights));
        }
        let socket = &self.connections[&connection];
        sendmsg(socket, &[IoSlice::new(&reply.encode())], &mut control, SendFlags::NOSIGNAL).ok();
    }

    fn answer(
        &mut self,
        request: PushRequest,
        descriptor: Option<OwnedFd>,
        connection: usize,
    ) -> (Option<PushReply>, Option<File>) {
        let mut memory = None;
        let seen = Arc::clone(&self.seen);
        let mut seen = seen.lock().unwrap();
        let reply = match request {
            PushRequest::Hello { version, .. } => {
                assert_eq!(version, VERSION);
                PushReply::Hello { version, run_id: self.shape.run_id, sources_max: 64, lanes_max: 8 }
            }
            PushRequest::Source(source) => {
                let number = source.number;
                if let Some(schema) = descriptor {
                    let seals = fcntl_get_seals(&schema).unwrap();
                    assert!(seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW));
                    let file = File::from(schema);
                    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
                    file.read_at(&mut bytes, 0).unwrap();
                    seen.schemas.push(bytes);
                }
                let is_refused = source.name == "refused";
                seen.sources.push(source);
                if is_refused {
                    let text = "the name is refused".to_owned();
                    PushReply::Error { code: PushErrorCode::Schema, text }
                } else {
                    PushReply::Source { number }
                }
            }
            PushRequest::Lane { .. } => {
                let lane = self.new_lane(connection);
                seen.lanes += 1;
                memory = Some(lane.file.try_clone().unwrap());
                let reply = PushReply::Lane { lane: lane.number, bytes: lane.reader.header().bytes() };
                self.lanes.push(lane);
                reply
            }
            PushRequest::Bind { lane, source } => {
                let id = self.ids;
                if seen.sources.iter().any(|known| known.number == source && known.name == "refused") {
                    return (
                        Some(PushReply::Error {
                            code: PushErrorCode::Unknown,
                            text: "no such source".into(),
                        }),
                        None,
                    );
                }
                self.ids += 1;
                let found = self.lanes.iter_mut().find(|known| known.number == lane).unwrap();
                found.reader.bind(&found.file, u8::try_from(source).unwrap(), id, 0).unwrap();
                PushReply::Bind { id, next_seq: 0 }
            }
            PushRequest::Wake { .. } => return (None, None),
            PushRequest::Trigger { text, .. } => {
                seen.triggers.push(text);
                PushReply::Trigger
            }
            PushRequest::Resume(_) => {
                let file = File::from(descriptor.unwrap());
                let found = rescue(&file);
                seen.resumptions += 1;
                seen.resumed.extend(found);
                PushReply::Resume
            }
        };
        (Some(reply), memory)
    }

    fn new_lane(&self, connection: usize) -> Lane {
        let header = LaneHeader {
            slabs: self.shape.slabs,
            slab_bytes: self.shape.slab_bytes,
            checksum: self.shape.checksum,
            frame_max: 1 << 20,
            run_id: self.shape.run_id,
            directory: (0, 0),
            boot: (0, 0),
            lane: u32::try_from(self.lanes.len()).unwrap(),
            uid: 0,
            budget: self.shape.budget,
        };
        let memory = memfd_create("lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, header.bytes()).unwrap();
        let file = File::from(memory);
        file.write_at(&header.first_page(WALL_OFFSET_NS), 0).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        Lane { number: header.lane, file, reader: LaneReader::new(header), connection }
    }

    fn read(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        while self.shape.reads {
            let clocks = LaneClocks { now_ns: &now_ns, wall_offsets_ns: &[WALL_OFFSET_NS] };
            let batch = match lane.reader.look(&lane.file, &mut self.buffer, &clocks) {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                Err(error) => {
                    lane.file.write_at(&LaneFlags::ENDED.bits().to_le_bytes(), LaneFlags::OFFSET).unwrap();
                    self.seen.lock().unwrap().refusal = Some(error.to_string());
                    return;
                }
            };
            let mut seen = self.seen.lock().unwrap();
            for frame in batch.frames {
                seen.frames += 1;
                seen.missing += frame.missing;
                // Only the first samples are kept, because a benchmark pushes millions.
                if seen.samples.len() < 100_000 {
                    let payload =
                        batch.bytes[frame.offset..][..frame.bytes][frame.header_bytes + 64..].to_vec();
                    let (source, seq, mono_ns) =
                        (frame.sample.source, frame.sample.seq, frame.sample.mono_ns);
                    seen.samples.push(FoundSample { source, seq, mono_ns, payload });
                }
            }
            lane.reader.take(&lane.file, &self.buffer).unwrap();
        }
    }

    /// Reads the lanes of a closed connection to the end, and accounts for them.
    fn close(&mut self, connection: usize) {
        self.connections.remove(&connection);
        for index in 0..self.lanes.len() {
            if self.lanes[index].connection == connection {
                self.read(index);
                let lane = &self.lanes[index];
                let mut seen = self.seen.lock().unwrap();
                for account in lane.reader.accounts(&lane.file).unwrap() {
                    seen.missing += account.begun - account.next_seq.unwrap();
                    seen.begun.insert(account.source, account.begun);
                }
            }
        }
    }
}

/// Reads the samples that are left in a lane of an earlier recorder, without removing them from the
/// lane.
fn rescue(file: &File) -> Vec<FoundSample> {
    let mut reader = LaneReader::resume(file, file.metadata().unwrap().len()).unwrap();
    let clocks = LaneClocks { now_ns: &now_ns, wall_offsets_ns: &[WALL_OFFSET_NS] };
    let mut buffer = LaneBuffer::default();
    let mut found = Vec::new();
    while let Some(batch) = reader.look(file, &mut buffer, &clocks).unwrap() {
        for frame in batch.frames {
            let payload = batch.bytes[frame.offset..][..frame.bytes][frame.header_bytes + 64..].to_vec();
            let (source, seq, mono_ns) = (frame.sample.source, frame.sample.seq, frame.sample.mono_ns);
            found.push(FoundSample { source, seq, mono_ns, payload });
        }
        reader.take(file, &buffer).unwrap();
    }
    found
}

pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
