//! The answers of `spikes` and `explain` as lines of text. All programs use this layout. Lines have
//! 80 columns, or fewer on a narrow screen.

use flatcap_format::schema::{latency, shortened, visible_text as escaped, wrapped};
use jiff::tz::TimeZone;

use super::answers::{Explanation, FieldDeparture, Spikes, Suspect, UnrankedFields, UnrankedReason};
use super::attribution::SuspectRole;
use super::text::{
    EVIDENCE_SHOWN, ending_text, fitting_name, identity_line, measured, new_children, nothing_departed,
    senders, short_name, suspect_name, time_text, usual_range, value_text, what,
};

/// Width of lines that are not shortened, in columns.
const WIDTH: usize = 80;
/// Widths of three columns: the suspects, the resources that they used, and the fields. These
/// widths give lines of 80 columns.
const SUSPECT_WIDTH: usize = 21;
const USED_WIDTH: usize = 18;
const FIELD_WIDTH: usize = 34;
/// Width of the lines about fields, in columns.
const FIELD_LINE_WIDTH: usize = 77;
/// Minimum width of a column. Text that is shortened to a narrower column cannot be understood.
const COLUMN_WIDTH_MIN: usize = 6;
/// Maximum number of elements that waited, and of those that used less, on the screen.
const AFFECTED_SHOWN: usize = 5;
/// Maximum number of processes that ended on the screen.
const ENDED_SHOWN: usize = 3;
/// Maximum number of parents that the line about processes names.
const PARENTS_SHOWN: usize = 3;
/// Maximum number of lines for the text of a mark.
const MARKER_LINES_SHOWN: usize = 4;
/// Width that names of fields need, in columns. With less space, the names have separate lines.
const NAME_WIDTH_MIN: usize = 34;
/// Number of blanks before a name on a separate line.
const NAME_INDENT: usize = 4;
/// Maximum number of names of unranked fields in a line.
const UNRANKED_SHOWN: usize = 8;
/// Maximum width of the name of a field in a summary. A line of a summary has 14 columns before the
/// name.
const SUMMARY_FIELD_WIDTH: usize = 66;

/// The screen on which text is shown.
#[derive(Debug, Clone, Copy)]
pub struct TextLayout<'z> {
    /// The time zone in which times are shown.
    pub zone: &'z TimeZone,
    /// The width of the screen.
    pub width: usize,
}

/// The parts of the summary that `record` prints.
#[derive(Debug)]
pub struct Summary {
    /// Name and text of each line.
    pub lines: Vec<(&'static str, String)>,
    /// The time of the largest spike, in the form that `explain --at` accepts; `None` if nothing
    /// departed.
    pub at: Option<String>,
}

impl TextLayout<'_> {
    /// Returns the lines about spikes.
    pub fn spikes(&self, found: &Spikes) -> Vec<String> {
        let spikes = &found.departures;
        if spikes.is_empty() {
            // The text "no spikes" is an answer only if fields were ranked. The reasons why other
            // fields were not ranked follow.
            let nothing = format!("no spikes: {}", nothing_departed(found.ranked, &found.unranked));
            return std::iter::once(nothing).chain(self.unranked(&found.unranked)).collect();
        }
        let times: Vec<String> = spikes.iter().map(|spike| time_text(spike.wall_ns, self.zone)).collect();
        let values: Vec<String> = spikes.iter().map(|spike| value_text(spike, spike.value)).collect();
        let usual: Vec<String> = spikes.iter().map(usual_range).collect();
        let width =
            |texts: &[String], least: usize| texts.iter().map(String::len).max().unwrap_or(0).max(least);
        let (time_width, value_width, usual_width) = (width(&times, 4), width(&values, 5), width(&usual, 5));
        // Names come last. Names come after the values if the line has space for them, otherwise on
        // the next line. The score has five columns, and two blanks separate each pair of columns.
        let taken = time_width + 5 + value_width + usual_width + 4 * 2;
        let beside = self.width.checked_sub(taken).filter(|place| *place >= NAME_WIDTH_MIN);
        let heading = format!(
            "{:<time_width$}  score  {:>value_width$}  {:>usual_width$}{}",
            "time",
            "value",
            "usual",
            if beside.is_some() { "  field" } else { "" }
        );
        let mut lines = vec![heading];
        for (((spike, time), value), usual) in spikes.iter().zip(times).zip(values).zip(usual) {
            let line = format!(
                "{time:<time_width$}  {:>5.2}  {value:>value_width$}  {usual:>usual_width$}",
                spike.score
            );
            // The position of the names is the same for all spikes, so that the columns of the
            // table stay aligned.
            if let Some(place) = beside {
                lines.push(format!("{line}  {}", fitting_name(spike, place)));
            } else {
                let name = fitting_name(spike, self.width.saturating_sub(NAME_INDENT));
                lines.extend([line, format!("{:NAME_INDENT$}{name}", "")]);
            }
            lines.extend(self.senders(spike));
        }
        lines
    }

    /// Returns the lines about an explanation.
    pub fn explanation(&self, found: &Explanation) -> Vec<String> {
        let answer = wrapped(&escaped(&found.answer), Some(self.width), 0);
        let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
        lines.extend(self.heading(found));
        self.push_ended(found, &mut lines);
        if found.baseline.is_too_short {
            let least = latency(found.baseline.least_ns);
            let nothing = format!("nothing is ranked: what is usual takes {least} of recording before");
            lines.push(self.fitting(&nothing));
        } else {
            self.push_suspects(found, &mut lines);
            self.push_affected(("who used less", "used", SuspectRole::UsedLess), found, &mut lines);
            self.push_affected(("who waited", "waited", SuspectRole::Waited), found, &mut lines);
        }
        // The kernel's events need no baseline, so they are also shown if there is none.
        lines.extend(self.causes(&found.causes));
        if !found.baseline.is_too_short {
            self.push_fields(found, &mut lines);
        }
        self.push_offspring(found, &mut lines);
        self.push_notes(found, &mut lines);
        lines
    }

    /// Returns the largest changes, and the suspects that caused them.
    pub fn summary(&self, found: &Spikes, explanation: impl FnOnce(i64) -> Option<Explanation>) -> Summary {
        let Some(spike) = found.departures.first() else {
            let nothing = nothing_departed(found.ranked, &found.unranked);
            return Summary { lines: vec![("changed most", nothing)], at: None };
        };
        let at = time_text(spike.wall_ns, self.zone);
        let (value, usual) = (value_text(spike, spike.value), usual_range(spike));
        let mut lines = vec![
            ("changed most", fitting_name(spike, SUMMARY_FIELD_WIDTH)),
            ("", format!("{value} at {at}, usually {usual}")),
        ];
        if let Some(found) = explanation(spike.wall_ns).filter(|found| !found.suspects.is_empty()) {
            lines.push(("who did what", found.answer));
        }
        Summary { lines, at: Some(at) }
    }

    fn heading(&self, found: &Explanation) -> Vec<String> {
        let from = time_text(found.window.first_wall_ns, self.zone);
        let length = latency(found.window.last_wall_ns.abs_diff(found.window.first_wall_ns));
        let what = format!("{from}, {length} against {} before", latency(found.baseline.recorded_ns));
        let host = format!("host {}", escaped(&found.host));
        let is_fitting = what.len() + 2 + host.chars().count() <= self.width;
        let host = self.fitting(&host);
        if is_fitting { vec![format!("{what}, {host}")] } else { vec![what, host] }
    }

    /// Returns the widths of a suspect and of the resources that it used, in columns.
    fn suspect_widths(&self) -> (usize, usize) {
        let missing = WIDTH.saturating_sub(self.width);
        // The name of the suspect is the answer, so the name of the field is shortened first.
        let used = USED_WIDTH.saturating_sub(missing).max(COLUMN_WIDTH_MIN);
        let less = missing - (USED_WIDTH - used);
        (SUSPECT_WIDTH.saturating_sub(less).max(COLUMN_WIDTH_MIN), used)
    }

    fn push_suspects(&self, found: &Explanation, lines: &mut Vec<String>) {
        let users = || found.suspects.iter().filter(|suspect| suspect.role == SuspectRole::UsedMore);
        if users().next().is_none() {
            let nobody = "who: no process, control group, disk or interface used more than usual";
            lines.push(self.fitting(nobody));
            return;
        }
        let (width, used_width) = self.suspect_widths();
        lines.push(format!(
            "{:<width$}  score  {:>10}  {:>10}  {:<used_width$}  from",
            "who", "used", "usual", "of"
        ));
        for suspect in users() {
            let name = suspect_name(suspect, width);
            for (number, departure) in suspect.evidence.iter().take(EVIDENCE_SHOWN).enumerate() {
                let (name, score) =
                    if number == 0 { (&*name, format!("{:.2}", suspect.score)) } else { ("", String::new()) };
                let line = format!(
                    "{name:<width$}  {score:>5}  {:>10}  {:>10}  {:<used_width$}  {}",
                    value_text(departure, departure.value),
                    value_text(departure, departure.usual),
                    shortened(&what(departure), used_width),
                    self.onset(departure)
                );
                lines.push(line.trim_end().to_owned());
            }
            self.push_children(suspect, &name, lines);
            lines.extend(identity_line(suspect, self.width.min(WIDTH)));
        }
    }

    /// Adds lines about processes that ended.
    fn push_ended(&self, found: &Explanation, lines: &mut Vec<String>) {
        let ended = found.suspects.iter().filter(|suspect| suspect.ended.is_some());
        for suspect in ended.take(ENDED_SHOWN) {
            let name = suspect_name(suspect, SUSPECT_WIDTH);
            let Some(ended) = &suspect.ended else { continue };
            let line = format!("{} {name} {}", self.seconds(ended.wall_ns), ending_text(ended));
            lines.push(self.fitting(&line));
            // Other suspects that ended have their names below what they used.
            if suspect.role == SuspectRole::Ended {
                lines.extend(identity_line(suspect, self.width.min(WIDTH)));
            }
        }
    }

    /// Adds a table of suspects that waited or used less. Each has one line, with its best
    /// departure. Adds nothing if there are none.
    fn push_affected(
        &self,
        (title, verb, role): (&str, &str, SuspectRole),
        found: &Explanation,
        lines: &mut Vec<String>,
    ) {
        let own = || found.suspects.iter().filter(|suspect| suspect.role == role);
        if own().next().is_none() {
            return;
        }
        let (width, used_width) = self.suspect_widths();
        let heading =
            format!("{title:<width$}  score  {verb:>10}  {:>10}  {:<used_width$}  from", "usual", "of");
        lines.push(heading);
        for suspect in own().take(AFFECTED_SHOWN) {
            let Some(departure) = suspect.evidence.first() else { continue };
            let line = format!(
                "{:<width$}  {:>5.2}  {:>10}  {:>10}  {:<used_width$}  {}",
                suspect_name(suspect, width),
                suspect.score,
                value_text(departure, departure.value),
                value_text(departure, departure.usual),
                shortened(&what(departure), used_width),
                self.onset(departure)
            );
            lines.push(line.trim_end().to_owned());
            lines.extend(identity_line(suspect, self.width.min(WIDTH)));
        }
    }

    /// Adds lines about the use of resources by the new children of a suspect. They are separate
    /// from the lines about the suspect's own use.
    fn push_children(&self, suspect: &Suspect, name: &str, lines: &mut Vec<String>) {
        let (width, used_width) = self.suspect_widths();
        // The number of children takes the columns for the suspect and its score.
        let children_width = width + 2 + 5;
        for (number, children) in suspect.children.iter().take(EVIDENCE_SHOWN).enumerate() {
            if number == 0 && suspect.evidence.is_empty() {
                lines.push(format!("{name:<width$}  {:>5.2}", suspect.score));
            }
            let what = children.parts.first().map(what).unwrap_or_default();
            let first_ns = children.parts.iter().map(|part| part.wall_ns).min().unwrap_or_default();
            let line = format!(
                "{:<children_width$}  {:>10}  {:>10}  {:<used_width$}  {}",
                format!("  {}", new_children(children)),
                measured(children.sum, children.unit),
                "",
                shortened(&what, used_width),
                self.seconds(first_ns)
            );
            lines.push(line.trim_end().to_owned());
        }
    }

    fn push_fields(&self, found: &Explanation, lines: &mut Vec<String>) {
        if found.fields.is_empty() {
            let nothing = format!("what: {}", nothing_departed(found.ranked, &found.unranked));
            lines.push(self.fitting(&nothing));
            lines.extend(self.unranked(&found.unranked));
            return;
        }
        let missing = FIELD_LINE_WIDTH.saturating_sub(self.width);
        let width = FIELD_WIDTH.saturating_sub(missing).max(COLUMN_WIDTH_MIN);
        lines.push(format!("{:<width$}  score  {:>12}  {:>12}  from", "what", "value", "usual"));
        for group in &found.fields {
            let departure = &group.departure;
            let count = group.together.len();
            let together = if count > 0 { format!(" (+{count})") } else { String::new() };
            let name = short_name(departure, width.saturating_sub(together.len())) + &together;
            lines.push(format!(
                "{name:<width$}  {:>5.2}  {:>12}  {:>12}  {}",
                departure.score,
                value_text(departure, departure.value),
                value_text(departure, departure.usual),
                self.onset(departure)
            ));
            lines.extend(self.senders(departure));
        }
    }

    fn push_offspring(&self, found: &Explanation, lines: &mut Vec<String>) {
        let mut lists: Vec<&str> = found.offspring.iter().map(|offspring| offspring.list.as_str()).collect();
        lists.sort_unstable();
        lists.dedup();
        for list in lists {
            let own: Vec<_> = found.offspring.iter().filter(|offspring| offspring.list == list).collect();
            let count: u64 = own.iter().map(|offspring| offspring.count).sum();
            let parents: Vec<String> = own
                .iter()
                .take(PARENTS_SHOWN)
                .map(|offspring| format!("{} below {}", offspring.count, escaped(&offspring.parent)))
                .collect();
            let verb = if list == "exits" { "ended" } else { "began" };
            lines.push(self.fitting(&format!("processes {verb} {count}: {}", parents.join(", "))));
        }
    }

    /// Adds lines about the marks, the steps of the clock, and data that the recording lacks.
    fn push_notes(&self, found: &Explanation, lines: &mut Vec<String>) {
        for marker in &found.markers {
            let line = format!("marker {} {}", time_text(marker.wall_ns, self.zone), escaped(&marker.text));
            let text = wrapped(&line, Some(self.width), 2);
            lines.extend(text.lines().take(MARKER_LINES_SHOWN).map(|line| self.fitting(line)));
            if text.lines().nth(MARKER_LINES_SHOWN).is_some() {
                lines.push("  ...".to_owned());
            }
        }
        for step in &found.clock_steps {
            let direction = if step.step_ns < 0 { "back" } else { "forward" };
            let length = latency(step.step_ns.unsigned_abs());
            let at = time_text(step.wall_ns, self.zone);
            lines.push(format!("the clock was set {direction} by {length}, to {at}"));
        }
        let late = found.late_ns.map_or("unknown".to_owned(), latency);
        let (markers, lost) = (found.markers.len(), found.lost);
        lines.push(format!("markers {markers}   lost {lost}   recorder late {late}"));
    }

    /// Returns text about the programs that pushed a field.
    fn senders(&self, departure: &FieldDeparture) -> Option<String> {
        let text = shortened(&senders(departure)?, self.width.saturating_sub(NAME_INDENT));
        Some(format!("{:NAME_INDENT$}{text}", ""))
    }

    /// Returns text about the fields that were not ranked, with the reasons.
    fn unranked<'f>(&self, unranked: &'f [UnrankedFields]) -> impl Iterator<Item = String> + use<'_, 'f> {
        unranked.iter().map(|UnrankedFields { reason, count, fields }| {
            let reason = match reason {
                UnrankedReason::NoQuantity => "states, texts and reservations",
                UnrankedReason::ShortBaseline => "too little was recorded before",
                UnrankedReason::NoSchema => "payloads without a schema",
                UnrankedReason::Events => "events",
            };
            let names: Vec<&str> = fields.iter().take(UNRANKED_SHOWN).map(String::as_str).collect();
            let more = if *count > names.len() { ", ..." } else { "" };
            let names = escaped(&names.join(", ")).into_owned();
            self.fitting(&format!("not ranked, {reason}: {count}: {names}{more}"))
        })
    }

    pub(super) fn fitting(&self, line: &str) -> String {
        shortened(line, self.width)
    }

    /// Returns the time since which a field departs.
    fn onset(&self, departure: &FieldDeparture) -> String {
        if departure.is_early { "earlier".to_owned() } else { self.seconds(departure.wall_ns) }
    }

    /// Returns only the seconds of a time, because the first line contains the date, the hour and
    /// the minute.
    fn seconds(&self, wall_ns: i64) -> String {
        time_text(wall_ns, self.zone).get(17..23).unwrap_or_default().to_owned()
    }

    pub(super) fn time_of_day(&self, wall_ns: i64) -> String {
        time_text(wall_ns, self.zone).get(11..23).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{
        ChildrenUse, ClockStep, ExplainedBaseline, ExplainedWindow, FieldGroup, FieldName, MarkerText,
        Offspring, SuspectIdentity,
    };
    use crate::attribution::SuspectKind;
    use crate::kernel_causes::KernelCauses;
    use crate::measure::ValueUnit;
    use crate::text::tests::departure;

    fn explanation() -> Explanation {
        let long = FieldDeparture {
            element: Some("a-process-with-a-long-name[31337]".to_owned()),
            field: "processes[*].written_to_storage".to_owned(),
            ..departure(512.0, 1e9, ValueUnit::BytesPerSecond)
        };
        let together = FieldName {
            source: "disk".to_owned(),
            source_id: None,
            field: "devices[*].writes".to_owned(),
            element: None,
            name: "disk.devices[*].writes".to_owned(),
        };
        let children = ChildrenUse {
            field: long.field.clone(),
            count: 1,
            sum: 1e9,
            unit: ValueUnit::BytesPerSecond,
            parts: vec![long.clone()],
        };
        let user = Suspect {
            start: None,
            identity: SuspectIdentity::default(),
            kind: SuspectKind::Process,
            name: "a-process-with-a-long-name".to_owned(),
            pid: Some(31337),
            role: SuspectRole::UsedMore,
            score: 1.0,
            what: String::new(),
            evidence: vec![long.clone()],
            children: vec![children],
            ended: None,
            first_wall_ns: 0,
        };
        let other = |role| Suspect { role, pid: Some(31338), children: Vec::new(), ..user.clone() };
        let waiting = vec![other(SuspectRole::Waited); 7];
        let ended = Suspect { what: "was ended by a signal".repeat(9), ..other(SuspectRole::Ended) };
        let suspects = [vec![user.clone(), other(SuspectRole::UsedLess)], waiting, vec![ended; 4]].concat();
        Explanation {
            answer: "a-process-with-a-long-name[31337] used most above its usual level. ".repeat(3),
            window: ExplainedWindow { first_wall_ns: 0, last_wall_ns: 300_000_000 },
            baseline: ExplainedBaseline { recorded_ns: 10, least_ns: 4, is_too_short: false },
            suspects,
            fields: vec![FieldGroup { departure: long, first_wall_ns: 0, together: vec![together] }],
            ranked: 7,
            unranked: Vec::new(),
            markers: vec![MarkerText { wall_ns: 0, text: "deploy ".repeat(60) }],
            lost: 0,
            causes: KernelCauses::default(),
            host: "db1".to_owned(),
            offspring: vec![Offspring { list: "exits".to_owned(), parent: "make".repeat(30), count: 2 }],
            late_ns: None,
            clock_steps: vec![ClockStep { wall_ns: 0, step_ns: -7 }],
            left_out: 0,
            has_findings: false,
            before_ns: 0,
        }
    }

    // Proves that each line of an explanation fits a screen of 59 or more columns, and still
    // contains its values and the process id.
    #[test]
    fn lines_fit_the_screen() {
        let nothing = Explanation { suspects: Vec::new(), fields: Vec::new(), ..explanation() };
        let mut early = explanation();
        early.baseline.is_too_short = true;
        for width in 59..100 {
            let layout = TextLayout { zone: &TimeZone::UTC, width };
            for found in [&explanation(), &nothing, &early] {
                let lines = layout.explanation(found);
                assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            }
            let text = layout.explanation(&explanation()).join("\n");
            let has_values = |line: &str| line.contains("954 MiB/s") && line.contains("00.000");
            assert_eq!(text.lines().filter(|line| has_values(line)).count(), 9, "{width}: {text}");
            assert!(text.contains("[31337]   1.00"), "{width}: {text}");
        }
    }

    // Proves that each role keeps its own number of suspects, so that many victims do not hide the
    // process that ended.
    #[test]
    fn each_role_keeps_its_suspects() {
        let mut found = explanation();
        found.truncate(2);
        let count = |role| found.suspects.iter().filter(|suspect| suspect.role == role).count();
        assert_eq!(SuspectRole::ALL.map(count), [1, 2, 1, 2]);
    }
}
