//! The types of columns: stated, or found by all of their cells.

use std::str::FromStr;

use flatcap_format::schema::NewContent;

use crate::import::payload::PayloadValue;

/// Largest whole number up to which a float of 64 bits holds each one.
const FLOAT_EXACT_MAX: u64 = 1 << 53;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsvType {
    /// `true` and `false`.
    Bool,
    /// Whole numbers from 0 on.
    Unsigned,
    /// Whole numbers.
    Signed,
    /// Numbers.
    Float,
    /// Anything.
    Text,
}

/// A word that is no type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such type; use bool, unsigned, integer, float or text")]
pub struct CsvTypeError;

impl FromStr for CsvType {
    type Err = CsvTypeError;

    fn from_str(text: &str) -> Result<Self, CsvTypeError> {
        Ok(match text {
            "bool" => Self::Bool,
            "unsigned" => Self::Unsigned,
            "integer" => Self::Signed,
            "float" => Self::Float,
            "text" => Self::Text,
            _ => return Err(CsvTypeError),
        })
    }
}

impl CsvType {
    /// Returns the word for the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Unsigned => "unsigned",
            Self::Signed => "integer",
            Self::Float => "float",
            Self::Text => "text",
        }
    }

    /// Returns the type of the field in the schema.
    pub(super) fn content(self) -> NewContent {
        match self {
            Self::Bool => NewContent::Bool,
            Self::Unsigned => NewContent::Unsigned,
            Self::Signed => NewContent::Signed,
            Self::Float => NewContent::Float,
            Self::Text => NewContent::Text,
        }
    }

    /// Returns whether a value of the type says all that a cell does.
    fn keeps(self, cell: &str) -> bool {
        match self {
            Self::Bool => bool_of(cell).is_some(),
            Self::Unsigned => is_whole_number(cell) && cell.parse::<u64>().is_ok(),
            Self::Signed => is_whole_number(cell) && cell.parse::<i64>().is_ok(),
            Self::Float => is_number(cell),
            Self::Text => true,
        }
    }

    /// Returns the value of a cell; none if it is of another type.
    pub(super) fn value(self, cell: &str) -> Option<PayloadValue<'_>> {
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

/// The types that all cells of a column so far have.
#[derive(Debug, Clone)]
pub(super) struct PossibleTypes {
    /// Beside text, from the narrowest on.
    left: Vec<CsvType>,
    has_value: bool,
    /// A cell is a whole number that needs all of 64 bits.
    uses_all_bits: bool,
}

impl PossibleTypes {
    /// Creates the types of a column without cells.
    pub(super) fn all() -> Self {
        let left = vec![CsvType::Bool, CsvType::Unsigned, CsvType::Signed, CsvType::Float];
        Self { left, has_value: false, uses_all_bits: false }
    }

    /// Adds a cell that is not absent.
    pub(super) fn add(&mut self, cell: &str) {
        self.has_value = true;
        self.left.retain(|csv_type| csv_type.keeps(cell));
        self.uses_all_bits |= cell.parse::<u64>().is_ok_and(|number| i64::try_from(number).is_err());
    }

    /// Returns whether a cell is a whole number that needs all of 64 bits.
    pub(super) fn uses_all_bits(&self) -> bool {
        self.uses_all_bits
    }

    /// Returns the first type that all cells have, of bool, unsigned, integer and float; text
    /// without one, and without cells.
    pub(super) fn narrowest(&self) -> CsvType {
        self.left.first().copied().filter(|_| self.has_value).unwrap_or(CsvType::Text)
    }
}

/// Returns whether a cell is a whole number as it is printed: with leading zeros it may be a code,
/// whose digits matter.
fn is_whole_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
    !digits.is_empty() && !has_leading_zero && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a cell is a number that a float of 64 bits holds. Digits that it would not hold,
/// as those of a long identifier, make a text.
fn is_number(cell: &str) -> bool {
    let only_digits = cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if only_digits {
        return is_whole_number(cell)
            && cell.parse::<i64>().is_ok_and(|number| number.unsigned_abs() <= FLOAT_EXACT_MAX);
    }
    float_of(cell).is_some()
}

/// Returns the number of a cell; none if there is no such number, as of 1e400, which would become
/// infinite. Infinity that is written as a word is kept.
fn float_of(cell: &str) -> Option<f64> {
    let has_digits = || cell.bytes().any(|byte| byte.is_ascii_digit());
    cell.parse::<f64>().ok().filter(|number| !number.is_infinite() || !has_digits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cells: &[&str]) -> CsvType {
        let mut types = PossibleTypes::all();
        for cell in cells {
            types.add(cell);
        }
        types.narrowest()
    }

    // Proves that a column has the narrowest type of all of its cells, and that codes and digits
    // that no number holds stay texts.
    #[test]
    fn columns_have_the_type_of_all_cells() {
        for (cells, expected) in [
            (&[][..], CsvType::Text),
            (&["true", "False"], CsvType::Bool),
            (&["0", "18446744073709551615"], CsvType::Unsigned),
            (&["0", "-7"], CsvType::Signed),
            (&["18446744073709551615", "-7"], CsvType::Text),
            (&["9007199254740992", "0.5"], CsvType::Float),
            (&["9007199254740993", "0.5"], CsvType::Text),
            (&["1", "2.5", "-1e-3", "NaN"], CsvType::Float),
            (&["1", "1e400"], CsvType::Text),
            (&["007", "12"], CsvType::Text),
            (&["18446744073709551616"], CsvType::Text),
            (&["1", "x"], CsvType::Text),
            (&["true", "1"], CsvType::Text),
            (&["-"], CsvType::Text),
            (&["1.0", "07"], CsvType::Text),
        ] {
            assert_eq!(found(cells), expected, "{cells:?}");
        }
    }

    // Proves that cells are read as their type, and that others are none.
    #[test]
    fn cells_are_read_as_their_type() {
        assert_eq!(CsvType::Unsigned.value("18446744073709551615"), Some(PayloadValue::Unsigned(u64::MAX)));
        assert_eq!(CsvType::Signed.value("-3"), Some(PayloadValue::Signed(-3)));
        assert_eq!(CsvType::Float.value("1e3"), Some(PayloadValue::Float(1000.0)));
        assert_eq!(CsvType::Float.value("-inf"), Some(PayloadValue::Float(f64::NEG_INFINITY)));
        assert_eq!(CsvType::Float.value("1e400"), None, "it is not infinite");
        assert_eq!(CsvType::Bool.value("TRUE"), Some(PayloadValue::Bool(true)));
        assert_eq!(CsvType::Text.value(""), Some(PayloadValue::Text("")));
        for (kind, cell) in [(CsvType::Unsigned, "-1"), (CsvType::Signed, "1.5"), (CsvType::Bool, "1")] {
            assert_eq!(kind.value(cell), None, "{cell}");
        }
        assert_eq!("integer".parse(), Ok(CsvType::Signed));
        assert!("int".parse::<CsvType>().unwrap_err().to_string().contains("use bool"));
    }
}
