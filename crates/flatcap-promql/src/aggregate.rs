//! Aggregations over groups of series, step by step.

use std::collections::BTreeMap;

use crate::aggregation::Aggregation;
use crate::error::PromqlError;
use crate::labels::Labels;
use crate::plan::Matching;
use crate::series::LabelledSeries;

/// Returns the aggregate of each group of series.
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

/// Returns the results of an aggregation whose numeric parameter may differ at each step.
///
/// # Errors
/// The aggregation is not known.
pub(crate) fn computed_aggregate(
    (name, parameters): (&str, &[f64]),
    grouping: &Matching,
    series: &[LabelledSeries],
) -> Result<Vec<LabelledSeries>, PromqlError> {
    let mut found: BTreeMap<Labels, LabelledSeries> = BTreeMap::new();
    let mut distinct: Vec<f64> = parameters.to_vec();
    // A parameter may be NaN, so the sort needs a total order.
    distinct.sort_by(f64::total_cmp);
    distinct.dedup_by(|one, other| one.total_cmp(other).is_eq());
    if let [parameter] = *distinct
        && let Some(aggregation) = Aggregation::named(name, Some(parameter))
    {
        // Usually the parameter is the same at all steps. In this case, topk keeps the order of its
        // series.
        return Ok(aggregate(aggregation, grouping, series.to_vec()));
    }
    // The aggregation is computed once for each distinct parameter, not for each step.
    for parameter in distinct {
        let Some(aggregation) = Aggregation::named(name, Some(parameter)) else {
            return Err(PromqlError::unsupported(&format!("the aggregation {name}")));
        };
        for one in aggregate(aggregation, grouping, series.to_vec()) {
            let steps = one.values.len();
            let whole = found
                .entry(one.labels.clone())
                .or_insert_with(|| LabelledSeries { labels: one.labels.clone(), values: vec![None; steps] });
            let values = whole.values.iter_mut().zip(one.values).zip(parameters);
            for ((value, own), _) in values.filter(|(_, at)| at.total_cmp(&parameter).is_eq()) {
                *value = own;
            }
        }
    }
    Ok(found.into_values().filter(LabelledSeries::has_values).collect())
}

/// For each group and each value, returns the number of series that have this value. The value
/// becomes a label.
pub(crate) fn count_values(
    label: &str,
    grouping: &Matching,
    series: &[LabelledSeries],
) -> Vec<LabelledSeries> {
    let mut counts: BTreeMap<Labels, Vec<Option<f64>>> = BTreeMap::new();
    for one in series {
        let group = grouping.key(&one.labels);
        for (step, value) in one.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let mut labels = group.clone();
            labels.set(label, &number_text(*value));
            let values = counts.entry(labels).or_insert_with(|| vec![None; one.values.len()]);
            if let Some(count) = values.get_mut(step) {
                *count = Some(count.unwrap_or_default() + 1.0);
            }
        }
    }
    counts.into_iter().map(|(labels, values)| LabelledSeries { labels, values }).collect()
}

/// Returns a number in the form that Prometheus uses in a label.
fn number_text(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        value.to_string()
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

/// Returns the series, reduced to the values that are among the `count` largest or smallest at
/// their step. If there is only one step, the returned series are sorted by value.
fn pick(mut members: Vec<LabelledSeries>, count: usize, is_largest: bool) -> Vec<LabelledSeries> {
    let steps = members.first().map_or(0, |member| member.values.len());
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(members.len());
    for step in 0..steps {
        order.clear();
        order
            .extend(members.iter().enumerate().filter_map(|(place, member)| Some((member.at(step)?, place))));
        order.sort_by(|(one, _), (other, _)| {
            // NaN comes last in both orders.
            let values = if is_largest { other.total_cmp(one) } else { one.total_cmp(other) };
            one.is_nan().cmp(&other.is_nan()).then(values)
        });
        // Only the value is removed, not the series, because the series may be among the largest at
        // another step.
        for (_, place) in order.iter().skip(count) {
            let value = members.get_mut(*place).and_then(|member| member.values.get_mut(step));
            if let Some(value) = value {
                *value = None;
            }
        }
    }
    // The order of the series matters only in an answer with a single step.
    if steps == 1 {
        let mut places: Vec<Option<LabelledSeries>> = members.into_iter().map(Some).collect();
        let picked = order.iter().take(count);
        return picked.filter_map(|(_, place)| places.get_mut(*place)?.take()).collect();
    }
    members.retain(LabelledSeries::has_values);
    members
}
