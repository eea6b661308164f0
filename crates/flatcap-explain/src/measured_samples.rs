//! Measures a series in a window by its samples, which are the numbers that `dump` prints.
//!
//! Ranking uses weighted means over time in bounded memory, so its values differ from printed
//! samples. For the few series that are reported, this module reads the samples of the element
//! again, as `dump` does.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};

use flatcap_format::replay::ReplayFilter;
use flatcap_format::schema::{FieldValue, Growth};
use flatcap_query::{
    ColumnBatch, ColumnGrowth, CounterRates, ElementIdentity, ElementName, ElementNames, FieldPath, Query,
    QueryError, QueryItem, Recording, TableInfo, quoted_value,
};

use super::element_row::{Number, number, seconds};
use super::element_slot::{BUSY, BUSY_STATES};
use super::fresh_values::{ABSENT, UNCHANGED};
use super::measure::{Measure, ValueClass};
use super::measurement::{Measurement, ShownValues, dump_command};
use super::reading::RecordingChoice;
use super::window_samples::{ElementSample, chosen, chosen_levels};

/// Minimum time that is read before a window.
// One sample per second contains all elements, and the kernel counts a wait when it ends.
const BEFORE_NS: u64 = 4_000_000_000;
/// Minimum number of periods of a source that are read before and after a window.
const PERIODS: u64 = 3;
/// Minimum length of the recording that is read after a window.
const AFTER_NS: u64 = 1_200_000_000;
/// Maximum number of samples of a series in memory.
const SAMPLES_MAX: usize = 1 << 16;
/// A series whose value is to be measured.
#[derive(Debug, Clone)]
pub(super) struct WantedSeries {
    pub(super) source: String,
    /// The id of the source, if other sources of the run have its name.
    pub(super) source_id: Option<u16>,
    pub(super) period_ns: u64,
    /// The path of the field that is read, below the source.
    pub(super) field: String,
    /// The full path of the field that is read. It matches no field of another source.
    pub(super) path: String,
    pub(super) identity: Vec<ElementIdentity>,
    pub(super) label: Option<String>,
    pub(super) state: Option<Box<str>>,
    pub(super) measure: Measure,
    /// The window, as wall time.
    pub(super) window: Range<i64>,
    /// If the element is new, wall time of the last sample before the first sample with the
    /// element.
    pub(super) born_wall_ns: Option<i64>,
    /// Time ranges on the monotonic clock in which the kernel added bytes of other processes to the
    /// element.
    pub(super) inherited: Vec<Range<u64>>,
    /// The selected recording, for the command that prints the samples.
    pub(super) choice: RecordingChoice,
}

/// A value in the unit of its class, and the samples from which it was measured.
pub(super) type Measured = (f64, Measurement);

/// Returns the path of the field that is read to measure a series of `field`. This is `parent` if
/// the elements of a list are counted by their parent.
pub(super) fn read_field(measure: Measure, field: String) -> String {
    if measure.class == ValueClass::Offspring { format!("{field}.parent") } else { field }
}

/// Reads the values of some series. The value is `None` for a series without samples in its window.
pub(super) fn measure(
    choice: &RecordingChoice,
    recording: &Recording,
    wanted: &[WantedSeries],
) -> Result<Vec<Option<Measured>>, QueryError> {
    let mut found: Vec<Option<Measured>> = vec![None; wanted.len()];
    for numbers in joined_windows(wanted) {
        let own: Vec<&WantedSeries> = numbers.iter().filter_map(|number| wanted.get(*number)).collect();
        let samples = SeriesSamples::read(choice, recording, &own)?;
        for ((number, series), samples) in numbers.iter().zip(own).zip(samples) {
            if let Some(place) = found.get_mut(*number) {
                *place = samples.measured(series);
            }
        }
    }
    Ok(found)
}

/// Groups the series by the query that reads them. Series whose windows overlap share a query, so
/// that no sample is read twice.
fn joined_windows(wanted: &[WantedSeries]) -> Vec<Vec<usize>> {
    let mut by_begin: Vec<(Range<i64>, usize)> =
        wanted.iter().map(WantedSeries::read_span).zip(0..).collect();
    by_begin.sort_by_key(|(span, _)| span.start);
    let mut queries: Vec<(i64, Vec<usize>)> = Vec::new();
    for (span, number) in by_begin {
        match queries.last_mut().filter(|(end, _)| span.start < *end) {
            Some((end, numbers)) => {
                *end = span.end.max(*end);
                numbers.push(number);
            }
            None => queries.push((span.end, vec![number])),
        }
    }
    queries.into_iter().map(|(_, numbers)| numbers).collect()
}

#[derive(Debug, Clone, Default)]
struct SampledValue {
    number: Option<Number>,
    text: Option<Box<str>>,
    /// The growth of a counter since the previous sample with the element, computed as in all
    /// outputs.
    growth: Growth,
}

/// The value of a counter in a sample.
#[derive(Debug, Clone, Copy)]
struct GrowthSample {
    number: Number,
    growth: Growth,
}

/// The samples of a series around a window.
#[derive(Debug, Default)]
struct SeriesSamples {
    /// All samples of the table, with or without the element.
    all: Vec<ElementSample<()>>,
    /// The samples that have the element.
    own: Vec<ElementSample<SampledValue>>,
}

impl WantedSeries {
    /// Returns the range of wall times that is read, namely the window and a margin.
    fn read_span(&self) -> Range<i64> {
        let margin_ns = |least: u64| self.period_ns.saturating_mul(PERIODS).max(least);
        let begin = self.window.start.saturating_sub_unsigned(margin_ns(BEFORE_NS));
        begin..self.window.end.saturating_add_unsigned(margin_ns(AFTER_NS))
    }

    fn is_of(&self, names: &ElementNames, name: Option<ElementName>) -> bool {
        let Some(name) = name else { return self.label.is_none() };
        let keys = |identity: &[ElementIdentity]| -> Vec<ElementIdentity> {
            identity.iter().filter(|part| part.is_key).cloned().collect()
        };
        let own = keys(&self.identity);
        if own.is_empty() {
            self.label.as_deref() == Some(names.label(name))
        } else {
            own == keys(names.identity(name))
        }
    }

    /// Returns the process id of the element.
    fn pid(&self) -> Option<u64> {
        self.identity.iter().find(|part| &*part.field == "pid")?.value.parse().ok()
    }

    /// Returns the path of the field for `dump`, with the selection of the element.
    fn dump_field(&self) -> String {
        let path = self.path.clone();
        let picks = self.label.is_some() && self.measure.class != ValueClass::Offspring;
        let Some((list, rest)) = path.rsplit_once("[*]").filter(|_| picks) else { return path };
        let keys = self.identity.iter().filter(|part| part.is_key);
        let tests: Vec<String> =
            keys.map(|part| format!("{}={}", part.field, quoted_value(&part.value))).collect();
        let pick = if tests.is_empty() {
            quoted_value(self.label.as_deref().unwrap_or_default())
        } else {
            tests.join(",")
        };
        format!("{list}[{pick}]{rest}")
    }
}

impl SeriesSamples {
    /// Reads the samples around the windows of some series.
    fn read(
        choice: &RecordingChoice,
        recording: &Recording,
        wanted: &[&WantedSeries],
    ) -> Result<Vec<Self>, QueryError> {
        let mut samples: Vec<Self> = wanted.iter().map(|_| Self::default()).collect();
        let filter = ReplayFilter {
            sources: wanted.iter().map(|series| series.source.clone()).collect(),
            since_ns: wanted.iter().map(|series| series.read_span().start).min(),
            until_ns: wanted.iter().map(|series| series.read_span().end).max(),
            host: choice.host.clone(),
            ..ReplayFilter::default()
        };
        let paths: BTreeSet<&str> = wanted.iter().map(|series| series.path.as_str()).collect();
        let fields: Vec<FieldPath> = paths.iter().filter_map(|path| path.parse().ok()).collect();
        if fields.is_empty() {
            return Ok(samples);
        }
        let mut results = recording.query(&Query { fields, filter, ..Query::default() })?;
        let (mut run, mut rates) = (0, CounterRates::default());
        while let Some(item) = results.next()? {
            match item {
                QueryItem::Run(_) => {
                    run += 1;
                    rates.clear();
                }
                QueryItem::Batch(batch) => {
                    let Some(table) = results.tables().get(batch.table) else { continue };
                    let names = results.elements();
                    let growths = rates.growths(&batch, table, names);
                    for (series, samples) in wanted.iter().zip(&mut samples) {
                        samples.add(series, run, (&batch, &growths), (table, names));
                    }
                }
                _ => {}
            }
        }
        Ok(samples)
    }

    fn add(
        &mut self,
        wanted: &WantedSeries,
        run: usize,
        (batch, growths): (&ColumnBatch, &[ColumnGrowth]),
        (table, names): (&TableInfo, &ElementNames),
    ) {
        if *table.source != *wanted.source || table.instance != wanted.source_id {
            return;
        }
        let Some(column) = table.columns.iter().position(|column| table.path(column) == wanted.field) else {
            return;
        };
        let Some(values) = batch.columns.get(column) else { return };
        let growths = growths.iter().find(|own| own.column == column).map(|own| own.growths.as_slice());
        // The series gets the same samples, even if the query reads a longer time for other series.
        let span = wanted.read_span();
        let stamp = |at: usize| {
            let wall_ns = *batch.times.wall_ns.get(at)?;
            Some((wall_ns, *batch.times.mono_ns.get(at)?)).filter(|_| span.contains(&wall_ns))
        };
        for (wall_ns, mono_ns) in (0..batch.times.len()).filter_map(stamp) {
            if self.all.len() >= SAMPLES_MAX {
                break;
            }
            self.all.push(ElementSample { run, wall_ns, mono_ns, value: () });
        }
        let counts_below = wanted.measure.class == ValueClass::Offspring;
        let mut known: HashMap<Option<u32>, bool> = HashMap::new();
        for row in 0..batch.rows() {
            let Some((wall_ns, mono_ns)) = stamp(batch.sample(row)) else { continue };
            let element = batch.element(row);
            let is_own = if counts_below {
                let parent = values.get(row);
                matches!(parent, FieldValue::Unsigned(parent) if Some(parent) == wanted.pid())
            } else {
                // The result is kept, because an element has many rows and comparing identities is
                // slow.
                *known.entry(element).or_insert_with(|| wanted.is_of(names, batch.name(row)))
            };
            if !is_own {
                continue;
            }
            if self.own.len() >= SAMPLES_MAX {
                break;
            }
            let text = match values.get(row) {
                FieldValue::Text(text) => Some(text.into()),
                _ => counts_below.then(|| element.map_or(0, u64::from).to_string().into()),
            };
            // The sample before the first one is outside of the time that is read, so `dump` could
            // not show this growth.
            let growth = growths.and_then(|growths| growths.get(row)).filter(|_| !self.own.is_empty());
            let growth = growth.copied().unwrap_or(Growth::UNKNOWN);
            let value = SampledValue { number: number(values, row), text, growth };
            self.own.push(ElementSample { run, wall_ns, mono_ns, value });
        }
    }

    /// Returns the value of a series in its window.
    fn measured(mut self, wanted: &WantedSeries) -> Option<Measured> {
        self.keep_run(wanted)?;
        match wanted.state.as_deref() {
            _ if wanted.measure.class == ValueClass::Offspring => self.offspring(wanted),
            Some(UNCHANGED) if wanted.measure == Measure::UNCHANGED => self.unchanged(wanted),
            Some(ABSENT) if wanted.measure == Measure::ABSENT => {
                self.share(wanted, |value| Some(value.number.is_none()))
            }
            Some(state) => self.share(wanted, |value| Some(is_in_state(value.text.as_deref()?, state))),
            None if wanted.measure.is_counter => self.rate(wanted),
            None => self.mean(wanted),
        }
    }

    /// Keeps only the samples of the run that contains the window.
    fn keep_run(&mut self, wanted: &WantedSeries) -> Option<()> {
        let is_before_end = |sample: &&ElementSample<()>| sample.wall_ns < wanted.window.end;
        let run = self.all.iter().rev().find(is_before_end).or(self.all.first())?.run;
        self.all.retain(|sample| sample.run == run);
        self.own.retain(|sample| sample.run == run);
        Some(())
    }

    /// Returns the change per second of a counter. This is its growth between the samples of the
    /// window, divided by the time for which the growth is known.
    fn rate(&self, wanted: &WantedSeries) -> Option<Measured> {
        let samples: Vec<ElementSample<GrowthSample>> = self
            .own
            .iter()
            .filter_map(|sample| {
                let ElementSample { run, wall_ns, mono_ns, .. } = *sample;
                let value = GrowthSample { number: sample.value.number?, growth: sample.value.growth };
                Some(ElementSample { run, wall_ns, mono_ns, value })
            })
            .collect();
        let is_own = |one: &ElementSample<GrowthSample>, next: &ElementSample<GrowthSample>| {
            let is_inherited = |span: &Range<u64>| span.start < next.mono_ns && span.end > one.mono_ns;
            let has_others =
                wanted.measure.class.may_be_inherited() && wanted.inherited.iter().any(is_inherited);
            !has_others && next.value.growth.is_known()
        };
        let known = chosen(&samples, &wanted.window, is_own);
        let since_start = self.since_start(wanted, &samples, known.as_ref());
        // A counter that only fell in the window was corrected, so it grew before or after the
        // window.
        since_start.or_else(|| self.rate_between(wanted, &samples, &known?)).or_else(|| {
            let is_grown = |one: &ElementSample<GrowthSample>, next: &ElementSample<GrowthSample>| {
                is_own(one, next) && next.value.growth.amount >= 0.0
            };
            self.rate_between(wanted, &samples, &chosen(&samples, &wanted.window, is_grown)?)
        })
    }

    /// Returns the change per second from the sample before the chosen samples to the last chosen
    /// sample.
    fn rate_between(
        &self,
        wanted: &WantedSeries,
        samples: &[ElementSample<GrowthSample>],
        chosen: &RangeInclusive<usize>,
    ) -> Option<Measured> {
        let end = samples.get(*chosen.end())?;
        let mut at = chosen.start().checked_sub(1)?;
        let rate_since = |at: usize| {
            let own = samples.get(at + 1..=*chosen.end())?.iter().map(|sample| sample.value.growth);
            Some(own.fold(Growth::UNKNOWN, Growth::plus).rate()? * wanted.measure.factor)
        };
        let mut value = rate_since(at)?;
        // A wait is counted when it ends. If the wait began before the window, the growth belongs
        // to a longer time.
        while value > wanted.measure.limit
            && samples.get(at).is_some_and(|sample| sample.value.growth.is_known())
            && let Some(earlier) = at.checked_sub(1)
            && let Some(longer) = rate_since(earlier)
        {
            (at, value) = (earlier, longer);
        }
        let is_limited = value > wanted.measure.limit;
        let measurement = Measurement {
            is_limited,
            ..self.measurement(wanted, (samples.get(at)?.wall_ns, end.wall_ns), ShownValues::Rate)
        };
        Some((value.min(wanted.measure.limit), measurement))
    }

    /// Returns the change per second of a counter of an element that began in the window. The
    /// counter was 0 at the last sample before the first sample with the element.
    fn since_start(
        &self,
        wanted: &WantedSeries,
        samples: &[ElementSample<GrowthSample>],
        chosen: Option<&RangeInclusive<usize>>,
    ) -> Option<Measured> {
        let born_wall_ns = wanted.born_wall_ns?;
        let first = samples.first()?;
        let is_born_then = first.wall_ns > born_wall_ns && first.wall_ns > wanted.window.start;
        let before = self.all.iter().rev().find(|sample| sample.mono_ns < first.mono_ns)?;
        let is_first = chosen.is_none_or(|chosen| *chosen.start() <= 1);
        if !is_born_then || !is_first || before.wall_ns >= wanted.window.end {
            return None;
        }
        let end = samples.get(chosen.map_or(0, |chosen| *chosen.end()))?;
        let elapsed_ns = end.mono_ns.checked_sub(before.mono_ns).filter(|elapsed| *elapsed > 0)?;
        let value = end.value.number.float() * wanted.measure.factor / seconds(elapsed_ns);
        let is_limited = value > wanted.measure.limit;
        let times = (before.wall_ns, end.wall_ns);
        let measurement = Measurement {
            is_since_start: true,
            is_limited,
            ..self.measurement(wanted, times, ShownValues::Last)
        };
        Some((value.min(wanted.measure.limit), measurement))
    }

    /// Returns the mean of the samples of a level.
    fn mean(&self, wanted: &WantedSeries) -> Option<Measured> {
        let samples: Vec<&ElementSample<SampledValue>> =
            self.own.iter().filter(|sample| sample.value.number.is_some()).collect();
        let chosen = chosen_levels(&samples, &wanted.window)?;
        let own = samples.get(chosen.clone())?;
        let (sum, count) = own
            .iter()
            .filter_map(|sample| Some(sample.value.number?.float()))
            .fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        let times = (own.first()?.wall_ns, own.last()?.wall_ns);
        Some((sum / count * wanted.measure.factor, self.measurement(wanted, times, ShownValues::Mean)))
    }

    /// Returns the share of samples for which a condition holds.
    fn share(
        &self,
        wanted: &WantedSeries,
        holds: impl Fn(&SampledValue) -> Option<bool>,
    ) -> Option<Measured> {
        let samples: Vec<&ElementSample<SampledValue>> =
            self.own.iter().filter(|sample| holds(&sample.value).is_some()).collect();
        let chosen = chosen_levels(&samples, &wanted.window)?;
        let own = samples.get(chosen)?;
        let (held, count) = own
            .iter()
            .filter_map(|sample| holds(&sample.value))
            .fold((0.0, 0.0), |(held, count), holds| (held + f64::from(u8::from(holds)), count + 1.0));
        let times = (own.first()?.wall_ns, own.last()?.wall_ns);
        Some((held / count, self.measurement(wanted, times, ShownValues::Samples)))
    }

    /// Returns the number of consecutive samples that repeat a value, up to the last sample in the
    /// window.
    fn unchanged(&self, wanted: &WantedSeries) -> Option<Measured> {
        let mut samples = self.own.iter().rev().filter_map(|sample| {
            Some((sample.wall_ns, sample.value.number?.bits())).filter(|(at, _)| *at < wanted.window.end)
        });
        let (last_ns, bits) = samples.next()?;
        let mut first_ns = last_ns;
        let mut count = 0.0;
        for (at, _) in samples.take_while(|(_, other)| *other == bits) {
            (first_ns, count) = (at, count + 1.0);
        }
        Some((count, self.measurement(wanted, (first_ns, last_ns), ShownValues::Samples)))
    }

    /// Returns the number of processes that ended or began below an element, per second.
    fn offspring(&self, wanted: &WantedSeries) -> Option<Measured> {
        let chosen = chosen(&self.all, &wanted.window, |_, _| true)?;
        let begin = self.all.get(chosen.start().checked_sub(1)?)?;
        let end = self.all.get(*chosen.end())?;
        let within = |sample: &&ElementSample<SampledValue>| {
            sample.mono_ns > begin.mono_ns && sample.mono_ns <= end.mono_ns
        };
        // If ended elements stay in the list, an element counts only if no earlier sample contains
        // it.
        let before: BTreeSet<&str> = self
            .own
            .iter()
            .filter(|sample| sample.mono_ns <= begin.mono_ns)
            .filter_map(|sample| sample.value.text.as_deref())
            .collect();
        let own = self.own.iter().filter(within).filter_map(|sample| sample.value.text.as_deref());
        let new: BTreeSet<&str> = own.filter(|element| !before.contains(element)).collect();
        #[allow(clippy::cast_precision_loss, reason = "a count of processes")]
        let count = new.len() as f64;
        let value = count / seconds(end.mono_ns.saturating_sub(begin.mono_ns));
        Some((value, self.measurement(wanted, (begin.wall_ns, end.wall_ns), ShownValues::Samples)))
    }

    #[allow(clippy::unused_self, reason = "the samples are those of the measurement")]
    fn measurement(
        &self,
        wanted: &WantedSeries,
        (from_wall_ns, last_wall_ns): (i64, i64),
        shown: ShownValues,
    ) -> Measurement {
        let until_wall_ns = last_wall_ns.saturating_add(1);
        let has_common_unit = !matches!(
            wanted.measure.class,
            ValueClass::Count | ValueClass::CountRate | ValueClass::FailureRate
        );
        let span_ns = (from_wall_ns, until_wall_ns);
        let dump = dump_command(&wanted.choice, wanted.dump_field(), span_ns, shown, has_common_unit);
        Measurement { from_wall_ns, until_wall_ns, shown, is_since_start: false, is_limited: false, dump }
    }
}

/// Returns whether a string is the state of a series.
fn is_in_state(text: &str, state: &str) -> bool {
    match state.strip_prefix("not ") {
        Some(usual) => text != usual,
        None if state == BUSY => BUSY_STATES.contains(&text),
        None => text == state,
    }
}
