//! The state of a client in one process, that is, its connection to the recorder and its lanes.
//! This module sends and receives all messages, under one lock. A push takes the lock only once a
//! second, and when it needs a lane, a slot for a source, or a slab.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatcap_lane::{LaneBudget, LaneResumption, LaneWriter, PushReply, PushRequest, VERSION};

use super::clock::{NS_PER_S, monotonic_ns};
use super::connection::{Connection, sealed_memory};
use super::mapping::Mapping;
use super::setup::{ClientSetup, PushBudget, SOURCES_MAX};

/// Time between two attempts to find a recorder.
const ATTEMPT_EVERY_NS: u64 = NS_PER_S;
/// Maximum number of lanes that are retained until a recorder has rescued them. If there are more
/// lanes, the oldest lane without a writer is dropped. Memory therefore does not grow if a recorder
/// never reports a rescued lane.
const HELD_LANES_MAX: usize = 1024;

/// For each source, the number of dropped samples. Several threads may use the same counters one
/// after the other, but only one thread writes at a time.
#[derive(Debug)]
pub(crate) struct DropCounters([AtomicU64; SOURCES_MAX]);

/// The writing end of a lane.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    pub(crate) writer: LaneWriter<Mapping>,
    /// The sequence number of the connection to which the lane belongs.
    pub(crate) connection: u64,
    memory: Arc<File>,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<RegistryState>,
    counters: Mutex<Vec<Arc<DropCounters>>>,
}

#[derive(Debug, Default)]
struct RegistryState {
    connection: Option<Connection>,
    connections: u64, // so far
    next_attempt_ns: u64,
    is_closed: bool,
    registered: u64,       // sources, by bit, that this recorder has accepted
    lanes: Vec<HeldLane>,  // all that may have frames, until a recorder has them in its files
    free: Vec<LaneEnd>,    // those without a thread
    refused: RefusalTexts, // by this recorder, or else by the last one
    unreachable: String,   // why there is no connection
    budget: LaneBudget,    // as this recorder has stated it
}

/// Refusals of a recorder. The first refusal usually causes the later ones.
#[derive(Debug, Default)]
struct RefusalTexts {
    first: String,
    last: String,
}

/// A lane with frames that may not yet be in the files of any recorder.
#[derive(Debug)]
struct HeldLane {
    resumption: LaneResumption,
    memory: Arc<File>,
    connection: u64,
}

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SOURCES_MAX])
    }
}

impl DropCounters {
    /// Counts one sample. No atomic read-modify-write operation is needed, because only one thread
    /// counts.
    #[inline]
    pub(crate) fn add(&self, slot: u8) {
        if let Some(count) = self.0.get(usize::from(slot)) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the messages of the recorder. If there is no connection and the next attempt is due,
    /// connects. Returns the sequence number of the connection.
    pub(crate) fn check(&self, client: &ClientSetup, now_ns: u64) -> u64 {
        let mut state = self.lock();
        state.poll();
        if state.connection.is_none() && !state.is_closed && now_ns >= state.next_attempt_ns {
            state.next_attempt_ns = now_ns.saturating_add(ATTEMPT_EVERY_NS);
            state.connect(client);
        }
        state.connections
    }

    /// Registers a source with the recorder, if there is one.
    pub(crate) fn register(&self, client: &ClientSetup, slot: u8) {
        self.lock().register(client, slot);
    }

    /// Returns a lane for this thread.
    pub(crate) fn lane(&self, client: &ClientSetup) -> Option<LaneEnd> {
        let mut state = self.lock();
        match state.free.pop() {
            Some(free) => Some(free),
            None => state.new_lane(client),
        }
    }

    /// Binds a source to its slot in a lane. Returns false if the recorder refuses.
    pub(crate) fn bind(&self, client: &ClientSetup, end: &mut LaneEnd, slot: u8) -> bool {
        let mut state = self.lock();
        if end.connection != state.connections {
            return false;
        }
        if state.registered & (1 << slot) == 0 {
            state.register(client, slot);
            if state.registered & (1 << slot) == 0 {
                // The recorder has refused the source, not only the slot.
                return false;
            }
        }
        let request = PushRequest::Bind { lane: end.writer.header().lane, source: slot.into() };
        let bound = state.ask(&request, None, |reply, _| match reply {
            PushReply::Bind { id, next_seq } => Some((id, next_seq)),
            _ => None,
        });
        if let Some((id, next_seq)) = bound {
            end.writer.bind(slot, id, next_seq);
        }
        bound.is_some()
    }

    /// Takes back the lane of a thread that ends, so that another thread can use it.
    pub(crate) fn release(&self, end: LaneEnd) {
        let mut state = self.lock();
        if end.connection == state.connections {
            state.free.push(end);
        } else {
            state.hand_over(&end);
        }
    }

    /// Hands over a lane to which its thread has stopped writing. The thread stops because there is
    /// another recorder, or because the current recorder has ended the lane.
    pub(crate) fn hand_over(&self, end: &LaneEnd) {
        self.lock().hand_over(end);
    }

    /// Asks the recorder to read a lane soon. Returns whether the client is connected to a
    /// recorder.
    pub(crate) fn wake(&self, end: &LaneEnd) -> bool {
        let mut state = self.lock();
        state.poll();
        let request = PushRequest::Wake { lane: end.writer.header().lane };
        state.connection.as_ref().inspect(|connection| connection.tell(&request)).is_some()
    }

    pub(crate) fn trigger(&self, client: &ClientSetup, text: &str) -> io::Result<()> {
        self.check(client, monotonic_ns());
        let mut state = self.lock();
        state.refused.last.clear();
        let request = PushRequest::Trigger { flags: 0, text: text.to_owned() };
        let is_done = state.ask(&request, None, |reply, _| matches!(reply, PushReply::Trigger).then_some(()));
        match is_done {
            Some(()) => Ok(()),
            None if state.refused.last.is_empty() => Err(io::ErrorKind::NotConnected.into()),
            None => Err(io::Error::other(state.refused.last.clone())),
        }
    }

    /// Closes the connection permanently.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.connection = None;
        state.free.clear();
        state.lanes.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub(crate) fn is_connected(&self) -> bool {
        let mut state = self.lock();
        state.poll();
        state.connection.is_some()
    }

    pub(crate) fn budget(&self) -> Option<PushBudget> {
        let mut state = self.lock();
        state.poll();
        state.connection.is_some().then(|| PushBudget::of(state.budget)).flatten()
    }

    pub(crate) fn last_error(&self) -> String {
        let state = self.lock();
        let RefusalTexts { first, last } = &state.refused;
        match (first.is_empty(), last.is_empty() || first == last) {
            (true, _) => state.unreachable.clone(),
            (false, true) => first.clone(),
            (false, false) => format!("{first}; and last: {last}"),
        }
    }

    /// Returns drop counters for another thread.
    pub(crate) fn new_counters(&self) -> Arc<DropCounters> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        // After a thread has ended, only this list refers to its counters, so another thread can
        // use them. The counts of the ended thread stay in the sum.
        if let Some(free) = counters.iter().find(|own| Arc::strong_count(own) == 1) {
            // Synchronizes with the release of the ended thread's reference.
            fence(Ordering::Acquire);
            return Arc::clone(free);
        }
        let new = Arc::<DropCounters>::default();
        counters.push(Arc::clone(&new));
        new
    }

    /// Returns the number of dropped samples of a source.
    pub(crate) fn dropped(&self, slot: u8) -> u64 {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let of_thread = |counters: &Arc<DropCounters>| {
            counters.0.get(usize::from(slot)).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        counters.iter().map(of_thread).sum()
    }
}

impl RefusalTexts {
    fn note(&mut self, text: String) {
        if self.first.is_empty() {
            self.first.clone_from(&text);
        }
        self.last = text;
    }
}

impl RegistryState {
    /// Connects to the first recorder that listens. The absence of a listening recorder does not
    /// count as a refusal.
    fn connect(&mut self, client: &ClientSetup) {
        self.unreachable.clear();
        for place in &client.sockets {
            let limit = client.options.reply_limit;
            let error = match place.check_owner().and_then(|()| Connection::open(&place.path, limit)) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.begin(client);
                    if self.connection.is_some() {
                        return self.unreachable.clear();
                    }
                    self.refused.last.clone()
                }
                Err(error) => error.to_string(),
            };
            let start = if self.unreachable.is_empty() { "no recorder: " } else { "; " };
            self.unreachable.extend([start, &format!("{}: {error}", place.path.display())]);
        }
    }

    /// Begins a connection. Sends the name of the client, its sources, and the lanes that earlier
    /// recorders have not read.
    fn begin(&mut self, client: &ClientSetup) {
        let hello = PushRequest::Hello { version: VERSION, client: client.name.clone() };
        let welcome =
            self.ask(&hello, None, |reply, _| matches!(reply, PushReply::Hello { .. }).then_some(()));
        if welcome.is_none() {
            self.connection = None;
            return;
        }
        self.connections += 1;
        self.registered = 0;
        self.budget = LaneBudget::default();
        self.refused = RefusalTexts::default();
        for (slot, _) in (0_u8..).zip(&client.sources).filter(|(_, source)| source.get().is_some()) {
            self.register(client, slot);
        }
        for free in std::mem::take(&mut self.free) {
            if let Some(lane) = self.find_held(&free).and_then(|index| self.lanes.get_mut(index)) {
                lane.resumption.is_final = true;
            }
        }
        // These include lanes to which threads still write. Such a thread hands over its lane after
        // it has stopped writing to the lane. They also include lanes that an earlier recorder
        // received but did not rescue.
        for lane in std::mem::take(&mut self.lanes) {
            if self.resume(&lane) {
                self.lanes.push(lane);
            }
        }
    }

    fn find_held(&self, end: &LaneEnd) -> Option<usize> {
        self.lanes.iter().position(|lane| Arc::ptr_eq(&lane.memory, &end.memory))
    }

    fn register(&mut self, client: &ClientSetup, slot: u8) {
        let Some(source) = client.sources.get(usize::from(slot)).and_then(|source| source.get()) else {
            return;
        };
        let request = PushRequest::Source(source.registration.clone());
        let memory =
            if source.registration.root.is_empty() { None } else { sealed_memory(&source.schema).ok() };
        if request.descriptors() == 1 && memory.is_none() {
            return;
        }
        let descriptor = memory.as_ref().map(AsFd::as_fd);
        let is_registered = |reply, _| matches!(reply, PushReply::Source { .. }).then_some(());
        if self.ask(&request, descriptor, is_registered).is_some() {
            self.registered |= 1 << slot;
        }
    }

    fn new_lane(&mut self, client: &ClientSetup) -> Option<LaneEnd> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let thread_name = std::thread::current().name().unwrap_or_default().to_owned();
        let request = PushRequest::Lane { bytes: client.options.ring_bytes, thread, thread_name };
        let memory = self.ask(&request, None, |reply, descriptor| match reply {
            PushReply::Lane { .. } => descriptor,
            _ => None,
        })?;
        let memory = Arc::new(File::from(memory));
        let (mapping, header) = match Mapping::new(&memory) {
            Ok(mapped) => mapped,
            Err(error) => {
                self.refused.note(format!("the lane cannot be mapped: {error}"));
                return None;
            }
        };
        self.budget = header.budget;
        let resumption = LaneResumption { run_id: header.run_id, lane: header.lane, is_final: false };
        let connection = self.connections;
        if self.lanes.len() >= HELD_LANES_MAX
            && let Some(oldest) = self.lanes.iter().position(|lane| lane.resumption.is_final)
        {
            self.lanes.remove(oldest);
        }
        self.lanes.push(HeldLane { resumption, memory: Arc::clone(&memory), connection });
        Some(LaneEnd { writer: LaneWriter::new(mapping, header), connection, memory })
    }

    fn hand_over(&mut self, end: &LaneEnd) {
        let Some(mut lane) = self.find_held(end).map(|index| self.lanes.remove(index)) else { return };
        lane.resumption.is_final = true;
        // If the recorder has ended a lane of this connection, the lane is not offered again.
        if lane.connection != self.connections && self.resume(&lane) {
            self.lanes.push(lane);
        }
    }

    /// Offers a lane of an earlier connection to the recorder. Returns whether the client must
    /// retain the lane. The client retains the lane until the recorder has rescued it, because this
    /// recorder may be killed, too. If the recorder refuses a lane without a writer, the client
    /// does not retain the lane.
    fn resume(&mut self, lane: &HeldLane) -> bool {
        let request = PushRequest::Resume(lane.resumption);
        let is_taken = |reply, _| matches!(reply, PushReply::Resume).then_some(());
        let taken = self.ask(&request, Some(lane.memory.as_fd()), is_taken);
        taken.is_some() || self.connection.is_none() || !lane.resumption.is_final
    }

    /// Sends a request. Returns the part of the reply that the caller needs. Returns `None` if
    /// there is no recorder, or if the recorder refuses or does not reply in time. After a missing
    /// reply or a fatal refusal, the connection is closed.
    fn ask<R>(
        &mut self,
        request: &PushRequest,
        descriptor: Option<std::os::fd::BorrowedFd<'_>>,
        wanted: impl FnOnce(PushReply, Option<std::os::fd::OwnedFd>) -> Option<R>,
    ) -> Option<R> {
        match self.connection.as_mut()?.ask(request, descriptor) {
            Ok((PushReply::Error { text, code }, _)) => {
                self.refused.note(text);
                if code.is_fatal() {
                    self.connection = None;
                }
                None
            }
            Ok((reply, descriptor)) => wanted(reply, descriptor),
            Err(error) => {
                self.refused.note(format!("the recorder did not answer: {error}"));
                self.connection = None;
                None
            }
        }
    }

    /// Reads the messages that the recorder has sent unrequested.
    fn poll(&mut self) {
        while let Some(connection) = &mut self.connection {
            match connection.poll() {
                Ok(Some(PushReply::Ended { reason, .. } | PushReply::Error { text: reason, .. })) => {
                    self.refused.note(reason);
                }
                Ok(Some(PushReply::Rescued { run_id, lane })) => {
                    let rescued = LaneResumption { run_id, lane, is_final: true };
                    self.lanes.retain(|held| held.resumption != rescued);
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => self.connection = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the counters of a thread that has ended are reused, and that the reuse loses no
    // count.
    #[test]
    fn counters_are_reused() {
        let registry = Registry::default();
        let held = registry.new_counters();
        for _ in 0..100 {
            std::thread::scope(|scope| {
                scope.spawn(|| registry.new_counters().add(3));
            });
        }
        assert_eq!(registry.counters.lock().unwrap().len(), 2);
        assert_eq!((registry.dropped(3), registry.dropped(2)), (100, 0));
        drop(held);
    }
}
