//! FlatBuffers as usually written: built field by field in a reused builder, read by the generated
//! accessors.

use std::marker::PhantomData;

use flatbuffers::{FlatBufferBuilder, Follow, Verifiable};
use flatcap_stream::{DefaultFramer, SliceFramer};

use super::Format;
use super::frames::Frames;
use super::messages::{Kind, Message, Side};
use super::shootout_generated::shootout as schema;
use super::sink::{Fields, Sink};

/// Fields in structs.
pub struct Structures<R> {
    builder: FlatBufferBuilder<'static>,
    root: PhantomData<R>,
}

/// Fields in the table itself.
pub struct Flat<R> {
    builder: FlatBufferBuilder<'static>,
    root: PhantomData<R>,
}

/// Access to a payload's root.
pub trait Root {
    fn root<'b, T: Follow<'b, Inner = T> + Verifiable + 'b>(payload: &'b [u8]) -> T;
}

/// With verification.
pub struct Verified;

/// Without verification.
pub struct Unverified;

impl Root for Verified {
    #[inline]
    fn root<'b, T: Follow<'b, Inner = T> + Verifiable + 'b>(payload: &'b [u8]) -> T {
        flatbuffers::root::<T>(payload).unwrap()
    }
}

impl Root for Unverified {
    #[inline]
    fn root<'b, T: Follow<'b, Inner = T> + Verifiable + 'b>(payload: &'b [u8]) -> T {
        // SAFETY: the bench wrote the payload itself, with the builder, in this process.
        unsafe { flatbuffers::root_unchecked::<T>(payload) }
    }
}

impl<R> Structures<R> {
    pub fn new() -> Self {
        Self { builder: FlatBufferBuilder::new(), root: PhantomData }
    }
}

impl<R> Flat<R> {
    pub fn new() -> Self {
        Self { builder: FlatBufferBuilder::new(), root: PhantomData }
    }
}

impl<R: Root> Format for Structures<R> {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let mut end = 0;
        for message in messages {
            self.builder.reset();
            build_structure(message, &mut self.builder);
            end += DefaultFramer.frame_into(&mut room[end..], self.builder.finished_data()).unwrap();
        }
        end
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut frames = Frames(stream);
        for payload in frames.by_ref().take(count) {
            let message = R::root::<schema::Message<'_>>(payload);
            if let Some(update) = message.level_update() {
                sink.level_update(update, side(update.side()));
            } else if let Some(trade) = message.trade() {
                sink.trade(trade, || trade.trade_id());
            }
        }
        stream.len() - frames.0.len()
    }
}

impl<R: Root> Format for Flat<R> {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let mut end = 0;
        for message in messages {
            self.builder.reset();
            build_flat(message, &mut self.builder);
            end += DefaultFramer.frame_into(&mut room[end..], self.builder.finished_data()).unwrap();
        }
        end
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut frames = Frames(stream);
        for payload in frames.by_ref().take(count) {
            let message = R::root::<schema::FlatMessage<'_>>(payload);
            if let Some(id) = message.trade_id() {
                sink.trade(&message, || id);
            } else if let Some(of) = message.side() {
                sink.level_update(&message, side(of));
            }
        }
        stream.len() - frames.0.len()
    }
}

pub fn level_update(message: &Message, side: Side) -> schema::LevelUpdate {
    schema::LevelUpdate::new(
        message.timestamp,
        message.sequence,
        &schema::Symbol::new(&message.symbol),
        message.price,
        message.size,
        message.flags,
        match side {
            Side::Buy => schema::Side::Buy,
            Side::Sell => schema::Side::Sell,
        },
    )
}

pub fn trade(message: &Message, id: i64) -> schema::Trade {
    schema::Trade::new(
        message.timestamp,
        message.sequence,
        &schema::Symbol::new(&message.symbol),
        message.price,
        id,
        message.size,
        message.flags,
    )
}

pub fn build_structure(message: &Message, builder: &mut FlatBufferBuilder<'_>) {
    let root = match message.kind {
        Kind::LevelUpdate(side) => {
            let update = level_update(message, side);
            let fields = schema::MessageArgs { level_update: Some(&update), ..Default::default() };
            schema::Message::create(builder, &fields)
        }
        Kind::Trade { id } => {
            let trade = trade(message, id);
            let fields = schema::MessageArgs { trade: Some(&trade), ..Default::default() };
            schema::Message::create(builder, &fields)
        }
    };
    builder.finish_minimal(root);
}

pub fn build_flat(message: &Message, builder: &mut FlatBufferBuilder<'_>) {
    let (side, trade_id) = match message.kind {
        Kind::LevelUpdate(Side::Buy) => (Some(schema::Side::Buy), None),
        Kind::LevelUpdate(Side::Sell) => (Some(schema::Side::Sell), None),
        Kind::Trade { id } => (None, Some(id)),
    };
    let fields = schema::FlatMessageArgs {
        timestamp: message.timestamp,
        sequence: message.sequence,
        symbol: Some(&schema::Symbol::new(&message.symbol)),
        price: message.price,
        size: message.size,
        flags: message.flags,
        side,
        trade_id,
    };
    let root = schema::FlatMessage::create(builder, &fields);
    builder.finish_minimal(root);
}

pub fn side(side: schema::Side) -> Side {
    if side == schema::Side::Buy { Side::Buy } else { Side::Sell }
}

macro_rules! fields {
    ($($of:ty: $symbol:expr),*) => {$(
        impl Fields for $of {
            fn timestamp(&self) -> i64 {
                <$of>::timestamp(self)
            }

            fn sequence(&self) -> u64 {
                <$of>::sequence(self)
            }

            fn symbol(&self) -> [u8; 8] {
                $symbol(self)
            }

            fn price(&self) -> i64 {
                <$of>::price(self)
            }

            fn size(&self) -> u32 {
                <$of>::size(self)
            }

            fn flags(&self) -> u8 {
                <$of>::flags(self)
            }
        }
    )*};
}

fields!(
    schema::LevelUpdate: |update: &schema::LevelUpdate| update.symbol().0,
    schema::Trade: |trade: &schema::Trade| trade.symbol().0,
    schema::FlatMessage<'_>: |message: &schema::FlatMessage<'_>| message.symbol().map_or([0; 8], |symbol| symbol.0)
);
