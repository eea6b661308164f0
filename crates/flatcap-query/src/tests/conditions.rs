//! Tests of the errors about conditions and paths that do not match the fields of a recording.

use flatcap_format::testing::shared_names::write_recording;

use super::engine::{cpu, segment_of};
use crate::{Query, Recording};

const MARKED: &[u8] = include_bytes!("../../../../tests/data/schema/marked.bin");

// Proves that each error shows the position of the mistake and the string to write instead.
#[test]
fn errors_show_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = segment_of(folder.path(), &[(0, cpu(&[7], 3)), (1, MARKED.to_vec())]);
    let recording = Recording::open(&[path]).unwrap();
    for (condition, says) in [
        ("cpu.total.user > 1%", "% is not s; write a number such as 5ms"),
        ("cpu.total.user > many", "no field \"many\""),
        ("marked.state = On", "compare it with a text in quotes: marked.state = \"On\""),
        ("marked.state = 3", "compare it with a text in quotes: marked.state = \"3\""),
        ("marked.state < \"On\"", "compared with =, != or =~"),
        ("cpu.forks = \"3\"", "cpu.forks is ulong; compare it with a number"),
        ("cpu.forks > 1 s", "s is not a plain number; write a number such as 100"),
    ] {
        let query = Query { condition: Some(condition.parse().unwrap()), ..Query::default() };
        let error = recording.query(&query).unwrap_err().to_string();
        assert!(error.contains(says), "{condition}: {error}");
    }
}

// Proves that, if a condition has a unit that its field has in no run, the error shows the units of
// the field.
#[test]
fn other_units_are_suggested() {
    let suggested = |seed| {
        let folder = tempfile::tempdir().unwrap();
        write_recording(folder.path(), seed);
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        let fields = vec!["app.devices[*].count{nope}".parse().unwrap()];
        recording.query(&Query { fields, ..Query::default() }).unwrap_err().to_string()
    };
    let both = "did you mean app.devices[*].count{ns}, app.devices[*].count{us}?";
    let all: Vec<String> = (0..20).map(suggested).collect();
    assert!(all.iter().any(|error| error.ends_with(both)), "{all:#?}");
    assert!(all.iter().all(|error| error.contains("did you mean app.devices[*].count")), "{all:#?}");
}
