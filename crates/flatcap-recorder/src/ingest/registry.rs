//! The registry of clients with their lanes and sources. The registry replies to the requests of
//! the clients.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_format::schema::{PLAIN_NAME_RULE, is_plain_source_name};
use flatcap_lane::{
    LaneHeader, LaneResumption, PushErrorCode, PushReply, PushRequest, SourceRegistration, VERSION,
};
use flatcap_metrics::PushMetrics;
use flatcap_os::peer_descriptor::PeerDescriptor;
use flatcap_os::sealed_memory::read_sealed;
use flatcap_slab::Causes;

use super::client::ConnectedClient;
use super::frame_sink::FrameSink;
use super::lane::Lane;
use super::left_lane::{LeftLane, RescuedLane};
use super::limits::{
    DescribedSources, LEFT_LANES_MAX, PushLimits, USER_SHARE, slabs, source_bytes, user_share,
};
use super::payload_verification::verifier;
use super::push_target::{AddedSource, PushTarget, SourceRefusal};
use super::source_pool::{ChosenSource, PushedSource, SourcePool};
use super::source_setup::{RegisteredSource, SourceSetup};
use super::trigger_limits::TriggerLimits;

/// Maximum number of receipts that are queued between two turns. There may be one receipt for each
/// waiting lane and for each lane that is being rescued.
const RECEIPTS_MAX: usize = 2 * LEFT_LANES_MAX;

/// The clients, their lanes, and the sources of lanes that have ended.
pub(super) struct ClientRegistry {
    pub(super) clients: BTreeMap<u64, ConnectedClient>,
    pub(super) lanes: BTreeMap<u32, Lane>,
    pool: SourcePool,
    settings: RegistrySettings,
    next_lane: u32,
    memory_bytes: u64,
    triggers: TriggerLimits,
    receipts: (Sender<RescuedLane>, Receiver<RescuedLane>),
    lanes_waiting: u64,            // not rescued yet
    left_of: BTreeMap<u32, usize>, // lanes in the queue of the rescue, by user
}

/// The settings of a registry.
pub(super) struct RegistrySettings {
    pub(super) limits: PushLimits,
    /// The header of each lane, except the lane's number, user and slabs.
    pub(super) lane_header: LaneHeader,
    pub(super) target: Box<dyn PushTarget>,
    pub(super) metrics: Arc<PushMetrics>,
}

/// The result of handling a request.
pub(super) enum RequestAnswer {
    /// A reply.
    Reply(PushReply),
    /// A reply with the memory of this lane.
    WithLane(PushReply, u32),
    /// The request has no reply.
    Nothing,
    /// No answer yet. The request must be answered before the next request of this client.
    Later(PushRequest),
}

/// The refusal of a request. It consists of the code for the reply, and a message that is intended
/// for people.
pub(super) struct RequestRefusal(pub(super) PushErrorCode, pub(super) String);

type Answered = Result<RequestAnswer, RequestRefusal>;

/// The time at which a request is handled, with the offset of the wall clock, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTime {
    pub(super) mono_ns: u64,
    pub(super) wall_offset_ns: i64,
}

impl ClientRegistry {
    /// Creates an empty registry.
    pub(super) fn new(settings: RegistrySettings) -> Self {
        Self {
            clients: BTreeMap::new(),
            lanes: BTreeMap::new(),
            pool: SourcePool::default(),
            settings,
            next_lane: 0,
            memory_bytes: 0,
            triggers: TriggerLimits::default(),
            receipts: bounded(RECEIPTS_MAX),
            lanes_waiting: 0,
            left_of: BTreeMap::new(),
        }
    }

    /// Handles a request of a client, and returns the reply. The caller must have checked that the
    /// client has sent the right number of descriptors.
    pub(super) fn answer(
        &mut self,
        id: u64,
        request: PushRequest,
        descriptor: Option<PeerDescriptor>,
        now: RequestTime,
    ) -> Answered {
        let Some(client) = self.clients.get(&id) else { return Ok(RequestAnswer::Nothing) };
        if !client.is_permitted {
            let text =
                format!("user {} may not push: add it, or one of its groups, to [push] allow", client.uid);
            return Err(RequestRefusal(PushErrorCode::Denied, text));
        }
        if client.name.is_none() != matches!(request, PushRequest::Hello { .. }) {
            let text = "hello must be the first message, and comes once".to_owned();
            return Err(RequestRefusal(PushErrorCode::Malformed, text));
        }
        match request {
            PushRequest::Hello { version, client } => self.hello(id, version, client),
            PushRequest::Source(registration) => self.register(id, registration, descriptor),
            PushRequest::Lane { bytes, .. } => self.new_lane(id, bytes, now),
            PushRequest::Bind { lane, source } => self.bind(id, (lane, source), now),
            PushRequest::Wake { .. } => Ok(RequestAnswer::Nothing),
            PushRequest::Trigger { text, .. } => self.trigger(id, &text, now),
            PushRequest::Resume(resumption) => {
                let uid = client.uid;
                self.take_over(resumption, (id, uid), descriptor, now)
            }
        }
    }

    fn hello(&mut self, id: u64, version: u32, name: String) -> Answered {
        if version != VERSION {
            let text = format!("version {version} of the protocol; this recorder knows version {VERSION}");
            return Err(RequestRefusal(PushErrorCode::Version, text));
        }
        let limits = &self.settings.limits;
        let Some(uid) = self.clients.get(&id).map(|client| client.uid) else {
            return Ok(RequestAnswer::Nothing);
        };
        let named = || self.clients.values().filter(|client| client.name.is_some());
        let of_user = named().filter(|client| client.uid == uid).count();
        check_share("clients", "[push] clients", (named().count(), of_user), limits.clients)?;
        let count = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let reply = PushReply::Hello {
            version: VERSION,
            run_id: self.settings.lane_header.run_id,
            sources_max: count(limits.sources),
            lanes_max: count(user_share(limits.lanes)),
        };
        if let Some(client) = self.clients.get_mut(&id) {
            client.name = Some(name);
        }
        Ok(RequestAnswer::Reply(reply))
    }

    /// Registers a source. The source is added to the recording only when a lane uses it.
    fn register(
        &mut self,
        id: u64,
        registration: SourceRegistration,
        memory: Option<PeerDescriptor>,
    ) -> Answered {
        let number = registration.number;
        if number as usize >= self.settings.limits.sources {
            let most = self.settings.limits.sources;
            return Err(limit(format!("source {number}: a client may have {most} sources ([push] sources)")));
        }
        let refuse = |text: String| RequestRefusal(PushErrorCode::Schema, text);
        if self.settings.target.is_reserved(&registration.name) {
            return Err(refuse(format!(
                "the name of source {:?} is reserved: the recorder's own sources (flatcap sources), `tasks`, and \
                 names that begin with one of these and a dot; choose another",
                registration.name
            )));
        }
        if !is_plain_source_name(&registration.name) {
            return Err(refuse(format!(
                "the name of source {:?}: expected {PLAIN_NAME_RULE}",
                registration.name
            )));
        }
        let limit_bytes = self.settings.limits.schema_bytes;
        let schema = memory.map_or_else(|| Ok(Vec::new()), |memory| read_sealed(memory.as_fd(), limit_bytes));
        let schema = schema.map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => {
                limit(format!("the schema has more than {limit_bytes} bytes ([push] schema_max)"))
            }
            _ => refuse(format!(
                "the schema is not in memory sealed against writing, shrinking and growing: {error}"
            )),
        })?;
        let verifier = verifier(&schema, &registration.root).map_err(refuse)?;
        let bytes = source_bytes(&registration, schema.len());
        let described = DescribedSources::of(&registration, schema.len());
        let Some(uid) = self.clients.get(&id).map(|client| client.uid) else {
            return Ok(RequestAnswer::Nothing);
        };
        self.charge(uid, bytes)?;
        let Some(client) = self.clients.get_mut(&id) else { return Ok(RequestAnswer::Nothing) };
        let process = client.process.as_ref();
        let setup = SourceSetup::new(registration, schema, client.name(), (client.uid, process));
        let reduced = setup.reduced();
        let registered = RegisteredSource { setup: Arc::new(setup), reduced, described, verifier, bytes };
        let slot = u8::try_from(number).unwrap_or(u8::MAX);
        let before = client.sources.insert(slot, registered);
        self.release(before.map_or(0, |before| before.bytes));
        Ok(RequestAnswer::Reply(PushReply::Source { number }))
    }

    fn new_lane(&mut self, id: u64, bytes: u64, now: RequestTime) -> Answered {
        let Some(uid) = self.clients.get(&id).map(|client| client.uid) else {
            return Ok(RequestAnswer::Nothing);
        };
        let (limits, template) = (self.settings.limits, self.settings.lane_header);
        let of_user = self.lanes.values().filter(|lane| lane.header().uid == uid).count();
        check_share("lanes", "[push] lanes", (self.lanes.len(), of_user), limits.lanes)?;
        let slabs = slabs(&limits, template.slab_bytes, bytes);
        let header = LaneHeader { slabs, uid, lane: self.next_lane, ..template };
        self.charge(uid, header.bytes())?;
        let lane = Lane::create(id, header, now.wall_offset_ns).map_err(|error| {
            self.release(header.bytes());
            RequestRefusal(PushErrorCode::Unavailable, format!("the memory of a lane: {error}"))
        })?;
        self.settings.target.keep_lane(&header, lane.memory());
        self.next_lane = self.next_lane.wrapping_add(1);
        self.lanes.insert(header.lane, lane);
        Ok(RequestAnswer::WithLane(PushReply::Lane { lane: header.lane, bytes: header.bytes() }, header.lane))
    }

    fn bind(&mut self, id: u64, (number, source): (u32, u32), now: RequestTime) -> Answered {
        let unknown = |text: String| RequestRefusal(PushErrorCode::Unknown, text);
        let Some(client) = self.clients.get(&id) else { return Ok(RequestAnswer::Nothing) };
        let slot = u8::try_from(source).unwrap_or(u8::MAX);
        let registered = client.sources.get(&slot).cloned();
        let registered = registered.ok_or_else(|| unknown(format!("source {source} is not registered")))?;
        let (uid, process) = (client.uid, client.process_id());
        let is_usable = |lane: &Lane| lane.client == id && lane.is_open() && !lane.is_bound(slot);
        if !self.lanes.get(&number).is_some_and(is_usable) {
            let text = format!("this client has no open lane {number} in which source {source} is not bound");
            return Err(unknown(text));
        }
        let Some((setup, taken)) = self.take_source(&registered, (uid, process), now)? else {
            return Ok(RequestAnswer::Later(PushRequest::Bind { lane: number, source }));
        };
        let (source_id, next_seq) = (taken.id, taken.next_seq);
        let registered = RegisteredSource { setup: Arc::clone(&setup), ..registered };
        if let Some(lane) = self.lanes.get_mut(&number)
            && let Err(unused) = lane.bind(slot, registered, taken)
        {
            self.pool.give_back(setup, unused);
            return Err(RequestRefusal(
                PushErrorCode::Unavailable,
                "the lane cannot be written to".to_owned(),
            ));
        }
        Ok(RequestAnswer::Reply(PushReply::Bind { id: source_id, next_seq }))
    }

    /// Takes a source of the run that no lane uses, or adds a new source. The source has as many
    /// labels as the user's share allows. Returns `None` if the request must wait.
    fn take_source(
        &mut self,
        registered: &RegisteredSource,
        (uid, process): (u32, Option<i32>),
        now: RequestTime,
    ) -> Result<Option<(Arc<SourceSetup>, PushedSource)>, RequestRefusal> {
        let limits = &self.settings.limits;
        let chosen = self.pool.choose(registered, (uid, process), now.mono_ns, limits).map_err(limit)?;
        let (setup, process) = match chosen {
            ChosenSource::Known(setup, source) => return Ok(Some((setup, source))),
            ChosenSource::New(setup, process) => (setup, process),
        };
        let Some(added) = self.add_source(registered, (uid, &setup), process)? else { return Ok(None) };
        self.settings.metrics.description_bytes.set(self.pool.described().bytes);
        Ok(Some((setup, added)))
    }

    /// Adds a source to the run. Returns `None` if the request must wait.
    fn add_source(
        &mut self,
        registered: &RegisteredSource,
        (uid, setup): (u32, &Arc<SourceSetup>),
        process: Option<i32>,
    ) -> Result<Option<PushedSource>, RequestRefusal> {
        self.charge(uid, registered.bytes)?;
        match self.settings.target.add_source(setup.info(process)) {
            Ok(AddedSource { id, counters }) => {
                self.pool.note_added((uid, registered.described), setup, process);
                Ok(Some(PushedSource { id, counters, process, next_seq: 0, last_mono_ns: 0 }))
            }
            Err(refusal) => {
                self.release(registered.bytes);
                match refusal {
                    SourceRefusal::Later => Ok(None),
                    SourceRefusal::Refused(text) => Err(limit(text)),
                }
            }
        }
    }

    fn trigger(&mut self, id: u64, text: &str, now: RequestTime) -> Answered {
        let Some(client) = self.clients.get(&id) else { return Ok(RequestAnswer::Nothing) };
        let user = client.uid;
        // All processes of the same program count as the same application.
        let program = client.process.as_ref().and_then(|process| process.executable.clone());
        let program = program.unwrap_or_else(|| client.name().to_owned());
        self.triggers.permit(user, &program, now.mono_ns).map_err(limit)?;
        let text = format!("{}: {text}", client.name());
        self.settings
            .target
            .trigger(user, text)
            .map_err(|text| RequestRefusal(PushErrorCode::Unavailable, text))?;
        self.triggers.note(user, program, now.mono_ns);
        self.settings.metrics.triggers.add(1);
        Ok(RequestAnswer::Reply(PushReply::Trigger))
    }

    fn take_over(
        &mut self,
        resumption: LaneResumption,
        (client, uid): (u64, u32),
        memory: Option<PeerDescriptor>,
        now: RequestTime,
    ) -> Answered {
        let LaneResumption { run_id, lane, .. } = resumption;
        let refuse = |code, text: String| {
            RequestRefusal(code, format!("lane {lane} of run {run_id:016x} is not taken over: {text}"))
        };
        let memory = memory.ok_or_else(|| refuse(PushErrorCode::Malformed, "no descriptor".to_owned()))?;
        let own = (&self.settings.lane_header, now.wall_offset_ns);
        let most = LEFT_LANES_MAX / usize::try_from(USER_SHARE).unwrap_or(usize::MAX);
        let waiting = self.left_of.get(&uid).copied().unwrap_or_default();
        if waiting >= most {
            let text = format!("{waiting} lanes of user {uid} wait to be rescued, the limit is {most}");
            return Err(refuse(PushErrorCode::Unavailable, text));
        }
        let left = LeftLane::open(memory.as_fd(), resumption, uid, own)
            .map_err(|text| refuse(PushErrorCode::Stale, text))?;
        self.left_of.insert(uid, waiting + 1);
        let taken = self.settings.target.take_over(left.for_client(client, &self.receipts.0));
        taken.map_err(|text| refuse(PushErrorCode::Unavailable, text))?;
        self.lanes_waiting += 1;
        Ok(RequestAnswer::Reply(PushReply::Resume))
    }

    /// Notifies each client whose handed-over lane has been rescued. If a client still writes to
    /// its lane, the client is notified only after the rest of the lane was also rescued.
    pub(super) fn pass_on_receipts(&mut self) {
        for RescuedLane { client, uid, resumption, is_rescued } in self.receipts.1.try_iter() {
            if let Some(waiting) = self.left_of.get_mut(&uid) {
                *waiting = waiting.saturating_sub(1);
            }
            if !is_rescued {
                continue;
            }
            self.lanes_waiting = self.lanes_waiting.saturating_sub(1);
            if let Some(client) = self.clients.get(&client).filter(|_| resumption.is_final) {
                client.tell_rescued(resumption.run_id, resumption.lane);
            }
        }
    }

    /// Removes a client whose connection is closed. The client's lanes are still read until they
    /// are empty.
    pub(super) fn remove_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.release(client.sources.values().map(|source| source.bytes).sum());
        self.lanes.values_mut().filter(|lane| lane.client == id).for_each(Lane::end);
    }

    /// Ends a lane and releases its resources.
    pub(super) fn finish_lane(&mut self, number: u32, causes: Causes, sink: &mut FrameSink) {
        let Some(lane) = self.lanes.remove(&number) else { return };
        self.release(lane.bytes());
        self.settings.target.forget_lane(lane.header());
        lane.finish(causes, sink, &mut self.pool);
    }

    /// Updates the metrics with the current counts.
    pub(super) fn publish(&self) {
        let metrics = &self.settings.metrics;
        let clients = self.clients.values().filter(|client| client.name.is_some()).count();
        metrics.clients.set(clients as u64);
        metrics.lanes.set(self.lanes.len() as u64);
        metrics.lanes_waiting.set(self.lanes_waiting);
        metrics.memory_bytes.set(self.memory_bytes);
    }

    /// Charges memory to a user, and refuses the request if a limit is exceeded.
    fn charge(&mut self, uid: u32, bytes: u64) -> Result<(), RequestRefusal> {
        let most = self.settings.limits.memory_bytes;
        let exceeds = |who: &str, used: u64, most: u64| {
            Err(limit(format!(
                "{bytes} bytes more than the {used} that {who} use exceed the limit of {most}: raise [push] memory_max, \
                 or use fewer threads or smaller lanes"
            )))
        };
        let sum = self.memory_bytes.saturating_add(bytes);
        if sum > most {
            return exceeds("all users", self.memory_bytes, most);
        }
        let of_user = self.memory_of(uid);
        if of_user.saturating_add(bytes) > most / USER_SHARE {
            return exceeds("the applications of this user", of_user, most / USER_SHARE);
        }
        self.memory_bytes = sum;
        Ok(())
    }

    /// Returns the memory that a user occupies with its lanes, the registrations of its clients,
    /// and its sources in the run.
    fn memory_of(&self, uid: u32) -> u64 {
        let lanes = self.lanes.values().filter(|lane| lane.header().uid == uid).map(Lane::bytes);
        let clients = self.clients.values().filter(|client| client.uid == uid);
        let registered = clients.flat_map(|client| client.sources.values()).map(|source| source.bytes);
        let described = self.pool.described_of(uid).memory_bytes;
        lanes.chain(registered).fold(described, u64::saturating_add)
    }

    fn release(&mut self, bytes: u64) {
        self.memory_bytes = self.memory_bytes.saturating_sub(bytes);
    }
}

/// Checks that one more client or lane is within the limit for all users, and within the share of
/// one user. The parameter `taken` contains the current count for all users and the current count
/// for this user.
fn check_share(what: &str, key: &str, taken: (usize, usize), most: usize) -> Result<(), RequestRefusal> {
    let (of_all, of_user) = taken;
    let (who, taken, most) = if of_all >= most {
        ("all users together already have", of_all, most)
    } else {
        ("this user already has", of_user, user_share(most))
    };
    if taken < most {
        return Ok(());
    }
    Err(limit(format!("{who} {taken} {what}, the limit is {most}: raise {key}")))
}

fn limit(text: String) -> RequestRefusal {
    RequestRefusal(PushErrorCode::Limit, text)
}
