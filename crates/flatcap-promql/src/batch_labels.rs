//! The labels of the rows of a query's batches.

use std::collections::HashMap;

use flatcap_format::metric::{HostLabels, Metric};
use flatcap_format::query::{ColumnInfo, ElementNames};
use flatcap_format::schema::ColumnType;

use crate::labels::{Labels, NAME};

/// What the rows of one column of one batch belong to, by element: looked up once for each.
pub(crate) struct RowOwners<T> {
    by_element: HashMap<Option<u32>, T>,
}

impl<T: Copy> RowOwners<T> {
    pub(crate) fn new() -> Self {
        Self { by_element: HashMap::new() }
    }

    /// Returns what rows of an element belong to.
    pub(crate) fn of(&mut self, element: Option<u32>, find: impl FnOnce() -> T) -> T {
        *self.by_element.entry(element).or_insert_with(find)
    }
}

/// Returns whether a column has values of a metric.
pub(crate) fn is_number(info: &ColumnInfo) -> bool {
    info.column_type != ColumnType::Text && !info.is_identity
}

/// Returns the labels of a series.
pub(crate) fn labels_of(
    metric: &Metric,
    host: &HostLabels,
    element: Option<u32>,
    names: &ElementNames,
) -> Labels {
    Labels::new(host.series(element, names).into_iter().chain([(NAME.to_owned(), metric.name())]))
}
