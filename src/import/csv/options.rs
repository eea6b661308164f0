//! What a user states about CSV files.

use jiff::tz::TimeZone;

use super::columns::CsvColumns;
use super::numeral::DecimalMark;
use super::row_times::RowOrder;
use super::text_encoding::TextEncoding;
use super::time_form::TimeForm;

/// Options of an import. What is stated is no guess.
#[derive(Debug, Clone)]
pub struct CsvOptions {
    /// What is stated about columns.
    pub columns: CsvColumns,
    /// The form of times; recognized without it.
    pub time_form: Option<TimeForm>,
    /// The zone of times without an offset; that which the file names, or `host_zone`, without it.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
    /// The byte between cells; recognized without it.
    pub delimiter: Option<u8>,
    /// The decimal mark; recognized without it.
    pub decimal: Option<DecimalMark>,
    /// Lines before the header; recognized without it.
    pub skip_lines: Option<u64>,
    /// The encoding; recognized without it.
    pub encoding: Option<TextEncoding>,
    /// The order of rows; decided by their times without it.
    pub order: Option<RowOrder>,
    /// Cells with one of these texts are absent, as empty ones are.
    pub absent: Vec<String>,
    /// Names of the sources, one per file; if empty, derived from the files.
    pub names: Vec<String>,
}
