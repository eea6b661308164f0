//! Matches the elements of lists from sample to sample by their identity fields, and keeps the
//! names that these elements had.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The element id of a row whose element has no id of its own. A query distinguishes at most
/// [`ELEMENTS_MAX`] elements, and assigns no ids to further elements.
pub const NO_ELEMENT: u32 = u32::MAX;

/// Maximum number of elements in one query, and maximum number of their names. An element takes
/// about 500 bytes, so the limit bounds the memory even if many processes come and go.
pub const ELEMENTS_MAX: usize = 1 << 17;

/// The id of the name that an element has in a sample. A renamed element, such as a process that
/// executes another program, gets the id of another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ElementName(pub(crate) u32);

impl ElementName {
    /// The placeholder for the name of an element that has no id.
    pub const NONE: Self = Self(u32::MAX);
}

/// The elements that have occurred in a query, with their names.
#[derive(Debug, Clone, Default)]
pub struct ElementNames {
    known: HashMap<(u32, Box<[u8]>), u32>,
    elements: Vec<SeenElement>,
    names: Vec<NamedElement>,
    /// For each label of a list, the index of the label's entry in `shared`.
    labels: HashMap<(u32, Box<str>), usize>,
    shared: Vec<LabelUse>,
    /// Strings that select elements, except the labels of these elements.
    picked: PickedStrings,
    /// Sequence number of the sample that is being read.
    sample: u64,
    has_more: bool,
}

/// An element.
#[derive(Debug, Clone)]
struct SeenElement {
    list: u32,
    latest: ElementName,
    /// The first of the elements that have the same identity within a sample.
    first: u32,
    /// All names that the element had.
    names: Vec<ElementName>,
    /// The last sample that contains the element, if any, and the number of occurrences in that
    /// sample.
    sample: u64,
    count: u32,
}

/// An element with one of its names.
#[derive(Debug, Clone)]
struct NamedElement {
    label: Box<str>,
    full_label: Box<str>,
    identity: Arc<[ElementIdentity]>,
    /// Whether the sample may contain other elements with the same identity.
    is_repeated: bool,
    /// The index of the label's entry in `shared`.
    label_use: usize,
    /// The first name of this element that has the same label as this name.
    title: ElementName,
}

/// A label that elements of a list use.
#[derive(Debug, Clone)]
struct LabelUse {
    element: u32,
    title: ElementName,
    /// Whether the position is the only identity of all elements with this label.
    is_position: bool,
    /// Whether several elements have this label.
    is_shared: bool,
}

/// Strings that select elements and are not the labels of these elements. Such strings are values
/// of identity fields, and positions of elements. If another element has such a string as its
/// label, this label selects both elements. The other element is therefore printed with all fields
/// of its identity.
///
/// Contains hashes. If two strings have the same hash, a label may be longer than necessary.
#[derive(Debug, Clone, Default)]
struct PickedStrings {
    // Hashes are stored because the strings of 130,000 elements would need too much memory.
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl PickedStrings {
    fn add(&mut self, list: u32, string: &str) {
        self.hashes.insert(self.hasher.hash_one((list, string)));
    }

    fn contains(&self, list: u32, string: &str) -> bool {
        self.hashes.contains(&self.hasher.hash_one((list, string)))
    }
}

/// The label and the identity of an element in a sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct ElementLabel {
    /// The label, used if no other element of the same list has this label.
    pub(crate) label: String,
    /// The label with all fields that identify the element.
    pub(crate) full_label: String,
    /// Byte offset of the element's own label. The bytes before this offset are the labels of the
    /// elements that contain this element.
    pub(crate) own_start: usize,
    pub(crate) identity: Vec<ElementIdentity>,
    /// Whether the position is the only identity of the element.
    pub(crate) is_position: bool,
    /// Whether the sample may contain other elements with the same identity.
    pub(crate) is_repeated: bool,
}

/// A field that identifies or names an element, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementIdentity {
    /// The field's name.
    pub field: Arc<str>,
    /// The value. A number is stored as its digits.
    pub value: Box<str>,
    /// Whether the field is one of those that distinguish elements. Other fields only describe the
    /// element.
    pub is_key: bool,
}

impl ElementNames {
    /// Returns the label of an element under this name, such as `vda`, `postgres[812]` or `0`. The
    /// label may belong to several elements of the list, or be an identity value of an element with
    /// another label. If a label is ambiguous, the fields that distinguish the elements follow in
    /// braces, such as `acpitz{zone=1}`.
    pub fn label(&self, name: ElementName) -> &str {
        let Some(named) = self.names.get(name.0 as usize) else { return "?" };
        let is_shared = self.shared.get(named.label_use).is_some_and(|label| label.is_shared);
        if is_shared { &named.full_label } else { &named.label }
    }

    /// Returns the label of an element under one of its names, with all fields that identify the
    /// element.
    pub(crate) fn full_label(&self, name: ElementName) -> &str {
        self.names.get(name.0 as usize).map_or("?", |named| &named.full_label)
    }

    /// Returns the fields that identify or name an element, in the order of the schema.
    pub fn identity(&self, name: ElementName) -> &[ElementIdentity] {
        self.names.get(name.0 as usize).map_or(&[], |named| &named.identity)
    }

    /// Returns whether the identity fields alone distinguish the element from the other elements of
    /// its sample.
    pub(crate) fn has_own_identity(&self, name: ElementName) -> bool {
        self.names.get(name.0 as usize).is_some_and(|named| !named.is_repeated && !named.identity.is_empty())
    }

    /// Returns the first name of this element that has the same label as `name`. Several names can
    /// have the same label, because fields that only describe an element may change without a
    /// change of the label.
    pub(crate) fn title(&self, name: ElementName) -> ElementName {
        self.names.get(name.0 as usize).map_or(name, |named| named.title)
    }

    /// Returns the name of an element in the last sample that was read.
    pub fn latest(&self, element: u32) -> ElementName {
        self.elements.get(element as usize).map_or(ElementName::NONE, |element| element.latest)
    }

    /// Returns the first element in the sample that has the same identity as this element. Elements
    /// with the same identity cannot be matched to elements of the next sample.
    pub(crate) fn first_of(&self, element: u32) -> u32 {
        self.elements.get(element as usize).map_or(element, |own| own.first)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Returns whether some elements or names got no id, because the limit was exceeded.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the key of each element within its list. The returned map is indexed by element id.
    pub(crate) fn keys(&self) -> HashMap<u32, &[u8]> {
        self.known.iter().map(|((_, key), element)| (*element, &**key)).collect()
    }

    /// Begins a sample. An identity that occurs twice in one sample belongs to two elements.
    pub(crate) fn begin_sample(&mut self) {
        self.sample += 1;
    }

    /// Returns the list's element with this key, and the number of earlier elements with the same
    /// key in the sample. Returns [`NO_ELEMENT`] if there are too many elements.
    pub(crate) fn intern(&mut self, list: u32, key: &[u8]) -> (u32, u32) {
        let first = self.number(list, key, None);
        let Some(seen) = self.elements.get_mut(first as usize) else { return (first, 0) };
        if seen.sample != self.sample {
            (seen.sample, seen.count) = (self.sample, 1);
            return (first, 0);
        }
        let before = seen.count;
        seen.count += 1;
        // No other key ends with this length, so the keys of repeated elements are unique.
        let mut repeated = key.to_vec();
        repeated.extend_from_slice(&u64::from(before).to_le_bytes());
        repeated.extend_from_slice(&u64::MAX.to_le_bytes());
        (self.number(list, &repeated, Some(first)), before)
    }

    /// Records that an element is in the sample. Returns false if the element was already in the
    /// sample.
    pub(crate) fn see(&mut self, element: u32) -> bool {
        match self.elements.get_mut(element as usize) {
            Some(seen) if seen.sample != self.sample => {
                (seen.sample, seen.count) = (self.sample, 1);
                true
            }
            _ => false,
        }
    }

    fn number(&mut self, list: u32, key: &[u8], first: Option<u32>) -> u32 {
        // A lookup by a borrowed key would need a second map type. Keys are short, so copying them
        // is cheap.
        let key = (list, Box::from(key));
        if let Some(element) = self.known.get(&key) {
            return *element;
        }
        if self.elements.len() >= ELEMENTS_MAX {
            self.has_more = true;
            return NO_ELEMENT;
        }
        let element = u32::try_from(self.elements.len()).unwrap_or(NO_ELEMENT);
        // No sample has the number `u64::MAX`, so the element is in no sample yet.
        let (latest, sample) = (ElementName::NONE, u64::MAX);
        let first = first.unwrap_or(element);
        self.elements.push(SeenElement { list, latest, first, names: Vec::new(), sample, count: 0 });
        self.known.insert(key, element);
        element
    }

    /// Returns the name of an element in a sample. The name may change from sample to sample, for
    /// example when a process executes another program.
    pub(crate) fn name(&mut self, element: u32, label: ElementLabel) -> ElementName {
        let Some(seen) = self.elements.get(element as usize) else { return ElementName::NONE };
        let is_same = |name: &ElementName| {
            self.names.get(name.0 as usize).is_some_and(|own| {
                *own.full_label == *label.full_label
                    && *own.label == *label.label
                    && *own.identity == *label.identity
            })
        };
        // Most elements keep their name, so the latest name is compared first.
        let known =
            if is_same(&seen.latest) { Some(seen.latest) } else { seen.names.iter().copied().find(is_same) };
        let name = match known {
            Some(known) => known,
            None => self.add_name(element, label),
        };
        self.set_latest(element, name);
        name
    }

    /// Records the name of an element in the current sample.
    pub(crate) fn set_latest(&mut self, element: u32, name: ElementName) {
        if let Some(seen) = self.elements.get_mut(element as usize) {
            seen.latest = name;
        }
    }

    fn add_name(&mut self, element: u32, label: ElementLabel) -> ElementName {
        if self.names.len() >= ELEMENTS_MAX {
            self.has_more = true;
            return ElementName::NONE;
        }
        let Some(seen) = self.elements.get_mut(element as usize) else { return ElementName::NONE };
        let name = ElementName(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let ElementLabel { label, full_label, own_start, identity, is_position, is_repeated } = label;
        // The name of a kernel worker changes with its work, which must not change the title of the
        // worker.
        let own = seen.names.iter().copied().find(|own| {
            self.names.get(own.0 as usize).is_some_and(|own| {
                without_work(&own.label) == without_work(&label)
                    && without_work(&own.full_label) == without_work(&full_label)
            })
        });
        seen.names.push(name);
        let list = seen.list;
        let own_label = label.get(own_start..).unwrap_or_default();
        let others = identity.iter().map(|part| &*part.value).chain([own_label]);
        for string in others.filter(|string| **string != *label) {
            self.picked.add(list, string);
            let label_use = self.labels.get(&(list, string.into()));
            if let Some(other) = label_use.and_then(|number| self.shared.get_mut(*number)) {
                other.is_shared = true;
            }
        }
        let is_picked = self.picked.contains(list, &label);
        let label_use = *self.labels.entry((list, label.as_str().into())).or_insert(self.shared.len());
        let mut title = own.map_or(name, |own| self.title(own));
        match self.shared.get_mut(label_use) {
            // In lists of different lengths, the same position may belong to different elements.
            Some(label) if label.is_position && is_position => title = label.title,
            Some(label) => label.is_shared |= label.element != element,
            None => self.shared.push(LabelUse { element, title, is_position, is_shared: false }),
        }
        if let Some(label) = self.shared.get_mut(label_use) {
            label.is_shared |= is_picked;
        }
        self.names.push(NamedElement {
            label: label.into(),
            full_label: full_label.into(),
            identity: identity.into(),
            is_repeated,
            label_use,
            title,
        });
        name
    }
}

/// Returns the parts of a kernel worker's label before and after the name of its current work. The
/// kernel appends this name. Examples are `kworker/0:1-events[71]` and
/// `kworker/u8:2+flush-8:0[72]`. For any other label, the first part is the whole label.
pub(crate) fn without_work(label: &str) -> (&str, &str) {
    let work = label.strip_prefix("kworker/").and_then(|worker| {
        let (id, _) = worker.split_once(['-', '+']).filter(|(id, _)| id.contains(':'))?;
        let end = label.rfind('[').unwrap_or(label.len());
        label.get(.."kworker/".len() + id.len()).zip(label.get(end..))
    });
    work.unwrap_or((label, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a kernel worker keeps its series when its work changes, and that other elements
    // with different names stay distinct.
    #[test]
    fn the_work_of_a_kernel_worker_is_no_name() {
        let worker = ("kworker/0:1", "[71]");
        for work in ["kworker/0:1-events[71]", "kworker/0:1+events_power[71]", "kworker/0:1-flush-8:0[71]"] {
            assert_eq!(without_work(work), worker, "{work}");
        }
        for other in ["kworker/R-slub_[9]", "kworker/0:1[71]", "kworker-like:-x[1]", "a-b:c[2]", ""] {
            assert_eq!(without_work(other), (other, ""));
        }
        assert_ne!(without_work("kworker/0:1-events[71]"), without_work("kworker/0:1-events[72]"));
    }

    fn label(text: &str, full: &str) -> ElementLabel {
        ElementLabel {
            label: text.into(),
            full_label: full.into(),
            own_start: 0,
            identity: Vec::new(),
            is_position: false,
            is_repeated: false,
        }
    }

    // Proves that memory is bounded, because elements beyond the maximum have no id. Also proves
    // that the query reports such elements, and that earlier elements keep their ids.
    #[test]
    fn elements_beyond_the_maximum_are_noticed() {
        let mut names = ElementNames::default();
        for number in 0..ELEMENTS_MAX {
            names.begin_sample();
            assert_eq!(names.intern(0, &number.to_le_bytes()).0 as usize, number);
        }
        assert!(!names.has_more());
        names.begin_sample();
        assert_eq!(names.intern(0, b"one more").0, NO_ELEMENT);
        assert_eq!(names.name(NO_ELEMENT, label("a", "a")), ElementName::NONE);
        assert_eq!(names.intern(0, &7_usize.to_le_bytes()).0, 7);
        assert!(names.has_more() && names.len() == ELEMENTS_MAX);
    }

    // Proves that an element keeps the names that it had, and that each name has one id. Also
    // proves that several elements with the same label are printed with distinct labels, even in
    // earlier rows.
    #[test]
    fn names_are_those_of_the_sample() {
        let mut names = ElementNames::default();
        let (shell, _) = names.intern(0, b"1");
        let first = names.name(shell, label("sh[1]", "sh[1]{start=7}"));
        let then = names.name(shell, label("ls[1]", "ls[1]{start=7}"));
        assert_eq!(names.name(shell, label("sh[1]", "sh[1]{start=7}")), first);
        assert_eq!((names.label(first), names.label(then)), ("sh[1]", "ls[1]"));
        assert_eq!(names.label(names.latest(shell)), "sh[1]");
        let (other, _) = names.intern(0, b"2");
        let reused = names.name(other, label("sh[1]", "sh[1]{start=9}"));
        assert_eq!((names.label(first), names.label(reused)), ("sh[1]{start=7}", "sh[1]{start=9}"));
        assert_eq!(names.label(then), "ls[1]");
    }

    // Proves that a label that is also an identity value of another element is printed in full, so
    // that the printed name selects only one element. The order of the elements does not matter.
    #[test]
    fn a_label_that_picks_another_element_is_longer() {
        let of = |text: &str, values: &[&str]| {
            let part =
                |value: &&str| ElementIdentity { field: "f".into(), value: (*value).into(), is_key: true };
            let identity = values.iter().map(part).collect();
            ElementLabel { identity, ..label(text, &format!("{text}#1")) }
        };
        let (disk, alias) = (of("sda", &["sda"]), of("root", &["root", "sda"]));
        for order in [[&disk, &alias], [&alias, &disk]] {
            let mut names = ElementNames::default();
            let mut add = |label: &ElementLabel| {
                let (element, _) = names.intern(0, label.label.as_bytes());
                names.name(element, label.clone())
            };
            let added = order.map(&mut add);
            let mut labels = added.map(|name| names.label(name));
            labels.sort_unstable();
            assert_eq!(labels, ["root", "sda#1"]);
        }
        // The element with this key is in another list, so the label does not select it.
        let mut names = ElementNames::default();
        let (element, _) = names.intern(0, b"sda");
        let name = names.name(element, disk);
        let (other, _) = names.intern(1, b"root");
        names.name(other, alias);
        assert_eq!(names.label(name), "sda");
    }

    // Proves that an identity that occurs twice in a sample belongs to two elements, and that these
    // are the same two elements in each sample.
    #[test]
    fn an_element_that_is_there_twice_is_two() {
        let mut names = ElementNames::default();
        let mut sample = || {
            names.begin_sample();
            [names.intern(0, b"x"), names.intern(0, b"y"), names.intern(0, b"x"), names.intern(0, b"x")]
        };
        assert_eq!(sample(), [(0, 0), (1, 0), (2, 1), (3, 2)]);
        assert_eq!(sample(), [(0, 0), (1, 0), (2, 1), (3, 2)]);
    }
}
