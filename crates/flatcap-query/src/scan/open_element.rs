//! An element of a list while it is being read, with its identity and its label.

use std::fmt::Write;
use std::sync::Arc;

use flatcap_format::schema::{FieldValue, text_of, visible_text};

use crate::names::elements::{ElementIdentity, ElementLabel, without_work};
use crate::names::label_rules::LabelRole;
use crate::names::path::TestOperator;
use crate::plan::{ElementTest, ListPlan, Naming};

/// An element whose values are being read.
pub(super) struct OpenElement<'r> {
    pub(super) list: &'r ListPlan,
    pub(super) key: Vec<u8>,
    pub(super) has_key: bool,
    pub(super) position: usize,
    pub(super) length: usize,
    pub(super) identity: Vec<ElementIdentity>,
    /// For each identity field, its role in the label.
    rules: Vec<LabelRole>,
    /// The strings of the identity that are not UTF-8. An entry has the position of the field in
    /// `identity` and the bytes.
    bytes: Vec<(usize, Vec<u8>)>,
    /// The number of rows of each table when the element began. This number is used to remove the
    /// rows of an element that turns out not to be selected.
    pub(super) rows: Vec<(usize, usize)>,
}

impl<'r> OpenElement<'r> {
    /// Begins an element. `outer_key` is the key of the element that contains this element, if any.
    pub(super) fn new(list: &'r ListPlan, outer_key: Vec<u8>, position: usize, length: usize) -> Self {
        Self {
            list,
            key: outer_key,
            has_key: false,
            position,
            length,
            identity: Vec::new(),
            rules: Vec::new(),
            bytes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Completes the key after all fields were read.
    pub(super) fn end_key(&mut self) {
        if !self.has_key {
            let position = self.position_key();
            self.key.extend_from_slice(&position);
        }
    }

    /// Returns the key to which elements inside this element append their own keys.
    pub(super) fn inner_key(&self) -> Vec<u8> {
        // The fields that follow the inner list are not read yet, so they cannot be a part of the
        // key. The position can.
        let mut key = self.key.clone();
        if !self.has_key || self.list.has_late_key {
            key.extend(self.position_key());
        }
        key
    }

    fn position_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        // The length is a part of the key, because after an insertion, the element at the same
        // position may be another element.
        if !self.list.are_events {
            push_part(&mut key, &(self.length as u64).to_le_bytes());
        }
        push_part(&mut key, &(self.position as u64).to_le_bytes());
        key
    }

    pub(super) fn identify(&mut self, naming: &Naming, value: FieldValue<'_>) {
        let text = match value {
            FieldValue::Text(text) => text.to_owned(),
            FieldValue::Unsigned(number) => number.to_string(),
            FieldValue::Signed(number) => number.to_string(),
            FieldValue::Bool(value) => value.to_string(),
            FieldValue::Float32(_) | FieldValue::Float(_) | FieldValue::Absent => return,
        };
        self.add_part(naming, text.as_bytes(), &text);
    }

    /// Adds a string to the identity.
    pub(super) fn identify_text(&mut self, naming: &Naming, bytes: &[u8]) {
        let text = text_of(bytes);
        // If the bytes are not UTF-8, other bytes may have the same printed form.
        if text.as_bytes() != bytes {
            self.bytes.push((self.identity.len(), bytes.to_vec()));
        }
        self.add_part(naming, bytes, &text);
    }

    fn add_part(&mut self, naming: &Naming, key: &[u8], text: &str) {
        if naming.is_key {
            self.has_key = true;
            // The name of the field is a part of the key, because another field may have the same
            // value.
            push_part(&mut self.key, naming.field.as_bytes());
            push_part(&mut self.key, key);
        }
        self.rules.push(naming.rule);
        let (field, is_key) = (Arc::clone(&naming.field), naming.is_key);
        self.identity.push(ElementIdentity { field, value: text.into(), is_key });
    }

    /// Returns the label of the element, such as `vda`, `postgres[812]`, `coretemp/Core 0[2]` or
    /// `requests{code="500"}`. If the identity has neither a string nor a number, returns the
    /// position of the element.
    pub(super) fn label(&self) -> String {
        self.label_and_used().0
    }

    /// Returns the label, and for each identity field whether the label contains it.
    fn label_and_used(&self) -> (String, Vec<bool>) {
        let mut used = vec![false; self.identity.len()];
        let mut label = String::new();
        let place = |rule: LabelRole, test: fn(&str) -> bool, is_first: bool, used: &mut Vec<bool>| {
            let mut found = Vec::new();
            for ((part, own), used) in self.identity.iter().zip(&self.rules).zip(used) {
                if *own == rule
                    && !part.value.is_empty()
                    && test(&part.value)
                    && (!is_first || found.is_empty())
                {
                    *used = true;
                    found.push(&*part.value);
                }
            }
            found
        };
        let any: fn(&str) -> bool = |_| true;
        let mut texts = place(LabelRole::Name, any, true, &mut used);
        if texts.is_empty() {
            texts = place(LabelRole::Text, |value| !is_number(value), true, &mut used);
        }
        let parts = place(LabelRole::Part, any, true, &mut used);
        let is_alone = parts.is_empty();
        texts.extend(parts);
        if is_alone {
            texts.extend(place(LabelRole::PartElse, any, true, &mut used));
        }
        label.push_str(&texts.join("/"));
        let numbers = place(LabelRole::Number, any, true, &mut used);
        let numbers =
            if numbers.is_empty() { place(LabelRole::Text, is_number, true, &mut used) } else { numbers };
        for number in numbers {
            // Writing to a string cannot fail.
            let _infallible =
                if label.is_empty() { write!(label, "{number}") } else { write!(label, "[{number}]") };
        }
        for more in place(LabelRole::Braces, any, false, &mut used) {
            let _infallible = write!(label, "{{{more}}}");
        }
        if label.is_empty() {
            label = self.position.to_string();
        }
        (label, used)
    }

    /// Returns the label with all fields that identify the element, and with the number of earlier
    /// elements in the sample that have the same identity.
    fn full_label(&self, before: Option<u32>) -> String {
        let (mut label, used) = self.label_and_used();
        let rest = self.identity.iter().zip(used).filter(|(part, is_used)| part.is_key && !is_used);
        let rest = rest.map(|(part, _)| {
            // A value with one of these characters would be ambiguous without quotes.
            let is_plain = !part.value.is_empty() && !part.value.contains(['"', ',', '{', '}', '=']);
            let value = &part.value;
            if is_plain { format!("{}={value}", part.field) } else { format!("{}={value:?}", part.field) }
        });
        // Different bytes that are not UTF-8 may have the same printed form.
        let bytes = self.bytes.iter().filter_map(|(at, bytes)| Some((self.identity.get(*at)?, bytes)));
        let bytes = bytes.filter(|(part, _)| part.is_key).map(|(part, bytes)| {
            bytes.iter().fold(format!("{}=0x", part.field), |text, byte| format!("{text}{byte:02x}"))
        });
        let rest: Vec<String> = rest.chain(bytes).collect();
        if !rest.is_empty() {
            let _infallible = write!(label, "{{{}}}", rest.join(","));
        }
        if let Some(before) = before.filter(|before| *before > 0 || rest.is_empty()) {
            let _infallible = write!(label, "#{}", before + 1);
        }
        label
    }

    /// Returns the label of the element, preceded by the labels of the elements that contain this
    /// element, such as `DMA/0`. `before` is the number of earlier elements in the sample that have
    /// the same identity.
    pub(super) fn named(&self, outer: &[OpenElement<'_>], before: u32) -> ElementLabel {
        let (mut label, mut full_label) = (String::new(), String::new());
        for outer in outer {
            let _infallible = write!(label, "{}/", outer.label());
            let _infallible = write!(full_label, "{}/", outer.full_label(None));
        }
        let own_start = label.len();
        label.push_str(&self.label());
        full_label.push_str(&self.full_label(Some(before)));
        let is_position = !self.has_key && outer.iter().all(|outer| !outer.has_key);
        // Fields that only describe the element may change with each sample, so they do not
        // identify it.
        let parts = self.identity.iter().zip(&self.rules);
        let parts = parts.filter(|(part, rule)| part.is_key || **rule != LabelRole::Rest);
        let identity = parts.map(|(part, _)| part.clone()).collect();
        // The printed form of a string that is not UTF-8 may also be the printed form of another
        // string.
        let has_bytes =
            self.bytes.iter().any(|(at, _)| self.identity.get(*at).is_some_and(|part| part.is_key));
        let is_repeated = before > 0 || !outer.is_empty() || has_bytes;
        ElementLabel { label, full_label, own_start, identity, is_position, is_repeated }
    }

    /// Returns whether the element passes a test. `named` is the label of the element.
    pub(super) fn passes(&self, test: &ElementTest, named: &ElementLabel) -> bool {
        match test {
            ElementTest::Named(name) => {
                // A label and the name of a column may name different works of a kernel worker, so
                // the work is not compared. A header shows invisible characters in escaped form.
                let is_named = |label: &str| {
                    without_work(label) == without_work(name)
                        || (name.contains('\\') && *visible_text(label) == **name)
                };
                let naming = self.identity.iter().zip(&self.rules);
                let mut naming = naming.filter(|(part, rule)| part.is_key || **rule != LabelRole::Rest);
                naming.any(|(part, _)| part.value == *name)
                    || is_named(&named.label)
                    || is_named(&named.full_label)
                    || is_named(&self.label())
                    || (!self.has_key && self.position.to_string() == **name)
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
}

/// Appends a part of a key.
fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // The length separates this part from the following parts.
    key.extend_from_slice(&(part.len() as u64).to_le_bytes());
    key.extend_from_slice(part);
}

fn is_number(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}
