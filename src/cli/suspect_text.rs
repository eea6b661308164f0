//! The printed name of a suspect, and the printed resources that it used.

use flatcap_explain::{ChildrenUse, Suspect, SuspectKind};

use super::human;
use super::measured_value::{self, measured, value_text};

/// Maximum number of departures in the text about a suspect.
pub(super) const EVIDENCE_SHOWN: usize = 3;

/// Returns what a suspect did: `user_time 98.1 % (usually 0.3 %), ...`.
pub(super) fn what(suspect: &Suspect) -> String {
    let own = suspect.evidence.iter().take(EVIDENCE_SHOWN).map(|departure| {
        let usual = value_text(departure, departure.usual);
        let what = measured_value::what(departure);
        format!("{what} {} (usually {usual})", value_text(departure, departure.value))
    });
    let children = suspect.children.iter().take(EVIDENCE_SHOWN).map(|children| {
        let what = children.parts.first().map(measured_value::what).unwrap_or_default();
        format!("{}: {what} {}", new_children(children), measured(children.sum, children.unit))
    });
    own.chain(children).collect::<Vec<_>>().join(", ")
}

/// Says how many new children did something.
pub(super) fn new_children(children: &ChildrenUse) -> String {
    match children.parts.len() {
        1 => "+ 1 new child".to_owned(),
        count => format!("+ {count} new children"),
    }
}

/// Returns what a suspect is called within a width; of a process, its id says what it is.
pub(super) fn suspect_name(suspect: &Suspect, width: usize) -> String {
    let name = human::escaped(&suspect.name);
    let kind = match suspect.kind {
        SuspectKind::Process => {
            let pid = suspect.pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
            return human::shortened_element(&format!("{name}{pid}"), width);
        }
        SuspectKind::Cgroup => "cgroup",
        SuspectKind::Disk => "disk",
        SuspectKind::Interface => "interface",
    };
    human::shortened(&format!("{kind} {name}"), width)
}
