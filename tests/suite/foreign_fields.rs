//! `spikes` and `explain` rank the fields of applications and imports, of whose scale nothing is
//! known.

use std::fmt::Write as _;

use flatcap_format::testing::effort;
use serde_json::Value;

use crate::rig::Rig;

const FIELDS: u64 = 100;
/// 10 each second.
const ROWS: u64 = 400;
const START_MS: u64 = 1_700_000_000_000;

/// Numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % end
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        self.below(1 << 30) as f64 / f64::from(1 << 30)
    }

    /// About normal, with a deviation of 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// The event of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    None,
    /// Twenty deviations and twice the level more.
    Jump,
    /// A quarter of the level.
    Fall,
    /// The last value repeats.
    Freeze,
    /// There is no value.
    Vanish,
}

/// The usual course of a field.
#[derive(Debug, Clone, Copy)]
enum Usual {
    Constant,
    /// Noise of this share of the level.
    Noise(f64),
    /// Noise in whole numbers.
    Whole,
    /// Up and down, with this many samples for both.
    Wave(f64),
    /// It goes its own way.
    Walk,
    /// One of a few levels, each for about a second.
    Levels,
}

fn usual(random: &mut Random) -> Usual {
    match random.below(8) {
        0 => Usual::Constant,
        1 | 2 => Usual::Noise(0.002),
        3 => Usual::Noise(0.05),
        4 => Usual::Whole,
        5 => Usual::Wave(20.0 + 60.0 * random.share()),
        6 => Usual::Walk,
        _ => Usual::Levels,
    }
}

/// Returns the rows of a file in which something happens to one field, its number, and the rows of
/// the event.
fn file(seed: u64, event: Event) -> (String, u64, std::ops::Range<u64>) {
    let mut random = Random(seed);
    let changed = random.below(FIELDS);
    let begin = 150 + random.below(200);
    let rows = match event {
        Event::Freeze => begin..begin + 25 + random.below(20),
        Event::Vanish => begin..begin + 10 + random.below(20),
        _ => begin..begin + 3 + random.below(20),
    };
    let fields: Vec<(Usual, f64)> = (0..FIELDS)
        .map(|field| {
            let level = 10_f64.powf(4.0 * random.share() - 1.0);
            let usual = usual(&mut random);
            // Of a constant, one more repetition is none; one that goes its own way may fall.
            let is_plain = field != changed || matches!(usual, Usual::Noise(_));
            (if is_plain { usual } else { Usual::Noise(0.01) }, level)
        })
        .collect();
    let mut state: Vec<f64> = fields.iter().map(|(_, level)| *level).collect();
    let mut text = "time".to_owned();
    (0..FIELDS).for_each(|field| write!(text, ",f{field}").unwrap());
    let mut last = String::new();
    for row in 0..ROWS {
        write!(text, "\n{}", START_MS + row * 100).unwrap();
        for (field, (usual, level)) in (0..).zip(&fields) {
            let own = &mut state[field as usize];
            let value = match usual {
                Usual::Constant => *level,
                Usual::Noise(part) => level * (1.0 + part * random.normal()),
                Usual::Whole => (level + 3.0 * random.normal()).round(),
                Usual::Wave(period) => {
                    let turn = row as f64 / period * std::f64::consts::TAU;
                    level * (1.0 + 0.3 * turn.sin() + 0.01 * random.normal())
                }
                Usual::Walk => {
                    *own += 0.01 * level * random.normal();
                    *own
                }
                Usual::Levels => {
                    if random.below(8) == 0 {
                        *own = level * (1 + random.below(4)) as f64;
                    }
                    *own
                }
            };
            let mut shown = format!("{value:.6}");
            if field == changed && rows.contains(&row) {
                shown = match event {
                    Event::None => shown,
                    Event::Jump => format!("{:.6}", value * 3.0 + 20.0 * 0.05 * level),
                    Event::Fall => format!("{:.6}", value / 4.0),
                    Event::Freeze => last.clone(),
                    Event::Vanish => String::new(),
                };
            } else if field == changed {
                last.clone_from(&shown);
            }
            write!(text, ",{shown}").unwrap();
        }
    }
    text.push('\n');
    (text, changed, rows)
}

/// Imports a file and returns its spikes.
fn spikes(rig: &Rig, text: &str) -> Value {
    rig.write("plant.csv", text);
    let called = rig.call(&["import", "csv", "plant.csv", "--data-dir", "data"]);
    assert_eq!(called.status, Some(0), "{}", called.err);
    rig.call(&["spikes", "data", "--json"]).json()
}

// Proves that a field of unknown unit that jumps, falls, freezes or vanishes among 99 others is the
// first spike, at its time, and that recordings without an event have no spikes.
#[test]
fn one_field_of_a_hundred_is_found() {
    let seeds = effort::of(3, 200);
    for event in [Event::Jump, Event::Fall, Event::Freeze, Event::Vanish] {
        let mut missed = Vec::new();
        for seed in 0..seeds {
            let rig = Rig::new();
            let (text, changed, rows) = file(seed * 7 + 1, event);
            let found = spikes(&rig, &text);
            let at = found[0]["wall_ns"].as_i64().unwrap_or_default() / 1_000_000;
            let row = (at - START_MS.cast_signed()) / 100;
            let field = found[0]["field"].as_str().unwrap_or_default();
            let is_field = field.split('=').next() == Some(&format!("f{changed}"));
            let is_time = (rows.start.cast_signed() - 5..rows.end.cast_signed() + 5).contains(&row);
            if !(is_field && is_time) {
                missed.push(format!("seed {seed}: f{changed} at {rows:?}, not {}", found[0]));
            }
        }
        println!("{event:?}: {} of {seeds} missed", missed.len());
        assert!(missed.len() as u64 * 50 <= seeds, "{event:?}: {missed:#?}");
    }
    let mut noisy = Vec::new();
    for seed in 0..seeds {
        let rig = Rig::new();
        let found = spikes(&rig, &file(seed * 13 + 5, Event::None).0);
        if found != Value::Array(Vec::new()) {
            noisy.push(format!("seed {seed}: {}", found[0]));
        }
    }
    println!("nothing happens: {} of {seeds} with a spike", noisy.len());
    assert!(noisy.len() as u64 * 20 <= seeds, "{noisy:#?}");
}

// Proves that values of an import are ranked whatever their unit and size: a torque for 300 ms, a
// voltage, a cycle time and a mode. `explain` names each field of a group.
#[test]
fn values_without_a_known_unit_are_found() {
    let rig = Rig::new();
    let mut text = "time,torque,voltage,cycle_ms,mode\n".to_owned();
    let mut random = Random(7);
    for row in 0..400 {
        let is_bad = (300..303).contains(&row);
        let noise = random.share() / 100.0;
        let torque = if is_bad { 1_000_000.0 } else { 10.0 + noise };
        let (voltage, cycle) = if is_bad { (3.0, 500.0) } else { (12.0 + noise, 1.0 + noise) };
        let mode = if is_bad { "fault" } else { "run" };
        writeln!(text, "{},{torque},{voltage},{cycle},{mode}", START_MS + row * 100).unwrap();
    }
    let found = spikes(&rig, &text);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["field"]), (1, &"torque".into()), "{found}");
    assert!(found[0]["value"].as_f64() > Some(300_000.0), "{found}");
    // A state counts between two samples that both have it.
    let at = (found[0]["wall_ns"].as_i64().unwrap() + 250_000_000).to_string();
    let explained = rig.call(&["explain", "data", "--at", &at, "--json"]).json();
    let fields = explained["fields"].as_array().unwrap();
    let mut named: Vec<&str> = fields.iter().map(|field| field["field"].as_str().unwrap()).collect();
    let together = fields.iter().flat_map(|field| field["together"].as_array().unwrap());
    named.extend(together.map(|other| other["field"].as_str().unwrap()));
    for field in ["torque", "voltage", "cycle_ms", "mode=fault"] {
        assert!(named.contains(&field), "{field}: {explained}");
    }
}

// Proves that "no spikes" says how many fields were ranked, and which were not and why.
#[test]
fn what_was_not_ranked_is_said() {
    let rig = Rig::new();
    let rows = |count: u64| -> String {
        let mut text = "time,level,note\n".to_owned();
        for row in 0..count {
            writeln!(text, "{},{},note {row}", START_MS + row * 100, row % 3).unwrap();
        }
        text
    };
    rig.write("long.csv", rows(300));
    rig.write("short.csv", rows(50));
    for (file, says) in [("long", "ranked"), ("short", "too little was recorded before")] {
        let path = format!("{file}.csv");
        rig.call(&["import", "csv", &path, "--data-dir", file]);
        let text = rig.call(&["spikes", file]).text();
        assert!(text.starts_with("no spikes: ") && text.contains(says), "{text}");
    }
}
