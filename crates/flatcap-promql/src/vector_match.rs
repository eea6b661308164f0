//! Matches the series of two sides.

use std::collections::HashMap;

use crate::labels::Labels;
use crate::plan::Matching;
use crate::series::LabelledSeries;

impl Matching {
    /// Returns the labels by which series are matched.
    pub(crate) fn key(&self, labels: &Labels) -> Labels {
        match self {
            Self::On(names) => labels.only(names),
            Self::Ignoring(names) => labels.without(names),
        }
    }
}

/// The match keys of the series on both sides, as numbers. Equal labels have the same number.
#[derive(Debug)]
pub(crate) struct MatchKeys {
    pub(crate) left: Vec<usize>,
    pub(crate) right: Vec<usize>,
    /// Number of different keys.
    pub(crate) count: usize,
}

impl MatchKeys {
    pub(crate) fn new(matching: &Matching, left: &[LabelledSeries], right: &[LabelledSeries]) -> Self {
        // Labels are compared only one time per series. At each step, only the numbers of the keys
        // are compared.
        let mut known: HashMap<Labels, usize> = HashMap::new();
        let mut keys = |series: &[LabelledSeries]| {
            let key = |series: &LabelledSeries| {
                let next = known.len();
                *known.entry(matching.key(&series.labels)).or_insert(next)
            };
            series.iter().map(key).collect()
        };
        let (left, right) = (keys(left), keys(right));
        Self { left, right, count: known.len() }
    }
}
