//! Messages of DEEP 1.0 and TOPS 1.6, and the payloads they become (schemas/market/iex.fbs).
//!
//! Almost all messages are of few kinds, each of which has one shape. So each kind has a model, which is copied and patched.

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use crate::frame::model;
use crate::import::{ImportError, Recording};
use crate::schema::market::iex::{
    Auction, AuctionType, BookEventFlags, Header, ImbalanceSide, Message, MessageArgs, OfficialPrice,
    OfficialPriceType, OperationalHalt, OperationalHaltCode, PriceBandTier, PriceLevel, Quote, QuoteFlags,
    RetailLiquidity, RetailLiquidityCode, SaleConditions, SecurityDirectory, SecurityEvent,
    SecurityEventCode, SecurityFlags, ShortSaleDetail, ShortSalePriceTest, Side, SystemEvent,
    SystemEventCode, Trade, TradingStatus, TradingStatusCode,
};
use crate::stream::{FrameTemplate, Slot};

/// Binary schema of the payloads, and their root.
pub(super) const SCHEMA: (&[u8], &str) =
    (include_bytes!("../../../generated/market/iex.bfbs"), "flatcap.market.iex.Message");
/// Bytes that all messages begin with: type, a code, time.
const COMMON_BYTES: usize = 10;

/// What a message was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// All of it is known.
    Whole,
    /// There is more than is known.
    Longer,
    /// Of a type that is not known.
    Unknown,
    /// Shorter than its type.
    Short,
}

/// The time of a message, in nanoseconds since 1970, UTC; none where it is too short for one.
#[inline]
pub(super) fn time_ns(message: &[u8]) -> Option<i64> {
    message.get(2..)?.first_chunk().copied().map(i64::from_le_bytes)
}

/// The payload of one kind, with the places of its header and its own structure.
#[derive(Debug)]
struct Kind<const BYTES: usize> {
    template: FrameTemplate,
    header: Slot<[u8; 40]>,
    body: Slot<[u8; BYTES]>,
}

impl<const BYTES: usize> Kind<BYTES> {
    fn new(field: &str, args: &MessageArgs<'_>) -> Self {
        let header = Header::default();
        let build = |builder: &mut FlatBufferBuilder<'static>| -> WIPOffset<Message<'static>> {
            Message::create(builder, &MessageArgs { header: Some(&header), ..*args })
        };
        let template = model(SCHEMA, &["header", field], build);
        let proof = "the field is the one that the model has";
        let (header, body) = (template.slot("header").expect(proof), template.slot(field).expect(proof));
        Self { template, header, body }
    }

    #[inline]
    fn append(
        &self,
        place: &mut Place<'_, '_>,
        header: &Header,
        body: [u8; BYTES],
    ) -> Result<(), ImportError> {
        let Place { recording, source, wall_ns } = place;
        recording.append(*source, *wall_ns, self.template.payload_bytes(), |payload| {
            let mut patch = self.template.fill(payload);
            patch.set(self.header, header.0);
            patch.set(self.body, body);
        })
    }
}

/// Where a message is recorded.
#[derive(Debug)]
pub(super) struct Place<'r, 's> {
    pub(super) recording: &'r mut Recording<'s>,
    pub(super) source: u16,
    /// When it was captured.
    pub(super) wall_ns: i64,
}

/// The models of all kinds.
#[derive(Debug)]
pub(super) struct Models {
    price_level: Kind<24>,
    trade: Kind<32>,
    quote: Kind<40>,
    trading_status: Kind<13>,
    operational_halt: Kind<9>,
    short_sale_price_test: Kind<10>,
    trade_break: Kind<32>,
    system_event: Kind<1>,
    security_event: Kind<9>,
    security_directory: Kind<24>,
    retail_liquidity: Kind<9>,
    official_price: Kind<24>,
    auction: Kind<72>,
}

impl Models {
    pub(super) fn new() -> Self {
        let none = MessageArgs::default;
        let trade = Trade::default();
        Self {
            price_level: Kind::new(
                "price_level",
                &MessageArgs { price_level: Some(&PriceLevel::default()), ..none() },
            ),
            trade: Kind::new("trade", &MessageArgs { trade: Some(&trade), ..none() }),
            quote: Kind::new("quote", &MessageArgs { quote: Some(&Quote::default()), ..none() }),
            trading_status: Kind::new(
                "trading_status",
                &MessageArgs { trading_status: Some(&TradingStatus::default()), ..none() },
            ),
            operational_halt: Kind::new(
                "operational_halt",
                &MessageArgs { operational_halt: Some(&OperationalHalt::default()), ..none() },
            ),
            short_sale_price_test: Kind::new(
                "short_sale_price_test",
                &MessageArgs { short_sale_price_test: Some(&ShortSalePriceTest::default()), ..none() },
            ),
            trade_break: Kind::new("trade_break", &MessageArgs { trade_break: Some(&trade), ..none() }),
            system_event: Kind::new(
                "system_event",
                &MessageArgs { system_event: Some(&SystemEvent::default()), ..none() },
            ),
            security_event: Kind::new(
                "security_event",
                &MessageArgs { security_event: Some(&SecurityEvent::default()), ..none() },
            ),
            security_directory: Kind::new(
                "security_directory",
                &MessageArgs { security_directory: Some(&SecurityDirectory::default()), ..none() },
            ),
            retail_liquidity: Kind::new(
                "retail_liquidity",
                &MessageArgs { retail_liquidity: Some(&RetailLiquidity::default()), ..none() },
            ),
            official_price: Kind::new(
                "official_price",
                &MessageArgs { official_price: Some(&OfficialPrice::default()), ..none() },
            ),
            auction: Kind::new("auction", &MessageArgs { auction: Some(&Auction::default()), ..none() }),
        }
    }

    /// Records one message. `header` has everything but the message's time and what it has behind the known fields.
    #[inline]
    pub(super) fn append(
        &self,
        place: &mut Place<'_, '_>,
        header: &mut Header,
        message: &[u8],
    ) -> Result<Found, ImportError> {
        header.set_timestamp_ns(time_ns(message).unwrap_or(0));
        let Some(known_bytes) = message.first().copied().and_then(bytes_of) else {
            return self::other(place, header, message).map(|()| Found::Unknown);
        };
        let Some(beyond) = message.len().checked_sub(known_bytes) else {
            return self::other(place, header, message).map(|()| Found::Short);
        };
        header.set_unknown_bytes(u32::try_from(beyond).unwrap_or(u32::MAX));
        self.append_known(place, header, message)?;
        Ok(if beyond == 0 { Found::Whole } else { Found::Longer })
    }

    /// Records a message that is as long as its type, or longer.
    #[inline]
    fn append_known(
        &self,
        place: &mut Place<'_, '_>,
        header: &Header,
        message: &[u8],
    ) -> Result<(), ImportError> {
        let mut fields = Fields(message.get(COMMON_BYTES..).unwrap_or_default());
        let (kind, code) = message.first_chunk().map_or((0, 0), |[kind, code]| (*kind, *code));
        match kind {
            b'8' | b'5' => {
                let (symbol, size, price) = (fields.symbol(), fields.number(), fields.wide());
                let flags = BookEventFlags::from_bits_retain(code);
                let body = PriceLevel::new(&symbol, price, size, Side(kind), flags);
                self.price_level.append(place, header, body.0)
            }
            b'T' => self.trade.append(place, header, fields.trade(code).0),
            b'Q' => {
                let (symbol, bid_size, bid) = (fields.symbol(), fields.number(), fields.wide());
                let (ask, ask_size) = (fields.wide(), fields.number());
                let flags = QuoteFlags::from_bits_retain(code);
                let body = Quote::new(&symbol, bid, ask, bid_size, ask_size, flags);
                self.quote.append(place, header, body.0)
            }
            b'H' => {
                let body = TradingStatus::new(&fields.symbol(), &fields.reason(), TradingStatusCode(code));
                self.trading_status.append(place, header, body.0)
            }
            b'O' => {
                let body = OperationalHalt::new(&fields.symbol(), OperationalHaltCode(code));
                self.operational_halt.append(place, header, body.0)
            }
            b'P' => {
                let body = ShortSalePriceTest::new(&fields.symbol(), code, ShortSaleDetail(fields.byte()));
                self.short_sale_price_test.append(place, header, body.0)
            }
            _ => self.append_rare(place, header, (kind, code), &mut fields),
        }
    }

    #[cold]
    fn append_rare(
        &self,
        place: &mut Place<'_, '_>,
        header: &Header,
        (kind, code): (u8, u8),
        fields: &mut Fields<'_>,
    ) -> Result<(), ImportError> {
        match kind {
            b'B' => self.trade_break.append(place, header, fields.trade(code).0),
            b'S' => self.system_event.append(place, header, SystemEvent::new(SystemEventCode(code)).0),
            b'E' => {
                let body = SecurityEvent::new(&fields.symbol(), SecurityEventCode(code));
                self.security_event.append(place, header, body.0)
            }
            b'I' => {
                let body = RetailLiquidity::new(&fields.symbol(), RetailLiquidityCode(code));
                self.retail_liquidity.append(place, header, body.0)
            }
            b'D' => {
                let (symbol, lot, close) = (fields.symbol(), fields.number(), fields.wide());
                let (flags, tier) = (SecurityFlags::from_bits_retain(code), PriceBandTier(fields.byte()));
                let body = SecurityDirectory::new(&symbol, close, lot, flags, tier);
                self.security_directory.append(place, header, body.0)
            }
            b'X' => {
                let body = OfficialPrice::new(&fields.symbol(), fields.wide(), OfficialPriceType(code));
                self.official_price.append(place, header, body.0)
            }
            _ => self.auction.append(place, header, fields.auction(code).0),
        }
    }
}

/// Bytes that a message of a type has at least.
#[inline]
fn bytes_of(kind: u8) -> Option<usize> {
    Some(match kind {
        b'H' => 22,
        b'O' | b'E' | b'I' => 18,
        b'P' => 19,
        b'8' | b'5' => 30,
        b'T' | b'B' => 38,
        b'Q' => 42,
        b'S' => COMMON_BYTES,
        b'D' => 31,
        b'X' => 26,
        b'A' => 80,
        _ => return None,
    })
}

/// Records a message as its bytes.
#[cold]
fn other(place: &mut Place<'_, '_>, header: &Header, message: &[u8]) -> Result<(), ImportError> {
    let mut builder = FlatBufferBuilder::new();
    let other = Some(builder.create_vector(message));
    let root =
        Message::create(&mut builder, &MessageArgs { header: Some(header), other, ..MessageArgs::default() });
    builder.finish_minimal(root);
    let payload = builder.finished_data();
    place.recording.append(place.source, place.wall_ns, payload.len(), |room| room.copy_from_slice(payload))
}

/// The fields of a message from behind its time on, one after the other. What is not there is 0: lengths were judged before.
struct Fields<'m>(&'m [u8]);

impl Fields<'_> {
    #[inline]
    fn take<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; BYTES] };
        self.0 = rest;
        *field
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    #[inline]
    fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    #[inline]
    fn wide(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }

    /// Text of eight bytes, zeros in place of the spaces at its end.
    #[inline]
    fn symbol(&mut self) -> [u8; 8] {
        let text = u64::from_le_bytes(self.take());
        // The last byte of the text is the highest of the number.
        let spaces = (text ^ u64::from_le_bytes(*b"        ")).leading_zeros() / 8 * 8;
        (text & u64::MAX.checked_shr(spaces).unwrap_or(0)).to_le_bytes()
    }

    /// The same of four.
    #[inline]
    fn reason(&mut self) -> [u8; 4] {
        let text = self.number();
        let spaces = (text ^ u32::from_le_bytes(*b"    ")).leading_zeros() / 8 * 8;
        (text & u32::MAX.checked_shr(spaces).unwrap_or(0)).to_le_bytes()
    }

    #[inline]
    fn trade(&mut self, code: u8) -> Trade {
        let (symbol, size, price, id) = (self.symbol(), self.number(), self.wide(), self.wide());
        Trade::new(&symbol, price, id, size, SaleConditions::from_bits_retain(code))
    }

    fn auction(&mut self, code: u8) -> Auction {
        let (symbol, paired_shares) = (self.symbol(), self.number());
        let (reference_price, indicative) = (self.wide(), self.wide());
        let (imbalance_shares, side, extensions) = (self.number(), self.byte(), self.byte());
        let scheduled_time = self.number();
        let mut auction = Auction::default();
        auction.set_symbol(&symbol);
        auction.set_reference_price(reference_price);
        auction.set_indicative_clearing_price(indicative);
        auction.set_book_clearing_price(self.wide());
        auction.set_collar_reference_price(self.wide());
        auction.set_lower_collar(self.wide());
        auction.set_upper_collar(self.wide());
        auction.set_paired_shares(paired_shares);
        auction.set_imbalance_shares(imbalance_shares);
        auction.set_scheduled_time(scheduled_time);
        auction.set_type_(AuctionType(code));
        auction.set_imbalance_side(ImbalanceSide(side));
        auction.set_extensions(extensions);
        auction
    }
}
