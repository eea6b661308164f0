//! `process`: each process with its time, memory, I/O, threads and faults, from /proc/PID, and how processes ended, from the
//! kernel's process events.

mod filter;
mod stat;
mod table;
mod told;

use std::cmp::Reverse;
use std::io::ErrorKind;

use flatbuffers::FlatBufferBuilder;

use self::filter::Filter;
use self::stat::Stat;
use self::table::{Details, Slot, Table};
use self::told::{EXITS_MAX, Told};
use super::text::ABSENT;
use super::{Entry, Opening, Unavailable};
use crate::config::ProcessRank;
use crate::os::clock::monotonic_ns;
use crate::os::host::page_bytes;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{CommandLine, Process, ProcessArgs, ProcessCounters, ProcessExit, ProcessGroup};

const DIRECTORY: &str = "proc";
/// Most processes in one sample: with all their texts they fit a frame of the default `frame_max`. Those of the lowest pids are
/// recorded; `top` chooses better.
const RECORDED_MAX: usize = 16_384;
/// What a frame has beside them.
const FRAME_EXTRA_BYTES: usize = 64 << 10;
const _: () = assert!(
    RECORDED_MAX * (size_of::<ProcessCounters>() + size_of::<CommandLine>() + size_of::<ProcessGroup>())
        + EXITS_MAX * size_of::<ProcessExit>()
        + FRAME_EXTRA_BYTES
        <= 16 << 20
);
/// Without news of processes they are listed so often.
const LIST_INTERVAL_NS: u64 = 1_000_000_000;

/// `include` and `exclude` match the process's name, as the kernel cuts it.
pub(super) const ENTRY: Entry = Entry {
    name: "process",
    root: "flatcap.host.Process",
    schema: include_bytes!("../../../../generated/host/process.bfbs"),
    files: &[DIRECTORY, "proc/PID/stat", "proc/PID/io", "proc/PID/cgroup", "proc/PID/cmdline"],
    refresh: "times with each scheduler tick, 100 to 1,000 times a second; counts as they happen",
    needs: &["CAP_SYS_PTRACE (I/O of others' processes)", "CAP_NET_ADMIN (ends of processes)"],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Sampler>, Unavailable> {
    let unavailable = |error, hint| Unavailable { file: DIRECTORY, error, hint };
    let Some(config) = &opening.config.process else {
        return Err(unavailable(ErrorKind::InvalidInput.into(), ""));
    };
    let details = Details {
        groups: config.cgroup_paths || !config.cgroups.is_empty(),
        command_lines: config.command_lines,
    };
    let told = Told::listen(opening.host);
    let table = Table::open(opening.host, details).map_err(|error| unavailable(error, ""))?;
    if table.order().is_empty() {
        return Err(unavailable(
            ErrorKind::NotFound.into(),
            ": it has no processes; mount the proc file system there",
        ));
    }
    Ok(Box::new(ProcessSampler {
        table,
        told,
        listed_ns: 0,
        filter: Filter::new(opening.selection(), config, opening.host),
        top: usize::try_from(config.top).unwrap_or(0),
        by: config.by,
        shows_groups: config.cgroup_paths,
        shows_command_lines: config.command_lines,
        page_bytes: page_bytes(),
        rows: Vec::new(),
        ranking: Vec::new(),
        chosen: Vec::new(),
        command_lines: Vec::new(),
        groups: Vec::new(),
    }))
}

#[derive(Debug)]
struct ProcessSampler {
    table: Table,
    told: Option<Told>,
    listed_ns: u64,
    filter: Filter,
    top: usize, // 0: all
    by: ProcessRank,
    shows_groups: bool,
    shows_command_lines: bool,
    page_bytes: u64,
    // Reused.
    rows: Vec<ProcessCounters>,
    ranking: Vec<Rank>, // one a row
    chosen: Vec<ProcessCounters>,
    command_lines: Vec<CommandLine>,
    groups: Vec<ProcessGroup>,
}

/// What a row is ranked by, and whose it is.
#[derive(Debug, Clone, Copy)]
struct Rank {
    value: u64,
    row: usize,
    slot: usize,
}

impl Sampler for ProcessSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        let now_ns = monotonic_ns();
        // As long as the kernel tells of no fork and no exit, the list is what it was.
        let is_changed = self.told.as_mut().is_none_or(|told| told.take(&mut self.table));
        let must_list = is_changed || now_ns.saturating_sub(self.listed_ns) >= LIST_INTERVAL_NS;
        if must_list {
            self.listed_ns = now_ns;
        }
        self.table.read(now_ns, must_list).map_err(|error| ReadError { file: DIRECTORY, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.fill() | self.table.shortfall();
        shortfall |= self.choose();
        self.fill_texts();
        let processes = builder.create_vector(&self.chosen);
        let exits = self.told.as_ref().map(|told| told.exits.as_slice()).unwrap_or_default();
        let exits = builder.create_vector(exits);
        let command_lines = builder.create_vector(&self.command_lines);
        let groups = builder.create_vector(&self.groups);
        let events = self.told.as_ref().map(Told::counters);
        let root = Process::create(
            builder,
            &ProcessArgs {
                count: self.table.order().len() as u64,
                events: events.as_ref(),
                processes: Some(processes),
                exits: Some(exits),
                command_lines: Some(command_lines),
                groups: Some(groups),
            },
        );
        builder.finish_minimal(root);
        self.told.as_ref().map_or(shortfall, |told| shortfall | told.shortfall())
    }
}

impl ProcessSampler {
    /// A row for each process that is asked for.
    fn fill(&mut self) -> Shortfall {
        let Self { table, filter, by, page_bytes, rows, ranking, .. } = self;
        rows.clear();
        ranking.clear();
        let mut shortfall = Shortfall::NONE;
        for index in 0..table.order().len() {
            let Some(known) = table.order().get(index).copied() else { break };
            let Some((slot, content)) = table.get(known) else { continue };
            let (stat, lacks) = stat::stat(content.stat, known.pid);
            let Some(stat) = stat else {
                shortfall |= lacks;
                continue;
            };
            if slot.start != stat.start {
                // Another process than the one in the last sample.
                (slot.start, slot.totals) = (stat.start, [0; 2]);
            }
            slot.is_wanted = filter.wants(slot, &stat.name);
            if !slot.is_wanted {
                continue;
            }
            shortfall |= lacks | Shortfall::DENIED.unless(!content.is_io_denied);
            let mut io = [ABSENT; 7];
            if let Some(content) = content.io {
                let (values, lacks) = stat::io(content);
                io = values;
                shortfall |= lacks;
            }
            ranking.push(Rank { value: rank(*by, slot, &stat, &io), row: rows.len(), slot: known.slot });
            rows.push(row(known.pid, slot.user, &stat, &io, *page_bytes));
        }
        shortfall
    }

    /// Keeps the first by rank, in the order of pids.
    fn choose(&mut self) -> Shortfall {
        let Self { top, rows, ranking, chosen, .. } = self;
        if (1..ranking.len()).contains(top) {
            ranking.select_nth_unstable_by_key(*top - 1, |rank| (Reverse(rank.value), rank.row));
            ranking.truncate(*top);
            ranking.sort_unstable_by_key(|rank| rank.row);
        }
        let shortfall = Shortfall::TOO_MANY.unless(ranking.len() <= RECORDED_MAX);
        ranking.truncate(RECORDED_MAX);
        chosen.clear();
        chosen.extend(ranking.iter().filter_map(|rank| rows.get(rank.row)));
        shortfall
    }

    /// Command lines and groups of those that were chosen.
    fn fill_texts(&mut self) {
        let Self { table, ranking, rows, command_lines, groups, .. } = self;
        command_lines.clear();
        groups.clear();
        if !self.shows_command_lines && !self.shows_groups {
            return;
        }
        for rank in ranking.iter() {
            let texts = table.slot(rank.slot).and_then(|slot| slot.texts.as_deref());
            let (Some(texts), Some(row)) = (texts, rows.get(rank.row)) else { continue };
            let (pid, start) = (row.pid(), row.start());
            if self.shows_command_lines {
                let (length, text) = (texts.command_line_length, &texts.command_line);
                command_lines.push(CommandLine::new(pid, start, length, text));
            }
            if self.shows_groups {
                groups.push(ProcessGroup::new(pid, start, &texts.group));
            }
        }
    }
}

/// What a process is ranked by; what could not be read ranks last.
fn rank(by: ProcessRank, slot: &mut Slot, stat: &Stat, io: &[u64; 7]) -> u64 {
    let known = |value: u64| if value == ABSENT { 0 } else { value };
    let [.., read, written, _] = *io;
    let totals = [
        known(stat.user_time).saturating_add(known(stat.system_time)),
        known(read).saturating_add(known(written)),
    ];
    let [cpu_before, io_before] = std::mem::replace(&mut slot.totals, totals);
    let [cpu, io] = totals;
    match by {
        ProcessRank::Cpu => cpu.saturating_sub(cpu_before),
        ProcessRank::Io => io.saturating_sub(io_before),
        ProcessRank::Memory => known(stat.resident_pages),
        ProcessRank::Threads => known(stat.threads),
    }
}

fn row(pid: u32, user: u64, stat: &Stat, io: &[u64; 7], page_bytes: u64) -> ProcessCounters {
    let [read_by_calls, written_by_calls, read_calls, write_calls, read, written, cancelled] = *io;
    ProcessCounters::new(
        pid.into(),
        stat.start,
        stat.parent,
        user,
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
    )
}
