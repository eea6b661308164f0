//! Elements of lists, recognized from sample to sample by the fields that identify them.

use std::collections::HashMap;

/// The element of a row for which there was no room: a query tells some 260,000 apart.
pub const NO_ELEMENT: u32 = u32::MAX;

/// Most elements that one query tells apart: memory is bounded however many processes come and go.
/// One takes some 200 bytes.
const ELEMENTS_MAX: usize = 1 << 18;

/// The elements that a query has seen.
#[derive(Debug, Clone, Default)]
pub struct ElementNames {
    known: HashMap<(u32, Box<[u8]>), u32>,
    elements: Vec<NamedElement>,
}

#[derive(Debug, Clone)]
struct NamedElement {
    label: Box<str>,
    identity: Vec<ElementIdentity>,
}

/// A field that identifies or names an element, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementIdentity {
    /// The field's name.
    pub field: Box<str>,
    /// The value; a number as its digits.
    pub value: Box<str>,
}

impl ElementNames {
    /// Returns the label of an element, as its text is now: `vda`, `postgres[812]`, `0`.
    pub fn label(&self, element: u32) -> &str {
        self.elements.get(element as usize).map_or("?", |element| &element.label)
    }

    /// Returns the fields that identify or name an element, in the order of the schema.
    pub fn identity(&self, element: u32) -> &[ElementIdentity] {
        self.elements.get(element as usize).map_or(&[], |element| &element.identity)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns whether no element was seen.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Returns the element of a list with this key; [`NO_ELEMENT`] if there is no room for it.
    pub(super) fn intern(&mut self, list: u32, key: &[u8]) -> u32 {
        // Looked up by a borrowed key would need a second map type; keys are short.
        let key = (list, Box::from(key));
        if let Some(element) = self.known.get(&key) {
            return *element;
        }
        if self.elements.len() >= ELEMENTS_MAX {
            return NO_ELEMENT;
        }
        let element = u32::try_from(self.elements.len()).unwrap_or(NO_ELEMENT);
        self.elements.push(NamedElement { label: Box::from(""), identity: Vec::new() });
        self.known.insert(key, element);
        element
    }

    /// Sets label and identity, which may change: a process gets another name.
    pub(super) fn name(&mut self, element: u32, label: &str, identity: &[ElementIdentity]) {
        if let Some(named) = self.elements.get_mut(element as usize)
            && (*named.label != *label || named.identity != identity)
        {
            named.label = label.into();
            named.identity = identity.to_vec();
        }
    }
}
