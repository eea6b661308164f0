//! Makes small recordings for tests: two of each kind, and two quiet ones.

use std::error::Error;
use std::path::Path;

use clap::ValueEnum;

use crate::activity::IncidentKind;
use crate::judge::{DATA_FOLDER, RecordingTruth, TRUTH_FILE};
use crate::program::Program;
use crate::recording::{IncidentRecorder, Pace, RecordingPlan};

const RECORDINGS_PER_KIND: usize = 2;
/// Above this, the work of others would be in the recordings.
const BUSY_PERCENT_MAX: f64 = 60.0;
/// As short as the search for spikes allows.
const PACE: Pace = Pace {
    warm_up_ms: 1_500,
    gap_ms: 10_000..=11_000,
    tail_ms: 5_200,
    length_ms_max: 1_200,
    quiet_ms: 15_000,
};
/// Fewer samples than by default: the recordings go into the repository.
const CONFIG: &str = include_str!("corpus.toml");

/// Makes the recordings below `folder`, in `scratch` first. Existing ones are not replaced. Waits
/// for a calm machine.
pub fn make(
    recorder: &IncidentRecorder<'_>,
    folder: &Path,
    scratch: &Path,
    first_seed: u64,
) -> Result<(), Box<dyn Error>> {
    let kinds = IncidentKind::value_variants();
    let mut plans: Vec<(String, Option<IncidentKind>)> = Vec::new();
    for number in 1..=RECORDINGS_PER_KIND {
        for kind in kinds {
            let name = kind.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
            plans.push((format!("{name}-{number}"), Some(*kind)));
        }
        plans.push((format!("quiet-{number}"), None));
    }
    for (seed, (name, kind)) in (first_seed..).zip(plans) {
        let target = folder.join(&name);
        if target.exists() {
            continue;
        }
        let plan = RecordingPlan {
            folder: scratch.join(&name),
            seed,
            incidents: usize::from(kind.is_some()),
            kinds: kind.into_iter().collect(),
            quiet: u64::from(kind.is_none()),
            pace: PACE,
            config: CONFIG.to_owned(),
        };
        let truth = record_calmly(recorder, &plan)?;
        // Otherwise this machine does not permit the kind.
        if !truth.incidents.is_empty() || !truth.quiet.is_empty() {
            publish(recorder.program, &plan.folder, &target)?;
        }
    }
    Ok(())
}

/// Waits until nothing else keeps the processors busy, and records; again if other work came
/// between.
fn record_calmly(
    recorder: &IncidentRecorder<'_>,
    plan: &RecordingPlan,
) -> Result<RecordingTruth, Box<dyn Error>> {
    loop {
        recorder.wait_until_calm(BUSY_PERCENT_MAX)?;
        let truth = recorder.record(plan)?;
        let busy = truth.incidents.iter().map(|incident| incident.busy_before_percent);
        let busy_percent =
            busy.chain(truth.quiet.iter().map(|stretch| stretch.busy_percent)).fold(0.0, f64::max);
        if busy_percent <= BUSY_PERCENT_MAX {
            return Ok(truth);
        }
        eprintln!("incidents: the processors were {busy_percent:.1} % busy, with the work of others: again");
        std::fs::remove_dir_all(&plan.folder)?;
    }
}

/// Compresses a recording and copies its segments and its truth.
fn publish(program: &Program, from: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let data = from.join(DATA_FOLDER);
    program.call(&["compress", "--codec", "zstd:19", "--block-size", "16MiB", &data.to_string_lossy()])?;
    std::fs::create_dir_all(target.join(DATA_FOLDER))?;
    for entry in std::fs::read_dir(&data)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "bin") {
            let name = path.file_name().ok_or("a segment without a name")?;
            std::fs::copy(&path, target.join(DATA_FOLDER).join(name))?;
        }
    }
    std::fs::copy(from.join(TRUTH_FILE), target.join(TRUTH_FILE))?;
    Ok(())
}
