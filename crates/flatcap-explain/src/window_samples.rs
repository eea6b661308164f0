//! Selects the samples of a series in a window.

use std::ops::{Range, RangeInclusive};

/// A sample, with the value of an element in the sample.
#[derive(Debug, Clone)]
pub(super) struct ElementSample<V> {
    pub(super) run: usize,
    pub(super) wall_ns: i64,
    pub(super) mono_ns: u64,
    pub(super) value: V,
}

/// Returns the samples of a window. A sample covers the time since the previous sample. The result
/// is the longest sequence of samples in which each sample has at least half of its time in the
/// window. If there is no such sample, the result is the sample with the most time in the window.
pub(super) fn chosen<V>(
    samples: &[ElementSample<V>],
    window: &Range<i64>,
    is_usable: impl Fn(&ElementSample<V>, &ElementSample<V>) -> bool,
) -> Option<RangeInclusive<usize>> {
    let mut best: Option<(i64, usize)> = None;
    let mut run: Option<(usize, usize)> = None;
    let mut longest: Option<(usize, usize)> = None;
    for (before, (one, next)) in samples.iter().zip(samples.iter().skip(1)).enumerate() {
        let at = before + 1;
        let overlap = next.wall_ns.min(window.end).saturating_sub(one.wall_ns.max(window.start));
        if overlap <= 0 || next.mono_ns <= one.mono_ns || !is_usable(one, next) {
            run = None;
            continue;
        }
        if best.is_none_or(|(most, _)| overlap > most) {
            best = Some((overlap, at));
        }
        if overlap.saturating_mul(2) < next.wall_ns.saturating_sub(one.wall_ns) {
            run = None;
            continue;
        }
        let (first, last) = (run.map_or(at, |(first, _)| first), at);
        run = Some((first, last));
        if longest.is_none_or(|(from, to)| last - first > to - from) {
            longest = run;
        }
    }
    let (first, last) = longest.or(best.map(|(_, at)| (at, at)))?;
    Some(first..=last)
}

/// Returns the samples of a level in a window, chosen by [`chosen`].
pub(super) fn chosen_levels<V>(
    samples: &[&ElementSample<V>],
    window: &Range<i64>,
) -> Option<RangeInclusive<usize>> {
    let owned: Vec<ElementSample<()>> = samples
        .iter()
        .map(|sample| {
            let ElementSample { run, wall_ns, mono_ns, .. } = **sample;
            ElementSample { run, wall_ns, mono_ns, value: () }
        })
        .collect();
    // The first sample has no predecessor, so `chosen` never returns it.
    let is_first_within = owned.first().is_some_and(|first| window.contains(&first.wall_ns));
    match chosen(&owned, window, |_, _| true) {
        Some(chosen) if is_first_within && *chosen.start() == 1 => Some(0..=*chosen.end()),
        None if is_first_within => Some(0..=0),
        chosen => chosen,
    }
}
