//! Structs of counters that are filled by name. The schema is the only list of names: each field's `origin`, or its own
//! name, says which value it takes.

use flatbuffers_reflection::reflection::{BaseType, root_as_schema};

use super::cursor::Cursor;
use super::text::{self, ABSENT};
use super::{Unavailable, host_file};
use crate::os::host::{HostFile, HostRoot, Records};
use crate::sampling::{ReadError, Selection, Shortfall};

/// Bytes of a counter: a number of 64 bits or a fraction. All ones mean absent in both: a fraction is then not a number.
pub(super) const VALUE_BYTES: usize = size_of::<u64>();
/// Most values of one file that are looked at; the kernel has some 240. Those beyond are `TOO_MANY`.
const VALUES_MAX: usize = 4096;

/// The counters of a struct.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>); // in the order of the struct

#[derive(Debug)]
struct Key {
    origin: Vec<u8>, // the section and the name
    is_wanted: bool,
    may_be_negative: bool,
}

impl Keys {
    /// Those of a struct of a schema. The selection speaks of the fields' names.
    pub(super) fn of(schema: &[u8], counters: &str, selection: &Selection) -> Self {
        let schema = root_as_schema(schema).expect("our own schema, checked by a test");
        let object = schema.objects().iter().find(|object| object.name() == counters);
        let mut keys: Vec<(u16, Key)> = object
            .into_iter()
            .flat_map(|object| object.fields())
            .map(|field| {
                let attributes = field.attributes().into_iter().flatten();
                let origin = attributes
                    .filter(|attribute| attribute.key() == "origin")
                    .find_map(|origin| origin.value());
                let key = Key {
                    origin: origin.unwrap_or(field.name()).as_bytes().to_vec(),
                    is_wanted: selection.wants(field.name().as_bytes()),
                    may_be_negative: field.type_().base_type() == BaseType::Double,
                };
                (field.offset(), key)
            })
            .collect();
        keys.sort_unstable_by_key(|(offset, _)| *offset);
        Self(keys.into_iter().map(|(_, key)| key).collect())
    }

    fn find(&self, section: &[u8], name: &[u8]) -> Option<usize> {
        self.0.iter().position(|key| key.fits(section, name))
    }
}

impl Key {
    #[inline]
    fn fits(&self, section: &[u8], name: &[u8]) -> bool {
        self.origin.strip_prefix(section) == Some(name)
    }
}

/// How a file gives its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A line each: `name value` or `name: value kB`, behind as many fields as are to be skipped. The section is what sets the names of
    /// this file apart from those of others.
    Lines { section: &'static [u8], skip: usize },
    /// A line each section: `section: name value name value`.
    Pairs,
    /// Two lines each section: `section: name name`, `section: value value`.
    Headed,
}

/// Which counter each value of a file was last time: one comparison a value while the kernel keeps its order.
#[derive(Debug, Default)]
pub(super) struct Order(Vec<Option<usize>>);

impl Order {
    /// Which counter the value in this place of the file is; none if the schema does not have it.
    #[inline]
    pub(super) fn find(&mut self, at: usize, keys: &Keys, section: &[u8], name: &[u8]) -> Option<usize> {
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        let place = self.0.get_mut(at)?;
        if place.and_then(|index| keys.0.get(index)).is_none_or(|key| !key.fits(section, name)) {
            *place = keys.find(section, name);
        }
        *place
    }
}

impl Order {
    /// The counter that was in this place of the file last time, and the name it goes by in its section: that of the file it
    /// was found in.
    #[inline]
    fn last<'k>(&self, at: usize, keys: &'k Keys, section: &[u8]) -> Option<(usize, &'k [u8])> {
        let index = (*self.0.get(at)?)?;
        let key = keys.0.get(index)?;
        Some((index, key.origin.get(section.len()..)?))
    }
}

/// Counters that are being filled.
#[derive(Debug)]
pub(super) struct Filling<'a> {
    keys: &'a Keys,
    bytes: &'a mut [u8], // VALUE_BYTES a key
    /// Values that were found.
    pub(super) found: usize,
    /// What is not as it must be.
    pub(super) shortfall: Shortfall,
}

impl<'a> Filling<'a> {
    /// Nothing is there yet.
    pub(super) fn new(keys: &'a Keys, bytes: &'a mut [u8]) -> Self {
        bytes.fill(0xFF); // ABSENT in every place
        Self { keys, bytes, found: 0, shortfall: Shortfall::NONE }
    }

    /// Puts a number where it belongs, unless nobody wants it.
    pub(super) fn put(&mut self, index: usize, field: Option<&[u8]>, number: fn(&[u8]) -> Option<u64>) {
        let Some(key) = self.keys.0.get(index).filter(|key| key.is_wanted) else { return };
        let value = match (field, key.may_be_negative) {
            (Some(field), false) => number(field),
            (Some(field), true) => text::signed(field).map(f64::to_bits),
            (None, _) => None,
        };
        if value.is_none() {
            self.shortfall |= if field.is_some() { Shortfall::UNREADABLE } else { Shortfall::CUT };
        }
        self.set(index, value.unwrap_or(ABSENT));
    }

    #[inline]
    fn set(&mut self, index: usize, value: u64) {
        let (places, _) = self.bytes.as_chunks_mut::<VALUE_BYTES>();
        let Some(place) = places.get_mut(index) else { return };
        // Two values of one name: which one is right nobody can tell.
        if u64::from_le_bytes(*place) != ABSENT {
            self.shortfall |= Shortfall::UNREADABLE;
            *place = ABSENT.to_le_bytes();
            return;
        }
        self.found += 1;
        *place = value.to_le_bytes();
    }

    /// Puts the next word of a line where it belongs.
    #[inline]
    fn take(&mut self, index: usize, cursor: &mut Cursor<'_>) {
        match self.keys.0.get(index) {
            Some(key) if key.is_wanted && !key.may_be_negative => {
                let value = cursor.number(&mut self.shortfall);
                self.set(index, value);
            }
            Some(key) if key.is_wanted => self.put(index, cursor.word(), text::number),
            _ => {}
        }
    }

    /// Files of a line each value: most take one comparison with the name that stood there last time.
    fn lines<'c>(
        &mut self,
        (section, skip): (&'static [u8], usize),
        order: &mut Order,
        content: &'c [u8],
        mut unknown: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>) -> Shortfall,
    ) {
        let (mut cursor, lacks) = Cursor::of(content);
        self.shortfall |= lacks;
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
                self.shortfall |= Shortfall::TOO_MANY;
                return;
            }
            let last = order.last(at, self.keys, section).filter(|(_, name)| cursor.pass_name(name));
            if let Some((index, _)) = last {
                self.take(index, &mut cursor);
            } else {
                let name = cursor.word().unwrap_or_default();
                let name = name.strip_suffix(b":").unwrap_or(name);
                match order.find(at, self.keys, section, name) {
                    Some(index) => self.take(index, &mut cursor),
                    None => self.shortfall |= unknown(section, name, cursor.word()),
                }
            }
            at += 1;
            cursor.next_line();
        }
    }

    /// Puts all values of a file where they belong. `unknown` is told the section, name and value of those that the schema
    /// does not have.
    pub(super) fn file<'c>(
        &mut self,
        layout: Layout,
        order: &mut Order,
        content: &'c [u8],
        mut unknown: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>) -> Shortfall,
    ) {
        if let Layout::Lines { section, skip } = layout {
            return self.lines((section, skip), order, content, unknown);
        }
        let mut at = 0;
        let shortfall = values(layout, content, |section, name, value| {
            if at == VALUES_MAX {
                self.shortfall |= Shortfall::TOO_MANY;
                return;
            }
            match order.find(at, self.keys, section, name) {
                Some(index) => self.put(index, value, text::number),
                None => self.shortfall |= unknown(section, name, value),
            }
            at += 1;
        });
        self.shortfall |= shortfall;
    }
}

/// Tells section, name and value of all values in a file.
fn values<'c>(
    layout: Layout,
    content: &'c [u8],
    mut value: impl FnMut(&'c [u8], &'c [u8], Option<&'c [u8]>),
) -> Shortfall {
    let (lines, mut shortfall) = text::whole_lines(content);
    match layout {
        // Read in one pass, without this.
        Layout::Lines { .. } => {}
        Layout::Pairs => {
            for line in lines {
                let Some((section, rest)) = section(line) else {
                    shortfall |= Shortfall::UNREADABLE;
                    continue;
                };
                let mut fields = text::fields(rest);
                while let Some(name) = fields.next() {
                    value(section, name, fields.next());
                }
            }
        }
        Layout::Headed => {
            let mut heading = None;
            for line in lines {
                let this = section(line);
                match (heading.take(), this) {
                    (None, Some(_)) => heading = this,
                    (Some((section, names)), Some((same, rest))) if same == section => {
                        let mut fields = text::fields(rest);
                        text::fields(names).for_each(|name| value(section, name, fields.next()));
                        shortfall |= Shortfall::UNREADABLE.unless(fields.next().is_none());
                    }
                    _ => {
                        shortfall |= Shortfall::UNREADABLE;
                        heading = this;
                    }
                }
            }
            shortfall |= Shortfall::CUT.unless(heading.is_none());
        }
    }
    shortfall
}

/// A line's section with its colon, and the rest.
fn section(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    line.split_at_checked(colon + 1)
}

/// Where a file lies, how it is laid out, and whether a host may lack it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) path: &'static str,
    pub(super) layout: Layout,
    pub(super) records: Records,
    pub(super) is_optional: bool,
}

/// The counters of a struct, and the files that fill it.
#[derive(Debug)]
pub(super) struct Keyed {
    files: Vec<(Part, HostFile, Order)>,
    keys: Keys,
    present: usize, // counters that this kernel has
}

impl Keyed {
    /// Opens the files. The reading that proves them readable also teaches the order of their values.
    pub(super) fn open(host: &HostRoot, parts: &[Part], keys: Keys) -> Result<Self, Unavailable> {
        let mut files = Vec::new();
        for part in parts {
            match host_file(host, part.path, "") {
                Ok(file) => files.push((*part, file.of_records(part.records), Order::default())),
                Err(_) if part.is_optional => {}
                Err(unavailable) => return Err(unavailable),
            }
        }
        let mut counters = vec![0; keys.0.len() * VALUE_BYTES];
        let mut keyed = Self { files, keys, present: 0 };
        keyed.fill(&mut counters, |_, _, _| Shortfall::NONE);
        Ok(keyed)
    }

    pub(super) fn read(&mut self) -> Result<(), ReadError> {
        for (part, file, _) in &mut self.files {
            file.read().map_err(|error| ReadError { file: part.path, error })?;
        }
        Ok(())
    }

    /// Fills the struct, little-endian, from what the files had; `unknown` is told what the schema does not have.
    pub(super) fn fill(
        &mut self,
        counters: &mut [u8],
        mut unknown: impl FnMut(&[u8], &[u8], Option<&[u8]>) -> Shortfall,
    ) -> Shortfall {
        let mut filling = Filling::new(&self.keys, counters);
        for (part, file, order) in &mut self.files {
            filling.file(part.layout, order, file.content(), &mut unknown);
        }
        let Filling { found, mut shortfall, .. } = filling;
        // What was ever there is missed when it is gone.
        shortfall |= Shortfall::MISSING.unless(found >= self.present);
        self.present = found.max(self.present);
        shortfall
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sampling::sources::tests::assert_composed;

    impl Keys {
        pub(in crate::sampling::sources) fn origins(&self) -> Vec<String> {
            self.0.iter().map(|key| String::from_utf8(key.origin.clone()).unwrap()).collect()
        }
    }

    /// What a file fills, by origin, and what it lacks.
    pub(in crate::sampling::sources) fn filled(
        keys: &Keys,
        layout: Layout,
        order: &mut Order,
        text: &[u8],
    ) -> (BTreeMap<String, u64>, Shortfall) {
        let mut bytes = vec![0; keys.0.len() * VALUE_BYTES];
        let mut filling = Filling::new(keys, &mut bytes);
        filling.file(layout, order, text, |_, _, _| Shortfall::NONE);
        let shortfall = filling.shortfall;
        let values =
            bytes.chunks_exact(VALUE_BYTES).map(|place| u64::from_le_bytes(place.try_into().unwrap()));
        (keys.origins().into_iter().zip(values).filter(|(_, value)| *value != ABSENT).collect(), shortfall)
    }

    fn keys(origins: &[&str]) -> Keys {
        let key = |origin: &&str| Key {
            origin: origin.as_bytes().to_vec(),
            is_wanted: true,
            may_be_negative: origin.ends_with("MaxConn"),
        };
        Keys(origins.iter().map(key).collect())
    }

    fn expected(values: &[(&str, u64)]) -> BTreeMap<String, u64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    const HEADED: &[u8] = b"Ip: Forwarding New InReceives\nIp: 1 2 3\nTcp: RtoMin MaxConn\nTcp: 4 -1\n";

    // Goal: values find their counters in each layout, one of the same name in another section is another. Method: a file
    // of each.
    #[test]
    fn each_layout_is_read() {
        let headed = keys(&["Tcp:MaxConn", "Ip:InReceives", "Ip:RtoMin", "Tcp:RtoMin", "Ip:Forwarding"]);
        assert_eq!(
            filled(&headed, Layout::Headed, &mut Order::default(), HEADED),
            (
                expected(&[
                    ("Ip:Forwarding", 1),
                    ("Ip:InReceives", 3),
                    ("Tcp:RtoMin", 4),
                    ("Tcp:MaxConn", (-1.0_f64).to_bits())
                ]),
                Shortfall::NONE
            )
        );
        let pairs = keys(&["TCP:mem", "UDP:mem", "TCP:inuse"]);
        assert_eq!(
            filled(
                &pairs,
                Layout::Pairs,
                &mut Order::default(),
                b"TCP: inuse 1 tw 2 mem 3\nUDP: inuse 4 mem 5\n"
            ),
            (expected(&[("TCP:inuse", 1), ("TCP:mem", 3), ("UDP:mem", 5)]), Shortfall::NONE)
        );
        let lines = keys(&["a:x", "b:x"]);
        let layout = Layout::Lines { section: b"a:", skip: 2 };
        assert_eq!(
            filled(&lines, layout, &mut Order::default(), b"Node 0 x:  \t7 kB\n"),
            (expected(&[("a:x", 7)]), Shortfall::NONE)
        );
    }

    // Goal: damaged text never panics, a cut file is never called whole. Method: every cut, every byte replaced, in each
    // layout.
    #[test]
    fn damaged_text_is_marked() {
        let headed = keys(&["Tcp:MaxConn", "Ip:InReceives", "Tcp:RtoMin", "Ip:Forwarding"]);
        assert_composed(HEADED, |text| {
            let (values, shortfall) = filled(&headed, Layout::Headed, &mut Order::default(), text);
            shortfall.is_none() && values.len() == 4
        });
        let pairs = keys(&["TCP:mem", "UDP:mem", "TCP:inuse"]);
        assert_composed(b"TCP: inuse 1 mem 3\nUDP: mem 5\n", |text| {
            let (values, shortfall) = filled(&pairs, Layout::Pairs, &mut Order::default(), text);
            shortfall.is_none() && values.len() == 3
        });
    }

    // Goal: each kind of damage has its own reason, and no value goes to a wrong name. Method: one of each.
    #[test]
    fn reasons_are_true() {
        let keys = keys(&["A:x", "A:y", "B:z"]);
        for (text, values, reason) in [
            ("A: x y\nA: 1\nB: z\nB: 3\n", &[("A:x", 1), ("B:z", 3)][..], Shortfall::CUT),
            ("A: x y\nA: 1 2 3\nB: z\nB: 3\n", &[("A:x", 1), ("A:y", 2), ("B:z", 3)], Shortfall::UNREADABLE),
            ("A: x y\nB: z\nB: 3\n", &[("B:z", 3)], Shortfall::UNREADABLE),
            ("A: x y\nA: 1 2\nB: z\n", &[("A:x", 1), ("A:y", 2)], Shortfall::CUT),
            ("A: x y\nA: 1 2\nB: z\nB: 3", &[("A:x", 1), ("A:y", 2)], Shortfall::CUT),
            ("A: x x\nA: 1 2\n", &[], Shortfall::UNREADABLE),
            ("A: x y\nA: 18446744073709551615 -1\n", &[], Shortfall::UNREADABLE),
            ("no\nA: x\nA: 1\n", &[("A:x", 1)], Shortfall::UNREADABLE),
        ] {
            let found = filled(&keys, Layout::Headed, &mut Order::default(), text.as_bytes());
            assert_eq!(found.0, expected(values), "{text}");
            let mut all = found.1;
            all |= reason;
            assert_eq!(all, found.1, "{text}");
        }
        let long: Vec<u8> = (0..=VALUES_MAX).flat_map(|at| format!("x{at} 1\n").into_bytes()).collect();
        let layout = Layout::Lines { section: b"", skip: 0 };
        assert_eq!(filled(&keys, layout, &mut Order::default(), &long).1, Shortfall::TOO_MANY);
    }
}
