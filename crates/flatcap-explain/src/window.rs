//! Keeps the series around a window: their values in the window, their baseline before it, and the
//! time from which they differ.

use std::collections::{BTreeSet, HashMap};

use flatcap_query::ColumnBatch;

use super::baseline::{BLOCKS_MIN, Baseline, BlockStats};
use super::clock::RunClock;
use super::departures::TimedMean;
use super::measure::ValueClass;
use super::observation::{Observation, Observer, SeriesInfo};
use super::reading::ReadObserver;
use super::score::{departure_score, use_score};
use super::series::SeriesSet;
use super::table_shape::NEW_AFTER_NS;

/// Number of steps of the window. The window is compared with windows of the same length that are
/// one step apart.
const WINDOW_STEPS: usize = 3;
/// Maximum number of steps before the window. A longer baseline is shortened to this number of
/// steps.
const STEPS_BEFORE_MAX: u64 = 1024;
/// Number of blocks of the baseline.
const BLOCKS: usize = 10;
/// Maximum number of steps of all series together. This number of steps takes 32 MiB.
const STEPS_MAX: usize = 4 << 20;
/// Number of steps that are reserved for new elements.
// The series of new elements begin last, and they are often the suspects.
const NEW_STEPS: usize = STEPS_MAX / 4;
/// Number of blocks of the early baseline, which precedes the baseline. Each block is as long as
/// the guard time and the window together, but at most [`EARLY_BLOCK_NS_MAX`].
// With the default window and baseline, both baselines together take almost a minute.
const EARLY_BLOCKS: usize = 20;
const EARLY_BLOCK_NS_MAX: u64 = 2_400_000_000;
/// The weight of a departure from the early baseline that is none from the baseline.
// A level that has lasted for as long as the baseline is less likely the reason of a question.
const EARLY_PART: f64 = 0.5;
/// Maximum number of observations of a series between the end of the baseline and the end of the
/// window.
const RECENT_MAX: usize = 4096;
/// Guard time directly before the window. The guard time is not part of the baseline, because the
/// incident may begin in it.
const GUARD_NS: u64 = 2_000_000_000;
/// Time after the window that is read.
// This time contains a complete sample, since there is one complete sample per second.
pub(super) const AFTER_NS: u64 = 1_200_000_000;
/// Length of the time before the baseline that is also read, to know which elements are new.
const LEAD_NS: u64 = 3_500_000_000;

/// The window, and the time before it with which the window is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComparedWindow {
    /// Wall time at which the window begins.
    pub(super) first_ns: i64,
    pub(super) length_ns: u64,
    step_ns: u64,
    /// Number of steps before the window: the steps of the baseline and of the guard time.
    steps_before: usize,
    guard_steps: usize,
}

impl ComparedWindow {
    /// Returns a window of length `length_ns` that is centered at a wall time, with a baseline of
    /// `before_ns`.
    pub(super) fn around(wall_ns: i64, length_ns: u64, before_ns: u64) -> Self {
        let step_ns = length_ns.div_ceil(WINDOW_STEPS as u64).max(1);
        let guard = GUARD_NS.max(2 * length_ns).div_ceil(step_ns).min(STEPS_BEFORE_MAX / 2);
        let before = before_ns.div_ceil(step_ns).min(STEPS_BEFORE_MAX);
        let steps = |steps: u64| usize::try_from(steps).unwrap_or(usize::MAX);
        Self {
            first_ns: wall_ns.saturating_sub_unsigned(length_ns / 2),
            length_ns: step_ns * WINDOW_STEPS as u64,
            step_ns,
            steps_before: steps(guard + before),
            guard_steps: steps(guard),
        }
    }

    /// Returns the wall time at which the window ends.
    pub(super) fn end_ns(&self) -> i64 {
        self.first_ns.saturating_add_unsigned(self.length_ns)
    }

    /// Returns the range of wall times to read.
    pub(super) fn read_span(&self) -> std::ops::Range<i64> {
        let before_ns = self.step_ns * self.steps_before as u64 + self.early_ns().max(LEAD_NS);
        self.first_ns.saturating_sub_unsigned(before_ns)..self.end_ns().saturating_add_unsigned(AFTER_NS)
    }

    /// Returns the requested length of the baseline in nanoseconds.
    pub(super) fn before_ns(&self) -> u64 {
        (self.steps_before - self.guard_steps) as u64 * self.step_ns
    }

    /// Returns the length of the shortest baseline that yields a usual level, in nanoseconds.
    pub(super) fn before_least_ns(&self) -> u64 {
        (self.block_length() * BLOCKS_MIN) as u64 * self.step_ns
    }

    /// Returns the number of steps before the guard time.
    fn baseline_steps(&self) -> usize {
        self.steps_before - self.guard_steps
    }

    /// Returns the length of a block of the early baseline, in nanoseconds.
    fn early_block_ns(&self) -> u64 {
        let block_ns = (self.guard_steps + WINDOW_STEPS) as u64 * self.step_ns;
        block_ns.min(EARLY_BLOCK_NS_MAX)
    }

    /// Returns the length of the early baseline, in nanoseconds.
    fn early_ns(&self) -> u64 {
        EARLY_BLOCKS as u64 * self.early_block_ns()
    }

    /// Returns the number of windows in a block of the baseline.
    fn block_length(&self) -> usize {
        self.baseline_steps().saturating_sub(WINDOW_STEPS - 1).div_ceil(BLOCKS).max(1)
    }

    fn steps(&self) -> usize {
        self.steps_before + WINDOW_STEPS
    }
}

/// The value of a series in the window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WindowValue {
    pub(super) series: usize,
    pub(super) value: f64,
    pub(super) usual: Baseline,
    /// The score of the departure.
    pub(super) score: f64,
    /// The score of the part of a resource that the element used above its usual level.
    pub(super) use_score: f64,
    /// Monotonic time of the first sample in which the series differed from its baseline.
    pub(super) first_ns: u64,
    /// Whether the series departs only from the early baseline: it rose or fell gradually, or
    /// before the window.
    pub(super) is_early: bool,
}

/// Offset that is added to monotonic times to avoid negative values, because a baseline may begin
/// before the boot of the host.
const SHIFT_NS: u64 = 1 << 62;

fn shifted(mono_ns: u64) -> u64 {
    mono_ns.saturating_add(SHIFT_NS)
}

/// Keeps the steps of all series.
#[derive(Debug)]
pub(super) struct WindowSteps {
    window: ComparedWindow,
    /// Monotonic time of the first step in the current run, plus [`SHIFT_NS`].
    origin_ns: Option<u64>,
    tracks: Vec<SteppedSeries>,
    /// Monotonic time of the first sample of the run, plus [`SHIFT_NS`].
    begin_ns: Option<u64>,
    held: usize,
    /// Number of series that were left out because of [`STEPS_MAX`].
    pub(super) left_out: u64,
}

/// Peaks of new elements in each block, by table and column.
type Newcomers = HashMap<(usize, usize), Vec<f32>>;

#[derive(Debug, Default)]
struct SteppedSeries {
    /// The blocks of the early baseline.
    early: Vec<TimedMean>,
    steps: Vec<TimedMean>,
    recent: Vec<(u64, f32)>,
}

impl WindowSteps {
    pub(super) fn new(window: ComparedWindow) -> Self {
        Self { window, origin_ns: None, tracks: Vec::new(), begin_ns: None, held: 0, left_out: 0 }
    }

    /// Returns the monotonic times at which the window begins and ends, in the last run.
    pub(super) fn mono_span(&self) -> Option<std::ops::Range<u64>> {
        let first = self.origin_ns? + self.window.steps_before as u64 * self.window.step_ns;
        let first = first.saturating_sub(SHIFT_NS);
        Some(first..first + self.window.length_ns)
    }

    /// Returns whether any series was observed in the window.
    pub(super) fn has_window(&self) -> bool {
        let window = |track: &SteppedSeries| {
            track.steps.get(self.window.steps_before..).and_then(|steps| TimedMean::over(steps, false))
        };
        self.tracks.iter().any(|track| window(track).is_some())
    }

    /// For each element, returns the number of processes that ended or began below it, per second
    /// of the window.
    pub(super) fn offspring(&self, set: &SeriesSet) -> Vec<(usize, f64)> {
        let rate = |series: usize| {
            set.info(series).filter(|info| info.measure.class == ValueClass::Offspring)?;
            let steps = self.tracks.get(series)?.steps.get(self.window.steps_before..)?;
            TimedMean::over(steps, true).map(|rate| (series, f64::from(rate)))
        };
        (0..self.tracks.len()).filter_map(rate).collect()
    }

    /// Returns the series that depart in the window, and the series of elements that used more
    /// than usual.
    pub(super) fn departures(&self, set: &SeriesSet) -> Vec<WindowValue> {
        let newcomers = self.newcomers(set);
        (0..self.tracks.len()).filter_map(|series| self.departure(series, set, &newcomers)).collect()
    }

    /// Returns the recorded length of the baseline in nanoseconds.
    pub(super) fn recorded_before_ns(&self) -> u64 {
        let Some(origin_ns) = self.origin_ns else { return 0 };
        let begin_ns = self.begin_ns.unwrap_or(u64::MAX).max(origin_ns);
        (origin_ns + self.window.before_ns()).saturating_sub(begin_ns)
    }

    /// Returns the pairs of table and column in which a series has a value in the window, but no
    /// series has a baseline.
    pub(super) fn without_baseline(&self, set: &SeriesSet) -> BTreeSet<(usize, usize)> {
        let has_none = |series: usize| {
            let (info, track) = (set.info(series)?, self.tracks.get(series)?);
            let window = track.steps.get(self.window.steps_before..)?;
            TimedMean::over(window, false)?;
            let is_known = self.is_newcomer(info) || self.usual(track, false).is_some();
            (!is_known).then_some((info.table, info.column))
        };
        (0..self.tracks.len()).filter_map(has_none).collect()
    }

    fn departure(&self, series: usize, set: &SeriesSet, newcomers: &Newcomers) -> Option<WindowValue> {
        let (info, track) = (set.info(series)?, self.tracks.get(series)?);
        let is_sparse = info.measure.class == ValueClass::Offspring;
        let window = track.steps.get(self.window.steps_before..)?;
        let value = info.measure.limited(f64::from(TimedMean::over(window, is_sparse)?));
        let usual = match newcomers.get(&(info.table, info.column)) {
            Some(peaks) if self.is_newcomer(info) => Baseline::of_newcomers(peaks.clone())?,
            _ => self.usual(track, is_sparse)?,
        };
        let is_use = info.element.is_some() && info.measure.class.is_use();
        let scores = |value: f64, usual: &Baseline| {
            let score = departure_score(value, usual, info.measure);
            (score, if is_use { use_score(value, usual, info.measure) } else { 0.0 })
        };
        let departs = |(score, use_score): &(f64, f64)| *score > 0.0 || *use_score > 0.0;
        let near = Some(scores(value, &usual)).filter(departs).map(|scores| (scores, usual, false));
        let ((score, use_score), usual, is_early) = near.or_else(|| {
            let (value, usual) = self.early_change(value, track)?;
            let (score, use_score) = Some(scores(value, &usual)).filter(departs)?;
            Some(((EARLY_PART * score, EARLY_PART * use_score), usual, true))
        })?;
        let span = self.mono_span()?;
        // A sample differs if it is nearer to the value in the window than to the usual level.
        let differs = |sample: f32| (f64::from(sample) - usual.level) / (value - usual.level) >= 0.5;
        let first_ns = last_run(&track.recent, self.window.length_ns, differs).unwrap_or(span.start);
        Some(WindowValue { series, value, usual, score, use_score, first_ns, is_early })
    }

    /// Returns the value of a series that is compared with its early baseline, and this baseline.
    /// The value is the mean over the guard time and the window, so that it is comparable with the
    /// blocks, or the value in the window if that is nearer to the baseline.
    fn early_change(&self, value: f64, track: &SteppedSeries) -> Option<(f64, Baseline)> {
        let blocks: Vec<BlockStats> = track
            .early
            .iter()
            .filter_map(|block| TimedMean::over(&[*block], false))
            .map(BlockStats::constant)
            .collect();
        // The later half may contain the change.
        let first = blocks.len().div_ceil(2).max(BLOCKS_MIN).min(blocks.len());
        let usual = Baseline::of(&blocks.get(..first)?.iter())?;
        let recent = f64::from(TimedMean::over(track.steps.get(self.baseline_steps()..)?, false)?);
        let is_nearer = (value - usual.level).abs() < (recent - usual.level).abs();
        Some((if is_nearer { value } else { recent }, usual))
    }

    /// Returns whether a series began after the baseline.
    fn is_newcomer(&self, info: &SeriesInfo) -> bool {
        let end_ns = self.origin_ns.unwrap_or_default() + self.baseline_steps() as u64 * self.window.step_ns;
        info.is_newcomer && info.born_ns.is_some_and(|born_ns| shifted(born_ns) >= end_ns)
    }

    /// Returns whether an element began after the begin of the baseline, or shortly before.
    pub(super) fn began_in_baseline(&self, born_ns: Option<u64>) -> bool {
        let begin_ns = self.origin_ns.unwrap_or_default().saturating_sub(LEAD_NS - NEW_AFTER_NS);
        born_ns.is_some_and(|born_ns| shifted(born_ns) >= begin_ns)
    }

    /// Returns the number of steps before the guard time.
    fn baseline_steps(&self) -> usize {
        self.window.baseline_steps()
    }

    /// For each block, returns the largest value of the elements that were new during the baseline.
    fn newcomers(&self, set: &SeriesSet) -> Newcomers {
        let length = self.block_length();
        let mut found = Newcomers::new();
        // Blocks before the first sample have no information about new elements.
        let unrecorded_ns = self.window.before_ns().saturating_sub(self.recorded_before_ns());
        let unrecorded = usize::try_from(unrecorded_ns / self.window.step_ns).unwrap_or(usize::MAX) / length;
        for (series, track) in self.tracks.iter().enumerate() {
            // Elements that began before the baseline are not new in any of its blocks.
            let is_new = |info: &&SeriesInfo| info.is_newcomer && self.began_in_baseline(info.born_ns);
            let Some(info) = set.info(series).filter(is_new) else { continue };
            let is_sparse = info.measure.class == ValueClass::Offspring;
            let blocks = self.baseline_steps().saturating_sub(WINDOW_STEPS - 1).div_ceil(length);
            let peaks = found.entry((info.table, info.column)).or_insert_with(|| vec![0.0; blocks]);
            let steps = track.steps.get(..self.baseline_steps()).unwrap_or_default();
            for (at, window) in steps.windows(WINDOW_STEPS).enumerate() {
                if let (Some(value), Some(peak)) =
                    (TimedMean::over(window, is_sparse), peaks.get_mut(at / length))
                {
                    *peak = peak.max(value);
                }
            }
        }
        for peaks in found.values_mut() {
            peaks.drain(..unrecorded.min(peaks.len()));
        }
        found
    }

    /// Returns the number of windows in a block of the baseline.
    fn block_length(&self) -> usize {
        self.window.block_length()
    }

    /// Returns the usual level of a series before the window, or `None` if it is not known.
    pub(super) fn usual_level(&self, series: usize) -> Option<f64> {
        Some(self.usual(self.tracks.get(series)?, false)?.level)
    }

    /// Returns the baseline of a series, computed from the steps before the guard time.
    fn usual(&self, track: &SteppedSeries, is_sparse: bool) -> Option<Baseline> {
        let steps = track.steps.get(..self.baseline_steps())?;
        let windows: Vec<Option<f32>> =
            steps.windows(WINDOW_STEPS).map(|steps| TimedMean::over(steps, is_sparse)).collect();
        let blocks: Vec<BlockStats> = windows
            .chunks(self.block_length())
            .filter_map(|block| BlockStats::of(&mut block.iter().flatten().copied().collect::<Vec<_>>()))
            .collect();
        Baseline::of(&blocks.iter())
    }

    /// Returns the correlation coefficient of two series from the guard time to the end of the
    /// window, or 0 if one of them is constant.
    pub(super) fn correlation(&self, one: usize, other: usize) -> f64 {
        let steps = |series: usize| {
            let from = self.window.steps_before - self.window.guard_steps;
            self.tracks.get(series).and_then(|track| track.steps.get(from..)).unwrap_or_default()
        };
        let mean = |step: &TimedMean| TimedMean::over(std::slice::from_ref(step), false).map(f64::from);
        let pairs: Vec<(f64, f64)> = steps(one)
            .iter()
            .zip(steps(other))
            .filter_map(|(one, other)| Some((mean(one)?, mean(other)?)))
            .collect();
        correlation(&pairs)
    }
}

/// Returns the time at which the last run of samples that differ begins. Earlier runs belong to
/// earlier departures. In a run, less than `gap_ns` is between two samples that differ.
fn last_run(samples: &[(u64, f32)], gap_ns: u64, differs: impl Fn(f32) -> bool) -> Option<u64> {
    let mut differing = samples.iter().rev().filter(|(_, sample)| differs(*sample)).map(|(to_ns, _)| *to_ns);
    let mut begin_ns = differing.next()?;
    for at_ns in differing {
        if begin_ns.saturating_sub(at_ns) >= gap_ns {
            break;
        }
        begin_ns = at_ns;
    }
    Some(begin_ns)
}

/// Returns the correlation coefficient of pairs of values.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "few pairs")]
    let count = pairs.len() as f64;
    let (sum_one, sum_other) =
        pairs.iter().fold((0.0, 0.0), |(one, other), pair| (one + pair.0, other + pair.1));
    // Without pairs the means and the scale are NaN, which the last comparison turns into 0.
    let (mean_one, mean_other) = (sum_one / count, sum_other / count);
    let (mut product, mut square_one, mut square_other) = (0.0, 0.0, 0.0);
    for (one, other) in pairs {
        let (one, other) = (one - mean_one, other - mean_other);
        product += one * other;
        square_one += one * one;
        square_other += other * other;
    }
    let scale = (square_one * square_other).sqrt();
    if scale > 0.0 { product / scale } else { 0.0 }
}

impl SteppedSeries {
    fn add(&mut self, observation: &Observation, origin_ns: u64, window: &ComparedWindow) {
        let Observation { from_ns, to_ns: observed_ns, value } = *observation;
        let (from_ns, to_ns) = (shifted(from_ns), shifted(observed_ns));
        let step_ns = window.step_ns;
        let mut at_ns = from_ns.max(origin_ns);
        self.add_early((from_ns, to_ns.min(origin_ns), value), origin_ns, window);
        while at_ns < to_ns {
            let step = (at_ns - origin_ns) / step_ns;
            let end_ns = (origin_ns + (step + 1) * step_ns).min(to_ns);
            let Some(mean) = usize::try_from(step).ok().and_then(|step| self.steps.get_mut(step)) else {
                break;
            };
            #[allow(clippy::cast_precision_loss, reason = "a part of a step")]
            mean.add(value, (end_ns - at_ns) as f64 / step_ns as f64);
            at_ns = end_ns;
        }
        let guard_ns = origin_ns + (window.steps_before - window.guard_steps) as u64 * step_ns;
        let window_end_ns = origin_ns + window.steps() as u64 * step_ns;
        if to_ns >= guard_ns && from_ns < window_end_ns && self.recent.len() < RECENT_MAX {
            #[allow(clippy::cast_possible_truncation, reason = "statistics: 24 bits are plenty")]
            self.recent.push((observed_ns, value as f32));
        }
    }
}

impl SteppedSeries {
    /// Adds the part of an observation that is before the baseline.
    fn add_early(
        &mut self,
        (from_ns, to_ns, value): (u64, u64, f64),
        origin_ns: u64,
        window: &ComparedWindow,
    ) {
        let block_ns = window.early_block_ns();
        let begin_ns = origin_ns.saturating_sub(window.early_ns());
        let mut at_ns = from_ns.max(begin_ns);
        while at_ns < to_ns {
            let block = (at_ns - begin_ns) / block_ns;
            let end_ns = (begin_ns + (block + 1) * block_ns).min(to_ns);
            let Some(mean) = usize::try_from(block).ok().and_then(|block| self.early.get_mut(block)) else {
                break;
            };
            #[allow(clippy::cast_precision_loss, reason = "a part of a block")]
            mean.add(value, (end_ns - at_ns) as f64 / block_ns as f64);
            at_ns = end_ns;
        }
    }
}

impl Observer for WindowSteps {
    // `explain` names the first sample that differs.
    const JOINS: bool = false;

    fn begin(&mut self, series: usize, info: &SeriesInfo) {
        if self.tracks.len() <= series {
            self.tracks.resize_with(series + 1, SteppedSeries::default);
        }
        let (Some(track), Some(origin_ns)) = (self.tracks.get_mut(series), self.origin_ns) else { return };
        let steps = self.window.steps();
        let taken = steps + EARLY_BLOCKS;
        let most = if info.is_newcomer { STEPS_MAX } else { STEPS_MAX - NEW_STEPS };
        if self.held + taken > most {
            self.left_out += 1;
            return;
        }
        self.held += taken;
        track.early = vec![TimedMean::default(); EARLY_BLOCKS];
        track.steps = vec![TimedMean::default(); steps];
        // Before it began, an element used nothing. This is a known value, not an absent one.
        let born = info
            .born_ns
            .map_or(0, |born_ns| shifted(born_ns).saturating_sub(origin_ns) / self.window.step_ns);
        let born = usize::try_from(born).unwrap_or(usize::MAX).min(steps);
        track.steps.iter_mut().take(born).for_each(|step| *step = TimedMean::ZERO);
    }

    fn observe(&mut self, series: usize, _: &SeriesInfo, observations: &[Observation]) {
        let (Some(track), Some(origin_ns)) = (self.tracks.get_mut(series), self.origin_ns) else { return };
        for observation in observations {
            let from_ns = shifted(observation.from_ns);
            self.begin_ns = Some(self.begin_ns.map_or(from_ns, |known| known.min(from_ns)));
            track.add(observation, origin_ns, &self.window);
        }
    }

    fn end(&mut self, _: usize, _: &SeriesInfo) {}
}

impl ReadObserver for WindowSteps {
    fn begin_run(&mut self) {
        (self.origin_ns, self.begin_ns) = (None, None);
    }

    fn before_batch(&mut self, _: &ColumnBatch, clock: &RunClock) {
        if self.origin_ns.is_none() {
            let before_ns = self.window.steps_before as u64 * self.window.step_ns;
            let first_ns = clock.mono_ns(self.window.first_ns);
            // If the run began after the start of the baseline, the steps of the run begin later in
            // the baseline.
            self.origin_ns = first_ns.map(|first_ns| shifted(first_ns).saturating_sub(before_ns));
        }
    }

    fn after_batch(&mut self, _: &RunClock, _: &SeriesSet) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the window is centered at its time, and that the time to read contains the
    // baseline, the guard and the time needed to detect new elements.
    #[test]
    fn the_window_is_around_its_time() {
        let window = ComparedWindow::around(100_000_000_000, 300_000_000, 10_000_000_000);
        assert_eq!((window.first_ns, window.end_ns()), (99_850_000_000, 100_150_000_000));
        assert_eq!(window.before_ns(), 10_000_000_000);
        assert_eq!(window.read_span(), 41_850_000_000..101_350_000_000);
        let long = ComparedWindow::around(0, 300_000_000, 1_000_000_000_000);
        assert_eq!(long.before_ns(), 102_400_000_000, "at most so many steps");
    }

    // Proves that a departure begins with the last run of samples that differ, and that a short gap
    // does not end a run.
    #[test]
    fn a_departure_begins_with_its_last_run() {
        let begin = |samples: &[f32]| {
            let samples: Vec<(u64, f32)> = (1..).zip(samples.iter().copied()).collect();
            last_run(&samples, 3, |sample| sample > 0.5)
        };
        assert_eq!(begin(&[0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]), Some(5));
        assert_eq!(begin(&[0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0]), Some(2));
        assert_eq!((begin(&[1.0, 1.0]), begin(&[0.0, 0.0]), begin(&[])), (Some(1), None, None));
    }

    // Proves that series that move together correlate, whatever their units, and that a constant
    // does not correlate with any series.
    #[test]
    fn movements_are_compared() {
        let rising: Vec<(f64, f64)> =
            (0..9).map(|at| (f64::from(at), 7.0 + 1000.0 * f64::from(at))).collect();
        assert!((correlation(&rising) - 1.0).abs() < 1e-9);
        let opposite: Vec<(f64, f64)> = (0..9).map(|at| (f64::from(at), -f64::from(at))).collect();
        assert!((correlation(&opposite) + 1.0).abs() < 1e-9);
        assert!(correlation(&[(1.0, 2.0), (1.0, 3.0)]).abs() < 1e-9);
        assert!(correlation(&[]).abs() < 1e-9);
    }
}
