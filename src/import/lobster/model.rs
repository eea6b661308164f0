//! Payloads of messages and order books: models that are copied and patched, nothing is built for a row.

use super::row::Message;
use crate::frame::{FrameTemplate, List, Slot, model};
use crate::schema::market::lobster as wire;

/// The binary schema of both.
pub(super) const SCHEMA: &[u8] = include_bytes!("../../../generated/market/lobster.bfbs");
pub(super) const MESSAGE: &str = "flatcap.market.lobster.Message";
pub(super) const ORDER_BOOK: &str = "flatcap.market.lobster.OrderBook";
/// Why making a model and its slots cannot fail.
const OWN: &str = "a model of our own schema";

/// The payload of a message.
#[derive(Debug)]
pub(super) struct MessageModel {
    model: FrameTemplate,
    time: Slot<f64>,
    event_type: Slot<u8>,
    order_id: Slot<i64>,
    size: Slot<i64>,
    price: Slot<i64>,
    direction: Slot<i8>,
}

impl MessageModel {
    pub(super) fn new() -> Self {
        let paths = ["time", "type", "order_id", "size", "price", "direction"];
        let model = model((SCHEMA, MESSAGE), &paths, |builder| {
            wire::Message::create(builder, &wire::MessageArgs::default())
        });
        Self {
            time: model.slot("time").expect(OWN),
            event_type: model.slot("type").expect(OWN),
            order_id: model.slot("order_id").expect(OWN),
            size: model.slot("size").expect(OWN),
            price: model.slot("price").expect(OWN),
            direction: model.slot("direction").expect(OWN),
            model,
        }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.model.payload_bytes()
    }

    #[inline]
    pub(super) fn fill(&self, row: &Message, payload: &mut [u8]) {
        let mut patch = self.model.fill(payload);
        patch.set(self.time, row.time.seconds);
        patch.set(self.event_type, row.event_type);
        patch.set(self.order_id, row.order_id);
        patch.set(self.size, row.size);
        patch.set(self.price, row.price);
        patch.set(self.direction, row.direction);
    }
}

/// The payload of an order book of so many levels.
#[derive(Debug)]
pub(super) struct OrderBookModel {
    model: FrameTemplate,
    time: Slot<f64>,
    levels: List,
}

impl OrderBookModel {
    pub(super) fn new(levels: usize) -> Self {
        let model = model((SCHEMA, ORDER_BOOK), &["time", "levels[]"], |builder| {
            let levels = builder.create_vector(&vec![wire::Level::default(); levels]);
            wire::OrderBook::create(builder, &wire::OrderBookArgs { levels: Some(levels), time: 0.0 })
        });
        Self { time: model.slot("time").expect(OWN), levels: model.list("levels[]").expect(OWN), model }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.model.payload_bytes()
    }

    /// `levels` is what they are in a payload.
    #[inline]
    pub(super) fn fill(&self, seconds: f64, levels: &[u8], payload: &mut [u8]) {
        let mut patch = self.model.fill(payload);
        patch.set(self.time, seconds);
        let room = patch.elements(&self.levels);
        debug_assert!(room.len() == levels.len(), "a row of the file's levels");
        room.copy_from_slice(levels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::lobster::row::{self, LEVEL_BYTES};

    // Goal: what is patched is what a reader sees, under the verifier. Method: rows with all values different, one of them with an event
    // type that has no name; books of several depths.
    #[test]
    fn patched_payloads_read_back() {
        let row = row::message(b"34200.004241176,200,-16,18,9999999999,-1").unwrap();
        let model = MessageModel::new();
        let mut payload = vec![0xAA; model.payload_bytes()];
        model.fill(&row, &mut payload);
        let read = flatbuffers::root::<wire::Message<'_>>(&payload).unwrap();
        assert_eq!(read.time().to_bits(), 34_200.004_241_176_f64.to_bits());
        assert_eq!((read.type_().0, read.order_id(), read.size()), (200, -16, 18));
        assert_eq!((read.price(), read.direction()), (9_999_999_999, -1));

        for levels in [1, 5, 10, row::LEVELS_MAX] {
            let text: Vec<String> = (0..4 * levels).map(|n| (n * 7).to_string()).collect();
            let mut room = vec![0; levels * LEVEL_BYTES];
            row::order_book(text.join(",").as_bytes(), &mut room).unwrap();
            let model = OrderBookModel::new(levels);
            let mut payload = vec![0xAA; model.payload_bytes()];
            model.fill(1.5, &room, &mut payload);
            let read = flatbuffers::root::<wire::OrderBook<'_>>(&payload).unwrap();
            assert_eq!((read.time().to_bits(), read.levels().len()), (1.5_f64.to_bits(), levels));
            let numbers = read
                .levels()
                .iter()
                .flat_map(|level| [level.ask_price(), level.ask_size(), level.bid_price(), level.bid_size()]);
            assert!(numbers.eq((0..4 * i64::try_from(levels).unwrap()).map(|n| n * 7)));
        }
    }
}
