//! Values that outlive the payload from which they were read.

use flatcap_format::schema::FieldValue;

/// A value that a row owns, so that it outlives the payload. In contrast to a `HeldValue`, a
/// [`FieldValue`] borrows its string from a payload.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum HeldValue {
    /// No value.
    #[default]
    Absent,
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// An owned string.
    Text(Box<str>),
}

impl HeldValue {
    /// Returns the value.
    pub fn get(&self) -> FieldValue<'_> {
        match self {
            Self::Absent => FieldValue::Absent,
            Self::Unsigned(number) => FieldValue::Unsigned(*number),
            Self::Signed(number) => FieldValue::Signed(*number),
            Self::Float32(number) => FieldValue::Float32(*number),
            Self::Float(number) => FieldValue::Float(*number),
            Self::Bool(value) => FieldValue::Bool(*value),
            Self::Text(text) => FieldValue::Text(text),
        }
    }

    /// Returns the value as a number, or `None` for a string, NaN, or an absent value.
    #[allow(clippy::cast_precision_loss, reason = "for people and scaled units: 53 bits are plenty")]
    pub fn number(&self) -> Option<f64> {
        let number = match self {
            Self::Unsigned(number) => *number as f64,
            Self::Signed(number) => *number as f64,
            Self::Float32(number) => f64::from(*number),
            Self::Float(number) => *number,
            Self::Bool(_) | Self::Text(_) | Self::Absent => return None,
        };
        Some(number).filter(|number| !number.is_nan())
    }

    /// Replaces the value.
    pub(super) fn set(&mut self, value: FieldValue<'_>) {
        // A string that has not changed is not copied again.
        match (&*self, value) {
            (Self::Text(own), FieldValue::Text(text)) if **own == *text => {}
            _ => *self = Self::from(value),
        }
    }
}

impl From<FieldValue<'_>> for HeldValue {
    fn from(value: FieldValue<'_>) -> Self {
        match value {
            FieldValue::Absent => Self::Absent,
            FieldValue::Unsigned(number) => Self::Unsigned(number),
            FieldValue::Signed(number) => Self::Signed(number),
            FieldValue::Float32(number) => Self::Float32(number),
            FieldValue::Float(number) => Self::Float(number),
            FieldValue::Bool(value) => Self::Bool(value),
            FieldValue::Text(text) => Self::Text(text.into()),
        }
    }
}
