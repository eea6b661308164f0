//! Chooses the charts and tables of a recording from the fields, units, kinds and lists in its
//! schemas.

use flatcap_format::schema::MetricKind;
use flatcap_query::{
    DrawnValue, FieldInfo, Formula, FormulaField, PathError, Recording, SourceFields, exact_path,
};

use super::element_shape::{ElementShape, leaf_of, list_of};
use super::known::{CHARTS, KnownValue, columns};

/// Maximum number of charts of a source that has no well-known charts.
const OTHER_CHARTS: usize = 2;
/// Maximum number of charts of a source if no source of the recording has a well-known chart, for
/// example in an imported recording.
const OTHER_CHARTS_ALONE: usize = 6;
/// Maximum number of columns of a table if the fields of its list are not well known.
const OTHER_COLUMNS: usize = 12;

/// The charts and tables that a recording offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// The charts of the overview, the most informative first.
    pub charts: Vec<Chart>,
    /// Tables of processes, control groups, disks and interfaces.
    pub tables: Vec<ElementTable>,
    /// Charts of all numeric fields, grouped by source.
    pub fields: Vec<Chart>,
}

/// A chart of a value over time. For a list, the value is the largest value of its elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Title of the chart.
    pub title: String,
    /// Name of the source.
    pub source: String,
    /// The source's nominal period in nanoseconds, or 0 if the source has no period.
    pub period_ns: u64,
    /// Formula that computes the value.
    pub formula: Formula,
    /// Whether the scale is fixed at 0 to 100 %.
    pub is_share: bool,
    /// The field's description in the schema, or an empty string if the value combines several
    /// fields.
    pub meaning: String,
}

/// A list whose elements are the rows of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementTable {
    /// Kind of the elements.
    pub shape: ElementShape,
    /// Name of the source.
    pub source: String,
    /// The source's nominal period in nanoseconds, or 0 if the source has no period.
    pub period_ns: u64,
    /// The columns, the most informative first.
    pub columns: Vec<TableColumn>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// Heading of the column.
    pub title: String,
    /// Value of the column.
    pub value: ColumnValue,
}

/// The value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue {
    /// A number.
    Number(Formula),
    /// The string at this path below the source.
    Text(String),
}

impl Chart {
    /// Returns the value to draw. If the chart shows one field with exact changes, returns the
    /// field itself, separately for each element. Otherwise returns the chart's formula.
    pub(super) fn drawn(&self) -> Result<DrawnValue, PathError> {
        match self.formula.exact_path() {
            Some(own) => exact_path(&self.source, own).parse(),
            None => DrawnValue::of_formula(&self.source, &self.formula),
        }
    }
}

impl Catalog {
    /// Returns the charts and tables that a recording offers.
    pub fn of(recording: &Recording) -> Self {
        let sources = recording.fields();
        let mut catalog = Self { charts: known_charts(&sources), ..Self::default() };
        // Without well-known charts, the charts below are the only charts, so each source may have
        // more charts.
        let most = if catalog.charts.is_empty() { OTHER_CHARTS_ALONE } else { OTHER_CHARTS };
        for source in &sources {
            let fields = field_charts(source);
            if !catalog.charts.iter().any(|chart| chart.source == source.source) {
                let moving = fields.iter().filter(|(kind, _)| is_measured(*kind));
                catalog.charts.extend(moving.take(most).map(|(_, chart)| {
                    let leaf = chart.title.rsplit('.').next().unwrap_or_default();
                    Chart { title: format!("{} {leaf}", chart.source), ..chart.clone() }
                }));
            }
            catalog.fields.extend(fields.into_iter().map(|(_, chart)| chart));
            catalog.tables.extend(tables(source));
        }
        catalog.tables.sort_by_key(|table| table.shape);
        catalog
    }

    /// Returns the first table whose elements have this shape.
    pub fn table(&self, shape: ElementShape) -> Option<&ElementTable> {
        self.tables.iter().find(|table| table.shape == shape)
    }
}

fn is_measured(kind: MetricKind) -> bool {
    matches!(kind, MetricKind::Counter | MetricKind::Gauge)
}

/// Returns the well-known charts whose fields are recorded.
fn known_charts(sources: &[SourceFields]) -> Vec<Chart> {
    let charts = CHARTS.iter().filter_map(|known| {
        let source = sources.iter().find(|source| source.source == known.source)?;
        let fields: Vec<&FieldInfo> = source.fields.iter().collect();
        let ColumnValue::Number(formula) = known_value(known.value, known.list, &fields)? else {
            return None;
        };
        Some(Chart {
            title: known.title.to_owned(),
            source: source.source.clone(),
            period_ns: source.period_ns,
            is_share: formula.unit == "%",
            formula,
            meaning: String::new(),
        })
    });
    charts.collect()
}

/// Returns a chart for each numeric field of a source, with its kind.
fn field_charts(source: &SourceFields) -> Vec<(MetricKind, Chart)> {
    let mut charts: Vec<(MetricKind, Chart)> = Vec::new();
    for field in &source.fields {
        let is_text = field.kind == MetricKind::Text || field.type_name == "string";
        // Different runs may record one field with different types.
        let is_known =
            charts.iter().any(|(_, chart)| chart.formula.fields.iter().all(|own| own.path == field.path));
        if is_text || is_known {
            continue;
        }
        let formula = Formula::of_field(&field.path, field.unit.as_deref(), field.kind);
        let chart = Chart {
            title: format!("{}.{}", source.source, field.path.replace("[*]", "")),
            source: source.source.clone(),
            period_ns: source.period_ns,
            is_share: formula.unit == "%",
            formula,
            meaning: field.meaning.clone(),
        };
        charts.push((field.kind, chart));
    }
    charts
}

/// Returns the tables of a source's lists.
fn tables(source: &SourceFields) -> Vec<ElementTable> {
    let mut lists: Vec<&str> = source.fields.iter().filter_map(|field| list_of(&field.path)).collect();
    // Fields of the same list are adjacent in a schema, so equal names are neighbours.
    lists.dedup();
    let table = |list: &str| {
        let fields: Vec<&FieldInfo> =
            source.fields.iter().filter(|field| list_of(&field.path) == Some(list)).collect();
        let shape = ElementShape::of(list, &fields)?;
        let known = columns(shape).iter().filter_map(|(title, value)| {
            let value = known_value(*value, list, &fields)?;
            Some(TableColumn { title: (*title).to_owned(), value })
        });
        let mut columns: Vec<TableColumn> = known.collect();
        // A list that another program pushes may lack all known numbers. Its columns are then
        // chosen by their kind.
        if !columns.iter().any(|column| matches!(column.value, ColumnValue::Number(_))) {
            columns.extend(fields.iter().filter(|field| is_measured(field.kind)).take(OTHER_COLUMNS).map(
                |field| {
                    let formula = Formula::of_field(&field.path, field.unit.as_deref(), field.kind);
                    TableColumn {
                        title: leaf_of(&field.path).to_owned(),
                        value: ColumnValue::Number(formula),
                    }
                },
            ));
        }
        let (source, period_ns) = (source.source.clone(), source.period_ns);
        (!columns.is_empty()).then_some(ElementTable { shape, source, period_ns, columns })
    };
    lists.into_iter().filter_map(table).collect()
}

/// Returns a well-known value of the elements of `list`, or of the source itself if `list` is
/// empty. Returns `None` if a required field is not recorded.
fn known_value(value: KnownValue, list: &str, fields: &[&FieldInfo]) -> Option<ColumnValue> {
    let path = |name: &str| if list.is_empty() { name.to_owned() } else { format!("{list}[*].{name}") };
    let find = |name: &str| {
        let path = path(name);
        fields.iter().copied().find(|field| field.path == path)
    };
    let one = |name: &&str| {
        find(name).map(|field| Formula::of_field(&field.path, field.unit.as_deref(), field.kind))
    };
    let weighted = |names: &[&str], part: f64, whole: f64| -> Vec<(&FieldInfo, f64, f64)> {
        names.iter().filter_map(|name| find(name)).map(|field| (field, part, whole)).collect()
    };
    Some(ColumnValue::Number(match value {
        KnownValue::Text(name) => return find(name).map(|field| ColumnValue::Text(field.path.clone())),
        KnownValue::Sum(names) => names.iter().filter_map(one).reduce(Formula::plus)?,
        KnownValue::Share(part, rest) => {
            let both = [weighted(part, 1.0, 1.0), weighted(rest, 0.0, 1.0)];
            quotient(&both, "%", 100.0)?
        }
        KnownValue::Used(total, free) => {
            quotient(&[weighted(&[total], 1.0, 1.0), weighted(&[free], -1.0, 0.0)], "%", 100.0)?
        }
        KnownValue::TimePer(times, counts) => {
            quotient(&[weighted(times, 1.0, 0.0), weighted(counts, 0.0, 1.0)], "s", 1e-3)?
        }
    }))
}

/// Returns a quotient of two weighted sums of fields, or `None` if a group has no field.
fn quotient(groups: &[Vec<(&FieldInfo, f64, f64)>], unit: &str, factor: f64) -> Option<Formula> {
    if groups.iter().any(Vec::is_empty) {
        return None;
    }
    let weighted = || groups.iter().flatten();
    let fields = weighted().map(|(field, part, whole)| FormulaField {
        path: field.path.clone(),
        is_counter: field.kind == MetricKind::Counter,
        part: *part,
        whole: *whole,
    });
    let fields: Vec<FormulaField> = fields.collect();
    let counted = weighted().filter(|(field, ..)| field.kind == MetricKind::Counter);
    // The coarsest counter determines the time over which a change is accurate.
    let resolution_ns =
        counted.map(|(field, ..)| Formula::resolution_ns(field.unit.as_deref())).max().unwrap_or(0);
    Some(Formula { fields, unit: unit.to_owned(), quotient: Some(factor), resolution_ns })
}
