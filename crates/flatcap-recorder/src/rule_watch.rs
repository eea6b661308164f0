//! Evaluates the rules on the samples of the slabs that were written, within a CPU budget. So rules
//! never delay a write by a long time, and never cause the loss of a sample.

use std::sync::Arc;

use flatcap_format::schema::envelope;
use flatcap_format::segment::{Marker, MarkerOrigin, SourceInfo};
use flatcap_metrics::{Metrics, RuleMetrics};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::throttle::Throttle;
use flatcap_slab::Slab;
use flatcap_trigger::{ScopedEngine, TriggerChange, TriggerCounts, TriggerEngine, TriggerEvent};

use super::commands::MARK_BYTES_MAX;
use super::recorder_rules::{FiringListener, PushedRules, RecorderRules};
use super::segment_slot::SegmentSlot;

/// CPU budget of rules, in nanoseconds per second. The budget is 5 % of a core, which is enough for
/// about 200 rules on samples at 1 kHz. The queues between samplers and recorder can absorb delays
/// that are far longer than the delays that rules cause.
const RULE_NS_PER_S: u64 = NS_PER_S / 20;
/// Maximum time over which unused budget accumulates, in nanoseconds. After a stall of the disk,
/// the accumulated budget pays for the larger batch.
const BURST_NS: u64 = NS_PER_S / 4;
/// Maximum CPU time per slab, in nanoseconds. Rules on lists of thousands of elements could take
/// longer. In this case, further samples of the slab are skipped, because the pool needs its slabs
/// back.
const SLAB_NS_MAX: u64 = 20_000_000;
/// Number of frames between two reads of the clock.
const FRAMES_PER_CHECK: usize = 16;

/// Maximum number of pushed sources with rules. The number is limited, because the rules have
/// separate windows for each of these sources.
const PUSHED_MAX: usize = 256;
/// Time without a sample after which another pushed source may replace a pushed source.
const IDLE_NS: u64 = 60 * NS_PER_S;

/// Number of bits in which an engine stores the id of an episode. The higher bits hold the id of
/// the pushed source plus 1.
const EPISODE_BITS: u32 = 32;

/// The rules of a run.
#[derive(Debug)]
pub(super) struct RuleWatch {
    /// The engines. The first engine is for the host's sources, and each further engine is for a
    /// pushed source that is named in a rule.
    engines: Vec<WatchedEngine>,
    /// For each source id, the engines that observe the source.
    observers: Vec<Vec<usize>>,
    on_firing: Option<FiringListener>,
    pushed: Option<PushedRules>,
    metrics: Arc<Metrics>,
    events: Vec<TriggerEvent>,
    throttle: Throttle,
    has_warned: bool,
}

/// Rules, and the state of their metrics.
#[derive(Debug)]
struct WatchedEngine {
    /// The pushed source of these rules, or `None` for the rules of the host's sources.
    source: Option<u16>,
    rules: ScopedEngine,
    /// The time of the last sample of the pushed source, in monotonic nanoseconds.
    last_ns: u64,
    /// The counts of each rule so far, and the index of the rule's counters.
    counted: Vec<(TriggerCounts, Option<usize>)>,
}

impl RuleWatch {
    /// Creates the rule watch of a run that starts with this number of sources. No application has
    /// pushed any of these sources.
    pub(super) fn new(rules: RecorderRules, metrics: Arc<Metrics>, sources: usize) -> Self {
        let RecorderRules { engine, on_firing, pushed } = rules;
        let engines = vec![WatchedEngine::new(None, engine, &metrics)];
        let mut watch = Self {
            engines,
            observers: Vec::new(),
            on_firing,
            pushed,
            metrics,
            events: Vec::new(),
            throttle: Throttle::new(RULE_NS_PER_S).with_burst(BURST_NS),
            has_warned: false,
        };
        watch.find_observers(sources);
        watch
    }

    /// Continues with the rules of another configuration. `sources` has all sources of the run.
    pub(super) fn replace(&mut self, rules: RecorderRules, sources: &[SourceInfo]) {
        let RecorderRules { engine, on_firing, pushed } = rules;
        let earlier = std::mem::take(&mut self.engines);
        (self.on_firing, self.pushed) = (on_firing, pushed);
        self.engines.push(WatchedEngine::new(None, engine, &self.metrics));
        // The pushed sources that were active most recently keep their engines. The newest sources
        // come after them.
        let known: Vec<(u16, u64)> =
            earlier.iter().filter_map(|watched| Some((watched.source?, watched.last_ns))).collect();
        for (id, last_ns) in &known {
            if self.add_source(*id, sources)
                && let Some(watched) = self.engines.last_mut()
            {
                watched.last_ns = *last_ns;
            }
        }
        let others = sources.iter().rev().map(|source| source.id);
        for id in others.filter(|id| known.iter().all(|(known, _)| known != id)) {
            if self.engines.len() > PUSHED_MAX {
                break;
            }
            self.add_source(id, sources);
        }
        for watched in &mut self.engines {
            if let Some(before) = earlier.iter().find(|before| before.source == watched.source) {
                watched.rules.engine_mut().adopt(before.rules.engine());
                watched.counted = counted(watched.rules.engine(), &self.metrics);
            }
        }
        self.find_observers(sources.len());
    }

    /// If an application has pushed a source, adds the rules that name this source. `sources` has
    /// all sources of the run.
    pub(super) fn observe_source(&mut self, id: u16, sources: &[SourceInfo]) {
        // Most sources are named in no rule, and therefore have no observers.
        let before = self.engines.len();
        if self.add_source(id, sources) || self.engines.len() != before {
            self.find_observers(sources.len());
        }
    }

    /// Adds the rules that name a pushed source, if there are any. Returns whether any rule names
    /// the source.
    fn add_source(&mut self, id: u16, sources: &[SourceInfo]) -> bool {
        let Some(source) = sources.iter().find(|source| source.id == id) else { return false };
        if !self.pushed.as_ref().is_some_and(|pushed| pushed.names(&source.name)) {
            return false;
        }
        if self.engines.len() > PUSHED_MAX && !self.forget_idle() {
            tracing::warn!(
                source = source.name.as_str(),
                "rules are evaluated for {PUSHED_MAX} pushed sources, and not for this one: let fewer threads push it"
            );
            return false;
        }
        let Some(pushed) = &mut self.pushed else { return false };
        let rules = pushed.compile(sources, id);
        let is_named = !rules.engine().is_empty();
        if is_named {
            self.engines.push(WatchedEngine::new(Some(id), rules, &self.metrics));
        }
        is_named
    }

    /// Removes the pushed source that has been idle for the longest time, if that time exceeds
    /// [`IDLE_NS`]. Returns whether a source was removed. Sources of earlier processes remain as
    /// idle sources after the threads of these processes have ended.
    fn forget_idle(&mut self) -> bool {
        let pushed = self.engines.iter().enumerate().filter(|(_, watched)| watched.source.is_some());
        let Some((at, last_ns)) =
            pushed.map(|(at, watched)| (at, watched.last_ns)).min_by_key(|(_, last_ns)| *last_ns)
        else {
            return false;
        };
        let is_idle = monotonic_ns().saturating_sub(last_ns) > IDLE_NS;
        if is_idle {
            self.engines.remove(at);
        }
        is_idle
    }

    fn find_observers(&mut self, sources: usize) {
        self.observers = vec![Vec::new(); sources];
        for (at, watched) in self.engines.iter().enumerate() {
            for id in watched.rules.observed() {
                if let Some(observers) = self.observers.get_mut(usize::from(id)) {
                    observers.push(at);
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.engines.iter().all(|watched| watched.rules.engine().is_empty())
    }

    /// Observes the samples of a batch. If the budget is used up, samples are skipped and counted.
    pub(super) fn observe(&mut self, batch: &[Box<Slab>]) {
        if self.is_empty() {
            return;
        }
        let mut skipped = 0;
        for slab in batch {
            let began_ns = monotonic_ns();
            if self.throttle.wait_ns(began_ns) > 0 {
                skipped += slab.frames();
                continue;
            }
            let began_cpu_ns = thread_cpu_ns();
            let cut = self.observe_slab(slab, began_ns, began_cpu_ns);
            if cut > 0 {
                // The rules are interrupted before the next slab, because they have not observed
                // the skipped samples.
                self.engines.iter_mut().for_each(|watched| watched.rules.engine_mut().interrupt());
            }
            skipped += cut;
            // The CPU time is charged instead of the elapsed time, because this thread may have to
            // wait for a CPU on a busy host.
            self.throttle.charge(began_ns, thread_cpu_ns().saturating_sub(began_cpu_ns));
        }
        if skipped > 0 {
            self.engines.iter_mut().for_each(|watched| watched.rules.engine_mut().interrupt());
            self.metrics.recorder.trigger_skipped.add(skipped as u64);
            if !self.has_warned {
                self.has_warned = true;
                tracing::warn!(
                    samples = skipped,
                    "rules take more than 5 % of a core; they skip samples and begin anew: lower their number, their windows, or the elements they follow"
                );
            }
        }
        self.count();
    }

    /// Observes the samples of a slab. Returns the number of skipped samples.
    fn observe_slab(&mut self, slab: &Slab, began_ns: u64, began_cpu_ns: u64) -> usize {
        let (bytes, headers, frames) = (slab.bytes(), slab.headers(), slab.frames());
        let Some(header_bytes) = headers.len().checked_div(frames).filter(|width| *width > 0) else {
            return 0;
        };
        let mut at = 0;
        for (number, header) in headers.chunks_exact(header_bytes).enumerate() {
            let is_checked = number % FRAMES_PER_CHECK == FRAMES_PER_CHECK - 1;
            if is_checked
                && monotonic_ns() - began_ns > SLAB_NS_MAX
                && thread_cpu_ns().saturating_sub(began_cpu_ns) > SLAB_NS_MAX
            {
                return frames - number;
            }
            let length = header.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
            let start = at + header_bytes;
            at = start + length;
            let Some((sample, payload)) = bytes.get(start..at).and_then(envelope::split) else { continue };
            let source = sample.source();
            for observer in self.observers.get(usize::from(source)).into_iter().flatten() {
                if let Some(watched) = self.engines.get_mut(*observer) {
                    watched.last_ns = began_ns;
                    watched.step(&mut self.events, |rules, events| {
                        rules.observe(source, (sample.mono_ns(), sample.flags()), payload, events);
                    });
                }
            }
        }
        0
    }

    /// Passes a mark that a person wrote to all rules.
    pub(super) fn observe_mark(&mut self, mono_ns: u64, text: &str) {
        for watched in &mut self.engines {
            watched.step(&mut self.events, |rules, events| {
                rules.engine_mut().observe_mark(mono_ns, text, events);
            });
        }
    }

    /// Advances the time to `mono_ns`. All earlier samples must have been observed.
    pub(super) fn advance(&mut self, mono_ns: u64) {
        for watched in self.engines.iter_mut().filter(|watched| !watched.rules.engine().is_empty()) {
            watched.step(&mut self.events, |rules, events| rules.engine_mut().advance(mono_ns, events));
        }
    }

    /// Writes a mark and a log line for each firing.
    pub(super) fn report(&mut self, slot: &mut SegmentSlot) {
        if self.events.is_empty() {
            return;
        }
        self.count();
        let now = monotonic_ns();
        for event in self.events.drain(..).filter(|event| event.change != TriggerChange::Ended) {
            let mut text = event.to_string();
            let end = (0..=MARK_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            let change = if event.change == TriggerChange::Fired { "fired" } else { "fired again" };
            tracing::info!(rule = &*event.rule, "rule {change}: {text}");
            let mono_ns = event.last_fired_mono_ns;
            let wall_ns = slot.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(mono_ns);
            let marker = Marker { mono_ns, wall_ns, origin: MarkerOrigin::Trigger, text };
            slot.append_control(now, |writer| writer.append_marker(&marker));
            if let Some(on_firing) = &mut self.on_firing {
                on_firing.call(&event, &marker);
            }
        }
    }

    fn count(&mut self) {
        self.engines.iter_mut().for_each(|watched| watched.count(&self.metrics));
    }
}

impl WatchedEngine {
    fn new(source: Option<u16>, rules: ScopedEngine, metrics: &Metrics) -> Self {
        let counted = counted(rules.engine(), metrics);
        Self { source, rules, last_ns: monotonic_ns(), counted }
    }

    /// Calls `step`, which lets the engine add events. The engine makes the id of an episode unique
    /// only within the engine. This function makes the id unique among all engines, because the id
    /// identifies snapshots.
    fn step(
        &mut self,
        events: &mut Vec<TriggerEvent>,
        step: impl FnOnce(&mut ScopedEngine, &mut Vec<TriggerEvent>),
    ) {
        let before = events.len();
        step(&mut self.rules, events);
        if let Some(source) = self.source {
            for event in events.iter_mut().skip(before) {
                event.episode |= (u64::from(source) + 1) << EPISODE_BITS;
            }
        }
    }

    /// Adds the new counts to the metrics.
    fn count(&mut self, metrics: &Metrics) {
        for ((name, now), (before, place)) in self.rules.engine().counts().zip(&mut self.counted) {
            let before = std::mem::replace(before, now);
            if before.untracked == 0 && now.untracked > 0 {
                tracing::warn!(
                    rule = &**name,
                    "rules track at most 4,096 elements of a list, fewer with long windows: this rule does not know the \
                     values of the others; compare without transforms, or shorten the windows"
                );
            }
            let Some(metrics) = place.and_then(|place| metrics.rules.get(place)) else { continue };
            metrics.fired.add(now.fired - before.fired);
            metrics.extended.add(now.extended - before.extended);
            metrics.suppressed.add(now.suppressed() - before.suppressed());
            metrics.evaluated.add(now.evaluated - before.evaluated);
            metrics.unknown.add(now.unknown - before.unknown);
            metrics.untracked.add(now.untracked - before.untracked);
        }
    }
}

/// Returns the current counts of an engine's rules, and the indexes of their counters. Adds
/// counters for new rules. The index is `None` for a rule beyond the maximum number of rules of a
/// run.
fn counted(engine: &TriggerEngine, metrics: &Metrics) -> Vec<(TriggerCounts, Option<usize>)> {
    let place = |name: &str| {
        let found = metrics.rules.iter().position(|rule| rule.name == name);
        found.or_else(|| {
            let rule = RuleMetrics { name: name.to_owned(), ..RuleMetrics::default() };
            metrics.rules.push(rule).is_ok().then(|| metrics.rules.len() - 1)
        })
    };
    engine.counts().map(|(name, counts)| (counts, place(name))).collect()
}
