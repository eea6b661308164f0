//! Questions to a recording: fields, rows of fields over several sources, steps, digests.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, has_segment, number, signal};

/// Records the sources that the tests ask for.
fn recorded() -> Rig {
    let rig = Rig::new();
    let sources = ["cpu@10ms", "memory@20ms", "network@10ms", "synthetic@10ms"];
    let args: Vec<&str> = sources.iter().flat_map(|source| ["--source", source]).collect();
    rig.record_samples(&args, 30);
    rig
}

/// Returns the lines of a CSV as cells, the header first.
fn cells(called: &CallResult) -> Vec<Vec<String>> {
    assert_eq!(called.status, Some(0), "{called:?}");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&*called.out);
    reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

/// Returns whole samples of a source.
fn samples(rig: &Rig, source: &str) -> Vec<Value> {
    rig.call(&["dump", "--source", source, "--format", "jsonl"]).lines()
}

// Proves that fields lists every field with type, unit, kind and meaning in 80 columns, by source
// and by word, and that dump accepts each path.
#[test]
fn fields_are_listed() {
    let rig = recorded();
    let all = rig.call(&["fields", "--json"]).json();
    let all = all.as_array().unwrap();
    let field = |name: &str| all.iter().find(|field| field["field"] == name).unwrap();
    let user = field("cpu.total.user");
    assert_eq!((&user["source"], &user["type"]), (&"cpu".into(), &"ulong".into()));
    assert_eq!((&user["unit"], &user["kind"]), (&"jiffies".into(), &"counter".into()));
    assert!(user["meaning"].as_str().unwrap().len() > 10, "{user}");
    assert_eq!(user.as_object().unwrap().len(), 6, "{user}");
    assert_eq!(field("network.interfaces[*].name")["kind"], "text");
    assert!(field("synthetic.wave")["unit"].is_null());
    let paths: Vec<&str> = all.iter().map(|field| field["field"].as_str().unwrap()).collect();
    assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len(), "each once");
    let called = rig.call(&["dump", "--fields", &paths.join(","), "--limit", "1", "--format", "jsonl"]);
    assert_eq!((called.status, called.lines().len()), (Some(0), 1), "{called:?}");

    let text = rig.call(&["fields"]).text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(paths.iter().all(|path| text.contains(path)), "{text}");
    for args in [&["fields", "cpu"][..], &["fields", "flatcap-data", "cpu"]] {
        let text = rig.call(args).text();
        assert!(text.contains("cpu.cores[*].times.user") && !text.contains("memory."), "{text}");
    }
    let text = rig.call(&["fields", "--search", "AVAILABLE"]).text();
    assert!(text.contains("memory.counters.mem_available") && !text.contains("cpu.total.user"), "{text}");
    for (args, status, says) in [
        (&["fields", "flatcap-data", "cpx"][..], 2, "the nearest name is cpu"),
        (&["fields", "--search", "no such word"], 1, "contains \"no such word\""),
        (&["fields", "nowhere", "cpu"], 1, "nowhere"),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(called.err.contains(says) && called.out.is_empty(), "{called:?}");
    }
}

// Proves that fields of one source come in the order given, under the names given, with the values
// of the whole samples.
#[test]
fn fields_keep_their_order() {
    let rig = recorded();
    let rows = cells(&rig.call(&[
        "dump",
        "--source",
        "cpu",
        "--format",
        "csv",
        "--fields",
        "running,context_switches,total.user,cores.0.core",
    ]));
    assert_eq!(rows[0][..5], ["time", "wall_ns", "running", "context_switches", "total.user"]);
    assert!(rows[0].len() == 6 && rows[0][5].starts_with("cpu.cores[0]"), "{:?}", rows[0]);
    let whole = samples(&rig, "cpu");
    assert_eq!(rows.len(), whole.len() + 1);
    for (row, sample) in rows[1..].iter().zip(&whole) {
        assert_eq!(row[0], sample["time"].as_str().unwrap());
        assert_eq!(row[1], sample["wall_ns"].to_string());
        assert_eq!(row[2], sample["data"]["running"].to_string());
        assert_eq!(row[3], sample["data"]["context_switches"].to_string());
        assert_eq!(row[4], sample["data"]["total"]["user"].to_string());
        assert_eq!(row[5], "0");
    }
    // JSON lines have the same values, as an object by column.
    let lines = rig.call(&["dump", "--fields", "cpu.total.user,cpu.running", "--format", "jsonl"]).lines();
    assert_eq!(lines.len(), whole.len());
    for (line, sample) in lines.iter().zip(&whole) {
        assert_eq!(line["wall_ns"], sample["wall_ns"]);
        assert_eq!(line["mono_ns"], sample["mono_ns"]);
        assert_eq!(line["cpu.total.user"], sample["data"]["total"]["user"]);
        assert_eq!(line["cpu.running"], sample["data"]["running"]);
    }
    let table = rig.call(&["dump", "--fields", "mem_available,mem_total", "--raw", "--limit", "3"]).text();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((&lines[0][..], lines.len()), (&["time", "mem_available", "mem_total"][..], 4), "{table}");
    let expected = samples(&rig, "memory")[0]["data"]["counters"]["mem_total"].to_string();
    assert_eq!(lines[1][2], expected);
    let table = rig.call(&["dump", "--fields", "mem_total", "--limit", "1"]).text();
    assert!(table.lines().last().unwrap().ends_with("iB"), "{table}");
}

// Proves that rows of several sources have the times of the fastest one, with the last values of
// the others that are at most two of their periods old.
#[test]
fn sources_are_joined_on_time() {
    let rig = recorded();
    let rows = cells(&rig.call(&[
        "dump",
        "--format",
        "csv",
        "--fields",
        "memory.counters.mem_free,synthetic.counter",
    ]));
    assert_eq!(rows[0], ["time", "wall_ns", "memory.counters.mem_free", "synthetic.counter"]);
    let (slow, fast) = (samples(&rig, "memory"), samples(&rig, "synthetic"));
    assert_eq!(rows.len(), fast.len() + 1);
    for (row, sample) in rows[1..].iter().zip(&fast) {
        assert_eq!(row[3], sample["data"]["counter"].to_string());
        let now = number(&sample["mono_ns"]);
        let before = slow.iter().rfind(|sample| number(&sample["mono_ns"]) <= now);
        let before = before.filter(|sample| now - number(&sample["mono_ns"]) <= 40_000_000);
        let expected = before.map(|sample| sample["data"]["counters"]["mem_free"].to_string());
        assert_eq!(row[2], expected.unwrap_or_default());
    }
    // The sources that are named are joined with all their fields.
    let rows = cells(&rig.call(&["dump", "--format", "csv", "--source", "memory,synthetic", "--limit", "2"]));
    assert!(rows[0].iter().any(|name| name == "memory.counters.mem_free"), "{:?}", rows[0]);
    assert!(rows[0].iter().any(|name| name == "synthetic.wave") && rows.len() == 3, "{:?}", rows[0]);
}

// Proves that elements are columns by name, or rows with --long, and that an element that no sample
// has is an error that names those there are.
#[test]
fn elements_have_names() {
    let rig = recorded();
    let rows = cells(&rig.call(&["dump", "--format", "csv", "--fields", "network.interfaces[*].rx_bytes"]));
    assert!(rows[0].contains(&"network.interfaces[lo].rx_bytes".to_owned()), "{:?}", rows[0]);
    let one = cells(&rig.call(&["dump", "--format", "csv", "--fields", "network.interfaces[lo].rx_bytes"]));
    assert_eq!(one[0][2..], ["network.interfaces[lo].rx_bytes"]);
    let place = rows[0].iter().position(|name| name == "network.interfaces[lo].rx_bytes").unwrap();
    assert!(rows.iter().zip(&one).all(|(row, one)| row[place] == one[2]) && rows.len() == one.len());
    let whole = samples(&rig, "network");
    let long = cells(&rig.call(&[
        "dump",
        "--long",
        "--format",
        "csv",
        "--fields",
        "network.interfaces[*].rx_bytes,network.interfaces[*].name",
    ]));
    assert_eq!(long[0][..3], ["time", "wall_ns", "element"]);
    let mut rest = long[1..].iter();
    for sample in &whole {
        for interface in sample["data"]["interfaces"].as_array().unwrap() {
            let row = rest.next().unwrap();
            assert_eq!(row[1], sample["wall_ns"].to_string());
            assert_eq!((&row[2], &row[4]), (&row[4], &interface["name"].as_str().unwrap().to_owned()));
            assert_eq!(row[3], interface["rx_bytes"].to_string());
        }
    }
    assert!(rest.next().is_none());
    for args in [&["--format", "csv"][..], &["--long"], &[]] {
        let asked = ["dump", "--fields", "network.interfaces[nowhere0].rx_bytes"];
        let called = rig.call(&[&asked[..], args].concat());
        assert_eq!((called.status, called.out.len()), (Some(2), 0), "{called:?}");
        assert!(called.err.contains("no sample in the selected time has such an element; there are "));
        assert!(called.err.contains("lo"), "{called:?}");
    }
    let called = rig.call(&["dump", "--long", "--fields", "cpu.cores,network.interfaces"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(
        called.err.contains("fields of one list; these are of cpu.cores, network.interfaces"),
        "{called:?}"
    );
    let called = rig.call(&["dump", "--long", "--fields", "cpu.total.user"]);
    assert!(called.status == Some(2) && called.err.contains("these are of none"), "{called:?}");
}

// Proves that a step has the aggregate of its samples, that the mean rate of a step is computed
// from its first and last values, and that steps begin at multiples of their length.
#[test]
fn steps_summarize() {
    let rig = recorded();
    let whole = samples(&rig, "synthetic");
    let sum = |aggregate: &str| -> Vec<Vec<String>> {
        let every = format!("100ms:{aggregate}");
        cells(&rig.call(&["dump", "--fields", "synthetic.counter", "--every", &every, "--format", "csv"]))
    };
    let counts: Vec<u64> = sum("count")[1..].iter().map(|row| row[2].parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>() as usize, whole.len());
    let mut first = 0;
    for ((row, largest), count) in sum("min")[1..].iter().zip(&sum("max")[1..]).zip(&counts) {
        assert_eq!(row[1].parse::<u64>().unwrap() % 100_000_000, 0, "{row:?}");
        let last = first + *count as usize;
        let value = |at: usize| whole[at]["data"]["counter"].as_f64().unwrap();
        assert!(row[2].parse::<f64>().unwrap().total_cmp(&value(first)).is_eq(), "{row:?}");
        assert!(largest[2].parse::<f64>().unwrap().total_cmp(&value(last - 1)).is_eq(), "{largest:?}");
        first = last;
    }
    let last =
        cells(&rig.call(&["dump", "--fields", "synthetic.counter", "--every", "100ms", "--format", "csv"]));
    assert_eq!(last, sum("last"), "a counter has its last value");
    let args = ["dump", "--fields", "synthetic.counter", "--every", "100ms", "--rate", "--format", "csv"];
    let rates = cells(&rig.call(&args));
    let at = |sample: usize| number(&whole[sample]["mono_ns"]);
    let value = |sample: usize| whole[sample]["data"]["counter"].as_f64().unwrap();
    let mut end = 0;
    for (row, count) in rates[1..].iter().zip(&counts) {
        let first = end;
        end += *count as usize;
        let before = first.saturating_sub(1);
        // A value of more than two steps ago is too old: the rate is then one within the step.
        let start = if at(end - 1) - at(before) > 200_000_000 { first } else { before };
        if start == end - 1 {
            assert_eq!(row[2], "", "{row:?}");
            continue;
        }
        let expected = (value(end - 1) - value(start)) / ((at(end - 1) - at(start)) as f64 / 1e9);
        let rate: f64 = row[2].parse().unwrap();
        assert!((rate - expected).abs() <= 1e-6 * expected, "{rate} for {expected}");
    }
}

// Proves that the first row after --since has a rate, as it has without --since, and that converted
// units are named and accepted again.
#[test]
fn rates_begin_at_once() {
    let rig = recorded();
    let all = cells(&rig.call(&["dump", "--fields", "counter", "--rate", "--format", "csv"]));
    assert_eq!(all[1][2], "", "the first sample of a recording has no rate");
    // Of a sample with another one shortly before it; a busy machine may delay some.
    let wall = |row: usize| all[row][1].parse::<u64>().unwrap();
    let first = (5..all.len()).find(|row| wall(*row) - wall(*row - 1) < 500_000_000).unwrap();
    let since = &all[first][1];
    let some =
        cells(&rig.call(&["dump", "--fields", "counter", "--rate", "--since", since, "--format", "csv"]));
    assert_eq!(some[1..], all[first..]);
    let args = ["dump", "--fields", "cpu.total.idle", "--rate", "--units", "--format", "csv"];
    let named = cells(&rig.call(&args));
    assert_eq!(named[0][2], "cpu.total.idle (%)");
    let again = cells(&rig.call(&["dump", "--fields", &named[0][2], "--rate", "--units", "--format", "csv"]));
    assert_eq!(again, named);
    let table = rig.call(&["dump", "--fields", "synthetic.counter", "--rate", "--limit", "5"]).text();
    assert!(table.lines().last().unwrap().ends_with(" /s"), "{table}");
    assert_eq!(table.lines().count(), 6, "{table}");
}

// Proves that dump without a source is a digest of one screen that names the next commands, and
// that these work.
#[test]
fn a_digest_says_what_to_ask_next() {
    let rig = recorded();
    let called = rig.call(&["dump"]);
    let text = called.text();
    assert!(called.status == Some(0) && called.err.is_empty(), "{called:?}");
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for source in ["cpu", "memory", "network", "synthetic"] {
        assert!(text.lines().any(|line| line.starts_with(source)), "{text}");
    }
    assert!(text.contains("synthetic.noise") && text.contains("10ms"), "{text}");
    let next: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  flatcap ")).collect();
    assert_eq!(next.len(), 3, "{text}");
    for line in next {
        let args: Vec<String> = line.split_whitespace().map(|arg| arg.replace('\'', "")).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let called = rig.call(&args);
        assert!(called.status == Some(0) && !called.out.is_empty(), "{line}: {called:?}");
    }
}

// Proves that `record --for` ends with what changed most or with the reason why nothing is ranked,
// and that the commands that it prints next work as they are.
#[test]
fn a_recording_ends_with_an_answer() {
    for (length, expected) in [("300ms", "record for 30 s or longer"), ("12s", "changed most")] {
        let rig = Rig::new();
        let called = rig.call(&["record", "--for", length, "--data-dir", "it's here"]);
        assert!(called.status == Some(0) && called.err.contains(expected), "{called:?}");
        let commands: Vec<&str> = called
            .err
            .lines()
            .skip_while(|line| !line.starts_with("next "))
            .map(|line| &line[14..])
            .collect();
        let [explain, view] = commands.as_slice() else { panic!("{called:?}") };
        assert!(view.ends_with("view 'it'\\''s here'"), "{view}");
        let shell = std::process::Command::new("sh")
            .args(["-c", explain])
            .current_dir(rig.command(&[]).get_current_dir().unwrap())
            .output()
            .unwrap();
        assert!(shell.status.success() && !shell.stdout.is_empty(), "{explain}: {shell:?}");
    }
}

// Proves that rows are printed while a recording grows, each once, in every format that can be
// followed, and that a limit ends it.
#[test]
fn rows_follow_a_recording() {
    let rig = Rig::new();
    let recorder = rig.start(&["record", "--source", "synthetic@5ms", "--quiet"]);
    eventually("frames on disk", || has_segment(&rig.data(), 8 << 10));
    let follow = ["dump", "--follow", "--fields", "synthetic.counter", "--limit", "300", "--format"];
    for format in ["jsonl", "csv", "table"] {
        let called = rig.call(&[&follow[..], &[format]].concat());
        assert_eq!(called.status, Some(0), "{called:?}");
        let text = called.text();
        let counters: Vec<u64> = text
            .lines()
            .filter_map(|line| line.trim_end_matches('}').rsplit([' ', ',', ':']).next()?.parse().ok())
            .collect();
        assert_eq!(counters, (0..300).collect::<Vec<_>>(), "{format}: {text}");
    }
    let steps =
        ["dump", "--follow", "--fields", "synthetic.counter", "--every", "100ms:count", "--limit", "5"];
    let called = rig.call(&steps);
    assert!(called.status == Some(0) && called.text().lines().count() == 6, "{called:?}");
    signal(&recorder, "TERM");
    assert_eq!(finish(recorder).status, Some(0));
}

// Proves that the table of a source fits the width, by the columns that vary, that one sample is
// printed in full, turned, and that COLUMNS is heeded.
#[test]
fn tables_fit_the_width() {
    let rig = recorded();
    let called = rig.call(&["dump", "--source", "cpu"]);
    let text = called.text();
    assert!(text.lines().count() > 30 && text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.starts_with("time ") && called.err.contains("--fields chooses others"), "{called:?}");
    let list = rig.call(&["dump", "--source", "network", "--limit", "2"]).text();
    assert!(list.starts_with("time ") && list.lines().next().unwrap().contains(" element "), "{list}");
    assert!(list.lines().count() == 3 && list.lines().all(|line| line.len() <= 80), "{list}");
    let one = rig.call(&["dump", "--source", "cpu", "--limit", "1"]).text();
    assert!(one.lines().any(|line| line.starts_with("cpu.total.user ")), "{one}");
    assert!(one.lines().any(|line| line.starts_with("cpu.cores[0].times.idle ")), "{one}");
    let wide = |columns: &str, args: &[&str]| {
        CallResult::from(rig.command(&[&["dump"], args].concat()).env("COLUMNS", columns).output().unwrap())
            .text()
    };
    let fields = ["--fields", "cpu.total.user,cpu.total.system,cpu.total.idle,mem_available", "--limit", "2"];
    assert!(wide("60", &fields).starts_with("-- "), "turned");
    assert!(wide("200", &fields).starts_with("time "));
    let columns = |text: &str| text.lines().next().unwrap().split_whitespace().count();
    assert!(columns(&wide("200", &["--source", "cpu"])) > columns(&text));
}

// Proves that mistakes in fields are answered with what to write.
#[test]
fn wrong_fields_are_answered() {
    let rig = recorded();
    for (args, says) in [
        (&["--fields", "cpu.total.usr"][..], "cpu.total.user"),
        (&["--fields", "mem_availble"], "memory.counters.mem_available"),
        (&["--fields", "user"], "cpu.total.user"),
        (&["--fields", "speedometer"], "no field \"speedometer\""),
        (&["--fields", "cpu.total[0].user"], "is no list"),
        (&["--fields", "a..b"], "byte 2: a name is missing"),
        (&["--fields", "counter", "--every", "1s:median"], "use min, max, mean"),
        (&["--fields", "counter", "--limit", "0"], "--limit"),
    ] {
        let called = rig.call(&[&["dump"], args].concat());
        assert_eq!((called.status, called.out.len()), (Some(2), 0), "{called:?}");
        assert!(called.err.contains(says), "{called:?}");
    }
    let called = rig.call(&["dump", "--fields", "counter", "--since", "2001-02-03", "--until", "2001-02-04"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("the recording spans"), "{called:?}");
}

// Proves that --where keeps exactly the rows for which the condition holds, also after compression,
// and that mistakes are answered with the place, the type of the field, or a similar name.
#[test]
fn conditions_select_rows() {
    let rig = recorded();
    let all: Vec<f64> =
        samples(&rig, "synthetic").iter().map(|sample| sample["data"]["wave"].as_f64().unwrap()).collect();
    let (least, most) =
        all.iter().fold((f64::MAX, f64::MIN), |(least, most), wave| (wave.min(least), wave.max(most)));
    let middle = least.midpoint(most);
    let wanted = all.iter().filter(|wave| **wave > middle).count();
    assert!(wanted > 0 && wanted < all.len(), "{wanted} of {}", all.len());
    let condition = format!("synthetic.wave > {middle}");
    let fields = ["--fields", "synthetic.wave", "--format", "csv"];
    let selected = || {
        let called = rig.call(&[&["dump", "--where", &condition], &fields[..]].concat());
        cells(&called).len() - 1
    };
    assert_eq!(selected(), wanted);
    let none = rig.call(&[&["dump", "--where", "wave > 1e9"], &fields[..]].concat());
    assert_eq!((none.status, cells(&none).len()), (Some(0), 1));
    assert_eq!(rig.call(&["compress"]).status, Some(0));
    assert_eq!(selected(), wanted);
    for (condition, says) in [
        ("wave >", "--where"),
        (
            "synthetic.wave = \"many\"",
            "--where: \"synthetic.wave = \\\"many\\\"\": synthetic.wave is double; compare it with a number",
        ),
        ("wvae > 1", "did you mean synthetic.wave"),
        ("(wave > 1", "--where"),
    ] {
        let called = rig.call(&[&["dump", "--where", condition], &fields[..]].concat());
        assert_eq!(called.status, Some(2), "{called:?}");
        assert!(called.err.contains(says) && called.out.is_empty(), "{called:?}");
    }
}

/// Returns a path with `[*]` in place of each picked element.
fn all_elements(path: &str) -> String {
    let (mut all, mut is_inside, mut is_quoted) = (String::new(), false, false);
    for character in path.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' if !is_quoted && !is_inside => {
                is_inside = true;
                all += "[*";
            }
            ']' if !is_quoted => is_inside = false,
            _ => {}
        }
        if !is_inside {
            all.push(character);
        }
    }
    all
}

// Proves that the names of columns that dump prints are accepted as they are, by --fields and by
// --where, for each source of this host, whatever its elements are called.
#[test]
fn printed_columns_are_accepted() {
    // An argument of a program is bounded; a host has thousands of fields of processes.
    const COLUMNS_MAX: usize = 300;
    let rig = Rig::new();
    let sources = rig.call(&["sources", "--json"]).json();
    let is_available = |source: &&Value| source["available"] == true;
    let names: Vec<&str> = sources
        .as_array()
        .unwrap()
        .iter()
        .filter(is_available)
        .map(|source| source["name"].as_str().unwrap())
        .collect();
    let wanted: Vec<String> = names.iter().map(|name| format!("{name}@200ms")).collect();
    rig.record_samples(&["--source", &wanted.join(",")], 2);
    let fields = rig.call(&["fields", "--json"]).json();
    for name in names {
        let own = fields.as_array().unwrap().iter().filter(|field| field["source"] == name);
        let own: Vec<&Value> = own.collect();
        let paths: Vec<&str> = own.iter().map(|field| field["field"].as_str().unwrap()).collect();
        let dump = |fields: &str, more: &[&str]| {
            let args = ["dump", "--source", name, "--fields", fields, "--format", "csv"];
            cells(&rig.call(&[&args[..], more].concat()))
        };
        let all = dump(&paths.join(","), &[]);
        let (header, row) = (&all[0], all.last().unwrap());
        let first = header.iter().position(|column| column.starts_with(name)).unwrap();
        let end = header.len().min(first + COLUMNS_MAX);
        let columns = &header[first..end];
        let again = dump(&columns.join(","), &[]);
        assert_eq!(&again[0][first..], columns, "{name}");
        let values = columns.iter().zip(&row[first..end]).filter(|(_, value)| !value.is_empty());
        let compared: Vec<String> = values
            .map(|(column, value)| {
                let path = all_elements(column);
                let field = own.iter().find(|field| field["field"] == path.as_str());
                let field = field.unwrap_or_else(|| panic!("{column} is no field of {name}"));
                // `[ulong:16]` is an array of numbers, `[ubyte:16]` may be a string.
                let is_text = field["kind"] == "text";
                let own = field["type"].as_str().unwrap().trim_start_matches('[');
                match own.split([':', ']']).next().filter(|_| !is_text).unwrap_or_default() {
                    "bool" => format!("{column} = {value}"),
                    "double" | "float" | "ulong" | "long" | "uint" | "int" | "ushort" | "short" | "ubyte"
                    | "byte" => {
                        // Units of one source alone are not written.
                        let unit = field["unit"]
                            .as_str()
                            .filter(|unit| !["blocks", "shares", "ticks"].contains(unit));
                        format!("{column} = {value} {}", unit.unwrap_or_default())
                    }
                    _ => format!("{column} = \"{value}\""),
                }
            })
            .collect();
        let selected = dump(columns[0].as_str(), &["--where", &compared.join(" and ")]);
        assert!(
            selected[1..].iter().any(|selected| selected[..first] == row[..first]),
            "{name}: {compared:?}"
        );
    }
}
