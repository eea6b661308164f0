//! Five designs of a writer and a reader of the same stream: the three messages, and what chooses a framer for them.
//!
//! A reader is handed the payload's type, as the writer has it; every payload is verified where its fields are read.

use std::io::{Read, Write};

use flatbuffers::{Allocator, FlatBufferBuilder, Follow, Verifiable};
use flatcap::stream::{
    ChecksumDeframer, ChecksumFramer, DefaultDeframer, DefaultFramer, Deframer, FrameTemplate, Framer, List,
    Result, SliceFramer, Slot, StreamSerialize, View, XxHash64,
};

#[allow(warnings, reason = "generated code keeps the generator's own style")]
#[path = "../generated/evolution_generated.rs"]
#[rustfmt::skip]
mod generated;

use generated::rivals as flat;

/// The binary schema of the messages.
const SCHEMA: &[u8] = include_bytes!("../generated/evolution.bfbs");
/// Readings of a block: their bytes alone are 64 KiB.
const READINGS: usize = 8192;

/// A message of the bench.
pub trait Message: StreamSerialize + Send + Sync + Sized + 'static {
    /// Its name.
    const NAME: &'static str;

    /// What is asked of a template to patch and to view it.
    type Places: Send;

    /// The message of this number.
    fn numbered(number: u64) -> Self;

    /// All values.
    fn sum(&self) -> u64;

    /// All values of a payload, which is verified.
    ///
    /// # Errors
    /// The payload is no such message.
    fn sum_of(payload: &[u8]) -> Result<u64>;

    /// A template of it.
    fn template() -> (FrameTemplate, Self::Places);

    /// Writes the values into a copy of the template.
    fn patch(&self, template: &FrameTemplate, places: &Self::Places, payload: &mut [u8]);

    /// All values of a payload of the template's shape.
    fn sum_of_view(view: View<'_>, places: &Self::Places) -> u64;

    /// The same in the design that knows all messages.
    fn into_any(self) -> AnyMessage;
}

/// Small and often.
pub struct Tick([u64; 5]);

/// What a program tells of itself.
pub struct Telemetry([u64; 18]);

/// Many readings at once.
pub struct Block {
    device: u64,
    time_ns: u64,
    readings: Vec<u64>,
}

/// Values that differ from message to message and from field to field.
fn value(number: u64, index: usize) -> u64 {
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(index as u32)
}

fn add(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::wrapping_add)
}

/// The verified root.
fn root<'a, T: Follow<'a, Inner = T> + Verifiable + 'a>(payload: &'a [u8]) -> Result<T> {
    Ok(flatbuffers::root::<T>(payload)?)
}

/// A message whose fields are all u64, which stand in its schema in this order.
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

            type Places = [Slot<u64>; $count];

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
                let slots = paths.map(|path| template.slot(path).expect("it was made with this path"));
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
            fn sum_of_view(view: View<'_>, slots: &Self::Places) -> u64 {
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

    type Places = (Slot<u64>, Slot<u64>, List);

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
        let slot = |path| template.slot(path).expect("it was made with this path");
        let places = (slot("device"), slot("time_ns"), template.list("readings[]").expect("this one too"));
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
    fn sum_of_view(view: View<'_>, (device, time_ns, readings): &Self::Places) -> u64 {
        sum_of_bytes(view.elements(readings)).wrapping_add(view.get(*device)).wrapping_add(view.get(*time_ns))
    }

    fn into_any(self) -> AnyMessage {
        AnyMessage::Block(self)
    }
}

/// Kept apart, so that all designs have it compiled in the same way.
#[inline(never)]
fn sum_of_bytes(readings: &[u8]) -> u64 {
    let (readings, _) = readings.as_chunks();
    add(readings.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

fn template_of<M: Message>(message: &M, root: &str, paths: &[&str]) -> FrameTemplate {
    let mut builder = builder();
    message.serialize(&mut builder).expect("it builds always");
    FrameTemplate::of_root(builder.finished_data(), (SCHEMA, root), paths).expect("paths of the schema")
}

/// A builder that leaves no field out, so that all designs write the same bytes.
pub fn builder() -> FlatBufferBuilder<'static> {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    builder
}

/// All messages that there are, in the design of one type that knows them all.
pub enum AnyMessage {
    Tick(Tick),
    Telemetry(Telemetry),
    Block(Block),
}

/// Which of them a reader is to expect.
#[derive(Clone, Copy)]
pub enum AnyKind {
    Tick,
    Telemetry,
    Block,
}

/// All framings that there are.
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

/// A writer that decides for each frame which message it is and how it is framed.
pub struct EnumWriter {
    pub sink: Vec<u8>,
    pub framing: AnyFraming,
    pub builder: FlatBufferBuilder<'static>,
}

impl EnumWriter {
    /// # Errors
    /// What the framer says.
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
    /// All values of a payload, which is verified.
    ///
    /// # Errors
    /// The payload is no such message.
    pub fn sum_of(self, payload: &[u8]) -> Result<u64> {
        match self {
            Self::Tick => Tick::sum_of(payload),
            Self::Telemetry => Telemetry::sum_of(payload),
            Self::Block => Block::sum_of(payload),
        }
    }
}

/// A reader that decides for each frame how it is framed.
pub struct EnumReader<'a> {
    pub source: &'a [u8],
    pub framing: AnyFraming,
    pub buffer: Vec<u8>,
}

impl EnumReader<'_> {
    /// # Errors
    /// What the deframer says.
    pub fn read(&mut self) -> Result<Option<&[u8]>> {
        let (source, buffer) = (&mut self.source, &mut self.buffer);
        let length = match self.framing {
            AnyFraming::Plain => DefaultDeframer::new().read_and_deframe(source, buffer)?,
            AnyFraming::Protected => ChecksumDeframer::new(XxHash64).read_and_deframe(source, buffer)?,
        };
        Ok(length.map(|length| &self.buffer[..length]))
    }
}

/// A message behind a pointer.
pub trait ObjectMessage: Send + Sync {
    /// # Errors
    /// What the message says.
    fn build(&self, builder: &mut FlatBufferBuilder<'static>) -> Result<()>;
}

impl<M: Message> ObjectMessage for M {
    fn build(&self, builder: &mut FlatBufferBuilder<'static>) -> Result<()> {
        StreamSerialize::serialize(self, builder)
    }
}

/// A framer behind a pointer. What it writes to is behind one too.
pub trait ObjectFramer: Send {
    /// # Errors
    /// What the framer says.
    fn write_frame(&self, sink: &mut dyn Write, payload: &[u8]) -> Result<()>;
}

impl<F: Framer + Send> ObjectFramer for F {
    fn write_frame(&self, mut sink: &mut dyn Write, payload: &[u8]) -> Result<()> {
        Framer::frame_and_write(self, &mut sink, payload)
    }
}

/// A deframer behind a pointer.
pub trait ObjectDeframer: Send {
    /// # Errors
    /// What the deframer says.
    fn read_frame(&self, source: &mut dyn Read, buffer: &mut Vec<u8>) -> Result<Option<usize>>;
}

impl<D: Deframer + Send> ObjectDeframer for D {
    fn read_frame(&self, mut source: &mut dyn Read, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        Deframer::read_and_deframe(self, &mut source, buffer)
    }
}

/// A writer that knows neither message nor framer nor sink.
pub struct ObjectWriter {
    pub framer: Box<dyn ObjectFramer>,
    pub builder: FlatBufferBuilder<'static>,
}

impl ObjectWriter {
    /// # Errors
    /// What the framer says.
    pub fn write(&mut self, sink: &mut dyn Write, message: &dyn ObjectMessage) -> Result<()> {
        self.builder.reset();
        message.build(&mut self.builder)?;
        self.framer.write_frame(sink, self.builder.finished_data())
    }
}

/// A reader that knows neither source nor deframer nor who looks at the payloads.
pub struct ObjectReader {
    pub deframer: Box<dyn ObjectDeframer>,
    pub visitor: Box<dyn Fn(&[u8]) -> Result<u64> + Send>,
    pub buffer: Vec<u8>,
}

impl ObjectReader {
    /// What the visitor says of the next payload.
    ///
    /// # Errors
    /// What deframer and visitor say.
    pub fn read(&mut self, source: &mut dyn Read) -> Result<Option<u64>> {
        let Some(length) = self.deframer.read_frame(source, &mut self.buffer)? else { return Ok(None) };
        (self.visitor)(&self.buffer[..length]).map(Some)
    }
}

/// Frames a message by its template into the front of `room`; how many bytes.
///
/// # Errors
/// There is no room.
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
    framer.seal(frame)?;
    Ok(frame_bytes)
}
