//! An element of a list while it is read: what identifies it, and how it is called.

use std::sync::Arc;

use super::elements::ElementIdentity;
use super::path::TestOperator;
use super::plan::{ElementTest, ListPlan, Naming};
use crate::schema::FieldValue;

/// An element whose values are being read.
pub(super) struct OpenElement<'r> {
    pub(super) list: &'r ListPlan,
    pub(super) key: Vec<u8>,
    pub(super) has_key: bool,
    pub(super) position: usize,
    pub(super) length: usize,
    pub(super) identity: Vec<ElementIdentity>,
    label_number: Option<Box<str>>,
    /// The first row of each table when it began, for an element that is not picked.
    pub(super) rows: Vec<(usize, usize)>,
}

impl<'r> OpenElement<'r> {
    /// Begins an element within the one that has this key, if any.
    pub(super) fn new(list: &'r ListPlan, outer_key: Vec<u8>, position: usize, length: usize) -> Self {
        Self {
            list,
            key: outer_key,
            has_key: false,
            position,
            length,
            identity: Vec::new(),
            label_number: None,
            rows: Vec::new(),
        }
    }

    /// Completes the key when all fields were read.
    pub(super) fn end_key(&mut self) {
        if !self.has_key {
            // The length is a part of it: after an insertion a position may be another element.
            if !self.list.are_events {
                self.push_key(&(self.length as u64).to_le_bytes());
            }
            self.push_key(&(self.position as u64).to_le_bytes());
        }
    }

    /// Appends a part of the key; its length keeps parts apart.
    fn push_key(&mut self, part: &[u8]) {
        self.key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.key.extend_from_slice(part);
    }

    pub(super) fn identify(&mut self, naming: &Naming, value: FieldValue<'_>) {
        let text = match value {
            FieldValue::Text(text) => text.to_owned(),
            FieldValue::Unsigned(number) => number.to_string(),
            FieldValue::Signed(number) => number.to_string(),
            FieldValue::Bool(value) => value.to_string(),
            FieldValue::Float32(_) | FieldValue::Float(_) | FieldValue::Absent => return,
        };
        if naming.is_key {
            self.has_key = true;
            self.push_key(text.as_bytes());
        }
        if naming.is_labelled && self.label_number.is_none() && is_number(&text) {
            self.label_number = Some(text.as_str().into());
        }
        let (field, is_key) = (Arc::clone(&naming.field), naming.is_key);
        self.identity.push(ElementIdentity { field, value: text.into(), is_key });
    }

    /// The first text, and the first number that is declared to identify it: `postgres[812]`;
    /// without either, the position.
    pub(super) fn label(&self) -> String {
        let text = self
            .identity
            .iter()
            .map(|part| &*part.value)
            .find(|value| !value.is_empty() && !is_number(value));
        match (text, self.label_number.as_deref()) {
            (Some(text), Some(number)) => format!("{text}[{number}]"),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => self.position.to_string(),
        }
    }

    /// Returns the label after that of the element that it is in: `DMA/0`.
    pub(super) fn label_in(&self, outer: Option<&str>) -> String {
        match outer {
            Some(outer) => format!("{outer}/{}", self.label()),
            None => self.label(),
        }
    }

    /// Returns whether it passes a test; `outer` is the label of the element that it is in, which
    /// is a part of its printed name.
    pub(super) fn passes(&self, test: &ElementTest, outer: Option<&str>) -> bool {
        match test {
            ElementTest::Named(name) => {
                self.identity.iter().any(|part| part.value == *name)
                    || self.label() == **name
                    || outer.is_some_and(|_| self.label_in(outer) == **name)
                    || (!self.has_number() && self.position.to_string() == **name)
            }
            ElementTest::Tests(tests) => tests.iter().all(|(test, expression)| {
                let value =
                    self.identity.iter().find(|part| *part.field == *test.field).map(|part| &*part.value);
                match test.operator {
                    TestOperator::Equal => value == Some(&*test.value),
                    TestOperator::NotEqual => value != Some(&*test.value),
                    TestOperator::Matches => value
                        .zip(expression.as_ref())
                        .is_some_and(|(value, expression)| expression.is_match(value)),
                }
            }),
        }
    }

    /// A number identifies it, so a number in a path is not a position.
    fn has_number(&self) -> bool {
        self.identity.iter().any(|part| part.value.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

fn is_number(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}
