//! Cap'n Proto by the crate capnp, unpacked and packed, both without allocations: messages are
//! built in one small, reused segment, and read in place, or in the buffer that they are unpacked
//! to.

use capnp::message::{Builder, ReaderOptions, ReaderSegments, SingleSegmentAllocator};
use capnp::{Word, serialize, serialize_packed};

use super::Format;
use super::messages::{Kind, Message, Side};
use super::shootout_capnp::{self, message};
use super::sink::{Fields, Sink};

/// Longer than any message: a pointer and six words, and packed at worst an eighth more.
const SEGMENT_WORDS: usize = 16;

/// Segment table and segment as in memory. The segment is the builder's; the library copies it out.
pub struct Unpacked(SingleSegmentAllocator<'static>);

/// The same in packed form.
pub struct Packed(SingleSegmentAllocator<'static>, Vec<Word>);

impl Unpacked {
    pub fn new() -> Self {
        Self(segment())
    }
}

impl Packed {
    pub fn new() -> Self {
        Self(segment(), Word::allocate_zeroed_vec(SEGMENT_WORDS))
    }
}

/// Leaked: a bench creates only one, and a self-referential struct is not worth it.
fn segment() -> SingleSegmentAllocator<'static> {
    SingleSegmentAllocator::new(Word::words_to_bytes_mut(Word::allocate_zeroed_vec(SEGMENT_WORDS).leak()))
}

impl Format for Unpacked {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let available = room.len();
        let mut rest = room;
        for message in messages {
            let mut builder = Builder::new(&mut self.0);
            build(message, builder.init_root());
            serialize::write_message(&mut rest, &builder).unwrap();
        }
        available - rest.len()
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut rest = stream;
        for _ in 0..count {
            let options = ReaderOptions::new();
            let message = serialize::read_message_from_flat_slice_no_alloc(&mut rest, options).unwrap();
            take(&message, sink);
        }
        stream.len() - rest.len()
    }
}

impl Format for Packed {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let available = room.len();
        let mut rest = room;
        for message in messages {
            let mut builder = Builder::new(&mut self.0);
            build(message, builder.init_root());
            serialize_packed::write_message(&mut rest, &builder).unwrap();
        }
        available - rest.len()
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let mut rest = stream;
        for _ in 0..count {
            let unpacked = Word::words_to_bytes_mut(&mut self.1);
            let options = ReaderOptions::new();
            let message = serialize_packed::read_message_no_alloc(&mut rest, unpacked, options).unwrap();
            take(&message, sink);
        }
        stream.len() - rest.len()
    }
}

fn build(message: &Message, mut root: message::Builder<'_>) {
    root.set_timestamp(message.timestamp);
    root.set_sequence(message.sequence);
    root.set_symbol(u64::from_le_bytes(message.symbol));
    root.set_price(message.price);
    root.set_size(message.size);
    root.set_flags(message.flags);
    match message.kind {
        Kind::LevelUpdate(Side::Buy) => root.set_level_update(shootout_capnp::Side::Buy),
        Kind::LevelUpdate(Side::Sell) => root.set_level_update(shootout_capnp::Side::Sell),
        Kind::Trade { id } => root.set_trade(id),
    }
}

fn take<S: ReaderSegments>(message: &capnp::message::Reader<S>, sink: &mut impl Sink) {
    let root: message::Reader<'_> = message.get_root().unwrap();
    match root.which().unwrap() {
        message::LevelUpdate(side) => {
            let side = match side.unwrap() {
                shootout_capnp::Side::Buy => Side::Buy,
                shootout_capnp::Side::Sell => Side::Sell,
            };
            sink.level_update(&root, side);
        }
        message::Trade(id) => sink.trade(&root, || id),
    }
}

impl Fields for message::Reader<'_> {
    fn timestamp(&self) -> i64 {
        self.get_timestamp()
    }

    fn sequence(&self) -> u64 {
        self.get_sequence()
    }

    fn symbol(&self) -> [u8; 8] {
        self.get_symbol().to_le_bytes()
    }

    fn price(&self) -> i64 {
        self.get_price()
    }

    fn size(&self) -> u32 {
        self.get_size()
    }

    fn flags(&self) -> u8 {
        self.get_flags()
    }
}
