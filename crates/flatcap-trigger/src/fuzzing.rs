//! Checks properties that must hold for any condition. This module is the entry point of `fuzz/`,
//! and tests also use it.
//!
//! This module is compiled only for tests and with the feature `fuzzing`. Release builds do not
//! contain it.

use std::sync::Arc;

use flatcap_format::schema::CompiledSchema;
use flatcap_query::language::SampleCondition;

use crate::engine::{TriggerEngine, TriggerRule};
use crate::machine::TriggerTimes;
use crate::rule_source::RuleSource;

/// A payload that flatc has written, and its schema.
const SCHEMA: &[u8] = include_bytes!("../../../tests/data/schema/marked.bfbs");
const PAYLOAD: &[u8] = include_bytes!("../../../tests/data/schema/marked.bin");
const SYNTHETIC: &[u8] = include_bytes!("../../../generated/synthetic.bfbs");
const THERMAL: &[u8] = include_bytes!("../../../generated/host/thermal.bfbs");

/// Parses a condition. If the condition is valid, compiles a rule with it, and passes marks, intact
/// samples and damaged samples to the rule.
///
/// # Panics
/// Panics if the printed condition is parsed as a different condition. Also panics if a rule is
/// evaluated more often than there are samples, marks and times.
pub fn condition(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(when) = text.parse::<SampleCondition>() else { return };
    assert_eq!(when.as_str().parse::<SampleCondition>().ok().as_ref(), Some(&when));
    let compiled = [
        ("marked", SCHEMA, "flatcap.test.Marked"),
        ("synthetic", SYNTHETIC, "flatcap.synthetic.Point"),
        ("thermal", THERMAL, "flatcap.host.Thermal"),
    ]
    .map(|(name, schema, root)| (name, CompiledSchema::compile(schema, root)));
    let sources: Vec<RuleSource<'_>> = compiled
        .iter()
        .map(|(name, schema)| RuleSource { name, period_ns: 1_000_000, schema: schema.as_ref().ok() })
        .collect();
    let times = TriggerTimes { for_ns: 0, before_ns: 0, after_ns: 3, hold_off_ns: 0, max_per_day: 1000 };
    let rule = TriggerRule { name: Arc::from("rule"), when, clear: None, times };
    let Ok(mut engine) = TriggerEngine::new(&[rule], &sources) else { return };
    let mut events = Vec::new();
    for time in 1..20_u64 {
        let mono_ns = time * 1_000_000;
        let mut payload = PAYLOAD.to_vec();
        let damaged = usize::try_from(time).unwrap_or_default() * 3 % PAYLOAD.len();
        if let (Some(byte), true) = (payload.get_mut(damaged), time.is_multiple_of(3)) {
            *byte ^= 0x55;
        }
        for source in 0..sources.len() {
            engine.observe(source, (mono_ns, 0), &payload, &mut events);
        }
        engine.observe_mark(mono_ns, "a", &mut events);
        engine.advance(mono_ns, &mut events);
    }
    // A rule is evaluated once per source, twice per mark, and once per due absence and per advance
    // of the time.
    let (_, counts) = engine.counts().next().unzip();
    let evaluated = counts.map_or(0, |counts| counts.evaluated);
    assert!(evaluated <= 19 * (3 + 2 + 65), "{evaluated} evaluations");
    let fired = counts.map_or(0, |counts| counts.fired + counts.extended);
    assert!(fired <= evaluated);
}
