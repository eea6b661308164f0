//! Measures the resolution of the times in /proc/stat. A source whose period is shorter than this
//! resolution records repeated values.

use std::path::Path;
use std::time::Duration;

use flatcap_os::clock::monotonic_ns;
use flatcap_os::host::HostRoot;
use flatcap_os::wake_event::WakeEvent;
use serde::Serialize;

use crate::config::{Config, format_duration};

/// Smallest change of the times in /proc/stat. The kernel counts these times in 1/100 s
/// (`USER_HZ`).
const STEP: Duration = Duration::from_millis(10);
/// Number of readings after the first one, and the time between two readings in nanoseconds. On an
/// idle host, the readings span twenty steps.
const READINGS: u64 = 200;
const DISTANCE_NS: u64 = 1_000_000;

/// The resolution of the times in /proc/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct TimeResolution {
    /// The smallest change of any time between two readings, in nanoseconds.
    step_ns: u64,
    /// Number of readings that were compared with the previous reading.
    readings: u64,
    /// Number of readings in which any value of any core differed from the previous reading.
    moved: u64,
    /// Time between two readings, in nanoseconds.
    distance_ns: u64,
}

impl TimeResolution {
    /// Measures the resolution. Returns `None` if the host has no such times, or if the times did
    /// not change.
    pub(super) fn measure(host_root: &Path) -> Option<Self> {
        let mut file = HostRoot::new(host_root).open("proc/stat").ok()?;
        let pause = WakeEvent::new();
        let mut due_ns = monotonic_ns();
        let readings = (0..=READINGS).map_while(|_| {
            pause.wait_until(due_ns);
            due_ns += DISTANCE_NS;
            file.read().ok()?;
            Some(times(file.content()))
        });
        Self::of(readings)
    }

    /// Compares each reading with the previous one.
    fn of(mut readings: impl Iterator<Item = Vec<u64>>) -> Option<Self> {
        let mut before = readings.next()?;
        let (mut compared, mut moved, mut step) = (0, 0, u64::MAX);
        for times in readings {
            let differences = times.iter().zip(&before).map(|(now, before)| now.abs_diff(*before));
            let smallest = differences.filter(|difference| *difference > 0).min();
            compared += 1;
            moved += u64::from(smallest.is_some());
            step = step.min(smallest.unwrap_or(u64::MAX));
            before = times;
        }
        let step_ns = step.saturating_mul(u64::try_from(STEP.as_nanos()).unwrap_or(u64::MAX));
        (moved > 0).then_some(Self { step_ns, readings: compared, moved, distance_ns: DISTANCE_NS })
    }
}

impl std::fmt::Display for TimeResolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = |ns| format_duration(Duration::from_nanos(ns));
        write!(
            f,
            "times in /proc/stat move in steps of {}: {} of {} readings, {} apart, differed from the one before; \
             schedstat, and run_time of process, count nanoseconds",
            length(self.step_ns),
            self.moved,
            self.readings,
            length(self.distance_ns)
        )
    }
}

/// Returns the times in all lines of /proc/stat that describe CPUs.
fn times(content: &[u8]) -> Vec<u64> {
    let content = String::from_utf8_lossy(content);
    let lines = content.lines().take_while(|line| line.starts_with("cpu"));
    lines.flat_map(|line| line.split_whitespace().skip(1).filter_map(|word| word.parse().ok())).collect()
}

/// Returns advice about a `cpu` source whose period is shorter than the resolution of its times.
pub(super) fn advice(config: &Config) -> Option<String> {
    let source = config.enabled_sources().find(|source| source.spec.name == "cpu")?;
    (source.period < STEP).then(|| {
        format!(
            "cpu: its times move in steps of {}, so with a period of {} most samples repeat them; schedstat, \
             and run_time of process, count nanoseconds",
            format_duration(STEP),
            format_duration(source.period)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::memory_rule;

    // Proves that readings that differ are counted, and that the resolution is the smallest step of
    // any time. Also proves that there is no resolution if no time changes.
    #[test]
    fn steps_are_measured() {
        let of = |readings: &[[u64; 3]]| TimeResolution::of(readings.iter().map(|times| times.to_vec()));
        let found = of(&[[1, 5, 9], [1, 5, 9], [4, 7, 9], [4, 7, 9], [4, 6, 9]]).unwrap();
        assert_eq!((found.step_ns, found.readings, found.moved), (10_000_000, 4, 2));
        let shown = found.to_string();
        assert!(
            shown.starts_with("times in /proc/stat move in steps of 10ms: 2 of 4 readings, 1ms apart"),
            "{shown}"
        );
        assert_eq!(of(&[[1, 2, 3], [1, 2, 3]]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(times(b"cpu  1 2 3\ncpu0 4 5\nintr 9\ncpu1 6\n"), [1, 2, 3, 4, 5]);
    }

    // Proves that the times of this host are found, whether they change or not.
    #[test]
    fn this_host_has_times() {
        assert!(times(&std::fs::read("/proc/stat").unwrap()).len() >= 8);
        assert_eq!(TimeResolution::measure(Path::new("/nonexistent")), None);
        if let Some(found) = TimeResolution::measure(Path::new("/")) {
            assert!(found.readings == READINGS && found.moved <= READINGS, "{found:?}");
            assert_eq!(found.step_ns % 10_000_000, 0);
        }
    }

    // Proves that advice is given for a period that is shorter than the step, but only if the
    // source is enabled.
    #[test]
    fn short_periods_are_advised_against() {
        let selected = |source: &str| {
            let mut config = Config::default();
            config.select_sources(&[source.to_owned()], memory_rule).unwrap();
            advice(&config)
        };
        assert!(selected("cpu@1ms").unwrap().contains("steps of 10ms, so with a period of 1ms"));
        assert_eq!((selected("cpu@10ms"), selected("load@1ms"), selected("-cpu")), (None, None, None));
    }
}
