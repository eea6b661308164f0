//! Elements of lists, recognized from sample to sample by the fields that identify them.

use std::collections::HashMap;
use std::sync::Arc;

/// The element of a row of which there is no number: a query tells [`ELEMENTS_MAX`] apart.
pub const NO_ELEMENT: u32 = u32::MAX;

/// Most elements that one query tells apart: memory is bounded however many processes come and go.
/// One takes some 350 bytes.
pub const ELEMENTS_MAX: usize = 1 << 17;

/// The elements that a query has seen.
#[derive(Debug, Clone, Default)]
pub struct ElementNames {
    known: HashMap<(u32, Box<[u8]>), u32>,
    elements: Vec<NamedElement>,
    has_more: bool,
}

#[derive(Debug, Clone)]
struct NamedElement {
    label: Box<str>,
    identity: Vec<ElementIdentity>,
    /// How often it was named differently.
    namings: u32,
}

/// A field that identifies or names an element, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementIdentity {
    /// The field's name.
    pub field: Arc<str>,
    /// The value; a number as its digits.
    pub value: Box<str>,
    /// It tells elements apart, and does not only describe one.
    pub is_key: bool,
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

    /// Returns whether there were elements for which there was no number.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the key of each element within its list, by number.
    pub(super) fn keys(&self) -> HashMap<u32, &[u8]> {
        self.known.iter().map(|((_, key), element)| (*element, &**key)).collect()
    }

    /// Returns the element of a list with this key; [`NO_ELEMENT`] if there is no room for it.
    pub(super) fn intern(&mut self, list: u32, key: &[u8]) -> u32 {
        // Looked up by a borrowed key would need a second map type; keys are short.
        let key = (list, Box::from(key));
        if let Some(element) = self.known.get(&key) {
            return *element;
        }
        if self.elements.len() >= ELEMENTS_MAX {
            self.has_more = true;
            return NO_ELEMENT;
        }
        let element = u32::try_from(self.elements.len()).unwrap_or(NO_ELEMENT);
        self.elements.push(NamedElement { label: Box::from(""), identity: Vec::new(), namings: 0 });
        self.known.insert(key, element);
        element
    }

    /// Returns how often an element was named differently: what named it last still holds as long
    /// as this is the same.
    pub(super) fn namings(&self, element: u32) -> u32 {
        self.elements.get(element as usize).map_or(0, |element| element.namings)
    }

    /// Sets label and identity, which may change: a process gets another name.
    pub(super) fn name(&mut self, element: u32, label: &str, identity: &[ElementIdentity]) {
        if let Some(named) = self.elements.get_mut(element as usize)
            && (*named.label != *label || named.identity != identity)
        {
            named.label = label.into();
            named.identity = identity.to_vec();
            named.namings = named.namings.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that memory is bounded: elements beyond the maximum have no number, that is known, and
    // those before keep theirs.
    #[test]
    fn elements_beyond_the_maximum_are_noticed() {
        let mut names = ElementNames::default();
        for number in 0..ELEMENTS_MAX {
            assert_eq!(names.intern(0, &number.to_le_bytes()) as usize, number);
        }
        assert!(!names.has_more());
        assert_eq!(names.intern(0, b"one more"), NO_ELEMENT);
        assert_eq!(names.intern(0, &7_usize.to_le_bytes()), 7);
        assert!(names.has_more() && names.len() == ELEMENTS_MAX);
    }
}
