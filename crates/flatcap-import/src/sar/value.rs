//! JSON values whose members keep their order. sadf prints the member that identifies an element
//! first.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value of JSON.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SarValue {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<SarValue>),
    Object(Vec<(String, SarValue)>),
}

impl SarValue {
    /// Returns a member of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Returns the string, or `None` for another kind of value.
    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

impl<'de> Deserialize<'de> for SarValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = SarValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<SarValue, E> {
        Ok(SarValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<SarValue, E> {
        Ok(SarValue::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<SarValue, E> {
        Ok(SarValue::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<SarValue, E> {
        Ok(SarValue::Signed(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<SarValue, E> {
        Ok(SarValue::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<SarValue, E> {
        Ok(SarValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<SarValue, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = elements.next_element()? {
            found.push(element);
        }
        Ok(SarValue::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<SarValue, A::Error> {
        let mut found = Vec::new();
        while let Some(member) = members.next_entry()? {
            found.push(member);
        }
        Ok(SarValue::Object(found))
    }
}
