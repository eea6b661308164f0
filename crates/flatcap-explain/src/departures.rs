//! Anomaly detection. Finds departures in a whole recording. A departure is a time at which a
//! series differs from its usual range.
//!
//! Each series is a sequence of steps of 100 ms. A window of three steps is compared with the
//! blocks before the window. Memory is bounded, because a series keeps only its current block, and
//! four statistics for each earlier block.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use flatcap_query::ColumnBatch;

use super::baseline::{BLOCKS_MIN, Baseline, BlockStats, extremes};
use super::clock::RunClock;
use super::departure::{Departure, FORGETS_AFTER_NS, STEP_NS, WINDOW_STEPS, departure_at};
use super::ended_departures::EndedProcesses;
use super::measure::ValueClass;
use super::observation::{Observation, Observer, SeriesInfo};
use super::reading::ReadObserver;
use super::score::departure_score;
use super::series::SeriesSet;
use super::source_period::SourcePeriod;

const BLOCK_STEPS: usize = 20;
const BLOCK_NS: u64 = STEP_NS * BLOCK_STEPS as u64;
/// Maximum number of blocks of a baseline. Together they cover one minute.
const BLOCKS_MAX: usize = 30;
/// Number of steps that the first windows of a block share with the previous block.
const CARRIED_STEPS: usize = WINDOW_STEPS - 1;
/// Minimum score of a departure. A departure below this score is not kept.
// The limit is lower than the limit of an event, since departures of several sources add up.
const DEPARTURE_SCORE_MIN: f64 = 0.5;
/// Minimum number of blocks before a gradual change. The first third of the blocks is the baseline
/// of the change.
const GRADUAL_BLOCKS_MIN: usize = 3 * BLOCKS_MIN;
/// The weight of a gradual change, whose cause is less certain than the cause of a sudden change.
const GRADUAL_PART: f64 = 0.8;
/// The score of a gradual change must exceed its previous score by this factor. So a change to a
/// lasting level has the time at which the level was reached.
const GRADUAL_STEP: f64 = 1.05;
/// Time after which a gradual change of a series is another one, in nanoseconds.
const GRADUAL_NS: u64 = BLOCK_NS * BLOCKS_MAX as u64;
/// Maximum number of departures that are kept. Above this number, the weaker half is dropped.
const DEPARTURES_MAX: usize = 1 << 16;

/// Finds the departures of all series of a recording.
#[derive(Debug, Default)]
pub(super) struct DepartureFinder {
    tracks: Vec<Track>,
    cut: CutSpan,
    found: Vec<(u64, Departure)>,
    newcomers: Newcomers,
    /// The period of the source of each table, indexed by table.
    periods: Vec<SourcePeriod>,
    pub(super) departures: Vec<Departure>,
    ended: EndedProcesses,
    /// The strongest moment of the last gradual change, by table, column and element.
    gradual: HashMap<(usize, usize, Option<u32>), Departure>,
    /// Observations before this wall time only contribute to the baseline.
    since_ns: Option<i64>,
}

/// The current block of a series, and the blocks before it.
#[derive(Debug, Default)]
struct Track {
    /// Number of the block: monotonic time divided by the length of a block.
    block: Option<u64>,
    steps: [TimedMean; CARRIED_STEPS + BLOCK_STEPS],
    /// The value at which the series is at rest. It is 0, or the last value of the last block in
    /// which the series moved.
    rest: f64,
    /// Whether the value changed in the current block or in the previous one.
    moves: bool,
    moved: bool,
    last: f64,
    before: VecDeque<BlockStats>,
    /// The score of the current gradual change, or 0.
    gradual_score: f64,
    /// The block and the score of the last sudden departure.
    departed: Option<(u64, f64)>,
    /// Number of most recent blocks in which the series was at rest without interruption.
    resting_blocks: usize,
}

/// The time range of an observation, divided into parts at the ends of steps. If the next
/// observation has the same time range, the parts are reused.
#[derive(Debug, Default)]
struct CutSpan {
    from_ns: u64,
    to_ns: u64,
    parts: Vec<StepPart>,
    /// The step that contains the last part.
    step_ns: std::ops::Range<u64>,
}

/// A part of an observation that lies within a step.
#[derive(Debug, Clone, Copy)]
struct StepPart {
    block: u64,
    /// The index of the step in a [`Track`].
    place: usize,
    /// The share of the step that the part covers.
    weight: f64,
}

impl CutSpan {
    /// Divides a time range into parts, unless it equals the previous time range.
    #[inline]
    fn set(&mut self, from_ns: u64, to_ns: u64) {
        if (self.from_ns, self.to_ns) == (from_ns, to_ns) {
            return;
        }
        (self.from_ns, self.to_ns) = (from_ns, to_ns);
        match self.parts.as_mut_slice() {
            // Most observations are in the same step as the previous observation.
            [part] if self.step_ns.start <= from_ns && from_ns < to_ns && to_ns <= self.step_ns.end => {
                part.weight = part_of_step(to_ns - from_ns);
            }
            _ => self.cut(),
        }
    }

    fn cut(&mut self) {
        self.parts.clear();
        let mut at_ns = self.from_ns;
        while at_ns < self.to_ns {
            let step = at_ns / STEP_NS;
            let step_end_ns = (step + 1).saturating_mul(STEP_NS);
            let end_ns = step_end_ns.min(self.to_ns);
            let in_block = usize::try_from(step % BLOCK_STEPS as u64).unwrap_or_default();
            self.parts.push(StepPart {
                block: step / BLOCK_STEPS as u64,
                place: CARRIED_STEPS + in_block,
                weight: part_of_step(end_ns - at_ns),
            });
            self.step_ns = step * STEP_NS..step_end_ns;
            at_ns = end_ns;
        }
    }
}

/// Returns a length of time as a fraction of a step.
#[allow(clippy::cast_precision_loss, reason = "less than a second")]
fn part_of_step(ns: u64) -> f64 {
    ns as f64 / STEP_NS as f64
}

/// The largest values of new elements, by table and column. For each block, this is the largest
/// value of all new elements in the block.
#[derive(Debug, Default)]
struct Newcomers {
    peaks: HashMap<(usize, usize), BTreeMap<u64, f32>>,
    /// The first block of the recording.
    first_block: Option<u64>,
}

impl Newcomers {
    /// The baseline of a new element excludes this number of blocks before the element. The values
    /// of these blocks are incomplete, because the end of an element is known only after some time.
    const LATE_BLOCKS: u64 = FORGETS_AFTER_NS / BLOCK_NS + 1;

    fn add(&mut self, info: &SeriesInfo, block: u64, peak: f32) {
        let peaks = self.peaks.entry((info.table, info.column)).or_default();
        let known = peaks.entry(block).or_default();
        *known = known.max(peak);
        // The baseline of a new element ends `LATE_BLOCKS` before its block, so more than
        // `BLOCKS_MAX` blocks are needed.
        if peaks.len() > 2 * BLOCKS_MAX {
            peaks.pop_first();
        }
    }

    /// Returns the usual range of a new element.
    fn usual(&self, info: &SeriesInfo, block: u64) -> Option<Baseline> {
        let end = block.saturating_sub(Self::LATE_BLOCKS);
        let first = end.saturating_sub(BLOCKS_MAX as u64).max(self.first_block?);
        let peaks = self.peaks.get(&(info.table, info.column));
        let peak = |block| peaks.and_then(|peaks| peaks.get(&block).copied()).unwrap_or_default();
        Baseline::of_newcomers((first..end).map(peak).collect())
    }

    /// Returns the baseline of a series that begins in `block` in an element that existed before.
    /// Returns `None` if the recording before `block` is too short for a baseline.
    fn absence(&self, block: u64) -> Option<Baseline> {
        let recorded = block.saturating_sub(self.first_block?);
        (recorded >= BLOCKS_MIN as u64).then_some(Baseline::NOTHING)
    }
}

/// Minimum observed share of a step. A smaller share is ignored.
const OBSERVED_MIN: f32 = 0.01;

/// A mean over time that is computed from parts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TimedMean {
    sum: f32,
    /// The observed part of the step.
    weight: f32,
}

impl TimedMean {
    pub(super) const ZERO: Self = Self { sum: 0.0, weight: 1.0 };

    #[allow(clippy::cast_possible_truncation, reason = "statistics: 24 bits are plenty")]
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        self.sum += (value * weight) as f32;
        self.weight += weight as f32;
    }

    /// Returns the mean over some steps. Steps that were not observed count as 0 if `is_sparse` is
    /// true.
    pub(super) fn over(steps: &[Self], is_sparse: bool) -> Option<f32> {
        let (sum, weight) =
            steps.iter().fold((0.0, 0.0), |(sum, weight), step| (sum + step.sum, weight + step.weight));
        #[allow(clippy::cast_precision_loss, reason = "a few steps")]
        let weight = if is_sparse { steps.len() as f32 } else { weight };
        (weight > OBSERVED_MIN).then(|| sum / weight)
    }
}

impl DepartureFinder {
    pub(super) fn new(since_ns: Option<i64>) -> Self {
        Self { since_ns, ..Self::default() }
    }

    /// Returns the pairs of table and column for which no series has enough blocks for a baseline.
    pub(super) fn without_baseline(&self, set: &SeriesSet) -> BTreeSet<(usize, usize)> {
        let (mut short, mut known) = (BTreeSet::new(), BTreeSet::new());
        for (series, track) in self.tracks.iter().enumerate() {
            let Some(info) = set.info(series).filter(|_| track.block.is_some()) else { continue };
            let of = if track.before.len() < BLOCKS_MIN { &mut short } else { &mut known };
            of.insert((info.table, info.column));
        }
        short.difference(&known).copied().collect()
    }

    /// At the end, evaluates the blocks that are not complete.
    pub(super) fn finish(&mut self, clock: &RunClock, set: &SeriesSet) {
        for (series, track) in self.tracks.iter_mut().enumerate() {
            if let Some(info) = set.info(series) {
                track.finish_block(info, &mut self.newcomers, &mut self.found);
                self.ended.add_series(info, track.active_baseline());
            }
        }
        self.keep(clock);
        self.departures.extend(self.gradual.drain().map(|(_, departure)| departure));
        self.ended.replace_falls(self.since_ns, &mut self.departures, set);
    }

    /// Sets the wall times of the departures found.
    fn keep(&mut self, clock: &RunClock) {
        for (mono_ns, mut departure) in self.found.drain(..) {
            departure.wall_ns = clock.wall_ns(mono_ns);
            departure.observed_ns = departure.wall_ns;
            departure.born_wall_ns = departure.born_wall_ns.map(|born| clock.wall_ns(born.cast_unsigned()));
            departure.period_ns = self.periods.get(departure.table).map_or(0, |period| period.period_ns);
            if self.since_ns.is_some_and(|since| departure.wall_ns < since) {
                continue;
            }
            if departure.is_early {
                // A change that goes on is one departure.
                let key = (departure.table, departure.column, departure.element);
                let wall_ns = departure.wall_ns;
                let is_weaker = |earlier: &Departure| {
                    earlier.wall_ns.abs_diff(wall_ns) <= GRADUAL_NS && earlier.score > departure.score
                };
                if self.gradual.get(&key).is_some_and(is_weaker) {
                    continue;
                }
                let earlier = self.gradual.insert(key, departure);
                let is_other = |earlier: &Departure| earlier.wall_ns.abs_diff(wall_ns) > GRADUAL_NS;
                self.departures.extend(earlier.filter(is_other));
            } else {
                self.departures.push(departure);
            }
            if self.gradual.len() > DEPARTURES_MAX {
                self.departures.extend(self.gradual.drain().map(|(_, departure)| departure));
            }
        }
        // Dropping half of the departures at a time makes sorting rare.
        if self.departures.len() > DEPARTURES_MAX {
            self.departures.sort_unstable_by(|one, other| other.score.total_cmp(&one.score));
            self.departures.truncate(DEPARTURES_MAX / 2);
        }
    }
}

impl Observer for DepartureFinder {
    const JOINS: bool = true;

    fn begin(&mut self, series: usize, _: &SeriesInfo) {
        if self.tracks.len() <= series {
            self.tracks.resize_with(series + 1, Track::default);
        }
        if let Some(track) = self.tracks.get_mut(series) {
            *track = Track::default();
        }
    }

    fn observe(&mut self, series: usize, info: &SeriesInfo, observations: &[Observation]) {
        let (Some(track), Some(first)) = (self.tracks.get_mut(series), observations.first()) else { return };
        self.newcomers.first_block.get_or_insert(first.from_ns / BLOCK_NS);
        for observation in observations {
            self.cut.set(observation.from_ns, observation.to_ns);
            track.add(info, (&self.cut.parts, observation.value), &mut self.newcomers, &mut self.found);
        }
    }

    fn end(&mut self, series: usize, info: &SeriesInfo) {
        if let Some(track) = self.tracks.get_mut(series) {
            track.finish_block(info, &mut self.newcomers, &mut self.found);
            self.ended.add_series(info, track.active_baseline());
            *track = Track::default();
        }
    }
}

impl ReadObserver for DepartureFinder {
    fn begin_run(&mut self) {
        // Monotonic time may start again at a lower value. Baselines stay valid. The values of new
        // elements are dropped, because they are stored by the time of their block.
        self.newcomers = Newcomers::default();
        self.periods.clear();
        self.ended.begin_run();
        for track in &mut self.tracks {
            (track.block, track.steps) = (None, Default::default());
            (track.moves, track.moved) = (false, false);
        }
    }

    fn before_batch(&mut self, batch: &ColumnBatch, _: &RunClock) {
        if self.periods.len() <= batch.table {
            self.periods.resize(batch.table + 1, SourcePeriod::default());
        }
        if let Some(period) = self.periods.get_mut(batch.table) {
            period.add(&batch.times.mono_ns);
        }
    }

    fn after_batch(&mut self, clock: &RunClock, set: &SeriesSet) {
        self.ended.add(clock, set);
        self.keep(clock);
    }
}

impl Track {
    /// Adds the value of an observation to the steps that its time covers.
    fn add(
        &mut self,
        info: &SeriesInfo,
        (parts, value): (&[StepPart], f64),
        newcomers: &mut Newcomers,
        found: &mut Vec<(u64, Departure)>,
    ) {
        let Some(first) = parts.first() else { return };
        let mut block = *self.block.get_or_insert(first.block);
        self.set_last(value);
        // Blocks without an observation are not part of a baseline.
        let is_next = first.block <= block + 1;
        if let Some(last) = parts.last().filter(|last| block < last.block && is_next && self.always_rested())
        {
            block = last.block;
            self.rest_until(block);
        }
        for part in parts {
            while block < part.block {
                self.finish_block(info, newcomers, found);
                block += 1;
                self.block = Some(block);
                self.set_last(value);
            }
            // The steps of earlier blocks are not needed while the series is at rest. A series that
            // restarts may overlap the part that was evaluated.
            if part.block == block
                && let Some(mean) = self.steps.get_mut(part.place)
            {
                mean.add(value, part.weight);
            }
        }
    }

    /// Compares the windows that end in the current block with the baseline, and begins the next
    /// block.
    fn finish_block(
        &mut self,
        info: &SeriesInfo,
        newcomers: &mut Newcomers,
        found: &mut Vec<(u64, Departure)>,
    ) {
        let Some(block) = self.block else { return };
        let rests = !self.moves && !self.moved;
        (self.moved, self.moves) = (self.moves, false);
        if rests && self.finish_resting(info, block, newcomers) {
            return;
        }
        // A gauge may rest at any level, not only at 0.
        if self.moved {
            self.rest = self.last;
            self.resting_blocks = 0;
        }
        let is_sparse = info.measure.class == ValueClass::Offspring;
        let mut windows = [f32::NAN; BLOCK_STEPS];
        for (window, steps) in windows.iter_mut().zip(self.steps.windows(WINDOW_STEPS)) {
            *window = TimedMean::over(steps, is_sparse).unwrap_or(f32::NAN);
        }
        // This is done before any return, because the next block needs the last steps of the
        // current block.
        self.begin_steps();
        let (mut observed, mut count) = ([0.0; BLOCK_STEPS], 0);
        for (place, window) in observed.iter_mut().zip(windows.iter().filter(|window| !window.is_nan())) {
            *place = *window;
            count += 1;
        }
        let observed = observed.get_mut(..count).unwrap_or_default();
        let Some((min, max)) = extremes(observed) else { return };
        if self.may_depart(info, min, max)
            && let Some(usual) = self.usual(info, block, newcomers)
        {
            let peak = windows
                .iter()
                .enumerate()
                .map(|(at, value)| {
                    // Windows without an observation are NaN and remain NaN.
                    let value = info.measure.limited(f64::from(*value));
                    (at, value, departure_score(value, &usual, info.measure))
                })
                .filter(|(.., score)| *score >= DEPARTURE_SCORE_MIN)
                .reduce(|best, next| if next.2 > best.2 { next } else { best });
            if let Some((at, value, score)) = peak {
                let at_step = block * BLOCK_STEPS as u64 + at as u64;
                found.push(departure_at(at_step, info, (value, usual, score)));
                self.departed = Some((block, score));
            }
        }
        // After its first blocks, an element has its own baseline and is no longer compared with
        // new elements.
        if info.is_newcomer && self.before.len() < BLOCKS_MIN {
            newcomers.add(info, block, max);
        }
        let stats = if min.total_cmp(&max).is_eq() {
            Some(BlockStats::constant(min))
        } else {
            BlockStats::of(observed)
        };
        self.resting_blocks = 0;
        let median = stats.map(|stats| stats.median);
        found.extend(self.next_gradual(info, block, median));
        self.keep_block(stats);
    }

    /// Returns the departure of a gradual change in a block with this median, if its score has
    /// risen. The median is `None` if the block has no value. A level that a stronger sudden
    /// departure has reached is no gradual change.
    fn next_gradual(
        &mut self,
        info: &SeriesInfo,
        block: u64,
        median: Option<f32>,
    ) -> Option<(u64, Departure)> {
        let is_recent = |at: &u64| block.saturating_sub(*at) <= BLOCKS_MAX as u64;
        let sudden = self.departed.filter(|(at, _)| is_recent(at)).map_or(0.0, |(_, score)| score);
        let change = median.and_then(|median| self.gradual_change(info, median));
        let change = change.filter(|(.., score)| *score > sudden);
        let Some((value, usual, score)) = change else {
            self.gradual_score = 0.0;
            return None;
        };
        if score <= self.gradual_score * GRADUAL_STEP {
            return None;
        }
        self.gradual_score = score;
        let last_step = (block + 1) * BLOCK_STEPS as u64 - 1;
        let (at_ns, departure) = departure_at(last_step, info, (value, usual, score));
        Some((at_ns, Departure { is_early: true, ..departure }))
    }

    /// Compares the level of the current block with the first third of the blocks before. Returns
    /// the level, the baseline and the score if the series changed gradually.
    fn gradual_change(&self, info: &SeriesInfo, median: f32) -> Option<(f64, Baseline, f64)> {
        let count = self.before.len();
        let (oldest, newest) = (self.before.front()?.median, self.before.back()?.median);
        // Both levels must differ, so that a single block does not count.
        let nearer = if (median - oldest).abs() < (newest - oldest).abs() { median } else { newest };
        let least = info.measure.least_departure();
        let is_use = info.measure.class.is_use() && !info.measure.is_relative;
        if count < GRADUAL_BLOCKS_MIN || !is_use || f64::from((nearer - oldest).abs()) <= least {
            return None;
        }
        let usual = Baseline::of(&self.before.range(..count / 3))?;
        let value = f64::from(nearer);
        let score = GRADUAL_PART * departure_score(value, &usual, info.measure);
        (score >= DEPARTURE_SCORE_MIN).then_some((value, usual, score))
    }

    /// Ends a block in which the series was at rest, unless this rest is a departure. A typical
    /// series is at rest for a large part of the time.
    fn finish_resting(&mut self, info: &SeriesInfo, block: u64, newcomers: &mut Newcomers) -> bool {
        // Windows with a smaller observed share would not count.
        let is_observed = self.steps.iter().any(|step| step.weight > OBSERVED_MIN);
        #[allow(clippy::cast_possible_truncation, reason = "statistics: 24 bits are plenty")]
        let rest = self.rest as f32;
        // In an offspring series, steps without an observation count as 0.
        let is_mixed = info.measure.class == ValueClass::Offspring && rest != 0.0;
        let was_always = self.resting_blocks == self.before.len() && (rest == 0.0 || self.resting_blocks > 0);
        if !is_observed || is_mixed || (!was_always && self.may_depart(info, rest, rest)) {
            return false;
        }
        self.begin_steps();
        if info.is_newcomer && self.before.len() < BLOCKS_MIN {
            newcomers.add(info, block, rest);
        }
        if self.resting_blocks < BLOCKS_MAX {
            self.resting_blocks += 1;
            self.keep_block(Some(BlockStats::constant(rest)));
        }
        true
    }

    /// Returns whether the series is at rest, and was at rest in all blocks of its baseline.
    fn always_rested(&self) -> bool {
        let is_known = self.before.len() >= BLOCKS_MIN && self.resting_blocks == self.before.len();
        is_known && !self.moves && !self.moved
    }

    /// Ends all blocks before `block`. The series was at rest in all of them, so they have no
    /// departure.
    fn rest_until(&mut self, block: u64) {
        let ended = block.saturating_sub(self.block.unwrap_or(block));
        // More blocks of the same value would not change the baseline.
        let ended = usize::try_from(ended).unwrap_or(usize::MAX).min(BLOCKS_MAX - self.before.len());
        #[allow(clippy::cast_possible_truncation, reason = "statistics: 24 bits are plenty")]
        let rest = self.rest as f32;
        self.before.extend(std::iter::repeat_n(BlockStats::constant(rest), ended));
        self.resting_blocks = self.before.len();
        self.block = Some(block);
        self.steps = Default::default();
        self.steps[..CARRIED_STEPS].fill(TimedMean { sum: rest, weight: 1.0 });
    }

    fn set_last(&mut self, value: f64) {
        self.last = value;
        self.moves |= value.to_bits() != self.rest.to_bits();
    }

    /// Begins the steps of the next block.
    fn begin_steps(&mut self) {
        self.steps.copy_within(BLOCK_STEPS.., 0);
        self.steps[CARRIED_STEPS..].fill(TimedMean::default());
    }

    fn keep_block(&mut self, stats: Option<BlockStats>) {
        if self.before.len() == BLOCKS_MAX {
            self.before.pop_front();
        }
        self.before.extend(stats);
    }

    /// Returns whether a block with this minimum and maximum may have a departure. Most blocks
    /// cannot have a departure, so they need no baseline.
    fn may_depart(&self, info: &SeriesInfo, min: f32, max: f32) -> bool {
        let least = info.measure.least_departure();
        let departs = |level: f32| f64::from(max - level) > least || f64::from(level - min) > least;
        if self.before.is_empty() {
            return info.born_ns.is_some() && departs(0.0);
        }
        // The usual level lies between the levels of the blocks. It is often the level of the
        // latest block, so the latest block is checked first.
        self.before.iter().rev().any(|block| departs(block.median))
    }

    /// Returns the baseline of a series. For a new element, this baseline is computed from earlier
    /// new elements.
    fn usual(&self, info: &SeriesInfo, block: u64, newcomers: &Newcomers) -> Option<Baseline> {
        if self.before.len() < BLOCKS_MIN {
            // If the begin of the element is not known, the series may have had any value before.
            info.born_ns?;
            return if info.is_newcomer { newcomers.usual(info, block) } else { newcomers.absence(block) };
        }
        self.own_baseline()
    }

    /// Returns the baseline of an element that has ended. The blocks after its end do not count.
    fn active_baseline(&self) -> Option<Baseline> {
        let end = self.before.iter().rposition(|block| block.max > 0.0).map_or(0, |at| at + 1);
        Baseline::of(&self.before.range(..end))
    }

    /// Returns the baseline of the earlier blocks of the series.
    fn own_baseline(&self) -> Option<Baseline> {
        Baseline::of(&self.before.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;

    const CPU: Measure = Measure { class: ValueClass::TimeShare, is_counter: true, ..Measure::STATE };

    fn series(table: usize, born_ns: Option<u64>, is_newcomer: bool) -> SeriesInfo {
        SeriesInfo { table, column: 0, element: None, measure: CPU, state: None, born_ns, is_newcomer }
    }

    /// Returns the departures of a series that is observed every 100 ms.
    fn departures(finder: &mut DepartureFinder, info: &SeriesInfo, values: &[f64]) -> Vec<(u64, Departure)> {
        finder.begin(0, info);
        for (at, value) in values.iter().enumerate() {
            let from_ns = at as u64 * STEP_NS;
            let value = *value;
            finder.observe(0, info, &[Observation { from_ns, to_ns: from_ns + STEP_NS, value }]);
        }
        finder.end(0, info);
        std::mem::take(&mut finder.found)
    }

    fn found(values: &[f64]) -> Vec<(u64, Departure)> {
        departures(&mut DepartureFinder::default(), &series(0, None, false), values)
    }

    // Proves that a burst is found exactly once, at its middle, with its value and its usual range.
    #[test]
    fn a_burst_is_one_departure() {
        let mut values = vec![0.05; 300];
        values[205..208].fill(1.0);
        let found = found(&values);
        assert_eq!(found.len(), 1, "{found:?}");
        let (middle_ns, departure) = &found[0];
        assert_eq!(*middle_ns, 20_650_000_000);
        assert!((departure.value - 1.0).abs() < 1e-6 && (departure.usual.level - 0.05).abs() < 1e-6);
        assert!(departure.score > 1.4, "{departure:?}");
    }

    // Proves that the same departures are found whether equal values come as one observation or as
    // several observations. The test uses the value 0 and other values, and a time without
    // observations.
    #[test]
    fn rest_hides_nothing() {
        let levels =
            [(0.0, 500), (4.0, 3), (0.0, 90), (3.0, 700), (9.0, 4), (3.0, 45), (0.0, 300), (2.0, 30)];
        for gap_steps in [0, 7, 130, 4000] {
            let (mut single, mut joined) = (DepartureFinder::default(), DepartureFinder::default());
            let info = series(0, None, false);
            let mut at_ns = STEP_NS / 3;
            for finder in [&mut single, &mut joined] {
                finder.begin(0, &info);
            }
            for (round, (value, steps)) in levels.into_iter().chain(levels).enumerate() {
                let one = |step: u64| {
                    let from_ns = at_ns + step * STEP_NS;
                    Observation { from_ns, to_ns: from_ns + STEP_NS, value }
                };
                let each: Vec<Observation> = (0..steps).map(one).collect();
                single.observe(0, &info, &each);
                let to_ns = at_ns + steps * STEP_NS;
                joined.observe(0, &info, &[Observation { from_ns: at_ns, to_ns, value }]);
                at_ns = to_ns + if round == 4 { gap_steps * STEP_NS } else { 0 };
            }
            for finder in [&mut single, &mut joined] {
                finder.end(0, &info);
            }
            let shown = |finder: &DepartureFinder| -> Vec<String> {
                let all = finder.found.iter().filter(|(_, departure)| departure.score > 0.6);
                all.map(|(at_ns, departure)| {
                    format!("{} {:.2} {:.2}", at_ns / STEP_NS, departure.value, departure.usual.level)
                })
                .collect()
            };
            assert!(single.found.len() >= 6, "{gap_steps}: {:?}", shown(&single));
            assert_eq!(shown(&joined), shown(&single), "{gap_steps}");
        }
    }

    // Proves that a new level departs until it has become usual, and that nothing departs before a
    // baseline exists.
    #[test]
    fn a_new_level_becomes_usual() {
        let mut values = vec![0.0; 1200];
        values[..20].fill(1.0);
        values[300..].fill(1.0);
        let found = found(&values);
        let first = found.first().map(|(at, _)| *at / STEP_NS);
        let last = found.last().map(|(at, _)| *at / STEP_NS);
        assert!(first >= Some(299) && last < Some(800), "{first:?} {last:?}");
    }

    // Proves that recurring bursts are not departures.
    #[test]
    fn what_recurs_is_usual() {
        let mut values = vec![0.0; 600];
        values.chunks_mut(30).for_each(|chunk| chunk[..2].fill(1.0));
        let found = found(&values);
        assert!(found.iter().all(|(at, _)| *at < 20_000_000_000), "{found:?}");
    }

    // Proves that a new element is compared with earlier new elements. It departs if it differs
    // from them, and does not depart if all new elements behave the same.
    #[test]
    fn new_elements_are_compared_with_new_elements() {
        let mut finder = DepartureFinder::default();
        assert!(departures(&mut finder, &series(0, None, false), &[0.0; 400]).is_empty());
        let mut found = Vec::new();
        for number in 0..30_u64 {
            let begin_ns = 40_000_000_000 + number * 2_000_000_000;
            let info = series(1, Some(begin_ns), true);
            finder.begin(0, &info);
            finder.observe(
                0,
                &info,
                &[Observation { from_ns: begin_ns, to_ns: begin_ns + 1_000_000_000, value: 1.0 }],
            );
            finder.end(0, &info);
            found.extend(std::mem::take(&mut finder.found).into_iter().map(|_| number));
        }
        assert!(found.contains(&0) && found.iter().all(|number| *number < 14), "{found:?}");
    }

    // Proves that a series that begins late in an old element departs only if the earlier recording
    // is long enough for a baseline. An example is a state that the element did not have before.
    #[test]
    fn a_late_series_departs_after_a_baseline() {
        let departs_at = |begin_ns: u64| {
            let mut finder = DepartureFinder::default();
            assert!(departures(&mut finder, &series(0, None, false), &[0.0; 100]).is_empty());
            let info = series(1, Some(begin_ns), false);
            finder.begin(0, &info);
            let observation = Observation { from_ns: begin_ns, to_ns: begin_ns + 500_000_000, value: 1.0 };
            finder.observe(0, &info, &[observation]);
            finder.end(0, &info);
            !finder.found.is_empty()
        };
        assert!(!departs_at(200_000_000) && !departs_at(7_200_000_000));
        assert!(departs_at(8_200_000_000));
    }

    // Proves that new elements are also found after a reboot, when monotonic time is less than in
    // the previous run.
    #[test]
    fn new_elements_are_seen_after_a_reboot() {
        let mut finder = DepartureFinder::default();
        let info = series(0, None, false);
        finder.begin(0, &info);
        for at in 0..400 {
            let from_ns = 86_400_000_000_000 + at * STEP_NS;
            let observation = Observation { from_ns, to_ns: from_ns + STEP_NS, value: 0.0 };
            finder.observe(0, &info, &[observation]);
        }
        finder.end(0, &info);
        finder.begin_run();
        assert!(departures(&mut finder, &info, &[0.0; 400]).is_empty());
        let begin_ns = 40_000_000_000;
        let info = series(1, Some(begin_ns), true);
        finder.begin(0, &info);
        let observation = Observation { from_ns: begin_ns, to_ns: begin_ns + 1_000_000_000, value: 1.0 };
        finder.observe(0, &info, &[observation]);
        finder.end(0, &info);
        assert!(!finder.found.is_empty());
    }
}
