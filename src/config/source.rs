//! Sources and their settings.

use std::borrow::Cow;
use std::time::Duration;

use flatcap_sampling::{
    BatchMode, CgroupConfig, GroupName, OwnSettings, Pattern, PerfConfig, ProcessConfig, ProfileConfig,
    SchedConfig, SourceSettings, SourceSpec, SyntheticConfig, TextOrigin, TextSource,
};
use flatcap_text::quantity::CpuShare;

/// Maximum period of sources of group `fast`. A slow sample of another source in the same group may
/// delay a tick by 10 to 50 us. At periods of up to 10 ms this delay is visible, at longer periods
/// it is not.
pub const GROUP_FAST_PERIOD_MAX: Duration = Duration::from_millis(10);
/// Time after which a blocking source, for example one that waits for a file server, is treated as
/// unavailable. A later answer is discarded, and the source can then be read again.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// The specification of the source, that is, its name and its possible settings.
    pub spec: &'static SourceSpec,
    /// The name of the instance; set for sources that [have instances](SourceSpec::has_instances).
    pub instance: Option<String>,
    /// Whether the source is read.
    pub enabled: bool,
    /// Time from one sample to the next, 50 us to 1 h.
    pub period: Duration,
    /// Whether the recorder refuses to start if this host lacks the source. This has no effect if
    /// the source is disabled.
    pub required: bool,
    /// Share of one core that reading the source may use. If reading uses more, the period is
    /// lengthened.
    pub budget: CpuShare,
    /// Patterns of the items to record; empty to record all items.
    pub include: Vec<Pattern>,
    /// Patterns of the items not to record, even if `include` matches them.
    pub exclude: Vec<Pattern>,
    /// Set for the `synthetic` source only.
    pub synthetic: Option<SyntheticConfig>,
    /// Set for the `process` source only.
    pub process: Option<ProcessConfig>,
    /// Set for the `cgroup` source only.
    pub cgroup: Option<CgroupConfig>,
    /// Set for the `perf` source only.
    pub perf: Option<PerfConfig>,
    /// Set for the `sched` source only.
    pub sched: Option<SchedConfig>,
    /// Set for the `profile` source only.
    pub profile: Option<ProfileConfig>,
    /// Whether samples are recorded always or only in the ring; set for sources whose samples are
    /// batches of events.
    pub mode: Option<BatchMode>,
    /// Set for instances only.
    pub text_source: Option<TextSource>,
}

impl SourceConfig {
    /// Returns the full name of the source, as shown and as used on the command line, for example
    /// `cpu` or `file.NAME`.
    pub fn full_name(&self) -> Cow<'static, str> {
        match &self.instance {
            Some(instance) => Cow::Owned(format!("{}.{instance}", self.spec.name)),
            None => Cow::Borrowed(self.spec.name),
        }
    }

    /// Returns the settings that concern the source's sampler.
    pub fn settings(&self) -> SourceSettings<'_> {
        let Self { synthetic, process, cgroup, perf, sched, profile, text_source, .. } = self;
        let own = synthetic
            .map(OwnSettings::Synthetic)
            .or_else(|| process.as_ref().map(OwnSettings::Process))
            .or_else(|| cgroup.map(OwnSettings::Cgroup))
            .or_else(|| perf.as_ref().map(OwnSettings::Perf))
            .or_else(|| sched.map(OwnSettings::Sched))
            .or_else(|| profile.map(OwnSettings::Profile))
            .or_else(|| text_source.as_ref().map(|text| OwnSettings::Text(text, self.instance_name())))
            .unwrap_or(OwnSettings::None);
        SourceSettings {
            period: self.period,
            budget: self.budget.basis_points(),
            include: &self.include,
            exclude: &self.exclude,
            own,
        }
    }

    fn instance_name(&self) -> &str {
        self.instance.as_deref().unwrap_or_default()
    }

    /// Returns the timeout of a sample of a blocking source.
    pub fn read_timeout(&self) -> Duration {
        match self.text_source.as_ref().map(|readout| &readout.origin) {
            // The source kills the program at the program's own timeout. The additional time is for
            // a program that survives the kill.
            Some(TextOrigin::Command(command)) => command.timeout + READ_TIMEOUT,
            _ => READ_TIMEOUT,
        }
    }

    /// Returns the group that reads this source. Each group has its own thread.
    pub fn group(&self) -> GroupName {
        // This is checked before the period, because a fast source that blocks would stop all other
        // sources of its thread.
        if self.spec.may_block {
            GroupName::Blocking
        } else if self.period <= GROUP_FAST_PERIOD_MAX {
            GroupName::Fast
        } else {
            GroupName::Slow
        }
    }
}
