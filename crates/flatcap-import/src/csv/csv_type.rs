//! The types of columns. A type is stated by an option or derived from the cells.

use std::str::FromStr;

use flatcap_format::schema::NewContent;
use flatcap_os::keyword::Keyword as _;
use flatcap_os::keywords;

use super::numeral::{DecimalMark, numeral};
use crate::payload::PayloadValue;

/// Largest integer up to which a 64-bit float represents each integer exactly.
const FLOAT_EXACT_MAX: u64 = 1 << 53;

keywords! {
    /// The type of a column.
    pub enum CsvType {
        /// `true` and `false`.
        Bool = "bool",
        /// Integers that are not negative.
        Unsigned = "unsigned",
        /// Integers.
        Signed = "integer",
        /// Numbers with or without a fraction.
        Float = "float",
        /// Any text.
        Text = "text",
    }
}

impl FromStr for CsvType {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::find(text).ok_or("no such type; use bool, unsigned, integer, float or text")
    }
}

impl CsvType {
    /// Returns whether values of this type are numbers.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Unsigned | Self::Signed | Self::Float)
    }

    /// Returns the type of the schema field.
    pub(super) fn content(self) -> NewContent {
        match self {
            Self::Bool => NewContent::Bool,
            Self::Unsigned => NewContent::Unsigned,
            Self::Signed => NewContent::Signed,
            Self::Float => NewContent::Float,
            Self::Text => NewContent::Text,
        }
    }

    /// Returns whether the type can represent a cell without losing digits of an integer.
    fn keeps(self, cell: &str) -> bool {
        match self {
            Self::Bool => bool_of(cell).is_some(),
            Self::Unsigned => is_whole_number(cell) && cell.parse::<u64>().is_ok(),
            Self::Signed => is_whole_number(cell) && cell.parse::<i64>().is_ok(),
            Self::Float => is_number(cell),
            Self::Text => true,
        }
    }

    /// Returns the value of a cell, or `None` if the type or the unit of the cell differs from its
    /// column.
    pub(super) fn value<'c>(
        self,
        cell: &'c str,
        mark: DecimalMark,
        unit: Option<&str>,
    ) -> Option<PayloadValue<'c>> {
        if mark == DecimalMark::Comma && self.is_number() {
            return self.number(cell, mark, unit);
        }
        self.plain_value(cell).or_else(|| self.number(cell, mark, unit))
    }

    fn number<'c>(self, cell: &str, mark: DecimalMark, unit: Option<&str>) -> Option<PayloadValue<'c>> {
        let found = numeral(cell, mark).filter(|found| found.unit.is_empty() || Some(found.unit) == unit)?;
        Some(match self.plain_value(&found.number)? {
            PayloadValue::Unsigned(number) => PayloadValue::Unsigned(number),
            PayloadValue::Signed(number) => PayloadValue::Signed(number),
            PayloadValue::Float(number) => PayloadValue::Float(number),
            PayloadValue::Bool(_) | PayloadValue::Text(_) => return None,
        })
    }

    fn plain_value(self, cell: &str) -> Option<PayloadValue<'_>> {
        match self {
            Self::Bool => bool_of(cell).map(PayloadValue::Bool),
            Self::Unsigned => cell.parse().ok().map(PayloadValue::Unsigned),
            Self::Signed => cell.parse().ok().map(PayloadValue::Signed),
            Self::Float => float_of(cell).map(PayloadValue::Float),
            Self::Text => Some(PayloadValue::Text(cell)),
        }
    }
}

fn bool_of(cell: &str) -> Option<bool> {
    let is = |word: &str| cell.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// The class of a cell, according to the number types that can represent the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberClass {
    /// A number. The elements state whether the types unsigned, integer and float, in this order,
    /// can represent the number.
    Number([bool; 3]),
    /// Digits that no type represents exactly, such as a code with leading zeros or a long
    /// identifier.
    Code,
    /// Not a number.
    Other,
}

/// Classifies a cell.
pub(super) fn number_class(cell: &str) -> NumberClass {
    let holds = [CsvType::Unsigned, CsvType::Signed, CsvType::Float].map(|csv_type| csv_type.keeps(cell));
    let only_digits = || {
        let digits = cell.strip_prefix('-').unwrap_or(cell);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match holds {
        [false, false, false] if only_digits() => NumberClass::Code,
        [false, false, false] => NumberClass::Other,
        holds => NumberClass::Number(holds),
    }
}

/// Returns whether a cell is `true` or `false`.
pub(super) fn is_bool(cell: &str) -> bool {
    bool_of(cell).is_some()
}

/// Returns whether a cell is an integer without leading zeros. A cell with leading zeros may be a
/// code, which must keep the zeros.
fn is_whole_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
    !digits.is_empty() && !has_leading_zero && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a 64-bit float can represent a cell. A long identifier would lose digits as a
/// float, so it stays text.
fn is_number(cell: &str) -> bool {
    let only_digits = cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if only_digits {
        return is_whole_number(cell)
            && cell.parse::<i64>().is_ok_and(|number| number.unsigned_abs() <= FLOAT_EXACT_MAX);
    }
    float_of(cell).is_some()
}

/// Parses a float. Returns `None` for numbers such as 1e400, which would become infinite. Infinity
/// written as a word is accepted.
fn float_of(cell: &str) -> Option<f64> {
    let has_digits = || cell.bytes().any(|byte| byte.is_ascii_digit());
    cell.parse::<f64>().ok().filter(|number| !number.is_infinite() || !has_digits())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that cells are parsed as the type of their column, and that cells of other types have
    // no value.
    #[test]
    fn cells_are_read_as_their_type() {
        let value = |csv_type: CsvType, cell| csv_type.value(cell, DecimalMark::Point, Some("%"));
        assert_eq!(value(CsvType::Unsigned, "18446744073709551615"), Some(PayloadValue::Unsigned(u64::MAX)));
        assert_eq!(value(CsvType::Signed, "-3"), Some(PayloadValue::Signed(-3)));
        assert_eq!(value(CsvType::Float, "1e3"), Some(PayloadValue::Float(1000.0)));
        assert_eq!(value(CsvType::Float, "-inf"), Some(PayloadValue::Float(f64::NEG_INFINITY)));
        assert_eq!(value(CsvType::Float, "1e400"), None, "it is not infinite");
        assert_eq!(value(CsvType::Bool, "TRUE"), Some(PayloadValue::Bool(true)));
        assert_eq!(value(CsvType::Text, ""), Some(PayloadValue::Text("")));
        assert_eq!(value(CsvType::Unsigned, "50 %"), Some(PayloadValue::Unsigned(50)));
        assert_eq!(value(CsvType::Unsigned, "50 W"), None);
        for (kind, cell) in [(CsvType::Unsigned, "-1"), (CsvType::Signed, "1.5"), (CsvType::Bool, "1")] {
            assert_eq!(value(kind, cell), None, "{cell}");
        }
        let comma = |cell| CsvType::Float.value(cell, DecimalMark::Comma, None);
        assert_eq!(comma("1.234,5"), Some(PayloadValue::Float(1234.5)));
        assert_eq!((comma("1.234"), comma("1.5")), (Some(PayloadValue::Float(1234.0)), None));
        assert_eq!("integer".parse(), Ok(CsvType::Signed));
        assert!("int".parse::<CsvType>().unwrap_err().to_string().contains("use bool"));
    }
}
