//! Processes the messages read. It is the same for each format; only the field access differs.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::messages::{Kind, Message, Side};

/// The fields of every message, each read on request.
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

/// The aggregation of the published comparison: per symbol the count and volume of trades, the
/// highest bid, the lowest ask.
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

    /// Resets the counts but keeps the symbols, so that each turn finds the same map.
    pub fn restart(&mut self) {
        self.0.values_mut().for_each(|of| *of = OfSymbol::default());
    }

    // Not inlined, so that every format runs the same instructions, independent of the compiler's
    // choice.

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
        // A size of zero removes a level: it is neither a bid nor an ask.
        if fields.size() > 0 {
            self.quoted(fields.symbol(), side, fields.price());
        }
    }

    #[inline]
    fn trade(&mut self, fields: &impl Fields, _: impl FnOnce() -> i64) {
        self.traded(fields.symbol(), fields.size());
    }
}

/// The sum of every field: only reading.
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

/// Copies of the messages, for comparison with those written.
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

/// Applies a sink to the messages themselves, without any format.
pub fn of_messages<S: Sink>(messages: &[Message], mut sink: S) -> S {
    for message in messages {
        match message.kind {
            Kind::LevelUpdate(side) => sink.level_update(message, side),
            Kind::Trade { id } => sink.trade(message, || id),
        }
    }
    sink
}
