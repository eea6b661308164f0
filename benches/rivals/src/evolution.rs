//! Five designs of a writer and a reader of the same stream: the three messages, and the selection
//! of a framer for them.
//!
//! A reader is given the payload's type, like the writer; every payload is verified before its
//! fields are read.

use std::io::{Read, Write};

use flatbuffers::{Allocator, FlatBufferBuilder, Follow, Verifiable};
use flatcap_format::frame::{FrameTemplate, TemplateField, TemplateList, TemplateView};
use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, DefaultDeframer, DefaultFramer, Deframer, Framer, Result, SliceFramer,
    StreamSerialize, XxHash64,
};

#[allow(warnings, reason = "generated code keeps the generator's own style")]
#[path = "../generated/evolution_generated.rs"]
#[rustfmt::skip]
mod generated;

use generated::rivals as flat;

/// The binary schema of the messages.
const SCHEMA: &[u8] = include_bytes!("../generated/evolution.bfbs");
/// Readings per block; they take 64 KiB.
const READINGS: usize = 8192;

/// A message of the bench.
pub trait Message: StreamSerialize + Send + Sync + Sized + 'static {
    /// Its name.
    const NAME: &'static str;

    /// Fields of a template that are patched and viewed.
    type Places: Send;

    /// Creates the message with this number.
    fn numbered(number: u64) -> Self;

    /// Sums all values.
    fn sum(&self) -> u64;

    /// Verifies a payload and sums all its values.
    ///
    /// # Errors
    /// The payload is not such a message.
    fn sum_of(payload: &[u8]) -> Result<u64>;

    /// Creates a template of the message.
    fn template() -> (FrameTemplate, Self::Places);

    /// Writes the values into a copy of the template.
    fn patch(&self, template: &FrameTemplate, places: &Self::Places, payload: &mut [u8]);

    /// Sums all values of a payload of the template's shape.
    fn sum_of_view(view: TemplateView<'_>, places: &Self::Places) -> u64;

    /// Converts it for the design with one enum of all messages.
    fn into_any(self) -> AnyMessage;
}

/// A small, frequent message.
pub struct Tick([u64; 5]);

/// A program's own telemetry.
pub struct Telemetry([u64; 18]);

/// Many readings in one message.
pub struct Block {
    device: u64,
    time_ns: u64,
    readings: Vec<u64>,
}

/// Returns values that differ from message to message and from field to field.
fn value(number: u64, index: usize) -> u64 {
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(index as u32)
}

fn add(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::wrapping_add)
}

/// Verifies and returns the root.
fn root<'a, T: Follow<'a, Inner = T> + Verifiable + 'a>(payload: &'a [u8]) -> Result<T> {
    Ok(flatbuffers::root::<T>(payload)?)
}

/// Defines a message whose fields are all u64, in the order of its schema.
macro_rules! message_of_scalars {
    ($message:ident, $name:literal, $count:literal: $($field:ident),*) => {
        impl StreamSerialize for $message {
            #[inline]
            fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
                let table = builder.start_table();
                for (field, &value) in self.0.iter().enumerate().rev() {
                    builder.push_slot::<u64>(flatbuffers::field_index_to_field_offset(field as u16), value, 0);
                }
                let table = builder.end_table(table);
                builder.finish_minimal(table);
                Ok(())
            }
        }

        impl Message for $message {
            const NAME: &'static str = $name;

            type Places = [TemplateField<u64>; $count];

            fn numbered(number: u64) -> Self {
                Self(std::array::from_fn(|index| value(number, index)))
            }

            fn sum(&self) -> u64 {
                add(self.0)
            }

            #[inline]
            fn sum_of(payload: &[u8]) -> Result<u64> {
                let root = root::<flat::$message<'_>>(payload)?;
                Ok(add([$(root.$field()),*]))
            }

            fn template() -> (FrameTemplate, Self::Places) {
                let paths = [$(stringify!($field)),*];
                let template = template_of(&Self([0; $count]), concat!("rivals.", stringify!($message)), &paths);
                let slots = paths.map(|path| template.field(path).expect("the template has this path"));
                (template, slots)
            }

            #[inline]
            fn patch(&self, template: &FrameTemplate, slots: &Self::Places, payload: &mut [u8]) {
                let mut patch = template.fill(payload);
                for (&slot, &value) in slots.iter().zip(&self.0) {
                    patch.set(slot, value);
                }
            }

            #[inline]
            fn sum_of_view(view: TemplateView<'_>, slots: &Self::Places) -> u64 {
                add(slots.iter().map(|&slot| view.get(slot)))
            }

            fn into_any(self) -> AnyMessage {
                AnyMessage::$message(self)
            }
        }
    };
}

message_of_scalars!(Tick, "high-frequency", 5: device, time_ns, sequence, value, total);
message_of_scalars!(Telemetry, "telemetry", 18:
    device, time_ns, requests, failures, retries, bytes_in, bytes_out, connections, queue_length, queue_length_max,
    latency_p50_ns, latency_p99_ns, latency_max_ns, user_ns, system_ns, resident_bytes, threads, open_files);

impl StreamSerialize for Block {
    #[inline]
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        let readings = builder.create_vector(&self.readings);
        let table = builder.start_table();
        builder.push_slot(flat::Block::VT_TIME_NS, self.time_ns, 0);
        builder.push_slot(flat::Block::VT_DEVICE, self.device, 0);
        builder.push_slot_always(flat::Block::VT_READINGS, readings);
        let table = builder.end_table(table);
        builder.finish_minimal(table);
        Ok(())
    }
}

impl Message for Block {
    const NAME: &'static str = "large";

    type Places = (TemplateField<u64>, TemplateField<u64>, TemplateList);

    fn numbered(number: u64) -> Self {
        let readings = (2..READINGS + 2).map(|index| value(number, index)).collect();
        Self { device: value(number, 0), time_ns: value(number, 1), readings }
    }

    fn sum(&self) -> u64 {
        add(self.readings.iter().copied()).wrapping_add(self.device).wrapping_add(self.time_ns)
    }

    #[inline]
    fn sum_of(payload: &[u8]) -> Result<u64> {
        let root = root::<flat::Block<'_>>(payload)?;
        let readings = root.readings().map_or(&[][..], |readings| readings.bytes());
        Ok(sum_of_bytes(readings).wrapping_add(root.device()).wrapping_add(root.time_ns()))
    }

    fn template() -> (FrameTemplate, Self::Places) {
        let empty = Self { device: 0, time_ns: 0, readings: vec![0; READINGS] };
        let template = template_of(&empty, "rivals.Block", &["device", "time_ns", "readings[]"]);
        let field = |path| template.field(path).expect("the template has this path");
        let places = (
            field("device"),
            field("time_ns"),
            template.list("readings[]").expect("the template has this path"),
        );
        (template, places)
    }

    #[inline]
    fn patch(
        &self,
        template: &FrameTemplate,
        (device, time_ns, readings): &Self::Places,
        payload: &mut [u8],
    ) {
        let mut patch = template.fill(payload);
        patch.set(*device, self.device);
        patch.set(*time_ns, self.time_ns);
        let (rooms, _) = patch.elements(readings).as_chunks_mut();
        for (room, value) in rooms.iter_mut().zip(&self.readings) {
            *room = value.to_le_bytes();
        }
    }

    #[inline]
    fn sum_of_view(view: TemplateView<'_>, (device, time_ns, readings): &Self::Places) -> u64 {
        sum_of_bytes(view.elements(readings)).wrapping_add(view.get(*device)).wrapping_add(view.get(*time_ns))
    }

    fn into_any(self) -> AnyMessage {
        AnyMessage::Block(self)
    }
}

/// Not inlined, so that it is compiled in the same way for all designs.
#[inline(never)]
fn sum_of_bytes(readings: &[u8]) -> u64 {
    let (readings, _) = readings.as_chunks();
    add(readings.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

fn template_of<M: Message>(message: &M, root: &str, paths: &[&str]) -> FrameTemplate {
    let mut builder = builder();
    message.serialize(&mut builder).expect("building cannot fail");
    FrameTemplate::with_root(builder.finished_data(), (SCHEMA, root), paths).expect("paths of the schema")
}

/// Creates a builder that writes default values, so that all designs write the same bytes.
pub fn builder() -> FlatBufferBuilder<'static> {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    builder
}

/// All messages, for the design with one enum of them.
pub enum AnyMessage {
    Tick(Tick),
    Telemetry(Telemetry),
    Block(Block),
}

/// The message that a reader expects.
#[derive(Clone, Copy)]
pub enum AnyKind {
    Tick,
    Telemetry,
    Block,
}

/// All framings.
#[derive(Clone, Copy)]
pub enum AnyFraming {
    Plain,
    Protected,
}

impl AnyMessage {
    pub fn kind(&self) -> AnyKind {
        match self {
            Self::Tick(_) => AnyKind::Tick,
            Self::Telemetry(_) => AnyKind::Telemetry,
            Self::Block(_) => AnyKind::Block,
        }
    }
}

/// A writer that selects message and framer for each frame.
pub struct EnumWriter {
    pub sink: Vec<u8>,
    pub framing: AnyFraming,
    pub builder: FlatBufferBuilder<'static>,
}

impl EnumWriter {
    /// # Errors
    /// The error of the framer.
    pub fn write(&mut self, message: &AnyMessage) -> Result<()> {
        self.builder.reset();
        match message {
            AnyMessage::Tick(message) => message.serialize(&mut self.builder)?,
            AnyMessage::Telemetry(message) => message.serialize(&mut self.builder)?,
            AnyMessage::Block(message) => message.serialize(&mut self.builder)?,
        }
        let payload = self.builder.finished_data();
        match self.framing {
            AnyFraming::Plain => DefaultFramer.frame_and_write(&mut self.sink, payload),
            AnyFraming::Protected => ChecksumFramer::new(XxHash64).frame_and_write(&mut self.sink, payload),
        }
    }
}

impl AnyKind {
    /// Verifies a payload and sums all its values.
    ///
    /// # Errors
    /// The payload is not such a message.
    pub fn sum_of(self, payload: &[u8]) -> Result<u64> {
        match self {
            Self::Tick => Tick::sum_of(payload),
            Self::Telemetry => Telemetry::sum_of(payload),
            Self::Block => Block::sum_of(payload),
        }
    }
}

/// A reader that selects the deframer for each frame.
pub struct EnumReader<'a> {
    pub source: &'a [u8],
    pub framing: AnyFraming,
    pub buffer: Vec<u8>,
}

impl EnumReader<'_> {
    /// # Errors
    /// The error of the deframer.
    pub fn read(&mut self) -> Result<Option<&[u8]>> {
        let (source, buffer) = (&mut self.source, &mut self.buffer);
        let length = match self.framing {
            AnyFraming::Plain => DefaultDeframer::new().read_and_deframe(source, buffer)?,
            AnyFraming::Protected => ChecksumDeframer::new(XxHash64).read_and_deframe(source, buffer)?,
        };
        Ok(length.map(|length| &self.buffer[..length]))
    }
}

/// A message as a trait object.
pub trait ObjectMessage: Send + Sync {
    /// # Errors
    /// The error of the message.
    fn build(&self, builder: &mut FlatBufferBuilder<'static>) -> Result<()>;
}

impl<M: Message> ObjectMessage for M {
    fn build(&self, builder: &mut FlatBufferBuilder<'static>) -> Result<()> {
        StreamSerialize::serialize(self, builder)
    }
}

/// A framer as a trait object. Its sink is one, too.
pub trait ObjectFramer: Send {
    /// # Errors
    /// The error of the framer.
    fn write_frame(&self, sink: &mut dyn Write, payload: &[u8]) -> Result<()>;
}

impl<F: Framer + Send> ObjectFramer for F {
    fn write_frame(&self, mut sink: &mut dyn Write, payload: &[u8]) -> Result<()> {
        Framer::frame_and_write(self, &mut sink, payload)
    }
}

/// A deframer as a trait object.
pub trait ObjectDeframer: Send {
    /// # Errors
    /// The error of the deframer.
    fn read_frame(&self, source: &mut dyn Read, buffer: &mut Vec<u8>) -> Result<Option<usize>>;
}

impl<D: Deframer + Send> ObjectDeframer for D {
    fn read_frame(&self, mut source: &mut dyn Read, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        Deframer::read_and_deframe(self, &mut source, buffer)
    }
}

/// A writer of which message, framer and sink are trait objects.
pub struct ObjectWriter {
    pub framer: Box<dyn ObjectFramer>,
    pub builder: FlatBufferBuilder<'static>,
}

impl ObjectWriter {
    /// # Errors
    /// The error of the framer.
    pub fn write(&mut self, sink: &mut dyn Write, message: &dyn ObjectMessage) -> Result<()> {
        self.builder.reset();
        message.build(&mut self.builder)?;
        self.framer.write_frame(sink, self.builder.finished_data())
    }
}

/// A reader of which source, deframer and visitor are trait objects.
pub struct ObjectReader {
    pub deframer: Box<dyn ObjectDeframer>,
    pub visitor: Box<dyn Fn(&[u8]) -> Result<u64> + Send>,
    pub buffer: Vec<u8>,
}

impl ObjectReader {
    /// Reads the next payload and returns the visitor's result.
    ///
    /// # Errors
    /// The error of the deframer or the visitor.
    pub fn read(&mut self, source: &mut dyn Read) -> Result<Option<u64>> {
        let Some(length) = self.deframer.read_frame(source, &mut self.buffer)? else { return Ok(None) };
        (self.visitor)(&self.buffer[..length]).map(Some)
    }
}

/// Frames a message by its template at the start of `room` and returns the number of bytes.
///
/// # Errors
/// `room` is too small.
#[inline]
pub fn frame_by_template<M: Message, F: SliceFramer>(
    message: &M,
    (template, places): &(FrameTemplate, M::Places),
    framer: &F,
    room: &mut [u8],
) -> Result<usize> {
    let (header_bytes, frame_bytes) =
        (framer.header_bytes(), framer.header_bytes() + template.payload_bytes());
    let frame = &mut room[..frame_bytes];
    message.patch(template, places, &mut frame[header_bytes..]);
    framer.frame_in_place(frame)?;
    Ok(frame_bytes)
}
