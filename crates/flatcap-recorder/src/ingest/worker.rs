//! The thread that answers the requests of clients and reads their lanes.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use flatcap_lane::{
    LaneBuffer, LaneHeader, MessageError, PACKET_BYTES_MAX, PushErrorCode, PushReply, PushRequest,
};
use flatcap_metrics::PushMetrics;
use flatcap_os::clock::{NS_PER_S, WallOffset, monotonic_ns, thread_cpu_ns};
use flatcap_os::packet_socket::{PacketListener, ReceivedPacket};
use flatcap_os::peer_descriptor::PeerDescriptor;
use flatcap_os::poll_event::{PollEvent, wait_readable};
use flatcap_os::ready_set::ReadySet;
use flatcap_os::wake_event::WakeEvent;
use flatcap_slab::{Causes, SlabProducer};

use super::allowed_accounts::AllowedAccounts;
use super::client::{ConnectedClient, Incoming};
use super::cpu_budget::{Payer, PushCpuBudget};
use super::frame_sink::FrameSink;
use super::lane::{Lane, LaneProgress, LaneReading};
use super::limits::PushLimits;
use super::payload_verification::PayloadVerification;
use super::push_target::PushTarget;
use super::refusal_log::RefusalLog;
use super::registry::{ClientRegistry, RegistrySettings, RequestAnswer, RequestRefusal, RequestTime};
use super::user_rates::{PushedAmount, UserRates};
use super::wakeup::Wakeup;

/// Interval between two reads of the lanes if there were no new frames for `IDLE_AFTER_NS`.
pub const IDLE_INTERVAL_NS: u64 = 100_000_000;
const IDLE_AFTER_NS: u64 = NS_PER_S;
/// Maximum number of requests answered for one client per turn, so that other clients also get a
/// turn.
const REQUESTS_PER_TURN: usize = 16;
/// Maximum number of wall offsets on which the time stamps of accepted samples may be based. The
/// list has the offsets after the last 64 changes of the wall clock.
const WALL_OFFSETS_MAX: usize = 64;
/// Time for which a stopping thread waits for frames that clients are still writing. A client
/// writes a frame in less than a microsecond, unless the writing thread is not running.
const LAST_FRAMES_NS: u64 = 10_000_000;
/// Maximum time for which a stopping thread waits if the recorder does not keep up.
const STOP_MAX_NS: u64 = 3 * NS_PER_S;
/// Interval between two attempts to read the last frames, until `STOP_MAX_NS` has passed.
const STOP_INTERVAL_NS: u64 = 1_000_000;

/// The settings of the thread.
pub struct PushWorkerSettings {
    /// The push socket.
    pub listener: PacketListener,
    /// The accounts that may push.
    pub allowed: AllowedAccounts,
    /// The limits of clients.
    pub limits: PushLimits,
    /// The selection of payloads to verify.
    pub check: PayloadVerification,
    /// Interval between two reads of the lanes, in nanoseconds.
    pub drain_ns: u64,
    /// The header of each lane, without the fields that differ between lanes: number, user and
    /// slabs.
    pub lane_header: LaneHeader,
    /// Queues the frames for the recorder.
    pub producer: SlabProducer,
    /// The wall offset, that is, wall time minus monotonic time.
    pub wall_offset: Arc<WallOffset>,
    /// The run that the frames belong to.
    pub target: Box<dyn PushTarget>,
    /// CPU budget of all work for pushes, in basis points of a core.
    pub cpu_basis_points: u32,
    /// The counters of pushes.
    pub metrics: Arc<PushMetrics>,
    /// The counters of the recorders. One of the counters is the CPU time that the recorders use
    /// for pushed frames.
    pub recorders: Vec<Arc<PushMetrics>>,
}

/// The handle that ends the thread.
#[derive(Debug, Clone)]
pub struct PushStop(Arc<PollEvent>);

/// The thread's state.
pub struct PushWorker {
    pub(super) listener: PacketListener,
    pub(super) allowed: AllowedAccounts,
    pub(super) registry: ClientRegistry,
    reading: LaneReading,
    rates: UserRates,
    pub(super) cpu: PushCpuBudget,
    refusals: RefusalLog,
    wall_offset: Arc<WallOffset>,
    pub(super) metrics: Arc<PushMetrics>,
    recorders: Vec<Arc<PushMetrics>>,
    stop: Arc<PollEvent>,       // stays open, and so in `ready`, when `PushStop` is gone
    pub(super) ready: ReadySet, // what can end a wait, by the number of its `Wakeup`
    drain_ns: u64,
    pub(super) next_client: u64,
    pub(super) accept_ns: Option<u64>, // no connection is accepted before; the listener is not in `ready`
    busy_ns: u64,                      // when something last came
    first_lane: u32,                   // that is read first: the one that could not be read the last time
    is_contended: bool,                // the budget did not suffice for the last turn
    is_lanes_turn: bool,               // lanes are read before requests are answered
    /// Requests that could not be answered yet. The connections of these requests are not in
    /// `ready`, because later packets of these clients must wait.
    postponed: Vec<(u64, PushRequest)>,
    packet: Box<[u8; PACKET_BYTES_MAX]>,
}

impl fmt::Debug for PushWorkerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushWorkerSettings").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl fmt::Debug for PushWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushWorker").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl PushStop {
    /// Makes the thread read the lanes one last time and then end.
    pub fn stop(&self) {
        self.0.set();
    }
}

impl PushWorker {
    /// Creates the thread's state, and the handle that ends it.
    ///
    /// # Errors
    /// The kernel has no free descriptors.
    pub fn new(settings: PushWorkerSettings) -> std::io::Result<(Self, PushStop)> {
        let PushWorkerSettings {
            listener,
            allowed,
            limits,
            check,
            drain_ns,
            lane_header,
            producer,
            wall_offset,
            target,
            cpu_basis_points,
            metrics,
            recorders,
        } = settings;
        let stop = Arc::new(PollEvent::new()?);
        let ready = ReadySet::new()?;
        ready.add(&*stop, Wakeup::Stop.number())?;
        ready.add(&listener, Wakeup::Listener.number())?;
        let sink = FrameSink::new(producer, lane_header.checksum);
        let worker = Self {
            listener,
            allowed,
            registry: ClientRegistry::new(RegistrySettings {
                limits,
                lane_header,
                target,
                metrics: Arc::clone(&metrics),
            }),
            reading: LaneReading {
                buffer: LaneBuffer::default(),
                sink,
                check,
                wall_offsets_ns: vec![wall_offset.get()],
                amount: PushedAmount::default(),
            },
            rates: UserRates::new(&limits),
            cpu: PushCpuBudget::new(cpu_basis_points, 0),
            refusals: RefusalLog::default(),
            wall_offset,
            metrics,
            recorders,
            stop: Arc::clone(&stop),
            ready,
            drain_ns,
            next_client: 0,
            accept_ns: None,
            busy_ns: 0,
            first_lane: 0,
            is_contended: false,
            is_lanes_turn: false,
            postponed: Vec::new(),
            packet: Box::new([0; PACKET_BYTES_MAX]),
        };
        Ok((worker, PushStop(stop)))
    }

    /// Answers clients and reads lanes until it is stopped.
    pub fn run(mut self) {
        self.metrics.is_open.set(1);
        let mut has_more = false;
        loop {
            let debt_ns = self.charge_recorders();
            if debt_ns > 0 {
                // During the pause, messages wait in the sockets and frames wait in the lanes.
                self.metrics.cpu_waits.add(1);
                self.cpu.note_pause(debt_ns, monotonic_ns());
                if wait_readable(self.stop.as_fd(), debt_ns) {
                    return self.finish();
                }
            }
            self.is_contended = debt_ns > 0;
            let pause_ns = if has_more || debt_ns > 0 { 0 } else { self.pause_ns(monotonic_ns()) };
            let pause_ns = self
                .accept_ns
                .map_or(pause_ns, |accept_ns| pause_ns.min(accept_ns.saturating_sub(monotonic_ns())));
            let mut wakeups: Vec<Wakeup> = self.ready.wait(pause_ns).map(Wakeup::from_number).collect();
            if wakeups.contains(&Wakeup::Stop) {
                return self.finish();
            }
            let now_ns = monotonic_ns();
            self.update_wall_offset();
            self.accept_again(now_ns);
            self.serve_postponed(now_ns);
            if self.is_contended {
                wakeups.sort_by_key(|wakeup| self.cpu.recent_ns(self.payer(*wakeup)));
            }
            // If the budget is too small for both, requests and lanes alternate in being served
            // first.
            self.is_lanes_turn = self.is_contended && !self.is_lanes_turn;
            if self.is_lanes_turn {
                has_more = self.read_lanes(now_ns);
                self.serve_all(&wakeups, now_ns);
            } else {
                self.serve_all(&wakeups, now_ns);
                has_more = self.read_lanes(now_ns);
            }
            let next_ns = now_ns.saturating_add(self.pause_ns(now_ns));
            self.reading.sink.flush(now_ns, next_ns);
            self.registry.pass_on_receipts();
            self.registry.publish();
            self.cpu.charge_nobody(thread_cpu_ns(), monotonic_ns());
            self.metrics.cpu_ns.set(self.cpu.charged_ns());
        }
    }

    /// Serves all pending requests, while the budget allows.
    fn serve_all(&mut self, wakeups: &[Wakeup], now_ns: u64) {
        for wakeup in wakeups {
            // The events that remain are reported again in the next turn.
            if self.cpu.wait_ns(monotonic_ns()) > 0 {
                return;
            }
            match *wakeup {
                Wakeup::Stop => {}
                Wakeup::Listener => self.accept(now_ns),
                Wakeup::Connection(id) => self.serve(id, now_ns),
                Wakeup::ProcessEnd(id) => {
                    self.serve(id, now_ns);
                    self.remove_client(id);
                }
            }
        }
    }

    /// Charges the CPU time that the recorders used for pushed frames, and the CPU time for closing
    /// connections. Returns the time for which all work must pause, in nanoseconds.
    fn charge_recorders(&mut self) -> u64 {
        let used_ns: u64 = self.recorders.iter().map(|metrics| metrics.recorder_ns.get()).sum();
        let now_ns = monotonic_ns();
        self.cpu.charge_recorders(used_ns + self.listener.closer().cpu_ns(), now_ns);
        self.cpu.wait_ns(now_ns)
    }

    /// Returns the time to wait for requests before the next read of the lanes.
    fn pause_ns(&self, now_ns: u64) -> u64 {
        let is_idle = now_ns.saturating_sub(self.busy_ns) > IDLE_AFTER_NS;
        if is_idle { IDLE_INTERVAL_NS.max(self.drain_ns) } else { self.drain_ns }
    }

    /// Updates the lanes if the wall clock was set.
    fn update_wall_offset(&mut self) {
        let (offset_ns, known) = (self.wall_offset.get(), &mut self.reading.wall_offsets_ns);
        if known.last() == Some(&offset_ns) {
            return;
        }
        if known.len() >= WALL_OFFSETS_MAX {
            known.remove(0);
        }
        known.push(offset_ns);
        self.registry.lanes.values().for_each(|lane| lane.set_wall_offset(offset_ns));
    }

    /// Answers the requests of a client.
    fn serve(&mut self, id: u64, now_ns: u64) {
        let payer = self.payer_of(id);
        for _ in 0..REQUESTS_PER_TURN {
            let is_answered = self.serve_one(id, now_ns);
            let end_ns = monotonic_ns();
            self.cpu.charge(payer, thread_cpu_ns(), end_ns);
            if !is_answered || self.cpu.wait_ns(end_ns) > 0 {
                return;
            }
        }
    }

    /// Answers one request of a client. Returns whether there may be another request.
    pub(super) fn serve_one(&mut self, id: u64, now_ns: u64) -> bool {
        if self.postponed.iter().any(|(waiting, _)| *waiting == id) {
            return false;
        }
        let Some(client) = self.registry.clients.get(&id) else { return false };
        let (answer, is_last) = match client.receive(&mut self.packet) {
            Incoming::Packet(packet) => {
                // If too many descriptors wait to be closed, no client may send more descriptors.
                let is_last = !packet.descriptors.is_empty() && self.listener.closer().is_full();
                (self.answer_packet(id, packet, now_ns), is_last)
            }
            Incoming::Closed => {
                self.remove_client(id);
                return false;
            }
            Incoming::Nothing => return false,
        };
        self.busy_ns = now_ns;
        self.send(id, answer, now_ns);
        if is_last {
            self.remove_client(id);
        }
        !is_last
    }

    /// Answers the requests that were postponed.
    fn serve_postponed(&mut self, now_ns: u64) {
        for (id, request) in std::mem::take(&mut self.postponed) {
            let payer = self.payer_of(id);
            let answer = self.answer(id, request, None, now_ns);
            self.cpu.charge(payer, thread_cpu_ns(), monotonic_ns());
            self.busy_ns = now_ns;
            if let Ok(RequestAnswer::Later(request)) = answer {
                self.postponed.push((id, request));
                continue;
            }
            self.send(id, answer, now_ns);
            let Some(client) = self.registry.clients.get(&id) else { continue };
            if let Err(error) = self.ready.add(&client.connection, Wakeup::Connection(id).number()) {
                tracing::warn!(%error, client = client.name(), "cannot wait for an application; its connection is closed");
                self.remove_client(id);
            }
        }
    }

    fn answer_packet(
        &mut self,
        id: u64,
        packet: ReceivedPacket,
        now_ns: u64,
    ) -> Result<RequestAnswer, RequestRefusal> {
        let malformed = |text: String| RequestRefusal(PushErrorCode::Malformed, text);
        let ReceivedPacket { bytes, mut descriptors, is_cut } = packet;
        if is_cut {
            let text = format!("a message has more than {PACKET_BYTES_MAX} bytes, or too many descriptors");
            return Err(malformed(text));
        }
        let request = PushRequest::decode(self.packet.get(..bytes).unwrap_or_default())
            .map_err(|error: MessageError| malformed(error.to_string()))?;
        let (sent, wanted) = (descriptors.len(), request.descriptors());
        if sent != wanted {
            return Err(malformed(format!("a message with {sent} descriptors, of a kind that has {wanted}")));
        }
        self.answer(id, request, descriptors.pop(), now_ns)
    }

    fn answer(
        &mut self,
        id: u64,
        request: PushRequest,
        descriptor: Option<PeerDescriptor>,
        now_ns: u64,
    ) -> Result<RequestAnswer, RequestRefusal> {
        let wall_offset_ns = self.reading.wall_offsets_ns.last().copied().unwrap_or_default();
        self.registry.answer(id, request, descriptor, RequestTime { mono_ns: now_ns, wall_offset_ns })
    }

    /// Sends an answer, or postpones the request.
    fn send(&mut self, id: u64, answer: Result<RequestAnswer, RequestRefusal>, now_ns: u64) {
        let Some(client) = self.registry.clients.get(&id) else { return };
        let (reply, lane, is_last) = match answer {
            Ok(RequestAnswer::Nothing) => return,
            Ok(RequestAnswer::Later(request)) => {
                self.ready.remove(&client.connection);
                return self.postponed.push((id, request));
            }
            Ok(RequestAnswer::Reply(reply)) => (reply, None, false),
            Ok(RequestAnswer::WithLane(reply, lane)) => (reply, Some(lane), false),
            Err(RequestRefusal(code, text)) => {
                self.metrics.refused.add(1);
                let kinds = [
                    (PushErrorCode::Denied, &self.metrics.denied),
                    (PushErrorCode::Limit, &self.metrics.limited),
                ];
                kinds.iter().filter(|(kind, _)| *kind == code).for_each(|(_, count)| count.add(1));
                if let Some(repeats) = self.refusals.note(client.payer(), code, now_ns) {
                    tracing::warn!(
                        client = client.name(),
                        uid = client.uid,
                        pid = client.process_id(),
                        repeats,
                        "a request of an application is refused: {text}"
                    );
                }
                (PushReply::Error { code, text }, None, code.is_fatal())
            }
        };
        let memory = lane.and_then(|lane| self.registry.lanes.get(&lane)).map(Lane::memory);
        // The thread does not wait for a client that does not read its replies.
        let is_sent = client.connection.send(&reply.encode(), memory).is_ok();
        if is_last || !is_sent {
            self.remove_client(id);
        }
    }

    /// Reads all lanes, while the budget allows. Returns whether any of the lanes has more frames.
    fn read_lanes(&mut self, now_ns: u64) -> bool {
        let mut has_more = false;
        let mut numbers: Vec<u32> = self.registry.lanes.keys().copied().collect();
        // The lanes take turns in being read first, because the lanes that are read later may have
        // to wait for free slabs or for the budget.
        let first = numbers.partition_point(|number| *number < self.first_lane);
        numbers.rotate_left(first);
        if self.is_contended {
            let recent_ns = |number: &u32| {
                let lane = self.registry.lanes.get(number);
                lane.map_or(0, |lane| self.cpu.recent_ns(Payer::User(lane.uid())))
            };
            numbers.sort_by_cached_key(recent_ns);
        }
        let mut blocked = None;
        for number in numbers {
            let Some(lane) = self.registry.lanes.get_mut(&number) else { continue };
            if self.cpu.wait_ns(monotonic_ns()) > 0 {
                blocked.get_or_insert(number);
                has_more = true;
                break;
            }
            let uid = lane.uid();
            if !self.rates.permits(uid, now_ns) {
                self.metrics.waits.add(1);
                self.busy_ns = now_ns;
                continue;
            }
            let progress = lane.read(&mut self.reading);
            let amount = std::mem::take(&mut self.reading.amount);
            self.rates.charge(uid, amount, now_ns);
            self.cpu.note_bytes(uid, amount.bytes);
            let is_idle = progress == LaneProgress::Empty && lane.is_open();
            match progress {
                LaneProgress::Empty if is_idle => {}
                // The client of the lane has disconnected.
                LaneProgress::Empty => {
                    self.registry.finish_lane(number, Causes::Crash, &mut self.reading.sink);
                }
                LaneProgress::Frames => self.busy_ns = now_ns,
                LaneProgress::Blocked => {
                    self.busy_ns = now_ns;
                    blocked.get_or_insert(number);
                }
                LaneProgress::More => {
                    self.busy_ns = now_ns;
                    has_more = true;
                }
                LaneProgress::Defect(defect) => self.end_defective(number, &defect),
            }
            if !is_idle {
                self.cpu.charge(Payer::User(uid), thread_cpu_ns(), monotonic_ns());
            }
        }
        if let Some(number) = blocked {
            self.first_lane = number;
        }
        has_more
    }

    /// Ends the lane of a client that violated the protocol.
    fn end_defective(&mut self, number: u32, defect: &str) {
        self.metrics.lanes_refused.add(1);
        let Some(lane) = self.registry.lanes.get_mut(&number) else { return };
        lane.end();
        let client = self.registry.clients.get(&lane.client);
        tracing::warn!(
            client = client.map_or("", ConnectedClient::name),
            pid = client.and_then(ConnectedClient::process_id),
            lane = number,
            "the frames of an application are refused, and its lane is not read any more: {defect}"
        );
        if let Some(client) = client {
            client.tell_ended(number, defect);
        }
        self.registry.finish_lane(number, Causes::Damaged, &mut self.reading.sink);
    }

    /// Reads the lanes one last time, accounts for the samples that were begun, and ends the
    /// thread.
    fn finish(mut self) {
        let begin_ns = monotonic_ns();
        self.registry.lanes.values_mut().for_each(Lane::end);
        let (settled_ns, deadline_ns) = (begin_ns + LAST_FRAMES_NS, begin_ns + STOP_MAX_NS);
        let pause = WakeEvent::new();
        loop {
            let now_ns = monotonic_ns();
            let mut is_blocked = false;
            let numbers: Vec<u32> = self.registry.lanes.keys().copied().collect();
            for number in numbers {
                let Some(lane) = self.registry.lanes.get_mut(&number) else { continue };
                match lane.read(&mut self.reading) {
                    LaneProgress::Empty | LaneProgress::Frames => {}
                    LaneProgress::More | LaneProgress::Blocked => is_blocked = true,
                    LaneProgress::Defect(defect) => self.end_defective(number, &defect),
                }
            }
            // The open slab is flushed now, because at the end the recorder waits for nothing else.
            self.reading.sink.flush(now_ns, u64::MAX);
            if now_ns >= deadline_ns || (now_ns >= settled_ns && !is_blocked) {
                break;
            }
            pause.wait_until(now_ns + STOP_INTERVAL_NS);
        }
        let numbers: Vec<u32> = self.registry.lanes.keys().copied().collect();
        for number in numbers {
            self.registry.finish_lane(number, Causes::Crash, &mut self.reading.sink);
        }
        for id in self.registry.clients.keys().copied().collect::<Vec<_>>() {
            self.registry.remove_client(id);
        }
        self.registry.publish();
        self.metrics.is_open.set(0);
        self.reading.sink.finish(monotonic_ns());
    }
}
