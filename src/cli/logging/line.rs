//! A log line that outlives its call: a copy of an event, which another thread logs again.

use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use tracing::field::{DisplayValue, Field, Value, Visit, display};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Largest length of the message and of each field, in bytes; longer texts are cut.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Largest number of fields; the macros of `tracing` allow no more.
const FIELDS_MAX: usize = 32;

/// The call site of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSite(pub(super) &'static Metadata<'static>);

impl PartialEq for CallSite {
    fn eq(&self, other: &Self) -> bool {
        self.0.callsite() == other.0.callsite()
    }
}

impl Eq for CallSite {}

impl Hash for CallSite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.callsite().hash(state);
    }
}

/// A copied log line.
#[derive(Debug)]
pub(super) struct LogLine {
    site: CallSite,
    wall_ns: i64,
    fields: Vec<(Field, FieldText)>,
}

/// The text of a field. Fields that were logged as strings are quoted on a terminal.
#[derive(Debug)]
enum FieldText {
    Quoted(String),
    Plain(String),
}

impl FieldText {
    fn as_str(&self) -> &str {
        match self {
            Self::Quoted(text) | Self::Plain(text) => text,
        }
    }
}

impl LogLine {
    /// Copies an event.
    pub(super) fn copy(event: &Event<'_>, wall_ns: i64) -> Self {
        let mut fields = FieldCollector(Vec::new());
        event.record(&mut fields);
        Self { site: CallSite(event.metadata()), wall_ns, fields: fields.0 }
    }

    /// Returns the time of the event, in nanoseconds since 1970.
    pub(super) fn wall_ns(&self) -> i64 {
        self.wall_ns
    }

    /// Appends all fields to the message, for readers that show the message alone.
    pub(super) fn with_fields_in_message(mut self) -> Self {
        let mut message = String::new();
        for (field, text) in &self.fields {
            let text = text.as_str();
            // Writing to a string cannot fail.
            let _written = match field.name() {
                "message" => write!(message, "{text}"),
                name => write!(message, " {name}={text}"),
            };
        }
        for (field, text) in &mut self.fields {
            if field.name() == "message" {
                *text = FieldText::Plain(std::mem::take(&mut message));
            }
        }
        self
    }

    /// Logs the line to a subscriber, as if from the original call site.
    pub(super) fn log_to(&self, subscriber: &dyn Subscriber) {
        let plain: Vec<DisplayValue<&str>> =
            self.fields.iter().map(|(_, text)| display(text.as_str())).collect();
        let quoted: Vec<&str> = self.fields.iter().map(|(_, text)| text.as_str()).collect();
        let Some((first, _)) = self.fields.first() else { return };
        // A value set has a length that is known at compile time, so it is padded with absent
        // values.
        let mut values: [(&Field, Option<&dyn Value>); FIELDS_MAX] = [(first, None); FIELDS_MAX];
        for ((value, (field, text)), (plain, quoted)) in
            values.iter_mut().zip(&self.fields).zip(plain.iter().zip(&quoted))
        {
            *value = match text {
                FieldText::Plain(_) => (field, Some(plain)),
                FieldText::Quoted(_) => (field, Some(quoted)),
            };
        }
        let metadata = self.site.0;
        subscriber.event(&Event::new(metadata, &metadata.fields().value_set(&values)));
    }
}

struct FieldCollector(Vec<(Field, FieldText)>);

impl Visit for FieldCollector {
    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = TruncatedText(String::new());
        // A text that is too long is cut, which is not an error.
        let _cut = text.write_str(value);
        self.0.push((field.clone(), FieldText::Quoted(text.0)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = TruncatedText(String::new());
        let _cut = write!(text, "{value:?}");
        self.0.push((field.clone(), FieldText::Plain(text.0)));
    }
}

/// A string that is cut at its limit and has no line breaks, since readers of the log take each
/// line as an event.
struct TruncatedText(String);

impl Write for TruncatedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let one_line = text.contains('\n').then(|| text.replace('\n', "; "));
        let text = one_line.as_deref().unwrap_or(text);
        let space_left = TEXT_BYTES_MAX.saturating_sub(self.0.len());
        if text.len() <= space_left {
            self.0.push_str(text);
            return Ok(());
        }
        // A character has up to four bytes, and 0 is always a boundary.
        let end = (0..=space_left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(text.get(..end).unwrap_or_default());
        self.0.push_str(" ...");
        Err(fmt::Error)
    }
}

/// The time of the event of the current line, as RFC 3339. The line may be written later.
#[derive(Debug, Clone, Default)]
pub(super) struct LineTime(Arc<AtomicI64>);

impl LineTime {
    pub(super) fn set(&self, wall_ns: i64) {
        self.0.store(wall_ns, Ordering::Relaxed);
    }
}

impl FormatTime for LineTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let time = Timestamp::from_nanosecond(i128::from(self.0.load(Ordering::Relaxed)));
        write!(writer, "{:.6}", time.map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a text never exceeds its limit and stays on one line, with multi-byte characters
    // and line breaks.
    #[test]
    fn texts_are_cut_at_their_limit() {
        let mut text = TruncatedText(String::new());
        assert!(text.write_str(&"a".repeat(TEXT_BYTES_MAX - 1)).is_ok());
        assert!(text.write_str("\u{20ac}").is_err());
        assert_eq!(text.0.len(), TEXT_BYTES_MAX - 1 + 4);
        assert!(text.0.ends_with("a ..."));
        let mut text = TruncatedText(String::new());
        assert!(text.write_str(&"\u{20ac}".repeat(TEXT_BYTES_MAX)).is_err());
        assert!(text.0.len() <= TEXT_BYTES_MAX + 4 && text.0.ends_with("\u{20ac} ..."));
        let mut text = TruncatedText(String::new());
        assert!(text.write_str("a\nb").is_ok() && text.write_str(&"\n".repeat(TEXT_BYTES_MAX)).is_err());
        assert!(text.0.starts_with("a; b; ; ") && text.0.len() <= TEXT_BYTES_MAX + 4, "{}", text.0);
    }

    // Proves that a copied line with fields of every type is logged unchanged, and with its fields
    // in the message.
    #[test]
    fn lines_survive_their_call() {
        use std::io;
        use std::sync::{Mutex, PoisonError};

        use tracing_subscriber::layer::SubscriberExt;
        use tracing_subscriber::{Layer, Registry, fmt};

        #[derive(Clone, Default)]
        struct SharedBuffer(Arc<Mutex<Vec<u8>>>);
        impl io::Write for SharedBuffer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        struct CaptureLayer(Arc<Mutex<Vec<LogLine>>>);
        impl<S: Subscriber> Layer<S> for CaptureLayer {
            fn on_event(&self, event: &Event<'_>, _context: tracing_subscriber::layer::Context<'_, S>) {
                self.0.lock().unwrap().push(LogLine::copy(event, 1_500_000_000));
            }
        }
        let kept = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Registry::default().with(CaptureLayer(Arc::clone(&kept))), || {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            tracing::warn!(source = "cpu", stride = 3_u64, step = -4_i64, is = true, %error, "one in {}", 7);
        });
        let line = kept.lock().unwrap().pop().unwrap();
        let (out, time) = (SharedBuffer::default(), LineTime::default());
        let layer = fmt::layer().with_writer({
            let out = out.clone();
            move || out.clone()
        });
        let layer = layer.with_ansi(false).with_target(false).with_timer(time.clone());
        let subscriber = Registry::default().with(layer);
        time.set(line.wall_ns());
        line.log_to(&subscriber);
        line.with_fields_in_message().log_to(&subscriber);
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let fields = "source=\"cpu\" stride=3 step=-4 is=true error=no storage space";
        let first = format!("1970-01-01T00:00:01.500000Z  WARN one in 7 {fields}\n");
        let message = "one in 7 source=cpu stride=3 step=-4 is=true error=no storage space";
        assert_eq!(text, format!("{first}1970-01-01T00:00:01.500000Z  WARN {message} {fields}\n"));
    }
}
