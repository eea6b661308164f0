//! Headers within a file. The headers determine which records belong to the first table.

use super::cells::Cells;
use super::columns::CsvHeader;
use crate::findings::{FindingKind, ImportFindings, Tally};

/// The part of a file to which a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordPart {
    /// A row of the first table, or a line that is not a row of any table.
    Own,
    /// A repetition of the first header, as in concatenated files.
    Header,
    /// The header of another table, or a row below that header.
    OtherTable,
}

/// Keeps track of the headers of a file. A header applies to the rows after it, until the next
/// header.
#[derive(Debug, Default)]
pub(super) struct Sections {
    is_other: bool,
    /// The line of the first header that belongs to another table, and the number of rows in all
    /// other tables.
    others: Tally,
}

impl Sections {
    /// Returns the part of the file to which the next record belongs.
    pub(super) fn part(&mut self, header: &CsvHeader, cells: &Cells, line: u64) -> RecordPart {
        if header.is_repeated(cells) {
            self.is_other = false;
            return RecordPart::Header;
        }
        if header.is_other(cells) {
            self.is_other = true;
            if self.others.count == 0 {
                self.others.line = line;
            }
        } else if self.is_other {
            self.others.count += 1;
        } else {
            return RecordPart::Own;
        }
        RecordPart::OtherTable
    }

    /// Adds a finding if the file has other tables with rows.
    pub(super) fn report(&self, findings: &mut ImportFindings) {
        let what = "this is the header of another table; the rows after it, up to a header with the titles of the \
                    first, are left out: make a file of each table";
        findings.add(FindingKind::Header, self.others, what, None);
    }
}
