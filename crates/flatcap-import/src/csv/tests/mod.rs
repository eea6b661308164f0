//! Imports files of several kinds and reads the recordings.

use flatcap_format::segment::{Advance, FrameKind, Gap, Verification, list};
use flatcap_os::storage::DataDirectory;
use flatcap_query::{HeldValue, Query, Recording, RowItem, RowOptions};
use jiff::tz::TimeZone;

use super::*;
use crate::{ImportLimits, ImportProgress};

/// The result of an import, with its report, the names of the columns, and the rows with their
/// times.
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
        zone: None,
        host_zone: TimeZone::UTC,
        delimiter: None,
        decimal: None,
        skip_lines: None,
        encoding: None,
        order: None,
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

// Proves that columns get the types of all their cells, that empty cells are missing values, and
// that quotes, byte order marks and line endings of other systems are accepted.
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

// Proves that a row with another width or without a time is skipped and reported with its line. A
// cell of another type is reported, and its value is missing.
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

// Proves that options change types, units, kinds and missing values, and that other delimiters and
// gzip are accepted.
#[test]
fn statements_apply() {
    let columns = CsvColumns {
        time: vec!["when".to_owned()],
        types: vec![("code".to_owned(), CsvType::Text)],
        units: vec![("size".to_owned(), "KiB".to_owned())],
        counters: vec!["size".to_owned()],
        ..CsvColumns::default()
    };
    let time_form = Some(TimeForm::Pattern("%d.%m.%Y %H:%M".to_owned()));
    let absent = vec!["NA".to_owned()];
    let options = CsvOptions { columns, time_form, absent, delimiter: Some(b';'), ..plain() };
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

// Proves that rows are sorted if the newest row is first or if the rows are unordered, and that
// they keep their order if a clock was set back. Unordered rows and a clock that was set back are
// reported as findings.
#[test]
fn rows_are_put_in_order() {
    let times =
        |imported: &Imported| imported.rows.iter().map(|(at, _)| at / 1_000_000_000).collect::<Vec<_>>();
    let newest_first = import_file("time,a\n1700000120,1\n1700000060,2\n1700000000,3\n");
    assert_eq!(times(&newest_first), [1_700_000_000, 1_700_000_060, 1_700_000_120]);
    assert!(newest_first.report.is_complete(), "{:?}", newest_first.report);
    let set_back = import_file("time,a\n1700000000,1\n1700000060,2\n1699990000,3\n1699990060,4\n");
    assert_eq!((set_back.rows.len(), lines(&set_back)), (4, vec![(FindingKind::Order, 4)]));
    let mixed = import_file("time,a\n1700000001,1\n1700000005,2\n1700000002,3\n1700000008,4\n1700000003,5\n");
    assert_eq!(times(&mixed), [1, 2, 3, 5, 8].map(|at| 1_700_000_000 + at));
    assert_eq!(lines(&mixed), [(FindingKind::Order, 4)]);
    let options = CsvOptions { order: Some(RowOrder::File), ..plain() };
    let kept =
        try_import("data.csv", b"time,a\n1700000005,1\n1700000001,2\n1700000002,3\n", &options).unwrap();
    assert_eq!((kept.rows.len(), lines(&kept).len()), (3, 0));
}

/// Returns the kinds and lines of the findings.
fn lines(imported: &Imported) -> Vec<(FindingKind, u64)> {
    imported.report.findings.iter().map(|found| (found.kind, found.line)).collect()
}

// Proves that no options are needed for decimal commas, lines before the header, comments,
// delimiters at the end, two time columns or a repeated header.
#[test]
fn forms_of_other_programs_are_read() {
    let excel = "sep=;\nDatum;Uhrzeit;Temperatur;Druck\n27.10.2024;01:00:00;21,5;1.013,25\n27.10.2024;01:00:01;22,5;990,5\n";
    let imported = import_file(excel);
    let value = |number| HeldValue::Float(number);
    let values: Vec<_> = imported.rows.iter().map(|(_, values)| values.clone()).collect();
    assert_eq!(values, [[value(21.5), value(1013.25)], [value(22.5), value(990.5)]]);
    assert!(imported.report.is_complete(), "{:?}", imported.report.findings);
    assert_eq!(imported.rows[0].0, 1_729_990_800_000_000_000);
    let others = "# of a logger\ntime,a\n1700000000,1,\n# paused\n1700000001,2,\ntime,a\n1700000002,3,\n";
    let imported = import_file(others);
    assert_eq!((imported.rows.len(), imported.report.is_complete()), (3, true), "{:?}", imported.report);
    assert_eq!((imported.report.skipped["comments"], imported.report.skipped["repeated headers"]), (1, 1));
    let dstat = "\"Dstat\"\n\"Host:\",\"h\",,,\"u\"\n\n\"epoch\",\"cpu\",,\n\"epoch\",\"usr\",\"sys\",\"idl\"\n1704067200.1,1,2,97\n1704067201.1,1,2,97\n";
    let imported = import_file(dstat);
    assert_eq!((imported.rows.len(), lines(&imported)), (2, vec![(FindingKind::Header, 1)]));
    let options = CsvOptions { skip_lines: Some(4), ..plain() };
    let stated = try_import("data.csv", dstat.as_bytes(), &options).unwrap();
    assert_eq!((stated.rows.len(), lines(&stated).len()), (2, 0));
}

// Proves that fields have the units of their cells and titles, and that rows of several devices
// become sources with labels.
#[test]
fn devices_and_units_are_told_apart() {
    let mut content = vec!["timestamp, index, utilization.gpu [%], power.draw [W]\n".to_owned()];
    for second in 0..4 {
        for gpu in 0..2 {
            let power = if gpu == 1 { "[N/A]".to_owned() } else { format!("8{second}.25 W") };
            content.push(format!("2024/03/01 12:00:0{second}.000, {gpu}, 5{gpu} %, {power}\n"));
        }
    }
    let content = content.concat();
    let imported = import_file(&content);
    assert_eq!(lines(&imported), [(FindingKind::Absent, 3), (FindingKind::Key, 3)]);
    let sources: Vec<_> = imported.report.totals.sources.iter().map(|source| source.recorded).collect();
    assert_eq!(sources, [4, 4]);
    let columns = CsvColumns { keys: Some(Vec::new()), ..CsvColumns::default() };
    let options = CsvOptions { columns, absent: vec!["[N/A]".to_owned()], ..plain() };
    let one = try_import("data.csv", content.as_bytes(), &options).unwrap();
    assert_eq!((one.report.totals.sources.len(), one.rows.len()), (1, 8));
    assert!(one.report.is_complete(), "{:?}", one.report.findings);
}

// Proves that other encodings are decoded, with a finding if the encoding is assumed.
#[test]
fn encodings_are_read() {
    let text = "time,ort\n1700000000,K\u{f6}ln\n1700000001,5 \u{b0}C\n";
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin1: Vec<u8> = text.chars().map(|character| u8::try_from(character).unwrap()).collect();
    for (content, findings) in [(text.as_bytes().to_vec(), 0), (utf16, 0), (latin1, 1)] {
        let imported = try_import("data.csv", &content, &plain()).unwrap();
        let texts: Vec<_> = imported.rows.iter().map(|(_, values)| values[0].clone()).collect();
        assert_eq!(texts, ["K\u{f6}ln", "5 \u{b0}C"].map(|text| HeldValue::Text(text.into())));
        let expected = vec![(FindingKind::Encoding, 2); findings];
        assert_eq!(lines(&imported), expected);
    }
}

// Proves that a check reports the interpretation of a file and the findings of an import.
#[test]
fn a_check_says_what_the_import_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(
        &path,
        "time;w [W];n\n1700000000;1,5;N/A\n1700000001;2,5;2\nsoon;1,5;2\n1700000060;2,5;2\n",
    )
    .unwrap();
    let mut watch = |_| true;
    let (report, checks) = check(&[path], &plain(), ImportProgress::new(&mut watch)).unwrap();
    let found = &checks[0];
    assert_eq!((found.delimiter, found.decimal, found.rows, found.skipped_rows), (';', "comma", 3, 1));
    let column = &found.columns[0];
    assert_eq!((&*column.name, column.csv_type, column.unit.as_deref()), ("w_W", "float", Some("W")));
    assert_eq!(found.columns[1].absent, ["N/A"]);
    assert_eq!(found.time.gaps, [GapCheck { line: 5, step_ns: 59_000_000_000 }]);
    assert_eq!(
        report.findings.iter().map(|found| (found.kind, found.line)).collect::<Vec<_>>(),
        [(FindingKind::Absent, 2)]
    );
}

// Proves that a check reports the place where a compressed file is truncated, as an import does.
#[test]
fn a_check_reports_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv.gz");
    let rows: Vec<String> =
        (0..5000).map(|row| format!("{},{}\n", 1_700_000_000 + row, row * row % 9973)).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, format!("time,a\n{}", rows.concat()).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    for (len, is_cut) in [(packed.len(), false), (packed.len() / 2, true)] {
        std::fs::write(&path, &packed[..len]).unwrap();
        let mut watch = |_| true;
        let progress = ImportProgress::new(&mut watch);
        let (report, checks) = check(std::slice::from_ref(&path), &plain(), progress).unwrap();
        assert_eq!(
            (checks.len(), report.is_complete(), report.flaws.len()),
            (1, !is_cut, usize::from(is_cut))
        );
        assert!(report.flaws.iter().all(|flaw| flaw.what.contains("damaged or cut")), "{report:?}");
    }
}

// Proves that each file becomes a separate run, even if their times overlap.
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

// Proves that an unknown time format ends the import before anything is written, and that the error
// says what to do.
#[test]
fn unknown_forms_are_explained() {
    let unknown = refused("time,a\nnoon,1\n", &plain());
    assert!(unknown.contains("line 2: the time \"noon\" has no form"), "{unknown}");
    assert!(unknown.contains("--time-format"), "{unknown}");
    let nameless = refused("when,a\n1700000000,1\n", &plain());
    assert!(nameless.contains("name one of when, a with --time"), "{nameless}");
    let columns = CsvColumns { counters: vec!["b".to_owned()], ..CsvColumns::default() };
    let missing = refused("time,a\n1700000000,1\n", &CsvOptions { columns, ..plain() });
    assert!(missing.contains("--counter b: no such column"), "{missing}");
    assert!(import_file("").rows.is_empty() && import_file("time,a\n").rows.is_empty());
}

mod numbers;
mod quotes;
mod tables;
mod times;

mod one_bad_element {
    //! Tests with one bad element in a random file.

    use flatcap_format::testing::effort;
    use proptest::prelude::*;

    use super::*;

    /// The error that the test inserts into a row.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        Nothing,
        /// The cell in the given column contains the given text.
        Cell(usize, &'static str),
        TooShort,
        TooLong,
        Time(&'static str),
        OpenQuote,
        EarlyTime,
    }

    fn fault() -> impl Strategy<Value = Fault> {
        let texts = prop::sample::select(vec![
            "x",
            "N/A",
            "-",
            "null",
            "[Not Supported]",
            "1.2.3",
            "\u{e9}",
            "7 7 7",
        ]);
        let times = prop::sample::select(vec!["soon", "", "2024-13-01 00:00:00", "1e9"]);
        prop_oneof![
            Just(Fault::Nothing),
            (0..2_usize, texts).prop_map(|(column, text)| Fault::Cell(column, text)),
            Just(Fault::TooShort),
            Just(Fault::TooLong),
            times.prop_map(Fault::Time),
            Just(Fault::OpenQuote),
            Just(Fault::EarlyTime),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(96, 3000)))]

        // Proves that one bad element of a file affects only its cell or row, and is reported with
        // its line. The test compares the result with the table from which it wrote the file.
        #[test]
        fn affects_its_cell_or_row_alone(
            rows in prop::collection::vec((any::<u32>(), -1e6..1e6_f64, "[a-z,\";]{0,6}"), 20..50),
            delimiter in prop::sample::select(vec![',', ';', '\t', '|']),
            is_iso: bool,
            end in prop::sample::select(vec!["\n", "\r\n"]),
            at in 1..19_usize,
            fault in fault(),
        ) {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let second = |row: usize| 1_700_000_000 + i64::try_from(row).unwrap() * 10;
            let mut content = ["time", "count", "level", "note"].join(&delimiter.to_string()) + end;
            let mut expected = Vec::new();
            for (row, (count, level, note)) in rows.iter().enumerate() {
                let fault = if row == at { fault } else { Fault::Nothing };
                let at_s = if fault == Fault::EarlyTime { second(0) - 1000 } else { second(row) };
                let time = if is_iso {
                    jiff::Timestamp::from_second(at_s).unwrap().strftime("%Y-%m-%d %H:%M:%S").to_string()
                } else {
                    at_s.to_string()
                };
                let mut cells = vec![time, count.to_string(), format!("{level:.3}"), quoted(note)];
                let level: f64 = format!("{level:.3}").parse().unwrap();
                let text = if note.is_empty() { HeldValue::Absent } else { HeldValue::Text((&**note).into()) };
                let mut values = vec![HeldValue::Unsigned((*count).into()), HeldValue::Float(level), text];
                match fault {
                    Fault::Cell(column, text) => {
                        cells[column + 1] = text.to_owned();
                        values[column] = HeldValue::Absent;
                    }
                    Fault::TooShort => _ = cells.pop(),
                    Fault::TooLong => cells.push("more".to_owned()),
                    Fault::Time(time) => cells[0] = time.to_owned(),
                    Fault::OpenQuote => cells[3] = "\"open".to_owned(),
                    Fault::Nothing | Fault::EarlyTime => {}
                }
                content += &(cells.join(&delimiter.to_string()) + end);
                if matches!(fault, Fault::Nothing | Fault::Cell(..) | Fault::EarlyTime) {
                    expected.push((at_s * 1_000_000_000, values));
                }
            }
            expected.sort_by_key(|(at, _)| *at);
            let imported = try_import("data.csv", content.as_bytes(), &plain()).unwrap();
            prop_assert_eq!(&imported.rows, &expected, "{}", content);
            let line = u64::try_from(at).unwrap() + 2;
            let flaws = imported.report.flaws.iter().map(|flaw| flaw.what.starts_with(&format!("line {line}")));
            let findings = imported.report.findings.iter().map(|found| found.line == line);
            let named: Vec<bool> = flaws.chain(findings).collect();
            prop_assert!(named.iter().all(|is_own| *is_own), "{:?} {:?}", imported.report, content);
            prop_assert_eq!(named.is_empty(), fault == Fault::Nothing);
        }
    }
}
