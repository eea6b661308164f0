//! Tests the API of the page, and the page in a browser, with a recording of known values.

use std::path::{Path, PathBuf};
use std::process::Command;

use flatcap_query::{OverviewCache, OverviewRequest, Recording};
use proptest::prelude::*;
use serde_json::Value;

use super::api_request::{RangeRequest, WallRange};
use super::range_answer::{RangeAnswer, RangeRow};
use super::recording_reader::RecordingReader;
use super::served_page::{HOST, ServedPage, TOKEN};
use super::shown_paths::ShownPaths;
use crate::test_recording::{LOST, MARK, SPIKE, TICK_NS, TICKS, wall_ns, write_recording};

/// The largest change per second of the recording, in bytes: 20,482 sectors in one tick.
const SPIKE_RATE: f64 = 20_482.0 * 512.0 / 0.01;

fn reader(folder: &Path) -> RecordingReader {
    let paths = vec![folder.to_owned()];
    RecordingReader::open(ShownPaths { paths, host: None, host_name: String::new(), can_mark: false })
        .unwrap()
}

fn range(field: &str, from: i64, to: i64, pixels: u32) -> RangeRequest {
    RangeRequest { field: field.to_owned(), wall_ns: WallRange { from_ns: from, to_ns: to }, pixels }
}

/// Decodes an answer as the page does.
fn decoded(bytes: &[u8]) -> (Value, Vec<Vec<RangeRow>>) {
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
    assert_eq!((4 + length) % 8, 0, "columns are aligned");
    let words: Vec<[u8; 8]> = bytes[4 + length..].chunks(8).map(|word| word.try_into().unwrap()).collect();
    let (mut at, mut series) = (0, Vec::new());
    for info in header["series"].as_array().unwrap() {
        let rows = usize::try_from(info["rows"].as_u64().unwrap()).unwrap();
        let word = |column: usize, row: usize| words[at + column * rows + row];
        let value = |column: usize, row: usize| f64::from_le_bytes(word(column, row));
        let row = |row: usize| RangeRow {
            first_ns: i64::from_le_bytes(word(0, row)),
            last_ns: i64::from_le_bytes(word(1, row)),
            min: value(2, row),
            max: value(3, row),
            first: value(4, row),
            last: value(5, row),
            count: u64::from_le_bytes(word(6, row)),
        };
        series.push((0..rows).map(row).collect());
        at += 7 * rows;
    }
    assert_eq!(at, words.len());
    (header, series)
}

// Proves that a request is refused if it has the name of another host (DNS rebinding), comes from a
// page of another origin, or lacks the token. Also proves that the policy of the page allows only
// its own scripts, and that errors name the mistake in a request.
#[test]
fn strangers_get_nothing() {
    let page = ServedPage::new();
    let own = format!("Host: {}\r\n", page.address);
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for (headers, status) in [
        (format!("Host: evil.example\r\n{token}"), "421"),
        (format!("{own}Origin: http://evil.example\r\n{token}"), "403"),
        (own.clone(), "401"),
        (format!("{own}Authorization: Bearer {}\r\n", TOKEN.replace('0', "1")), "401"),
        (format!("{own}Origin: http://{}\r\n{token}", page.address), "200"),
    ] {
        let (head, body) = page.ask("GET /api/v1/sources", &headers, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {head}");
        assert_eq!(status == "200", String::from_utf8_lossy(&body).contains("from_ns"));
    }
    let (head, body) = page.ask("GET /", &own, "");
    let head = head.to_lowercase();
    assert!(head.contains("script-src 'self'") && !head.contains("unsafe") && head.contains("nosniff"));
    assert!(String::from_utf8(body).unwrap().starts_with("<!doctype html>"));
    let (head, _) = page.ask("GET / ", "Host: evil.example\r\n", "");
    assert!(head.starts_with("HTTP/1.1 4"), "{head}");
    let headers = format!("{own}{token}");
    for (line, status, said) in [
        ("GET /api/v1/range?field=no.such&from=1&to=2&px=9", "422", "no.such"),
        ("GET /api/v1/range?field=cpu.total.user&from=3&to=2&px=9", "400", "must be before"),
        ("POST /api/v1/mark", "409", "no recorder runs here"),
        ("POST /api/v1/snapshot?last=15", "409", "no recorder runs here"),
        ("POST /api/v1/snapshot?last=0", "400", "last=0 must be an integer from 1 to 86400"),
        ("GET /api/v1/snapshot?last=15", "405", "supports only POST"),
        ("GET /../etc/passwd", "404", "no such page"),
    ] {
        let (head, body) = page.ask(line, &headers, "text");
        let body = String::from_utf8_lossy(&body);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")) && body.contains(said),
            "{line}: {head} {body}"
        );
    }
    let (head, _) = page.ask("POST /api/v1/mark", &headers, &"x".repeat(5000));
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
}

// Proves that a ticket can be exchanged for the token only one time, and gives access to nothing
// else.
#[test]
fn a_ticket_counts_once() {
    let page = ServedPage::new();
    let with = |secret: &str| format!("Host: {}\r\nAuthorization: Bearer {secret}\r\n", page.address);
    let asked = |path: &str, secret: &str| {
        let (head, body) = page.ask(&format!("GET /api/v1/{path}"), &with(secret), "");
        (head[9..12].to_owned(), String::from_utf8(body).unwrap())
    };
    assert_eq!(asked("sources", &page.ticket).0, "401");
    assert_eq!(asked("token", TOKEN).0, "401");
    assert_eq!(asked("token", &page.ticket), ("200".to_owned(), format!("{TOKEN}\n")));
    let (status, said) = asked("token", &page.ticket);
    assert!(status == "401" && said.contains("was not used"), "{said}");
}

// Proves that the API returns the content of the recording: span, charts, the exact value of the
// spike, samples, marks, snapshots, spikes, and the process that caused the spike.
#[test]
fn the_api_returns_what_was_recorded() {
    let page = ServedPage::new();
    let sources = page.json("sources");
    assert_eq!(sources["from_ns"], wall_ns(0).to_string());
    assert_eq!((&sources["host"], &sources["is_growing"]), (&Value::from(HOST), &Value::from(false)));
    let fields = page.json("fields");
    let has = |list: &str, id: &str| fields[list].as_array().unwrap().iter().any(|field| field["id"] == id);
    assert!(has("charts", "disk write") && has("charts", "cpu") && has("fields", "disk.devices[*].writes"));
    let (from, to) = (wall_ns(0), wall_ns(TICKS));
    let (head, body) = page.get(&format!("range?field=disk%20write&from={from}&to={to}&px=100"));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (header, series) = decoded(&body);
    assert_eq!((&header["series"][0]["label"], &header["series"][0]["unit"]), (&"vda".into(), &"B/s".into()));
    let most = series[0].iter().max_by(|one, other| one.max.total_cmp(&other.max)).unwrap();
    assert!((most.max / SPIKE_RATE - 1.0).abs() < 1e-12, "{most:?}");
    assert!((most.first_ns..=most.last_ns).contains(&wall_ns(SPIKE)), "{most:?}");
    let (from, to) = (wall_ns(SPIKE), wall_ns(SPIKE + 1));
    let samples = page.json(&format!("samples?field=disk.devices[vda].sectors_written&from={from}&to={to}"));
    assert_eq!(samples["samples"][0]["value"], "22480");
    assert_eq!(samples["samples"][0]["wall_ns"], wall_ns(SPIKE).to_string());
    assert_eq!(page.json("marks")[0]["wall_ns"], wall_ns(MARK).to_string());
    let snapshots = page.json("snapshots");
    assert_eq!((snapshots.as_array().unwrap().len(), &snapshots[0]["name"]), (1, &"oom-1".into()));
    assert_eq!(snapshots[0]["wall_ns"], wall_ns(SPIKE).to_string());
    assert_eq!(snapshots[0]["kept"]["from_ns"], wall_ns(SPIKE - 100).to_string());
    let (from, to) = (wall_ns(SPIKE), wall_ns(SPIKE + 80));
    let found = page.json(&format!("explain?from={from}&to={to}"));
    assert_eq!(found["suspects"][0]["name"], "billing");
    assert!(found["suspects"][0]["evidence"][0]["path"].as_str().unwrap().contains("[\"billing[812]\"]"));
    page.json(&format!("spikes?from={}&to={}", wall_ns(0), wall_ns(TICKS)));
}

// Proves that lost samples are shown as a gap without values, also in a computed chart. A computed
// chart is drawn with the extrema of its values.
#[test]
fn gaps_are_no_data() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(folder.path());
    let mut reader = reader(folder.path());
    for field in ["cpu", "new tasks", "cpu.total.user"] {
        let request = range(field, wall_ns(0), wall_ns(TICKS), 400);
        let answer = loop {
            let answer = reader.range(&request).unwrap();
            if answer.is_complete {
                break answer;
            }
        };
        let rows = &answer.series[0].rows;
        let gaps: Vec<&RangeRow> = rows.iter().filter(|row| row.count == 0).collect();
        assert_eq!(gaps.len(), 1, "{field}: {gaps:?}");
        let (first, last) = (gaps[0].first_ns, gaps[0].last_ns);
        let pixel = i64::try_from(answer.pixel_ns).unwrap();
        assert!(first <= wall_ns(LOST.start) && last >= wall_ns(LOST.end - 1) - pixel, "{field}: {gaps:?}");
        let inside = wall_ns(LOST.start) + pixel..wall_ns(LOST.end) - pixel;
        assert!(!rows.iter().any(|row| row.count > 0 && inside.contains(&row.first_ns)), "{field}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Proves that at every zoom and width, an answer has the extrema of the samples in its range.
    // An answer therefore includes a spike of one sample, whatever the number of pixels.
    #[test]
    fn extrema_are_those_of_the_samples(
        from in 0..TICKS - 2,
        length in 1..TICKS,
        offset in 0..TICK_NS,
        pixels in 1..1536_u32,
    ) {
        thread_local! {
            static FOLDER: (tempfile::TempDir, Recording) = {
                let folder = tempfile::tempdir().unwrap();
                write_recording(folder.path());
                let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
                (folder, recording)
            };
        }
        FOLDER.with(|(folder, recording)| {
            let begin = wall_ns(from) + offset;
            let end = begin + length.cast_signed() * TICK_NS;
            let answer = reader(folder.path()).range(&range("disk write", begin, end, pixels)).unwrap();
            // All samples are read one by one, with pixels of a nanosecond around each tick.
            let largest = (from..TICKS).filter(|tick| (begin..end).contains(&wall_ns(*tick))).map(|tick| {
                let request = OverviewRequest {
                    values: vec!["disk.devices[vda].sectors_written".parse().unwrap()],
                    wall_ns: wall_ns(tick)..wall_ns(tick) + 1,
                    pixels: 1,
                    is_rate: true,
                    host: None,
                };
                // Only the ticks close to the spike have other values.
                if tick.abs_diff(SPIKE) > 1 {
                    return 2.0 * 512.0 / 0.01;
                }
                let exact = recording.overview(&request, &mut OverviewCache::new(1 << 20)).unwrap();
                exact.series.iter().flat_map(|series| &series.rows).map(|row| match row {
                    flatcap_query::OverviewRow::Pixel(pixel) => pixel.max * 512.0,
                    flatcap_query::OverviewRow::Gap(_) => f64::MIN,
                }).fold(f64::MIN, f64::max)
            }).fold(f64::MIN, f64::max);
            let is_vda = |label: &Option<String>| label.as_deref() == Some("vda");
            let rows = answer.series.iter().filter(|series| is_vda(&series.label)).flat_map(|series| &series.rows);
            let inside = |row: &&RangeRow| row.count > 0 && row.last_ns >= begin && row.first_ns < end;
            let drawn = rows.filter(inside).map(|row| row.max).fold(f64::MIN, f64::max);
            prop_assert!(drawn >= largest * (1.0 - 1e-12), "{drawn} {largest}");
            prop_assert!(drawn <= SPIKE_RATE * (1.0 + 1e-12));
            Ok(())
        })?;
    }

    // Proves that decoding an answer returns the encoded values.
    #[test]
    fn answers_survive_their_encoding(rows in prop::collection::vec((any::<i64>(), any::<i64>(), 1.0..9.0_f64, 1..9_u64), 0..40)) {
        let row = |(first_ns, last_ns, value, count): &(i64, i64, f64, u64)| RangeRow {
            first_ns: *first_ns,
            last_ns: *last_ns,
            min: *value,
            max: value * 2.0,
            first: value * 3.0,
            last: value * 4.0,
            count: *count,
        };
        let rows: Vec<RangeRow> = rows.iter().map(row).collect();
        let series = super::range_answer::RangeSeries {
            label: Some(HOST.to_owned()),
            path: "disk".to_owned(),
            unit: "%".to_owned(),
            rows: rows.clone(),
        };
        let answer =
            RangeAnswer { pixel_ns: 1 << 40, is_complete: true, left_out: 3, unreadable: 0, series: vec![series] };
        let (header, decoded) = decoded(&answer.encode());
        prop_assert_eq!(&header["series"][0]["label"], HOST);
        prop_assert_eq!(decoded, vec![rows]);
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns whether node and the packages of the page are installed; prints a message if not.
fn has_node() -> bool {
    let has = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success())
        && root().join("web/node_modules").is_dir();
    if !has {
        eprintln!("skipped: the page is not built or tested without node and npm ci in web/");
    }
    has
}

// Proves that the files of the page match their sources. Also runs the tests of the drawing code.
// One of these tests proves that the drawn extrema equal the extrema of the rows in each pixel at
// every zoom.
#[test]
fn the_files_are_made_of_their_source() {
    if !has_node() {
        return;
    }
    for argument in ["--check", "--test"] {
        let output =
            Command::new("node").arg("build.mjs").arg(argument).current_dir(root().join("web")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{argument}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Returns the path of the browser; prints a message if there is none.
fn browser() -> Option<PathBuf> {
    let found = PathBuf::from("/usr/bin/chromium");
    if found.exists() {
        return Some(found);
    }
    eprintln!("skipped: the page is not looked at without Debian's chromium");
    None
}

/// Runs a script of tests/browser with the browser, the address of a page, and these arguments.
pub(super) fn run_browser(script: &str, page: &ServedPage, arguments: &[&str]) {
    let (true, Some(browser)) = (has_node(), browser()) else { return };
    let output = Command::new("node")
        .arg(root().join("tests/browser").join(script))
        .arg(browser)
        .arg(format!("http://{}/", page.address))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
}

// Proves in a real browser that the page loads from this host only. A spike of one sample is drawn
// at every zoom, and its value under the cursor is exact. Selection, explanation, search, keys and
// the address of the page work. Hostile names are shown as text, and the page fits a width of 400
// pixels.
#[test]
fn the_page_shows_the_recording_in_a_browser() {
    let page = ServedPage::new();
    let (spike, rate, mark) = (wall_ns(SPIKE).to_string(), SPIKE_RATE.to_string(), wall_ns(MARK).to_string());
    run_browser("recorded.mjs", &page, &[TOKEN, &spike, &rate, &mark]);
}
