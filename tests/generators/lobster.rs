//! Generates files in LOBSTER's format; the same seed gives the same bytes. The prices are a random
//! walk, not market data. Plain Rust, shared by tests and benches (`#[path]`).
#![allow(dead_code, reason = "each user takes its part")]

use std::collections::BTreeMap;
use std::io::{self, Write};

/// 09:30 in the exchange's time zone.
const OPEN_NS: u64 = 34_200_000_000_000;
/// Prices are multiples of a cent.
const TICK: i64 = 100;
const NO_ASK: i64 = 9_999_999_999;

/// Parameters of a generated trading day.
#[derive(Debug, Clone, Copy)]
pub struct Day {
    pub rows: u64,
    pub levels: usize,
    pub seed: u64,
}

/// Sizes by price.
type Side = BTreeMap<i64, i64>;

struct Market {
    random: u64,
    bids: Side,
    asks: Side,
    now_ns: u64,
    next_order: i64,
    halted: i64, // state of a halt: 0 for none
}

/// An event without its time.
struct Event {
    kind: u8,
    order: i64,
    size: i64,
    price: i64,
    direction: i64,
}

impl Day {
    /// Writes a message file and the order-book file that belongs to it.
    pub fn write(&self, message: &mut dyn Write, book: &mut dyn Write) -> io::Result<()> {
        let mut market = Market {
            random: self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            bids: Side::new(),
            asks: Side::new(),
            now_ns: OPEN_NS,
            next_order: 16_113_575,
            halted: 0,
        };
        for _ in 0..self.rows {
            let event = market.step();
            let Event { kind, order, size, price, direction } = event;
            writeln!(message, "{},{kind},{order},{size},{price},{direction}", seconds(market.now_ns))?;
            market.write_book(self.levels, book)?;
        }
        Ok(())
    }

    /// Returns both files as text.
    pub fn texts(&self) -> [String; 2] {
        let (mut message, mut book) = (Vec::new(), Vec::new());
        self.write(&mut message, &mut book).expect("vectors take everything");
        [message, book].map(|text| String::from_utf8(text).expect("digits"))
    }
}

/// Formats seconds with as many decimals as needed.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Market {
    /// Returns a number below `below`, by xorshift64*.
    fn below(&mut self, below: u64) -> i64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let mixed = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16;
        (mixed % below).cast_signed()
    }

    /// Generates the next event and advances the time; many events share a time, some are far
    /// apart.
    fn step(&mut self) -> Event {
        let wait_ns = match self.below(10) {
            0..3 => 0,
            3..8 => self.below(60_000),
            _ => self.below(5_000_000),
        };
        self.now_ns += wait_ns.unsigned_abs();
        if self.halted > 0 || self.below(5000) == 0 {
            // Halted, quoting resumed, trading resumed.
            let price = [-1, 0, 1][usize::try_from(self.halted).expect("at most 2")];
            self.halted = (self.halted + 1) % 3;
            return Event { kind: 7, order: 0, size: 0, price, direction: -1 };
        }
        let direction = if self.below(2) == 0 { -1 } else { 1 };
        let prices = if direction > 0 { self.bids.len() } else { self.asks.len() };
        match self.below(100) {
            _ if prices < 2 => self.add(direction),
            0..52 => self.add(direction),
            52..88 => self.take(3, direction),
            88..90 => self.take(2, direction),
            90..97 => self.take(4, direction),
            kind => {
                let (shares, price) = (100 + self.below(900), self.best(direction));
                let order = if kind == 99 { -1 } else { 0 };
                Event { kind: if kind == 99 { 6 } else { 5 }, order, size: shares, price, direction }
            }
        }
    }

    fn best(&self, direction: i64) -> i64 {
        let best = if direction > 0 { self.bids.keys().next_back() } else { self.asks.keys().next() };
        best.copied().unwrap_or(5_853_300 / TICK * TICK)
    }

    /// Adds a limit order at a price worse than the best price of the other side.
    fn add(&mut self, direction: i64) -> Event {
        let (size, away) = (1 + self.below(500), (1 + self.below(40)) * TICK);
        let price = (self.best(-direction) - direction * away).max(TICK);
        let prices = if direction > 0 { &mut self.bids } else { &mut self.asks };
        *prices.entry(price).or_default() += size;
        self.next_order += 9;
        Event { kind: 1, order: self.next_order, size, price, direction }
    }

    /// Removes shares at one price of a side: the best price for an execution, all of its shares or
    /// a part.
    fn take(&mut self, kind: u8, direction: i64) -> Event {
        let depth = if kind == 4 { 0 } else { self.below(8) };
        let order = self.next_order - 9 * self.below(1000);
        let part = 1 + self.below(4);
        let prices = if direction > 0 { &mut self.bids } else { &mut self.asks };
        let depth = usize::try_from(depth).expect("small").min(prices.len() - 1);
        let price = if direction > 0 { prices.keys().rev().nth(depth) } else { prices.keys().nth(depth) };
        let price = *price.expect("the depth is within the prices");
        let there = prices[&price];
        let size = if kind == 3 { there } else { (there / part).max(1) };
        if size == there {
            prices.remove(&price);
        } else {
            prices.insert(price, there - size);
        }
        Event { kind, order, size, price, direction }
    }

    fn write_book(&self, levels: usize, book: &mut dyn Write) -> io::Result<()> {
        let mut asks = self.asks.iter();
        let mut bids = self.bids.iter().rev();
        for level in 0..levels {
            let (ask, ask_size) = asks.next().unwrap_or((&NO_ASK, &0));
            let (bid, bid_size) = bids.next().unwrap_or((&-NO_ASK, &0));
            let comma = if level == 0 { "" } else { "," };
            write!(book, "{comma}{ask},{ask_size},{bid},{bid_size}")?;
        }
        writeln!(book)
    }
}
