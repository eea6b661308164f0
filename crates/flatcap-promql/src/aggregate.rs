//! Aggregations over groups of series, step by step.

use std::collections::BTreeMap;

use crate::aggregation::Aggregation;
use crate::labels::Labels;
use crate::plan::Matching;
use crate::series::LabelledSeries;

/// Returns the aggregates of groups of series.
pub(crate) fn aggregate(
    aggregation: Aggregation,
    grouping: &Matching,
    series: Vec<LabelledSeries>,
) -> Vec<LabelledSeries> {
    let mut groups: BTreeMap<Labels, Vec<LabelledSeries>> = BTreeMap::new();
    for series in series {
        groups.entry(grouping.key(&series.labels)).or_default().push(series);
    }
    let groups = groups.into_iter();
    match aggregation {
        Aggregation::Largest(count) => groups.flat_map(|(_, members)| pick(members, count, true)).collect(),
        Aggregation::Smallest(count) => groups.flat_map(|(_, members)| pick(members, count, false)).collect(),
        _ => groups
            .map(|(labels, members)| LabelledSeries { labels, values: combine(aggregation, &members) })
            .collect(),
    }
}

fn combine(aggregation: Aggregation, members: &[LabelledSeries]) -> Vec<Option<f64>> {
    let steps = members.first().map_or(0, |member| member.values.len());
    let mut present = Vec::with_capacity(members.len());
    let values = (0..steps).map(|step| {
        present.clear();
        present.extend(members.iter().filter_map(|member| member.at(step)));
        aggregation.of(&present)
    });
    values.collect()
}

/// Returns the series with, at each step, the values that are among the largest or smallest.
fn pick(mut members: Vec<LabelledSeries>, count: usize, is_largest: bool) -> Vec<LabelledSeries> {
    let steps = members.first().map_or(0, |member| member.values.len());
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(members.len());
    for step in 0..steps {
        order.clear();
        order
            .extend(members.iter().enumerate().filter_map(|(place, member)| Some((member.at(step)?, place))));
        order.sort_by(|(one, _), (other, _)| {
            // What is not a number comes last in both orders.
            let values = if is_largest { other.total_cmp(one) } else { one.total_cmp(other) };
            one.is_nan().cmp(&other.is_nan()).then(values)
        });
        for (_, place) in order.iter().skip(count) {
            let value = members.get_mut(*place).and_then(|member| member.values.get_mut(step));
            if let Some(value) = value {
                *value = None;
            }
        }
    }
    members.retain(LabelledSeries::has_values);
    members
}
