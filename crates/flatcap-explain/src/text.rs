//! Formats values with their unit, and the names of departures, for people. Numbers have three
//! significant digits, and lines have 80 columns.

use std::borrow::Cow;

use flatcap_format::schema::{
    shortened, shortened_element, significant, significant_size, visible_text as escaped,
};
use flatcap_format::segment::SourceSender;
use flatcap_format::units::{SECOND_UNITS, Unit, in_fitting_unit};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::answers::{
    ChildrenUse, Explanation, FieldDeparture, ProcessEnding, Suspect, SuspectIdentity, UnrankedFields,
    UnrankedReason,
};
use super::attribution::{SuspectKind, SuspectRole};
use super::measure::ValueUnit;

/// Maximum number of departures in the text about a suspect.
pub(super) const EVIDENCE_SHOWN: usize = 3;
/// Units of durations.
const DURATION_UNITS: &[Unit] = SECOND_UNITS.split_at(1).1;
/// Maximum width of the name of an element or a field in the answer.
const ANSWER_NAME_WIDTH: usize = 40;
/// Number of blanks before the names of a suspect.
const IDENTITY_INDENT: usize = 2;
/// Separator of the names of a suspect.
const IDENTITY_SEPARATOR: &str = " \u{b7} ";
/// Minimum width of a shortened command line.
const COMMAND_LINE_WIDTH_MIN: usize = 20;
/// Number of characters of a container's id in the text, as container tools print it.
const CONTAINER_ID_CHARS: usize = 12;
/// Minimum width of a shortened element name. A shorter part of the name cannot be recognized.
const ELEMENT_WIDTH_MIN: usize = 5;

/// Returns a wall time with milliseconds and the UTC offset of the time zone. All commands print
/// times in this form.
pub(super) fn time_text(wall_ns: i64, zone: &TimeZone) -> String {
    const NS_PER_S: i64 = 1_000_000_000;
    // Each second that 64 bits of nanoseconds can express is in the range of the library.
    let second = Timestamp::from_second(wall_ns.div_euclid(NS_PER_S)).unwrap_or_default();
    let time = second.to_zoned(zone.clone());
    let offset = if time.offset().seconds() == 0 { "Z".to_owned() } else { time.strftime("%:z").to_string() };
    let milliseconds = wall_ns.rem_euclid(NS_PER_S) / 1_000_000;
    format!("{}.{milliseconds:03}{offset}", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Formats a value with its unit.
pub(super) fn measured(value: f64, unit: ValueUnit) -> String {
    match unit {
        ValueUnit::Percent => format!("{} %", significant(value)),
        ValueUnit::Bytes => significant_size(value),
        ValueUnit::BytesPerSecond => significant_size(value) + "/s",
        ValueUnit::PerSecond => format!("{} /s", significant(value)),
        ValueUnit::Seconds => {
            let (value, unit) = in_fitting_unit(DURATION_UNITS, value, 1.0);
            format!("{} {unit}", significant(value))
        }
        ValueUnit::None => significant(value),
    }
}

/// Formats a value of a departure. If flatcap does not know the unit of the schema, the text has
/// that unit unchanged.
pub(super) fn value_text(departure: &FieldDeparture, value: f64) -> String {
    let text = measured(value, departure.unit);
    match (&departure.field_unit, departure.unit) {
        (Some(unit), ValueUnit::None) => format!("{text} {}", escaped(unit)),
        (Some(unit), ValueUnit::PerSecond) => {
            format!("{} {}/s", significant(value), escaped(unit))
        }
        _ => text,
    }
}

/// Returns text about the programs that pushed a field. An example is `pushed by rig (user 1000,
/// /usr/bin/rig)`. Returns `None` if the recorder measured or imported the field.
pub(super) fn senders(departure: &FieldDeparture) -> Option<String> {
    let first = departure.senders.first()?;
    let more = match departure.senders.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!("pushed by {}{more}", sender_text(first)))
}

/// Returns a program as text: `shop (user 1000, /usr/bin/shop)`.
pub fn sender_text(sender: &SourceSender) -> String {
    let user = sender.user.as_deref().unwrap_or("unknown");
    let program = sender.program.as_deref().map(|program| format!(", {program}")).unwrap_or_default();
    escaped(&format!("{} (user {user}{program})", sender.client)).into_owned()
}

/// Formats the usual range of a departure, such as `0 to 4.10 %`. If both ends of the range are
/// equal, returns one value.
pub(super) fn usual_range(departure: &FieldDeparture) -> String {
    let (low, high) = (departure.usual_low, departure.usual_high);
    let (low_text, high_text) = (value_text(departure, low), value_text(departure, high));
    if low_text == high_text {
        return high_text;
    }
    // The unit appears only one time if both values have the same unit.
    match (low_text.split_once(' '), high_text.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other || number == "0" => {
            format!("{number} to {high_text}")
        }
        _ => format!("{low_text} to {high_text}"),
    }
}

/// Returns the name of a departure within a width. The name is full if it fits, otherwise it is
/// shortened. The end of a process is named by how the process ended.
pub(super) fn fitting_name(departure: &FieldDeparture, width: usize) -> String {
    if let (Some(ended), Some(element)) = (&departure.ended, &departure.element) {
        let how = how_ended(ended);
        let place = width.saturating_sub(how.len() + 1);
        return shortened(&format!("{} {how}", shortened_element(&escaped(element), place)), width);
    }
    let name = escaped(&departure.name);
    if name.chars().count() <= width { name.into_owned() } else { short_name(departure, width) }
}

/// Returns the short name of a departure within a width, such as `billing[812] user_time` or
/// `cpu.total.user`. The element is shortened first, so that the name of the field remains complete
/// if it fits.
pub(super) fn short_name(departure: &FieldDeparture, width: usize) -> String {
    let Some(element) = &departure.element else {
        return shortened(&escaped(&departure.name), width);
    };
    let (element, field) = (escaped(element), what(departure));
    let place = width.saturating_sub(field.chars().count() + 1);
    if place < ELEMENT_WIDTH_MIN.min(element.chars().count()) {
        return shortened(&field, width);
    }
    format!("{} {field}", shortened_element(&element, place))
}

/// Returns the name of a field without its source and list, with the state whose share is counted.
/// If other sources have the same name, the source and its id come first, as in `orders[3].depth`.
pub(super) fn what(departure: &FieldDeparture) -> String {
    let mut name = leaf(departure).to_owned();
    if departure.source_id.is_some() {
        // In the name of the departure, the source is spelled as in paths.
        let path = departure.name.strip_suffix(departure.field.as_str()).unwrap_or_default();
        let element = departure.element.as_deref().unwrap_or_default();
        name.insert_str(0, path.strip_prefix(element).unwrap_or(path).trim_start());
    }
    if let Some(state) = &departure.state {
        name = format!("{name} {state}");
    }
    escaped(&name).into_owned()
}

/// Returns the last name in the path of a field. If the elements of a list are counted, returns the
/// last name of the list.
fn leaf(departure: &FieldDeparture) -> &str {
    let stated = departure.state.as_ref().and_then(|state| departure.field.strip_suffix(state.as_str()));
    let field = stated.and_then(|field| field.strip_suffix('=')).unwrap_or(&departure.field);
    let field = field.strip_suffix("[*]").unwrap_or(field);
    field.rsplit_once("].").or_else(|| field.rsplit_once('.')).map_or(field, |(_, leaf)| leaf)
}

/// Returns text about the activity of a suspect: `user_time 98.1 % (usually 0.3 %), ...`.
pub(super) fn deeds(evidence: &[FieldDeparture], children: &[ChildrenUse]) -> String {
    let own = evidence.iter().take(EVIDENCE_SHOWN).map(|departure| {
        let usual = value_text(departure, departure.usual);
        let value = value_text(departure, departure.value);
        let when = if departure.is_early { "earlier" } else { "usually" };
        format!("{} {value} ({when} {usual})", what(departure))
    });
    let children = children.iter().take(EVIDENCE_SHOWN).map(children_text);
    own.chain(children).collect::<Vec<_>>().join(", ")
}

/// Returns the answer of an explanation as a sentence about the first suspect, or about the field
/// that departed most.
pub(super) fn answer(found: &Explanation) -> String {
    if found.baseline.is_too_short {
        return "The recording before this time is too short to say what is usual.".to_owned();
    }
    if let Some(suspect) = found.suspects.first() {
        let name = suspect_name(suspect, ANSWER_NAME_WIDTH);
        let did = suspect.what.split(", ").next().unwrap_or_default();
        if let Some(ended) = suspect.ended.as_ref().filter(|ended| ended.signal.is_some()) {
            return format!("{name} {}.", ending_text(ended));
        }
        return match suspect.role {
            SuspectRole::UsedMore => format!("{name} used more than usual: {did}."),
            SuspectRole::Ended => format!("{name} {did}."),
            SuspectRole::UsedLess => {
                format!("{name} used less than usual: {did}. Nobody clearly used more.")
            }
            SuspectRole::Waited => {
                format!("{name} waited longer than usual: {did}. Nobody clearly used more.")
            }
        };
    }
    match found.fields.first() {
        Some(field) => {
            let name = short_name(&field.departure, ANSWER_NAME_WIDTH);
            let value = value_text(&field.departure, field.departure.value);
            let usual = value_text(&field.departure, field.departure.usual);
            format!("{name} departed most: {value} (usually {usual}). Nobody used more than usual.")
        }
        None => "Nothing departed from what is usual.".to_owned(),
    }
}

/// Returns text about the end of a process, without its name and time.
pub(super) fn ending_text(ended: &ProcessEnding) -> String {
    let how = how_ended(ended);
    match ended.usual_cpu_percent.filter(|usual| *usual > 0.0) {
        Some(usual) => format!("{how}; it used {} % of a core before", significant(usual)),
        None => how,
    }
}

/// Returns text about the signal or the status with which a process ended.
fn how_ended(ended: &ProcessEnding) -> String {
    match (ended.signal, ended.exit_code) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn children_text(children: &ChildrenUse) -> String {
    let what = children.parts.first().map(what).unwrap_or_default();
    format!("{}: {what} {}", new_children(children), measured(children.sum, children.unit))
}

/// Returns text with the number of new children that used a resource.
pub(super) fn new_children(children: &ChildrenUse) -> String {
    match children.count {
        1 => "+ 1 new child".to_owned(),
        count => format!("+ {count} new children"),
    }
}

/// Returns the name of a suspect within a width. A process is recognizable by its id, so its kind
/// is omitted.
pub(super) fn suspect_name(suspect: &Suspect, width: usize) -> String {
    let name = escaped(&suspect.name);
    let kind = match suspect.kind {
        SuspectKind::Process => {
            let pid = suspect.pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
            return shortened_element(&format!("{name}{pid}"), width);
        }
        SuspectKind::Cgroup => {
            let group = group_name(suspect).map_or(name.clone(), Cow::Owned);
            return shortened(&format!("cgroup {group}"), width);
        }
        SuspectKind::Disk => "disk",
        SuspectKind::Interface => "interface",
    };
    shortened(&format!("{kind} {name}"), width)
}

/// Returns the name of a control group that has a unit or a container.
fn group_name(suspect: &Suspect) -> Option<String> {
    let SuspectIdentity { unit, container, .. } = &suspect.identity;
    unit.as_ref().map(|unit| escaped(unit).into_owned()).or_else(|| container.as_deref().map(container_text))
}

/// Returns the name of a container. An id is shortened.
fn container_text(container: &str) -> String {
    let is_id = container.chars().all(|character| character.is_ascii_hexdigit());
    let chars = if is_id { CONTAINER_ID_CHARS } else { usize::MAX };
    format!("container {}", escaped(container).chars().take(chars).collect::<String>())
}

/// Returns a line with the names that people use for a process: the command line, `unit
/// shardd@3.service`, `user www-data`. The command line is shortened first. Returns `None` if the
/// names are not known, or if they only repeat the name of the suspect.
pub(super) fn identity_line(suspect: &Suspect, width: usize) -> Option<String> {
    let SuspectIdentity { command_line, unit, container, pod, user } = &suspect.identity;
    let named =
        |kind: &str, name: &Option<String>| name.as_ref().map(|name| format!("{kind} {}", escaped(name)));
    let container = container.as_deref().map(container_text);
    let others: Vec<String> = [named("unit", unit), container, named("pod", pod), named("user", user)]
        .into_iter()
        .flatten()
        .collect();
    let others = others.join(IDENTITY_SEPARATOR);
    let line = command_line.as_ref().filter(|line| !others.is_empty() || **line != suspect.name);
    if suspect.kind != SuspectKind::Process || (line.is_none() && others.is_empty()) {
        return None;
    }
    let text = match line.map(|line| escaped(line)) {
        None => others,
        Some(line) if others.is_empty() => line.into_owned(),
        Some(line) => {
            let taken = IDENTITY_INDENT + (others.chars().count() + IDENTITY_SEPARATOR.chars().count());
            let place = width.saturating_sub(taken).max(COMMAND_LINE_WIDTH_MIN);
            format!("{}{IDENTITY_SEPARATOR}{others}", shortened(&line, place))
        }
    };
    Some(format!("{:IDENTITY_INDENT$}{}", "", shortened(&text, width.saturating_sub(IDENTITY_INDENT))))
}

/// Returns a text that says that no field departed, with the number of ranked fields.
pub(super) fn nothing_departed(ranked: usize, unranked: &[UnrankedFields]) -> String {
    let is_short = unranked.iter().any(|fields| fields.reason == UnrankedReason::ShortBaseline);
    match ranked {
        0 if is_short => "the recording is too short for a ranking".to_owned(),
        0 => "these recordings have no field that can be ranked".to_owned(),
        1 => "the one field that was ranked did not depart from what is usual for it".to_owned(),
        _ => format!("none of the {ranked} ranked fields departed from what is usual for it"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn departure(low: f64, high: f64, unit: ValueUnit) -> FieldDeparture {
        FieldDeparture {
            wall_ns: 0,
            source: "disk".to_owned(),
            source_id: None,
            field: "devices[*].reads".to_owned(),
            element: Some("vda".to_owned()),
            value: high,
            usual: low,
            usual_low: low,
            usual_high: high,
            unit,
            is_early: false,
            field_unit: None,
            score: 1.0,
            measurement: None,
            senders: Vec::new(),
            state: None,
            ended: None,
            name: "vda disk.devices[*].reads".to_owned(),
            path: "disk.devices[\"vda\"].reads".to_owned(),
        }
    }

    // Proves that values of each unit are printed in the form of the unit, with three significant
    // digits.
    #[test]
    fn values_have_units() {
        for (value, unit, expected) in [
            (98.123, ValueUnit::Percent, "98.1 %"),
            (412.0 * 1_048_576.0, ValueUnit::Bytes, "412 MiB"),
            (-1536.0, ValueUnit::Bytes, "-1.50 KiB"),
            (5_000_000.0, ValueUnit::BytesPerSecond, "4.77 MiB/s"),
            (490.0, ValueUnit::PerSecond, "490 /s"),
            (0.0123, ValueUnit::Seconds, "12.3 ms"),
            (3.0, ValueUnit::None, "3.00"),
        ] {
            assert_eq!(measured(value, unit), expected);
        }
    }

    // Proves that the unit of a range is printed only one time, and that a range without width is
    // one value.
    #[test]
    fn ranges_are_short() {
        assert_eq!(usual_range(&departure(0.0, 4.0, ValueUnit::Percent)), "0 to 4.00 %");
        assert_eq!(usual_range(&departure(4.0, 4.0, ValueUnit::Percent)), "4.00 %");
        assert_eq!(usual_range(&departure(512.0, 2048.0, ValueUnit::Bytes)), "512 B to 2.00 KiB");
    }

    // Proves that names are short, and that the name of the field stays whole while the element is
    // shortened.
    #[test]
    fn names_are_short() {
        let device = departure(0.0, 1.0, ValueUnit::None);
        assert_eq!(short_name(&device, 30), "vda reads");
        assert_eq!(fitting_name(&device, 25), "vda disk.devices[*].reads");
        assert_eq!(fitting_name(&device, 24), "vda reads");
        let process = FieldDeparture {
            source: "process".to_owned(),
            field: "processes[*].written_to_storage".to_owned(),
            element: Some("chrome-renderer[31337]".to_owned()),
            ..device.clone()
        };
        assert_eq!(short_name(&process, 34), "chrom...[31337] written_to_storage");
        assert_eq!(short_name(&process, 26), "chro... written_to_storage");
        assert_eq!(short_name(&process, 20), "written_to_storage");
        let share = FieldDeparture {
            field: "processes[*].state=not sleeping".to_owned(),
            state: Some("not sleeping".to_owned()),
            ..process
        };
        assert_eq!(short_name(&share, 60), "chrome-renderer[31337] state not sleeping");
        let name = "disk.total.user".to_owned();
        let total = FieldDeparture { element: None, field: "total.user".to_owned(), name, ..device };
        assert_eq!(short_name(&total, 12), "disk.tota...");
    }

    // Proves that the names of a suspect are one line that fits, and that the command line is
    // shortened before the other names. A control group has the name of its unit or container.
    #[test]
    fn suspects_have_the_names_that_people_use() {
        let some = |text: &str| Some(text.to_owned());
        let mut suspect = Suspect {
            kind: SuspectKind::Process,
            name: "shardd".to_owned(),
            pid: Some(7),
            start: Some(1),
            identity: SuspectIdentity::default(),
            role: SuspectRole::UsedMore,
            score: 1.0,
            what: String::new(),
            evidence: Vec::new(),
            children: Vec::new(),
            ended: None,
            first_wall_ns: 0,
        };
        assert_eq!(identity_line(&suspect, 80), None);
        suspect.identity.command_line = some("shardd");
        assert_eq!(identity_line(&suspect, 80), None);
        suspect.identity.command_line = some("shardd --shard 3\u{1b}");
        assert_eq!(identity_line(&suspect, 80), some("  shardd --shard 3\\u{1b}"));
        suspect.identity.unit = some("shardd@3.service");
        suspect.identity.user = some("www-data");
        let whole = "  shardd --shard 3\\u{1b} \u{b7} unit shardd@3.service \u{b7} user www-data";
        assert_eq!(identity_line(&suspect, 80), some(whole));
        suspect.identity.command_line = some(&"x".repeat(200));
        let line = identity_line(&suspect, 80).unwrap();
        assert_eq!(line.chars().count(), 80);
        assert!(line.ends_with("x... \u{b7} unit shardd@3.service \u{b7} user www-data"), "{line}");
        assert_eq!(identity_line(&suspect, 30).unwrap().chars().count(), 30);
        suspect.kind = SuspectKind::Cgroup;
        suspect.name = "/system.slice/shardd@3.service".to_owned();
        assert_eq!(suspect_name(&suspect, 80), "cgroup shardd@3.service");
        suspect.identity =
            SuspectIdentity { container: some("0123456789abcdef"), ..SuspectIdentity::default() };
        assert_eq!(suspect_name(&suspect, 80), "cgroup container 0123456789ab");
        suspect.identity = SuspectIdentity::default();
        assert_eq!(suspect_name(&suspect, 80), "cgroup /system.slice/shardd@3.service");
    }

    // Proves that a printed time has its UTC offset, in winter and summer, and Z in UTC.
    #[test]
    fn times_have_their_offset() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(time_text(1_700_000_000_463_435_999, &berlin), "2023-11-14T23:13:20.463+01:00");
        assert_eq!(time_text(1_688_169_600_000_000_001, &berlin), "2023-07-01T02:00:00.000+02:00");
        assert_eq!(time_text(-1, &TimeZone::UTC), "1969-12-31T23:59:59.999Z");
    }
}
