//! `ethtool`: statistics of network drivers, as `ethtool -S` shows them. Interfaces are those of /proc/net/dev; the rest is asked
//! of their drivers (`os::ethtool`).

use std::io;

use flatbuffers::FlatBufferBuilder;

use super::network::of_namespace;
use super::text;
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::ethtool::{DriverInfo, Ethtool, INTERFACE_BYTES, NAME_BYTES};
use crate::os::host::HostFile;
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{self, EthtoolArgs, EthtoolInterface, EthtoolStatistic};

const FILE: &str = "proc/net/dev";
const FILE_OF_ANOTHER_ROOT: &str = "proc/1/net/dev";
/// Where another root's /proc shows the agent itself.
const FILE_OF_THE_AGENT: &str = "proc/self/net/dev";
const ANOTHER_NAMESPACE: &str = ": drivers answer only within the agent's network namespace, which is not the host's (share it with the container)";
/// Lines of headings in front.
const HEADINGS: usize = 2;
/// Most interfaces in one sample, and most statistics of all together: 4 MiB.
const INTERFACES_MAX: usize = 4096;
const STATISTICS_MAX: usize = 65_536;

/// Include and exclude speak of interfaces; those without statistics are passed over. Names of statistics are read again when
/// their count changes or another interface has the name. The kernel holds the lock of the interface (before Linux 6.15: of all interfaces)
/// while a driver answers, and some drivers ask their device, which takes milliseconds.
pub(super) const ENTRY: Entry = Entry {
    name: "ethtool",
    root: "flatcap.host.Ethtool",
    schema: include_bytes!("../../../generated/host/ethtool.bfbs"),
    files: &[FILE],
    refresh: "by driver: at each packet, or as seldom as once a second",
    selects: "interfaces, such as eth0",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let host = opening.host;
    let path = of_namespace(host, FILE, FILE_OF_ANOTHER_ROOT);
    let file = host_file(host, path, "")?;
    let unavailable = |error, hint| Unavailable { file: path, error, hint };
    // The same names in another namespace are other interfaces.
    if !host.is_own() && !host.is_same_file(path, FILE_OF_THE_AGENT) {
        return Err(unavailable(io::ErrorKind::Unsupported.into(), ANOTHER_NAMESPACE));
    }
    let ethtool = Ethtool::open().map_err(|error| unavailable(error, ""))?;
    Ok(Opened::built(EthtoolSampler {
        path,
        file,
        ethtool,
        chosen: Chosen::new(opening.selection()),
        known: Vec::new(),
        spare: Vec::new(),
        shortfall: Shortfall::NONE,
        interfaces: Vec::new(),
        statistics: Vec::new(),
    }))
}

#[derive(Debug)]
struct EthtoolSampler {
    path: &'static str,
    file: HostFile,
    ethtool: Ethtool,
    chosen: Chosen,
    known: Vec<Interface>, // in the kernel's order
    spare: Vec<Interface>, // of those that are gone, for their buffers
    shortfall: Shortfall,
    interfaces: Vec<EthtoolInterface>, // reused
    statistics: Vec<EthtoolStatistic>, // reused
}

/// An interface as it was last.
#[derive(Debug, Default)]
struct Interface {
    name: [u8; INTERFACE_BYTES],
    index: u32, // 0 before it was asked for
    info: DriverInfo,
    names: Vec<[u8; NAME_BYTES]>,
    values: Vec<u64>, // one a name, or none
}

impl Sampler for EthtoolSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })?;
        self.shortfall = self.list();
        for interface in &mut self.known {
            self.shortfall |= interface.read(&mut self.ethtool);
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let Self { known, interfaces, statistics, .. } = self;
        let shortfall = self.shortfall | fill(known, interfaces, statistics);
        let interfaces = builder.create_vector(interfaces);
        let statistics = builder.create_vector(statistics);
        let args = EthtoolArgs { interfaces: Some(interfaces), statistics: Some(statistics) };
        let root = host::Ethtool::create(builder, &args);
        builder.finish_minimal(root);
        shortfall
    }
}

impl EthtoolSampler {
    /// Brings `known` to what the file has.
    fn list(&mut self) -> Shortfall {
        let Self { file, chosen, known, spare, .. } = self;
        let (lines, mut shortfall) = text::whole_lines(file.content());
        let mut count = 0;
        for (at, line) in lines.skip(HEADINGS).enumerate() {
            let Some(colon) = line.iter().rposition(|byte| *byte == b':') else {
                shortfall |= Shortfall::UNREADABLE;
                continue;
            };
            let name = line.get(..colon).unwrap_or_default().trim_ascii();
            if !chosen.wants(at, name) {
                continue;
            }
            let Some(name) = text::name::<INTERFACE_BYTES>(name) else {
                shortfall |= Shortfall::UNREADABLE;
                continue;
            };
            if count == INTERFACES_MAX {
                shortfall |= Shortfall::TOO_MANY;
                break;
            }
            // The one that was in this place last time is still there, unless one in front of it came or went.
            let rest = known.get(count..).unwrap_or_default();
            let interface = match rest.iter().position(|interface| interface.name == name) {
                Some(0) => None,
                Some(ahead) => Some(known.remove(count + ahead)),
                None => Some(Interface::of(name, spare.pop())),
            };
            if let Some(interface) = interface {
                known.insert(count, interface);
            }
            count += 1;
        }
        while known.len() > count {
            spare.extend(known.pop());
        }
        shortfall
    }
}

impl Interface {
    /// One that was not there before, with the buffers of one that is gone.
    fn of(name: [u8; INTERFACE_BYTES], spare: Option<Self>) -> Self {
        Self { name, index: 0, ..spare.unwrap_or_default() }
    }

    /// Asks the driver. Says what could not be had; an interface that went meanwhile lacks nothing.
    fn read(&mut self, ethtool: &mut Ethtool) -> Shortfall {
        self.values.clear();
        let told = self.ask(ethtool);
        match told.as_ref().map_err(io::Error::kind) {
            Ok(()) => Shortfall::NONE,
            Err(error) => {
                // Whatever it was, nothing of it is believed next time.
                self.index = 0;
                self.values.clear();
                match error {
                    io::ErrorKind::FileTooLarge => Shortfall::TOO_MANY,
                    io::ErrorKind::PermissionDenied => Shortfall::DENIED,
                    _ if ethtool.index(&self.name).is_err() => Shortfall::NONE,
                    _ => Shortfall::UNREADABLE,
                }
            }
        }
    }

    fn ask(&mut self, ethtool: &mut Ethtool) -> io::Result<()> {
        let index = ethtool.index(&self.name)?;
        if index != self.index {
            self.learn(ethtool)?;
            self.index = index;
        }
        if self.info.statistics == 0 {
            return Ok(());
        }
        ethtool.values(&self.name, self.names.len(), &mut self.values)?;
        if self.values.len() != self.names.len() {
            self.learn(ethtool)?;
            ethtool.values(&self.name, self.names.len(), &mut self.values)?;
        }
        // Between the names and the values somebody may have renamed another interface to this name.
        let is_same = self.values.len() == self.names.len() && ethtool.index(&self.name)? == index;
        if is_same { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    /// Reads the names, and whose they are.
    fn learn(&mut self, ethtool: &mut Ethtool) -> io::Result<()> {
        self.names.clear();
        self.info = match ethtool.driver(&self.name) {
            Ok(info) => info,
            // A driver that tells nothing of itself has no statistics.
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

/// Fills both vectors with interfaces that have statistics.
fn fill(
    known: &[Interface],
    interfaces: &mut Vec<EthtoolInterface>,
    statistics: &mut Vec<EthtoolStatistic>,
) -> Shortfall {
    interfaces.clear();
    statistics.clear();
    for interface in known.iter().filter(|interface| !interface.values.is_empty()) {
        if statistics.len() + interface.values.len() > STATISTICS_MAX {
            return Shortfall::TOO_MANY;
        }
        let Interface { name, index, info, names, values } = interface;
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
            statistics.push(EthtoolStatistic::new(name, &text_of(statistic), *value));
        }
    }
    Shortfall::NONE
}

/// A name that may fill all its bytes, ended by zero bytes.
fn text_of(name: &[u8; NAME_BYTES]) -> [u8; 40] {
    let mut text = [0; 40];
    let used = name.iter().take_while(|byte| **byte != 0);
    text.iter_mut().zip(used).for_each(|(place, byte)| *place = *byte);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::sampling::sources::tests::opened;

    fn shown(text: &[u8]) -> String {
        text.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }

    /// One sample: statistics by interface, and what is lacking.
    fn sample(sampler: &mut dyn Sampler) -> (BTreeMap<String, BTreeMap<String, u64>>, Shortfall) {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        let shortfall = sampler.build(0, &mut builder);
        let payload = flatbuffers::root::<host::Ethtool<'_>>(builder.finished_data()).unwrap();
        let mut told: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for statistic in &payload.statistics() {
            let interface: Vec<u8> = statistic.interface().iter().collect();
            let name: Vec<u8> = statistic.name().iter().collect();
            told.entry(shown(&interface)).or_default().insert(shown(&name), statistic.value());
        }
        for interface in &payload.interfaces() {
            let name: Vec<u8> = interface.name().iter().collect();
            assert_eq!(interface.statistics(), told[&shown(&name)].len() as u64);
            assert!(interface.index() > 0 && interface.driver().get(0) != 0);
        }
        assert_eq!(payload.interfaces().len(), told.len());
        (told, shortfall)
    }

    // Goal: names that fill their bytes keep all of them, garbage behind a name's end is not told. Method: around the size.
    #[test]
    fn names_are_whole() {
        assert_eq!(shown(&text_of(&[b'a'; NAME_BYTES])), "a".repeat(NAME_BYTES));
        let mut name = [b'x'; NAME_BYTES];
        name[3] = 0;
        assert_eq!(text_of(&name)[..5], *b"xxx\0\0");
    }

    // Goal: more statistics than the limit are marked, and no interface is told of in part. Method: two made up interfaces.
    #[test]
    fn too_many_are_marked() {
        let interface = |count| Interface {
            name: [b'a'; INTERFACE_BYTES],
            index: 1,
            info: DriverInfo::default(),
            names: vec![[b'n'; NAME_BYTES]; count],
            values: vec![7; count],
        };
        let (mut interfaces, mut statistics) = (Vec::new(), Vec::new());
        let both = [interface(STATISTICS_MAX - 1), interface(2)];
        assert_eq!(fill(&both, &mut interfaces, &mut statistics), Shortfall::TOO_MANY);
        assert_eq!((interfaces.len(), statistics.len()), (1, STATISTICS_MAX - 1));
        assert_eq!(fill(&both[1..], &mut interfaces, &mut statistics), Shortfall::NONE);
        assert_eq!((interfaces.len(), statistics.len()), (1, 2));
    }

    // Goal: in another network namespace nothing is told of interfaces that only have the same names. Method: a tree whose
    // first process is elsewhere, and one that shares the agent's.
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
        let error = opened(&ENTRY, "", folder.path()).unwrap_err().to_string();
        assert!(error.contains("network namespace"), "{error}");
        assert!(opened(&ENTRY, "", other).is_err());
        std::fs::create_dir_all(other.join("proc/self/net")).unwrap();
        std::fs::hard_link(other.join(FILE_OF_ANOTHER_ROOT), other.join(FILE_OF_THE_AGENT)).unwrap();
        assert!(opened(&ENTRY, "", other).is_ok());
    }

    // Goal: another reader of the same drivers agrees, for every interface. Method: `ethtool -S` before and after.
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
            println!("passed over: no ethtool");
            return;
        }
        let mut sampler = opened(&ENTRY, "", Path::new("/")).unwrap();
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let interface = entry.unwrap().file_name().into_string().unwrap();
            let before = theirs(&interface).unwrap();
            let (ours, shortfall) = sample(&mut *sampler);
            let after = theirs(&interface).unwrap();
            assert!(shortfall.is_none(), "{shortfall}");
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

    // Goal: interfaces come and go without a restart; another interface of the same name, and queues that come and go, have their own
    // names of statistics. Method: this test again in a network namespace of its own, where it makes pairs of interfaces.
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
                    println!("passed over: no network namespace may be made here");
                }
                Ok(output) => {
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                }
                Err(error) => println!("passed over: no unshare: {error}"),
            }
            return;
        }
        let run = |line: &str| {
            let mut words = line.split(' ');
            Command::new(words.next().unwrap()).args(words).status().is_ok_and(|status| status.success())
        };
        if !run("ip link add veth0 type veth peer name veth1") {
            println!("passed over: no pair of interfaces can be made here");
            return;
        }
        let mut sampler = opened(&ENTRY, "exclude = [\"veth9\"]", Path::new("/")).unwrap();
        let (told, shortfall) = sample(&mut *sampler);
        assert_eq!(told.keys().collect::<Vec<_>>(), ["veth0", "veth1"]);
        assert!(shortfall.is_none() && told["veth0"]["peer_ifindex"] > 0);
        let queues = told["veth0"].len();

        // The same name, another interface, with more statistics.
        assert!(run("ip link del veth0"));
        assert!(run("ip link add veth0 numrxqueues 2 numtxqueues 2 type veth peer name veth9"));
        let (told, shortfall) = sample(&mut *sampler);
        assert_eq!(told.keys().collect::<Vec<_>>(), ["veth0"]);
        assert!(shortfall.is_none() && told["veth0"].len() >= queues);

        // Queues that come and go change the count of the same interface.
        let has_fewer = run("ethtool -L veth0 rx 1 tx 1");
        if !has_fewer {
            println!("passed over: no queues can be set here");
        }
        if has_fewer {
            let fewer = sample(&mut *sampler).0["veth0"].len();
            assert!(run("ethtool -L veth0 rx 2 tx 2"));
            let (told, shortfall) = sample(&mut *sampler);
            assert!(told["veth0"].len() > fewer && shortfall.is_none());
        }

        // Another name; the loopback, which is there all the time, has no statistics.
        assert!(run("ip link set veth0 name other"));
        let (told, shortfall) = sample(&mut *sampler);
        assert!(told.keys().eq(["other"]) && shortfall.is_none(), "{told:?} {shortfall}");
        assert!(run("ip link del other"));
        assert!(sample(&mut *sampler).0.is_empty());
    }
}
