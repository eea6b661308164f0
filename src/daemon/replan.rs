//! One change of a run that goes on: from a wanted configuration to one that is in force.
//!
//! The order: open and check everything, then have the recorder go on in a new segment that describes it, then have the groups go
//! on. What fails before the last step changes nothing.

use std::sync::Arc;

use crossbeam_channel::bounded;

use super::changes::{differences, in_force, one_line};
use super::plan::{on_full, retention, run_plan, seal_plan};
use super::run::{Controls, group_source, lock_memory};
use super::sources::{Candidate, counters, open};
use crate::config::{Config, GroupName, RUN_SOURCES_MAX, Source};
use crate::metrics::{Consumer, GroupLatencies, Metrics, SourceMetrics, exchange};
use crate::os::clock::{ClockReading, monotonic_ns};
use crate::os::host::HostRoot;
use crate::os::memory;
use crate::recorder::{Order, OrderError, Replan};
use crate::sampling::{Change, ReadySource, Then};
use crate::segment::{Header, SourceInfo};

/// Beside schemas and names, what a source takes of each segment: its counts and histograms in the footer.
const FOOTER_BYTES: u64 = 4 << 10;

/// What a run does now.
pub(super) struct InForce {
    config: Config,
    active: Vec<Active>,
    header: Header,     // its sources: all that the run has had, in the order of their ids
    sources_max: usize, // that memory was taken for
    metrics: Arc<Metrics>,
    controls: Controls,
}

/// A source that is read.
struct Active {
    config: Source,
    id: u16,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unchanged {
    /// The configuration asks for what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// It needs a restart, or the recorder could not.
    #[error("{0}")]
    Failed(String),
    /// The run ends.
    #[error("the agent is ending")]
    Ending,
}

/// A source of the configuration that is wanted.
enum Next {
    Kept { id: u16, budget: Option<u32> },
    Opened { id: u16, is_new: bool, candidate: Box<Candidate> },
}

/// What the change comes to, before anything is done.
struct Plan {
    active: Vec<Active>,
    next: Vec<(GroupName, Next)>,
    sources: Vec<SourceInfo>, // of all ids, the new ones behind the others
    removed: Vec<u16>,
    skipped: Vec<String>, // as said, one a source
}

/// A change that is ready, of the group in this place.
struct GroupChange {
    place: usize,
    change: Box<Change>,
}

impl InForce {
    /// What a run begins with. `header` is its first segment's, `sources` are those that it reads, in the order of ids.
    pub(super) fn new(
        config: &Config,
        sources: Vec<Source>,
        header: Header,
        metrics: Arc<Metrics>,
        controls: Controls,
    ) -> Self {
        let active = sources.into_iter().zip(0..).map(|(config, id)| Active { config, id }).collect();
        let sources_max = usize::try_from(config.memory().sources).unwrap_or(usize::MAX);
        Self { config: config.clone(), active, header, sources_max, metrics, controls }
    }

    /// The configuration that holds now.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether this source is read: one of the configuration that the host lacks, or that needs a right, is not.
    pub(super) fn reads(&self, source: &Source) -> bool {
        self.active.iter().any(|active| active.config.full_name() == source.full_name())
    }

    /// How it tells the recorder and the groups.
    pub(super) fn controls(&self) -> &Controls {
        &self.controls
    }

    /// Goes on as wanted. Returns what has changed, in one line.
    pub(super) fn change(&mut self, wanted: &Config) -> Result<String, Unchanged> {
        let config = in_force(&self.config, wanted);
        check(&config, wanted)?;
        let plan = self.plan(&config)?;
        self.check_room(&config, &plan)?;
        let mut said = differences(&self.config, &config);
        said.extend(self.unsaid(&plan, &said));
        let waiting = differences(&config, wanted);
        if !waiting.is_empty() {
            tracing::warn!("takes effect at the next start, not before: {}", one_line(&waiting));
        }
        for skipped in &plan.skipped {
            tracing::warn!("skipped: {skipped}");
        }
        let answer = answer(&said, &plan.skipped, &waiting);
        if said.is_empty() {
            return Ok(answer);
        }
        let Plan { active, next, sources, removed, .. } = plan;
        let (changes, latencies, added) = self.make_ready(&config, next)?;
        let mut header = self.header.clone();
        header.sources = sources;
        self.tell_recorder(&config, &header, latencies, removed.clone())?;
        for counters in added {
            // There is a place: the ids were counted.
            drop(self.metrics.sources.push(counters));
        }
        for source in &active {
            if let Some(counters) = self.metrics.sources.get(usize::from(source.id)) {
                counters.period_ns.set(nanoseconds(&source.config));
            }
        }
        (self.config, self.active, self.header) = (config, active, header);
        for GroupChange { place, change } in changes {
            let link = self.controls.groups.get(place).map(|(_, link)| link);
            // What comes back is dropped here: closing files may take a while.
            drop(link.and_then(|link| link.change(change)).ok_or(Unchanged::Ending)?);
        }
        self.controls.sealer.change(seal_plan(&self.config));
        if self.config.agent.lock_memory {
            // What came with the change.
            lock_memory(&self.config, memory::lock_what_is_used);
        }
        for id in removed {
            if let Some(counters) = self.metrics.sources.get(usize::from(id)) {
                counters.removed.set(1);
            }
        }
        Ok(answer)
    }

    /// Which sources stay, come, and go; opens those that come.
    fn plan(&self, config: &Config) -> Result<Plan, Unchanged> {
        let host = HostRoot::new(&config.agent.host_root);
        let mut plan = Plan {
            active: Vec::new(),
            next: Vec::new(),
            sources: self.header.sources.clone(),
            removed: Vec::new(),
            skipped: Vec::new(),
        };
        for source in config.enabled_sources() {
            let name = source.full_name();
            let before = self.active.iter().find(|active| active.config.full_name() == name);
            if let Some(before) = before
                && self.stays(before, source, config)
            {
                let budget = (before.config.budget != source.budget).then(|| source.budget.basis_points());
                plan.take(source, before.id, Next::Kept { id: before.id, budget });
                continue;
            }
            match open(source, &host) {
                Ok(candidate) => plan.take_opened(candidate, before),
                Err(reason) if source.required => {
                    return Err(Unchanged::Invalid(format!(
                        "source {name}: {reason}; it is required: leave it out, or set required = false"
                    )));
                }
                Err(reason) => plan.skipped.push(format!("{name}: {reason}")),
            }
        }
        if plan.active.is_empty() {
            let last = plan.skipped.last().map_or("", String::as_str);
            return Err(Unchanged::Invalid(format!(
                "this host has none of the configured sources; the last one: {last}"
            )));
        }
        let stays = |id: u16| plan.active.iter().any(|active| active.id == id);
        plan.removed = self.active.iter().map(|active| active.id).filter(|id| !stays(*id)).collect();
        Ok(plan)
    }

    /// Whether a source goes on with the files that it has open. One with a thread of its own needs another one for other processors.
    fn stays(&self, before: &Active, source: &Source, config: &Config) -> bool {
        let (budget, required) = (before.config.budget, before.config.required);
        let group = source.group();
        let cpus_stay = self.config.groups.get(group).cpus == config.groups.get(group).cpus;
        Source { required, budget, ..source.clone() } == before.config
            && (cpus_stay || group != GroupName::Blocking)
    }

    /// Sources that come or go although no key of theirs has changed: the host has them now, or no longer.
    fn unsaid(&self, plan: &Plan, said: &[String]) -> Vec<String> {
        let names = |active: &[Active]| -> Vec<String> {
            active.iter().map(|active| active.config.full_name().into_owned()).collect()
        };
        let (before, after) = (names(&self.active), names(&plan.active));
        let is_said = |name: &str| said.iter().any(|phrase| phrase.split(": ").next() == Some(name));
        let come = after.iter().filter(|name| !before.contains(name) && !is_said(name));
        let gone = before.iter().filter(|name| !after.contains(name) && !is_said(name));
        let come = come.map(|name| format!("{name}: this host has it now"));
        come.chain(gone.map(|name| format!("{name}: this host no longer has it"))).collect()
    }

    /// Whether there is room for what comes, which was taken at the start.
    fn check_room(&self, config: &Config, plan: &Plan) -> Result<(), Unchanged> {
        let restart = |what: String| Err(Unchanged::Failed(format!("{what}; restart the service")));
        if plan.active.len() > self.sources_max {
            return restart(format!(
                "{} sources: memory was taken for {} at most when the run began (memory_max)",
                plan.active.len(),
                self.sources_max
            ));
        }
        if plan.sources.len() as u64 > RUN_SOURCES_MAX {
            return restart(format!(
                "{} sources, one after the other, in one run: it can have {RUN_SOURCES_MAX}",
                plan.sources.len()
            ));
        }
        // Header and footer have them all.
        let bytes: u64 =
            plan.sources.iter().map(|source| source.schema.len() as u64 * 2 + FOOTER_BYTES).sum();
        let has_past_ones = plan.sources.len() > plan.active.len();
        if has_past_ones && bytes > config.storage.segment_size / 2 {
            return restart(format!(
                "to describe {} sources takes {bytes} bytes of each segment, more than half of segment_size",
                plan.sources.len()
            ));
        }
        Ok(())
    }

    /// Makes everything that the groups need, and the counters of sources that are new.
    #[allow(clippy::type_complexity, reason = "three lists that go three ways")]
    fn make_ready(
        &self,
        config: &Config,
        next: Vec<(GroupName, Next)>,
    ) -> Result<(Vec<GroupChange>, Vec<Consumer<GroupLatencies>>, Vec<Arc<SourceMetrics>>), Unchanged> {
        let now_ns = monotonic_ns();
        let mut next: Vec<Option<(GroupName, Next)>> = next.into_iter().map(Some).collect();
        let (mut changes, mut latencies, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (group, _)) in self.controls.groups.iter().enumerate() {
            let settings = config.groups.get(*group);
            let mut is_other = settings != self.config.groups.get(*group);
            let mut sources = Vec::new();
            for wanted in &mut next {
                let Some((_, next)) = wanted.take_if(|(of, _)| of == group) else { continue };
                is_other |= !matches!(next, Next::Kept { budget: None, .. });
                sources.push(match next {
                    Next::Kept { id, budget } => (id, Then::Kept { id, budget }),
                    Next::Opened { id, is_new, candidate } => {
                        let known = self.metrics.sources.get(usize::from(id)).filter(|_| !is_new);
                        let counters = known.cloned().unwrap_or_else(|| {
                            let counters = Arc::new(counters(&candidate.config));
                            added.push((id, Arc::clone(&counters)));
                            counters
                        });
                        let source = group_source(candidate.open_as(id, &self.metrics), counters);
                        let ready = ReadySource::new(source, &settings.cpus, now_ns).map_err(|error| {
                            Unchanged::Failed(format!(
                                "the kernel refuses a thread to read a source: {error}"
                            ))
                        })?;
                        (id, Then::Ready(Box::new(ready)))
                    }
                });
            }
            let had = self.active.iter().filter(|active| active.config.group() == *group).count();
            if is_other || sources.len() != had {
                let ids: Vec<u16> = sources.iter().map(|(id, _)| *id).collect();
                let (producer, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
                latencies.push(consumer);
                changes.push(GroupChange {
                    place,
                    change: Box::new(Change {
                        sources: sources.into_iter().map(|(_, then)| then).collect(),
                        config: settings.clone(),
                        on_full: on_full(config, *group),
                        latencies: producer,
                    }),
                });
            }
        }
        added.sort_by_key(|(id, _)| *id);
        Ok((changes, latencies, added.into_iter().map(|(_, counters)| counters).collect()))
    }

    /// Has the recorder go on by what is wanted, in a new segment, and waits until it does.
    fn tell_recorder(
        &self,
        config: &Config,
        header: &Header,
        latencies: Vec<Consumer<GroupLatencies>>,
        removed: Vec<u16>,
    ) -> Result<(), Unchanged> {
        // By these the configuration is attached.
        let header = Header { clocks: ClockReading::now(), ..header.clone() };
        let plan = run_plan(config, &config.memory(), header);
        let replan = Replan { plan, limits: retention(config), latencies, removed };
        let (reply, answer) = bounded(1);
        // It may have waited so long that nobody is there any more.
        self.controls.orders.give(Order::Replan(Box::new(replan)), move |result| drop(reply.send(result)));
        match answer.recv() {
            Ok(Ok(_segment)) => Ok(()),
            Ok(Err(OrderError::Ending)) | Err(_) => Err(Unchanged::Ending),
            Ok(Err(error)) => Err(Unchanged::Failed(error.to_string())),
        }
    }
}

impl Plan {
    fn take(&mut self, source: &Source, id: u16, next: Next) {
        self.next.push((source.group(), next));
        self.active.push(Active { config: source.clone(), id });
    }

    /// It goes on under the id that it has where nothing in its frames tells it from what it was; else it gets a new one.
    fn take_opened(&mut self, candidate: Candidate, before: Option<&Active>) {
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
            // Few beyond the limit, if any; it is checked before anything is done.
            let id = u16::try_from(self.sources.len()).unwrap_or(u16::MAX);
            self.sources.push(candidate.info(id));
            (id, true)
        };
        self.take(&source, id, Next::Opened { id, is_new, candidate: Box::new(candidate) });
    }
}

/// What is said of a reload that was done: what has changed, and what of it is not in force, for whoever asked for it does not see the log.
fn answer(said: &[String], skipped: &[String], waiting: &[String]) -> String {
    let name = |phrase: &str| phrase.split(": ").next().unwrap_or_default().to_owned();
    let is_skipped = |phrase: &str| skipped.iter().any(|other| name(other) == name(phrase));
    // A source that is not on this host is not on.
    let done: Vec<String> = said.iter().filter(|phrase| !is_skipped(phrase)).cloned().collect();
    let mut parts = vec![if done.is_empty() { "nothing has changed".to_owned() } else { one_line(&done) }];
    if !skipped.is_empty() {
        parts.push(format!("skipped: {}", one_line(skipped)));
    }
    if !waiting.is_empty() {
        parts.push(format!("takes effect at the next start, not before: {}", one_line(waiting)));
    }
    parts.join("; ")
}

/// What is wanted was checked with all its keys; what comes into force has some old ones.
fn check(config: &Config, wanted: &Config) -> Result<(), Unchanged> {
    if config == wanted {
        return Ok(());
    }
    Config::parse("as it would come into force", &config.to_toml()).map(drop).map_err(|errors| {
        Unchanged::Failed(format!(
            "with what cannot change before the next start, the rest does not fit; restart the service: {errors}"
        ))
    })
}

fn nanoseconds(source: &Source) -> u64 {
    super::plan::nanoseconds(source.period)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: whoever reloads is told what of it is not in force. Method: what changed, is skipped, and waits, each alone and together.
    #[test]
    fn an_answer_says_what_is_not_in_force() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let said = |said: &[&str], skipped: &[&str], waiting: &[&str]| {
            answer(&texts(said), &texts(skipped), &texts(waiting))
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
                &["agent.data_dir: a -> b", "handover.drain: 1s -> 2s"]
            ),
            "disk: off; skipped: hwmon: none; takes effect at the next start, not before: agent.data_dir: a -> b; \
             handover.drain: 1s -> 2s"
        );
    }
}
