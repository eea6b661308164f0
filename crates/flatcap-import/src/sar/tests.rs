//! Imports documents of sadf 12.6.1 and reads the recordings.

use flatcap_format::segment::{Verification, list};
use flatcap_os::storage::DataDirectory;
use flatcap_query::{HeldValue, Query, QueryItem, Recording, RowItem, RowOptions, ValueColumn};
use jiff::tz::TimeZone;

use super::*;
use crate::{ImportLimits, ImportProgress};

/// Statistics of one host at two times, as sadf -j prints them, with some of the host's groups.
const DOCUMENT: &str = r#"{"sysstat": {
	"hosts": [
		{
			"nodename": "web1",
			"sysname": "Linux",
			"release": "6.12.0",
			"machine": "x86_64",
			"number-of-cpus": 2,
			"timezone": "UTC",
			"statistics": [
				{
					"timestamp": {"date": "2023-11-14", "time": "22:13:20", "utc": 1, "interval": 1},
					"cpu-load": [
						{"cpu": "all", "usr": 94.53, "idle": 0.00},
						{"cpu": "0", "usr": 90.10, "idle": 9}
					],
					"io": {"tps": 30.69, "io-reads": {"rtps": 0.00}},
					"memory": {"memfree": 10837832, "memused-percent": 9.87},
					"network": {
						"net-dev": [{"iface": "lo", "rxkB": 0.50}],
						"net-sock": {"totsck": 20}
					}
				},
				{
					"timestamp": {"date": "2023-11-14", "time": "22:13:21", "utc": 1, "interval": 1},
					"cpu-load": [{"cpu": "all", "usr": 1.00, "idle": 99.00}],
					"memory": {"memfree": 5}
				}
			],
			"restarts": [{"boot": {"date": "2023-11-14", "time": "20:00:00", "utc": 1}}]
		}
	]
}}
"#;
const AT_NS: i64 = 1_700_000_000_000_000_000;

fn import_text(content: &str) -> Result<(ImportReport, tempfile::TempDir), ImportError> {
    import_in(TimeZone::UTC, content)
}

fn import_in(zone: TimeZone, content: &str) -> Result<(ImportReport, tempfile::TempDir), ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sa.json");
    std::fs::write(&path, content).unwrap();
    let storage = DataDirectory::open(&folder.path().join("data")).unwrap();
    let limits = ImportLimits { segment_bytes: 64 << 10, frame_max: 1 << 20 };
    let mut watch = |_| true;
    let job = ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) };
    let report = import(&[path], &SarOptions { zone: None, host_zone: zone }, job)?;
    let mut verification = Verification::default();
    for listing in list(&[folder.path().join("data")]).unwrap() {
        verification.verify(&mut listing.open().unwrap().unwrap(), false, &mut |_| {}).unwrap();
    }
    let verdict = verification.finish();
    assert!(verdict.is_intact() && verdict.unexplained() == 0, "{verdict:?}");
    Ok((report, folder))
}

fn rows(folder: &Path, fields: &[&str]) -> Vec<(i64, Vec<HeldValue>)> {
    let recording = Recording::open(&[folder.join("data")]).unwrap();
    let query =
        Query { fields: fields.iter().map(|field| field.parse().unwrap()).collect(), ..Query::default() };
    let mut reader = recording.rows(&query, RowOptions::default()).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let RowItem::Row(stamp) = item {
            found.push((stamp.wall_ns, reader.values().to_vec()));
        }
    }
    found
}

// Proves that times in UTC are recognized for each version of sysstat, and that other times are
// read in the named zone.
#[test]
fn times_are_in_their_zone() {
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    for (zone_of_times, at_ns) in
        [("\"utc\": 1", AT_NS), ("\"tz\": \"UTC\"", AT_NS), ("\"tz\": \"CET\"", AT_NS - 3_600_000_000_000)]
    {
        let (_, folder) = import_in(zone.clone(), &DOCUMENT.replace("\"utc\": 1", zone_of_times)).unwrap();
        assert_eq!(rows(folder.path(), &["sar-memory.memfree"])[0].0, at_ns, "{zone_of_times}");
    }
}

// Proves that one value that is not a number changes no other value, and is reported with its line.
#[test]
fn one_bad_value_changes_no_other() {
    let entry = |at: usize, free: &str| {
        format!(
            "{{\"timestamp\": {{\"date\": \"2023-11-14\", \"time\": \"22:13:{at:02}\", \"utc\": 1}},\n\"memory\": \
             {{\"memfree\": {free}}}}}"
        )
    };
    for bad in 0..20 {
        let entries: Vec<String> =
            (0..20).map(|at| entry(at, if at == bad { "\"much\"" } else { "5" })).collect();
        let document = format!(
            "{{\"sysstat\": {{\"hosts\": [{{\"nodename\": \"h\", \"statistics\": [\n{}\n]}}]}}}}",
            entries.join(",\n")
        );
        let (report, folder) = import_text(&document).unwrap();
        let found = rows(folder.path(), &["sar-memory.memfree"]);
        for (at, (_, values)) in found.iter().enumerate() {
            let expected = if at == bad { HeldValue::Absent } else { HeldValue::Unsigned(5) };
            assert_eq!(values[0], expected, "{bad} {at}");
        }
        let said: Vec<_> = report.flaws.iter().map(|flaw| flaw.what.clone()).collect();
        let line = 2 + 2 * bad;
        assert_eq!(said, [format!("line {line}, memory: values of another kind are left out: memfree")]);
    }
}

// Proves that a time before the last time of the same host is a finding, and that the order is
// checked per host.
#[test]
fn times_that_fall_are_found() {
    let entry = |minute: usize| {
        format!(
            "{{\"timestamp\": {{\"date\": \"2023-11-14\", \"time\": \"22:{minute:02}:00\", \"utc\": 1}},\n\"memory\": \
             {{\"memfree\": 5}}}}"
        )
    };
    let host = |minutes: &[usize]| {
        let entries: Vec<String> = minutes.iter().map(|minute| entry(*minute)).collect();
        format!("{{\"nodename\": \"h\", \"statistics\": [\n{}\n]}}", entries.join(",\n"))
    };
    let found = |hosts: &[&[usize]]| {
        let hosts: Vec<String> = hosts.iter().map(|minutes| host(minutes)).collect();
        let document = format!("{{\"sysstat\": {{\"hosts\": [{}]}}}}", hosts.join(",\n"));
        let (report, _folder) = import_text(&document).unwrap();
        report.findings.iter().map(|found| (found.kind, found.line)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[&[1, 2, 2, 3], &[1, 2]]), []);
    assert_eq!(found(&[&[1, 2, 30, 3, 4]]), [(FindingKind::Order, 8)]);
}

// Proves that an abbreviation of several zones means the zone of this host if that zone uses the
// abbreviation. Otherwise, and for an unknown abbreviation, a finding is reported.
#[test]
fn doubtful_zones_of_documents_are_found() {
    let local = DOCUMENT.replace("\"utc\": 1, ", "");
    let hour_ns = 3_600_000_000_000;
    for (name, host, at_ns, found) in [
        ("CST", "Asia/Shanghai", AT_NS - 8 * hour_ns, 0),
        ("CST", "Asia/Tokyo", AT_NS + 6 * hour_ns, 1),
        ("XYZ", "Asia/Tokyo", AT_NS - 9 * hour_ns, 1),
        ("", "Asia/Tokyo", AT_NS - 9 * hour_ns, 0),
    ] {
        let document = local.replace("\"timezone\": \"UTC\"", &format!("\"timezone\": \"{name}\""));
        let (report, folder) = import_in(TimeZone::get(host).unwrap(), &document).unwrap();
        assert_eq!(rows(folder.path(), &["sar-memory.memfree"])[0].0, at_ns, "{name} {host}");
        let kinds: Vec<_> = report.findings.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, vec![FindingKind::Zone; found], "{name} {host}");
    }
}

// Proves that times are in the zone that the document names, whatever the zone of this host is. The
// two times of a repeated hour become different instants.
#[test]
fn zones_are_those_of_the_document() {
    let tokyo = TimeZone::get("Asia/Tokyo").unwrap();
    let summer = DOCUMENT.replace("2023-11-14", "2023-07-14");
    let named = summer.replace("\"utc\": 1", "\"tz\": \"CEST\"");
    let (report, folder) = import_in(tokyo.clone(), &named).unwrap();
    let july_ns = 1_689_372_800_000_000_000 - 7_200_000_000_000;
    assert_eq!(rows(folder.path(), &["sar-memory.memfree"])[0].0, july_ns);
    assert!(report.is_complete(), "{:?}", report.findings);
    // Before sysstat 12.7, the document names a zone only for the host, not for each time.
    let of_host =
        summer.replace("\"utc\": 1, ", "").replace("\"timezone\": \"UTC\"", "\"timezone\": \"Europe/Paris\"");
    let (report, folder) = import_in(tokyo.clone(), &of_host).unwrap();
    assert_eq!(rows(folder.path(), &["sar-memory.memfree"])[0].0, july_ns);
    assert!(report.recognized[0].contains("Europe/Paris (named in the file)"), "{:?}", report.recognized);
    let night = DOCUMENT.replace("2023-11-14", "2024-10-27").replace("22:13:2", "02:30:2");
    let twice =
        night.replacen("\"utc\": 1", "\"tz\": \"CEST\"", 1).replacen("\"utc\": 1", "\"tz\": \"CET\"", 1);
    let (_, folder) = import_in(TimeZone::UTC, &twice).unwrap();
    let found = rows(folder.path(), &["sar-memory.memfree"]);
    assert_eq!(found[1].0 - found[0].0, 3_601_000_000_000);
    let unknown = summer.replace("\"utc\": 1", "\"tz\": \"XYZ\"");
    let (report, _folder) = import_in(tokyo, &unknown).unwrap();
    assert_eq!((report.findings[0].kind, report.findings[0].line), (FindingKind::Zone, 11));
}

// Proves that decimal commas are accepted and reported with their line. Output of other sysstat
// programs is refused, and the error names the program to use.
#[test]
fn documents_of_other_hosts_are_read() {
    let (report, folder) = import_text(&DOCUMENT.replace("9.87", "9,87")).unwrap();
    assert_eq!(rows(folder.path(), &["sar-memory.memused_percent"])[0].1, [HeldValue::Float(9.87)]);
    assert_eq!((report.findings[0].kind, report.findings[0].line), (FindingKind::Decimal, 18));
    let mpstat = r#"{"sysstat": {"hosts": [{"nodename": "h", "date": "04/18/19", "statistics": [{"timestamp": "13:20:19", "cpu-load": [{"cpu": "all", "usr": 1.0}]}]}]}}"#;
    let (report, _folder) = import_text(mpstat).unwrap();
    let what = &report.flaws[0].what;
    assert!(
        what.starts_with("line 1: ") && what.contains("has no date") && what.contains("mpstat"),
        "{what}"
    );
}

// Proves that each group becomes a source with its values, times and host. List elements keep their
// identity, nested objects keep their members, and the types of numbers are derived from the whole
// file.
#[test]
fn groups_become_sources() {
    let (report, folder) = import_text(DOCUMENT).unwrap();
    assert!(report.is_complete(), "{:?}", report.flaws);
    let names: Vec<&str> = report.totals.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["sar-cpu-load", "sar-io", "sar-memory", "sar-net-dev", "sar-net-sock"]);
    assert_eq!(report.skipped.get("restarts of the host"), Some(&1));
    assert_eq!(report.bytes, DOCUMENT.len() as u64);
    let float = HeldValue::Float;
    let loads = rows(folder.path(), &["sar-cpu-load.cpu_load[all].usr", "sar-cpu-load.cpu_load[cpu=0].idle"]);
    assert_eq!(loads[0], (AT_NS, vec![float(94.53), float(9.0)]), "a whole number among fractions");
    assert_eq!(loads[1], (AT_NS + 1_000_000_000, vec![float(1.0), HeldValue::Absent]));
    let memory = rows(folder.path(), &["sar-memory.memfree", "sar-memory.memused_percent"]);
    assert_eq!(memory[0].1, [HeldValue::Unsigned(10_837_832), float(9.87)]);
    assert_eq!(memory[1].1, [HeldValue::Unsigned(5), HeldValue::Absent]);
    assert_eq!(rows(folder.path(), &["sar-io.io_reads_rtps"])[0].1, [float(0.0)]);
    assert_eq!(rows(folder.path(), &["sar-net-dev.net_dev[lo].rxkB"])[0].1, [float(0.5)]);
    let recording = Recording::open(&[folder.path().join("data")]).unwrap();
    let unit = |source: &str, path: &str| {
        let of_source = recording.fields().into_iter().find(|own| own.source == source).unwrap();
        of_source.fields.into_iter().find(|field| field.path == path).unwrap().unit
    };
    assert_eq!(unit("sar-cpu-load", "cpu_load[*].usr").as_deref(), Some("%"));
    assert_eq!(unit("sar-memory", "memfree").as_deref(), Some("KiB"));
    assert_eq!(unit("sar-net-dev", "net_dev[*].rxkB").as_deref(), Some("KiB/s"));
    let listing = list(&[folder.path().join("data")]).unwrap().remove(0);
    assert_eq!(listing.open().unwrap().unwrap().header().host.name, "web1");
}

// Proves that a whole document of sadf is imported, with every number of every group in its place.
#[test]
fn a_whole_document_is_imported() {
    let content = std::fs::read_to_string("../../tests/data/sar/sadf-12.6.1.json").unwrap();
    let (report, folder) = import_text(&content).unwrap();
    assert!(report.is_complete(), "{:?}", report.flaws);
    assert_eq!(report.totals.sources.len(), 35);
    assert!(report.totals.sources.iter().all(|source| source.recorded == 3));
    let recording = Recording::open(&[folder.path().join("data")]).unwrap();
    let mut reader = recording.query(&Query::default()).unwrap();
    let mut values = 0;
    while let Some(item) = reader.next().unwrap() {
        if let QueryItem::Batch(batch) = item {
            let known = |column: &ValueColumn| (0..batch.rows()).filter(|row| column.valid.has(*row)).count();
            values += batch.columns.iter().map(known).sum::<usize>();
        }
    }
    // All numbers and strings of the document, except times and properties of the host.
    let document: serde_json::Value = serde_json::from_str(&content).unwrap();
    let statistics = document["sysstat"]["hosts"][0]["statistics"].as_array().unwrap();
    let expected: usize = statistics.iter().map(|entry| leaves(entry) - leaves(&entry["timestamp"])).sum();
    assert_eq!(values, expected);
}

/// Returns the number of scalar values in a JSON value.
fn leaves(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(elements) => elements.iter().map(leaves).sum(),
        serde_json::Value::Object(members) => members.values().map(leaves).sum(),
        _ => 1,
    }
}

// Proves that hosts beyond the maximum are counted and reported.
#[test]
fn further_hosts_are_counted() {
    let empty = r#"{"nodename": "idle", "statistics": []},"#.repeat(HOSTS_MAX);
    let document = DOCUMENT.replacen(r#""hosts": ["#, &format!(r#""hosts": [{empty}"#), 1);
    let (report, _folder) = import_text(&document).unwrap();
    let flaws: Vec<String> = report.flaws.iter().map(|flaw| flaw.what.clone()).collect();
    let expected = "2 statistics are of hosts after the first 1024, the most of one import; split the file";
    assert!(flaws.iter().any(|what| what == expected), "{flaws:?}");
    assert!(report.totals.sources.is_empty());
}

// Proves that a document can be truncated at any byte. The import then has the statistics before
// the end of the truncated document, and reports the place of the truncation. If there are no
// statistics before the truncation, nothing is imported.
#[test]
fn cut_documents_give_what_is_before() {
    let first_end = DOCUMENT.find("22:13:21").unwrap();
    let mut imported = 0;
    for cut in (0..DOCUMENT.trim_end().len()).step_by(7) {
        match import_text(&DOCUMENT[..cut]) {
            Ok((report, _folder)) => {
                assert!(cut > first_end - 100, "{cut}");
                let what = &report.flaws[0].what;
                assert!(what.contains("line ") && what.contains("column "), "{what}");
                imported += 1;
            }
            Err(error) => {
                assert!(cut < first_end, "{cut}: {error}");
                assert!(error.to_string().contains("sadf -j"), "{error}");
            }
        }
    }
    assert!(imported > 20, "{imported}");
}

// Proves that other JSON is refused with an error that names the required input. If an entry has no
// time, only this entry is reported and left out.
#[test]
fn other_documents_are_refused() {
    for other in ["", "[1, 2]", "{\"a\": 1}", "time,a\n1,2\n", "{\"sysstat\": {\"hosts\": 3}}"] {
        let error = import_text(other).err().unwrap().to_string();
        assert!(error.contains("import what sadf -j FILE -- -A prints"), "{other}: {error}");
    }
    let timeless = DOCUMENT.replacen("\"time\": \"22:13:20\"", "\"time\": \"soon\"", 1);
    let (report, folder) = import_text(&timeless).unwrap();
    assert!(report.flaws[0].what.contains("not a time; skipped"), "{:?}", report.flaws);
    assert_eq!(rows(folder.path(), &["sar-memory.memfree"]).len(), 1);
}
