//! Tests the announcement of manifests on a failing bus, by a process that may end during any
//! request to the store. The messages of the bus are compared with the manifests of the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use crate::bus::{BusError, BusMessage, MessageBus};
use crate::error::ShipError;
use crate::failing_store::{FailingStore, Fault, FaultPlan};
use crate::lake::{Lake, Patience};
use crate::messenger::{MessageEvent, Messenger};
use crate::names::ObjectGroup;
use crate::recordings::{TestSegment, write_run};
use crate::service::{ServiceOptions, ShipEvent, ShipState, serve, ship_backlog};
use crate::shared_outbox::{MessageCounts, SharedOutbox};
use crate::shipper::{ShipOptions, Shipper};
use crate::stop::StopSignal;

const SUBJECT: &str = "flatcap.segments";
const STORE: &str = "memory";
/// The host of the recordings.
const HOST: &str = "web-1";
/// Number of attempts before a process gives up.
const ATTEMPTS: u32 = 5;

fn patience() -> Patience {
    let (first_pause, timeout) = (Duration::from_micros(10), Duration::from_secs(60));
    Patience { attempts: 1, first_pause, timeout }
}

fn lake(store: &FailingStore, stop: &StopSignal) -> Lake {
    Lake::over(Arc::new(store.clone()), "memory", stop.clone(), patience()).unwrap()
}

fn options() -> ShipOptions {
    ShipOptions { host: Some(HOST.to_owned()), ..ShipOptions::default() }
}

/// The messages that a stream has accepted, in order, and the number of duplicates that it
/// received.
#[derive(Debug, Default)]
struct Stream {
    messages: Vec<BusMessage>,
    duplicates: u64,
    connections: u64,
}

/// A bus that accepts each message id only once, as a stream does. The bus fails according to a
/// plan.
#[derive(Clone)]
struct FakeBus {
    stream: Arc<Mutex<Stream>>,
    /// The function that maps the index of an attempt to its fault.
    plan: Arc<dyn Fn(u64) -> Option<Fault> + Send + Sync>,
    attempts: Arc<Mutex<u64>>,
    is_open: bool,
}

impl FakeBus {
    fn new(plan: impl Fn(u64) -> Option<Fault> + Send + Sync + 'static) -> Self {
        let (stream, attempts) = (Arc::default(), Arc::default());
        Self { stream, plan: Arc::new(plan), attempts, is_open: false }
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap()
    }

    fn take(&self, message: &BusMessage) {
        let mut stream = self.stream();
        if stream.messages.iter().any(|known| known.id == message.id) {
            stream.duplicates += 1;
        } else {
            stream.messages.push(message.clone());
        }
    }
}

impl MessageBus for FakeBus {
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError> {
        let mut attempts = self.attempts.lock().unwrap();
        let fault = (self.plan)(*attempts);
        *attempts += 1;
        if fault == Some(Fault::Refused) {
            return Err(BusError::Failed("connection refused".to_owned()));
        }
        if !self.is_open {
            self.stream().connections += 1;
            self.is_open = true;
        }
        if fault != Some(Fault::Silent) {
            self.take(message);
        }
        match fault {
            None => Ok(()),
            Some(_) => Err(BusError::Failed("no acknowledgement".to_owned())),
        }
    }

    fn close(&mut self) {
        self.is_open = false;
    }
}

/// A bus that refuses one message permanently.
struct Picky(FakeBus);

impl MessageBus for Picky {
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError> {
        if message.id.ends_with("-0000000000") {
            return Err(BusError::Refused("too large".to_owned()));
        }
        self.0.send(message)
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// Ships segments and announces manifests like a separate process that runs `once`.
fn once(
    store: &FailingStore,
    data_dir: &Path,
    outbox: &Path,
    bus: &FakeBus,
) -> (Result<(), ShipError>, MessageCounts) {
    let stop = StopSignal::new().1;
    let shared = SharedOutbox::open(outbox, STORE).unwrap();
    let bus = Box::new(bus.clone());
    let mut messenger = Messenger::new(shared, lake(store, &stop), bus, SUBJECT, patience());
    let lake = lake(store, &stop);
    let mut shipper = Shipper::new(&lake, options()).with_outbox(Some(messenger.outbox()));
    let result = ship_backlog(&mut shipper, data_dir, &mut ShipState::new(), &mut |_| ());
    messenger.send_all(ATTEMPTS, &mut |_| ()).unwrap();
    (result.map(drop), shipper.messages().unwrap())
}

/// Returns the manifests of a store by the ids of their messages.
fn manifests(store: &FailingStore) -> BTreeMap<String, Bytes> {
    let objects = store.objects().into_iter();
    objects
        .filter_map(|(name, bytes)| Some((ObjectGroup::parse_manifest(&name)?.stem().to_owned(), bytes)))
        .collect()
}

/// Asserts that a bus has exactly one message for each manifest of a store, and no other messages.
fn assert_announced(bus: &FakeBus, store: &FailingStore, what: &str) {
    let stream = bus.stream();
    let sent = stream.messages.iter().map(|message| (message.id.clone(), message.body.clone()));
    let sent: BTreeMap<String, Bytes> = sent.collect();
    assert_eq!(sent.len(), stream.messages.len(), "{what}");
    assert!(sent == manifests(store), "{what}: {:?}", sent.keys());
    let subject = format!("{SUBJECT}.{HOST}");
    assert!(stream.messages.iter().all(|message| message.subject == subject), "{what}");
}

/// Writes a recording of two segments and a snapshot.
fn recording(folder: &Path) {
    let small = TestSegment { samples: 20, ..TestSegment::default() };
    write_run(folder, &small, 2);
    small.write(&folder.join("snapshots/20231114T221320Z-rule"));
}

// Proves that each manifest is announced with one message, in the order of shipping and over one
// connection. No message is sent again.
#[test]
fn each_manifest_is_announced_once() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, outbox) = (folder.path().join("data"), folder.path().join("outbox"));
    recording(&data_dir);
    let (store, bus) = (FailingStore::new(), FakeBus::new(|_| None));
    let (shipped, counts) = once(&store, &data_dir, &outbox, &bus);
    shipped.unwrap();
    assert_eq!(counts, MessageCounts { sent: 3, ..MessageCounts::default() });
    assert_announced(&bus, &store, "once");
    let ids: Vec<String> = bus.stream().messages.iter().map(|message| message.id.clone()).collect();
    let run = "0000000000000abc";
    let expected = ["20231114T221320Z-rule", "0000000000", "0000000001"].map(|name| format!("{run}-{name}"));
    assert_eq!((ids, bus.stream().connections), (expected.to_vec(), 1));
    let (_, counts) = once(&store, &data_dir, &outbox, &bus);
    assert_eq!((counts.sent, bus.stream().duplicates), (0, 0));
}

// Proves that a process loses no message if it ends at any request to the store, before or after
// the store executed the request. The next process sends the message. The bus may refuse, not
// respond, or accept a message and lose the acknowledgement. A segment is never announced before
// its manifest exists.
#[test]
fn an_end_at_any_request_loses_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    recording(&data_dir);
    let undisturbed = FailingStore::new();
    let counted = undisturbed.with(FaultPlan::Healthy);
    once(&counted, &data_dir, &folder.path().join("outbox"), &FakeBus::new(|_| None)).0.unwrap();
    let requests = counted.requests();
    assert!(requests > 15, "{requests}");
    let mut duplicates = 0;
    for end in 0..requests {
        for is_after in [false, true] {
            let what = format!("an end at {end}, {is_after}");
            let outbox = folder.path().join(format!("outbox-{end}-{is_after}"));
            let faults = [Some(Fault::Refused), Some(Fault::AfterTheFact), None, Some(Fault::Silent), None];
            let bus = FakeBus::new(move |attempt| {
                let at = usize::try_from(end + attempt).unwrap() % faults.len();
                faults[at]
            });
            let store = FailingStore::new();
            let (shipped, _) = once(&store.with(FaultPlan::EndsAt(end, is_after)), &data_dir, &outbox, &bus);
            let announced = bus.stream().messages.len();
            assert!(shipped.is_err() || announced < 3, "{what} comes before the last message is sent");
            let there = manifests(&store);
            assert!(bus.stream().messages.iter().all(|message| there.contains_key(&message.id)), "{what}");
            let (shipped, counts) = once(&store, &data_dir, &outbox, &bus);
            shipped.unwrap();
            assert_eq!((counts.unsent, counts.dropped, counts.error), (0, 0, None), "{what}");
            assert_announced(&bus, &store, &what);
            duplicates += bus.stream().duplicates;
        }
    }
    assert!(duplicates > 0, "no acknowledgement was lost");
}

// Proves that a message whose acknowledgement is not on the disk yet is sent again, and that the
// bus recognizes it by its id and drops it. Nothing else happens.
#[test]
fn an_old_outbox_sends_only_duplicates() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, outbox) = (folder.path().join("data"), folder.path().join("outbox"));
    recording(&data_dir);
    let (store, bus) = (FailingStore::new(), FakeBus::new(|_| None));
    once(&store, &data_dir, &outbox, &bus).0.unwrap();
    let is_manifest = |name: &String| ObjectGroup::parse_manifest(name).is_some();
    let names: Vec<String> = store.objects().into_keys().filter(is_manifest).collect();
    let lost = "v1/_segments/date=2023-11-14/host=web-1/0000000000000abc-0000000009.json";
    std::fs::write(outbox.join("unsent"), names.join("\n") + "\n?" + lost).unwrap();
    let (_, counts) = once(&store, &data_dir, &outbox, &bus);
    assert_eq!(counts, MessageCounts { sent: 3, ..MessageCounts::default() }, "one has no manifest");
    assert_eq!(bus.stream().duplicates, 3);
    assert_announced(&bus, &store, "an old outbox");
    assert_eq!(std::fs::read(outbox.join("unsent")).unwrap(), b"");
}

// Proves that shipping succeeds while the bus is unavailable, and that messages wait for the next
// process. A message that the bus refuses delays no other message. If the outbox cannot be written,
// the error is reported but shipping does not fail.
#[test]
fn shipping_does_not_need_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, outbox) = (folder.path().join("data"), folder.path().join("outbox"));
    recording(&data_dir);
    let (store, away) = (FailingStore::new(), FakeBus::new(|_| Some(Fault::Refused)));
    let (shipped, counts) = once(&store, &data_dir, &outbox, &away);
    shipped.unwrap();
    assert_eq!(manifests(&store).len(), 3);
    let error = Some("connection refused".to_owned());
    assert_eq!(counts, MessageCounts { unsent: 3, failures: ATTEMPTS, error, ..MessageCounts::default() });

    let stop = StopSignal::new().1;
    let bus = FakeBus::new(|_| None);
    let shared = SharedOutbox::open(&outbox, STORE).unwrap();
    let picky = Box::new(Picky(bus.clone()));
    let mut messenger = Messenger::new(shared, lake(&store, &stop), picky, SUBJECT, patience());
    let mut reported = Vec::new();
    messenger.send_all(ATTEMPTS, &mut |event| reported.push(format!("{event:?}"))).unwrap();
    let counts = messenger.outbox().counts();
    assert_eq!((counts.sent, counts.dropped, counts.unsent, reported.len()), (2, 1, 0, 1));
    assert!(reported[0].contains("-0000000000.json") && reported[0].contains("too large"), "{reported:?}");

    #[expect(clippy::disallowed_methods, reason = "the test takes the directory away")]
    std::fs::remove_file(outbox.join("unsent")).unwrap();
    std::fs::create_dir(outbox.join("unsent")).unwrap();
    messenger.outbox().prepare("v1/_segments/date=2023-11-14/host=web-1/0000000000000abc-0000000001.json");
    messenger.outbox().post("v1/_segments/date=2023-11-14/host=web-1/0000000000000abc-0000000001.json", true);
    let mut problems = 0;
    let mut watch =
        |event: MessageEvent<'_>| problems += u64::from(matches!(event, MessageEvent::Problem(_)));
    messenger.send_all(ATTEMPTS, &mut watch).unwrap();
    assert_eq!((messenger.outbox().counts().sent, problems), (3, 1));
}

/// Runs the service until the shipper has put three segments and a bus has accepted three messages.
fn run_service(store: &FailingStore, folder: &Path, bus: impl MessageBus + 'static, mut watch: impl FnMut()) {
    let (sender, stop) = StopSignal::new();
    let shared = SharedOutbox::open(&folder.join("outbox"), STORE).unwrap();
    let messenger = Messenger::new(shared, lake(store, &stop), Box::new(bus), SUBJECT, patience());
    let outbox = messenger.outbox();
    let shipper_lake = lake(store, &stop);
    let mut shipper = Shipper::new(&shipper_lake, options()).with_outbox(Some(Arc::clone(&outbox)));
    let messages = messenger.start(|_| ()).unwrap();
    let options = ServiceOptions {
        data_dir: folder.join("data"),
        interval: Duration::from_millis(1),
        status_file: None,
        metrics_file: None,
        receipts: None,
    };
    let mut segments = 0;
    serve(&shipper_lake, &mut shipper, &options, &mut |event| {
        match event {
            ShipEvent::Shipped(_) => {
                segments += 1;
                watch();
            }
            ShipEvent::Failed(error) => panic!("{error}"),
            _ => {}
        }
        if segments == 3 && outbox.counts().sent == 3 {
            sender.set();
        }
    });
    messages.join().unwrap();
    assert_eq!(outbox.counts().unsent, 0);
}

// Proves that the service sends the messages that a failing bus did not accept. The service sends
// these messages concurrently with its shipping loop, and shipping reports no error. The stop
// signal ends both the shipping and the sending.
#[test]
fn the_service_sends_until_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder.path().join("data"));
    let faults = [Fault::Refused, Fault::Silent, Fault::AfterTheFact, Fault::Refused, Fault::AfterTheFact];
    let bus = FakeBus::new(move |attempt| faults.get(usize::try_from(attempt).unwrap()).copied());
    let store = FailingStore::new();
    run_service(&store, folder.path(), bus.clone(), || ());
    assert_announced(&bus, &store, "the service");
    assert_eq!(bus.stream().duplicates, 2);
}

// Proves that a bus that does not respond delays no shipping. Method: the bus responds only after
// all segments are shipped.
#[test]
fn a_silent_bus_delays_nothing() {
    /// A bus that responds only after a signal from the test.
    struct SilentBus(Receiver<()>, FakeBus);
    impl MessageBus for SilentBus {
        fn send(&mut self, message: &BusMessage) -> Result<(), BusError> {
            // An error means that the sender was dropped. From then on, the bus responds to every
            // call at once.
            let _answered = self.0.recv();
            self.1.send(message)
        }

        fn close(&mut self) {}
    }
    let folder = tempfile::tempdir().unwrap();
    recording(&folder.path().join("data"));
    let (answer, answered): (Sender<()>, Receiver<()>) = channel();
    let (store, bus) = (FailingStore::new(), FakeBus::new(|_| None));
    let (mut shipped, mut answer) = (0, Some(answer));
    let stream = Arc::clone(&bus.stream);
    run_service(&store, folder.path(), SilentBus(answered, bus.clone()), || {
        shipped += 1;
        if shipped == 3 {
            assert!(stream.lock().unwrap().messages.is_empty(), "nothing was acknowledged meanwhile");
            answer.take();
        }
    });
    assert_eq!(shipped, 3);
    assert_announced(&bus, &store, "a silent bus");
}
