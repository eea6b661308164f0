//! Builds the payload of a row.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_format::schema::slot_of;

use super::csv_type::CsvValue;

/// Builds payloads, in memory that is reused.
#[derive(Debug, Default)]
pub(super) struct RowPayload {
    builder: FlatBufferBuilder<'static>,
    texts: Vec<(u16, WIPOffset<&'static str>)>,
}

impl RowPayload {
    /// Returns the payload of these values, by position of their columns. Absent ones are omitted.
    pub(super) fn build(&mut self, values: &[Option<CsvValue<'_>>]) -> &[u8] {
        self.builder.reset();
        self.texts.clear();
        for (position, value) in values.iter().enumerate() {
            if let Some(CsvValue::Text(text)) = value {
                let text = self.builder.create_string(text);
                self.texts.push((slot_of(position), WIPOffset::new(text.value())));
            }
        }
        let table = self.builder.start_table();
        for (position, value) in values.iter().enumerate() {
            let slot = slot_of(position);
            match value {
                Some(CsvValue::Unsigned(number)) => self.builder.push_slot_always(slot, *number),
                Some(CsvValue::Signed(number)) => self.builder.push_slot_always(slot, *number),
                Some(CsvValue::Float(number)) => self.builder.push_slot_always(slot, *number),
                Some(CsvValue::Bool(value)) => self.builder.push_slot_always(slot, *value),
                Some(CsvValue::Text(_)) | None => {}
            }
        }
        for (slot, text) in self.texts.drain(..) {
            self.builder.push_slot_always(slot, text);
        }
        let table = self.builder.end_table(table);
        self.builder.finish_minimal(table);
        self.builder.finished_data()
    }
}
