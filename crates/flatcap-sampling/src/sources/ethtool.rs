//! `ethtool`: statistics of network drivers, as `ethtool -S` shows them. The interfaces come from
//! /proc/net/dev, and their drivers are queried through `os::ethtool`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::ethtool::{DriverInfo, DriverQueries, Ethtool, INTERFACE_BYTES, NAME_BYTES};
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{self, EthtoolArgs, EthtoolInterface, EthtoolStatistic};

use super::devices;
use super::guarded_reads::{BlockingRead, GuardedElement, GuardedReads};
use super::network::namespace_path;
use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/net/dev";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/dev";
/// Path of the file for the recorder's own network namespace. The path exists if the recorder's
/// process appears in another root's /proc.
const FILE_OF_THE_AGENT: &str = "proc/self/net/dev";
/// Number of heading lines at the start of the file.
const HEADING_LINES: usize = 2;
/// Maximum number of interfaces in one sample, and maximum number of statistics of all interfaces
/// together. The statistics take at most 4 MiB.
const INTERFACES_MAX: usize = 4096;
const STATISTICS_MAX: usize = 65_536;

/// `include` and `exclude` match interfaces. Interfaces without statistics are skipped. The names
/// of statistics are read again when their number changes, or when another interface has taken the
/// name of the interface. While a driver answers, the kernel holds the lock of the interface.
/// Before Linux 6.15, the kernel holds a lock of all interfaces instead. Some drivers query their
/// device, which takes milliseconds. An interface whose driver does not answer is left out, and
/// tried again with growing intervals.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "ethtool",
    about: "Statistics of network drivers, as ethtool -S shows them.",
    root: "flatcap.host.Ethtool",
    schema: include_bytes!("../../../../generated/host/ethtool.bfbs"),
    files: &[FILE],
    // Drivers query their hardware, which can take a millisecond.
    period: Duration::from_secs(1),
    may_block: true,
    refresh: "depends on the driver: at each packet, or only once a second",
    selects: "interfaces, such as eth0",
    hint: ": drivers answer only within the recorder's network namespace, \
     which is not the host's; run the container in the host's network namespace",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let host = context.host;
    let path = namespace_path(host, FILE, FILE_OF_ANOTHER_ROOT)?;
    let file = host_file(host, path, "")?;
    let unavailable = |error, hint| Unavailable { file: path, error, hint };
    // In another network namespace, an interface with the same name is a different interface.
    if !host.is_own_root() && !host.is_same_file(path, FILE_OF_THE_AGENT) {
        return Err(unavailable(io::ErrorKind::Unsupported.into(), SPEC.hint));
    }
    let pool = QueryPool::open(open_queries).map_err(|error| unavailable(error, ""))?;
    let filter = CachedNameFilter::new(context.selection());
    Ok(OpenedSampler::built(EthtoolSampler::new(path, file, pool, filter)))
}

fn open_queries() -> io::Result<Box<dyn DriverQueries>> {
    Ok(Box::new(Ethtool::open()?))
}

/// Sockets for queries. A query that hangs occupies its socket, so other queries use another
/// socket. There are at most as many sockets as threads.
#[derive(Debug)]
struct QueryPool {
    idle: Mutex<Vec<Box<dyn DriverQueries>>>,
    open: fn() -> io::Result<Box<dyn DriverQueries>>,
}

impl QueryPool {
    fn open(open: fn() -> io::Result<Box<dyn DriverQueries>>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { idle: Mutex::new(vec![open()?]), open }))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn DriverQueries>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> io::Result<Box<dyn DriverQueries>> {
        let idle = self.idle().pop();
        idle.map_or_else(self.open, Ok)
    }
}

#[derive(Debug)]
struct EthtoolSampler {
    path: &'static str,
    file: HostFile,
    pool: Arc<QueryPool>,
    reads: GuardedReads<InterfaceQuery>,
    filter: CachedNameFilter,
    known: Vec<KnownInterface>, // in the kernel's order
    spare: Vec<KnownInterface>, // interfaces that are gone, kept for their buffers
    read_incomplete: Incomplete,
    interfaces: Vec<EthtoolInterface>, // reused
    statistics: Vec<EthtoolStatistic>, // reused
}

/// An interface that the list of the kernel contains.
#[derive(Debug)]
struct KnownInterface {
    name: [u8; INTERFACE_BYTES],
    query: GuardedElement<InterfaceQuery>,
}

/// A query about an interface, and the last answer of its driver.
#[derive(Debug)]
struct InterfaceQuery {
    pool: Arc<QueryPool>,
    name: [u8; INTERFACE_BYTES],
    index: u32, // 0 before the first query
    info: DriverInfo,
    names: Vec<[u8; NAME_BYTES]>,
    values: Vec<u64>, // one per name, or none
    incomplete: Incomplete,
}

impl Sampler for EthtoolSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })?;
        self.read_incomplete = self.list();
        let read = self.reads.read(&mut self.known, |known| &mut known.query, KnownInterface::shown);
        read.map_err(|error| ReadError { file: self.path, error })
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.reads.cpu_ns()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { known, interfaces, statistics, .. } = self;
        let incomplete = self.read_incomplete | fill(known, interfaces, statistics);
        let interfaces = builder.create_vector(interfaces);
        let statistics = builder.create_vector(statistics);
        let args = EthtoolArgs { interfaces: Some(interfaces), statistics: Some(statistics) };
        let root = host::Ethtool::create(builder, &args);
        builder.finish_minimal(root);
        incomplete
    }
}

impl EthtoolSampler {
    fn new(path: &'static str, file: HostFile, pool: Arc<QueryPool>, filter: CachedNameFilter) -> Self {
        Self {
            path,
            file,
            pool,
            reads: GuardedReads::new(SPEC.name),
            filter,
            known: Vec::new(),
            spare: Vec::new(),
            read_incomplete: Incomplete::NONE,
            interfaces: Vec::new(),
            statistics: Vec::new(),
        }
    }

    /// Updates `known` from the list of interfaces in the file.
    fn list(&mut self) -> Incomplete {
        let Self { file, pool, filter, known, spare, .. } = self;
        let (lines, mut incomplete) = text::whole_lines(file.content());
        let mut count = 0;
        for (at, line) in lines.skip(HEADING_LINES).enumerate() {
            let Some(colon) = line.iter().rposition(|byte| *byte == b':') else {
                incomplete |= Incomplete::UNREADABLE;
                continue;
            };
            let name = line.get(..colon).unwrap_or_default().trim_ascii();
            if !filter.matches(at, name) {
                continue;
            }
            let Some(name) = text::name::<INTERFACE_BYTES>(name) else {
                incomplete |= Incomplete::UNREADABLE;
                continue;
            };
            if count == INTERFACES_MAX {
                incomplete |= Incomplete::TOO_MANY;
                break;
            }
            // The interface that was at this position in the last sample is still there, unless an
            // interface before it was added or removed.
            let rest = known.get(count..).unwrap_or_default();
            let interface = match rest.iter().position(|interface| interface.name == name) {
                Some(0) => None,
                Some(ahead) => Some(known.remove(count + ahead)),
                None => Some(KnownInterface::of(name, pool, spare)),
            };
            if let Some(interface) = interface {
                known.insert(count, interface);
            }
            count += 1;
        }
        while known.len() > count {
            spare.extend(known.pop());
        }
        incomplete
    }
}

impl KnownInterface {
    /// Creates the entry of an interface that was not in the previous list. The new interface
    /// reuses the buffers of a removed interface, unless a query to that interface hangs.
    fn of(name: [u8; INTERFACE_BYTES], pool: &Arc<QueryPool>, spare: &mut Vec<Self>) -> Self {
        let reset = |query: &mut InterfaceQuery| (query.name, query.index) = (name, 0);
        let reused = spare.pop().filter(|spare| spare.query.with(reset).is_some());
        let query = reused.map(|spare| spare.query);
        Self { name, query: query.unwrap_or_else(|| GuardedElement::new(InterfaceQuery::new(pool, name))) }
    }

    fn shown(&self) -> String {
        devices::shown(self.name)
    }
}

impl BlockingRead for InterfaceQuery {
    fn read(&mut self) {
        self.values.clear();
        self.incomplete = match self.pool.take() {
            Ok(mut queries) => {
                let incomplete = self.read_with(&mut *queries);
                self.pool.idle().push(queries);
                incomplete
            }
            Err(_) => Incomplete::UNREADABLE,
        };
    }
}

impl InterfaceQuery {
    fn new(pool: &Arc<QueryPool>, name: [u8; INTERFACE_BYTES]) -> Self {
        Self {
            pool: Arc::clone(pool),
            name,
            index: 0,
            info: DriverInfo::default(),
            names: Vec::new(),
            values: Vec::new(),
            incomplete: Incomplete::NONE,
        }
    }

    /// Queries the driver. Returns the reasons why the answer is incomplete. The disappearance of
    /// an interface since the listing is not such a reason.
    fn read_with(&mut self, queries: &mut dyn DriverQueries) -> Incomplete {
        let answer = self.query(queries);
        match answer.as_ref().map_err(io::Error::kind) {
            Ok(()) => Incomplete::NONE,
            Err(error) => {
                // After any error, the next read also reads the names of the statistics again.
                self.index = 0;
                self.values.clear();
                match error {
                    io::ErrorKind::FileTooLarge => Incomplete::TOO_MANY,
                    io::ErrorKind::PermissionDenied => Incomplete::DENIED,
                    _ if queries.index(&self.name).is_err() => Incomplete::NONE,
                    _ => Incomplete::UNREADABLE,
                }
            }
        }
    }

    fn query(&mut self, ethtool: &mut dyn DriverQueries) -> io::Result<()> {
        let index = ethtool.index(&self.name)?;
        if index != self.index {
            self.read_names(ethtool)?;
            self.index = index;
        }
        if self.info.statistics == 0 {
            return Ok(());
        }
        ethtool.values(&self.name, self.names.len(), &mut self.values)?;
        if self.values.len() != self.names.len() {
            self.read_names(ethtool)?;
            ethtool.values(&self.name, self.names.len(), &mut self.values)?;
        }
        // Between the reads of names and values, another interface may have been renamed to this
        // name.
        let is_same = self.values.len() == self.names.len() && ethtool.index(&self.name)? == index;
        if is_same { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    /// Reads the driver's description and the names of its statistics.
    fn read_names(&mut self, ethtool: &mut dyn DriverQueries) -> io::Result<()> {
        self.names.clear();
        self.info = match ethtool.driver(&self.name) {
            Ok(info) => info,
            // A driver that does not describe itself has no statistics.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => DriverInfo::default(),
            Err(error) => return Err(error),
        };
        if self.info.statistics > 0 {
            ethtool.names(&self.name, self.info.statistics, &mut self.names)?;
            self.info.statistics = self.names.len();
        }
        Ok(())
    }
}

/// Fills both vectors from the interfaces that have statistics and whose queries do not hang.
fn fill(
    known: &[KnownInterface],
    interfaces: &mut Vec<EthtoolInterface>,
    statistics: &mut Vec<EthtoolStatistic>,
) -> Incomplete {
    interfaces.clear();
    statistics.clear();
    let mut incomplete = Incomplete::NONE;
    for interface in known {
        let filled = interface.query.with(|query| {
            let has_space = statistics.len() + query.values.len() <= STATISTICS_MAX;
            if has_space {
                query.fill(interfaces, statistics);
            }
            (query.incomplete, has_space)
        });
        let (reason, has_space) = filled.unwrap_or_else(|| {
            odd_text::note_hanging(&interface.shown());
            (Incomplete::UNREADABLE, true)
        });
        incomplete |= reason;
        if !has_space {
            return incomplete | Incomplete::TOO_MANY;
        }
    }
    incomplete
}

impl InterfaceQuery {
    /// Adds the interface and its statistics, if the interface has any statistics.
    fn fill(&self, interfaces: &mut Vec<EthtoolInterface>, statistics: &mut Vec<EthtoolStatistic>) {
        let Self { name, index, info, names, values, .. } = self;
        if values.is_empty() {
            return;
        }
        interfaces.push(EthtoolInterface::new(
            name,
            u64::from(*index),
            &info.driver,
            &info.version,
            &info.firmware,
            &info.bus,
            values.len() as u64,
        ));
        for (statistic, value) in names.iter().zip(values) {
            statistics.push(EthtoolStatistic::new(
                name,
                &devices::truncated(devices::until_zero(statistic)),
                *value,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Condvar;

    use flatcap_os::host::HostRoot;

    use super::*;
    use crate::NameFilter;
    use crate::sources::tests::{host_with, open_sampler};

    fn shown(text: &[u8]) -> String {
        text.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }

    /// Takes a sample. Returns the statistics of a sample by interface, and the reasons why the
    /// sample is incomplete.
    fn sample(sampler: &mut dyn Sampler) -> (BTreeMap<String, BTreeMap<String, u64>>, Incomplete) {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        let incomplete = sampler.build(0, &mut builder);
        let payload = flatbuffers::root::<host::Ethtool<'_>>(builder.finished_data()).unwrap();
        let mut answer: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for statistic in &payload.statistics() {
            let interface: Vec<u8> = statistic.interface().iter().collect();
            let name: Vec<u8> = statistic.name().iter().collect();
            answer.entry(shown(&interface)).or_default().insert(shown(&name), statistic.value());
        }
        for interface in &payload.interfaces() {
            let name: Vec<u8> = interface.name().iter().collect();
            assert_eq!(interface.statistics(), answer[&shown(&name)].len() as u64);
            assert!(interface.index() > 0 && interface.driver().get(0) != 0);
        }
        assert_eq!(payload.interfaces().len(), answer.len());
        (answer, incomplete)
    }

    // Proves that names of maximum length are kept, and that bytes after the end of a name are
    // ignored.
    #[test]
    fn names_are_whole() {
        let padded_name = |name: &[u8]| devices::truncated::<40>(devices::until_zero(name));
        assert_eq!(shown(&padded_name(&[b'a'; NAME_BYTES])), "a".repeat(NAME_BYTES));
        let mut name = [b'x'; NAME_BYTES];
        name[3] = 0;
        assert_eq!(padded_name(&name)[..5], *b"xxx\0\0");
    }

    // Proves that statistics beyond the limit are marked, and that no interface is recorded
    // partially.
    #[test]
    fn too_many_are_marked() {
        let pool = QueryPool::open(open_queries).unwrap();
        let interface = |count| {
            let name = [b'a'; INTERFACE_BYTES];
            let (names, values) = (vec![[b'n'; NAME_BYTES]; count], vec![7; count]);
            let query = InterfaceQuery { index: 1, names, values, ..InterfaceQuery::new(&pool, name) };
            KnownInterface { name, query: GuardedElement::new(query) }
        };
        let (mut interfaces, mut statistics) = (Vec::new(), Vec::new());
        let both = [interface(STATISTICS_MAX - 1), interface(2)];
        assert_eq!(fill(&both, &mut interfaces, &mut statistics), Incomplete::TOO_MANY);
        assert_eq!((interfaces.len(), statistics.len()), (1, STATISTICS_MAX - 1));
        assert_eq!(fill(&both[1..], &mut interfaces, &mut statistics), Incomplete::NONE);
        assert_eq!((interfaces.len(), statistics.len()), (1, 2));
    }

    /// Whether the driver of eth1 answers.
    static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// A host whose drivers have one statistic each. The test can make the driver of eth1 hang.
    #[derive(Debug)]
    struct FakeQueries;

    impl DriverQueries for FakeQueries {
        fn index(&self, name: &[u8; INTERFACE_BYTES]) -> io::Result<u32> {
            Ok(u32::from(name[3]))
        }

        fn driver(&mut self, _: &[u8; INTERFACE_BYTES]) -> io::Result<DriverInfo> {
            Ok(DriverInfo { driver: [b'd'; 32], statistics: 1, ..DriverInfo::default() })
        }

        fn names(
            &mut self,
            _: &[u8; INTERFACE_BYTES],
            _: usize,
            names: &mut Vec<[u8; NAME_BYTES]>,
        ) -> io::Result<()> {
            names.push([b's'; NAME_BYTES]);
            Ok(())
        }

        fn values(
            &mut self,
            name: &[u8; INTERFACE_BYTES],
            _: usize,
            values: &mut Vec<u64>,
        ) -> io::Result<()> {
            if name.starts_with(b"eth1\0") {
                let answers = ANSWERS.0.lock().unwrap();
                drop(ANSWERS.1.wait_while(answers, |answers| !*answers).unwrap());
            }
            values.push(u64::from(name[3]));
            Ok(())
        }
    }

    // Proves that if a driver does not answer, only its own interface is left out, and this
    // interface is named. The other interfaces are still read while this interface hangs and after
    // it is removed.
    #[test]
    fn an_interface_that_hangs_costs_only_itself() {
        let host = host_with(&[(FILE, "a\nb\neth0: 1\neth1: 1\neth2: 1\n")]);
        let file = HostRoot::new(host.path()).open(FILE).unwrap();
        let pool = QueryPool::open(|| Ok(Box::new(FakeQueries))).unwrap();
        let mut sampler = EthtoolSampler::new(FILE, file, pool, CachedNameFilter::new(NameFilter::default()));
        let mut interfaces = || -> (Vec<String>, Incomplete) {
            let (answer, incomplete) = sample(&mut sampler);
            (answer.into_keys().collect(), incomplete)
        };
        let others = || vec!["eth0".to_owned(), "eth2".to_owned()];
        assert_eq!(interfaces(), (others(), Incomplete::UNREADABLE));
        let noted = odd_text::take().map(|text| text.to_string()).unwrap_or_default();
        assert!(noted.contains("eth1 does not answer"), "{noted}");
        assert_eq!(interfaces(), (others(), Incomplete::UNREADABLE));
        std::fs::write(host.path().join(FILE), "a\nb\neth0: 1\neth2: 1\neth3: 1\n").unwrap();
        let three = ["eth0", "eth2", "eth3"].map(str::to_owned).to_vec();
        assert_eq!(interfaces(), (three, Incomplete::NONE));
        *ANSWERS.0.lock().unwrap() = true;
        ANSWERS.1.notify_all();
    }

    // Proves that interfaces of another network namespace are not queried by their names.
    #[test]
    fn another_namespace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tempfile::tempdir().unwrap();
        let [one, other] = [folder.path(), tree.path()];
        for path in
            [one.join(FILE_OF_ANOTHER_ROOT), one.join(FILE_OF_THE_AGENT), other.join(FILE_OF_ANOTHER_ROOT)]
        {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a\nb\nlo: 1\n").unwrap();
        }
        let error = open_sampler(&SPEC, "", folder.path()).unwrap_err().to_string();
        assert!(error.contains("network namespace"), "{error}");
        assert!(open_sampler(&SPEC, "", other).is_err());
        std::fs::create_dir_all(other.join("proc/self/net")).unwrap();
        std::fs::hard_link(other.join(FILE_OF_ANOTHER_ROOT), other.join(FILE_OF_THE_AGENT)).unwrap();
        assert!(open_sampler(&SPEC, "", other).is_ok());
    }

    // Proves agreement with `ethtool -S` for every interface. The test runs `ethtool -S` before and
    // after the sample.
    #[test]
    fn agrees_with_ethtool() {
        let theirs = |interface: &str| -> Option<BTreeMap<String, u64>> {
            let output = Command::new("ethtool").args(["-S", interface]).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            let pairs = text.lines().skip(1).filter_map(|line| {
                let (name, value) = line.rsplit_once(':')?;
                Some((name.trim().to_owned(), value.trim().parse().ok()?))
            });
            Some(pairs.collect())
        };
        if Command::new("ethtool").arg("--version").output().is_err() {
            println!("skipped: no ethtool");
            return;
        }
        let mut sampler = open_sampler(&SPEC, "", Path::new("/")).unwrap();
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let interface = entry.unwrap().file_name().into_string().unwrap();
            let before = theirs(&interface).unwrap();
            let (ours, incomplete) = sample(&mut *sampler);
            let after = theirs(&interface).unwrap();
            assert!(incomplete.is_none(), "{incomplete}");
            let ours: BTreeMap<String, u64> = ours
                .get(&interface)
                .map(|all| all.iter().map(|(name, value)| (name.trim().to_owned(), *value)).collect())
                .unwrap_or_default();
            assert_eq!(ours.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
            for (name, value) in ours {
                assert!((before[&name]..=after[&name]).contains(&value), "{interface} {name}");
            }
        }
    }

    // Proves that interfaces come and go without a restart. Another interface of the same name, or
    // an interface with changed queues, has its own names of statistics. The test runs itself again
    // in a network namespace of its own, where it creates pairs of interfaces.
    #[test]
    fn interfaces_come_and_go() {
        const WITHIN: &str = "FLATCAP_TEST_WITHIN_A_NAMESPACE";
        if std::env::var_os(WITHIN).is_none() {
            let within = Command::new("unshare")
                .arg("-n")
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "sampling::sources::ethtool::tests::interfaces_come_and_go"])
                .env(WITHIN, "1")
                .output();
            match within {
                Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare failed") => {
                    println!("skipped: no network namespace can be created here");
                }
                Ok(output) => {
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                }
                Err(error) => println!("skipped: no unshare: {error}"),
            }
            return;
        }
        let run = |line: &str| {
            let mut words = line.split(' ');
            Command::new(words.next().unwrap()).args(words).status().is_ok_and(|status| status.success())
        };
        if !run("ip link add veth0 type veth peer name veth1") {
            println!("skipped: no pair of interfaces can be created here");
            return;
        }
        let mut sampler = open_sampler(&SPEC, "exclude = [\"veth9\"]", Path::new("/")).unwrap();
        let (answer, incomplete) = sample(&mut *sampler);
        assert_eq!(answer.keys().collect::<Vec<_>>(), ["veth0", "veth1"]);
        assert!(incomplete.is_none() && answer["veth0"]["peer_ifindex"] > 0);
        let queues = answer["veth0"].len();

        // Another interface gets the same name, and it has more statistics.
        assert!(run("ip link del veth0"));
        assert!(run("ip link add veth0 numrxqueues 2 numtxqueues 2 type veth peer name veth9"));
        let (answer, incomplete) = sample(&mut *sampler);
        assert_eq!(answer.keys().collect::<Vec<_>>(), ["veth0"]);
        assert!(incomplete.is_none() && answer["veth0"].len() >= queues);

        // Adding and removing queues changes the number of statistics of the same interface.
        let has_fewer = run("ethtool -L veth0 rx 1 tx 1");
        if !has_fewer {
            println!("skipped: no queues can be set here");
        }
        if has_fewer {
            let fewer = sample(&mut *sampler).0["veth0"].len();
            assert!(run("ethtool -L veth0 rx 2 tx 2"));
            let (answer, incomplete) = sample(&mut *sampler);
            assert!(answer["veth0"].len() > fewer && incomplete.is_none());
        }

        // The interface gets another name. The loopback interface is always present but has no
        // statistics.
        assert!(run("ip link set veth0 name other"));
        let (answer, incomplete) = sample(&mut *sampler);
        assert!(answer.keys().eq(["other"]) && incomplete.is_none(), "{answer:?} {incomplete}");
        assert!(run("ip link del other"));
        assert!(sample(&mut *sampler).0.is_empty());
    }
}
