//! Import of LOBSTER's files: every field of every row is imported unchanged, and damage is
//! reported with its location.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::lobster_generator::Day;
use crate::rig::{CallResult, Rig, number};

const MESSAGE: &str = "ABC_2012-06-21_34200000_57600000_message_10.csv";
const BOOK: &str = "ABC_2012-06-21_34200000_57600000_orderbook_10.csv";
/// 2012-06-21 00:00 in New York, in nanoseconds.
const MIDNIGHT_NS: i128 = 1_340_251_200_000_000_000;

/// Names of event types in the schema, indexed by their numbers.
const EVENT_TYPES: [&str; 8] = [
    "",
    "LimitOrder",
    "PartialCancellation",
    "Deletion",
    "VisibleExecution",
    "HiddenExecution",
    "CrossTrade",
    "TradingHalt",
];

fn import(rig: &Rig, files: &[&Path], options: &[&str]) -> CallResult {
    let files = files.iter().map(|path| path.to_str().unwrap());
    let arguments = ["import", "lobster", "--data-dir", "flatcap-data", "--json"].into_iter().chain(files);
    rig.call(&arguments.chain(options.iter().copied()).collect::<Vec<_>>())
}

/// Returns the rows of a source as `dump` prints them: sequence number, wall time, fields.
fn dumped(rig: &Rig, source: &str) -> Vec<(u64, i128, Vec<String>)> {
    let called = rig.call(&["dump", "flatcap-data", "--source", source, "--format", "csv"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let text = called.text();
    let rows = text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    rows.map(|row| (row[1].parse().unwrap(), row[3].parse().unwrap(), row[7..].to_vec())).collect()
}

/// Normalizes a decimal number, so that equal numbers have equal text.
fn normalized(text: &str) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

/// Converts seconds as text to nanoseconds by digits, without floating point.
fn nanoseconds(text: &str) -> i128 {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    format!("{seconds}{decimals:0<9}").parse().unwrap()
}

/// Returns the expected dump of an imported message file.
fn expected_messages(text: &str) -> Vec<(u64, i128, Vec<String>)> {
    let rows = text.lines().enumerate().map(|(number, line)| {
        let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let wall_ns = MIDNIGHT_NS + nanoseconds(&fields[0]);
        let event: usize = fields[1].parse().unwrap();
        EVENT_TYPES[event].clone_into(&mut fields[1]);
        (number as u64, wall_ns, fields)
    });
    rows.collect()
}

/// Compares dumped rows with the files, field by field.
fn assert_equal(rig: &Rig, symbol: &str, message: &str, book: &str) {
    let expected = expected_messages(message);
    let messages = dumped(rig, &format!("{symbol}-message"));
    assert_eq!(messages.len(), expected.len());
    for ((seq, wall_ns, fields), (number, expected_ns, expected)) in messages.iter().zip(&expected) {
        assert_eq!((seq, wall_ns, normalized(&fields[0])), (number, expected_ns, normalized(&expected[0])));
        assert_eq!(fields[1..], expected[1..], "message {seq}");
    }
    let books = dumped(rig, &format!("{symbol}-orderbook"));
    assert_eq!(books.len(), book.lines().count());
    for (((seq, wall_ns, fields), line), (_, expected_ns, expected)) in
        books.iter().zip(book.lines()).zip(&expected)
    {
        assert_eq!((wall_ns, normalized(&fields[0])), (expected_ns, normalized(&expected[0])), "book {seq}");
        assert_eq!(fields[1..].join(","), line, "book {seq}");
    }
}

fn assert_clean(rig: &Rig) {
    let verified = rig.call(&["verify", "flatcap-data"]);
    assert_eq!(verified.status, Some(0), "{verified:?}");
}

fn zip(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Returns generated files of ten levels.
fn texts(rows: u64, seed: u64) -> [String; 2] {
    Day { rows, levels: 10, seed }.texts()
}

/// Returns the path of a real file, next to the checkout or in `FLATCAP_SHARED_DATA`, if it exists.
fn real(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FLATCAP_SHARED_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    let path = folder.join("lobster").join(name);
    path.exists().then_some(path)
}

// Proves that a published sample is imported field by field. Method: both files, all 999 rows; the
// last row has no end of line, so `wc -l` prints 998.
#[test]
fn a_published_sample_is_imported() {
    let names =
        ["message", "orderbook"].map(|kind| format!("AAPL_2012-06-21_34200000_57600000_{kind}_10.csv"));
    let [Some(message), Some(book)] = names.map(|name| real(&name)) else {
        println!("skipped: no LOBSTER files in ../shared/data or FLATCAP_SHARED_DATA");
        return;
    };
    let rig = Rig::new();
    let called = import(&rig, &[&message, &book], &[]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let [message, book] = [message, book].map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!((message.lines().count(), book.lines().count()), (999, 999));
    assert_equal(&rig, "AAPL", &message, &book);
    assert_clean(&rig);
}

// Proves that every field of every row is imported, at all depths, and that info and replay know
// the sources. Method: generated days with halts, cross trades and dummy prices.
#[test]
fn rows_are_imported_field_by_field() {
    for (levels, rows) in [(1, 6000), (5, 4000), (10, 4000), (200, 100)] {
        let rig = Rig::new();
        let [message, book] = Day { rows, levels, seed: 7 }.texts();
        let count = |kind: &str| message.lines().filter(|line| line.split(',').nth(1) == Some(kind)).count();
        assert!(rows < 4000 || (count("7") > 0 && count("6") > 0), "halts and cross trades are included");
        assert!(
            levels == 1 || (book.contains(",9999999999,0,") && book.contains(",-9999999999,0")),
            "dummy prices are included"
        );
        let message_path =
            rig.write(&format!("ABC_2012-06-21_34200000_57600000_message_{levels}.csv"), &message);
        let book_path = rig.write(&format!("ABC_2012-06-21_34200000_57600000_orderbook_{levels}.csv"), &book);
        let called = import(&rig, &[&book_path, &message_path], &[]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let report = called.json();
        assert_eq!(number(&report["input_bytes"]), (message.len() + book.len()) as u64);
        assert_eq!(number(&report["sources"][0]["recorded"]), rows);
        assert_equal(&rig, "ABC", &message, &book);
        assert_clean(&rig);

        let info = rig.info();
        assert_eq!(number(&info["frames"]), 2 * rows);
        let replayed = rig.call(&["replay", "flatcap-data", "--speed", "max"]);
        assert_eq!(replayed.status, Some(0), "{replayed:?}");
        let samples: Vec<&[u8]> = crate::independent_reader::payloads(&replayed.out)
            .into_iter()
            .filter(|payload| &payload[4..8] == b"FCTF")
            .collect();
        assert_eq!(samples.len() as u64, 2 * rows);
        // Row by row, each message before its book: sources 0 and 1 by the envelope.
        let sources = samples.iter().map(|payload| u16::from_le_bytes([payload[48], payload[49]]));
        assert!(sources.eq((0..2 * rows).map(|at| u16::try_from(at % 2).unwrap())));
    }
}

// Proves that compressed files are imported like plain ones, in any order and under any name.
// Method: gzip and ZIP archives, stored and deflated, which also contain other files.
#[test]
fn compressed_files_are_imported_like_plain_ones() {
    let [message, book] = texts(3000, 1);
    let (first, second) = (message.as_bytes(), book.as_bytes());
    let packings: [Vec<(&str, Vec<u8>)>; 5] = [
        vec![
            ("ABC_2012-06-21_0_1_message_10.csv.gz", gzip(first)),
            ("ABC_2012-06-21_0_1_orderbook_10.csv.gz", gzip(second)),
        ],
        vec![(
            "any",
            zip(
                &[("readme.txt", b"Explains.\n"), (BOOK, second), (MESSAGE, first)],
                CompressionMethod::Deflated,
            ),
        )],
        vec![("any.zip", zip(&[(MESSAGE, first), (BOOK, second)], CompressionMethod::Stored))],
        vec![
            ("one.zip", zip(&[(MESSAGE, first)], CompressionMethod::Deflated)),
            ("other.zip", zip(&[(BOOK, second)], CompressionMethod::Stored)),
        ],
        // gzip data under a plain name, and a folder in the archive.
        vec![
            (MESSAGE, gzip(first)),
            ("b", zip(&[("x/", b""), (&format!("x/{BOOK}"), second)], CompressionMethod::Deflated)),
        ],
    ];
    for packing in packings {
        let rig = Rig::new();
        let paths: Vec<PathBuf> = packing.iter().map(|(name, content)| rig.write(name, content)).collect();
        let called = import(&rig, &paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &[]);
        assert_eq!(called.status, Some(0), "{called:?}");
        assert_equal(&rig, "ABC", &message, &book);
        assert_clean(&rig);
    }
}

// Proves that each day of an archive becomes its own run with its date. Method: two days of one
// symbol and one of another.
#[test]
fn days_are_runs_of_their_own() {
    let rig = Rig::new();
    let days = [texts(500, 1), texts(700, 2), texts(300, 3)];
    let names = ["ABC_2012-06-22", "ABC_2012-06-21", "XYZ_2012-06-21"];
    let mut entries = Vec::new();
    for kind in [0, 1] {
        for (day, name) in days.iter().zip(names) {
            entries.push((
                format!("{name}_0_1_{}_10.csv", ["message", "orderbook"][kind]),
                day[kind].as_bytes(),
            ));
        }
    }
    let entries: Vec<(&str, &[u8])> =
        entries.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    let path = rig.write("days.zip", zip(&entries, CompressionMethod::Deflated));
    let called = import(&rig, &[&path], &[]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(number(&called.json()["segments"]), 3);
    let messages = dumped(&rig, "ABC-message");
    assert_eq!(messages.len(), 1200);
    let next_day_ns = MIDNIGHT_NS + 86_400_000_000_000;
    let later = messages.iter().filter(|(_, wall_ns, _)| *wall_ns > next_day_ns).count();
    assert_eq!((later, dumped(&rig, "XYZ-orderbook").len()), (500, 300));
    assert_clean(&rig);
    let refused = import(&rig, &[&path], &["--date", "2012-06-21"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.err.contains("the files contain 3 days"), "{refused:?}");
}

// Proves that options supply symbol and date if the file names do not, and that without either none
// is invented.
#[test]
fn symbol_and_date_can_be_given() {
    let [message, book] = texts(200, 5);
    let given = Rig::new();
    let (first, second) = (given.write("m", &message), given.write("b", &book));
    let called = import(&given, &[&first, &second], &["--symbol", "ABC", "--date", "2012-06-21"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_equal(&given, "ABC", &message, &book);

    let bare = Rig::new();
    let (first, second) = (bare.write("m", &message), bare.write("b", &book));
    assert_eq!(import(&bare, &[&first, &second], &[]).status, Some(0));
    let expected = expected_messages(&message);
    let messages = dumped(&bare, "lobster-message");
    assert!(messages.iter().zip(&expected).all(|(row, expected)| row.1 == expected.1 - MIDNIGHT_NS));
    assert_eq!(dumped(&bare, "lobster-orderbook").len(), 200);
}

// Proves that an input that is not a regular file is read once, from its start. Method: more rows
// than a pipe and a buffer hold, through /dev/stdin.
#[test]
fn a_pipe_with_a_name_is_read_whole() {
    let [message, _] = texts(12_000, 10);
    assert!(message.len() > 320 << 10);
    let rig = Rig::new();
    let mut child = rig
        .command(&["import", "lobster", "/dev/stdin", "--data-dir", "flatcap-data", "--symbol", "ABC"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    let called = CallResult::from(child.wait_with_output().unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(dumped(&rig, "ABC-message").len(), 12_000);
}

// Proves that either file alone is imported; the time of an order book is then unknown. Method:
// each alone, the messages from standard input.
#[test]
fn either_file_alone_is_imported() {
    let [message, book] = texts(300, 9);
    let rig = Rig::new();
    let mut child = rig
        .command(&[
            "import",
            "lobster",
            "-",
            "--data-dir",
            "flatcap-data",
            "--symbol",
            "ABC",
            "--date",
            "2012-06-21",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    let called = CallResult::from(child.wait_with_output().unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(dumped(&rig, "ABC-message"), expected_dump(&message));

    let rig = Rig::new();
    let path = rig.write(BOOK, &book);
    let called = import(&rig, &[&path], &[]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(number(&called.json()["skipped"]["times of order books (no message file)"]), 300);
    let books = dumped(&rig, "ABC-orderbook");
    assert_eq!(books.len(), 300);
    assert!(books.iter().all(|(_, wall_ns, fields)| *wall_ns == MIDNIGHT_NS && fields[0] == "0.0"));
    assert!(books.iter().zip(book.lines()).all(|((.., fields), line)| fields[1..].join(",") == line));
    assert_clean(&rig);
}

fn expected_dump(message: &str) -> Vec<(u64, i128, Vec<String>)> {
    let mut expected = expected_messages(message);
    for (.., fields) in &mut expected {
        if !fields[0].contains('.') {
            fields[0].push_str(".0");
        }
    }
    expected
}

// Proves that an invalid row is reported with its offset, that its number stays free, and that its
// partner is imported. Method: invalid rows in both files, a header, a blank line, CRLF.
#[test]
fn damaged_rows_are_reported_and_skipped() {
    let [message, book] = texts(50, 4);
    let mut messages: Vec<String> = message.lines().map(str::to_owned).collect();
    let mut books: Vec<String> = book.lines().map(str::to_owned).collect();
    messages[10] = messages[10].replace(',', ";"); // its time is invalid too
    messages[20] = messages[20].rsplit_once(',').unwrap().0.to_owned() + ",7"; // its time is valid
    messages[30] = String::new();
    books[20] = "1,2,3".to_owned();
    books[40] = books[40].replacen(',', ",99999999999999999999", 1);
    let rig = Rig::new();
    let header = "Time,Type,OrderID,Size,Price,Direction\r\n";
    let offset = header.len() + messages[..10].iter().map(|line| line.len() + 2).sum::<usize>();
    let first = rig.write(MESSAGE, header.to_owned() + &messages.join("\r\n") + "\r\n");
    let second = rig.write(BOOK, books.join("\n"));
    let called = import(&rig, &[&first, &second], &[]);
    assert_eq!(called.status, Some(3), "{called:?}");
    let report = called.json();
    let flaws = report["flaws"].as_array().unwrap();
    assert_eq!((flaws.len(), number(&flaws[0]["offset"])), (5, offset as u64), "{flaws:?}");
    assert!(flaws.iter().all(|flaw| flaw["count"] == 1), "{flaws:?}");
    assert_eq!(report["skipped"]["header lines"], 1);
    assert_eq!([0, 1].map(|source| number(&report["sources"][source]["lost"])), [3, 2]);

    let seqs = |source| dumped(&rig, source).into_iter().map(|row| row.0).collect::<Vec<_>>();
    assert!(seqs("ABC-message").into_iter().eq((0..50).filter(|seq| ![10, 20, 30].contains(seq))));
    assert!(seqs("ABC-orderbook").into_iter().eq((0..50).filter(|seq| ![20, 40].contains(seq))));
    let kept = dumped(&rig, "ABC-orderbook");
    let (ninth, tenth) = (&kept[9], &kept[10]);
    assert_eq!((tenth.2[0].as_str(), tenth.1), ("0.0", ninth.1), "no time of its own, and none invented");
    assert_eq!(tenth.2[1..].join(","), books[10]);
    assert_clean(&rig);
}

// Proves that files of different lengths are imported to their ends, and that the difference is
// reported. Method: each file cut in turn, at the end of a row and within one.
#[test]
fn files_of_different_lengths_are_reported() {
    let [message, book] = texts(100, 6);
    let until = |text: &str, rows: usize| {
        text.lines().take(rows).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    for (messages, books) in [(100, 60), (60, 100), (100, 0), (0, 100)] {
        let rig = Rig::new();
        let first = rig.write(MESSAGE, until(&message, messages));
        let second = rig.write(BOOK, until(&book, books));
        let called = import(&rig, &[&first, &second], &[]);
        assert_eq!(called.status, Some(3), "{called:?}");
        let flaw = &called.json()["flaws"][0];
        assert_eq!(number(&flaw["count"]), messages.abs_diff(books) as u64, "{flaw}");
        let shorter = if messages < books { "message" } else { "orderbook" };
        assert!(flaw["path"].as_str().unwrap().contains(shorter));
        assert_eq!(dumped(&rig, "ABC-message").len(), messages);
        let kept = dumped(&rig, "ABC-orderbook");
        assert_eq!(kept.len(), books);
        assert!(kept.iter().all(|(seq, _, fields)| (fields[0] == "0.0") == (*seq >= messages as u64)));
        assert_clean(&rig);
    }
    let rig = Rig::new();
    let first = rig.write(MESSAGE, &message.trim_end()[..message.len() - 10]);
    let called = import(&rig, &[&first], &[]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(
        called.json()["flaws"][0]["what"].as_str().unwrap().starts_with("the last row is cut off"),
        "{called:?}"
    );
    assert_eq!(dumped(&rig, "ABC-message").len(), 99);
}

// Proves that the intact part of a damaged archive is imported and the rest reported: never a
// panic, never success. Method: an archive cut, and with a flipped bit, at every twentieth of its
// length.
#[test]
fn intact_parts_of_damaged_archives_are_imported() {
    let [message, book] = texts(1500, 8);
    let whole = zip(&[(MESSAGE, message.as_bytes()), (BOOK, book.as_bytes())], CompressionMethod::Deflated);
    let expected = expected_messages(&message);
    let mut most = 0;
    for (is_cut, part) in [true, false].into_iter().flat_map(|is_cut| (1..20).map(move |part| (is_cut, part)))
    {
        let rig = Rig::new();
        let at = whole.len() * part / 20;
        let mut damaged = whole.clone();
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] ^= 0x10;
        }
        let path = rig.write("a.zip", damaged);
        let called = import(&rig, &[&path], &[]);
        let status = if rig.segments("bin").is_empty() { 1 } else { 3 };
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(!called.json()["flaws"].as_array().unwrap().is_empty());
        if !rig.segments("bin").is_empty() {
            assert_clean(&rig);
            if called.json()["sources"][0]["name"] == "ABC-message" {
                let messages = dumped(&rig, "ABC-message");
                let equal =
                    messages.iter().zip(&expected).filter(|(row, expected)| row.2[2..] == expected.2[2..]);
                most = most.max(equal.count());
            }
        }
    }
    assert_eq!(most, 1500, "damage to one entry does not affect the other");
    let rig = Rig::new();
    let packed = gzip(message.as_bytes());
    let path = rig.write(MESSAGE, &packed[..packed.len() / 2]);
    let called = import(&rig, &[&path], &[]);
    assert_eq!(called.status, Some(3), "{called:?}");
    let kept = dumped(&rig, "ABC-message");
    assert!(kept.len() > 100 && kept == expected_dump(&message)[..kept.len()]);
}

// Proves that files that are not LOBSTER's are refused with a remedy, and that nothing is written.
#[test]
fn other_files_are_refused() {
    let rig = Rig::new();
    let [message, _] = texts(10, 1);
    let pandas = message
        .lines()
        .enumerate()
        .fold(String::new(), |text, (row, line)| text + &format!("{row},{line}\n"));
    let archive = zip(&[(MESSAGE, message.as_bytes())], CompressionMethod::Deflated);
    for (content, says) in [
        (pandas.into_bytes(), "neither a LOBSTER message file"),
        (message.replace(',', ";").into_bytes(), "neither a LOBSTER message file"),
        (vec![b'7'; 1 << 20], "neither a LOBSTER message file"),
        (b"7z\xBC\xAF\x27\x1C and more".to_vec(), "a 7z archive: unpack it first"),
        (gzip(&archive), "a ZIP archive within gzip"),
        (vec!["1"; 4004].join(",").into_bytes(), "at most 1000 levels"),
    ] {
        let path = rig.write(MESSAGE, content);
        let called = import(&rig, &[&path], &[]);
        assert_eq!(called.status, Some(1), "{called:?}");
        assert!(called.err.contains(says), "{called:?}");
    }
    let path = rig.write(MESSAGE, &message);
    for symbol in ["", "../x", "a\tb", &"x".repeat(33)] {
        assert_eq!(import(&rig, &[&path], &["--symbol", symbol]).status, Some(2), "{symbol}");
    }
    for (date, says) in [("21.6.2012", "write a date as YYYY-MM-DD"), ("9999-12-31", "from 1678 to 2261")] {
        let called = import(&rig, &[&path], &["--date", date]);
        assert!(called.status == Some(2) && called.err.contains(says), "{called:?}");
    }
    assert!(rig.segments("bin").is_empty());
    let called = import(&rig, &[&path, &path], &[]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("another file has the same rows by its name"), "{called:?}");
    let nothing = rig.write("nothing", "");
    let called = import(&rig, &[&nothing], &[]);
    assert_eq!((called.status, &called.json()["skipped"]["empty files"]), (Some(0), &1.into()), "{called:?}");
}
