//! Formats an explanation as lines of text.

use flatcap_explain::{Explanation, FieldDeparture, SuspectKind, ValueUnit};
use flatcap_query::instance_path;
use jiff::tz::TimeZone;

use super::appearance::Appearance;
use super::chart_frame::shortened;
use super::numbers::compact;
use super::times::{length, time_of_day};

/// Maximum number of suspects and fields listed.
const LISTED_MAX: usize = 12;
/// Maximum number of lines of evidence per suspect.
const EVIDENCE_MAX: usize = 3;
/// Width of names.
// Lines fit half of a wide screen, or a narrow screen.
const NAME_WIDTH: usize = 26;

/// Returns the lines of an explanation. Each fits 58 columns, except the text of markers.
pub(super) fn explanation_lines(found: &Explanation, zone: &TimeZone, appearance: Appearance) -> Vec<String> {
    let mut lines = Vec::new();
    let window_ns = found.window.1.saturating_sub(found.window.0);
    let before = length(i64::try_from(found.before_ns).unwrap_or(i64::MAX));
    lines.push(format!(
        "{}, {} against {before} before",
        time_of_day(found.window.0, zone),
        length(window_ns)
    ));
    lines.push(String::new());
    if found.is_too_early() {
        let least = length(i64::try_from(found.before_least_ns).unwrap_or(i64::MAX));
        lines.push(format!("nothing is ranked: too early, {least} are needed before"));
        lines.push(String::new());
    } else if found.suspects.is_empty() {
        lines.push("who: nobody used more than usual".to_owned());
    } else {
        lines.push(format!("{:<NAME_WIDTH$} {:>5} {:>8} {:>8}  of", "who", "score", "used", "usual"));
    }
    push_suspects(found, appearance, &mut lines);
    lines.push(String::new());
    if found.fields.is_empty() {
        lines.push(format!("what: none of {} ranked fields departed", found.ranked));
    } else {
        lines.push(format!("{:<NAME_WIDTH$} {:>5} {:>8} {:>8}  from", "what", "score", "value", "usual"));
    }
    for departure in found.fields.iter().take(LISTED_MAX) {
        let name = match &departure.element {
            Some(element) => format!("{element} {}", what(departure, appearance)),
            None => instance_path((&departure.source, departure.source_id), &departure.field),
        };
        let name = shortened(&appearance.text(&name), NAME_WIDTH);
        let line = departure_line(&name, &format!("{:.2}", departure.score), departure);
        let from = time_of_day(departure.wall_ns, zone);
        // The first line states hour and minute.
        lines.push(line + "  " + from.get(6..).unwrap_or(&from));
        for sender in departure.senders.iter().take(1) {
            let user = sender.user.as_deref().unwrap_or("unknown");
            lines.push(appearance.text(&format!("  pushed by {} (user {user})", sender.client)));
        }
    }
    lines.push(String::new());
    for marker in &found.markers {
        lines.push(format!("mark {} {}", time_of_day(marker.wall_ns, zone), appearance.text(&marker.text)));
    }
    lines.push(format!("marks {}   lost {}", found.markers.len(), found.lost));
    lines
}

/// Appends the lines about the suspects.
fn push_suspects(found: &Explanation, appearance: Appearance, lines: &mut Vec<String>) {
    for suspect in found.suspects.iter().take(LISTED_MAX) {
        let kind = match suspect.kind {
            SuspectKind::Process => "",
            SuspectKind::Cgroup => "cgroup ",
            SuspectKind::Disk => "disk ",
            SuspectKind::Interface => "net ",
        };
        let pid = suspect.pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
        let name = shortened(&appearance.text(&format!("{kind}{}{pid}", suspect.name)), NAME_WIDTH);
        for (number, departure) in suspect.evidence.iter().take(EVIDENCE_MAX).enumerate() {
            let (name, score) = if number == 0 {
                (name.as_str(), format!("{:.2}", suspect.score))
            } else {
                ("", String::new())
            };
            lines.push(departure_line(name, &score, departure) + "  " + &what(departure, appearance));
        }
        for children in suspect.children.iter().take(EVIDENCE_MAX) {
            let what = children.parts.first().map(|part| what(part, appearance)).unwrap_or_default();
            let new = format!("  + {} new below it", children.parts.len());
            let sum = compact(children.sum, unit_text(children.unit));
            let name = if suspect.evidence.is_empty() { format!("{name} {new}") } else { new };
            lines.push(format!(
                "{:<NAME_WIDTH$} {:>5} {sum:>8} {:>8}  {what}",
                shortened(&name, NAME_WIDTH),
                "",
                ""
            ));
        }
    }
}

fn unit_text(unit: ValueUnit) -> &'static str {
    match unit {
        ValueUnit::Percent => "%",
        ValueUnit::Bytes => "B",
        ValueUnit::BytesPerSecond => "B/s",
        ValueUnit::PerSecond => "/s",
        ValueUnit::Seconds => "s",
        ValueUnit::None => "",
    }
}

fn departure_line(name: &str, score: &str, departure: &FieldDeparture) -> String {
    let unit = unit_text(departure.unit);
    let (value, usual) = (compact(departure.value, unit), compact(departure.usual, unit));
    format!("{name:<NAME_WIDTH$} {score:>5} {value:>8} {usual:>8}")
}

/// Returns the last component of a field's path, with the state whose share is counted.
fn what(departure: &FieldDeparture, appearance: Appearance) -> String {
    let field = departure.field.strip_suffix("[*]").unwrap_or(&departure.field);
    let leaf = field.rsplit_once("].").or_else(|| field.rsplit_once('.')).map_or(field, |(_, leaf)| leaf);
    let state = departure.state.as_ref().map(|state| format!("={state}")).unwrap_or_default();
    let source = departure.source_id.map(|_| format!("{}.", departure.source_name()));
    appearance.text(&format!("{}{leaf}{state}", source.unwrap_or_default()))
}
