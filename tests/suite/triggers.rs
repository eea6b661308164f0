//! Rules as a user has them: shipped ones, configured ones, firings in a recording, and replays.

use serde_json::Value;

use super::rig::Rig;
use flatcap::config::Config;

const SHIPPED: &str = include_str!("../../config/triggers.toml");

// Proves that every shipped rule is off, and compiles with the sources that its comment asks for.
#[test]
fn shipped_rules_compile() {
    let config = Config::parse("triggers.toml", SHIPPED).unwrap();
    assert_eq!((config.triggers.len(), config.rules().len()), (9, 0));
    let on = SHIPPED.replace("enabled = false", "enabled = true");
    let refused = Config::parse("triggers.toml", &on).unwrap_err().to_string();
    assert!(
        refused.contains("the source thermal is off; set enabled = true in [source.thermal]"),
        "{refused}"
    );
    let config =
        Config::parse("triggers.toml", &format!("{on}\n[source.thermal]\nenabled = true\n")).unwrap();
    assert_eq!(config.compile_rules().unwrap().counts().len(), 9);
}

// Proves that a rule that does not fit is refused with its line, its condition and the nearest
// field, by check-config and by record.
#[test]
fn rules_are_checked_before_anything_starts() {
    let rig = Rig::new();
    let rules = "[trigger.a]\nwhen = \"presure.io_some.total:rate > 20%\"\n\n[trigger.b]\nwhen = \"load.load1 >\"\n\
                 [trigger.c]\nfor = \"1s\"\n[trigger.d]\nwhen = \"pressure.io_some.total:rate > 20\"\n";
    let file = rig.write("rules.toml", rules);
    let path = file.to_str().unwrap();
    for call in [rig.call(&["check-config", path]), rig.call(&["record", "--config", path])] {
        assert_eq!(call.status, Some(2), "{}", call.err);
        for part in [
            "rules.toml:5:8: [trigger.b] when",
            "byte 12: expected a field or a number",
            "[trigger.c] when: missing; write a condition in quotes",
        ] {
            assert!(call.err.contains(part), "{part}: {}", call.err);
        }
    }
    let fitting = rules.replace("load.load1 >", "load.load1 > 9").replace("[trigger.c]\nfor = \"1s\"\n", "");
    rig.write("rules.toml", fitting);
    let call = rig.call(&["check-config", path]);
    for part in [
        "rules.toml:2:8: [trigger.a] when",
        "no field \"presure.io_some.total\"; did you mean",
        "write the number with a unit, such as 20%",
    ] {
        assert!(call.err.contains(part), "{part}: {}", call.err);
    }
}

// Proves that a rule may need a source that an argument turns on, and that it is refused without.
#[test]
fn arguments_turn_on_sources_of_rules() {
    let rig = Rig::new();
    let text = "[source.load]\nenabled = false\n[trigger.a]\nwhen = \"load.load1 > 100000\"\n";
    let file = rig.write("rules.toml", text);
    let args = ["record", "--config", file.to_str().unwrap(), "--for", "200ms"];
    let refused = rig.call(&args);
    assert_eq!(refused.status, Some(2), "{}", refused.err);
    assert!(refused.err.contains("rules.toml:4:8: [trigger.a] when"), "{}", refused.err);
    let call = rig.call(&[&args[..], &["--source", "+load@10ms"]].concat());
    assert_eq!(call.status, Some(0), "{}", call.err);
    let other = rig.call(&[&args[..], &["--source", "synthetic"]].concat());
    assert_eq!(other.status, Some(2), "{}", other.err);
    assert!(other.err.contains("--source: [trigger.a] when"), "{}", other.err);
}

/// The times at which rules fired, from the marks of a recording.
fn marked(rig: &Rig) -> Vec<i64> {
    let call = rig.call(&["marks", "--json"]);
    let Value::Array(marks) = call.json() else { panic!("{}", call.err) };
    let by_rules = marks.iter().filter(|mark| mark["origin"] == "trigger");
    by_rules.map(|mark| mark["wall_ns"].as_i64().unwrap()).collect()
}

// Proves that a rule fires while recording, into the recording, at the samples at which a replay
// fires it, and that each firing says the values.
#[test]
fn a_recording_has_the_firings_of_a_replay() {
    let rig = Rig::new();
    // The triangle is above the threshold for 20 of each 1,000 samples.
    let condition = "synthetic.wave > 0.98";
    let rules = format!(
        "[source.synthetic]\nenabled = true\nperiod = \"1ms\"\n\
         [trigger.peak]\nwhen = \"{condition}\"\nfor = \"2ms\"\nafter = \"0s\"\nhold_off = \"0s\"\nmax_per_day = 1000\n"
    );
    let file = rig.write("rules.toml", rules);
    let path = file.to_str().unwrap();
    let call = rig.record_samples(&["--config", path, "--source", "synthetic@1ms"], 3600);
    assert!(call.err.contains("rule fired: peak: synthetic.wave > 0.98 (0.9"), "{}", call.err);
    let fired = marked(&rig);
    assert!(fired.len() >= 3, "{fired:?}");
    for rule in [
        &["peak", "--config", path, "--json"][..],
        &[condition, "--for", "2ms", "--hold-off", "1ms", "--all", "--json"],
    ] {
        let args = [&["check-trigger", rule[0], "flatcap-data"], &rule[1..]].concat();
        let replayed = rig.call(&args);
        let Value::Array(firings) = replayed.json() else { panic!("{}", replayed.err) };
        let times: Vec<i64> =
            firings.iter().map(|firing| firing["fired_wall_ns"].as_i64().unwrap()).collect();
        if rule[0] == "peak" {
            assert_eq!(times, fired);
        } else {
            // The default episode lasts 5 s: later peaks extend it.
            assert!(times.len() <= fired.len() && times[0] == fired[0]);
        }
        let value = &firings[0]["values"][0];
        assert_eq!(value["text"], condition);
        assert!(value["value"].as_f64().unwrap() > 0.98 && value["unit"] == "");
        assert!(replayed.err.contains("fired "), "{}", replayed.err);
    }
    let table = rig.call(&["check-trigger", "peak", "--config", path, "flatcap-data"]).text();
    assert!(table.trim_start().starts_with("fired"), "{table}");
    let none = rig.call(&["check-trigger", "synthetic.wave > 7", "flatcap-data"]);
    assert_eq!((none.status, none.text().trim()), (Some(0), "the rule would not have fired"));
    for (rule, message) in [
        ("nosuch", "no rule nosuch in the configuration"),
        ("synthetic.wav > 1", "did you mean synthetic.wave?"),
        ("synthetic.wave >", "expected a field or a number"),
    ] {
        let refused = rig.call(&["check-trigger", rule, "flatcap-data"]);
        assert_eq!(refused.status, Some(2), "{rule}");
        assert!(refused.err.contains(message), "{rule}: {}", refused.err);
    }
}
