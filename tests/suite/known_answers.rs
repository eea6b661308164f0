//! Answers about small recordings of another writer, whose content is known, and about a program
//! that executes another one.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::rig::Rig;

/// Returns the lines of a dump of one of the recordings as JSON.
fn dumped(rig: &Rig, recording: &str, args: &[&str]) -> Vec<Value> {
    let path = format!("{}/tests/data/answers/{recording}", env!("CARGO_MANIFEST_DIR"));
    let call = rig.call(&[&["dump", &path, "--format", "jsonl"][..], args].concat());
    assert_eq!(call.status, Some(0), "{call:?}");
    call.lines()
}

/// Returns values by their columns, without times and host.
fn values(line: &Value) -> Value {
    let mut line = line.clone();
    for name in ["mono_ns", "wall_ns", "time", "host"] {
        line.as_object_mut().unwrap().remove(name);
    }
    line
}

// Proves that counters of each numeric type have rates, in rows and in whole samples. Each grows by
// 10 per second.
#[test]
fn counters_of_all_types_have_rates() {
    let rig = Rig::new();
    let rows = dumped(&rig, "counters", &["--fields", "a", "--rate"]);
    let rates = json!({ "a.sc": 10.0, "a.f": 10.0, "a.d": 10.0, "a.u": 10.0 });
    assert!(rows.len() > 3 && rows[1..].iter().all(|row| values(row) == rates), "{rows:?}");
    let samples = dumped(&rig, "counters", &["--source", "a", "--rate"]);
    let rates = json!({ "sc": 10.0, "f": 10.0, "d": 10.0, "u": 10.0 });
    assert!(samples[1..].iter().all(|sample| sample["data"] == rates), "{samples:?}");
}

// Proves that two elements of one sample with the same identity keep separate values and have no
// rate, in rows, steps and whole samples.
#[test]
fn elements_of_one_identity_are_not_compared() {
    let rig = Rig::new();
    let field = ["--fields", "a.p[*].c"];
    let wide = dumped(&rig, "repeated", &field);
    assert_eq!(values(&wide[1]), json!({ "a.p[x#1].c": 520, "a.p[x#2].c": 110, "a.p[y].c": 1 }));
    let of = |rows: &[Value]| -> Vec<(String, Value)> {
        let own = rows.iter().filter(|row| !row["a.p[*].c"].is_null());
        own.map(|row| (row["element"].as_str().unwrap().to_owned(), row["a.p[*].c"].clone())).collect()
    };
    let rates = of(&dumped(&rig, "repeated", &[&field[..], &["--long", "--rate"]].concat()));
    assert_eq!(rates, vec![("y".to_owned(), json!(1.0)); 4]);
    let most = of(&dumped(&rig, "repeated", &[&field[..], &["--long", "--every", "100s:max"]].concat()));
    let most: Vec<(&str, &Value)> = most.iter().map(|(name, value)| (name.as_str(), value)).collect();
    assert_eq!(most, [("x#1", &json!(580)), ("x#2", &json!(140)), ("y", &json!(4))]);
    for sample in &dumped(&rig, "repeated", &["--source", "a", "--rate"])[1..] {
        let rates = sample["data"]["p"].as_array().unwrap().iter().map(|element| element["c"].clone());
        assert_eq!(rates.collect::<Vec<_>>(), [Value::Null, Value::Null, json!(1.0)]);
    }
}

// Proves that unit, kind and type of a field in one run do not apply to another run: in rows, steps
// and conditions.
#[test]
fn a_field_of_other_meaning_has_a_column_of_its_own() {
    let rig = Rig::new();
    let columns =
        ["a.x{unsigned,bytes,counter} (B/s)", "a.x{float,bytes,counter} (B/s)", "a.x{unsigned,ns,gauge} (s)"];
    let expected = [vec![10.0], vec![10.5], vec![0.0, 7e-9, 1.4e-8, 2.1e-8]];
    let found = |more: &[&str]| -> Vec<Vec<f64>> {
        let args = [&["--fields", "a.x", "--rate", "--units"], more].concat();
        let rows = dumped(&rig, "schemas", &args);
        let of = |column: &str| {
            let cell = |row: &Value| {
                row.as_object().unwrap().iter().find_map(|(name, value)| {
                    (column.starts_with(name.as_str())).then(|| value.as_f64()).flatten()
                })
            };
            let mut values: Vec<f64> = rows.iter().filter_map(cell).collect();
            values.dedup();
            values
        };
        columns.iter().map(|column| of(column)).collect()
    };
    assert_eq!(found(&[]), expected);
    let steps = found(&["--every", "2s"]);
    assert_eq!((&steps[0], &steps[1], steps[2].len()), (&vec![10.0], &vec![10.5], 2), "{steps:?}");
    // The field of the condition is a text in one run, a number in another, and absent in one.
    let rows = dumped(&rig, "schemas", &["--fields", "a.x", "--where", "a.s > 101"]);
    let times: Vec<i64> = rows.iter().filter_map(|row| row["wall_ns"].as_i64()).collect();
    let seconds: Vec<i64> = times.iter().map(|wall_ns| wall_ns / 1_000_000_000 - 1_700_000_000).collect();
    assert_eq!(seconds, [12, 13, 20, 21, 22, 23]);
}

// Proves that integers stay exact integers in steps, beyond 2^53 and 2^63, and that a sum that no
// type holds is absent.
#[test]
fn integers_stay_integers() {
    let rig = Rig::new();
    for (aggregate, expected) in [
        ("max", json!({ "a.c": u64::MAX, "a.g": (1_u64 << 63) + 1, "a.s": i64::MAX })),
        ("min", json!({ "a.c": (1_u64 << 53) + 1, "a.g": 1_u64 << 53, "a.s": i64::MIN })),
        ("last", json!({ "a.c": u64::MAX, "a.g": 1_u64 << 63, "a.s": i64::MAX })),
        ("sum", json!({ "a.c": null, "a.g": null, "a.s": -(1_i64 << 54) - 2 })),
    ] {
        let every = format!("100s:{aggregate}");
        let rows = dumped(&rig, "integers", &["--fields", "a.c,a.g,a.s", "--every", &every]);
        assert_eq!(rows.iter().map(values).collect::<Vec<_>>(), [expected], "{aggregate}");
    }
}

// Proves that a value has the name that its process had in its sample, and that a selection by a
// name contains only values with this name.
#[test]
fn values_have_the_names_of_their_samples() {
    let rig = Rig::new();
    let samples = dumped(&rig, "names", &["--source", "a"]);
    let elements = samples.iter().flat_map(|sample| sample["data"]["procs"].as_array().unwrap());
    let named = |own: &Value| format!("{}[{}]", own["name"].as_str().unwrap(), own["pid"]);
    let expected: Vec<(String, Value)> = elements.map(|own| (named(own), own["c"].clone())).collect();
    let found = |field: &str| -> Vec<(String, Value)> {
        let rows = dumped(&rig, "names", &["--long", "--fields", field]);
        let own = rows.iter().map(|row| {
            let (_, value) =
                row.as_object().unwrap().iter().find(|(name, _)| name.starts_with("a.procs")).unwrap();
            (row["element"].as_str().unwrap().to_owned(), value.clone())
        });
        own.collect()
    };
    assert_eq!(found("a.procs[*].c"), expected);
    let of = |name: &str| -> Vec<(String, Value)> {
        expected.iter().filter(|(own, _)| own.starts_with(name)).cloned().collect()
    };
    assert_eq!((found("a.procs[bash].c"), found("a.procs[make].c")), (of("bash["), of("make[")));
    assert!(!of("bash[").is_empty() && !of("make[").is_empty());
}

/// Starts a program that computes until the file `go` exists, and then executes another one, which
/// waits.
fn start_two_programs(rig: &Rig) -> Child {
    for name in ["flatcap-count", "flatcap-rest"] {
        std::os::unix::fs::symlink(std::fs::canonicalize("/bin/sh").unwrap(), rig.path(name)).unwrap();
    }
    let script = "while [ ! -e go ]; do :; done; exec ./flatcap-rest -c 'read line'";
    let mut command = std::process::Command::new(rig.path("flatcap-count"));
    command.args(["-c", script]).current_dir(rig.path("")).stdin(Stdio::piped()).spawn().unwrap()
}

// Proves that CPU time stays with the program that used it: each row of a process has the name that
// the process had in the sample of that time. Method: a recording of this host, while a program
// that computes executes one that waits.
#[test]
fn cpu_time_stays_with_its_program() {
    let rig = Rig::new();
    let mut program = start_two_programs(&rig);
    let pid = u64::from(program.id());
    let field = format!("process.processes[pid={pid}].user_time");
    let rows = |more: &[&str]| -> Vec<(i64, String, Value)> {
        let args = [&["dump", "--long", "--fields", &field, "--format", "jsonl"], more].concat();
        let of_row = |row: &Value| {
            let mut cells = row.as_object()?.iter();
            let (_, value) = cells.find(|(name, _)| name.ends_with("user_time"))?;
            Some((row["wall_ns"].as_i64()?, row["element"].as_str()?.to_owned(), value.clone()))
        };
        rig.call(&args).lines().iter().filter_map(of_row).collect()
    };
    let has = |name: &str| rows(&[]).iter().any(|(_, label, _)| label.starts_with(name));
    let args = ["--quiet", "--source", "process@20ms"];
    rig.record_until(&args, "samples of both programs", || {
        if !rig.path("go").exists() {
            if rig.data().exists() && has("flatcap-count") {
                rig.write("go", "");
            }
            return false;
        }
        has("flatcap-rest")
    });
    drop(program.stdin.take());
    program.wait().unwrap();

    let samples = rig.call(&["dump", "--source", "process", "--format", "jsonl"]).lines();
    let of_sample = |sample: &Value| {
        let all = sample["data"]["processes"].as_array().unwrap();
        let own = all.iter().find(|own| own["pid"].as_u64() == Some(pid))?;
        let label = format!("{}[{pid}]", own["name"].as_str().unwrap());
        Some((sample["wall_ns"].as_i64().unwrap(), label, own["user_time"].clone()))
    };
    let expected: Vec<(i64, String, Value)> = samples.iter().filter_map(of_sample).collect();
    assert_eq!(rows(&[]), expected);
    for (wall_ns, label, _) in rows(&["--rate"]) {
        let is_its = |sample: &&(i64, String, Value)| (sample.0, &sample.1) == (wall_ns, &label);
        assert!(expected.iter().any(|sample| is_its(&sample)), "{label} at {wall_ns}: {expected:?}");
    }
}

// Proves that fields of two sources keep separate columns if their paths are the same text, and
// that each printed name leads to its column alone: `pool.size` of `db` and `size` of `db.pool`,
// the source 3 named `app` and a source named `app[3]`.
#[test]
fn each_column_has_the_values_of_one_source() {
    let rig = Rig::new();
    let expected = json!({
        "\"db\".pool.size": [0, 1, 2, 3], "\"db.pool\".size": [100, 101, 102, 103],
        "\"db\".pool.n": [0, 10, 20, 30], "\"db.pool\".n": [0, 1000, 2000, 3000], "db.l[x].v": [0, 1, 2, 3],
        "app[2].c": [0, 20, 40, 60], "app[3].c": [0, 30, 60, 90], "\"app[3]\".c": [0, 40, 80, 120],
    });
    let of = |args: &[&str]| -> Value {
        let mut columns = serde_json::Map::new();
        for row in dumped(&rig, "dotted_names", args) {
            for (name, value) in values(&row).as_object().unwrap() {
                let own = columns.entry(name.clone()).or_insert_with(|| json!([])).as_array_mut().unwrap();
                if !value.is_null() && own.last() != Some(value) {
                    own.push(value.clone());
                }
            }
        }
        Value::Object(columns)
    };
    let paths = [
        "db.pool.size,db.pool.n,db.l[*].v,app.c,\"app[3]\".c",
        "\"db\".pool,\"db.pool\",db.l[x].v,app[2].c,app[3].c,\"app[3]\".c",
    ];
    for path in paths {
        assert_eq!(of(&["--fields", path, "--every", "1s:last"]), expected, "{path}");
        // Rows are at the samples of one source. Later samples of the others are in no row.
        let joined = of(&["--fields", path]);
        for (name, own) in expected.as_object().unwrap() {
            let (own, found) = (own.as_array().unwrap(), joined[name].as_array().unwrap());
            assert!(found.len() >= 3 && own.starts_with(found), "{path}: {joined}");
        }
        assert_eq!(joined.as_object().unwrap().len(), expected.as_object().unwrap().len(), "{joined}");
    }
    for (name, own) in expected.as_object().unwrap() {
        assert_eq!(of(&["--fields", name]), json!({ name.as_str(): own }));
    }
}

// Proves that a path to elements of a list leads to the runs in which the field is a list, and that
// other runs keep their values.
#[test]
fn a_field_may_be_a_list_in_one_run() {
    let rig = Rig::new();
    let of = |path: &str| -> Vec<Value> {
        dumped(&rig, "list_in_one_run", &["--fields", path]).iter().map(values).collect()
    };
    let elements: Vec<Value> = (1..4).map(|own| json!({ "app.z[0]": own, "app.z[1]": own + 1 })).collect();
    assert_eq!(of("app.z[*]"), elements);
    assert_eq!(of("app.z[1]"), (2..5).map(|own| json!({ "app.z[1]": own })).collect::<Vec<_>>());
    let both = of("app.z");
    assert_eq!((both.len(), &both[0], &both[3]["app.z[1]"]), (6, &json!({ "app.z": 9 }), &json!(2)));
    let path = format!("{}/tests/data/answers/list_in_one_run", env!("CARGO_MANIFEST_DIR"));
    let refused = rig.call(&["dump", &path, "--fields", "app[0].z[0].x"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
}

// Proves that no growth of a counter is lost between samples of one time: 40 in 3 s.
#[test]
fn samples_of_one_time_are_counted() {
    let rig = Rig::new();
    let rows = dumped(&rig, "one_time", &["--fields", "eq.c", "--rate"]);
    let rates: Vec<Value> = rows.iter().map(|row| row["eq.c"].clone()).collect();
    assert_eq!(rates, [json!(null), json!(10.0), json!(null), json!(20.0), json!(10.0)]);
    let steps = dumped(&rig, "one_time", &["--fields", "eq.c", "--rate", "--every", "100s"]);
    assert_eq!(steps[0]["eq.c"], json!(40.0 / 3.0));
}

// Proves that each printed name of an element leads to that element alone: with invisible
// characters, with bytes that are no text, and with the number of another element's position.
#[test]
fn printed_names_of_elements_are_paths() {
    let rig = Rig::new();
    let rows = dumped(&rig, "odd_elements", &["--fields", "raw.l[*].c"]);
    let first = values(&rows[0]);
    let columns = first.as_object().unwrap();
    assert_eq!(columns.len(), 7, "{first}");
    for (name, value) in columns {
        let own = dumped(&rig, "odd_elements", &["--fields", name]);
        let found: Vec<Value> = values(&own[0]).as_object().unwrap().values().cloned().collect();
        assert_eq!(found, std::slice::from_ref(value), "{name}");
    }
}
