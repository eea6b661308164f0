//! Imports files whose numbers have several forms.

use super::*;

// Proves that points in numbers are thousands separators if one of the numbers proves it, and that
// there is a finding if no number does. This holds for every delimiter except the comma. Addresses
// prove nothing.
#[test]
fn points_may_be_marks_of_thousands() {
    let rows = |delimiter: char, cells: [&str; 2]| {
        let of = |(at, cell): (usize, &str)| format!("170000000{at}{delimiter}{cell}\n");
        format!("time{delimiter}a\n{}", cells.into_iter().enumerate().map(of).collect::<String>())
    };
    let values = |imported: &Imported| -> Vec<HeldValue> {
        imported.rows.iter().map(|(_, values)| values[0].clone()).collect()
    };
    for delimiter in ['\t', ';', '|'] {
        let either = import_file(&rows(delimiter, ["1.234", "5.678"]));
        assert_eq!(lines(&either), [(FindingKind::Decimal, 2)], "{delimiter:?}");
        assert_eq!(values(&either), [HeldValue::Float(1.234), HeldValue::Float(5.678)]);
        let proven = import_file(&rows(delimiter, ["1.234", "1.234.567"]));
        assert_eq!(values(&proven), [HeldValue::Unsigned(1234), HeldValue::Unsigned(1_234_567)]);
        assert_eq!(lines(&proven), []);
        let addresses = import_file(&rows(delimiter, ["192.168.100.101", "192.168.100.102"]));
        assert!(matches!(values(&addresses)[0], HeldValue::Text(_)));
    }
    assert_eq!(lines(&import_file(&rows(',', ["1.234", "5.678"]))), []);
}

// Proves that options in findings are quoted for a shell, whatever the titles are.
#[test]
fn options_are_words_of_a_shell() {
    let mut content = "time,\"cpu user; rm\"\n".to_owned();
    for row in 0..20 {
        content.extend([format!("17000000{row:02},{}\n", if row == 7 { "x" } else { "5" })]);
    }
    let imported = import_file(&content);
    let option = imported.report.findings[0].option.as_deref();
    assert_eq!(option, Some("--type 'cpu user; rm=unsigned', or 'cpu user; rm=text' to keep them"));
}
