//! Structs of counters that are filled by name. Only the schema lists the names of the counters.
//! The `origin` attribute of a field, or the field's own name if it has no such attribute,
//! identifies the value.

use flatbuffers_reflection::reflection::BaseType;
use flatcap_os::host::{HostFile, HostRoot, RecordStructure};

use super::by_schema;
use super::cursor::Cursor;
use super::text::{self, ABSENT};
use super::{SourceSpec, Unavailable, host_file};
use crate::{Incomplete, NameFilter, ReadError, odd_text};

/// Number of bytes of a counter, which is a 64-bit integer or a 64-bit floating-point number. For
/// both types, a value with all bits set means that the counter is absent. For a floating-point
/// number, this bit pattern is NaN.
pub(super) const VALUE_BYTES: usize = size_of::<u64>();
/// Maximum number of values read from one file. The kernel has about 240. If a file has more
/// values, the sample is marked `TOO_MANY`.
const VALUES_MAX: usize = 4096;

/// The counters of a struct.
#[derive(Debug)]
pub(super) struct CounterKeys(Vec<CounterKey>); // in the order of the struct

#[derive(Debug)]
struct CounterKey {
    origin: Vec<u8>, // the section and the name
    is_wanted: bool,
    may_be_negative: bool,
}

impl CounterKeys {
    /// Returns the counters of a struct that is in the field `counters` of a source's root table.
    /// The selection matches the names of the struct's fields.
    pub(super) fn of(spec: &SourceSpec, counters: &str, selection: &NameFilter) -> Self {
        let mut keys: Vec<(u16, CounterKey)> = by_schema::struct_of(spec, counters)
            .fields()
            .iter()
            .map(|field| {
                let attributes = field.attributes().into_iter().flatten();
                let origin = attributes
                    .filter(|attribute| attribute.key() == "origin")
                    .find_map(|origin| origin.value());
                let key = CounterKey {
                    origin: origin.unwrap_or(field.name()).as_bytes().to_vec(),
                    is_wanted: selection.matches(field.name().as_bytes()),
                    may_be_negative: field.type_().base_type() == BaseType::Double,
                };
                (field.offset(), key)
            })
            .collect();
        keys.sort_unstable_by_key(|(offset, _)| *offset);
        Self(keys.into_iter().map(|(_, key)| key).collect())
    }

    /// Returns the number of bytes of the struct.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * VALUE_BYTES
    }

    fn find(&self, section: &[u8], name: &[u8]) -> Option<usize> {
        self.0.iter().position(|key| key.matches(section, name))
    }
}

impl CounterKey {
    #[inline]
    fn matches(&self, section: &[u8], name: &[u8]) -> bool {
        self.origin.strip_prefix(section) == Some(name)
    }
}

/// The layout of the values in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterLayout {
    /// Each line has one value after `skip` leading fields, as in `name value` or `name: value kB`.
    /// The section distinguishes the names of this file from names in other files.
    Lines { section: &'static [u8], skip: usize },
    /// Each line has one section, as in `section: name value name value`.
    Pairs,
    /// Each section has two lines, `section: name name` and `section: value value`.
    Headed,
}

/// For each value of a file, the counter to which the value belonged at the last read. As long as
/// the kernel writes the values in the same order, the lookup of a value costs one comparison.
#[derive(Debug, Default)]
pub(super) struct CounterOrder(Vec<Option<usize>>);

impl CounterOrder {
    /// Returns the counter of the value at position `at` of the file, or `None` if the schema lacks
    /// this value.
    #[inline]
    pub(super) fn find(
        &mut self,
        at: usize,
        keys: &CounterKeys,
        section: &[u8],
        name: &[u8],
    ) -> Option<usize> {
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        let place = self.0.get_mut(at)?;
        if place.and_then(|index| keys.0.get(index)).is_none_or(|key| !key.matches(section, name)) {
            *place = keys.find(section, name);
        }
        *place
    }
}

impl CounterOrder {
    /// Returns the counter that was at this position of the file at the last read, and the
    /// counter's name within the section.
    #[inline]
    fn last<'k>(&self, at: usize, keys: &'k CounterKeys, section: &[u8]) -> Option<(usize, &'k [u8])> {
        let index = (*self.0.get(at)?)?;
        let key = keys.0.get(index)?;
        Some((index, key.origin.get(section.len()..)?))
    }
}

/// Fills the counters of a struct.
#[derive(Debug)]
pub(super) struct CounterWriter<'a> {
    keys: &'a CounterKeys,
    bytes: &'a mut [u8], // VALUE_BYTES per key
    /// Number of values found.
    pub(super) found: usize,
    /// Reasons for which the counters are incomplete.
    pub(super) incomplete: Incomplete,
}

impl<'a> CounterWriter<'a> {
    /// Starts with all counters absent.
    pub(super) fn new(keys: &'a CounterKeys, bytes: &'a mut [u8]) -> Self {
        bytes.fill(0xFF); // ABSENT in every counter
        Self { keys, bytes, found: 0, incomplete: Incomplete::NONE }
    }

    /// Stores the number in `field` as counter `index`, if that counter is selected.
    pub(super) fn store(&mut self, index: usize, field: Option<&[u8]>, number: fn(&[u8]) -> Option<u64>) {
        let Some(key) = self.keys.0.get(index).filter(|key| key.is_wanted) else { return };
        let value = match (field, key.may_be_negative) {
            (Some(field), false) => number(field),
            (Some(field), true) => text::signed(field).map(f64::to_bits),
            (None, _) => None,
        };
        if value.is_none() {
            self.incomplete |= field.map_or(Incomplete::CUT, odd_text::unreadable);
        }
        self.set(index, value.unwrap_or(ABSENT));
    }

    #[inline]
    fn set(&mut self, index: usize, value: u64) {
        let (places, _) = self.bytes.as_chunks_mut::<VALUE_BYTES>();
        let Some(place) = places.get_mut(index) else { return };
        // There are two values of the same name, so neither can be trusted.
        if u64::from_le_bytes(*place) != ABSENT {
            self.incomplete |= Incomplete::UNREADABLE;
            *place = ABSENT.to_le_bytes();
            return;
        }
        self.found += 1;
        *place = value.to_le_bytes();
    }

    /// Stores the next word of a line as counter `index`, if that counter is selected.
    #[inline]
    fn store_next(&mut self, index: usize, cursor: &mut Cursor<'_>) {
        match self.keys.0.get(index) {
            Some(key) if key.is_wanted && !key.may_be_negative => {
                let value = cursor.number(&mut self.incomplete);
                self.set(index, value);
            }
            Some(key) if key.is_wanted => self.store(index, cursor.word(), text::number),
            _ => {}
        }
    }

    /// Reads a file with one value per line. Most lines need only one comparison, with the name
    /// that was at the same position at the last read.
    fn read_lines<'c>(
        &mut self,
        (section, skip): (&'static [u8], usize),
        order: &mut CounterOrder,
        content: &'c [u8],
        mut unknown: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>) -> Incomplete,
    ) {
        let (mut cursor, lacks) = Cursor::of(content);
        self.incomplete |= lacks;
        let mut at = 0;
        while !cursor.is_at_end() {
            for _ in 0..skip {
                cursor.word();
            }
            if cursor.is_at_line_end() {
                cursor.next_line();
                continue;
            }
            if at == VALUES_MAX {
                self.incomplete |= Incomplete::TOO_MANY;
                return;
            }
            let last = order.last(at, self.keys, section).filter(|(_, name)| cursor.skip_name(name));
            if let Some((index, _)) = last {
                self.store_next(index, &mut cursor);
            } else {
                let name = cursor.word().unwrap_or_default();
                let name = name.strip_suffix(b":").unwrap_or(name);
                match order.find(at, self.keys, section, name) {
                    Some(index) => self.store_next(index, &mut cursor),
                    None => self.incomplete |= unknown(section, name, cursor.word()),
                }
            }
            at += 1;
            cursor.next_line();
        }
    }

    /// Reads all values of a file. Calls `unknown` with section, name and value of each value that
    /// the schema lacks.
    pub(super) fn read_file<'c>(
        &mut self,
        layout: CounterLayout,
        order: &mut CounterOrder,
        content: &'c [u8],
        mut unknown: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>) -> Incomplete,
    ) {
        if let CounterLayout::Lines { section, skip } = layout {
            return self.read_lines((section, skip), order, content, unknown);
        }
        let mut at = 0;
        let incomplete = for_each_value(layout, content, |section, name, value| {
            if at == VALUES_MAX {
                self.incomplete |= Incomplete::TOO_MANY;
                return;
            }
            match order.find(at, self.keys, section, name) {
                Some(index) => self.store(index, value, text::number),
                None => self.incomplete |= unknown(section, name, value),
            }
            at += 1;
        });
        self.incomplete |= incomplete;
    }
}

/// Calls `value` with section, name and value of all values in a file.
fn for_each_value<'c>(
    layout: CounterLayout,
    content: &'c [u8],
    mut value: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>),
) -> Incomplete {
    let (lines, mut incomplete) = text::whole_lines(content);
    match layout {
        // [`CounterWriter::read_lines`] reads these files in one pass.
        CounterLayout::Lines { .. } => {}
        CounterLayout::Pairs => {
            for line in lines {
                let Some((section, rest)) = split_section(line) else {
                    incomplete |= odd_text::unreadable(line);
                    continue;
                };
                let mut fields = text::fields(rest);
                while let Some(name) = fields.next() {
                    value(section, name, fields.next());
                }
            }
        }
        CounterLayout::Headed => {
            let mut heading = None;
            for line in lines {
                let this = split_section(line);
                match (heading.take(), this) {
                    (None, Some(_)) => heading = this,
                    (Some((section, names)), Some((same, rest))) if same == section => {
                        let mut fields = text::fields(rest);
                        text::fields(names).for_each(|name| value(section, name, fields.next()));
                        if fields.next().is_some() {
                            incomplete |= odd_text::unreadable(line);
                        }
                    }
                    _ => {
                        incomplete |= odd_text::unreadable(line);
                        heading = this;
                    }
                }
            }
            incomplete |= Incomplete::CUT.unless(heading.is_none());
        }
    }
    incomplete
}

/// Splits a line after the colon that ends its section.
fn split_section(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    line.split_at_checked(colon + 1)
}

/// A file of counters, with its path and layout, and whether a host may lack it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterFile {
    pub(super) path: &'static str,
    pub(super) layout: CounterLayout,
    pub(super) records: RecordStructure,
    pub(super) is_optional: bool,
}

/// The counters of a struct, and the files that fill it.
#[derive(Debug)]
pub(super) struct CounterSet {
    files: Vec<(CounterFile, HostFile, CounterOrder)>,
    keys: CounterKeys,
    found_max: usize, // most counters found in one sample
}

impl CounterSet {
    /// Opens the files of a source. The first read proves that the files are readable, and learns
    /// the order of their values.
    pub(super) fn open(
        host: &HostRoot,
        spec: &SourceSpec,
        parts: &[CounterFile],
        keys: CounterKeys,
    ) -> Result<Self, Unavailable> {
        let mut files = Vec::new();
        for part in parts {
            match host_file(host, part.path, spec.hint) {
                Ok(file) => files.push((*part, file.with_records(part.records), CounterOrder::default())),
                Err(_) if part.is_optional => {}
                Err(unavailable) => return Err(unavailable),
            }
        }
        let mut values = vec![0; keys.bytes()];
        let mut counters = Self { files, keys, found_max: 0 };
        counters.fill(&mut values, |_, _, _| Incomplete::NONE);
        Ok(counters)
    }

    pub(super) fn read(&mut self) -> Result<(), ReadError> {
        for (part, file, _) in &mut self.files {
            file.read().map_err(|error| ReadError { file: part.path, error })?;
        }
        Ok(())
    }

    /// Fills the struct from the content of the files, with little-endian values. Calls `unknown`
    /// with values that the schema does not have.
    pub(super) fn fill(
        &mut self,
        counters: &mut [u8],
        mut unknown: impl FnMut(&[u8], &[u8], Option<&[u8]>) -> Incomplete,
    ) -> Incomplete {
        let mut writer = CounterWriter::new(&self.keys, counters);
        for (part, file, order) in &mut self.files {
            let before = std::mem::take(&mut writer.incomplete);
            writer.read_file(part.layout, order, file.content(), &mut unknown);
            let lacks = odd_text::in_file(writer.incomplete, file.content(), format_args!("/{}", part.path));
            writer.incomplete = before | lacks;
        }
        let CounterWriter { found, mut incomplete, .. } = writer;
        // A value that was present in an earlier read and is now absent is reported as missing.
        incomplete |= Incomplete::MISSING.unless(found >= self.found_max);
        self.found_max = found.max(self.found_max);
        incomplete
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sources::tests::assert_damage_is_marked;

    impl CounterKeys {
        pub(in crate::sources) fn origins(&self) -> Vec<String> {
            self.0.iter().map(|key| String::from_utf8(key.origin.clone()).unwrap()).collect()
        }
    }

    /// Returns the values that are filled in from a file, by origin, and the reasons why they are
    /// incomplete.
    pub(in crate::sources) fn filled(
        keys: &CounterKeys,
        layout: CounterLayout,
        order: &mut CounterOrder,
        text: &[u8],
    ) -> (BTreeMap<String, u64>, Incomplete) {
        let mut bytes = vec![0; keys.bytes()];
        let mut writer = CounterWriter::new(keys, &mut bytes);
        writer.read_file(layout, order, text, |_, _, _| Incomplete::NONE);
        let incomplete = writer.incomplete;
        let values =
            bytes.chunks_exact(VALUE_BYTES).map(|place| u64::from_le_bytes(place.try_into().unwrap()));
        (keys.origins().into_iter().zip(values).filter(|(_, value)| *value != ABSENT).collect(), incomplete)
    }

    fn keys(origins: &[&str]) -> CounterKeys {
        let key = |origin: &&str| CounterKey {
            origin: origin.as_bytes().to_vec(),
            is_wanted: true,
            may_be_negative: origin.ends_with("MaxConn"),
        };
        CounterKeys(origins.iter().map(key).collect())
    }

    fn expected(values: &[(&str, u64)]) -> BTreeMap<String, u64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    const HEADED: &[u8] = b"Ip: Forwarding New InReceives\nIp: 1 2 3\nTcp: RtoMin MaxConn\nTcp: 4 -1\n";

    // Proves that values are assigned to their counters in each layout, and that equal names in
    // different sections are kept apart.
    #[test]
    fn each_layout_is_read() {
        let headed = keys(&["Tcp:MaxConn", "Ip:InReceives", "Ip:RtoMin", "Tcp:RtoMin", "Ip:Forwarding"]);
        assert_eq!(
            filled(&headed, CounterLayout::Headed, &mut CounterOrder::default(), HEADED),
            (
                expected(&[
                    ("Ip:Forwarding", 1),
                    ("Ip:InReceives", 3),
                    ("Tcp:RtoMin", 4),
                    ("Tcp:MaxConn", (-1.0_f64).to_bits())
                ]),
                Incomplete::NONE
            )
        );
        let pairs = keys(&["TCP:mem", "UDP:mem", "TCP:inuse"]);
        assert_eq!(
            filled(
                &pairs,
                CounterLayout::Pairs,
                &mut CounterOrder::default(),
                b"TCP: inuse 1 tw 2 mem 3\nUDP: inuse 4 mem 5\n"
            ),
            (expected(&[("TCP:inuse", 1), ("TCP:mem", 3), ("UDP:mem", 5)]), Incomplete::NONE)
        );
        let lines = keys(&["a:x", "b:x"]);
        let layout = CounterLayout::Lines { section: b"a:", skip: 2 };
        assert_eq!(
            filled(&lines, layout, &mut CounterOrder::default(), b"Node 0 x:  \t7 kB\n"),
            (expected(&[("a:x", 7)]), Incomplete::NONE)
        );
    }

    // Proves that, in each layout, damaged text never causes a panic and a truncated file is always
    // marked.
    #[test]
    fn damaged_text_is_marked() {
        let headed = keys(&["Tcp:MaxConn", "Ip:InReceives", "Tcp:RtoMin", "Ip:Forwarding"]);
        assert_damage_is_marked(HEADED, |text| {
            let (values, incomplete) =
                filled(&headed, CounterLayout::Headed, &mut CounterOrder::default(), text);
            incomplete.is_none() && values.len() == 4
        });
        let pairs = keys(&["TCP:mem", "UDP:mem", "TCP:inuse"]);
        assert_damage_is_marked(b"TCP: inuse 1 mem 3\nUDP: mem 5\n", |text| {
            let (values, incomplete) =
                filled(&pairs, CounterLayout::Pairs, &mut CounterOrder::default(), text);
            incomplete.is_none() && values.len() == 3
        });
    }

    // Proves that each kind of damage has its own reason, and that no value is assigned to a wrong
    // name.
    #[test]
    fn each_damage_has_its_reason() {
        let keys = keys(&["A:x", "A:y", "B:z"]);
        for (text, values, reason) in [
            ("A: x y\nA: 1\nB: z\nB: 3\n", &[("A:x", 1), ("B:z", 3)][..], Incomplete::CUT),
            ("A: x y\nA: 1 2 3\nB: z\nB: 3\n", &[("A:x", 1), ("A:y", 2), ("B:z", 3)], Incomplete::UNREADABLE),
            ("A: x y\nB: z\nB: 3\n", &[("B:z", 3)], Incomplete::UNREADABLE),
            ("A: x y\nA: 1 2\nB: z\n", &[("A:x", 1), ("A:y", 2)], Incomplete::CUT),
            ("A: x y\nA: 1 2\nB: z\nB: 3", &[("A:x", 1), ("A:y", 2)], Incomplete::CUT),
            ("A: x x\nA: 1 2\n", &[], Incomplete::UNREADABLE),
            ("A: x y\nA: 18446744073709551615 -1\n", &[], Incomplete::UNREADABLE),
            ("no\nA: x\nA: 1\n", &[("A:x", 1)], Incomplete::UNREADABLE),
        ] {
            let found = filled(&keys, CounterLayout::Headed, &mut CounterOrder::default(), text.as_bytes());
            assert_eq!(found.0, expected(values), "{text}");
            let mut all = found.1;
            all |= reason;
            assert_eq!(all, found.1, "{text}");
        }
        let long: Vec<u8> = (0..=VALUES_MAX).flat_map(|at| format!("x{at} 1\n").into_bytes()).collect();
        let layout = CounterLayout::Lines { section: b"", skip: 0 };
        assert_eq!(filled(&keys, layout, &mut CounterOrder::default(), &long).1, Incomplete::TOO_MANY);
    }
}
