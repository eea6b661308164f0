//! Collects the samples of one source as rows of tables.

use std::collections::BTreeMap;

use flatcap_format::block::MatrixRows;
use flatcap_format::schema::{ColumnType, DecodeError};
use flatcap_format::segment::SampleView;

use super::filter::{RowFilter, keep_visible};
use super::row_visitor::RowVisitor;
use super::struct_rows::StructElements;
use super::table_rows::{TableRows, next_space};
use super::template::{MatrixSlice, SampleTemplate};
use super::template_cache::TemplateCache;
use crate::columns::batch::{BatchTimes, ColumnBatch};
use crate::columns::column::ValueColumn;
use crate::names::elements::ElementNames;
use crate::plan::SourcePlan;

/// The collectors of a query. The key is the id of the source in the current run.
pub(crate) type Collectors = BTreeMap<u16, Collector>;

/// Number of bytes of a payload that count as one value if strings are read from it. This number is
/// chosen so that a batch has at most about 32 MiB of strings.
// A reader may write a string for each row, although the batch stores equal strings only one time.
const VALUE_PAYLOAD_BYTES: usize = 128;

/// Collects the samples of one source.
#[derive(Debug)]
pub(crate) struct Collector {
    /// The source's id.
    source: u16,
    pub(crate) plan: SourcePlan,
    times: BatchTimes,
    /// Number of samples for which a new batch reserves space.
    space: usize,
    /// Total length of the payloads of the collected samples, in bytes. The strings of these
    /// samples together are not longer than the payloads.
    payload_bytes: usize,
    has_texts: bool,
    tables: Vec<TableRows>,
    templates: TemplateCache,
    /// The known elements of lists of structs. `None` while payloads are walked value by value.
    elements: Option<StructElements>,
    pub(super) filter: Option<RowFilter>,
}

impl Collector {
    pub(crate) fn new(source: u16, plan: SourcePlan, filter: Option<RowFilter>) -> Self {
        let tables = plan.tables.iter().map(TableRows::new).collect();
        let mut columns = plan.tables.iter().flat_map(|table| &table.columns);
        let has_texts = columns.any(|column| column.column_type == ColumnType::Text);
        Self {
            source,
            plan,
            times: BatchTimes::default(),
            space: 0,
            payload_bytes: 0,
            has_texts,
            tables,
            templates: TemplateCache::default(),
            elements: Some(StructElements::default()),
            filter,
        }
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// The payload does not fit its schema. In this case the collector keeps no row of the payload.
    pub(crate) fn add(
        &mut self,
        sample: &SampleView<'_>,
        names: &mut ElementNames,
    ) -> Result<(), DecodeError> {
        let number = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let Self { plan, tables, templates, .. } = self;
        if let Some((template, is_same)) = templates.find(sample.payload) {
            // The previous sample had the same template, so the elements still have the names from
            // this template.
            if !is_same {
                template.name_elements(names);
            }
            template.append_payload(&plan.schema, sample.payload, number, tables);
        } else {
            self.walk(sample, number, names)?;
            // A payload without a schema has no fields, so its template would fit only identical
            // payloads.
            if !self.plan.schema.is_opaque() {
                self.templates.learn(&self.plan, sample.payload, names);
            }
        }
        self.times.push(sample);
        self.payload_bytes += sample.payload.len();
        Ok(())
    }

    /// Reads all values of a payload, and adds them as a sample.
    ///
    /// # Errors
    /// The payload does not fit its schema. In this case the collector keeps no row of the payload.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn add_walked(
        &mut self,
        sample: &SampleView<'_>,
        names: &mut ElementNames,
    ) -> Result<(), DecodeError> {
        let number = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let elements = self.elements.take();
        let walked = self.walk(sample, number, names);
        self.elements = elements;
        walked?;
        self.times.push(sample);
        Ok(())
    }

    fn walk(
        &mut self,
        sample: &SampleView<'_>,
        number: u32,
        names: &mut ElementNames,
    ) -> Result<(), DecodeError> {
        let to = (self.tables.as_mut_slice(), self.elements.as_mut(), names);
        walk_payload(&self.plan, to, sample.payload, number)
    }

    /// Adds rows of a matrix whose columns are loaded. `template` is the template of the first row.
    pub(super) fn add_rows(
        &mut self,
        template: &SampleTemplate,
        matrix: &MatrixRows,
        rows: std::ops::Range<usize>,
        names: &mut ElementNames,
    ) {
        let number = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        // These rows give their elements the names from another template, so the next payload must
        // set the names of its elements again.
        self.templates.interrupt();
        template.name_elements(names);
        let slice = MatrixSlice { matrix, rows: rows.clone() };
        template.append_rows(&self.plan.schema, &slice, number, &mut self.tables);
        self.payload_bytes += rows.len() * matrix.first().len();
        self.times.extend(matrix, rows);
    }

    /// Returns the number of collected values. Long strings count as several values.
    pub(crate) fn values(&self) -> usize {
        let texts = if self.has_texts { self.text_bytes() / VALUE_PAYLOAD_BYTES } else { 0 };
        texts + self.tables.iter().map(|table| table.rows() * table.columns.len()).sum::<usize>()
    }

    /// Returns an upper bound on the length of the strings of the collected samples, in bytes.
    /// Bytes that are not UTF-8 become up to four times as long when they are escaped.
    fn text_bytes(&self) -> usize {
        let mut columns = self.tables.iter().flat_map(|table| &table.columns);
        let expansion = if columns.any(ValueColumn::may_be_escaped) { 4 } else { 1 };
        self.payload_bytes * expansion
    }

    /// Returns the number of collected samples.
    pub(crate) fn samples(&self) -> usize {
        self.times.len()
    }

    /// Moves the rows before a monotonic time to `batches`. Adds one batch for each table, even if
    /// the table has no rows.
    pub(crate) fn take(&mut self, before_ns: u64, batches: &mut impl Extend<ColumnBatch>) {
        let count = self.times.before(before_ns);
        if count == 0 {
            return;
        }
        self.space = next_space(self.space, self.times.len());
        let later = self.times.split_off(count, self.space);
        // The payloads of a source have similar lengths, so the number of bytes is reduced in
        // proportion to the number of samples.
        self.payload_bytes = self.payload_bytes / (count + later.len()) * later.len();
        let times = std::mem::replace(&mut self.times, later);
        let Self { source, plan, tables, filter, .. } = self;
        let all = (tables.iter_mut().zip(&plan.tables).zip(&plan.numbers))
            .map(|((rows, info), number)| rows.take(info, (*source, *number), times.clone()));
        let mut all: Vec<ColumnBatch> = all.collect();
        // The counter columns must be added before the filter, which keeps only the requested
        // columns.
        plan.counters.add_to(&mut all);
        match filter {
            Some(filter) => batches.extend(filter.apply(plan, all)),
            None => batches.extend(keep_visible(plan, all)),
        }
    }
}

/// Reads all values of a payload, and appends them as rows of the sample with this position in the
/// batch. Reads a list of structs in one step if `elements` is present.
///
/// # Errors
/// The payload does not fit its schema. In this case no row of the payload remains in the tables.
pub(super) fn walk_payload(
    plan: &SourcePlan,
    (tables, structs, names): (&mut [TableRows], Option<&mut StructElements>, &mut ElementNames),
    payload: &[u8],
    number: u32,
) -> Result<(), DecodeError> {
    // A walk may fail in the middle of a payload, after it has appended rows.
    let before: Vec<usize> = tables.iter().map(TableRows::rows).collect();
    // In these tables, row i belongs to sample i, so a sample without values also needs a row.
    for table in tables.iter_mut().filter(|table| !table.is_list) {
        table.begin_row();
    }
    names.begin_sample();
    let mut visitor = RowVisitor::new(&plan.root, tables, names, number);
    visitor.structs = structs.map(|elements| (&plan.schema, elements));
    if let Err(error) = plan.schema.walk(payload, &mut visitor) {
        for (table, rows) in tables.iter_mut().zip(before) {
            table.truncate(rows);
        }
        return Err(error);
    }
    Ok(())
}
