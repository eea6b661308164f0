//! Options of CSV imports.

use jiff::tz::TimeZone;

use super::columns::CsvColumns;
use super::numeral::DecimalMark;
use super::text_encoding::TextEncoding;
use super::time_form::TimeForm;
use crate::row_times::RowOrder;

/// Options of a CSV import. The import adds no finding for a property that an option states.
#[derive(Debug, Clone)]
pub struct CsvOptions {
    /// Options about columns.
    pub columns: CsvColumns,
    /// The time format. If `None`, the importer recognizes the format from the file.
    pub time_form: Option<TimeForm>,
    /// The zone of times without an offset. If `None`, the zone that is stated in the file applies.
    /// If the file states no zone, `host_zone` applies.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
    /// The delimiter between cells. If `None`, the importer recognizes the delimiter from the file.
    pub delimiter: Option<u8>,
    /// The decimal mark. If `None`, the importer recognizes the decimal mark from the file.
    pub decimal: Option<DecimalMark>,
    /// Number of lines before the header. If `None`, the importer recognizes this count from the
    /// file.
    pub skip_lines: Option<u64>,
    /// The encoding. If `None`, the importer recognizes the encoding from the file.
    pub encoding: Option<TextEncoding>,
    /// The order of rows. If `None`, the importer chooses the order from the times of the rows.
    pub order: Option<RowOrder>,
    /// Words for missing values. An empty cell is always a missing value.
    pub absent: Vec<String>,
    /// Names of the sources, one per file. If the list is empty, the names are derived from the
    /// files.
    pub names: Vec<String>,
}
