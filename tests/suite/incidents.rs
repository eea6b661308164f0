//! The judge of benches/incidents accepts right answers and rejects planted wrong ones.

use std::path::Path;

use crate::incident_judge::{
    DATA_FOLDER, Incident, IncidentScore, IncidentVerdict, QuietStretch, RecordingTruth, SPIKE_TOLERANCE_NS,
    TRUTH_FILE, disturbers, judge_incident, judge_quiet, kept_recordings, percent, read_truth,
};

const BEGIN_WALL_NS: i64 = 1_795_377_950_000_000_000;

fn incident() -> Incident {
    Incident {
        kind: "cpu-burst".to_owned(),
        culprit: "billing".to_owned(),
        pid: 812,
        control_groups: vec!["/system.slice/billing.service".to_owned()],
        begin_wall_ns: BEGIN_WALL_NS,
        end_wall_ns: BEGIN_WALL_NS + 1_000_000_000,
        amount: 1,
        variant: String::new(),
        busy_before_percent: 30.0,
    }
}

/// An answer of `spikes` with one spike at each of these times after the begin.
fn spikes(after_ns: &[i64]) -> String {
    let spike = |after_ns: &i64| {
        format!(
            r#"{{"wall_ns":{},"source":"cpu","field":"total.user","element":null,"value":98.1,
            "usual":2.5,"unit":"percent","score":4.6}}"#,
            BEGIN_WALL_NS + after_ns
        )
    };
    format!("[{}]", after_ns.iter().map(spike).collect::<Vec<_>>().join(","))
}

/// An answer of `explain` with these suspects: kind, name, process id.
fn explanation(suspects: &[(&str, &str, Option<u32>)]) -> String {
    let suspect = |(kind, name, pid): &(&str, &str, Option<u32>)| {
        let pid = pid.map_or("null".to_owned(), |pid| pid.to_string());
        format!(r#"{{"kind":"{kind}","name":"{name}","pid":{pid},"score":1.0,"what":"98 % CPU"}}"#)
    };
    format!(
        r#"{{"window":{{"first_wall_ns":1,"last_wall_ns":2}},"suspects":[{}],"fields":[],"markers":[],"lost":0}}"#,
        suspects.iter().map(suspect).collect::<Vec<_>>().join(",")
    )
}

/// Judges these outputs of the two verbs.
fn verdict_of(spikes: &str, explanation: &str) -> IncidentVerdict {
    judge_incident(&incident(), Path::new("data"), &mut |arguments| match arguments[0] {
        "spikes" => Ok(spikes.as_bytes().to_vec()),
        _ => Ok(explanation.as_bytes().to_vec()),
    })
}

fn rank_among(suspects: &[(&str, &str, Option<u32>)]) -> Option<usize> {
    verdict_of(&spikes(&[100_000_000]), &explanation(suspects)).rank
}

// Proves that the program is asked for a stretch around the incident, without its moment, and then
// for the moment that the first spike names.
#[test]
fn the_program_is_asked_without_naming_the_moment() {
    let mut asked = Vec::new();
    judge_incident(&incident(), Path::new("data"), &mut |arguments| {
        asked.push(arguments.join(" "));
        Ok(if asked.len() == 1 { spikes(&[100_000_000, 0]) } else { explanation(&[]) }.into_bytes())
    });
    assert_eq!(
        asked,
        [
            "spikes data --since 2026-11-22T20:05:40Z --until 2026-11-22T20:05:56Z --limit 10 --json",
            "explain data --at 1795377950100000000 --json"
        ]
    );
}

// Proves that a right answer is accepted, by id or by name, and that the rank is the place among
// all suspects except the culprit's own control groups.
#[test]
fn right_answers_are_ranked() {
    let (culprit, other) = (("process", "billing", Some(812)), ("process", "mailer", Some(813)));
    assert_eq!(rank_among(&[culprit, other]), Some(1));
    assert_eq!(rank_among(&[other, culprit]), Some(2));
    assert_eq!(rank_among(&[("process", "billing", None)]), Some(1));
    assert_eq!(rank_among(&[("disk", "vda", None), culprit]), Some(2));
    assert_eq!(rank_among(&[("cgroup", "/system.slice/billing.service", None), culprit]), Some(1));
    assert_eq!(rank_among(&[("cgroup", "/system.slice/mailer.service", None), culprit]), Some(2));
    assert!(verdict_of(&spikes(&[0]), &explanation(&[culprit])).spike_found);
}

// Proves that wrong suspects are rejected: none, another process, another process of the same name,
// or only the culprit's control group.
#[test]
fn wrong_suspects_are_rejected() {
    assert_eq!(rank_among(&[]), None);
    assert_eq!(rank_among(&[("process", "mailer", Some(813))]), None);
    assert_eq!(rank_among(&[("process", "billing", Some(813))]), None);
    assert_eq!(rank_among(&[("cgroup", "/system.slice/billing.service", None)]), None);
    assert_eq!(rank_among(&[("disk", "billing", None)]), None);
}

// Proves that a spike counts only within the incident and its tolerance, and that the culprit
// counts only if the first spike does: otherwise another moment was explained.
#[test]
fn spikes_outside_of_the_incident_are_rejected() {
    let right = explanation(&[("process", "billing", Some(812))]);
    let (first, last) = (-SPIKE_TOLERANCE_NS, 1_000_000_000 + SPIKE_TOLERANCE_NS);
    for (after_ns, spike_found, rank) in [
        (vec![first], true, Some(1)),
        (vec![last], true, Some(1)),
        (vec![first - 1], false, None),
        (vec![last + 1], false, None),
        (vec![last + 1, 0], true, None),
        (vec![], false, None),
    ] {
        let verdict = verdict_of(&spikes(&after_ns), &right);
        assert_eq!((verdict.spike_found, verdict.rank), (spike_found, rank), "{after_ns:?}: {verdict:?}");
    }
}

// Proves that answers that lack what they must have, or fail, are wrong answers with a reason.
#[test]
fn answers_without_their_members_are_rejected() {
    let right = spikes(&[0]);
    for (spikes, explained, reason) in [
        (right.as_str(), "{}", "missing field `suspects`"),
        (&right, r#"{"suspects":[{"kind":"process","pid":812}]}"#, "missing field `name`"),
        (&right, "", "EOF"),
        (r#"[{"source":"cpu","field":"total.user","score":1}]"#, "", "missing field `wall_ns`"),
        (r#"{"spikes":[]}"#, "", "expected a sequence"),
        ("[]", "", "no spike"),
    ] {
        let verdict = verdict_of(spikes, explained);
        assert_eq!(verdict.rank, None, "{spikes} {explained}");
        assert!(verdict.answer.contains(reason), "{reason}: {verdict:?}");
    }
    let mut fails = |_: &[&str]| Err("it ended with 2".to_owned());
    let verdict = judge_incident(&incident(), Path::new("data"), &mut fails);
    assert!(!verdict.spike_found && verdict.answer.contains("it ended with 2"), "{verdict:?}");
}

// Proves that a quiet stretch is quiet only if the answer is an empty array.
#[test]
fn quiet_stretches_must_have_no_spike() {
    let stretch = QuietStretch {
        begin_wall_ns: BEGIN_WALL_NS,
        end_wall_ns: BEGIN_WALL_NS + 60_000_000_000,
        busy_percent: 20.0,
    };
    let judged = |answer: &str| {
        judge_quiet(&stretch, Path::new("data"), &mut |arguments| {
            let expected = "spikes data --since 2026-11-22T20:05:50Z --until 2026-11-22T20:06:50Z --json";
            assert_eq!(arguments.join(" "), expected);
            Ok(answer.as_bytes().to_vec())
        })
    };
    assert_eq!(judged("[]"), None);
    assert!(judged(&spikes(&[0])).unwrap().starts_with("1 spikes: cpu.total.user"));
    assert!(judged("").is_some());
    assert!(judge_quiet(&stretch, Path::new("data"), &mut |_| Err("no".to_owned())).is_some());
}

// Proves that programs of others are found in the time that is searched for spikes, and that the
// bench's own and those without a name are none.
#[test]
fn foreign_programs_disturb_an_incident() {
    let answer = "time,wall_ns,element,process.execs[*].name\n\
                  2026-11-22T20:05:49Z,1,rustc,rustc\n2026-11-22T20:05:49Z,1,true,true\n\
                  2026-11-22T20:05:50Z,2,2,\n2026-11-22T20:05:51Z,3,rustc,rustc\n\
                  2026-11-22T20:05:51Z,3,2,\"a,b\"\n";
    let begun = |answer: &str| {
        disturbers(&incident(), Path::new("data"), &mut |arguments| {
            let asked = arguments.join(" ");
            assert!(asked.starts_with("dump data --fields process.execs[*].name --long --format csv"));
            assert!(asked.ends_with("--since 2026-11-22T20:05:40Z --until 2026-11-22T20:05:56Z"), "{asked}");
            Ok(answer.as_bytes().to_vec())
        })
    };
    assert_eq!(begun(answer).unwrap(), ["\"a,b\"", "rustc"]);
    assert!(begun("time,wall_ns,element,process.execs[*].name\n").unwrap().is_empty());
    let mut fails = |_: &[&str]| Err("it ended with 2".to_owned());
    assert!(disturbers(&incident(), Path::new("data"), &mut fails).is_err());
}

// Proves that a function counts only if it has a name and belongs to the culprit, and that a
// recording without stacks is not counted.
#[test]
fn code_is_named_by_a_function_of_the_culprit() {
    let named = |functions: &str| {
        let stacks = format!(r#"{{"suspects":[],"stacks":{{"functions":[{functions}]}}}}"#);
        verdict_of(&spikes(&[0]), &stacks).code_named
    };
    let pid = incident().pid;
    let other = format!(r#"{{"pid":{},"function":"main"}}"#, pid + 1);
    let nameless = format!(r#"{{"pid":{pid},"function":null}}"#);
    let own = format!(r#"{{"pid":{pid},"function":"compute"}}"#);
    assert_eq!(named(&[other.as_str(), &nameless, &own].join(",")), Some(true));
    assert_eq!(named(&[other, nameless].join(",")), Some(false));
    assert_eq!(verdict_of(&spikes(&[0]), &explanation(&[])).code_named, None);
}

// Proves that scores are counted by rank, that thresholds are inclusive, and that nothing judged
// reaches no threshold.
#[test]
fn scores_are_compared_with_thresholds() {
    let mut score = IncidentScore::default();
    assert!(!score.reaches(0.0, 0.0));
    for rank in [Some(1), Some(1), Some(3), Some(4), None] {
        // Of three recordings with stacks, two name the code.
        let code_named = rank.map(|rank| rank == 1).filter(|_| rank != Some(4));
        let answer = String::new();
        score.add(&IncidentVerdict { spike_found: rank.is_some(), rank, code_named, answer });
    }
    let counted = IncidentScore { runs: 5, spikes_found: 4, first: 2, first_three: 3, ..score };
    assert_eq!((score, score.with_stacks, score.code_named), (counted, 3, 2));
    assert!(score.reaches(40.0, 60.0));
    assert!(!score.reaches(40.1, 60.0));
    assert!(!score.reaches(40.0, 60.1));
    assert!(percent(1, 0).abs() < f64::EPSILON);
}

// Proves that kept recordings are found by their truth, which is read back as it was written.
#[test]
fn kept_recordings_are_found_with_their_truth() {
    let folder = tempfile::tempdir().unwrap();
    assert!(kept_recordings(folder.path()).unwrap_err().ends_with("no recording with a truth.json"));
    let truth = RecordingTruth {
        seed: 7,
        skipped: vec!["io-stall: not root".to_owned()],
        incidents: vec![incident()],
        quiet: vec![QuietStretch { begin_wall_ns: 1, end_wall_ns: 2, busy_percent: 20.5 }],
    };
    let text = serde_json::to_string(&truth).unwrap();
    let recordings = ["tune-1", "tune-2"].map(|name| folder.path().join(name));
    for recording in &recordings {
        std::fs::create_dir_all(recording.join(DATA_FOLDER)).unwrap();
        std::fs::write(recording.join(TRUTH_FILE), &text).unwrap();
    }
    assert_eq!(kept_recordings(folder.path()).unwrap(), recordings);
    assert_eq!(kept_recordings(&recordings[0]).unwrap(), recordings[..1]);
    let back = read_truth(&recordings[1]).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    std::fs::write(recordings[1].join(TRUTH_FILE), "{}").unwrap();
    assert!(read_truth(&recordings[1]).unwrap_err().contains("truth.json: missing field"));
}
