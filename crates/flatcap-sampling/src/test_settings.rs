//! Settings of sources for tests, made from the keys that a configuration would have. The parser of
//! configurations cannot be used here, because it is in the program, which depends on this crate.

use std::path::PathBuf;
use std::time::Duration;

use flatcap_os::keyword::Keyword;
use toml::de::{DeTable, DeValue};

use crate::sources::CATALOG;
use crate::{
    CgroupConfig, CommandLines, CommandSpec, Expression, OwnKeys, OwnSettings, Pattern, PerfConfig,
    PerfEvent, ProcessConfig, ProcessRank, ProfileConfig, SchedConfig, SourceSettings, SourceSpec,
    SyntheticConfig, SyntheticLayout, TextOrigin, TextSource, ThreadSettings, Timing, ValueFormat,
};

/// The name of the tested instance of a source that has instances.
const INSTANCE: &str = "own";

/// Settings of one source.
#[derive(Debug)]
pub(crate) struct TestSettings {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    period: Duration,
    own: OwnedSettings,
}

#[derive(Debug)]
enum OwnedSettings {
    None,
    Synthetic(SyntheticConfig),
    Process(ProcessConfig),
    Cgroup(CgroupConfig),
    Perf(PerfConfig),
    Sched(SchedConfig),
    Profile(ProfileConfig),
    Text(TextSource),
}

impl TestSettings {
    /// Parses the lines of a source's table. Settings that no line sets have the program's
    /// defaults.
    pub(crate) fn new(spec: &SourceSpec, keys: &str) -> Self {
        assert!(CATALOG.contains(spec));
        let mut settings = Self {
            include: Vec::new(),
            exclude: Vec::new(),
            period: spec.period,
            own: OwnedSettings::by_default(spec.keys),
        };
        for (key, value) in DeTable::parse(keys).unwrap().into_inner() {
            settings.set(key.get_ref(), value.get_ref());
        }
        settings
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>) {
        match key {
            "include" => self.include = patterns(value),
            "exclude" => self.exclude = patterns(value),
            "period" => self.period = duration(value),
            _ => self.own.set(key, value),
        }
    }

    /// Returns the file or command that an instance reads.
    pub(crate) fn text_mut(&mut self) -> &mut TextSource {
        match &mut self.own {
            OwnedSettings::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    /// Returns the settings with which the source is opened.
    pub(crate) fn get(&self) -> SourceSettings<'_> {
        SourceSettings {
            period: self.period,
            budget: 1_000,
            include: &self.include,
            exclude: &self.exclude,
            own: self.own.get(),
        }
    }
}

impl OwnedSettings {
    fn by_default(keys: OwnKeys) -> Self {
        let text = |origin| Self::Text(TextSource { origin, format: ValueFormat::Pairs });
        match keys {
            OwnKeys::None | OwnKeys::Batches => Self::None,
            OwnKeys::Synthetic => Self::Synthetic(SyntheticConfig { shape: SyntheticLayout::Point, seed: 0 }),
            OwnKeys::Process => Self::Process(ProcessConfig {
                users: Vec::new(),
                cgroups: Vec::new(),
                full_interval: Duration::from_secs(1),
                busiest: 20,
                top: 0,
                by: ProcessRank::Cpu,
                command_lines: CommandLines::Off,
                cgroup_paths: false,
            }),
            OwnKeys::Cgroup => Self::Cgroup(CgroupConfig { depth: 8 }),
            OwnKeys::Perf => {
                Self::Perf(PerfConfig { events: PerfEvent::ALL.to_vec(), processes: Vec::new() })
            }
            OwnKeys::Sched => Self::Sched(SchedConfig { wakeups: true, ring: 2 << 20 }),
            OwnKeys::Profile => Self::Profile(ProfileConfig { frequency: 99 }),
            OwnKeys::File => text(TextOrigin::File(PathBuf::new())),
            OwnKeys::Command => text(TextOrigin::Command(CommandSpec {
                argv: Vec::new(),
                timeout: Duration::from_secs(5),
                defined_in: None,
            })),
        }
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>) {
        match (self, key) {
            (Self::Process(process), "users") => process.users = patterns(value),
            (Self::Process(process), "cgroups") => process.cgroups = patterns(value),
            (Self::Process(process), "full_interval") => process.full_interval = duration(value),
            (Self::Process(process), "busiest") => process.busiest = number(value),
            (Self::Process(process), "top") => process.top = number(value),
            (Self::Process(process), "by") => process.by = keyword(value),
            (Self::Process(process), "command_lines") => process.command_lines = keyword(value),
            (Self::Process(process), "cgroup_paths") => process.cgroup_paths = value.as_bool().unwrap(),
            (Self::Cgroup(cgroup), "depth") => cgroup.depth = number(value),
            (Self::Perf(perf), "events") => {
                perf.events = list(value).iter().map(|word| found(word)).collect();
            }
            (Self::Perf(perf), "processes") => perf.processes = list(value),
            (Self::Sched(sched), "wakeups") => sched.wakeups = value.as_bool().unwrap(),
            (Self::Profile(profile), "frequency") => profile.frequency = number(value),
            (Self::Text(TextSource { origin: TextOrigin::File(path), .. }), "path") => {
                *path = text(value).into();
            }
            (Self::Text(TextSource { origin: TextOrigin::Command(command), .. }), "command") => {
                command.argv = list(value);
            }
            (Self::Text(TextSource { origin: TextOrigin::Command(command), .. }), "timeout") => {
                command.timeout = duration(value);
            }
            (Self::Text(source), "format") if !matches!(source.format, ValueFormat::Regex(_)) => {
                source.format = match text(value) {
                    "pairs" => ValueFormat::Pairs,
                    "prometheus" => ValueFormat::Prometheus,
                    "json" => ValueFormat::Json,
                    // The expression is set by another key, before or after the key `format`.
                    "regex" => ValueFormat::Regex(Expression::new("(.*)").unwrap()),
                    other => panic!("no format is named {other}"),
                };
            }
            (Self::Text(_), "format") => {}
            (Self::Text(source), "pattern") => {
                source.format = ValueFormat::Regex(Expression::new(text(value)).unwrap());
            }
            (own, key) => panic!("{own:?} has no key {key}"),
        }
    }

    fn get(&self) -> OwnSettings<'_> {
        match self {
            Self::None => OwnSettings::None,
            Self::Synthetic(synthetic) => OwnSettings::Synthetic(*synthetic),
            Self::Process(process) => OwnSettings::Process(process),
            Self::Cgroup(cgroup) => OwnSettings::Cgroup(*cgroup),
            Self::Perf(perf) => OwnSettings::Perf(perf),
            Self::Sched(sched) => OwnSettings::Sched(*sched),
            Self::Profile(profile) => OwnSettings::Profile(*profile),
            Self::Text(source) => OwnSettings::Text(source, INSTANCE),
        }
    }
}

/// Returns the default settings of the thread of the fast group.
pub(crate) fn fast_thread() -> ThreadSettings {
    ThreadSettings { timing: Timing::Precise, priority: 0, realtime_share: 1_250, cpus: Vec::new() }
}

fn text<'a>(value: &'a DeValue<'_>) -> &'a str {
    value.as_str().unwrap()
}

fn list(value: &DeValue<'_>) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| text(item.get_ref()).to_owned()).collect()
}

fn patterns(value: &DeValue<'_>) -> Vec<Pattern> {
    list(value).iter().map(|pattern| Pattern::new(pattern).unwrap()).collect()
}

fn number(value: &DeValue<'_>) -> u32 {
    value.as_integer().unwrap().as_str().parse().unwrap()
}

fn keyword<T: Keyword>(value: &DeValue<'_>) -> T {
    found(text(value))
}

fn found<T: Keyword>(word: &str) -> T {
    T::find(word).unwrap()
}

fn duration(value: &DeValue<'_>) -> Duration {
    let text = text(value);
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap());
    let number: u64 = number.parse().unwrap();
    match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "h" => Duration::from_secs(3600 * number),
        other => panic!("no unit is named {other}"),
    }
}
