//! Finds the columns of a query's batches that contain metrics, and creates the labels of their
//! rows.

use flatcap_format::schema::ColumnType;
use flatcap_query::metric::{HostLabels, Metric, MetricSeries};
use flatcap_query::{ColumnInfo, ElementName, ElementNames, TableInfo};

use crate::labels::{Labels, NAME};

/// Returns whether a column contains the values of a metric.
pub(crate) fn is_number(info: &ColumnInfo) -> bool {
    info.column_type != ColumnType::Text && !info.is_identity
}

/// Returns the labels of a series.
pub(crate) fn labels_of(
    metric: &Metric,
    (host, table): (&HostLabels, &TableInfo),
    element: Option<ElementName>,
    names: &ElementNames,
) -> Labels {
    let MetricSeries { name, labels } = metric.series((host, table), element, names);
    Labels::new(labels.into_iter().chain([(NAME.to_owned(), name)]))
}
