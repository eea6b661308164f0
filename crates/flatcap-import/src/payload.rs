//! Builds payloads for schemas that an importer generates. Each payload is a table. The position of
//! a value determines its field.

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
use flatcap_format::schema::slot_of;

/// A value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PayloadValue<'t> {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'t str),
}

/// Builds payloads, in memory that is reused.
#[derive(Default)]
pub(super) struct PayloadBuilder {
    builder: FlatBufferBuilder<'static>,
    texts: Vec<(u16, WIPOffset<&'static str>)>,
    elements: Vec<WIPOffset<TableFinishedWIPOffset>>,
}

impl PayloadBuilder {
    /// Returns the payload of a table with these values, in the order of their fields. Absent
    /// values are omitted.
    pub(super) fn table(&mut self, values: &[Option<PayloadValue<'_>>]) -> &[u8] {
        self.builder.reset();
        let table = self.append(values);
        self.builder.finish_minimal(table);
        self.builder.finished_data()
    }

    /// Begins the payload of a table whose only field is a list of tables.
    pub(super) fn begin_list(&mut self) {
        self.builder.reset();
        self.elements.clear();
    }

    /// Adds an element to the list.
    pub(super) fn add_element(&mut self, values: &[Option<PayloadValue<'_>>]) {
        let element = self.append(values);
        self.elements.push(element);
    }

    /// Returns the payload with the elements so far.
    pub(super) fn finish_list(&mut self) -> &[u8] {
        let list = self.builder.create_vector(&self.elements);
        let table = self.builder.start_table();
        self.builder.push_slot_always(slot_of(0), list);
        let table = self.builder.end_table(table);
        self.builder.finish_minimal(table);
        self.builder.finished_data()
    }

    fn append(&mut self, values: &[Option<PayloadValue<'_>>]) -> WIPOffset<TableFinishedWIPOffset> {
        self.texts.clear();
        for (position, value) in values.iter().enumerate() {
            if let Some(PayloadValue::Text(text)) = value {
                self.texts.push((slot_of(position), self.builder.create_string(text)));
            }
        }
        let table = self.builder.start_table();
        for (position, value) in values.iter().enumerate() {
            let slot = slot_of(position);
            match value {
                Some(PayloadValue::Unsigned(number)) => self.builder.push_slot_always(slot, *number),
                Some(PayloadValue::Signed(number)) => self.builder.push_slot_always(slot, *number),
                Some(PayloadValue::Float(number)) => self.builder.push_slot_always(slot, *number),
                Some(PayloadValue::Bool(value)) => self.builder.push_slot_always(slot, *value),
                Some(PayloadValue::Text(_)) | None => {}
            }
        }
        for (slot, text) in self.texts.drain(..) {
            self.builder.push_slot_always(slot, text);
        }
        self.builder.end_table(table)
    }
}
