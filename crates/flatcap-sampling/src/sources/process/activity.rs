//! Chooses the processes that are read in each pass between two full passes.

use std::cmp::Reverse;

/// The activity of a process since the last full pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessActivity {
    /// Time on processors, in nanoseconds. The value is at least 1 if the process runs or waits for
    /// a device.
    pub(super) cpu_ns: u64,
    /// Bytes read from and written to storage.
    pub(super) io_bytes: u64,
    /// The process's slot in the table.
    pub(super) slot: usize,
}

/// Calls `choose` with the slots of the busiest processes. These are the `count` processes with the
/// most CPU time and the `count` processes with the most I/O. Idle processes are not chosen, and
/// one process may be chosen twice. The function reorders `activities`.
pub(super) fn busiest(activities: &mut [ProcessActivity], count: usize, mut choose: impl FnMut(usize)) {
    let of_cpu = |activity: &ProcessActivity| activity.cpu_ns;
    let of_io = |activity: &ProcessActivity| activity.io_bytes;
    let keys: [fn(&ProcessActivity) -> u64; 2] = [of_cpu, of_io];
    for key in keys {
        if (1..activities.len()).contains(&count) {
            activities.select_nth_unstable_by_key(count - 1, |activity| Reverse(key(activity)));
        }
        let first = activities.iter().take(count);
        first.filter(|activity| key(activity) > 0).for_each(|activity| choose(activity.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the busiest processes by each measure are chosen, and that idle processes are
    // never chosen.
    #[test]
    fn the_busiest_are_chosen() {
        let values = [(5, 0), (0, 0), (9, 1), (7, 0), (0, 8), (0, 9)];
        let chosen = |count: usize| {
            let mut activities: Vec<_> = values
                .iter()
                .zip(0..)
                .map(|(&(cpu_ns, io_bytes), slot)| ProcessActivity { cpu_ns, io_bytes, slot })
                .collect();
            let mut slots = Vec::new();
            busiest(&mut activities, count, |slot| slots.push(slot));
            slots.sort_unstable();
            slots.dedup();
            slots
        };
        assert!(chosen(0).is_empty());
        assert_eq!(chosen(1), [2, 5]);
        assert_eq!(chosen(2), [2, 3, 4, 5]);
        for count in [6, 100] {
            assert_eq!(chosen(count), [0, 2, 3, 4, 5]);
        }
        busiest(&mut [], 3, |_| panic!("there is none"));
    }
}
