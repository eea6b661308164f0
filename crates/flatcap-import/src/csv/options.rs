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
    /// The time format; recognized if `None`.
    pub time_form: Option<TimeForm>,
    /// The zone of times without an offset. If `None`, the file names it, or `host_zone` applies.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
    /// The delimiter between cells; recognized if `None`.
    pub delimiter: Option<u8>,
    /// The decimal mark; recognized if `None`.
    pub decimal: Option<DecimalMark>,
    /// Number of lines before the header; recognized if `None`.
    pub skip_lines: Option<u64>,
    /// The encoding; recognized if `None`.
    pub encoding: Option<TextEncoding>,
    /// The order of rows; chosen from their times if `None`.
    pub order: Option<RowOrder>,
    /// Words for missing values. An empty cell is a missing value, too.
    pub absent: Vec<String>,
    /// Names of the sources, one per file; if empty, derived from the files.
    pub names: Vec<String>,
}
