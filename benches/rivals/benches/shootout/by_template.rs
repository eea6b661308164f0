//! FlatBuffers by template: a template for each kind of message is built once, then copied and
//! patched. A payload of a template's shape is read at the template's field positions.

use std::marker::PhantomData;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{FrameTemplate, Scalar, TemplateField, TemplateView};
use flatcap_stream::DefaultFramer;

use super::Format;
use super::built::{build_flat, build_structure, level_update, side, trade};
use super::frames::Frames;
use super::messages::{Kind, Message, Side};
use super::shootout_generated::shootout::{self as schema, LevelUpdate, Trade};
use super::sink::{Fields, Sink};

const SCHEMA: &[u8] = include_bytes!("../../generated/shootout.bfbs");

/// Fields in structs: a template for each kind, and one field, the struct.
pub struct Structures<S> {
    level_update: FrameTemplate,
    update_slot: TemplateField<[u8; size_of::<LevelUpdate>()]>,
    trade: FrameTemplate,
    trade_slot: TemplateField<[u8; size_of::<Trade>()]>,
    shape: PhantomData<S>,
}

/// The check that a payload is a message of its kind.
pub trait Shape {
    fn view<'p>(template: &'p FrameTemplate, payload: &'p [u8]) -> Option<TemplateView<'p>>;
}

/// Compares the payload with the template.
pub struct Compared;

/// Uses only the length, as SBE uses the number in its header.
pub struct Trusted;

impl Shape for Compared {
    #[inline]
    fn view<'p>(template: &'p FrameTemplate, payload: &'p [u8]) -> Option<TemplateView<'p>> {
        template.view(payload)
    }
}

impl Shape for Trusted {
    #[inline]
    fn view<'p>(template: &'p FrameTemplate, payload: &'p [u8]) -> Option<TemplateView<'p>> {
        template.view_trusted(payload)
    }
}

impl<S> Structures<S> {
    pub fn new() -> Self {
        let of = |kind, path| FrameTemplate::new(&zero(kind, build_structure), SCHEMA, &[path]).unwrap();
        let level_update = of(Kind::LevelUpdate(Side::Buy), "level_update");
        let trade = of(Kind::Trade { id: 0 }, "trade");
        let update_slot = level_update.field("level_update").unwrap();
        let trade_slot = trade.field("trade").unwrap();
        Self { level_update, update_slot, trade, trade_slot, shape: PhantomData }
    }
}

impl<S: Shape> Format for Structures<S> {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let mut end = 0;
        for message in messages {
            let room = &mut room[end..];
            let written = match message.kind {
                Kind::LevelUpdate(side) => self.level_update.frame_into(&DefaultFramer, room, |patch| {
                    patch.set(self.update_slot, level_update(message, side).0);
                }),
                Kind::Trade { id } => self.trade.frame_into(&DefaultFramer, room, |patch| {
                    patch.set(self.trade_slot, trade(message, id).0);
                }),
            };
            end += written.unwrap();
        }
        end
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut frames = Frames(stream);
        for payload in frames.by_ref().take(count) {
            if let Some(view) = S::view(&self.level_update, payload) {
                let update = LevelUpdate(view.get(self.update_slot));
                sink.level_update(&update, side(update.side()));
            } else if let Some(view) = S::view(&self.trade, payload) {
                let trade = Trade(view.get(self.trade_slot));
                sink.trade(&trade, || trade.trade_id());
            }
        }
        stream.len() - frames.0.len()
    }
}

/// Creates a message for a template: its values do not matter, but it has every field.
fn zero(kind: Kind, build: fn(&Message, &mut FlatBufferBuilder<'_>)) -> Vec<u8> {
    let message = Message { timestamp: 0, sequence: 0, symbol: [0; 8], price: 0, size: 0, flags: 0, kind };
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    build(&message, &mut builder);
    builder.finished_data().to_vec()
}

/// Fields in the table itself: a template for each kind, and a template field for each field.
pub struct Flat<S> {
    level_update: Model<u8>,
    trade: Model<i64>,
    shape: PhantomData<S>,
}

/// A template and the positions of its fields; `T` is the type of the field that only this kind
/// has.
struct Model<T> {
    template: FrameTemplate,
    slots: Slots<T>,
}

struct Slots<T> {
    timestamp: TemplateField<i64>,
    sequence: TemplateField<u64>,
    symbol: TemplateField<[u8; 8]>,
    price: TemplateField<i64>,
    size: TemplateField<u32>,
    flags: TemplateField<u8>,
    own: TemplateField<T>,
}

impl<S> Flat<S> {
    pub fn new() -> Self {
        Self {
            level_update: Model::new(&zero(Kind::LevelUpdate(Side::Buy), build_flat), "side"),
            trade: Model::new(&zero(Kind::Trade { id: 0 }, build_flat), "trade_id"),
            shape: PhantomData,
        }
    }
}

impl<T: Scalar> Model<T> {
    fn new(finished: &[u8], own: &str) -> Self {
        let paths = ["timestamp", "sequence", "symbol", "price", "size", "flags", own];
        let schema = (SCHEMA, "shootout.FlatMessage");
        let template = FrameTemplate::with_root(finished, schema, &paths).unwrap();
        let slots = Slots {
            timestamp: template.field("timestamp").unwrap(),
            sequence: template.field("sequence").unwrap(),
            symbol: template.field("symbol").unwrap(),
            price: template.field("price").unwrap(),
            size: template.field("size").unwrap(),
            flags: template.field("flags").unwrap(),
            own: template.field(own).unwrap(),
        };
        Self { template, slots }
    }

    #[inline]
    fn write(&self, message: &Message, own: T, room: &mut [u8]) -> usize {
        let slots = &self.slots;
        let written = self.template.frame_into(&DefaultFramer, room, |patch| {
            patch.set(slots.timestamp, message.timestamp);
            patch.set(slots.sequence, message.sequence);
            patch.set(slots.symbol, message.symbol);
            patch.set(slots.price, message.price);
            patch.set(slots.size, message.size);
            patch.set(slots.flags, message.flags);
            patch.set(slots.own, own);
        });
        written.unwrap()
    }

    #[inline]
    fn view<'v, S: Shape>(&'v self, payload: &'v [u8]) -> Option<OneOf<'v, T>> {
        S::view(&self.template, payload).map(|view| OneOf { view, slots: &self.slots })
    }
}

/// A message of one kind.
struct OneOf<'v, T> {
    view: TemplateView<'v>,
    slots: &'v Slots<T>,
}

impl<S: Shape> Format for Flat<S> {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let mut end = 0;
        for message in messages {
            let room = &mut room[end..];
            end += match message.kind {
                Kind::LevelUpdate(Side::Buy) => self.level_update.write(message, schema::Side::Buy.0, room),
                Kind::LevelUpdate(Side::Sell) => self.level_update.write(message, schema::Side::Sell.0, room),
                Kind::Trade { id } => self.trade.write(message, id, room),
            };
        }
        end
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut frames = Frames(stream);
        for payload in frames.by_ref().take(count) {
            if let Some(update) = self.level_update.view::<S>(payload) {
                let is_buy = update.view.get(update.slots.own) == schema::Side::Buy.0;
                sink.level_update(&update, if is_buy { Side::Buy } else { Side::Sell });
            } else if let Some(trade) = self.trade.view::<S>(payload) {
                sink.trade(&trade, || trade.view.get(trade.slots.own));
            }
        }
        stream.len() - frames.0.len()
    }
}

impl<T> Fields for OneOf<'_, T> {
    #[inline]
    fn timestamp(&self) -> i64 {
        self.view.get(self.slots.timestamp)
    }

    #[inline]
    fn sequence(&self) -> u64 {
        self.view.get(self.slots.sequence)
    }

    #[inline]
    fn symbol(&self) -> [u8; 8] {
        self.view.get(self.slots.symbol)
    }

    #[inline]
    fn price(&self) -> i64 {
        self.view.get(self.slots.price)
    }

    #[inline]
    fn size(&self) -> u32 {
        self.view.get(self.slots.size)
    }

    #[inline]
    fn flags(&self) -> u8 {
        self.view.get(self.slots.flags)
    }
}
