//! `process`: the time, memory, I/O, threads and faults of each process, from /proc/PID. Exits and
//! the names of programs come from the kernel's process events.
//!
//! A read costs about 8 us per process, and most processes sleep. Therefore all processes are read
//! once a second. In between, only the active processes are read: those that have run since their
//! last read, that were ready to run or waited for a device at that read, or that are new. The CPU
//! clock of a process, which costs 0.4 us, shows whether the process has run. Without such clocks,
//! the busiest processes of the last full pass are active. A sample contains the number of
//! processes that it skips.
//!
//! Command lines, control groups and users change seldom, so only some samples have them (`names`).

mod activity;
mod events;
mod exec_names;
mod filter;
mod group_naming;
mod names;
mod secret_filter;
#[cfg(test)]
mod secret_filter_tests;
mod secret_names;
mod secret_shapes;
mod slot;
mod stat;
mod table;
pub(super) mod texts;

use std::cmp::Reverse;
use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::host::page_bytes;
use flatcap_schemas::host::{
    CommandLine, Process, ProcessArgs, ProcessCounters, ProcessExec, ProcessExit, ProcessGroup, UserName,
};

use self::activity::{ProcessActivity, busiest};
use self::events::{EXITS_MAX, ProcessMonitor};
use self::exec_names::EXECS_MAX;
use self::filter::ProcessFilter;
use self::group_naming::GroupNaming;
use self::names::{NAMES_MAX, NameReader, NewNames};
use self::slot::ProcessSlot;
use self::stat::Stat;
use self::table::{PassScope, ProcessTable};
use self::texts::RequestedTexts;
use super::text::ABSENT;
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{
    CommandLines, Incomplete, OpenedSampler, OwnSettings, ProcessRank, ReadError, Sampler, odd_text,
};

const DIRECTORY: &str = "proc";
/// Maximum number of processes in one sample. With all names, these processes fit into a
/// frame of the default `frame_max`. On a host with more processes, only those with the lowest pids
/// are recorded. The setting `top` makes a better selection.
const RECORDED_MAX: usize = 16_384;
/// Space in a frame for everything except the processes, in bytes.
const FRAME_EXTRA_BYTES: usize = 64 << 10;
const _: () = assert!(
    RECORDED_MAX * size_of::<ProcessCounters>()
        + NAMES_MAX * (size_of::<CommandLine>() + size_of::<ProcessGroup>() + size_of::<UserName>())
        + EXITS_MAX * size_of::<ProcessExit>()
        + EXECS_MAX * size_of::<ProcessExec>()
        + FRAME_EXTRA_BYTES
        <= 16 << 20
);
/// Interval between listings of /proc if the kernel reports each fork.
const LIST_INTERVAL_NS: u64 = 8_000_000_000;
/// A kernel without CPU-time clocks of processes counts their CPU time in ticks of this length
/// (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;
/// Maximum number of processes that a log line names.
const NAMED_MAX: usize = 3;

/// `include` and `exclude` match the name of the process, which the kernel truncates.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "process",
    about: "Processes: time, memory, I/O, threads, faults.",
    root: "flatcap.host.Process",
    schema: include_bytes!("../../../../../generated/host/process.bfbs"),
    files: &[
        DIRECTORY,
        "proc/PID/stat",
        "proc/PID/io",
        "proc/PID/schedstat",
        "proc/PID/comm",
        "proc/PID/cgroup",
        "proc/PID/cmdline",
    ],
    // The period is short enough to show which processes were busy in the 300 ms before a spike.
    // With 300 processes, of which most are read once a second, the source costs 1 % of a core.
    period: Duration::from_millis(100),
    is_on_by_default: true,
    refresh: "run_time and counts as they happen, user_time and system_time in steps of 10 ms",
    selects: "names, as the kernel cuts them to 15 bytes",
    needs: &[
        "CAP_SYS_PTRACE (I/O of others' processes)",
        "CAP_NET_ADMIN (exits, and names of short-lived processes, before Linux 6.6)",
    ],
    keys: OwnKeys::Process,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let unavailable = |error, hint| Unavailable { file: DIRECTORY, error, hint };
    let OwnSettings::Process(config) = context.settings.own else {
        return Err(unavailable(ErrorKind::InvalidInput.into(), ""));
    };
    let details =
        RequestedTexts { groups: (!config.cgroups.is_empty()).then(|| GroupNaming::of(context.host)) };
    let groups = match &details.groups {
        _ if !config.cgroup_paths => None,
        None => Some(GroupNaming::of(context.host)),
        known => known.clone(),
    };
    let has_names = groups.is_some() || config.command_lines != CommandLines::Off;
    let names = has_names.then(|| NameReader::start(context.host, config.command_lines, groups));
    let events = ProcessMonitor::subscribe(context.host);
    let table = ProcessTable::open(context.host, details, events.is_some())
        .map_err(|error| unavailable(error, ""))?;
    if table.order().is_empty() {
        return Err(unavailable(
            ErrorKind::NotFound.into(),
            ": it has no processes; mount the proc file system there",
        ));
    }
    let filter = ProcessFilter::new(context.selection(), config, context.host)
        .map_err(|error| Unavailable { file: names::PASSWD, error, hint: "" })?;
    let reserved = table.reserved();
    let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut sampler = ProcessSampler {
        table,
        events,
        listed_ns: 0,
        scope: PassScope::All,
        full_pass_due_ns: 0,
        // The interval ends half a period before the tick, so that a tick that is slightly early
        // does not postpone the full pass to the next tick.
        full_pass_interval_ns: nanoseconds(config.full_interval.saturating_sub(context.settings.period / 2)),
        busiest: usize::try_from(config.busiest).unwrap_or(usize::MAX),
        filter,
        top: usize::try_from(config.top).unwrap_or(0),
        by: config.by,
        names: names.transpose().map_err(|error| unavailable(error, ""))?,
        read_ns: 0,
        page_bytes: page_bytes(),
        denied: 0,
        rows: Vec::with_capacity(reserved),
        ranking: Vec::with_capacity(reserved),
        activities: Vec::with_capacity(reserved),
        chosen: Vec::with_capacity(if config.top > 0 { reserved } else { 0 }),
    };
    sampler.log_denied().map_err(|error| unavailable(error, ""))?;
    sampler.log_hidden();
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct ProcessSampler {
    table: ProcessTable,
    events: Option<ProcessMonitor>,
    listed_ns: u64,
    scope: PassScope, // of the last read
    full_pass_due_ns: u64,
    full_pass_interval_ns: u64,
    busiest: usize,
    filter: ProcessFilter,
    top: usize, // 0 means all
    by: ProcessRank,
    names: Option<NameReader>,
    read_ns: u64, // time of the last read
    page_bytes: u64,
    denied: u64, // number of rows without I/O, which the kernel refuses
    // The following vectors are reused at each sample.
    rows: Vec<ProcessCounters>,
    ranking: Vec<Rank>,               // one per row
    activities: Vec<ProcessActivity>, // one per row in a full pass
    chosen: Vec<ProcessCounters>,
}

/// A row's process, and the value by which the row is ranked.
#[derive(Debug, Clone, Copy)]
struct Rank {
    value: u64,
    row: usize,
    slot: usize,
}

impl Sampler for ProcessSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        let now_ns = monotonic_ns();
        self.read_ns = now_ns;
        // Listing /proc takes a third of the time of all reads, and is not needed if the kernel
        // reports each fork.
        let has_all_events = self.events.as_mut().is_some_and(|events| events.drain(&mut self.table));
        let must_list = !has_all_events || now_ns.saturating_sub(self.listed_ns) >= LIST_INTERVAL_NS;
        if must_list {
            self.listed_ns = now_ns;
        }
        self.scope = PassScope::Active;
        if now_ns >= self.full_pass_due_ns {
            self.scope = PassScope::All;
            self.full_pass_due_ns = now_ns.saturating_add(self.full_pass_interval_ns);
        }
        let read = self.table.read(now_ns, self.scope, must_list);
        read.map_err(|error| ReadError { file: DIRECTORY, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.fill() | self.table.incomplete();
        if self.scope == PassScope::All && !self.table.has_clocks() {
            self.choose_active();
        }
        incomplete |= self.choose();
        self.request_names();
        let is_all = self.ranking.len() == self.rows.len();
        let processes = builder.create_vector(if is_all { &self.rows } else { &self.chosen });
        let exits = self.events.as_ref().map(ProcessMonitor::exits).unwrap_or_default();
        let exits = builder.create_vector(exits);
        let execs = self.events.as_ref().map(ProcessMonitor::execs).unwrap_or_default();
        let execs = builder.create_vector(execs);
        let names = self.names.as_ref().map(|names| &names.new);
        let command_lines =
            builder.create_vector(names.map_or(&[][..], |names: &NewNames| &names.command_lines));
        let groups = builder.create_vector(names.map_or(&[][..], |names| &names.groups));
        let users = builder.create_vector(names.map_or(&[][..], |names| &names.users));
        let events = self.events.as_ref().map(ProcessMonitor::counters);
        let root = Process::create(
            builder,
            &ProcessArgs {
                count: if self.table.is_hiding() { ABSENT } else { self.table.count() as u64 },
                events: events.as_ref(),
                processes: Some(processes),
                exits: Some(exits),
                command_lines: Some(command_lines),
                groups: Some(groups),
                skipped: self.table.skipped() as u64,
                denied: self.denied,
                execs: Some(execs),
                users: Some(users),
            },
        );
        builder.finish_minimal(root);
        self.events.as_ref().map_or(incomplete, |events| incomplete | events.incomplete())
    }
}

impl ProcessSampler {
    /// Reads all processes one time and logs those whose I/O the kernel refuses to show. The kernel
    /// repeats the refusal at each read, so it is logged only once, and samples contain only the
    /// number of these processes.
    fn log_denied(&mut self) -> io::Result<()> {
        self.table.read(monotonic_ns(), PassScope::All, false)?;
        let Self { table, filter, .. } = self;
        let (mut names, mut wanted) = (Vec::new(), 0_usize);
        for process in table.order().to_vec() {
            let Some((slot, content)) = table.get(process) else { continue };
            let (Some(stat), _) = stat::stat(content.stat, process.pid) else { continue };
            if filter.wants(slot, &stat.name) {
                wanted += 1;
                if content.is_io_denied {
                    let name = stat.name.split(|byte| *byte == 0).next().unwrap_or_default();
                    names.push(format!("{} ({})", process.pid, name.escape_ascii()));
                }
            }
        }
        if !names.is_empty() {
            let others = names.len().saturating_sub(NAMED_MAX);
            let denied = names.len();
            names.truncate(NAMED_MAX);
            if others > 0 {
                names.push(format!("{others} others"));
            }
            tracing::info!(
                source = "process",
                "the I/O of {denied} of {wanted} processes is not recorded, since it needs CAP_SYS_PTRACE: {}",
                names.join(", ")
            );
        }
        Ok(())
    }

    /// Logs that /proc hides the processes of other users, or that the control groups of some
    /// processes are unknown.
    fn log_hidden(&mut self) {
        let Self { table, .. } = self;
        if table.is_hiding() {
            tracing::warn!(
                source = "process",
                "/proc hides the processes of other users (mount option hidepid): {} of this user are \
                 recorded, and each sample is marked as denied; give the recorder CAP_SYS_PTRACE, or \
                 mount /proc with gid= of a group of its user",
                table.order().len()
            );
        }
        let order = table.order().to_vec();
        let is_unknown = |slot: usize| {
            let texts = table.slot(slot).and_then(|slot| slot.texts.as_ref());
            texts.is_some_and(|texts| texts.is_group_unknown)
        };
        let unknown = order.iter().filter(|process| is_unknown(process.slot)).count();
        if unknown > 0 {
            tracing::warn!(
                source = "process",
                "the control groups of {unknown} of {} processes are outside of the recorder's cgroup \
                 namespace and not in the tree that it sees: they are not recorded, and `cgroups` \
                 selects none of them; run the recorder with --cgroupns=host",
                order.len()
            );
        }
    }

    /// Fills a row for each selected process.
    fn fill(&mut self) -> Incomplete {
        let Self { table, filter, by, page_bytes, rows, ranking, activities, .. } = self;
        rows.clear();
        ranking.clear();
        activities.clear();
        self.denied = 0;
        let has_clocks = table.has_clocks();
        let mut incomplete = Incomplete::NONE;
        for index in 0..table.order().len() {
            let Some(process) = table.order().get(index).copied() else { break };
            let Some((slot, content)) = table.get(process) else { continue };
            let (stat, lacks) = stat::stat(content.stat, process.pid);
            let file = format_args!("/proc/{}/stat", process.pid);
            let lacks = odd_text::in_file(lacks, content.stat, file);
            let Some(stat) = stat else {
                incomplete |= lacks;
                continue;
            };
            if slot.start != stat.start {
                // The slot has another process than in the last sample.
                (slot.start, slot.totals, slot.totals_of_full_pass) = (stat.start, [0; 2], [0; 2]);
            }
            if has_clocks {
                // A process that waits does not run, but its state and its times of waiting change.
                slot.is_active = is_ready_or_blocked(&stat);
            }
            slot.names.set_name(&stat.name);
            let is_group_unknown = slot.texts.as_ref().is_some_and(|texts| texts.is_group_unknown);
            incomplete |= Incomplete::MISSING.unless(!is_group_unknown);
            slot.is_wanted = filter.wants(slot, &stat.name);
            if !slot.is_wanted {
                continue;
            }
            incomplete |= lacks;
            self.denied += u64::from(content.is_io_denied);
            let mut io = [ABSENT; 7];
            if let Some(content) = content.io {
                let (values, lacks) = stat::io(content);
                io = values;
                incomplete |= odd_text::in_file(lacks, content, format_args!("/proc/{}/io", process.pid));
            }
            ranking.push(Rank { value: rank(*by, slot, &stat, &io), row: rows.len(), slot: process.slot });
            if self.scope == PassScope::All && !has_clocks {
                activities.push(activity(process.slot, slot, &stat));
            }
            rows.push(row(process.pid, slot, &stat, &io, *page_bytes));
        }
        incomplete
    }

    /// Makes the busiest processes of a full pass active, and all others inactive.
    fn choose_active(&mut self) {
        let Self { table, activities, .. } = self;
        for index in 0..table.order().len() {
            if let Some(process) = table.order().get(index).copied() {
                table.set_active(process.slot, false);
            }
        }
        busiest(activities, self.busiest, |slot| table.set_active(slot, true));
    }

    /// Keeps the rows with the highest rank, ordered by pid. `chosen` is left empty if all rows are
    /// kept.
    fn choose(&mut self) -> Incomplete {
        let Self { top, rows, ranking, chosen, .. } = self;
        if (1..ranking.len()).contains(top) {
            ranking.select_nth_unstable_by_key(*top - 1, |rank| (Reverse(rank.value), rank.row));
            ranking.truncate(*top);
            ranking.sort_unstable_by_key(|rank| rank.row);
        }
        let incomplete = Incomplete::TOO_MANY.unless(ranking.len() <= RECORDED_MAX);
        ranking.truncate(RECORDED_MAX);
        chosen.clear();
        if ranking.len() == rows.len() {
            return incomplete;
        }
        chosen.extend(ranking.iter().filter_map(|rank| rows.get(rank.row)));
        incomplete
    }

    /// Takes the names that were read since the last sample. Requests the names that are due, for
    /// the selected processes.
    fn request_names(&mut self) {
        let Self { table, ranking, rows, names: Some(names), read_ns, scope, .. } = self else { return };
        names.drain();
        for rank in ranking.iter() {
            if let (Some(slot), Some(row)) = (table.slot_mut(rank.slot), rows.get(rank.row)) {
                names.request(row, &mut slot.names, (*read_ns, *scope == PassScope::All));
            }
        }
        names.begin_reads();
    }
}

/// Returns the value by which a process is ranked. A process whose value cannot be read ranks last.
fn rank(by: ProcessRank, slot: &mut ProcessSlot, stat: &Stat, io: &[u64; 7]) -> u64 {
    let [.., read, written, _] = *io;
    let ticks = value_or_zero(stat.user_time).saturating_add(value_or_zero(stat.system_time));
    let cpu_ns = if slot.run_time == ABSENT { ticks.saturating_mul(TICK_NS) } else { slot.run_time };
    let totals = [cpu_ns, value_or_zero(read).saturating_add(value_or_zero(written))];
    let [cpu_before, io_before] = std::mem::replace(&mut slot.totals, totals);
    let [cpu, io] = totals;
    match by {
        ProcessRank::Cpu => cpu.saturating_sub(cpu_before),
        ProcessRank::Io => io.saturating_sub(io_before),
        ProcessRank::Memory => value_or_zero(stat.resident_pages),
        ProcessRank::Threads => value_or_zero(stat.threads),
    }
}

/// Returns the activity of a process since the last full pass, and begins the next interval.
fn activity(index: usize, slot: &mut ProcessSlot, stat: &Stat) -> ProcessActivity {
    let [cpu_before, io_before] = std::mem::replace(&mut slot.totals_of_full_pass, slot.totals);
    let [cpu, io] = slot.totals;
    ProcessActivity {
        cpu_ns: cpu.saturating_sub(cpu_before).max(is_ready_or_blocked(stat).into()),
        io_bytes: io.saturating_sub(io_before),
        slot: index,
    }
}

/// Returns whether a process runs, is ready to run, or waits for a device.
fn is_ready_or_blocked(stat: &Stat) -> bool {
    matches!(stat.state, b'R' | b'D')
}

fn value_or_zero(value: u64) -> u64 {
    if value == ABSENT { 0 } else { value }
}

fn row(pid: u32, slot: &ProcessSlot, stat: &Stat, io: &[u64; 7], page_bytes: u64) -> ProcessCounters {
    let [read_by_calls, written_by_calls, read_calls, write_calls, read, written, cancelled] = *io;
    ProcessCounters::new(
        pid.into(),
        stat.start,
        stat.parent,
        slot.user,
        &stat.name,
        &[stat.state, 0, 0, 0, 0, 0, 0, 0],
        stat.user_time,
        stat.system_time,
        stat.threads,
        stat.minor_faults,
        stat.major_faults,
        stat.virtual_size,
        stat.resident_pages.checked_mul(page_bytes).unwrap_or(ABSENT),
        stat.io_delay,
        read_by_calls,
        written_by_calls,
        read_calls,
        write_calls,
        read,
        written,
        cancelled,
        slot.run_time,
        slot.wait_time,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::{BufRead, Write};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use flatcap_os::clock::monotonic_ns;
    use flatcap_os::wake_event::WakeEvent;

    use super::*;
    use crate::sources::tests::{open_sampler, sample_under};

    /// Creates a process in a tree of files. `values` are ticks, resident pages, threads, start,
    /// and bytes read from storage.
    fn process(root: &Path, pid: u32, name: &str, values: [u64; 5]) {
        let [ticks, pages, threads, start, read] = values;
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let content = format!(
            "{pid} ({name}) S 1 1 1 0 -1 0 5 0 6 0 {ticks} 0 0 0 20 0 {threads} 0 {start} 4096 {pages} 9 0 0 0 0 0 0 0 0 0 0 0 0 \
             17 0 0 0 2 0 0 0 0 0 0 0 0 0 0\n"
        );
        fs::write(folder.join("stat"), content).unwrap();
        let io = format!(
            "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: {read}\nwrite_bytes: 0\ncancelled_write_bytes: 7\n"
        );
        fs::write(folder.join("io"), io).unwrap();
        fs::write(folder.join("cgroup"), format!("3:cpu:/old\n0::/{name}.slice/x\n")).unwrap();
        fs::write(folder.join("cmdline"), format!("/bin/{name}\0--password\0x\0\0")).unwrap();
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 30, "small", [1, 2, 30, 100, 9]);
        process(folder.path(), 7, "busy", [90, 1, 1, 50, 8]);
        process(folder.path(), 100, "large", [5, 99, 2, 60, 70]);
        fs::create_dir(folder.path().join("proc/sys")).unwrap();
        folder
    }

    fn next(sampler: &mut dyn Sampler) -> (Vec<u8>, Incomplete) {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        let incomplete = sampler.build(0, &mut builder);
        (builder.finished_data().to_vec(), incomplete)
    }

    fn payload_of(payload: &[u8]) -> Process<'_> {
        flatbuffers::root::<Process<'_>>(payload).unwrap()
    }

    fn pids(payload: &[u8]) -> Vec<u64> {
        payload_of(payload).processes().iter().map(ProcessCounters::pid).collect()
    }

    fn text(bytes: impl IntoIterator<Item = u8>) -> String {
        let bytes: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn wait_ns(ns: u64) {
        WakeEvent::new().wait_until(monotonic_ns() + ns);
    }

    // Proves that every value ends up in its field, that processes are ordered by pid, and that
    // strings are recorded only on request.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tree();
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert_eq!((pids(&payload), incomplete), (vec![7, 30, 100], Incomplete::NONE));
        let found = payload_of(&payload);
        assert!(found.command_lines().is_empty() && found.groups().is_empty() && found.events().is_none());
        assert_eq!(found.count(), 3);
        let large = found.processes().get(2);
        assert_eq!((large.start(), large.parent(), text(large.name())), (60, 1, "large".to_owned()));
        assert_eq!(text(large.state()), "S");
        assert_eq!((large.user_time(), large.system_time(), large.threads()), (5, 0, 2));
        assert_eq!((large.minor_faults(), large.major_faults()), (5, 6));
        assert_eq!((large.virtual_size(), large.resident_size()), (4096, 99 * page_bytes()));
        assert_eq!((large.read_by_calls(), large.written_by_calls(), large.read_calls()), (1, 2, 3));
        assert_eq!((large.write_calls(), large.read_from_storage()), (4, 70));
        assert_eq!((large.written_to_storage(), large.cancelled_writes()), (0, 7));
    }

    // Proves that the names of recorded processes and their users follow soon after the first
    // sample with the process, and are not repeated in each sample.
    #[test]
    fn names_are_recorded_from_time_to_time() {
        let folder = tree();
        let user = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder.path()).unwrap());
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("etc/passwd"), format!("own:x:{user}:0::/:\n")).unwrap();
        let mut sampler = open_sampler(
            &SPEC,
            "command_lines = \"scrubbed\"\ncgroup_paths = true\ninclude = [\"large\"]\nfull_interval = \"1ms\"",
            folder.path(),
        )
        .unwrap();
        let (mut lines, mut groups, mut users) = (Vec::new(), Vec::new(), Vec::new());
        let begin = monotonic_ns();
        while users.is_empty() || monotonic_ns() < begin + 200_000_000 {
            let (payload, _) = next(&mut *sampler);
            let found = payload_of(&payload);
            lines.extend(
                found.command_lines().iter().map(|line| (line.pid(), line.start(), text(line.text()))),
            );
            groups.extend(found.groups().iter().map(|group| (group.pid(), text(group.path()))));
            users.extend(found.users().unwrap().iter().map(|user| (user.number(), text(user.name()))));
            wait_ns(1_000_000);
        }
        // On a busy machine, the second read may be over, too.
        lines.dedup();
        groups.dedup();
        users.dedup();
        assert_eq!(lines, [(100, 60, "/bin/large --password ***".to_owned())]);
        assert_eq!(groups, [(100, "/large.slice/x".to_owned())]);
        assert_eq!(users, [(user.into(), "own".to_owned())]);
    }

    // Proves that name, user, group and rank select processes, and that ranks use the change
    // between two samples.
    #[test]
    fn processes_are_chosen() {
        let folder = tree();
        let chosen = |keys: &str| pids(&sample_under(&SPEC, keys, folder.path()).0);
        assert_eq!(chosen("include = [\"*a*\"]\nexclude = [\"large\"]"), [30]);
        assert_eq!(chosen("cgroups = [\"/busy.slice/*\", \"/old\"]"), [7]);
        let user = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder.path()).unwrap());
        assert_eq!(chosen(&format!("users = [\"{user}\"]")), [7, 30, 100]);
        assert!(chosen("users = [\"nobody-at-all\", \"4294967294\"]").is_empty());
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("etc/passwd"), format!("own:x:{user}:0::/:\n")).unwrap();
        assert_eq!(chosen("users = [\"o?n\"]"), [7, 30, 100]);
        assert_eq!(chosen("users = [\"own\", \"nobody-at-all\"]"), [7, 30, 100]);
        let nobody =
            open_sampler(&SPEC, "users = [\"nobody-at-all\", \"nor-me\"]", folder.path()).unwrap_err();
        let expected =
            "/etc/passwd: no such user: nobody-at-all, nor-me; correct `users`, or use numeric user ids";
        assert_eq!(nobody.to_string(), expected);
        for (by, expected) in
            [("cpu", [7, 100]), ("memory", [30, 100]), ("io", [30, 100]), ("threads", [30, 100])]
        {
            assert_eq!(chosen(&format!("top = 2\nby = \"{by}\"")), expected, "{by}");
        }
        let mut sampler = open_sampler(&SPEC, "top = 1\nfull_interval = \"1ms\"", folder.path()).unwrap();
        assert_eq!(pids(&next(&mut *sampler).0), [7]);
        process(folder.path(), 30, "small", [4, 2, 30, 100, 9]);
        assert_eq!(pids(&next(&mut *sampler).0), [30]);
    }

    // Proves that a sample between two full ones contains the busiest and the new processes, and
    // the number of skipped processes. Idle processes are in the next full sample. In the test, one
    // process uses CPU time and another process does I/O, and an interval ends only when the test
    // ends it.
    #[test]
    fn samples_say_what_they_skip() {
        let folder = tree();
        process(folder.path(), 40, "idle", [0, 1, 1, 10, 0]);
        process(folder.path(), 41, "idle", [0, 1, 1, 10, 0]);
        let keys = "busiest = 1\nfull_interval = \"1h\"";
        let mut sampler = open_sampler(&SPEC, keys, folder.path()).unwrap();
        let mut sample = || {
            let (payload, incomplete) = next(&mut *sampler);
            assert_eq!(incomplete, Incomplete::NONE);
            let found = payload_of(&payload);
            (pids(&payload), found.skipped(), found.count())
        };
        assert_eq!(sample(), (vec![7, 30, 40, 41, 100], 0, 5));
        assert_eq!(sample(), (vec![7, 100], 3, 5));
        process(folder.path(), 50, "new", [0; 5]);
        assert_eq!(sample(), (vec![7, 50, 100], 3, 6));
        assert_eq!(sample(), (vec![7, 50, 100], 3, 6));
        let mut sampler = open_sampler(&SPEC, "full_interval = \"1ms\"", folder.path()).unwrap();
        for _ in 0..3 {
            let (payload, _) = next(&mut *sampler);
            assert_eq!((pids(&payload).len(), payload_of(&payload).skipped()), (6, 0));
        }
    }

    // Proves that between two full passes a process is read if and only if it has run for a moment.
    // The test lets a shell compute, and then waits until it sleeps.
    #[test]
    fn a_process_that_has_run_is_read() {
        let mut sampler = open_sampler(&SPEC, "full_interval = \"1h\"", Path::new("/")).unwrap();
        // Each loop takes a few milliseconds.
        let script =
            "while read -r line; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; echo done; done";
        let mut shell = Command::new("sh");
        let mut shell =
            shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut output = std::io::BufReader::new(output);
        let pid = u64::from(shell.id());
        let mut is_read = || {
            let (payload, _) = next(&mut *sampler);
            pids(&payload).contains(&pid)
        };
        for _ in 0..3 {
            input.write_all(b"go\n").unwrap();
            output.read_line(&mut String::new()).unwrap();
            assert!(is_read());
            // The shell runs for a moment after its answer.
            while is_read() {
                wait_ns(1_000_000);
            }
        }
        drop(input);
        shell.wait().unwrap();
    }

    // Proves that processes come and go without a restart, that a process that reuses a pid is
    // treated as a different process, and that damage is marked.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the host goes")]
    fn processes_come_and_go() {
        let folder = tree();
        let mut sampler = open_sampler(&SPEC, "full_interval = \"1ms\"", folder.path()).unwrap();
        assert_eq!(pids(&next(&mut *sampler).0), [7, 30, 100]);
        fs::remove_dir_all(folder.path().join("proc/30")).unwrap();
        process(folder.path(), 8, "new", [0; 5]);
        assert_eq!(pids(&next(&mut *sampler).0), [7, 8, 100]);
        process(folder.path(), 7, "other", [1, 1, 1, 51, 1]);
        let (payload, incomplete) = next(&mut *sampler);
        assert_eq!((payload_of(&payload).processes().get(0).start(), incomplete), (51, Incomplete::NONE));
        fs::write(folder.path().join("proc/8/stat"), "8 (new) S 1 1").unwrap();
        let (payload, incomplete) = next(&mut *sampler);
        assert_eq!((pids(&payload), incomplete), (vec![7, 100], Incomplete::CUT));
        fs::write(folder.path().join("proc/7/io"), "rchar: 1\nwchar: -2\n").unwrap();
        let (payload, incomplete) = next(&mut *sampler);
        let first = payload_of(&payload).processes().get(0);
        assert_eq!(
            (first.read_by_calls(), first.written_by_calls(), first.read_calls()),
            (1, ABSENT, ABSENT)
        );
        assert_eq!(incomplete, Incomplete::CUT | Incomplete::UNREADABLE);
        // A kernel without I/O accounting.
        process(folder.path(), 8, "new", [0; 5]);
        fs::remove_file(folder.path().join("proc/100/io")).unwrap();
        let mut sampler = open_sampler(&SPEC, "include = [\"large\"]", folder.path()).unwrap();
        let (payload, incomplete) = next(&mut *sampler);
        assert_eq!(
            (payload_of(&payload).processes().get(0).read_calls(), incomplete),
            (ABSENT, Incomplete::NONE)
        );
    }

    // Proves agreement with /proc of this host. The test compares its own process field by field,
    // and checks every process that is present before and after the sample.
    #[test]
    fn agrees_with_this_host() {
        let listed = || -> BTreeSet<u64> {
            let entries = fs::read_dir("/proc").unwrap();
            entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
        };
        let before = listed();
        let earlier_ns = flatcap_os::clock::process_cpu_ns();
        let (payload, _) = sample_under(&SPEC, "", Path::new("/"));
        let stayed: Vec<u64> = before.intersection(&listed()).copied().collect();
        let found = payload_of(&payload);
        let found_pids: BTreeSet<u64> = pids(&payload).into_iter().collect();
        assert!(stayed.iter().all(|pid| found_pids.contains(pid)), "{stayed:?} {found_pids:?}");
        let own =
            found.processes().iter().find(|process| process.pid() == u64::from(std::process::id())).unwrap();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (head, rest) = stat.rsplit_once(") ").unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        assert_eq!(text(own.name()), head.split_once('(').unwrap().1);
        assert_eq!(
            (own.parent().to_string(), own.start().to_string()),
            (words[1].to_owned(), words[19].to_owned())
        );
        assert!(own.minor_faults() <= words[7].parse().unwrap() && own.minor_faults() > 0);
        assert_eq!(own.user(), u64::from(rustix::process::geteuid().as_raw()));
        // The jiffies are read after the run time, because other tests run concurrently in this
        // process.
        let (jiffies, run_time) = (own.user_time() + own.system_time(), own.run_time());
        let later_ns = flatcap_os::clock::process_cpu_ns();
        assert!((earlier_ns..=later_ns).contains(&run_time), "{earlier_ns} {run_time} {later_ns}");
        assert!(jiffies <= later_ns / TICK_NS, "{jiffies} jiffies, {later_ns} ns");
        let io = fs::read_to_string("/proc/self/io").unwrap();
        let calls: u64 = io.lines().nth(2).unwrap().strip_prefix("syscr: ").unwrap().parse().unwrap();
        assert!(own.read_calls() <= calls && own.read_calls() > 0);
    }

    /// Starts a process that sleeps, and waits until the process has its name.
    fn sleeper() -> Child {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let name = || fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
        while name() != "sleep\n" {
            wait_ns(1_000_000);
        }
        child
    }

    fn recorded_exit(sampler: &mut dyn Sampler, pid: u32) -> Option<(u64, u64, u64)> {
        let (payload, _) = next(sampler);
        let mut exits = payload_of(&payload).exits().iter();
        let found = exits.find(|exit| exit.pid() == u64::from(pid))?;
        Some((found.start(), found.exit_code(), found.signal()))
    }

    // Proves that exits are recorded with code or signal and with the start of the process, which
    // is absent if no sample has seen the process. The test is skipped if the kernel sends no
    // process events.
    #[test]
    fn exits_are_recorded() {
        let mut sampler = open_sampler(&SPEC, "full_interval = \"1ms\"", Path::new("/")).unwrap();
        let (payload, _) = next(&mut *sampler);
        let Some(before) = payload_of(&payload).events().copied() else {
            return println!("skipped: no process events here");
        };
        let mut child = sleeper();
        let pid = child.id();
        let (payload, _) = next(&mut *sampler);
        let mut all = payload_of(&payload).processes().iter();
        let start = all.find(|process| process.pid() == u64::from(pid)).unwrap().start();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(recorded_exit(&mut *sampler, pid), Some((start, ABSENT, 9)));
        assert_eq!(recorded_exit(&mut *sampler, pid), None, "reported once");
        let mut brief = Command::new("sh").args(["-c", "exit 5"]).spawn().unwrap();
        brief.wait().unwrap();
        assert_eq!(recorded_exit(&mut *sampler, brief.id()), Some((ABSENT, 5, ABSENT)));
        // Only the events can contain the name of this program, because no sample has seen it.
        let mut unseen = Command::new("true").spawn().unwrap();
        unseen.wait().unwrap();
        let mut names = Vec::new();
        while names.is_empty() {
            let (payload, _) = next(&mut *sampler);
            let execs = payload_of(&payload).execs().unwrap();
            names.extend(
                execs
                    .iter()
                    .filter(|exec| exec.pid() == u64::from(unseen.id()))
                    .map(|exec| text(exec.name())),
            );
        }
        assert!(names.iter().all(|name| name.is_empty() || name == "true"), "{names:?}");
        let (payload, _) = next(&mut *sampler);
        let after = payload_of(&payload).events().copied().unwrap();
        assert!(after.forks() >= before.forks() + 2 && after.exits() >= before.exits() + 2);
        assert!(after.execs() >= before.execs() + 2 && after.overruns() == 0);
        assert!(!pids(&payload).contains(&pid.into()));
    }

    // Proves that a process that reuses a pid while the files of the old process are open is
    // treated as a different process. The test asks the kernel for this pid. Forks of other
    // processes may take the pid, so the test may need several attempts.
    #[test]
    fn a_pid_used_again_is_another_process() {
        let keys = "include = [\"sleep\"]\nfull_interval = \"1ms\"";
        let mut sampler = open_sampler(&SPEC, keys, Path::new("/")).unwrap();
        let start = |payload: &[u8], pid: u32| {
            let mut all = payload_of(payload).processes().iter();
            all.find(|process| process.pid() == u64::from(pid)).map(ProcessCounters::start)
        };
        for _ in 0..50 {
            let mut first = sleeper();
            let pid = first.id();
            let before = start(&next(&mut *sampler).0, pid).unwrap();
            // The kernel reports the start of a process in ticks of 10 ms. Within one tick, the
            // starts of both processes would be equal.
            WakeEvent::new().wait_until(monotonic_ns() + 30_000_000);
            first.kill().unwrap();
            first.wait().unwrap();
            if let Err(error) = fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()) {
                return println!("skipped: {error}");
            }
            let mut second = sleeper();
            let is_again = second.id() == pid;
            let after = start(&next(&mut *sampler).0, pid);
            second.kill().unwrap();
            second.wait().unwrap();
            if is_again {
                assert!(after.unwrap() > before, "{before} {after:?}");
                return;
            }
        }
        println!("skipped: another process got the pid each time");
    }
}
