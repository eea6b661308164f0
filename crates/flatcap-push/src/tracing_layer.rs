//! A layer of `tracing-subscriber`. Every event becomes a sample, and every span becomes a sample
//! when it has ended.

use std::fmt::Debug;

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::client::PushClient;
use super::clock::monotonic_ns;
use super::error::SetupError;
use super::log_record::{self, FieldContent, LogRecord, Severity};
use super::source::PushSource;

/// Pushes events and ended spans, with their fields.
#[derive(Debug, Clone)]
pub struct PushLayer {
    source: PushSource,
}

/// The data of an open span.
#[derive(Debug)]
struct OpenSpan {
    begin_ns: u64,
    fields: FieldList,
}

impl PushLayer {
    /// Creates a layer whose samples belong to the source `name` of a client.
    ///
    /// # Errors
    /// The same errors as [`PushClient::source`].
    pub fn new(client: &PushClient, name: &str) -> Result<Self, SetupError> {
        Ok(Self { source: log_record::source(client, name)? })
    }

    fn push(&self, metadata: &Metadata<'static>, message: &str, duration_ns: u64, fields: &FieldList) {
        let severity = match *metadata.level() {
            Level::TRACE => Severity::Trace,
            Level::DEBUG => Severity::Debug,
            Level::INFO => Severity::Info,
            Level::WARN => Severity::Warn,
            Level::ERROR => Severity::Error,
        };
        let (file, line) = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        let fields = &fields.fields;
        let record =
            LogRecord { severity, target: metadata.target(), message, file, line, duration_ns, fields };
        record.push(&self.source);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PushLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = FieldList::default();
        event.record(&mut fields);
        self.push(event.metadata(), &fields.message, 0, &fields);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = FieldList::default();
        attributes.record(&mut fields);
        span.extensions_mut().replace(OpenSpan { begin_ns: monotonic_ns(), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let ended = span.extensions_mut().remove::<OpenSpan>();
        if let Some(OpenSpan { begin_ns, fields }) = ended {
            let duration_ns = monotonic_ns().saturating_sub(begin_ns);
            self.push(span.metadata(), span.name(), duration_ns, &fields);
        }
    }
}

/// The fields of an event or a span. A later value of a field replaces the previous value.
#[derive(Debug, Default)]
struct FieldList {
    message: String,
    fields: Vec<(&'static str, FieldContent)>,
}

impl FieldList {
    fn add(&mut self, field: &Field, content: FieldContent) {
        match self.fields.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, known)) => *known = content,
            None => self.fields.push((field.name(), content)),
        }
    }

    fn add_text(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, FieldContent::Text(text));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "the schema has one type of number: exact up to 2^53")]
impl Visit for FieldList {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, FieldContent::Number(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, FieldContent::Number(value as f64));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, FieldContent::Number(value as f64));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add_text(field, format!("{value:?}"));
    }
}
