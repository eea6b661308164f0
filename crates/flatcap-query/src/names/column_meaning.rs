//! Type, unit and kind of a column. Columns of two runs may have the same path, but different
//! types, units or kinds.

use flatcap_format::schema::{ColumnType, LeafField, MetricKind};

use super::path_text::{is_plain_value, quoted_value};

/// The word that is written in braces to select a column without a unit.
const NO_UNIT: &str = "no unit";

const TYPES: [(ColumnType, &str); 6] = [
    (ColumnType::Unsigned, "unsigned"),
    (ColumnType::Signed, "signed"),
    (ColumnType::Float32, "float32"),
    (ColumnType::Float, "float"),
    (ColumnType::Bool, "bool"),
    (ColumnType::Text, "text"),
];
const KINDS: [(MetricKind, &str); 5] = [
    (MetricKind::Counter, "counter"),
    (MetricKind::Gauge, "gauge"),
    (MetricKind::State, "state"),
    (MetricKind::Text, "text"),
    (MetricKind::Unknown, "unknown"),
];

/// Type, unit and kind of the values of a field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ColumnMeaning {
    pub(crate) column_type: ColumnType,
    pub(crate) unit: Option<Box<str>>,
    pub(crate) kind: MetricKind,
}

/// A type, unit or kind in the braces at the end of a path, such as `bytes` in `app.load{bytes}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MeaningPart {
    pub(super) text: Box<str>,
    /// Whether the part of the path is in quotes. A quoted part in the braces is a unit.
    pub(super) is_quoted: bool,
}

impl ColumnMeaning {
    /// Returns the meaning of a field, or `None` if the field has no column.
    pub(crate) fn of_leaf(leaf: &LeafField<'_>) -> Option<Self> {
        let (unit, kind) = (leaf.field.unit().map(Into::into), leaf.field.metric_kind());
        Some(Self { column_type: leaf.field.column_type()?, unit, kind })
    }

    /// Returns a suffix in braces, which distinguishes this meaning from the other meanings of the
    /// field. Returns an empty suffix if there are no other meanings.
    pub(crate) fn suffix(&self, all: &[Self]) -> String {
        let mut parts = Vec::new();
        if all.iter().any(|other| other.column_type != self.column_type) {
            parts.extend(name_of(&TYPES, self.column_type).map(str::to_owned));
        }
        if all.iter().any(|other| other.unit != self.unit) {
            parts.push(self.unit.as_deref().map_or(NO_UNIT.to_owned(), written_unit));
        }
        if all.iter().any(|other| other.kind != self.kind) {
            parts.extend(name_of(&KINDS, self.kind).map(str::to_owned));
        }
        if parts.is_empty() { String::new() } else { format!("{{{}}}", parts.join(",")) }
    }

    /// Returns whether the meaning has the type, the unit or the kind that the part names.
    pub(super) fn has(&self, part: &MeaningPart) -> bool {
        let unit = self.unit.as_deref();
        // A unit may have the name of a kind, such as `state`. Then a part without quotes selects
        // the kind, and a part in quotes selects the unit.
        if part.is_quoted || !is_reserved(&part.text) {
            return unit == Some(&*part.text);
        }
        name_of(&TYPES, self.column_type) == Some(&*part.text)
            || name_of(&KINDS, self.kind) == Some(&*part.text)
            || (unit.is_none() && &*part.text == NO_UNIT)
    }
}

impl MeaningPart {
    /// Returns this type, unit or kind as it is written in the braces of a path.
    pub(super) fn written(&self) -> String {
        if self.is_quoted { quoted_value(&self.text) } else { self.text.to_string() }
    }
}

fn name_of<T: Copy + PartialEq>(names: &[(T, &'static str)], value: T) -> Option<&'static str> {
    names.iter().find(|(own, _)| *own == value).map(|(_, name)| *name)
}

/// Returns whether a string without quotes is the name of a type, the name of a kind, or the word
/// for the absent unit.
fn is_reserved(text: &str) -> bool {
    let names = TYPES.iter().map(|(_, name)| *name).chain(KINDS.iter().map(|(_, name)| *name));
    names.chain([NO_UNIT]).any(|name| name == text)
}

fn written_unit(unit: &str) -> String {
    // `--fields` ignores units in parentheses.
    let is_plain = is_plain_value(unit) && !unit.contains(['{', '}', '(']) && !is_reserved(unit);
    if is_plain { unit.to_owned() } else { quoted_value(unit) }
}

#[cfg(test)]
mod tests {
    use super::super::path::FieldPath;
    use super::*;

    const UNITS: &str = "(unsigned|float|counter|text|no unit|[a-z{}\"\\\\,()\\[\\]/% ]{1,5})";

    fn meanings(units: &[&str]) -> Vec<ColumnMeaning> {
        let units = units.iter().map(|unit| Some((*unit).into())).chain([None]);
        let meaning = |(number, unit): (usize, Option<Box<str>>)| {
            let (column_type, _) = TYPES[number % TYPES.len()];
            let (kind, _) = KINDS[number / 2 % KINDS.len()];
            ColumnMeaning { column_type, unit, kind }
        };
        (0..).zip(units).map(meaning).collect()
    }

    proptest::proptest! {
        // Proves that the suffix of a column selects this column alone, for any unit. A unit may
        // have the name of a type, or contain braces, quotes, commas or parentheses.
        #[test]
        fn a_suffix_leads_to_its_column(
            units in proptest::collection::vec(UNITS, 1..6),
        ) {
            let units: Vec<&str> = units.iter().map(String::as_str).collect();
            let all = meanings(&units);
            for meaning in &all {
                let suffix = meaning.suffix(&all);
                let text = format!("app.load{suffix}");
                let list = FieldPath::parse_list(&format!("{text},x.y,{text}")).unwrap();
                proptest::prop_assert_eq!(list.len(), 3);
                proptest::prop_assert_eq!(list[2].as_str(), text.trim());
                let found: Vec<&ColumnMeaning> =
                    all.iter().filter(|own| list[2].meaning.iter().all(|part| own.has(part))).collect();
                let same = all.iter().filter(|own| *own == meaning).count();
                proptest::prop_assert_eq!(found, vec![meaning; same]);
                let again: FieldPath = list[2].of_all_elements().as_str().parse().unwrap();
                proptest::prop_assert_eq!(&again.meaning, &list[2].meaning);
            }
        }
    }

    // Proves that a suffix contains the parts that differ between the meanings, and nothing else.
    #[test]
    fn a_suffix_states_what_differs() {
        let of = |column_type, unit: Option<&str>, kind| ColumnMeaning {
            column_type,
            unit: unit.map(Into::into),
            kind,
        };
        let gauge = of(ColumnType::Float, Some("bytes"), MetricKind::Gauge);
        assert_eq!(gauge.suffix(std::slice::from_ref(&gauge)), "");
        let other = of(ColumnType::Float, None, MetricKind::Gauge);
        let both = [gauge.clone(), other.clone()];
        assert_eq!((gauge.suffix(&both), other.suffix(&both)), ("{bytes}".into(), "{no unit}".into()));
        let counter = of(ColumnType::Unsigned, Some("bytes"), MetricKind::Counter);
        assert_eq!(counter.suffix(&[gauge, counter.clone()]), "{unsigned,counter}");
    }
}
