//! What is done with the messages that are read: the same for each format, which decides nothing but how a field is got.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::messages::{Kind, Message, Side};

/// The fields that every message has, each read when it is asked for.
pub trait Fields {
    fn timestamp(&self) -> i64;
    fn sequence(&self) -> u64;
    fn symbol(&self) -> [u8; 8];
    fn price(&self) -> i64;
    fn size(&self) -> u32;
    fn flags(&self) -> u8;
}

/// Takes the messages of a stream.
pub trait Sink {
    fn level_update(&mut self, fields: &impl Fields, side: Side);
    fn trade(&mut self, fields: &impl Fields, id: impl FnOnce() -> i64);
}

/// What the published comparison asks for: per symbol the count and volume of trades, the highest bid, the lowest ask.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally(HashMap<u64, OfSymbol, FxBuildHasher>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OfSymbol {
    trades: u64,
    volume: u64,
    bid: i64,
    ask: i64,
}

impl Default for OfSymbol {
    fn default() -> Self {
        Self { trades: 0, volume: 0, bid: i64::MIN, ask: i64::MAX }
    }
}

impl Tally {
    pub fn symbols(&self) -> usize {
        self.0.len()
    }

    /// Forgets what was counted and keeps the symbols, so that each turn finds the map as the one before did.
    pub fn restart(&mut self) {
        self.0.values_mut().for_each(|of| *of = OfSymbol::default());
    }

    // Not inlined: the same instructions for every format, however much of them the compiler would take into its loop.

    #[inline(never)]
    fn quoted(&mut self, symbol: [u8; 8], side: Side, price: i64) {
        let of = self.0.entry(u64::from_le_bytes(symbol)).or_default();
        match side {
            Side::Buy => of.bid = of.bid.max(price),
            Side::Sell => of.ask = of.ask.min(price),
        }
    }

    #[inline(never)]
    fn traded(&mut self, symbol: [u8; 8], size: u32) {
        let of = self.0.entry(u64::from_le_bytes(symbol)).or_default();
        of.trades += 1;
        of.volume += u64::from(size);
    }
}

impl Sink for Tally {
    #[inline]
    fn level_update(&mut self, fields: &impl Fields, side: Side) {
        // A size of zero takes a level away: it is no bid and no ask.
        if fields.size() > 0 {
            self.quoted(fields.symbol(), side, fields.price());
        }
    }

    #[inline]
    fn trade(&mut self, fields: &impl Fields, _: impl FnOnce() -> i64) {
        self.traded(fields.symbol(), fields.size());
    }
}

/// The sum of every field: reading and nothing else.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    #[inline]
    fn add(&mut self, fields: &impl Fields, own: u64) {
        let sum = fields.timestamp().cast_unsigned().wrapping_add(fields.sequence());
        let sum = sum.wrapping_add(u64::from_le_bytes(fields.symbol()));
        let sum = sum.wrapping_add(fields.price().cast_unsigned());
        let sum = sum.wrapping_add(u64::from(fields.size()) + u64::from(fields.flags()));
        self.0 = self.0.wrapping_add(sum).wrapping_add(own);
    }
}

impl Sink for Sum {
    #[inline]
    fn level_update(&mut self, fields: &impl Fields, side: Side) {
        self.add(fields, (side == Side::Sell).into());
    }

    #[inline]
    fn trade(&mut self, fields: &impl Fields, id: impl FnOnce() -> i64) {
        self.add(fields, id().cast_unsigned());
    }
}

/// The messages again, to be compared with those that were written.
#[derive(Debug, Default)]
pub struct Copies(pub Vec<Message>);

impl Copies {
    fn push(&mut self, fields: &impl Fields, kind: Kind) {
        self.0.push(Message {
            timestamp: fields.timestamp(),
            sequence: fields.sequence(),
            symbol: fields.symbol(),
            price: fields.price(),
            size: fields.size(),
            flags: fields.flags(),
            kind,
        });
    }
}

impl Sink for Copies {
    fn level_update(&mut self, fields: &impl Fields, side: Side) {
        self.push(fields, Kind::LevelUpdate(side));
    }

    fn trade(&mut self, fields: &impl Fields, id: impl FnOnce() -> i64) {
        self.push(fields, Kind::Trade { id: id() });
    }
}

impl Fields for Message {
    fn timestamp(&self) -> i64 {
        self.timestamp
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn symbol(&self) -> [u8; 8] {
        self.symbol
    }

    fn price(&self) -> i64 {
        self.price
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn flags(&self) -> u8 {
        self.flags
    }
}

/// What a sink makes of the messages themselves, without any format.
pub fn of_messages<S: Sink>(messages: &[Message], mut sink: S) -> S {
    for message in messages {
        match message.kind {
            Kind::LevelUpdate(side) => sink.level_update(message, side),
            Kind::Trade { id } => sink.trade(message, || id),
        }
    }
    sink
}
