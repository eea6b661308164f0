//! Evaluates rules sample by sample. For each sample, the engine reads the fields, evaluates the
//! conditions, and steps the state machines.

use std::collections::BTreeSet;
use std::sync::Arc;

use flatcap_query::PayloadReader;
use flatcap_query::language::{SampleCondition, Truth};

use crate::compiler::{RuleCompiler, UNNAMED_LISTS};
use crate::counts::TriggerCounts;
use crate::error::{RuleError, RuleProblem};
use crate::event::{ComparedQuantity, TriggerChange, TriggerEvent};
use crate::exits::ExitWatch;
use crate::limits;
use crate::machine::{Episode, StepResult, Suppression, TriggerMachine, TriggerTimes};
use crate::program::{Inputs, Program, SourceState};
use crate::rule_source::RuleSource;
use crate::slot::{FieldSlot, SlotPlan, SlotSparse};

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerRule {
    /// The rule's name.
    pub name: Arc<str>,
    /// The condition that makes the rule fire.
    pub when: SampleCondition,
    /// The condition that rearms the rule after a firing. If the value is `None`, the rule rearms
    /// when `when` no longer holds.
    pub clear: Option<SampleCondition>,
    /// The rule's times and limits.
    pub times: TriggerTimes,
}

/// Rules that are compiled for a set of sources, and the state of these rules. The default engine
/// has no rules.
#[derive(Debug, Default)]
pub struct TriggerEngine {
    sources: Vec<ObservedSource>,
    states: Vec<SourceState>,
    pub(crate) slots: Vec<FieldSlot>,
    watches: Vec<ExitWatch>,
    rules: Vec<RuleState>,
    start_ns: Option<u64>,
    now_ns: u64,
}

/// The fields and rules of a source.
#[derive(Debug)]
struct ObservedSource {
    /// The reader of the source's fields. `None` if no rule reads a field of the source.
    reader: Option<PayloadReader>,
    /// The slots that use each field, and the role of the field in each slot.
    field_slots: Vec<Vec<(usize, SlotField)>>,
    /// The positions of all slots of the source.
    slots: Vec<usize>,
    watches: Vec<usize>,
    rules: Vec<usize>,
    has_lists: bool,
}

/// The role of a field in a slot.
#[derive(Debug, Clone, Copy)]
enum SlotField {
    Value,
    /// The value at which the counter wraps to 0.
    Range,
    /// The number of elements that a sample leaves out.
    LeftOut,
}

impl SlotField {
    /// Returns the fields of a slot, each with its role.
    fn of(slot: &SlotPlan) -> [(Option<usize>, Self); 3] {
        let left_out = if let SlotSparse::Unless0(field) = slot.sparse { Some(field) } else { None };
        [(Some(slot.field), Self::Value), (slot.range, Self::Range), (left_out, Self::LeftOut)]
    }
}

#[derive(Debug)]
struct RuleState {
    rule: TriggerRule,
    when: Program,
    clear: Option<Program>,
    machine: TriggerMachine,
    /// The slots that the conditions compare. Each slot is listed only once.
    slots: Vec<usize>,
    /// The counts of the rule, except for the counts that are kept in the slots.
    counts: TriggerCounts,
    /// The rule's current time. This time never decreases, even if the clocks of sources differ.
    now_ns: u64,
    /// The values at the latest firing.
    values: Vec<ComparedQuantity>,
}

impl TriggerEngine {
    /// Compiles rules with the schemas of the given sources.
    ///
    /// # Errors
    /// Returns a problem for every condition that does not match the sources.
    pub fn new(rules: &[TriggerRule], sources: &[RuleSource<'_>]) -> Result<Self, Vec<RuleProblem>> {
        if rules.len() > limits::RULES_MAX {
            let error = RuleError::TooManyRules { count: rules.len() };
            return Err(vec![RuleProblem { rule: "all".to_owned(), key: "when", error }]);
        }
        let mut compiler = RuleCompiler::new(sources);
        let (mut fitting, mut problems) = (Vec::new(), Vec::new());
        for rule in rules {
            let when = compiler.compile(&rule.when);
            let clear = rule.clear.as_ref().map(|clear| compiler.compile(clear)).transpose();
            let mut problem =
                |key, error| problems.push(RuleProblem { rule: rule.name.to_string(), key, error });
            match (when, clear) {
                (Ok(when), Ok(clear)) => fitting.push((rule.clone(), when, clear)),
                (when, clear) => {
                    when.err().into_iter().for_each(|error| problem("when", error));
                    clear.err().into_iter().for_each(|error| problem("clear", error));
                }
            }
        }
        // Problems of all rules are returned together, so that one check of the settings shows all
        // of them.
        if !problems.is_empty() {
            return Err(problems);
        }
        Self::of(compiler, fitting, sources)
            .map_err(|error| vec![RuleProblem { rule: "all".to_owned(), key: "when", error }])
    }

    fn of(
        compiler: RuleCompiler<'_>,
        fitting: Vec<(TriggerRule, Program, Option<Program>)>,
        sources: &[RuleSource<'_>],
    ) -> Result<Self, RuleError> {
        let RuleCompiler { fields, slots, watches, .. } = compiler;
        let mut observed = Vec::new();
        for (source, fields) in sources.iter().zip(&fields) {
            let reader = match source.schema.filter(|_| !fields.is_empty()) {
                Some(schema) => Some(PayloadReader::new(source.name, schema, fields, &UNNAMED_LISTS)?),
                None => None,
            };
            observed.push(ObservedSource {
                reader,
                field_slots: vec![Vec::new(); fields.len()],
                slots: Vec::new(),
                watches: Vec::new(),
                rules: Vec::new(),
                has_lists: false,
            });
        }
        for (number, slot) in slots.iter().enumerate() {
            let Some(source) = observed.get_mut(slot.source) else { continue };
            source.slots.push(number);
            source.has_lists |= slot.is_list;
            for (field, what) in SlotField::of(slot) {
                if let Some(own) = field.and_then(|field| source.field_slots.get_mut(field)) {
                    own.push((number, what));
                }
            }
        }
        for (number, watch) in watches.iter().enumerate() {
            if let Some(source) = observed.get_mut(watch.source) {
                source.watches.push(number);
            }
        }
        let rules = fitting.into_iter().enumerate().map(|(number, (rule, when, clear))| {
            for source in when.reads.sources.iter().chain(clear.iter().flat_map(|clear| &clear.reads.sources))
            {
                if let Some(source) = observed.get_mut(*source).filter(|own| !own.rules.contains(&number)) {
                    source.rules.push(number);
                }
            }
            let machine = TriggerMachine::new(rule.times);
            let all = clear.iter().chain([&when]).flat_map(|program| program.reads.slots.iter().copied());
            let slots = all.collect::<BTreeSet<usize>>().into_iter().collect();
            RuleState {
                rule,
                when,
                clear,
                machine,
                slots,
                counts: TriggerCounts::default(),
                now_ns: 0,
                values: Vec::new(),
            }
        });
        let rules = rules.collect();
        let states = sources.iter().map(|source| SourceState {
            period_ns: source.period_ns,
            pause_ns: source.period_ns.saturating_mul(limits::PAUSE_PERIODS_MAX).max(limits::PAUSE_NS_MIN),
            last_ns: None,
            is_readable: false,
            lateness_s: f64::NAN,
        });
        Ok(Self {
            states: states.collect(),
            sources: observed,
            slots: slots.into_iter().map(FieldSlot::new).collect(),
            watches,
            rules,
            start_ns: None,
            now_ns: 0,
        })
    }

    /// Returns whether any rule uses samples of a source. `source` is the position of the source
    /// among all sources.
    #[inline]
    pub(crate) fn observes(&self, source: usize) -> bool {
        self.sources.get(source).is_some_and(|source| !source.rules.is_empty())
    }

    /// Returns whether there are no rules to evaluate.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Observes a sample. `source` is the position of the sample's source. `mono_ns` is the time at
    /// which the sample begins, and `flags` are the flags of its header. The caller must pass the
    /// samples of one source in the order of time.
    #[inline]
    pub fn observe(
        &mut self,
        source: usize,
        (mono_ns, flags): (u64, u16),
        payload: &[u8],
        events: &mut Vec<TriggerEvent>,
    ) {
        let Self { sources, states, slots, watches, .. } = self;
        let (Some(own), Some(state)) = (sources.get_mut(source), states.get_mut(source)) else { return };
        let pause_ns = state.pause_ns;
        // A time before the last sample is also treated as a pause, because differences to that
        // sample would be negative.
        let has_paused =
            state.last_ns.is_some_and(|last_ns| !(last_ns..=last_ns + pause_ns).contains(&mono_ns));
        state.arrive(mono_ns);
        if own.rules.is_empty() {
            return;
        }
        if has_paused {
            own.reset(slots, watches);
            for number in &own.rules {
                if let Some(rule) = self.rules.get_mut(*number) {
                    rule.machine.interrupt();
                }
            }
        }
        for slot in &own.slots {
            if let Some(slot) = slots.get_mut(*slot) {
                slot.begin();
            }
        }
        if let Some(reader) = &mut own.reader {
            let field_slots = &own.field_slots;
            let read = reader.read(payload, |field, element, value| {
                for (slot, what) in field_slots.get(field).map_or(&[][..], Vec::as_slice) {
                    let Some(slot) = slots.get_mut(*slot) else { continue };
                    match what {
                        SlotField::Value => slot.take(mono_ns, pause_ns, element, value),
                        SlotField::Range => slot.take_range(value),
                        SlotField::LeftOut => slot.take_left_out(value),
                    }
                }
            });
            for slot in &own.slots {
                if let Some(slot) = slots.get_mut(*slot) {
                    slot.end(flags);
                }
            }
            let is_full = own.has_lists && reader.elements() > limits::NUMBERED_ELEMENTS_MAX;
            state.is_readable = read.is_ok() && !is_full;
            if !state.is_readable {
                // After `forget`, new elements get the numbers of earlier elements. So the series
                // of all slots must restart as well. Otherwise, a new element would continue the
                // series of an earlier element.
                if is_full {
                    reader.forget();
                }
                own.reset(slots, watches);
            }
        }
        for watch in &own.watches {
            if let Some(watch) = watches.get_mut(*watch) {
                watch.observe(slots);
            }
        }
        self.start_ns.get_or_insert(mono_ns);
        self.now_ns = self.now_ns.max(mono_ns);
        self.evaluate_rules(source, mono_ns, events);
        // The end of a process is an event of only this sample.
        let mut has_ended = false;
        for watch in self.sources.get(source).map_or(&[][..], |own| own.watches.as_slice()) {
            if let Some(watch) = self.watches.get_mut(*watch).filter(|watch| watch.truth == Truth::True) {
                watch.truth = Truth::False;
                has_ended = true;
            }
        }
        if has_ended {
            // The condition no longer holds after the event, so an end of a process in the next
            // sample makes the rule fire again.
            self.evaluate_rules(source, mono_ns, events);
        }
    }

    /// Evaluates the rules that use a source.
    fn evaluate_rules(&mut self, source: usize, mono_ns: u64, events: &mut Vec<TriggerEvent>) {
        let Self { sources, states, slots, watches, rules, start_ns, .. } = self;
        let Some(own) = sources.get(source) else { return };
        for number in &own.rules {
            let Some(rule) = rules.get_mut(*number) else { continue };
            let inputs = Inputs {
                now_ns: rule.now_ns.max(mono_ns),
                start_ns: start_ns.unwrap_or(mono_ns),
                slots,
                sources: states,
                watches,
                mark: None,
            };
            rule.step(&inputs, sources, events);
        }
    }

    /// Observes a mark that a person or another program has set.
    pub fn observe_mark(&mut self, mono_ns: u64, text: &str, events: &mut Vec<TriggerEvent>) {
        let Self { sources, states, slots, watches, rules, start_ns, .. } = self;
        let start_ns = *start_ns.get_or_insert(mono_ns);
        for rule in rules.iter_mut().filter(|rule| rule.reads_marks()) {
            let now_ns = rule.now_ns.max(mono_ns);
            let mut inputs = Inputs { now_ns, start_ns, slots, sources: states, watches, mark: Some(text) };
            rule.step(&inputs, sources, events);
            // A mark is a point in time, so the condition no longer holds after the mark.
            inputs.mark = None;
            rule.step(&inputs, sources, events);
        }
    }

    /// Advances the time to `mono_ns`. The caller must already have passed all samples before this
    /// time. Ends episodes, and detects absent sources.
    pub fn advance(&mut self, mono_ns: u64, events: &mut Vec<TriggerEvent>) {
        let Self { sources, states, slots, watches, rules, start_ns, now_ns } = self;
        let start_ns = *start_ns.get_or_insert(mono_ns);
        *now_ns = mono_ns.max(*now_ns);
        for rule in rules.iter_mut() {
            let mut inputs = Inputs { now_ns: 0, start_ns, slots, sources: states, watches, mark: None };
            // Each absence is evaluated at the time at which it begins, so that a firing does not
            // depend on how often the caller advances the time.
            for due_ns in rule.absences_due(states, start_ns, mono_ns) {
                inputs.now_ns = due_ns.max(rule.now_ns);
                rule.step(&inputs, sources, events);
            }
            // An absent source has no samples, so the time `for` can elapse only here.
            if rule.has_absences() && mono_ns > rule.now_ns {
                inputs.now_ns = mono_ns;
                rule.step(&inputs, sources, events);
            }
            let result = rule.machine.advance(mono_ns.max(rule.now_ns));
            rule.report(result, events);
        }
    }

    /// Records that samples were not observed. Windows and rates restart, so that no rule fires
    /// because of unobserved samples.
    pub fn interrupt(&mut self) {
        // From now on, absence is measured from the next sample or the next call with a time.
        let Self { sources, states, slots, watches, rules, start_ns, .. } = self;
        *start_ns = None;
        for rule in rules.iter_mut() {
            rule.machine.interrupt();
        }
        for (source, state) in sources.iter().zip(states) {
            source.reset(slots, watches);
            state.is_readable = false;
            state.lateness_s = f64::NAN;
            state.last_ns = None;
        }
    }

    /// Takes over state from an earlier engine. A rule with the same name keeps its hold-off and
    /// its list of firings of the last 24 hours. If a rule has the same condition as before and has
    /// already fired, it must be rearmed before it can fire again.
    pub fn adopt(&mut self, earlier: &Self) {
        for rule in &mut self.rules {
            let same = |before: &&RuleState| before.rule.name == rule.rule.name;
            if let Some(before) = earlier.rules.iter().find(same) {
                // The conditions are compared as strings, because positions of sources and slots
                // differ between two engines.
                let conditions = |rule: &TriggerRule| {
                    (rule.when.to_string(), rule.clear.as_ref().map(ToString::to_string))
                };
                let is_same = conditions(&before.rule) == conditions(&rule.rule);
                rule.machine.adopt(&before.machine, is_same);
                rule.counts = earlier.counts_of(before);
                rule.values.clone_from(&before.values);
                rule.now_ns = before.now_ns;
            }
        }
    }

    /// Returns the counts of each rule, in the order of the rules.
    pub fn counts(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, TriggerCounts)> {
        self.rules.iter().map(|rule| (&rule.rule.name, self.counts_of(rule)))
    }

    fn counts_of(&self, rule: &RuleState) -> TriggerCounts {
        let slots = rule.slots.iter().filter_map(|slot| self.slots.get(*slot));
        let untracked = slots.fold(rule.counts.untracked, |sum, slot| sum + slot.untracked);
        TriggerCounts { untracked, ..rule.counts }
    }

    /// Returns the maximum memory that the windows of all rules take, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.slots.iter().map(|slot| slot.plan.bytes_max()).sum()
    }
}

impl SourceState {
    /// Records the time of the source's latest sample.
    #[inline]
    #[allow(clippy::cast_precision_loss, reason = "a lateness: 53 bits are plenty")]
    fn arrive(&mut self, mono_ns: u64) {
        if let Some(last_ns) = self.last_ns.replace(mono_ns) {
            let late_ns = mono_ns.saturating_sub(last_ns).saturating_sub(self.period_ns);
            self.lateness_s = late_ns as f64 / 1e9;
        }
    }
}

impl ObservedSource {
    /// Discards the values of the source's slots and watches.
    fn reset(&self, slots: &mut [FieldSlot], watches: &mut [ExitWatch]) {
        for slot in &self.slots {
            if let Some(slot) = slots.get_mut(*slot) {
                slot.reset();
            }
        }
        for watch in &self.watches {
            if let Some(watch) = watches.get_mut(*watch) {
                watch.reset();
            }
        }
    }
}

impl RuleState {
    fn programs(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(&self.when).chain(&self.clear)
    }

    fn reads_marks(&self) -> bool {
        self.programs().any(|program| program.reads.marks)
    }

    fn has_absences(&self) -> bool {
        self.programs().any(|program| !program.reads.absences.is_empty())
    }

    /// Returns the times up to `until_ns` at which a source becomes absent, in ascending order.
    fn absences_due(&self, states: &[SourceState], start_ns: u64, until_ns: u64) -> Vec<u64> {
        let all = self.programs().flat_map(|program| &program.reads.absences);
        let due = all.filter_map(|(source, limit_ns)| {
            let last_ns = states.get(*source)?.last_ns.unwrap_or(start_ns);
            Some(last_ns.saturating_add(*limit_ns))
        });
        // Earlier calls have evaluated the absences before the rule's own time.
        let mut due: Vec<u64> = due.filter(|due| (self.now_ns..=until_ns).contains(due)).collect();
        due.sort_unstable();
        due
    }

    /// Evaluates the conditions, and steps the state machine.
    #[inline]
    fn step(&mut self, inputs: &Inputs<'_>, sources: &[ObservedSource], events: &mut Vec<TriggerEvent>) {
        self.now_ns = inputs.now_ns;
        let when = self.when.evaluate(inputs);
        let clear = self.clear.as_ref().map_or(!when, |clear| clear.evaluate(inputs));
        self.counts.evaluated += 1;
        self.counts.unknown += u64::from(when == Truth::Unknown);
        let Some(result) = self.machine.observe(inputs.now_ns, when, clear) else { return };
        if result.fired.is_some() {
            // An episode that has ended is reported before the values of the comparisons change.
            self.report(StepResult { fired: None, suppressed: None, ..result }, events);
            let label = |source: usize, element: u32| {
                let reader = sources.get(source).and_then(|source| source.reader.as_ref());
                reader
                    .filter(|_| element != flatcap_query::NO_ELEMENT)
                    .map_or("", |reader| reader.label(element))
                    .into()
            };
            self.values = self.when.describe(inputs, &label);
            self.report(StepResult { ended: None, ..result }, events);
            return;
        }
        self.report(result, events);
    }

    /// Counts the result of a step, and reports it as events.
    fn report(&mut self, result: StepResult, events: &mut Vec<TriggerEvent>) {
        let StepResult { ended, fired, suppressed } = result;
        if let Some(episode) = ended {
            events.push(self.event(TriggerChange::Ended, episode));
        }
        if let Some((episode, extends)) = fired {
            let change = if extends { TriggerChange::Extended } else { TriggerChange::Fired };
            let counter = if extends { &mut self.counts.extended } else { &mut self.counts.fired };
            *counter += 1;
            events.push(self.event(change, episode));
        }
        match suppressed {
            Some(Suppression::HoldOff) => self.counts.suppressed_hold_off += 1,
            Some(Suppression::DailyLimit) => self.counts.suppressed_per_day += 1,
            Some(Suppression::EpisodeLength) => self.counts.suppressed_length += 1,
            None => {}
        }
    }

    fn event(&self, change: TriggerChange, episode: Episode) -> TriggerEvent {
        TriggerEvent {
            rule: Arc::clone(&self.rule.name),
            change,
            episode: episode.number,
            condition_mono_ns: episode.condition_ns,
            fired_mono_ns: episode.fired_ns,
            last_fired_mono_ns: episode.last_fired_ns,
            from_mono_ns: episode.fired_ns.saturating_sub(self.machine.times().before_ns),
            until_mono_ns: episode.until_ns,
            values: self.values.clone(),
        }
    }
}
