//! Reads a list of structs column by column. This is possible because a field has the same offset
//! in each element.

use std::collections::{BTreeMap, HashMap};

use flatcap_format::schema::{CompiledSchema, text_of};

use super::open_element::OpenElement;
use super::table_rows::TableRows;
use crate::names::elements::{ElementName, ElementNames, NO_ELEMENT};
use crate::plan::{ListPlan, StructColumn, StructPlan};

/// Maximum number of elements whose identifying bytes are stored. If this limit is exceeded, all
/// stored elements are removed, and their names are determined again.
// The maximum is larger than the number of processes on a large host.
const KNOWN_MAX: usize = 1 << 13;

/// The elements of a source's lists that have occurred, indexed by the bytes that identify them.
#[derive(Debug, Default)]
pub(super) struct StructElements {
    lists: BTreeMap<u32, HashMap<Box<[u8]>, KnownElement>>,
    // Buffers that are kept to reuse their memory.
    key: Vec<u8>,
    naming: Vec<u8>,
    numbers: Vec<u32>,
    names: Vec<ElementName>,
    bits: Vec<u64>,
}

/// An element that has occurred, and the bytes from which its name was determined.
#[derive(Debug)]
struct KnownElement {
    naming: Box<[u8]>,
    number: u32,
    name: ElementName,
}

/// A list of structs in one sample.
#[derive(Debug)]
pub(super) struct StructRows<'r> {
    pub(super) list: &'r ListPlan,
    pub(super) plan: &'r StructPlan,
    pub(super) schema: &'r CompiledSchema,
    pub(super) stride: usize,
    pub(super) sample: u32,
}

impl StructRows<'_> {
    /// Appends a row for each element.
    pub(super) fn append(
        &self,
        elements: &[u8],
        known: &mut StructElements,
        names: &mut ElementNames,
        tables: &mut [TableRows],
    ) {
        let length = elements.len() / self.stride;
        known.numbers.clear();
        known.names.clear();
        for (position, bytes) in elements.chunks_exact(self.stride).enumerate() {
            let (number, name) = self.number(bytes, (position, length), known, names);
            known.numbers.push(number);
            known.names.push(name);
        }
        for column in &self.plan.fields {
            for (table, number) in &column.cells {
                if let Some(table) = tables.get_mut(*table) {
                    self.append_column(elements, column, &mut known.bits, (table, *number));
                }
            }
        }
        for table in &self.list.tables {
            if let Some(table) = tables.get_mut(*table) {
                table.samples.extend(std::iter::repeat_n(self.sample, length));
                table.elements.extend_from_slice(&known.numbers);
                table.names.extend_from_slice(&known.names);
            }
        }
    }

    fn append_column(
        &self,
        elements: &[u8],
        column: &StructColumn,
        bits: &mut Vec<u64>,
        (table, number): (&mut TableRows, usize),
    ) {
        let Some(values) = table.columns.get_mut(number) else { return };
        let own = elements.chunks_exact(self.stride).map(|bytes| column.field.bytes_of(bytes));
        let Some(reader) = &column.field.reader else {
            values.push_texts(own.len(), own.map(|bytes| text_of(until_zero(bytes))));
            return;
        };
        bits.clear();
        bits.extend(own.map(bits_of));
        values.push_bits(bits, reader, self.schema);
    }

    /// Returns the id and the name of an element.
    fn number(
        &self,
        bytes: &[u8],
        (position, length): (usize, usize),
        known: &mut StructElements,
        names: &mut ElementNames,
    ) -> (u32, ElementName) {
        let Some(list_number) = self.list.number else { return (NO_ELEMENT, ElementName::NONE) };
        let StructElements { lists, key, naming, .. } = known;
        key.clear();
        naming.clear();
        for column in &self.plan.fields {
            if let Some(own) = &column.naming {
                let bytes = column.field.bytes_of(bytes);
                naming.extend_from_slice(bytes);
                if own.is_key {
                    key.extend_from_slice(bytes);
                }
            }
        }
        let list = lists.entry(list_number).or_default();
        // The element is found by its key, and `naming` shows that its name has not changed. If the
        // sample has the key twice, the second occurrence is another element.
        if let Some(element) = list.get(key.as_slice())
            && *element.naming == **naming
            && names.see(element.number)
        {
            names.set_latest(element.number, element.name);
            return (element.number, element.name);
        }
        let mut element = OpenElement::new(self.list, Vec::new(), position, length);
        for column in &self.plan.fields {
            if let Some(own) = &column.naming {
                let bytes = column.field.bytes_of(bytes);
                match &column.field.reader {
                    Some(reader) => {
                        element.identify(own, self.schema.read_bits(reader, bits_of(bytes)));
                    }
                    None => element.identify_text(own, until_zero(bytes)),
                }
            }
        }
        let has_key = element.has_key;
        element.end_key();
        let (number, before) = names.intern(list_number, &element.key);
        let name = names.name(number, element.named(&[], before));
        // The bytes identify neither an element without a key nor the second element with the same
        // key.
        if has_key && before == 0 {
            if list.len() >= KNOWN_MAX {
                list.clear();
            }
            let naming = naming.as_slice().into();
            list.insert(key.as_slice().into(), KnownElement { naming, number, name });
        }
        (number, name)
    }
}

#[inline]
fn bits_of(bytes: &[u8]) -> u64 {
    if let Ok(word) = bytes.try_into() {
        return u64::from_le_bytes(word);
    }
    let mut word = [0; 8];
    if let Some(own) = word.get_mut(..bytes.len()) {
        own.copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

/// Returns the bytes of a string, which ends at the first zero byte.
fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default()
}
