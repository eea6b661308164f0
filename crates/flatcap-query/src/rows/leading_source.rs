//! Chooses the leading source of a query. Each sample of the leading source is a row.

use std::collections::{BTreeMap, HashMap};

use super::layout::RowColumn;
use crate::plan::TableInfo;

/// The leading source, which is the source with the shortest period. If several sources have the
/// shortest period, the first requested one of them is the leading source. If rows are elements,
/// the leading source must have a list. If other sources have the same name, they are leading
/// sources, too.
#[derive(Debug)]
pub(super) struct LeadingSource {
    is_long: bool,
    /// The index in `sources` for each name of a source.
    names: HashMap<Box<str>, usize>,
    sources: Vec<NamedSource>,
    /// Number of tables and number of columns that were already examined.
    tables: usize,
    columns: usize,
    /// Number of source names that have had a sample in the run.
    came: usize,
    /// The rank and the index of the leading source name, among the names that have had samples in
    /// the run.
    best: Option<(SourceOrder, usize)>,
}

/// The sources that share one name.
#[derive(Debug)]
struct NamedSource {
    period_ns: u64,
    first_column: (usize, usize),
    has_list: bool,
    /// The position of the source in the order of the first samples in the run, or `None` before
    /// its first sample.
    came: Option<usize>,
}

/// The sort key of sources. It consists of the period, the position of the first column, and the
/// position of the first sample. The source with the smallest key is the leading source.
type SourceOrder = (u64, (usize, usize), usize);

impl LeadingSource {
    pub(super) fn new(is_long: bool) -> Self {
        let (names, sources) = (HashMap::new(), Vec::new());
        Self { is_long, names, sources, tables: 0, columns: 0, came: 0, best: None }
    }

    /// Returns the index of the leading source's name.
    pub(super) fn name(&self) -> usize {
        self.best.map_or(0, |(_, name)| name)
    }

    /// Clears the record of the sources that have had samples, because a new run begins.
    pub(super) fn begin_run(&mut self) {
        // Only a source with samples in the run can be the leading source.
        self.sources.iter_mut().for_each(|source| source.came = None);
        (self.came, self.best) = (0, None);
    }

    /// Adds a batch of a table, and new tables and columns. Returns the index of the source name to
    /// which the table belongs.
    pub(super) fn add(
        &mut self,
        tables: &[TableInfo],
        table: usize,
        columns: &[RowColumn],
        periods: &BTreeMap<String, u64>,
    ) -> usize {
        let mut changed = Vec::new();
        for info in tables.iter().skip(self.tables) {
            let name = self.number(&info.source, periods);
            if let Some(source) = self.sources.get_mut(name) {
                source.has_list |= info.list.is_some();
            }
            changed.push(name);
        }
        for column in columns.iter().skip(self.columns) {
            let name = self.number(&column.source, periods);
            if let Some(source) = self.sources.get_mut(name) {
                source.first_column = source.first_column.min(column.order);
            }
            changed.push(name);
        }
        (self.tables, self.columns) = (tables.len(), columns.len());
        let name = tables.get(table).map_or(0, |info| self.number(&info.source, periods));
        if let Some(source) = self.sources.get_mut(name).filter(|source| source.came.is_none()) {
            source.came = Some(self.came);
            self.came += 1;
        }
        changed.push(name);
        for name in changed {
            let Some(source) = self.sources.get(name) else { continue };
            let Some(came) = source.came.filter(|_| !self.is_long || source.has_list) else { continue };
            let order = (source.period_ns, source.first_column, came);
            // The sort key of a source never increases while the run is read.
            if self.best.is_none_or(|(best, own)| own == name || order < best) {
                self.best = Some((order, name));
            }
        }
        name
    }

    fn number(&mut self, name: &str, periods: &BTreeMap<String, u64>) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.sources.len();
        // A source without a period must not be the leading source, because its samples may be far
        // apart.
        let period_ns = periods.get(name).copied().filter(|period_ns| *period_ns > 0).unwrap_or(u64::MAX);
        let first_column = (usize::MAX, 0);
        self.sources.push(NamedSource { period_ns, first_column, has_list: false, came: None });
        self.names.insert(name.into(), number);
        number
    }
}
