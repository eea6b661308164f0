//! Formats one value of a row as text. For people, the value is printed with its unit. For
//! programs, it is a plain number.

use flatcap_format::schema::{FieldValue, MetricKind, append_json_value, is_terminal_unsafe};
use flatcap_query::{CommonUnit, HeldValue, RowColumn};

use crate::cli::human;

/// The unit in which values are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitMode {
    /// The unit of the schema. The value is a plain number.
    Own,
    /// A common unit. The value is a plain number.
    Common,
    /// A common unit that is printed with each value. The value has three significant digits.
    People,
}

/// Specifies how strings from recordings are written in CSV cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum TextRule {
    /// Strings are printed as recorded, for programs.
    Unchanged,
    /// Characters that could control a terminal are replaced with `?`.
    ForTerminal,
}

/// Returns the unit of the values of a column. Counters and states keep their own unit, because all
/// their digits matter. Only rates and levels are converted, because people compare them.
pub(crate) fn unit_of(column: &RowColumn, mode: UnitMode) -> CommonUnit {
    let is_level = matches!(column.kind, MetricKind::Gauge | MetricKind::Unknown);
    if mode != UnitMode::Own && (column.is_rate || is_level) {
        CommonUnit::of(column.unit.as_deref(), column.is_rate)
    } else {
        CommonUnit::own(column.unit.as_deref(), column.is_rate)
    }
}

/// Writes a value in a unit. Writes nothing for an absent value.
pub(crate) fn write_value(value: &HeldValue, unit: &CommonUnit, mode: UnitMode, cell: &mut Vec<u8>) {
    let is_own = (unit.factor - 1.0).abs() < f64::EPSILON;
    match (value.number(), mode) {
        (Some(number), UnitMode::People) => {
            let is_whole = matches!(value, HeldValue::Unsigned(_) | HeldValue::Signed(_));
            let has_prefix = matches!(&*unit.name, "B" | "B/s" | "s" | "%");
            if is_whole && !has_prefix {
                print_plain(value.get(), cell);
                if !unit.name.is_empty() {
                    cell.push(b' ');
                    cell.extend_from_slice(unit.name.as_bytes());
                }
            } else {
                cell.clear();
                cell.extend_from_slice(human::quantity(unit.convert(number), &unit.name).as_bytes());
            }
        }
        (Some(number), UnitMode::Common) if !is_own => {
            print_plain(FieldValue::Float(unit.convert(number)), cell);
        }
        _ => print_plain(value.get(), cell),
    }
}

/// Writes a value as a cell of CSV. Writes nothing for an absent value.
pub(super) fn print_data(value: FieldValue<'_>, text_rule: TextRule, cell: &mut Vec<u8>) {
    match value {
        FieldValue::Text(text) if text_rule == TextRule::Unchanged => {
            cell.clear();
            cell.extend_from_slice(text.as_bytes());
        }
        other => print_plain(other, cell),
    }
}

/// Writes a value as plain text. Writes nothing for an absent value.
pub(super) fn print_plain(value: FieldValue<'_>, cell: &mut Vec<u8>) {
    cell.clear();
    match value {
        FieldValue::Absent => {}
        FieldValue::Text(text) => {
            let plain: String = text.chars().map(|c| if is_terminal_unsafe(c) { '?' } else { c }).collect();
            cell.extend_from_slice(plain.as_bytes());
        }
        FieldValue::Float(number) if !number.is_finite() => {}
        FieldValue::Float32(number) if !number.is_finite() => {}
        other => append_json_value(other, cell),
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::ColumnType;

    use super::*;

    fn text(
        value: &HeldValue,
        kind: MetricKind,
        unit: Option<&str>,
        is_rate: bool,
        mode: UnitMode,
    ) -> String {
        let column = RowColumn {
            name: String::new(),
            source: "".into(),
            column_type: ColumnType::Unsigned,
            unit: unit.map(Into::into),
            kind,
            is_rate,
            order: (0, 0),
        };
        let mut cell = Vec::new();
        write_value(value, &unit_of(&column, mode), mode, &mut cell);
        String::from_utf8(cell).unwrap()
    }

    // Proves that rates and levels are converted for people and on request. Also proves that
    // counters and states keep their digits, and that an absent value is empty.
    #[test]
    fn values_have_the_unit_of_the_mode() {
        use HeldValue::{Absent, Float, Unsigned};
        use MetricKind::{Counter, Gauge, State};
        use UnitMode::{Common, Own, People};
        for (value, kind, unit, is_rate, mode, expected) in [
            (Float(98.123), Counter, Some("jiffies"), true, People, "98.1 %"),
            (Float(98.123), Counter, Some("jiffies"), true, Common, "98.123"),
            (Float(603_425.0), Counter, Some("us"), true, Common, "60.3425"),
            (Float(603_425.0), Counter, Some("us"), true, Own, "603425.0"),
            (Unsigned(123_456), Counter, Some("jiffies"), false, People, "123456 jiffies"),
            (Unsigned(6_000_000), Gauge, Some("KiB"), false, People, "5.72 GiB"),
            (Unsigned(2), Gauge, Some("KiB"), false, Common, "2048.0"),
            (Unsigned(2), Gauge, Some("KiB"), false, Own, "2"),
            (Unsigned(1523), Gauge, None, false, People, "1523"),
            (Unsigned(812), State, None, false, People, "812"),
            (Float(490.4), Counter, None, true, People, "490 /s"),
            (Absent, Gauge, Some("KiB"), false, People, ""),
        ] {
            assert_eq!(text(&value, kind, unit, is_rate, mode), expected, "{value:?} {unit:?}");
        }
    }
}
