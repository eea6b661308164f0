//! Tests of rules with fields, lists, marks and times, on generated samples.

use proptest::prelude::*;

use crate::engine::TriggerEngine;
use crate::event::TriggerChange;
use crate::fixtures::{MS, TIMES, compile, firings, point, processes, rule, zones};
use crate::machine::TriggerTimes;
use crate::{TriggerEvent, TriggerRule};

/// Returns the times at which a condition fires, for samples of the synthetic source at 1 kHz.
fn fired(when: &str, samples: &[(u64, f64)]) -> Vec<u64> {
    let samples: Vec<_> =
        (1..).zip(samples).map(|(time, (counter, wave))| (0, time, point(*counter, *wave))).collect();
    firings(rule(when), &samples).0
}

// Proves that numbers with units are compared, used in arithmetic, and combined with operators.
#[test]
fn values_are_compared() {
    let samples = [(0, 0.1), (5, 0.9), (20, 0.9), (21, 0.2), (30, 2.0)];
    assert_eq!(fired("synthetic.wave > 0.5", &samples), [2, 5]);
    assert_eq!(fired("wave >= 2 or counter = 5", &samples), [2, 5]);
    assert_eq!(fired("synthetic.counter:delta > 8", &samples), [3, 5]);
    assert_eq!(fired("synthetic.counter:rate > 14000/s", &samples), [3]);
    assert_eq!(fired("not wave < 1 and counter:delta > 2 * 4", &samples), [5]);
    assert_eq!(fired("(wave + 1) * 2 >= 6", &samples), [5]);
    assert_eq!(fired("0.5 < wave", &samples), [2, 5]);
    assert_eq!(fired("changed(synthetic.wave)", &samples), [2, 4]);
    assert_eq!(fired("counter:max(2ms) - counter:min(2ms) > 10", &samples), [3]);
}

// Proves that a division by zero, a window that is not filled and the first sample of a rate do not
// make a rule fire. The negation of these conditions does not fire either.
#[test]
fn the_unknown_fires_nothing() {
    let samples = [(0, 0.0), (0, 0.0), (0, 0.0)];
    for when in ["wave / counter > 0", "counter:delta > 5", "wave:avg(1s) > 5", "wave:quantile(0.5, 1s) > 5"]
    {
        assert!(fired(when, &samples).is_empty(), "{when}");
        assert!(fired(&format!("not {when} and counter:sum(1s) > 1"), &samples).is_empty(), "{when}");
    }
    assert!(fired("not wave / counter > 0", &samples).is_empty());
    let not_a_number = [(0, f64::NAN), (1, f64::NAN)];
    assert!(fired("wave > 0", &not_a_number).is_empty() && fired("not wave > 0", &not_a_number).is_empty());
}

// Proves that a condition on a list holds for any or for all elements of the list. Also proves that
// elements are selected as in a query, and that the result for a missing element is unknown.
#[test]
fn elements_are_quantified_and_picked() {
    let hot = 96_000.0;
    let samples: Vec<_> = [
        zones(&[(0, "cpu", 40_000.0), (1, "gpu", 50_000.0)]),
        zones(&[(0, "cpu", hot), (1, "gpu", 50_000.0)]),
        zones(&[(0, "cpu", hot), (1, "gpu", hot)]),
        zones(&[(1, "gpu", hot)]),
        zones(&[]),
        zones(&[(0, "cpu", 40_000.0), (1, "gpu", 97_000.0)]),
    ]
    .into_iter()
    .zip(1..)
    .map(|(payload, number)| (1, 100 * number, payload))
    .collect();
    let times = |when: &str| firings(rule(when), &samples).0;
    assert_eq!(times("any(thermal.zones[*].temperature > 95degC)"), [200, 600]);
    assert_eq!(times("all(thermal.zones[*].temperature > 95)"), [300]);
    assert_eq!(times("thermal.zones[gpu].temperature > 95degC"), [300]);
    assert_eq!(times("any(zones[*].type = \"gpu\" and zones[*].temperature > 95degC)"), [300, 600]);
    assert_eq!(times("any(zones[*].type =~ \"c.*\" and zones[*].temperature < 45degC)"), [100, 600]);
    assert_eq!(times("not any(thermal.zones[*].temperature > 1degC)"), [500]);
    assert!(times("not thermal.zones[gpu].temperature > 1degC").is_empty());
    assert_eq!(times("any(thermal.zones[*].temperature:delta > 10degC)"), [200]);
    let event = firings(rule("any(thermal.zones[*].temperature > 95degC)"), &samples).1.remove(0);
    assert_eq!(event.to_string(), "rule: thermal.zones[*].temperature > 95degC (cpu[0]: 96 degC)");
}

// Proves that the end of a process is detected in two ways. Either a sample contains the id and the
// signal of the ended process, or the process is absent from a sample that omits no processes.
#[test]
fn ends_of_processes_are_seen() {
    let (both, one) = ([(10, "postgres"), (11, "bash")], [(11, "bash")]);
    let at = |payloads: Vec<Vec<u8>>| -> Vec<(usize, u64, Vec<u8>)> {
        payloads.into_iter().zip(1..).map(|(payload, number)| (2, 100 * number, payload)).collect()
    };
    let with_events = at(vec![
        processes(&both, &[], true, 0),
        processes(&[(11, "bash")], &[(99, Some(11))], true, 5),
        processes(&one, &[(10, Some(9))], true, 0),
        processes(&one, &[], true, 0),
    ]);
    let times = |when: &str, samples: &[_]| firings(rule(when), samples).0;
    assert_eq!(times("exited(name=\"postgres\")", &with_events), [300]);
    assert_eq!(times("exited(name=\"postgres\", signal=9)", &with_events), [300]);
    assert!(times("exited(name=\"postgres\", signal!=9)", &with_events).is_empty());
    assert!(times("exited(name=\"bash\")", &with_events).is_empty());
    assert_eq!(times("exited(signal=11)", &with_events), [200]);
    let without = at(vec![
        processes(&both, &[], false, 0),
        processes(&one, &[], false, 3),
        processes(&one, &[], false, 0),
        processes(&one, &[], false, 0),
    ]);
    assert_eq!(times("exited(name=~\"post.*\")", &without), [300]);
    assert!(times("exited(name=\"postgres\", signal=9)", &without).is_empty());
    assert!(times("not exited(name=\"postgres\", signal=9)", &without).is_empty());
}

// Proves that a source that sends nothing becomes absent at the exact time, and that a sample ends
// the absence. Also proves that the lateness of late samples is measured.
#[test]
fn sources_are_absent_and_late() {
    let mut engine = compile(&[rule("absent(synthetic, 50ms)"), rule("lateness(synthetic) > 5ms")]).unwrap();
    let mut events = Vec::new();
    for time in 1..=10 {
        engine.observe(0, (time * MS, 0), &point(time, 0.0), &mut events);
        engine.advance(time * MS, &mut events);
    }
    assert!(events.is_empty());
    engine.advance(59 * MS, &mut events);
    assert!(events.is_empty());
    engine.advance(75 * MS, &mut events);
    assert_eq!(
        (events.len(), events[0].fired_mono_ns, events[0].values[0].text.as_ref()),
        (2, 60 * MS, "absent(synthetic)")
    );
    events.clear();
    engine.observe(0, (80 * MS, 0), &point(80, 0.0), &mut events);
    let changes: Vec<_> = events.iter().map(|event| (event.change, event.fired_mono_ns / MS)).collect();
    assert_eq!(changes, [(TriggerChange::Fired, 80)]);
    assert_eq!(events[0].values[0].to_string(), "lateness(synthetic) > 5ms (69 ms)");
}

// Proves that a mark makes a rule fire at the time of the mark if the whole string of the mark
// matches. Also proves that no other rule fires.
#[test]
fn marks_fire() {
    let mut engine = compile(&[rule("mark(\"deploy .*\")"), rule("not mark(\"deploy .*\")")]).unwrap();
    let mut events = Vec::new();
    for (time, text) in [(5, "a deploy 7"), (6, "deploy 7"), (9, "deploy 8")] {
        engine.observe_mark(time * MS, text, &mut events);
    }
    let fired: Vec<u64> = events
        .iter()
        .filter(|event| {
            event.change == TriggerChange::Fired
                && event.values.first().is_some_and(|value| value.text.contains("deploy"))
        })
        .map(|event| event.fired_mono_ns / MS)
        .collect();
    assert_eq!(fired, [6, 9]);
}

// Proves that a value of another source stays valid for some time and is unknown afterwards. Also
// proves that a pause of a source restarts its windows.
#[test]
fn values_hold_for_some_time() {
    let hot = zones(&[(0, "cpu", 96_000.0)]);
    let mut samples = vec![(1, 10, hot)];
    samples.extend(
        [100, 1900, 2011, 2100].map(|time| (0, time, point(time, f64::from(u8::from(time != 1900))))),
    );
    let when = "thermal.zones[cpu].temperature > 95degC and synthetic.wave > 0.5";
    assert_eq!(firings(rule(when), &samples).0, [100]);
    let paused: Vec<_> = [1, 2, 3, 2100, 2101].map(|time| (0, time, point(time, 1.0))).into();
    let delta = rule("counter:delta >= 1");
    assert_eq!(firings(delta, &paused).0, [2]);
}

// Proves that all values are unknown, including lists, if a payload does not match its schema.
#[test]
fn malformed_payloads_are_unknown() {
    let samples = vec![(1, 100, zones(&[(0, "cpu", 1.0)])), (1, 200, vec![1, 2, 3]), (1, 300, Vec::new())];
    assert!(firings(rule("not any(thermal.zones[*].temperature > 0degC)"), &samples).0.is_empty());
}

// Proves that everything restarts after samples were skipped, and that a successor of an engine
// keeps the limits.
#[test]
fn interruptions_and_successors() {
    let limited = TriggerRule { times: TriggerTimes { hold_off_ns: 1000 * MS, ..TIMES }, ..rule("wave > 1") };
    let mut engine = compile(&[limited.clone(), rule("counter:delta > 0")]).unwrap();
    let mut events = Vec::new();
    engine.observe(0, (MS, 0), &point(1, 2.0), &mut events);
    engine.interrupt();
    engine.observe(0, (3 * MS, 0), &point(5, 0.0), &mut events);
    assert_eq!(events.len(), 2, "{events:?}");
    let mut absent = compile(&[rule("absent(synthetic, 5ms)")]).unwrap();
    let mut absences = Vec::new();
    absent.observe(0, (MS, 0), &point(1, 0.0), &mut absences);
    absent.interrupt();
    absent.advance(100 * MS, &mut absences);
    absent.advance(104 * MS, &mut absences);
    assert!(absences.is_empty());
    absent.advance(105 * MS, &mut absences);
    assert_eq!(absences[0].fired_mono_ns, 105 * MS);
    let mut next = compile(std::slice::from_ref(&limited)).unwrap();
    next.adopt(&engine);
    next.observe(0, (5 * MS, 0), &point(6, 2.0), &mut events);
    assert_eq!(next.counts().next().unwrap().1.suppressed_hold_off, 1);
    // The condition holds, so the rule does not fire after another reload. If the condition had
    // changed, only the hold-off would keep the rule from firing.
    let mut again = compile(std::slice::from_ref(&limited)).unwrap();
    again.adopt(&next);
    again.observe(0, (7 * MS, 0), &point(7, 2.0), &mut events);
    assert_eq!(again.counts().next().unwrap().1.suppressed_hold_off, 1);
    let mut other = compile(&[TriggerRule { times: limited.times, ..rule("wave > 1.5") }]).unwrap();
    other.adopt(&again);
    other.observe(0, (9 * MS, 0), &point(9, 2.0), &mut events);
    assert_eq!(other.counts().next().unwrap().1.suppressed_hold_off, 2);
}

// Proves that the time `for` does not include time in which samples were skipped or the source
// paused.
#[test]
fn nothing_holds_unseen() {
    let lasting = TriggerRule { times: TriggerTimes { for_ns: 10 * MS, ..TIMES }, ..rule("wave > 1") };
    let mut engine = compile(&[lasting]).unwrap();
    let mut events = Vec::new();
    let observe = |engine: &mut TriggerEngine, time: u64, events: &mut Vec<TriggerEvent>| {
        engine.observe(0, (time * MS, 0), &point(time, 2.0), events);
    };
    observe(&mut engine, 1, &mut events);
    engine.interrupt();
    observe(&mut engine, 12, &mut events);
    observe(&mut engine, 5000, &mut events);
    assert!(events.is_empty(), "{events:?}");
    (5001..=5010).for_each(|time| observe(&mut engine, time, &mut events));
    assert_eq!(events.len(), 1, "{events:?}");
}

// Proves that each sample with an end of a process is a separate event, even directly after another
// such sample.
#[test]
fn ends_in_a_row_are_events() {
    let samples: Vec<_> = [
        processes(&[(10, "worker"), (11, "worker"), (12, "bash")], &[], true, 0),
        processes(&[(11, "worker"), (12, "bash")], &[(10, Some(9))], true, 0),
        processes(&[(12, "bash")], &[(11, Some(9))], true, 0),
        processes(&[(12, "bash")], &[], true, 0),
    ]
    .into_iter()
    .zip(1..)
    .map(|(payload, number)| (2, 100 * number, payload))
    .collect();
    assert_eq!(firings(rule("exited(name=\"worker\")"), &samples).0, [200, 300]);
}

/// Returns a random number that is less than `limit`.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn random_below(state: &mut u64, limit: u64) -> f64 {
    (next_random(state) % limit) as f64
}

/// Returns the next number of a random number generator (splitmix64). The generator is good enough
/// for test data.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

// Proves that each of 10,000 spikes at known positions makes the rule fire exactly once, at the
// second sample of the spike and with exact times. The spikes have two to six samples and any
// height above the threshold. Noise below the threshold and single samples above it do not make the
// rule fire.
#[test]
fn no_spike_is_missed_and_none_is_invented() {
    const SPIKES: usize = 10_000;
    let times = TriggerTimes { for_ns: MS, before_ns: 10 * MS, after_ns: 5 * MS, ..TIMES };
    let mut engine = compile(&[TriggerRule { times, ..rule("synthetic.wave > 20") }]).unwrap();
    let (mut state, mut time, mut expected, mut events) = (7, 100, Vec::new(), Vec::new());
    let mut observe = |time: &mut u64, wave: f64, events: &mut Vec<TriggerEvent>| {
        engine.observe(0, (*time * MS, 0), &point(*time, wave), events);
        *time += 1;
    };
    for _ in 0..SPIKES {
        for _ in 0..12 + next_random(&mut state) % 20 {
            observe(&mut time, random_below(&mut state, 2000) / 100.0, &mut events);
        }
        if next_random(&mut state).is_multiple_of(3) {
            observe(&mut time, 1e9, &mut events);
            (0..12).for_each(|_| observe(&mut time, 20.0, &mut events));
        }
        expected.push(time * MS + MS);
        let height = 20.001 + random_below(&mut state, 1_000_000) / 10.0;
        (0..2 + next_random(&mut state) % 5).for_each(|_| observe(&mut time, height, &mut events));
    }
    (0..12).for_each(|_| observe(&mut time, 0.0, &mut events));
    assert!(events.iter().all(|event| event.change != TriggerChange::Extended));
    let of = |change| events.iter().filter(move |event| event.change == change);
    let found: Vec<u64> = of(TriggerChange::Fired).map(|event| event.fired_mono_ns).collect();
    assert_eq!(found.len(), SPIKES);
    assert_eq!(found, expected);
    for event in of(TriggerChange::Ended) {
        assert_eq!(event.condition_mono_ns, event.fired_mono_ns - MS);
        assert_eq!(event.from_mono_ns, event.fired_mono_ns - 10 * MS);
        assert_eq!(event.until_mono_ns, event.fired_mono_ns + 5 * MS);
    }
    assert_eq!(of(TriggerChange::Ended).count(), SPIKES);
}

/// Returns the error with which the parser or the compiler rejects a condition.
fn refused(when: &str) -> String {
    match when.parse::<flatcap_query::language::SampleCondition>() {
        Err(error) => error.to_string(),
        Ok(when) => {
            let problems = compile(&[TriggerRule { when, ..rule("wave > 1") }]).map(|_| ()).unwrap_err();
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    }
}

// Proves that each error names the position or the part with the mistake, and what to write
// instead.
#[test]
fn mistakes_are_named() {
    let mut wrong = Vec::new();
    for (when, message) in [
        ("", "byte 0: expected a field or a number"),
        ("wave", "expected a comparison, such as > 20%, after the value"),
        ("wave > ", "byte 6: expected a field or a number"),
        ("wave > 1 wave", "byte 9: expected and, or, an operator or the end"),
        ("(wave > 1", "expected )"),
        ("wave > 1 and", "expected a field or a number"),
        ("(wave > 1) + 2 > 3", "not a condition"),
        ("wave > 5MB", "unknown unit \"MB\"; MiB is 1024 KiB"),
        ("wave > 5 parsecs", "expected and, or, an operator or the end"),
        ("wave:avg > 1", "\":avg\" is no transform; write :rate, :delta, :avg(1s)"),
        ("wave:mean(1s) > 1", "is no transform"),
        ("wave:avg(x) > 1", "\"x\" is no duration, such as 50ms"),
        ("wave:avg(2h) > 1", "2h: a window is from 1ns to 1h"),
        ("wave:avg(100us) > 1", "shorter than the period of synthetic; write at least 1ms"),
        ("wave:avg(5min) > 1", "300000 samples, more than 65536; write at most 65536ms"),
        ("wave:quantile(0.5, 1min) > 1", "60000 samples, more than 4096"),
        ("wave:quantile(7, 1s) > 1", "a number above 0, at most 1"),
        ("absent(synthetic)", "expected a comma and a duration"),
        ("absent(sintetic, 1s)", "no source \"sintetic\"; did you mean synthetic?"),
        ("mark(deploy)", "expected a text in double quotes"),
        ("mark(\"(\")", "is no regular expression"),
        ("mark(\"(a{1000}){1000}\")", "more than 1048576 bytes when compiled"),
        ("exited(postgres)", "expected a test, as in exited(name=\"postgres\""),
        (
            "presure.io_some.total > 1s",
            "no field \"presure.io_some.total\"; did you mean pressure.io_some.total",
        ),
        ("pressure.io_some > 1", "name one of them: pressure.io_some.avg10"),
        ("pressure.io_some.total:rate > 20", "the value is in %; write the number with a unit, such as 20%"),
        ("pressure.io_some.total:rate > 5ms", "s is not %; write a number such as 20%"),
        ("thermal.zones[*].temperature > 90degC", "it is about several elements; write any(...) or all(...)"),
        ("any(wave > 1)", "no field in it is of a list"),
        ("any(any(thermal.zones[*].temperature > 1))", "do not stand in each other"),
        (
            "any(thermal.zones[*].temperature > 1 and process.processes[*].threads > 1)",
            "compare fields of one list with the same elements",
        ),
        ("any(thermal.zones[*].type > \"a\")", "compared with =, != or =~"),
        ("any(thermal.zones[*].type > 5)", "is a text; compare it with =, != or =~"),
        ("wave = \"a\"", "synthetic.wave is double; compare it with a number"),
        ("any(thermal.zones[*].type:rate > 5)", "is a text, which has no transforms"),
        ("any(process.exits[*].pid:delta > 1)", "each element of this list is in one sample"),
        ("1 > 2", "compares two numbers"),
        ("wave =~ 5", "expected a text in double quotes"),
        ("any(zones[*].temperature * zones[*].temperature > 5)", "the units of this product"),
    ] {
        let said = refused(when);
        if !said.contains(message) || said.contains('\n') {
            wrong.push(format!("{when}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Proves that rules that are too large are rejected, and that each error names the limit.
#[test]
fn hostile_rules_are_bounded() {
    let deep = |open: &str, times| format!("{}wave > 1{}", open.repeat(times), ")".repeat(times));
    for nested in [deep("(", 1000), "not ".repeat(900) + "wave > 1", deep("any(", 500)] {
        assert!(refused(&nested).contains("more than 32 parentheses and nots"), "{}", refused(&nested));
    }
    assert!(refused(&"wave > 1 or ".repeat(400)).contains("more than 4096"));
    assert!(refused(&("a>1 or ".repeat(64) + "a>1")).contains("more than 64 fields"));
    assert!(refused("wave:rate:rate:rate:rate:rate > 1").contains("more than 4 transforms"));
    let many: Vec<TriggerRule> = (0..65).map(|_| rule("wave > 1")).collect();
    let problems = compile(&many).map(|_| ()).unwrap_err();
    assert!(problems[0].to_string().contains("65 rules, more than 64"));
}

proptest! {
    // Proves that a rule counts each value that is unknown because the list has too many elements.
    // A value is counted only once if `when` and `clear` compare the same field, and the count
    // continues after a reload. The test uses a window so large that only three elements fit, and a
    // model that tracks the first three elements.
    #[test]
    fn untracked_elements_are_counted(
        samples in prop::collection::vec(prop::collection::btree_set(0_u64..7, 0..6), 1..40),
        reload_at in 0_usize..40,
    ) {
        let clear = rule("all(thermal.zones[*].temperature:max(1h) < 90degC)").when;
        let when = rule("any(thermal.zones[*].temperature:max(1h) > 95degC)");
        let other = TriggerRule { name: "other".into(), ..rule("wave > 1") };
        let rules = [TriggerRule { clear: Some(clear), ..when }, other];
        let mut engine = compile(&rules).unwrap();
        let (mut tracked, mut untracked) = (Vec::new(), 0);
        for (number, ids) in samples.iter().enumerate() {
            if number == reload_at {
                let mut next = compile(&rules).unwrap();
                next.adopt(&engine);
                engine = next;
                tracked.clear();
            }
            for id in ids {
                match tracked.len() {
                    _ if tracked.contains(id) => {}
                    0..3 => tracked.push(*id),
                    _ => untracked += 1,
                }
            }
            let zone = |id: &u64| (*id, "zone", 50_000.0);
            let payload = zones(&ids.iter().map(zone).collect::<Vec<_>>());
            engine.observe(1, ((number as u64 + 1) * MS, 0), &payload, &mut Vec::new());
            let counted: Vec<u64> = engine.counts().map(|(_, counts)| counts.untracked).collect();
            prop_assert_eq!(counted, [untracked, 0]);
        }
    }

    // Proves that no condition makes the parser, the compiler or the engine panic. The conditions
    // of the test consist of words of the language in any order.
    #[test]
    fn any_words_are_parsed_or_refused(words in prop::collection::vec(prop::sample::select(vec![
        "wave", "counter", "synthetic.wave", "thermal.zones[*].temperature", "zones[cpu].type", "(", ")", "any(",
        "all(", "not ", " and ", " or ", ">", "=", "!=", "=~", "5", "20%", "5ms", "-3", "1e3", "\"cpu\"", ":rate",
        ":avg(5ms)", ":quantile(0.5, 9ms)", "changed(", "absent(thermal, 1s)", "exited(name=\"a\")", "mark(\"a\")",
        "lateness(synthetic)", "+", "-", " * ", "/", ",", " ", "[", "]", "true", "\u{e4}",
    ]), 0..12)) {
        crate::fuzzing::condition(words.concat().as_bytes());
    }
}
