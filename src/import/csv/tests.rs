//! Files of several kinds, imported and read again.

use flatcap_format::query::{HeldValue, Query, Recording, RowItem, RowOptions};
use flatcap_format::segment::{Advance, FrameKind, Gap, Verification, list};

use super::*;
use crate::import::{ImportLimits, ImportProgress};
use crate::os::storage::DataDirectory;

/// What an import gave: its report, the names of the columns, and the rows with their times.
struct Imported {
    report: ImportReport,
    columns: Vec<String>,
    rows: Vec<(i64, Vec<HeldValue>)>,
    gaps: u64,
}

fn plain() -> CsvOptions {
    CsvOptions {
        columns: CsvColumns::default(),
        time_form: None,
        zone: TimeZone::UTC,
        delimiter: b',',
        absent: Vec::new(),
        names: Vec::new(),
    }
}

fn try_import(name: &str, content: &[u8], options: &CsvOptions) -> Result<Imported, ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let storage = DataDirectory::open(&folder.path().join("data")).unwrap();
    let limits = ImportLimits { segment_bytes: 64 << 10, frame_max: 1 << 20 };
    let mut watch = |_| true;
    let job = ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) };
    let report = import(&[path], options, job)?;
    let data = [storage.path().to_owned()];
    let mut imported = Imported { report, columns: Vec::new(), rows: Vec::new(), gaps: 0 };
    let mut verification = Verification::default();
    for listing in list(&data).unwrap() {
        let mut reader = listing.open().unwrap().unwrap();
        verification.verify(&mut reader, false, &mut |_| {}).unwrap();
        let mut reader = listing.open().unwrap().unwrap();
        while let Some(advance) = reader.advance().unwrap() {
            if let Advance::Frame(at) = advance
                && at.kind == FrameKind::Gap
            {
                imported.gaps += Gap::decode(reader.payload(at)).unwrap().count;
            }
        }
    }
    let verdict = verification.finish();
    assert!(verdict.is_intact() && verdict.unexplained() == 0, "{verdict:?}");
    let recording = Recording::open(&data).unwrap();
    let mut rows = recording.rows(&Query::default(), RowOptions::default()).unwrap();
    while let Some(item) = rows.next().unwrap() {
        if let RowItem::Row(stamp) = item {
            imported.rows.push((stamp.wall_ns, rows.values().to_vec()));
        }
    }
    imported.columns = rows.columns().iter().map(|column| column.name.clone()).collect();
    Ok(imported)
}

fn import_file(content: &str) -> Imported {
    try_import("data.csv", content.as_bytes(), &plain()).unwrap()
}

fn refused(content: &str, options: &CsvOptions) -> String {
    try_import("data.csv", content.as_bytes(), options).err().unwrap().to_string()
}

// Proves that columns get the types of all their cells, that empty cells are absent, and that
// quotes, byte order marks and ends of lines of other systems are read.
#[test]
fn cells_become_values() {
    let content = "\u{feff}time,user %,count,change,on,\"note, all\"\r\n\
        2023-11-14T22:13:20Z,0.5,18446744073709551615,-1,true,\"a \"\"b\"\"\"\r\n\
        2023-11-14T22:13:20.1Z,,7,,,\r\n";
    let imported = import_file(content);
    assert!(imported.report.is_complete(), "{:?}", imported.report.flaws);
    let names = ["data.user", "data.count", "data.change", "data.on", "data.note_all"];
    assert_eq!(imported.columns, names);
    let at = 1_700_000_000_000_000_000;
    let first = vec![
        HeldValue::Float(0.5),
        HeldValue::Unsigned(u64::MAX),
        HeldValue::Signed(-1),
        HeldValue::Bool(true),
        HeldValue::Text("a \"b\"".into()),
    ];
    let mut second = vec![HeldValue::Absent; 5];
    second[1] = HeldValue::Unsigned(7);
    assert_eq!(imported.rows, [(at, first), (at + 100_000_000, second)]);
    let recognized = &imported.report.recognized[0];
    let end = "time is column 1 (ISO 8601); other columns: 1 bool, 1 unsigned, 1 integer, 1 float, 1 text";
    assert!(recognized.ends_with(end), "{recognized}");
    assert_eq!(imported.report.bytes, content.len() as u64);
}

// Proves that a row of another length or without a time is skipped and reported with its line, and
// that a cell of another type is reported and absent.
#[test]
fn bad_rows_are_reported() {
    let stated = CsvColumns { other_types: Some(CsvType::Unsigned), ..CsvColumns::default() };
    let options = CsvOptions { columns: stated, ..plain() };
    let content = "a,time,b\n1,1700000000,2\n1,2\n3,soon,4\n5,1700000001,x\n6,1700000002,7\n";
    let imported = try_import("data.csv", content.as_bytes(), &options).unwrap();
    let said: Vec<_> = imported.report.flaws.iter().map(|flaw| (flaw.offset, &*flaw.what)).collect();
    assert_eq!(
        said,
        [
            (24, "line 3 has 2 cells, the header 3; the row is skipped"),
            (28, "line 4: \"soon\" is no time (seconds since 1970); the row is skipped"),
            (37, "line 5, column 3 (b): \"x\" is not unsigned; the value is left out"),
        ]
    );
    let values: Vec<_> = imported.rows.iter().map(|(_, values)| values[1].clone()).collect();
    assert_eq!(values, [HeldValue::Unsigned(2), HeldValue::Absent, HeldValue::Unsigned(7)]);
    assert_eq!(imported.gaps, 2, "the skipped rows have numbers");
}

// Proves that statements change types, units, kinds and absent cells, and that other delimiters and
// gzip are read.
#[test]
fn statements_apply() {
    let columns = CsvColumns {
        time: Some("when".to_owned()),
        types: vec![("code".to_owned(), CsvType::Text)],
        units: vec![("size".to_owned(), "KiB".to_owned())],
        counters: vec!["size".to_owned()],
        ..CsvColumns::default()
    };
    let time_form = Some(TimeForm::Pattern("%d.%m.%Y %H:%M".to_owned()));
    let absent = vec!["NA".to_owned()];
    let options = CsvOptions { columns, time_form, absent, delimiter: b';', ..plain() };
    let content = b"code;when;size\n12;14.11.2023 22:13;NA\n13;14.11.2023 22:14;5\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, content).unwrap();
    for (name, content) in [("data.csv", content.to_vec()), ("data.csv.gz", packed.finish().unwrap())] {
        let imported = try_import(name, &content, &options).unwrap();
        let text = |text: &str| HeldValue::Text(text.into());
        let rows: Vec<_> = imported.rows.iter().map(|(_, values)| values.clone()).collect();
        assert_eq!(rows, [[text("12"), HeldValue::Absent], [text("13"), HeldValue::Unsigned(5)]]);
        assert_eq!(imported.rows[1].0 - imported.rows[0].0, 60_000_000_000);
    }
}

// Proves that rows from the newest to the oldest are refused, and that a clock which was set back,
// or rows that change places, are not.
#[test]
fn rows_must_not_be_newest_first() {
    let newest_first = refused("time,a\n1700000120,1\n1700000060,2\n1700000000,3\n", &plain());
    assert!(newest_first.contains("column 1") && newest_first.contains("oldest first"), "{newest_first}");
    let set_back = import_file("time,a\n1700000000,1\n1700000060,2\n1699990000,3\n1699990060,4\n");
    assert_eq!(set_back.rows.len(), 4);
    let swapped = import_file("time,a\n1700000000.5,1\n1700000000.2,2\n");
    assert_eq!(swapped.rows.len(), 2);
}

// Proves that files of the same time are runs of their own: the rows of one are not after those of
// the other.
#[test]
fn each_file_is_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.csv", "b.csv"].map(|name| folder.path().join(name));
    for path in &paths {
        std::fs::write(path, "time,x\n1700000000,1\n1700000060,2\n").unwrap();
    }
    let storage = DataDirectory::open(&folder.path().join("data")).unwrap();
    let limits = ImportLimits { segment_bytes: 64 << 10, frame_max: 1 << 20 };
    let mut watch = |_| true;
    let job = ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) };
    let report = import(&paths, &plain(), job).unwrap();
    assert_eq!(report.totals.sources.len(), 2);
    let mut found = Vec::new();
    for listing in list(&[storage.path().to_owned()]).unwrap() {
        let mut reader = listing.open().unwrap().unwrap();
        while let Some(advance) = reader.advance().unwrap() {
            if let Advance::Frame(at) = advance
                && at.kind == FrameKind::Telemetry
                && let Some(sample) = reader.sample(at)
            {
                found.push((reader.header().run_id, sample.mono_ns));
            }
        }
    }
    let times = |first: u64| [first, first + 60].map(|s| s * 1_000_000_000);
    assert_eq!(found.len(), 4);
    for run in found.chunks(2) {
        assert_eq!(run[0].0, run[1].0);
        assert_eq!([run[0].1, run[1].1], times(1_700_000_000));
    }
    assert_ne!(found[0].0, found[2].0);
}

// Proves that what cannot be recognized ends the import with what to do, before anything is
// written.
#[test]
fn unknown_forms_are_explained() {
    let unknown = refused("time,a\n11/14/2023,1\n", &plain());
    assert!(unknown.contains("line 2: the time \"11/14/2023\" has no form"), "{unknown}");
    assert!(unknown.contains("--time-format"), "{unknown}");
    let nameless = refused("when,a\n1700000000,1\n", &plain());
    assert!(nameless.contains("name one of when, a with --time"), "{nameless}");
    let columns = CsvColumns { counters: vec!["b".to_owned()], ..CsvColumns::default() };
    let missing = refused("time,a\n1700000000,1\n", &CsvOptions { columns, ..plain() });
    assert!(missing.contains("--counter b: no such column"), "{missing}");
    assert!(import_file("").rows.is_empty() && import_file("time,a\n").rows.is_empty());
}

// Proves that a quote without an end does not take the file into memory: it ends the reading, which
// is reported.
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
