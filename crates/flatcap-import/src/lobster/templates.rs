//! Payload templates of messages and order books. A template is copied and filled with the values
//! of a row, so that no row needs a FlatBuffer builder.

use flatcap_format::frame::{FrameTemplate, TemplateField, TemplateList, frame_template};
use flatcap_schemas::market::lobster as wire;

use super::row::MessageRow;

/// The binary schema of messages and order books.
pub(super) const SCHEMA: &[u8] = include_bytes!("../../../../generated/market/lobster.bfbs");
pub(super) const MESSAGE: &str = "flatcap.market.lobster.Message";
pub(super) const ORDER_BOOK: &str = "flatcap.market.lobster.OrderBook";
/// Panic message of `expect`. Creating a template of our own schema cannot fail.
const OWN_SCHEMA: &str = "a model of our own schema";

/// The payload template of a message.
#[derive(Debug)]
pub(super) struct MessageTemplate {
    template: FrameTemplate,
    time: TemplateField<f64>,
    event_type: TemplateField<u8>,
    order_id: TemplateField<i64>,
    size: TemplateField<i64>,
    price: TemplateField<i64>,
    direction: TemplateField<i8>,
}

impl MessageTemplate {
    pub(super) fn new() -> Self {
        let paths = ["time", "type", "order_id", "size", "price", "direction"];
        let template = frame_template((SCHEMA, MESSAGE), &paths, |builder| {
            wire::Message::create(builder, &wire::MessageArgs::default())
        });
        Self {
            time: template.field("time").expect(OWN_SCHEMA),
            event_type: template.field("type").expect(OWN_SCHEMA),
            order_id: template.field("order_id").expect(OWN_SCHEMA),
            size: template.field("size").expect(OWN_SCHEMA),
            price: template.field("price").expect(OWN_SCHEMA),
            direction: template.field("direction").expect(OWN_SCHEMA),
            template,
        }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.template.payload_bytes()
    }

    #[inline]
    pub(super) fn fill(&self, row: &MessageRow, payload: &mut [u8]) {
        let mut patch = self.template.fill(payload);
        patch.set(self.time, row.time.seconds);
        patch.set(self.event_type, row.event_type);
        patch.set(self.order_id, row.order_id);
        patch.set(self.size, row.size);
        patch.set(self.price, row.price);
        patch.set(self.direction, row.direction);
    }
}

/// The payload template of an order book with a fixed number of levels.
#[derive(Debug)]
pub(super) struct OrderBookTemplate {
    template: FrameTemplate,
    time: TemplateField<f64>,
    levels: TemplateList,
}

impl OrderBookTemplate {
    pub(super) fn new(levels: usize) -> Self {
        let template = frame_template((SCHEMA, ORDER_BOOK), &["time", "levels[]"], |builder| {
            let levels = builder.create_vector(&vec![wire::Level::default(); levels]);
            wire::OrderBook::create(builder, &wire::OrderBookArgs { levels: Some(levels), time: 0.0 })
        });
        Self {
            time: template.field("time").expect(OWN_SCHEMA),
            levels: template.list("levels[]").expect(OWN_SCHEMA),
            template,
        }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.template.payload_bytes()
    }

    /// Writes a payload. `levels` has the layout of the payload.
    #[inline]
    pub(super) fn fill(&self, seconds: f64, levels: &[u8], payload: &mut [u8]) {
        let mut patch = self.template.fill(payload);
        patch.set(self.time, seconds);
        let elements = patch.elements(&self.levels);
        debug_assert!(elements.len() == levels.len(), "a row of the file's levels");
        elements.copy_from_slice(levels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lobster::row::{self, LEVEL_BYTES};

    // Proves that payloads made from templates pass the verifier and are read back. Method: unknown
    // event types and books of several depths are included.
    #[test]
    fn patched_payloads_read_back() {
        let row = row::parse_message(b"34200.004241176,200,-16,18,9999999999,-1").unwrap();
        let template = MessageTemplate::new();
        let mut payload = vec![0xAA; template.payload_bytes()];
        template.fill(&row, &mut payload);
        let read = flatbuffers::root::<wire::Message<'_>>(&payload).unwrap();
        assert_eq!(read.time().to_bits(), 34_200.004_241_176_f64.to_bits());
        assert_eq!((read.type_().0, read.order_id(), read.size()), (200, -16, 18));
        assert_eq!((read.price(), read.direction()), (9_999_999_999, -1));

        for levels in [1, 5, 10, row::LEVELS_MAX] {
            let text: Vec<String> = (0..4 * levels).map(|n| (n * 7).to_string()).collect();
            let mut buffer = vec![0; levels * LEVEL_BYTES];
            row::parse_order_book(text.join(",").as_bytes(), &mut buffer).unwrap();
            let template = OrderBookTemplate::new(levels);
            let mut payload = vec![0xAA; template.payload_bytes()];
            template.fill(1.5, &buffer, &mut payload);
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
