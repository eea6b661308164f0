//! The place of a series in the tables of a query. It consists of the series' field, element and
//! state, as answers name them.

use std::collections::BTreeSet;
use std::ops::Range;

use flatcap_format::segment::SourceSender;
use flatcap_query::quoted_value;

use super::answers::{FieldDeparture, FieldName, ProcessEnding};
use super::attribution::label_of;
use super::baseline::Baseline;
use super::departure::Departure;
use super::measure::{Measure, ValueClass};
use super::measured_samples::{Measured, WantedSeries, read_field};
use super::observation::SeriesInfo;
use super::reading::ReadResults;

/// The place of a series.
pub(super) struct SeriesPlace<'s> {
    table: usize,
    column: usize,
    element: Option<u32>,
    state: Option<&'s str>,
}

/// A value with its usual level and range, in the unit of its class.
pub(super) struct ValueParts {
    pub(super) class: ValueClass,
    pub(super) value: f64,
    pub(super) usual: Baseline,
    pub(super) score: f64,
    pub(super) wall_ns: i64,
    pub(super) is_early: bool,
    /// The end of the process, if the departure is its end.
    pub(super) ended: Option<ProcessEnding>,
}

impl<'s> SeriesPlace<'s> {
    pub(super) fn of_departure(departure: &'s Departure) -> Self {
        let Departure { table, column, element, state, .. } = departure;
        Self { table: *table, column: *column, element: *element, state: state.as_deref() }
    }

    pub(super) fn of_series(info: &'s SeriesInfo) -> Self {
        let SeriesInfo { table, column, element, state, .. } = info;
        Self { table: *table, column: *column, element: *element, state: state.as_deref() }
    }

    /// Returns the path of the field below the source.
    fn field(&self, read: &ReadResults) -> String {
        let Some(table) = read.results.tables().get(self.table) else { return String::new() };
        match table.columns.get(self.column) {
            Some(column) => table.path(column),
            // A count of offspring describes the whole list, so it has no column.
            None => table.list.as_deref().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the name of the field, with the name that the element had at a wall time.
    pub(super) fn field_name(&self, wall_ns: i64, read: &ReadResults) -> FieldName {
        let (source, source_id) = self.source(read);
        let names = read.results.elements();
        // A process may run another program during the recording. The reader searches for the name
        // at the time of the departure.
        let element = self.element.map(|element| label_of(names, read.set.name_at(names, element, wall_ns)));
        let stated = |path: String| match self.state {
            Some(state) => format!("{path}={state}"),
            None => path,
        };
        let field = self.field(read);
        // The recording knows which sources share a name or a path, and adds an id or quotes.
        let path = stated(read.recording.path((source, source_id), &field));
        let name = match &element {
            Some(element) => format!("{element} {path}"),
            None => path,
        };
        FieldName { source: source.to_owned(), source_id, field: stated(field), element, name }
    }

    /// Returns the name of the source, and its id if other sources have the same name.
    fn source<'r>(&self, read: &'r ReadResults) -> (&'r str, Option<u16>) {
        read.results.tables().get(self.table).map_or(("", None), |table| (&table.source, table.instance))
    }

    /// Returns a description of the series, so that it can be measured in a window of wall time.
    pub(super) fn wanted(&self, measure: Measure, window: Range<i64>, read: &ReadResults) -> WantedSeries {
        let (names, (source, source_id)) = (read.results.elements(), self.source(read));
        // The element is found by its identity, not by its name, because an element that was
        // renamed within the window stays the same.
        let name = self.element.map(|element| read.set.name_at(names, element, window.end));
        // After a reload a source may have another period. The longest period makes sure that
        // enough is read.
        let periods = read.sources.iter().filter(|other| other.name == source);
        let field = read_field(measure, self.field(read));
        WantedSeries {
            source: source.to_owned(),
            source_id,
            period_ns: periods.map(|source| source.period_ns).max().unwrap_or_default(),
            path: read.recording.path((source, source_id), &field),
            field,
            identity: name.map(|name| names.identity(name).to_vec()).unwrap_or_default(),
            label: name.map(|name| names.label(name).to_owned()),
            state: self.state.map(Into::into),
            measure,
            window,
            born_wall_ns: None,
            inherited: self.element.map(|element| read.set.inherited(element)).unwrap_or_default(),
            choice: read.choice.clone(),
        }
    }

    /// Returns a departure with its measured value, or with the ranked value if no value was
    /// measured.
    pub(super) fn departure(
        &self,
        parts: &ValueParts,
        measured: Option<Measured>,
        read: &ReadResults,
    ) -> FieldDeparture {
        let (unit, factor) = parts.class.unit();
        let FieldName { source, source_id, field, element, name } = self.field_name(parts.wall_ns, read);
        let column = read.results.tables().get(self.table).and_then(|table| table.columns.get(self.column));
        let of_source = read.sources.iter().filter(|other| other.name == source);
        let senders: BTreeSet<&SourceSender> =
            of_source.filter_map(|own| own.instances.get(&source_id)).flatten().collect();
        let (value, measurement) = match measured {
            Some((value, measurement)) => (value, Some(measurement)),
            None => (parts.value, None),
        };
        FieldDeparture {
            wall_ns: parts.wall_ns,
            // This path has no source id, because a chart shows the lines of all sources with this
            // name.
            path: element_path(&read.recording.path((&source, None), &self.field(read)), element.as_deref()),
            source,
            source_id,
            field,
            element,
            value: value * factor,
            usual: parts.usual.level * factor,
            usual_low: parts.usual.low * factor,
            usual_high: parts.usual.high * factor,
            unit,
            is_early: parts.is_early,
            field_unit: column
                .filter(|_| self.state.is_none())
                .and_then(|column| column.unit.as_deref().map(str::to_owned)),
            score: parts.score,
            measurement,
            senders: senders.into_iter().cloned().collect(),
            state: self.state.map(str::to_owned),
            ended: parts.ended.clone(),
            name,
        }
    }
}

/// Returns the path of a field of one element. The element belongs to the last list of the path.
fn element_path(path: &str, element: Option<&str>) -> String {
    match (path.rsplit_once("[*]"), element) {
        (Some((list, rest)), Some(element)) => format!("{list}[{}]{rest}", quoted_value(element)),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use flatcap_query::FieldPath;

    use super::*;

    // Proves that a query accepts the path of an element, whatever the element's name.
    #[test]
    fn paths_of_elements_are_accepted() {
        assert_eq!(element_path("cpu.total.user", None), "cpu.total.user");
        assert_eq!(element_path("disk.devices[*].reads", Some("vda")), "disk.devices[\"vda\"].reads");
        for name in ["a\"b", "x]y[", "a=b,c", "<script>", "\u{202e}evil"] {
            let path = element_path("process.processes[*].run_time", Some(name));
            assert!(path.parse::<FieldPath>().is_ok(), "{path}");
        }
    }
}
