//! Prints values with their unit, and departures of fields, for people: three significant digits,
//! 80 columns.

use flatcap_explain::{FieldDeparture, ValueUnit};
use flatcap_text::human;

use super::sender_text::sender_text;

/// A shorter part of an element's name says nothing.
const ELEMENT_WIDTH_MIN: usize = 5;

/// Formats a value with its unit.
pub(super) fn measured(value: f64, unit: ValueUnit) -> String {
    match unit {
        ValueUnit::Percent => format!("{} %", human::significant(value)),
        ValueUnit::Bytes => scaled(value, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024.0),
        ValueUnit::BytesPerSecond => {
            format!("{}/s", scaled(value, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024.0))
        }
        ValueUnit::PerSecond => format!("{} /s", human::significant(value)),
        ValueUnit::Seconds => {
            let (value, unit) = match value.abs() {
                1.0.. => (value, "s"),
                1e-3.. => (value * 1e3, "ms"),
                _ => (value * 1e6, "us"),
            };
            format!("{} {unit}", human::significant(value))
        }
        ValueUnit::None => human::significant(value),
    }
}

/// Formats a value of a departure, in the unit of its schema if that unit is not one of ours.
pub(super) fn value_text(departure: &FieldDeparture, value: f64) -> String {
    let text = measured(value, departure.unit);
    match (&departure.field_unit, departure.unit) {
        (Some(unit), ValueUnit::None) => format!("{text} {}", human::escaped(unit)),
        (Some(unit), ValueUnit::PerSecond) => {
            format!("{} {}/s", human::significant(value), human::escaped(unit))
        }
        _ => text,
    }
}

/// Returns the programs that pushed a field: `pushed by rig (user 1000, /usr/bin/rig)`; `None` if
/// the recorder measured or imported it.
pub(super) fn senders(departure: &FieldDeparture) -> Option<String> {
    let first = departure.senders.first()?;
    let more = match departure.senders.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!("pushed by {}{more}", sender_text(first)))
}

fn scaled(value: f64, units: &[&str], base: f64) -> String {
    let mut value = value;
    let mut units = units.iter().peekable();
    let mut unit = units.next();
    while value.abs() >= base - 0.5 && units.peek().is_some() {
        value /= base;
        unit = units.next();
    }
    format!("{} {}", human::significant(value), unit.unwrap_or(&""))
}

/// Formats the usual range of a departure: `0 to 4.10 %`; one value if it has no width.
pub(super) fn usual_range(departure: &FieldDeparture) -> String {
    let (low, high) = departure.usual_range;
    let (low_text, high_text) = (value_text(departure, low), value_text(departure, high));
    if low_text == high_text {
        return high_text;
    }
    // The unit once, if both have the same.
    match (low_text.split_once(' '), high_text.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other || number == "0" => {
            format!("{number} to {high_text}")
        }
        _ => format!("{low_text} to {high_text}"),
    }
}

/// Returns what departs within a width: in full, or as short as that takes.
pub(super) fn fitting_name(departure: &FieldDeparture, width: usize) -> String {
    let name = full_name(departure);
    if name.chars().count() <= width { name } else { short_name(departure, width) }
}

/// Returns what departs, in full: `billing[812] process.processes[*].user_time`, `cpu.total.user`.
fn full_name(departure: &FieldDeparture) -> String {
    let path = departure.full_path();
    let name = match &departure.element {
        Some(element) => format!("{element} {path}"),
        None => path,
    };
    human::escaped(&name).into_owned()
}

/// Returns what departs within a width: `billing[812] user_time`, `cpu.total.user`. The name of the
/// field stays whole as long as there is place for it, and the element is shortened.
pub(super) fn short_name(departure: &FieldDeparture, width: usize) -> String {
    let Some(element) = &departure.element else {
        return human::shortened(&full_name(departure), width);
    };
    let (element, field) = (human::escaped(element), what(departure));
    let place = width.saturating_sub(field.chars().count() + 1);
    if place < ELEMENT_WIDTH_MIN.min(element.chars().count()) {
        return human::shortened(&field, width);
    }
    format!("{} {field}", human::shortened_element(&element, place))
}

/// Returns the name of a field without its source and list, with the state whose share is counted.
/// If other sources have the same name, the source and its id come first: `orders[3].depth`.
pub(super) fn what(departure: &FieldDeparture) -> String {
    let mut name = leaf(departure).to_owned();
    if departure.source_id.is_some() {
        name = format!("{}.{name}", departure.source_name());
    }
    if let Some(state) = &departure.state {
        name = format!("{name} {state}");
    }
    human::escaped(&name).into_owned()
}

/// Returns the last name of a field; of the list, if its elements themselves are counted.
fn leaf(departure: &FieldDeparture) -> &str {
    let field = departure.field.strip_suffix("[*]").unwrap_or(&departure.field);
    field.rsplit_once("].").or_else(|| field.rsplit_once('.')).map_or(field, |(_, leaf)| leaf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(low: f64, high: f64, unit: ValueUnit) -> FieldDeparture {
        FieldDeparture {
            source: "disk".to_owned(),
            source_id: None,
            field: "devices[*].reads".to_owned(),
            element: Some("vda".to_owned()),
            state: None,
            value: high,
            usual: low,
            usual_range: (low, high),
            unit,
            score: 1.0,
            wall_ns: 0,
            together: Vec::new(),
            field_unit: None,
            senders: Vec::new(),
            measurement: None,
        }
    }

    // Proves that each unit has its form, with three significant digits.
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

    // Proves that a range has its unit once, and that a range without width is one value.
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
            field: "processes[*].state".to_owned(),
            state: Some("not sleeping".to_owned()),
            ..process
        };
        assert_eq!(short_name(&share, 60), "chrome-renderer[31337] state not sleeping");
        let total = FieldDeparture { element: None, field: "total.user".to_owned(), ..device };
        assert_eq!(short_name(&total, 12), "disk.tota...");
    }
}
