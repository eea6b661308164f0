//! Detects ends of processes. To detect the end of a process, the watch tracks the existing
//! processes.

use std::collections::HashMap;

use flatcap_query::language::Truth;

use crate::slot::FieldSlot;

/// Maximum number of processes that are tracked. Above the limit, all tracked processes are
/// discarded.
// This is twice the default maximum number of processes of a host (`pid_max` is 32,768).
const REMEMBERED_MAX: usize = 65_536;

/// Watches for ends of selected processes.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    /// The slot with the ids of the selected processes. `None` if all processes are selected.
    pub(crate) processes: Option<usize>,
    /// The slot with the ids of ended processes.
    pub(crate) exits: usize,
    /// The slot of a counter that only the process events of the kernel provide.
    pub(crate) events: usize,
    /// The slot with the number of processes that a sample omits.
    pub(crate) skipped: usize,
    /// Whether a test refers to how a process ended. Only the kernel's process events report how a
    /// process ended.
    pub(crate) needs_events: bool,
    pub(crate) source: usize,
    /// Whether a selected process ended in the current sample.
    pub(crate) truth: Truth,
    known: HashMap<u64, u64>, // for each process id (as bits), the last sample with it
    samples: u64,
}

impl ExitWatch {
    pub(crate) fn new(
        source: usize,
        (processes, exits): (Option<usize>, usize),
        (events, skipped): (usize, usize),
        needs_events: bool,
    ) -> Self {
        Self {
            processes,
            exits,
            events,
            skipped,
            needs_events,
            source,
            truth: Truth::Unknown,
            known: HashMap::new(),
            samples: 0,
        }
    }

    /// Returns whether two watches have the same selection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // The other slots are determined by the source, and only the source `process` reports
        // exits.
        (self.processes, self.exits, self.needs_events) == (other.processes, other.exits, other.needs_events)
    }

    /// Discards all processes.
    pub(crate) fn reset(&mut self) {
        self.known.clear();
        self.truth = Truth::Unknown;
    }

    /// Updates the watch with the values of a sample.
    pub(crate) fn observe(&mut self, slots: &[FieldSlot]) {
        self.samples += 1;
        let rows = |slot: usize| slots.get(slot).map_or(&[][..], |slot| slot.rows.as_slice());
        let value = |slot: usize| slots.get(slot).map_or(f64::NAN, |slot| slot.value);
        let has_events = !value(self.events).is_nan();
        let Some(processes) = self.processes else {
            self.truth = if has_events { Truth::known(!rows(self.exits).is_empty()) } else { Truth::Unknown };
            return;
        };
        let mut has_ended = false;
        // Ends are read before the running processes, because the kernel may give the id of an
        // ended process to a new process within the same sample.
        for id in rows(self.exits) {
            has_ended |= self.known.remove(&id.to_bits()).is_some();
        }
        for id in rows(processes).iter().filter(|id| !id.is_nan()) {
            self.known.insert(id.to_bits(), self.samples);
        }
        // A sample that omits nothing lists all processes, so the missing processes have ended.
        let is_complete = value(self.skipped) == 0.0;
        if is_complete {
            let before = self.known.len();
            self.known.retain(|_, seen| *seen == self.samples);
            // With events, all ends were counted above. A process that is missing without an end
            // event has left the selection, for example because its name changed.
            has_ended |= !has_events && self.known.len() < before;
        }
        if self.known.len() > REMEMBERED_MAX {
            self.known.clear();
        }
        self.truth = match (has_events, self.needs_events, is_complete) {
            (true, ..) | (false, false, true) => Truth::known(has_ended),
            (false, true, _) => Truth::Unknown,
            (false, false, false) => Truth::False,
        };
    }
}
