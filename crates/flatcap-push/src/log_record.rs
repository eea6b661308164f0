//! Log records as payloads (`schemas/log_record.fbs`), built in a builder that each thread reuses.

use std::cell::RefCell;

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::client::PushClient;
use super::error::SetupError;
use super::setup::{OnFullLane, SourceOptions};
use super::source::PushSource;

const SCHEMA: &[u8] = include_bytes!("../generated/log_record.bfbs");
const ROOT: &str = "flatcap.push.LogRecord";
/// Maximum number of fields of a record. Fields above this limit are left out.
const FIELDS_MAX: usize = 32;
/// Maximum length of a string, in bytes. A longer string is truncated to this length, so that one
/// record does not fill a lane.
const TEXT_BYTES_MAX: usize = 8192;

/// Returns the offset of a field in a vtable, given the id of the field.
const fn slot(number: u16) -> u16 {
    4 + 2 * number
}

thread_local! {
    static BUILDER: RefCell<FlatBufferBuilder<'static>> = RefCell::new(FlatBufferBuilder::with_capacity(1024));
}

/// The severity of a record, with the numbers of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// The value of a field.
#[derive(Debug, Clone)]
pub(crate) enum FieldContent {
    Text(String),
    Number(f64),
}

/// A record to be pushed.
#[derive(Debug, Clone)]
pub(crate) struct LogRecord<'a> {
    pub(crate) severity: Severity,
    pub(crate) target: &'a str,
    pub(crate) message: &'a str,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) duration_ns: u64,
    pub(crate) fields: &'a [(&'static str, FieldContent)],
}

/// Sets up a source of log records.
pub(crate) fn source(client: &PushClient, name: &str) -> Result<PushSource, SetupError> {
    client.source(SourceOptions {
        name,
        root: ROOT,
        schema: SCHEMA,
        on_full: OnFullLane::DropNewest,
        ..SourceOptions::default()
    })
}

impl LogRecord<'_> {
    /// Pushes the record. If the record is dropped, the source counts the drop.
    pub(crate) fn push(&self, source: &PushSource) {
        let pushed = BUILDER.try_with(|builder| {
            let Ok(mut builder) = builder.try_borrow_mut() else { return source.count_busy() };
            builder.reset();
            self.build(&mut builder);
            let _counted = source.push(builder.finished_data());
        });
        // The thread is ending, and its builder no longer exists.
        if pushed.is_err() {
            source.count_busy();
        }
    }

    fn build(&self, builder: &mut FlatBufferBuilder<'_>) {
        let fields: Vec<_> =
            self.fields.iter().take(FIELDS_MAX).map(|field| build_field(builder, field)).collect();
        let fields = builder.create_vector(&fields);
        let [target, message, file] =
            [self.target, self.message, self.file].map(|text| builder.create_string(cut(text)));
        let table = builder.start_table();
        builder.push_slot_always(slot(5), self.duration_ns);
        builder.push_slot_always(slot(1), target);
        builder.push_slot_always(slot(2), message);
        builder.push_slot_always(slot(3), file);
        builder.push_slot_always(slot(4), self.line);
        builder.push_slot_always(slot(6), fields);
        builder.push_slot_always(slot(0), self.severity as u8);
        let table = builder.end_table(table);
        builder.finish_minimal(table);
    }
}

/// A field of a log record as a table in a FlatBuffer builder.
#[derive(Debug, Clone, Copy)]
struct FieldTable;

fn build_field(
    builder: &mut FlatBufferBuilder<'_>,
    (name, content): &(&'static str, FieldContent),
) -> WIPOffset<FieldTable> {
    let name = builder.create_shared_string(name);
    let text = match content {
        FieldContent::Text(text) => Some(builder.create_string(cut(text))),
        FieldContent::Number(_) => None,
    };
    let table = builder.start_table();
    if let FieldContent::Number(number) = content {
        builder.push_slot_always(slot(2), *number);
    }
    builder.push_slot_always(slot(0), name);
    if let Some(text) = text {
        builder.push_slot_always(slot(1), text);
    }
    WIPOffset::new(builder.end_table(table).value())
}

fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}
