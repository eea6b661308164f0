//! Imports files with several tables, and files with columns whose title is missing or not specific
//! enough.

use super::*;

// Proves that rows after the header of another table are not read as rows of the first table, even
// if they have its width and times. A finding reports the line of that header. A header applies
// until the next header, with and without a comment mark.
#[test]
fn a_header_applies_until_the_next_one() {
    let table = |mark: &str| {
        format!(
            "{mark}host;interval;timestamp;CPU;idle\nvm;1;2026-11-29 18:19:05;-1;10\n{mark}host;interval;timestamp;\
             IFACE;rx\nvm;1;2026-11-29 18:19:05;7;20\nvm;1;2026-11-29 18:19:06;8;30\n{mark}host;interval;timestamp;\
             CPU;idle\nvm;1;2026-11-29 18:19:06;-1;40\n{mark}host;interval;timestamp;a\nvm;1;2026-11-29 18:19:06;5\n"
        )
    };
    for content in [table(""), table("# "), table("#")] {
        let imported = import_file(&content);
        let idle: Vec<_> = imported.rows.iter().map(|(_, values)| values[3].clone()).collect();
        assert_eq!(idle, [HeldValue::Unsigned(10), HeldValue::Unsigned(40)], "{content}");
        assert!(imported.report.flaws.is_empty() && imported.gaps == 0);
        let said: Vec<_> =
            imported.report.findings.iter().map(|found| (found.line, found.count, found.kind)).collect();
        assert_eq!(said, [(3, 3, FindingKind::Header)], "{content}");
    }
    // A different title of the time column starts a table. A comment with a comma does not start a
    // table.
    let content =
        "time,a\n2026-11-29 18:19:05,1\n# a, comment\n2026-11-29 18:19:06,2\nDate,b\n2026-11-29 18:19:07,3\n";
    let imported = import_file(content);
    assert_eq!(imported.rows.len(), 2);
    assert_eq!((imported.report.findings[0].line, imported.report.findings[0].count), (5, 1));
    // A comment that begins with the title of the time column does not start a table. A byte order
    // mark before the header of a joined file does not start one either.
    for line in ["# time,was set by hand", "\u{feff}time,a"] {
        let imported = import_file(&format!("time,a\n1700000000,1\n{line}\n1700000001,2\n"));
        assert_eq!(imported.rows.len(), 2, "{line}");
    }
}

// Proves that the column of row names, which has no title in files of R, does not shift any cell.
#[test]
fn names_of_rows_shift_no_cell() {
    let content =
        "\"date\",\"a\",\"b\"\n\"140\",\"2015-02-02 14:19:00\",1.5,2\n\"141\",\"2015-02-02 14:20:00\",,3\n";
    let imported = import_file(content);
    assert!(imported.report.is_complete(), "{:?} {:?}", imported.report.flaws, imported.report.findings);
    assert_eq!(imported.columns, ["data.column_1", "data.a", "data.b"]);
    let row = [HeldValue::Unsigned(140), HeldValue::Float(1.5), HeldValue::Unsigned(2)];
    assert_eq!(imported.rows[0], (1_422_886_740_000_000_000, row.to_vec()));
    // If no times show the shift, the rows are reported.
    let imported = import_file("date,a\n2015-02-02,1,2\n");
    assert_eq!((imported.rows.len(), imported.report.flaws.len()), (0, 1));
}

// Proves that the only column with times of day is combined with the date column if several rows
// have the same date. This is reported. If each row has a different date, the column is read as
// values, for example durations.
#[test]
fn times_of_day_need_no_title() {
    for title in ["Date", "Day"] {
        let imported = import_file(&format!(
            "{title},At,v\n2024-01-01,00:00,1\n2024-01-01,00:01,2\n2024-01-02,00:01,3\n"
        ));
        let times: Vec<_> =
            imported.rows.iter().map(|(ns, _)| (ns - 1_704_067_200_000_000_000) / 1_000_000_000).collect();
        assert_eq!(times, [0, 60, 86_460], "{title}");
        let findings = &imported.report.findings;
        assert!(findings.len() == 1 && findings[0].assumed.contains("and At"), "{findings:?}");
    }
    let imported = import_file("Date,Asleep,v\n2024-01-01,07:00,1\n2024-01-02,08:01,2\n");
    assert!(imported.report.is_complete() && imported.columns.len() == 2);
}
