//! Imports files with times of several forms, zones and orders.

use super::*;

// Proves that a number is read as a time since 1970 without a finding only in two cases. The number
// gives a time from 1990 to 2099, or the title or an option names its unit. Dates and times of day
// without separators are also such numbers.
#[test]
fn numbers_of_other_decades_are_found() {
    let found = |content: &str| {
        let imported = import_file(content);
        (imported.rows[0].0 / 1_000_000_000, lines(&imported))
    };
    for (text, at, is_found) in [
        ("500", 500, true),
        ("0", 0, true),
        ("45596.5", 45_596, true),
        ("240101", 240_101, true),
        ("5000000000", 5_000_000_000, true),
        ("631152000", 631_152_000, false),
        ("20241027", 1_729_987_200, false),
    ] {
        let expected = vec![(FindingKind::TimeForm, 2); usize::from(is_found)];
        assert_eq!(found(&format!("time,a\n{text},1\n")), (at, expected), "{text}");
    }
    assert_eq!(found("date,time,a\n20241027,023000,1\n"), (1_729_996_200, vec![]));
    assert_eq!(found("date,time,a\n27.10.2024,023000,1\n"), (1_729_996_200, vec![]));
    let time_form = Some(TimeForm::SinceEpoch(1_000_000_000));
    let stated = try_import("a.csv", b"time,a\n500,1\n", &CsvOptions { time_form, ..plain() }).unwrap();
    assert_eq!((stated.rows[0].0, lines(&stated)), (500_000_000_000, vec![]));
    let columns = CsvColumns { time: vec!["elapsed".to_owned()], ..CsvColumns::default() };
    let elapsed =
        try_import("a.csv", b"fps,elapsed\n60,100\n61,100229\n", &CsvOptions { columns, ..plain() }).unwrap();
    assert_eq!((elapsed.rows.len(), lines(&elapsed)), (2, vec![]));
}

// Proves that rows whose number of digits means another unit are left out with a finding, in any
// order of the units. No row is read with the unit of other rows.
#[test]
fn mixed_units_of_times_are_found() {
    let at = |digits: usize, row: usize| format!("17000000{row:02}0000000000")[..digits].to_owned();
    for (first, then) in [(10, 13), (13, 10), (13, 16), (16, 13), (19, 10)] {
        for counts in [(3, 2), (2, 3), (2, 2)] {
            let digits: Vec<usize> = [vec![first; counts.0], vec![then; counts.1]].concat();
            let rows: Vec<String> = digits
                .iter()
                .enumerate()
                .map(|(row, digits)| format!("{},{row}\n", at(*digits, row)))
                .collect();
            let imported = import_file(&format!("time,a\n{}", rows.concat()));
            assert!(
                imported.rows.iter().all(|(ns, _)| ns / 1_000_000_000 / 100 == 17_000_000),
                "{first} {then} {:?}",
                imported.rows
            );
            let most = if counts.0 >= counts.1 { first } else { then };
            let kept = digits.iter().filter(|digits| **digits == most).count();
            assert_eq!((imported.rows.len(), imported.report.flaws.len()), (kept, digits.len() - kept));
            assert!(lines(&imported).iter().any(|(kind, _)| *kind == FindingKind::TimeForm));
        }
    }
}

// Proves that dates with two-digit years are read in the order of day, month and year that keeps
// the rows close together. If another order is possible, there is a finding.
#[test]
fn short_years_are_found_at_either_end() {
    for (days, first, is_found) in [
        (["24/10/27", "24/10/28"], "2024-10-27", true),
        (["27/10/24", "28/10/24"], "2024-10-27", true),
        (["10/27/24", "10/28/24"], "2024-10-27", false),
        (["95/10/27", "95/10/28"], "1995-10-27", false),
        (["27.10.24", "28.10.24"], "2024-10-27", false),
    ] {
        let rows = days.map(|day| format!("{day} 02:00:00,1\n")).concat();
        let imported = import_file(&format!("time,a\n{rows}"));
        let times: Vec<_> = imported.rows.iter().map(|(at, _)| at / 1_000_000_000).collect();
        let start: jiff::civil::Date = first.parse().unwrap();
        let start = start.at(2, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
        assert_eq!(times, [start, start + 86_400], "{days:?}");
        let kinds: Vec<_> = lines(&imported).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, vec![FindingKind::TimeForm; usize::from(is_found)], "{days:?}");
    }
}

// Proves that, if the newest row is first, the rows get the same times whether they are imported in
// the order of the file or sorted. The same applies in a repeated hour.
#[test]
fn the_order_of_rows_changes_no_time() {
    let zone = Some(TimeZone::get("Europe/Berlin").unwrap());
    let clocks = ["03:00", "02:40", "02:20", "02:00", "02:40", "02:20", "02:00", "01:40"];
    let rows: Vec<String> = clocks.iter().map(|clock| format!("2024-10-27 {clock}:00,1\n")).collect();
    let content = format!("time,a\n{}", rows.concat());
    let expected: Vec<i64> = (0..8).map(|row| 1_729_994_400 - row * 1200).collect();
    for order in [None, Some(RowOrder::File), Some(RowOrder::Time)] {
        let options = CsvOptions { order, zone: zone.clone(), ..plain() };
        let imported = try_import("data.csv", content.as_bytes(), &options).unwrap();
        let mut times: Vec<i64> = imported.rows.iter().map(|(at, _)| at / 1_000_000_000).collect();
        times.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        assert_eq!((times, lines(&imported)), (expected.clone(), vec![]), "{order:?}");
    }
}

// Proves that rows of a second device in a repeated hour are a finding if the hour may begin again
// with that device. If rows of the devices alternate, there is no finding.
#[test]
fn devices_in_a_repeated_hour_are_found() {
    let zone = Some(TimeZone::get("Europe/Berlin").unwrap());
    let found_in = |title: &str, cell: &str, rows: &[(&str, &str)]| {
        let rows: Vec<String> =
            rows.iter().map(|(clock, host)| format!("2024-10-27 {clock}:00,{cell}{host},1\n")).collect();
        let content = format!("time,{title}host,a\n{}", rows.concat());
        let options = CsvOptions { zone: zone.clone(), ..plain() };
        let imported = try_import("data.csv", content.as_bytes(), &options).unwrap();
        lines(&imported)
            .into_iter()
            .filter(|(kind, _)| *kind == FindingKind::RepeatedHour)
            .collect::<Vec<_>>()
    };
    let found = |rows: &[(&str, &str)]| found_in("", "", rows);
    let twice = |host: &'static str| [("02:00", host), ("02:20", host), ("02:40", host)];
    let one_after_the_other = [&twice("a")[..], &twice("b")].concat();
    assert_eq!(found(&one_after_the_other), [(FindingKind::RepeatedHour, 2)]);
    let with_zones = found_in("zone,", "Europe/Berlin,", &one_after_the_other);
    assert_eq!(with_zones, [(FindingKind::RepeatedHour, 2)], "each row names its zone");
    let of_one = [&twice("a")[..], &twice("a")].concat();
    assert_eq!(found(&of_one), []);
    let both = |clock| [(clock, "a"), (clock, "b")];
    let clocks = ["02:00", "02:20", "02:40", "02:00", "02:20", "02:40", "03:00"];
    assert_eq!(found(&clocks.map(both).concat()), []);
}

// Proves that a second column with full times is a finding, unless both columns have the same times
// or an option names one of them.
#[test]
fn other_columns_with_times_are_found() {
    let content = |other: &str| format!("time,timestamp,a\n2024-10-27 12:00:00,{other},1\n");
    let imported = import_file(&content("2024-10-27 11:59:58"));
    assert_eq!(lines(&imported), [(FindingKind::Header, 1)]);
    let found = &imported.report.findings[0];
    assert!(found.assumed.contains("from time, though timestamp has other times"), "{found:?}");
    assert_eq!(found.option.as_deref(), Some("--time time, or --time timestamp"));
    assert_eq!(lines(&import_file(&content("2024-10-27 12:00:00"))), []);
    assert_eq!(lines(&import_file(&content("5"))), [], "no time");
    let columns = CsvColumns { time: vec!["timestamp".to_owned()], ..CsvColumns::default() };
    let stated = CsvOptions { columns, ..plain() };
    let stated = try_import("data.csv", content("2024-10-27 11:59:58").as_bytes(), &stated).unwrap();
    assert_eq!(lines(&stated), []);
    let months = import_file("time,a\n27-OCT-2024 12:00:00,1\n28-OCT-2024 12:00:00,2\n");
    assert_eq!((months.rows.len(), lines(&months)), (2, vec![]));
}

// Proves that times are in the zone that the file names, and that a stated zone has priority. If no
// row proves the order of day and month, there is a finding.
#[test]
fn zones_and_dates_are_those_of_the_file() {
    let first = |imported: &Imported| imported.rows[0].0 / 1_000_000_000;
    for content in [
        "time (UTC+1),a\n2023-11-14 23:13:20,1\n",
        "# timezone: Europe/Berlin\ntime,a\n2023-11-14 23:13:20,1\n",
        "time,tz,a\n2023-11-14 23:13:20,CET,1\n",
        "time,a\n2023-11-14 23:13:20 CET,1\n",
        "time,a\n2023-11-14 23:13:20 +0100,1\n",
    ] {
        let imported = import_file(content);
        assert_eq!((first(&imported), lines(&imported)), (1_700_000_000, vec![]), "{content}");
    }
    let shanghai = CsvOptions { host_zone: TimeZone::get("Asia/Shanghai").unwrap(), ..plain() };
    for (content, options, at, is_found) in [
        ("Time (CST),a\n2023-11-15 06:13:20,1\n", &shanghai, 1_700_000_000, false),
        ("Time (CST),a\n2023-11-14 16:13:20,1\n", &plain(), 1_700_000_000, true),
        ("Time (CST),a\n1700000000,1\n", &plain(), 1_700_000_000, false),
        ("# timezone: IST\ntime,a\n2023-11-15 03:43:20,1\n", &plain(), 1_700_000_000, true),
        ("# timezone: XYZ\ntime,a\n2023-11-14 22:13:20,1\n", &plain(), 1_700_000_000, true),
    ] {
        let imported = try_import("data.csv", content.as_bytes(), options).unwrap();
        let is_zone = lines(&imported).iter().any(|(kind, _)| *kind == FindingKind::Zone);
        assert_eq!((first(&imported), is_zone), (at, is_found), "{content}");
    }
    let options = CsvOptions { zone: Some(TimeZone::UTC), ..plain() };
    let stated = try_import("data.csv", b"time (UTC+1),a\n2023-11-14 22:13:20,1\n", &options).unwrap();
    assert_eq!(first(&stated), 1_700_000_000);
    let either = import_file("time,a\n01/02/2024 00:00:00,1\n02/02/2024 00:00:00,2\n");
    assert_eq!(lines(&either), [(FindingKind::TimeForm, 2)]);
    for content in ["Time [ms],a\n500,1\n1500,2\n", "time,a\nms,V\n500,1\n1500,2\n"] {
        let named = import_file(content);
        assert_eq!((named.rows[0].0, lines(&named)), (500_000_000, vec![]), "{content}");
    }
    let proven = import_file("time,a\n01/02/2024 00:00:00,1\n01/13/2024 00:00:00,2\n");
    assert_eq!((first(&proven), lines(&proven)), (1_704_153_600, vec![]));
}
