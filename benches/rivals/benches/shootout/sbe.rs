//! Simple Binary Encoding: the codecs that the official tool makes for Rust, used as its own examples use them.

use super::shootout_sbe::level_update_codec::{self, LevelUpdateDecoder, LevelUpdateEncoder};
use super::shootout_sbe::message_header_codec::{ENCODED_LENGTH, MessageHeaderDecoder};
use super::shootout_sbe::trade_codec::{self, TradeDecoder, TradeEncoder};
use super::shootout_sbe::{ReadBuf, WriteBuf, side};

use super::Format;
use super::messages::{Kind, Message, Side};
use super::sink::{Fields, Sink};

/// Each message behind its message header, which is all the framing that the format has.
pub struct Sbe;

impl Format for Sbe {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        let mut end = 0;
        for message in messages {
            end += write_one(message, &mut room[end..]);
        }
        end
    }

    fn read(&mut self, stream: &[u8], count: usize, sink: &mut impl Sink) -> usize {
        let buffer = ReadBuf::new(stream);
        let mut at = 0;
        for _ in 0..count {
            let header = MessageHeaderDecoder::default().wrap(buffer, at);
            at += ENCODED_LENGTH + usize::from(header.block_length());
            match header.template_id() {
                level_update_codec::SBE_TEMPLATE_ID => {
                    let start = at - ENCODED_LENGTH - usize::from(header.block_length());
                    let update = LevelUpdateDecoder::default().header(header, start);
                    let side = match update.side() {
                        side::Side::Buy => Side::Buy,
                        _ => Side::Sell,
                    };
                    sink.level_update(&update, side);
                }
                trade_codec::SBE_TEMPLATE_ID => {
                    let start = at - ENCODED_LENGTH - usize::from(header.block_length());
                    let trade = TradeDecoder::default().header(header, start);
                    sink.trade(&trade, || trade.trade_id());
                }
                other => panic!("no message has the template {other}"),
            }
        }
        at
    }
}

fn write_one(message: &Message, room: &mut [u8]) -> usize {
    let buffer = WriteBuf::new(room);
    match message.kind {
        Kind::LevelUpdate(side) => {
            let encoder = LevelUpdateEncoder::default().wrap(buffer, ENCODED_LENGTH);
            let mut encoder = encoder.header(0).parent().unwrap();
            encoder.timestamp(message.timestamp).sequence(message.sequence).symbol(&message.symbol);
            encoder.price(message.price).size(message.size).flags(message.flags);
            encoder.side(match side {
                Side::Buy => side::Side::Buy,
                Side::Sell => side::Side::Sell,
            });
            ENCODED_LENGTH + encoder.encoded_length()
        }
        Kind::Trade { id } => {
            let encoder = TradeEncoder::default().wrap(buffer, ENCODED_LENGTH);
            let mut encoder = encoder.header(0).parent().unwrap();
            encoder.timestamp(message.timestamp).sequence(message.sequence).symbol(&message.symbol);
            encoder.price(message.price).size(message.size).flags(message.flags).trade_id(id);
            ENCODED_LENGTH + encoder.encoded_length()
        }
    }
}

macro_rules! fields {
    ($($decoder:ident),*) => {$(
        impl Fields for $decoder<'_> {
            fn timestamp(&self) -> i64 {
                $decoder::timestamp(self)
            }

            fn sequence(&self) -> u64 {
                $decoder::sequence(self)
            }

            fn symbol(&self) -> [u8; 8] {
                $decoder::symbol(self)
            }

            fn price(&self) -> i64 {
                $decoder::price(self)
            }

            fn size(&self) -> u32 {
                $decoder::size(self)
            }

            fn flags(&self) -> u8 {
                $decoder::flags(self)
            }
        }
    )*};
}

fields!(LevelUpdateDecoder, TradeDecoder);
