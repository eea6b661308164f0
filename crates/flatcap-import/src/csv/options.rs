//! Options of CSV imports.

use jiff::tz::TimeZone;

use super::columns::CsvColumns;
use super::numeral::DecimalMark;
use super::text_encoding::TextEncoding;
use super::time_form::TimeForm;
use crate::row_times::RowOrder;

/// Options of a CSV import. A stated property is used without a finding.
#[derive(Debug, Clone)]
pub struct CsvOptions {
    /// Options about columns.
    pub columns: CsvColumns,
    /// The time format. If `None`, it is recognized.
    pub time_form: Option<TimeForm>,
    /// The zone of times without an offset. If `None`, the zone that the file names applies, or
    /// else `host_zone`.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
    /// The delimiter between cells. If `None`, it is recognized.
    pub delimiter: Option<u8>,
    /// The decimal mark. If `None`, it is recognized.
    pub decimal: Option<DecimalMark>,
    /// Number of lines before the header. If `None`, it is recognized.
    pub skip_lines: Option<u64>,
    /// The encoding. If `None`, it is recognized.
    pub encoding: Option<TextEncoding>,
    /// The order of rows. If `None`, it is chosen according to the times of the rows.
    pub order: Option<RowOrder>,
    /// Words for missing values. An empty cell is always a missing value.
    pub absent: Vec<String>,
    /// Names of the sources, one per file. If the list is empty, the names are derived from the
    /// files.
    pub names: Vec<String>,
}
