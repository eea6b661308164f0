//! Imports files with quotes that are not closed.

use super::*;

// Proves that an open quote damages only its own row, wherever the next quote is. Cells with line
// endings remain complete.
#[test]
fn open_quotes_cost_their_row() {
    let content =
        "time,v\n1700000000,\"abc\n1700000001,\"x\ny\"\n1700000002,\"de\"\n1700000003,\"open\n1700000004,z\n";
    let imported = import_file(content);
    let texts: Vec<_> = imported.rows.iter().map(|(_, values)| values[0].clone()).collect();
    assert_eq!(texts, ["x\ny", "de", "z"].map(|text| HeldValue::Text(text.into())));
    let said: Vec<_> = imported.report.flaws.iter().map(|flaw| &*flaw.what).collect();
    let what = "a quote is not closed; the row is skipped";
    assert_eq!(said, [format!("line 2: {what}"), format!("line 6: {what}")]);
    assert_eq!(imported.gaps, 2);
}

// Proves that an open quote damages only its own row if rows end with a delimiter, or if the last
// columns have no title. An unescaped quote within a cell also damages only its own row.
#[test]
fn rows_end_open_quotes_whatever_their_width() {
    for content in [
        "time,a,note\n1700000000,1,\"x\",\n1700000001,2,\"unclosed,\n1700000002,3,\"y\",\n1700000003,4,\"z\",\n",
        "time,a,note,,\n1700000000,1,\"x\"\n1700000001,2,\"unclosed\n1700000002,3,\"y\"\n1700000003,4,\"z\"\n",
        "time,a,note\n1700000000,1,\"x\"\n1700000001,2,\"5\" rack\"\n1700000002,3,\"y\"\n1700000003,4,\"z\"\n",
    ] {
        let imported = import_file(content);
        let values: Vec<_> = imported.rows.iter().map(|(_, values)| values[0].clone()).collect();
        assert_eq!(values, [1, 3, 4].map(HeldValue::Unsigned), "{content}");
        let said: Vec<_> = imported.report.flaws.iter().map(|flaw| &*flaw.what).collect();
        assert!(matches!(said[..], [one] if one.starts_with("line 3: ")), "{said:?}");
    }
}

// Proves that an endless quoted cell does not fill the memory, because reading stops with a flaw.
#[test]
fn open_quotes_are_damage() {
    let mut content = b"time,a\n1700000000,1\n1700000001,\"".to_vec();
    content.resize(content.len() + (40 << 20), b'x');
    let imported = try_import("data.csv", &content, &plain()).unwrap();
    assert_eq!(imported.rows.len(), 1);
    let what = &imported.report.flaws[0].what;
    assert!(what.contains("is a quote not closed?"), "{what}");
    let mut content = b"time,\"a".to_vec();
    content.resize(content.len() + (40 << 20), b'x');
    let imported = try_import("data.csv", &content, &plain()).unwrap();
    let what = &imported.report.flaws[0].what;
    assert!(imported.rows.is_empty() && what.contains("is a quote not closed?"), "{what}");
}

// Proves that the number of lines that are read after an open quote is limited as well. Lines that
// were read to close one quote are not read again for each quote that opens in them.
#[test]
fn lines_of_open_quotes_are_limited() {
    let empty = "\n".repeat(1 << 18);
    let content = format!("time,a\n1700000000,\"x{empty}\"\n1700000001,y\n");
    let imported = import_file(&content);
    let texts: Vec<_> = imported.rows.iter().map(|(_, values)| values[0].clone()).collect();
    assert_eq!(texts, [HeldValue::Text("y".into())]);
    assert!(imported.report.flaws[0].what.starts_with("line 2: a quote is not closed"));
    // Each of these lines closes the quote of the previous line and opens another quote.
    let open = "x\",y,\"z\n".repeat(40_000);
    let content = format!("time,a,b\n1700000000,1,2\n{open}1700000001,3,4\n");
    let imported = import_file(&content);
    assert_eq!(imported.rows.len(), 2);
}
