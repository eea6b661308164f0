//! Reconfiguration of a running recorder.
//!
//! A reload has three steps. First, the new sources are opened and the new configuration is
//! checked. Second, the recorder continues in a new segment that describes the new configuration.
//! Third, the groups are updated. A failure before the last step changes nothing.

use std::sync::Arc;

use crossbeam_channel::bounded;
use flatcap_format::segment::{SegmentHeader, SourceInfo};
use flatcap_metrics::{Consumer, GroupLatencies, Metrics, SourceMetrics, exchange};
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::host::HostRoot;
use flatcap_os::memory;
use flatcap_recorder::{CommandError, PlanUpdate, RecorderCommand, RecorderHandle, RecorderRules};
use flatcap_sampling::{GroupName, GroupUpdate, ReadySource, SourceUpdate};

use super::memory_budget::{MemoryBudget, RUN_SOURCES_MAX, memory_rule};
use super::ring::{ring_compression, ring_limits, ring_plan, thinned_plan};
use super::rules::compile_rules;
use super::run::{RunHandles, group_source};
use super::run_sources::description_bytes;
use super::settings::{compression_plan, lock_memory, retention, run_plan};
use super::sources::{Candidate, counters, open};
use crate::config::{Config, SourceConfig};

/// Maximum number of differences that a line lists.
const DIFFERENCES_MAX: usize = 32;

/// The current configuration of a run and its sources.
pub(super) struct RunningConfig {
    config: Config,
    active: Vec<RunningSource>,
    header: SegmentHeader, // without sources: those are in `controls.sources`
    sources_max: usize,    // for which memory was allocated
    metrics: Arc<Metrics>,
    controls: RunHandles,
}

/// A source that is being read.
struct RunningSource {
    config: SourceConfig,
    id: u16,
}

/// The reasons why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadError {
    /// The configuration is invalid on this host.
    #[error("{0}")]
    Invalid(String),
    /// The change needs a restart, or the recorder failed to apply it.
    #[error("{0}")]
    Failed(String),
    /// The run is ending.
    #[error("the recorder is stopping")]
    Ending,
}

/// A source of the new configuration, with the action that a reload takes for it.
enum PlannedSource {
    Keep { id: u16, budget: Option<u32> },
    Open { id: u16, is_new: bool, candidate: Box<Candidate> },
}

/// The effects of a reload, determined before anything is changed.
struct ReloadPlan {
    active: Vec<RunningSource>,
    next: Vec<(GroupName, PlannedSource)>,
    sources: Vec<SourceInfo>, // of all ids, new ones last
    removed: Vec<u16>,
    skipped: Vec<String>,    // one message per source
    kept: Vec<SourceConfig>, // settings before, of sources that cannot be opened with the new ones
}

/// An update that is ready for the group with this index.
struct PreparedUpdate {
    index: usize,
    update: Box<GroupUpdate>,
}

impl RunningConfig {
    /// Creates the state at the start of a run. `header` is the header of its first segment;
    /// `sources` are the sources being read, ordered by id.
    pub(super) fn new(
        config: &Config,
        sources: Vec<SourceConfig>,
        header: SegmentHeader,
        metrics: Arc<Metrics>,
        controls: RunHandles,
    ) -> Self {
        let active = sources.into_iter().zip(0..).map(|(config, id)| RunningSource { config, id }).collect();
        let sources_max = usize::try_from(MemoryBudget::of(config).sources).unwrap_or(usize::MAX);
        let header = SegmentHeader { sources: Vec::new(), ..header };
        Self { config: config.clone(), active, header, sources_max, metrics, controls }
    }

    /// Returns the current configuration.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether this source is being read. A configured source is not read if the host lacks
    /// it or access is denied.
    pub(super) fn is_reading(&self, source: &SourceConfig) -> bool {
        self.active.iter().any(|active| active.config.full_name() == source.full_name())
    }

    /// Returns the handles of the recorder and the groups.
    pub(super) fn handles(&self) -> &RunHandles {
        &self.controls
    }

    /// Applies a new configuration. Returns the changes in one line.
    pub(super) fn apply(&mut self, new: &Config) -> Result<String, ReloadError> {
        let mut config = self.config.with_reload_of(new);
        check(&config, new)?;
        let waiting = config.differences(new);
        // The lock prevents applications from adding sources during the reload.
        let shared = Arc::clone(&self.controls.sources);
        let mut known = shared.lock();
        let mut plan = self.plan(&config, &known)?;
        for before in plan.kept.drain(..) {
            let mut sources = config.sources.iter_mut();
            if let Some(own) = sources.find(|source| source.full_name() == before.full_name()) {
                *own = before;
            }
        }
        self.check_limits(&config, &plan)?;
        let mut phrases = self.config.differences(&config);
        phrases.extend(self.host_changes(&plan, &phrases));
        if !waiting.is_empty() {
            tracing::warn!("takes effect at the next start, not before: {}", one_line(&waiting));
        }
        for skipped in &plan.skipped {
            tracing::warn!("skipped: {skipped}");
        }
        let answer = summary(&phrases, &plan.skipped, &waiting);
        if phrases.is_empty() {
            return Ok(answer);
        }
        let ReloadPlan { active, next, sources, removed, .. } = plan;
        let (changes, latencies, added) = self.prepare_updates(&config, next)?;
        let mut header = self.header.clone();
        header.sources = sources;
        let rules = compile_rules(
            &config,
            &header.sources,
            |id| active.iter().any(|own| own.id == id),
            self.controls.firings.clone(),
        );
        self.update_recorder(&config, &header, latencies, (removed.clone(), rules))?;
        shared.note(header.sources.get(known.len()..).unwrap_or_default());
        for counters in added {
            shared.add_counters(counters);
        }
        *known = std::mem::take(&mut header.sources);
        drop(known);
        for source in &active {
            if let Some(counters) = self.metrics.sources.get(usize::from(source.id)) {
                counters.period_ns.set(nanoseconds(&source.config));
            }
        }
        (self.config, self.active, self.header) = (config, active, header);
        for PreparedUpdate { index: place, update: change } in changes {
            let handle = self.controls.groups.get(place).map(|(_, link)| link);
            // The old parts are dropped here, because closing files may take a while.
            drop(handle.and_then(|link| link.update(change)).ok_or(ReloadError::Ending)?);
        }
        let (compressor, of_ring) = &self.controls.compressors;
        compressor.set_settings(compression_plan(&self.config));
        if let Some(of_ring) = of_ring {
            of_ring.set_settings(ring_compression(&self.config));
        }
        if self.config.recorder.lock_memory {
            // The update may have allocated memory, which is locked here.
            lock_memory(&self.config, memory::lock_memory_on_fault);
        }
        for id in removed {
            if let Some(counters) = self.metrics.sources.get(usize::from(id)) {
                counters.removed.set(1);
            }
        }
        Ok(answer)
    }

    /// Determines which sources stay, are added and are removed, and opens the added ones.
    fn plan(&self, config: &Config, known: &[SourceInfo]) -> Result<ReloadPlan, ReloadError> {
        let host = HostRoot::new(&config.recorder.host_root);
        let mut plan = ReloadPlan {
            active: Vec::new(),
            next: Vec::new(),
            sources: known.to_vec(),
            removed: Vec::new(),
            skipped: Vec::new(),
            kept: Vec::new(),
        };
        for source in config.enabled_sources() {
            let name = source.full_name();
            let before = self.active.iter().find(|active| active.config.full_name() == name);
            if let Some(before) = before
                && self.stays(before, source, config)
            {
                let budget = (before.config.budget != source.budget).then(|| source.budget.basis_points());
                plan.add(source, before.id, PlannedSource::Keep { id: before.id, budget });
                continue;
            }
            match open(source, &host) {
                Ok(candidate) => plan.add_opened(candidate, before),
                Err(reason) if source.required => {
                    return Err(ReloadError::Invalid(format!(
                        "source {name}: {reason}; this source is required: remove it, or set required = false"
                    )));
                }
                // A file may be missing, or the open source may hold a resource that only one
                // source can hold.
                Err(reason) => match before {
                    Some(before) => plan.keep(before, &reason),
                    None => plan.skipped.push(format!("{name}: {reason}")),
                },
            }
        }
        if plan.active.is_empty() {
            let last = plan.skipped.last().map_or("", String::as_str);
            return Err(ReloadError::Invalid(format!(
                "this host has none of the configured sources; the last one: {last}"
            )));
        }
        let stays = |id: u16| plan.active.iter().any(|active| active.id == id);
        plan.removed = self.active.iter().map(|active| active.id).filter(|id| !stays(*id)).collect();
        Ok(plan)
    }

    /// Returns whether a source keeps its open files during the reload. A source that has its own
    /// thread is reopened if the CPUs of its group change.
    fn stays(&self, before: &RunningSource, source: &SourceConfig, config: &Config) -> bool {
        // The sampler applies the budget of the source `sched`, so a change of this budget reopens
        // the source.
        let budget = if source.sched.is_some() { source.budget } else { before.config.budget };
        let required = before.config.required;
        let group = source.group();
        let cpus_stay = self.config.groups.get(group).cpus == config.groups.get(group).cpus;
        SourceConfig { required, budget, ..source.clone() } == before.config
            && (cpus_stay || group != GroupName::Blocking)
    }

    /// Returns the sources that are added or removed although their settings are unchanged, because
    /// the host has gained or lost them.
    fn host_changes(&self, plan: &ReloadPlan, phrases: &[String]) -> Vec<String> {
        let names = |active: &[RunningSource]| -> Vec<String> {
            active.iter().map(|active| active.config.full_name().into_owned()).collect()
        };
        let (before, after) = (names(&self.active), names(&plan.active));
        let is_said = |name: &str| phrases.iter().any(|phrase| phrase.split(": ").next() == Some(name));
        let added = after.iter().filter(|name| !before.contains(name) && !is_said(name));
        let removed = before.iter().filter(|name| !after.contains(name) && !is_said(name));
        let added = added.map(|name| format!("{name}: this host has it now"));
        added.chain(removed.map(|name| format!("{name}: this host no longer has it"))).collect()
    }

    /// Checks the limits that were fixed when the run started.
    fn check_limits(&self, config: &Config, plan: &ReloadPlan) -> Result<(), ReloadError> {
        let restart = |what: String| Err(ReloadError::Failed(format!("{what}; restart the service")));
        if plan.active.len() > self.sources_max {
            return restart(format!(
                "{} sources exceed the {} for which memory was allocated at the start (memory_max)",
                plan.active.len(),
                self.sources_max
            ));
        }
        if plan.sources.len() as u64 > RUN_SOURCES_MAX {
            return restart(format!(
                "{} sources in one run, removed and pushed ones included, exceed the limit of {RUN_SOURCES_MAX}",
                plan.sources.len()
            ));
        }
        // Header and footer describe all sources.
        let bytes: u64 = plan.sources.iter().map(description_bytes).sum();
        let has_past_ones = plan.sources.len() > plan.active.len();
        if has_past_ones && bytes > config.storage.segment_size / 2 {
            return restart(format!(
                "the descriptions of {} sources take {bytes} bytes of each segment, more than half of segment_size",
                plan.sources.len()
            ));
        }
        Ok(())
    }

    /// Prepares the updates of all groups, and the counters of new sources.
    #[allow(clippy::type_complexity, reason = "three lists with three destinations")]
    fn prepare_updates(
        &self,
        config: &Config,
        next: Vec<(GroupName, PlannedSource)>,
    ) -> Result<(Vec<PreparedUpdate>, Vec<Consumer<GroupLatencies>>, Vec<Arc<SourceMetrics>>), ReloadError>
    {
        let now_ns = monotonic_ns();
        let mut next: Vec<Option<(GroupName, PlannedSource)>> = next.into_iter().map(Some).collect();
        let (mut changes, mut latencies, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (group, _)) in self.controls.groups.iter().enumerate() {
            let settings = config.groups.get(*group);
            // The share of a thread with real-time priority follows `cpu_budget`.
            let mut has_changed = settings != self.config.groups.get(*group)
                || config.thread(*group) != self.config.thread(*group);
            let mut sources = Vec::new();
            for wanted in &mut next {
                let Some((_, next)) = wanted.take_if(|(of, _)| of == group) else { continue };
                has_changed |= !matches!(next, PlannedSource::Keep { budget: None, .. });
                sources.push(match next {
                    PlannedSource::Keep { id, budget } => (id, SourceUpdate::Keep { id, budget }),
                    PlannedSource::Open { id, is_new, candidate } => {
                        let known = self.metrics.sources.get(usize::from(id)).filter(|_| !is_new);
                        let counters = known.cloned().unwrap_or_else(|| {
                            let counters = Arc::new(counters(&candidate.config));
                            added.push((id, Arc::clone(&counters)));
                            counters
                        });
                        let source = group_source(candidate.open_as(id, &self.metrics), counters);
                        let ready = ReadySource::new(source, &settings.cpus, now_ns).map_err(|error| {
                            ReloadError::Failed(format!("cannot start a thread that reads a source: {error}"))
                        })?;
                        (id, SourceUpdate::Open(Box::new(ready)))
                    }
                });
            }
            let before = self.active.iter().filter(|active| active.config.group() == *group).count();
            if has_changed || sources.len() != before {
                let ids: Vec<u16> = sources.iter().map(|(id, _)| *id).collect();
                let (producer, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
                latencies.push(consumer);
                changes.push(PreparedUpdate {
                    index: place,
                    update: Box::new(GroupUpdate {
                        sources: sources.into_iter().map(|(_, then)| then).collect(),
                        thread: config.thread(*group),
                        on_full: settings.on_full,
                        latencies: producer,
                    }),
                });
            }
        }
        added.sort_by_key(|(id, _)| *id);
        Ok((changes, latencies, added.into_iter().map(|(_, counters)| counters).collect()))
    }

    /// Makes the recorder continue with the new configuration in a new segment, and waits until it
    /// has done so.
    fn update_recorder(
        &self,
        config: &Config,
        header: &SegmentHeader,
        latencies: Vec<Consumer<GroupLatencies>>,
        (removed, rules): (Vec<u16>, RecorderRules),
    ) -> Result<(), ReloadError> {
        // The attached configuration has the times of this header.
        let header = SegmentHeader { clocks: read_clocks(), ..header.clone() };
        let plan = run_plan(config, &MemoryBudget::of(config), header);
        let (commands, limits) = (&self.controls.commands, retention(config));
        let Some(ring) = &self.controls.ring else {
            return update_plan(commands, PlanUpdate { plan, limits, latencies, removed, rules });
        };
        let for_ring = PlanUpdate {
            plan: ring_plan(config, &plan),
            limits: ring_limits(config),
            latencies: Vec::new(),
            removed: Vec::new(),
            rules,
        };
        // The recorder of the data directory is updated first, because it may refuse the plan, and
        // then nothing must have changed. The ring's recorder accepts any plan.
        let plan = thinned_plan(config, plan);
        let rules = RecorderRules::default();
        update_plan(commands, PlanUpdate { plan, limits, latencies, removed, rules })?;
        update_plan(ring, for_ring)
    }
}

/// Makes a recorder continue with another plan, and waits until it has done so.
fn update_plan(recorder: &RecorderHandle, update: PlanUpdate) -> Result<(), ReloadError> {
    let (reply, answer) = bounded(1);
    // The receiver may have given up waiting.
    recorder.send(RecorderCommand::UpdatePlan(Box::new(update)), move |result| drop(reply.send(result)));
    match answer.recv() {
        Ok(Ok(_segment)) => Ok(()),
        Ok(Err(CommandError::Ending)) | Err(_) => Err(ReloadError::Ending),
        Ok(Err(error)) => Err(ReloadError::Failed(error.to_string())),
    }
}

impl ReloadPlan {
    fn add(&mut self, source: &SourceConfig, id: u16, next: PlannedSource) {
        self.next.push((source.group(), next));
        self.active.push(RunningSource { config: source.clone(), id });
    }

    /// Keeps a source unchanged if it cannot be opened with its new settings, because old settings
    /// are better than no samples.
    fn keep(&mut self, before: &RunningSource, reason: &str) {
        let RunningSource { config, id } = before;
        self.skipped.push(format!("{}: {reason}; it is read with the settings before", config.full_name()));
        self.kept.push(config.clone());
        self.add(config, *id, PlannedSource::Keep { id: *id, budget: None });
    }

    /// Adds an opened source. The source keeps its id if its frames still have the same schema and
    /// group. Otherwise it gets a new id.
    fn add_opened(&mut self, candidate: Candidate, before: Option<&RunningSource>) {
        let source = candidate.config.clone();
        let same = before.filter(|before| before.config.group() == source.group()).and_then(|before| {
            self.sources.iter_mut().find(|info| {
                info.id == before.id && info.root == candidate.root && info.schema == candidate.schema
            })
        });
        let (id, is_new) = if let Some(info) = same {
            info.period_ns = nanoseconds(&source);
            (info.id, false)
        } else {
            // An id beyond the limit is rejected before anything is changed.
            let id = u16::try_from(self.sources.len()).unwrap_or(u16::MAX);
            self.sources.push(candidate.info(id));
            (id, true)
        };
        self.add(&source, id, PlannedSource::Open { id, is_new, candidate: Box::new(candidate) });
    }
}

/// Returns the result of a reload for the caller, who does not see the log. It lists the changes,
/// and the settings that did not take effect.
fn summary(changes: &[String], skipped: &[String], pending: &[String]) -> String {
    let name = |phrase: &str| phrase.split(": ").next().unwrap_or_default().to_owned();
    let is_skipped = |phrase: &str| skipped.iter().any(|other| name(other) == name(phrase));
    // A source that this host lacks is not reported as enabled.
    let done: Vec<String> = changes.iter().filter(|phrase| !is_skipped(phrase)).cloned().collect();
    let mut parts = vec![if done.is_empty() { "nothing has changed".to_owned() } else { one_line(&done) }];
    if !skipped.is_empty() {
        parts.push(format!("skipped: {}", one_line(skipped)));
    }
    if !pending.is_empty() {
        parts.push(format!("takes effect at the next start, not before: {}", one_line(pending)));
    }
    parts.join("; ")
}

/// Joins differences into one line.
fn one_line(differences: &[String]) -> String {
    let listed = differences.iter().take(DIFFERENCES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match differences.len().saturating_sub(DIFFERENCES_MAX) {
        0 => listed,
        more => format!("{listed}; and {more} more"),
    }
}

/// Checks the merged configuration. The new configuration was validated with all its keys, but in
/// the merged one some keys keep their old values.
fn check(config: &Config, new: &Config) -> Result<(), ReloadError> {
    if config == new {
        return Ok(());
    }
    config.check("the merged configuration", memory_rule).map_err(|errors| {
        ReloadError::Failed(format!(
            "the changes conflict with settings that cannot change before the next start; restart the service: {errors}"
        ))
    })
}

fn nanoseconds(source: &SourceConfig) -> u64 {
    super::settings::nanoseconds(source.period)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a line lists at most 32 differences.
    #[test]
    fn many_differences_are_cut() {
        let many: Vec<String> = (0..40).map(|k| k.to_string()).collect();
        assert!(one_line(&many).ends_with("; 31; and 8 more"));
    }

    // Proves that the caller of a reload is informed of changes that did not take effect, that is,
    // skipped sources and settings that need a restart.
    #[test]
    fn a_summary_names_settings_not_in_effect() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let said = |said: &[&str], skipped: &[&str], waiting: &[&str]| {
            summary(&texts(said), &texts(skipped), &texts(waiting))
        };
        assert_eq!(said(&[], &[], &[]), "nothing has changed");
        assert_eq!(
            said(&["cpu: period 10ms -> 1ms", "snmp: on"], &[], &[]),
            "cpu: period 10ms -> 1ms; snmp: on"
        );
        assert_eq!(
            said(&["hwmon: on"], &["hwmon: no driver: none"], &[]),
            "nothing has changed; skipped: hwmon: no driver: none"
        );
        assert_eq!(
            said(
                &["disk: off", "hwmon: on"],
                &["hwmon: none"],
                &["recorder.data_dir: a -> b", "buffering.poll_interval: 1s -> 2s"]
            ),
            "disk: off; skipped: hwmon: none; takes effect at the next start, not before: recorder.data_dir: a -> b; \
             buffering.poll_interval: 1s -> 2s"
        );
    }
}
