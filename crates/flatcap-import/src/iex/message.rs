//! Messages of DEEP 1.0 and TOPS 1.6, and their payloads (schemas/market/iex.fbs).
//!
//! Almost all messages belong to a few types with a fixed layout. Each type therefore has a
//! template, which is copied and filled with the values of the message.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_format::frame::{FrameTemplate, TemplateField, frame_template};
use flatcap_schemas::market::iex::{
    Auction, AuctionType, BookEventFlags, Header, ImbalanceSide, Message, MessageArgs, OfficialPrice,
    OfficialPriceType, OperationalHalt, OperationalHaltCode, PriceBandTier, PriceLevel, Quote, QuoteFlags,
    RetailLiquidity, RetailLiquidityCode, SaleConditions, SecurityDirectory, SecurityEvent,
    SecurityEventCode, SecurityFlags, ShortSaleDetail, ShortSalePriceTest, Side, SystemEvent,
    SystemEventCode, Trade, TradingStatus, TradingStatusCode,
};

use crate::{ImportError, RunWriter};

/// Binary schema of the payloads, and its root table.
pub(super) const SCHEMA: (&[u8], &str) =
    (include_bytes!("../../../../generated/market/iex.bfbs"), "flatcap.market.iex.Message");
/// Length of the part common to all messages (type, a code, time), in bytes.
const COMMON_BYTES: usize = 10;

/// The result of comparing a message with the specification of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// A message of exactly the specified length.
    Exact,
    /// A message that is longer than specified.
    Longer,
    /// A message of an unknown type.
    Unknown,
    /// A message that is shorter than its type requires.
    Short,
}

/// Returns the time of a message, in nanoseconds since 1970, UTC, or `None` if the message is too
/// short to have a time.
#[inline]
pub(super) fn time_ns(message: &[u8]) -> Option<i64> {
    message.get(2..)?.first_chunk().copied().map(i64::from_le_bytes)
}

/// The payload template of one message type, with the locations of its header and its structure.
#[derive(Debug)]
struct IexTemplate<const BYTES: usize> {
    template: FrameTemplate,
    header: TemplateField<[u8; 40]>,
    body: TemplateField<[u8; BYTES]>,
}

impl<const BYTES: usize> IexTemplate<BYTES> {
    fn new(field: &str, args: &MessageArgs<'_>) -> Self {
        let header = Header::default();
        let build = |builder: &mut FlatBufferBuilder<'static>| -> WIPOffset<Message<'static>> {
            Message::create(builder, &MessageArgs { header: Some(&header), ..*args })
        };
        let template = frame_template(SCHEMA, &["header", field], build);
        let expectation = "the field is the one that the model has";
        let (header, body) =
            (template.field("header").expect(expectation), template.field(field).expect(expectation));
        Self { template, header, body }
    }

    #[inline]
    fn append(
        &self,
        target: &mut MessageTarget<'_, '_>,
        header: &Header,
        body: [u8; BYTES],
    ) -> Result<(), ImportError> {
        let MessageTarget { recording, source, wall_ns } = target;
        recording.append(*source, *wall_ns, self.template.payload_bytes(), |payload| {
            let mut patch = self.template.fill(payload);
            patch.set(self.header, header.0);
            patch.set(self.body, body);
        })
    }
}

/// The run, source and capture time with which a message is recorded.
#[derive(Debug)]
pub(super) struct MessageTarget<'r, 's> {
    pub(super) recording: &'r mut RunWriter<'s>,
    pub(super) source: u16,
    /// Capture time.
    pub(super) wall_ns: i64,
}

/// Defines the templates of all types. Each type is stated as a payload field and the structure in
/// this field.
macro_rules! templates {
    ($($field:ident: $body:ident,)+) => {
        /// The templates of all types.
        #[derive(Debug)]
        pub(super) struct IexTemplates {
            $($field: IexTemplate<{ size_of::<$body>() }>,)+
        }

        impl IexTemplates {
            pub(super) fn new() -> Self {
                $(let $field = $body::default();)+
                let none = MessageArgs::default;
                Self {$(
                    $field: IexTemplate::new(
                        stringify!($field),
                        &MessageArgs { $field: Some(&$field), ..none() },
                    ),
                )+}
            }
        }
    };
}

templates! {
    price_level: PriceLevel,
    trade: Trade,
    quote: Quote,
    trading_status: TradingStatus,
    operational_halt: OperationalHalt,
    short_sale_price_test: ShortSalePriceTest,
    trade_break: Trade,
    system_event: SystemEvent,
    security_event: SecurityEvent,
    security_directory: SecurityDirectory,
    retail_liquidity: RetailLiquidity,
    official_price: OfficialPrice,
    auction: Auction,
}

impl IexTemplates {
    /// Records one message. The caller must have set all of `header` except the message's time and
    /// number of unknown bytes.
    #[inline]
    pub(super) fn append(
        &self,
        target: &mut MessageTarget<'_, '_>,
        header: &mut Header,
        message: &[u8],
    ) -> Result<MessageForm, ImportError> {
        header.set_timestamp_ns(time_ns(message).unwrap_or(0));
        let Some(known_bytes) = message.first().copied().and_then(min_bytes) else {
            return self::append_raw(target, header, message).map(|()| MessageForm::Unknown);
        };
        let Some(extra_bytes) = message.len().checked_sub(known_bytes) else {
            return self::append_raw(target, header, message).map(|()| MessageForm::Short);
        };
        header.set_unknown_bytes(u32::try_from(extra_bytes).unwrap_or(u32::MAX));
        self.append_known(target, header, message)?;
        Ok(if extra_bytes == 0 { MessageForm::Exact } else { MessageForm::Longer })
    }

    /// Records a message that is at least as long as its type requires.
    #[inline]
    fn append_known(
        &self,
        target: &mut MessageTarget<'_, '_>,
        header: &Header,
        message: &[u8],
    ) -> Result<(), ImportError> {
        let mut fields = FieldReader(message.get(COMMON_BYTES..).unwrap_or_default());
        let (kind, code) = message.first_chunk().map_or((0, 0), |[kind, code]| (*kind, *code));
        match kind {
            b'8' | b'5' => {
                let (symbol, size, price) = (fields.symbol(), fields.read_u32(), fields.read_i64());
                let flags = BookEventFlags::from_bits_retain(code);
                let body = PriceLevel::new(&symbol, price, size, Side(kind), flags);
                self.price_level.append(target, header, body.0)
            }
            b'T' => self.trade.append(target, header, fields.trade(code).0),
            b'Q' => {
                let (symbol, bid_size, bid) = (fields.symbol(), fields.read_u32(), fields.read_i64());
                let (ask, ask_size) = (fields.read_i64(), fields.read_u32());
                let flags = QuoteFlags::from_bits_retain(code);
                let body = Quote::new(&symbol, bid, ask, bid_size, ask_size, flags);
                self.quote.append(target, header, body.0)
            }
            b'H' => {
                let body =
                    TradingStatus::new(&fields.symbol(), &fields.short_text(), TradingStatusCode(code));
                self.trading_status.append(target, header, body.0)
            }
            b'O' => {
                let body = OperationalHalt::new(&fields.symbol(), OperationalHaltCode(code));
                self.operational_halt.append(target, header, body.0)
            }
            b'P' => {
                let body = ShortSalePriceTest::new(&fields.symbol(), code, ShortSaleDetail(fields.read_u8()));
                self.short_sale_price_test.append(target, header, body.0)
            }
            _ => self.append_rare(target, header, (kind, code), &mut fields),
        }
    }

    #[cold]
    fn append_rare(
        &self,
        target: &mut MessageTarget<'_, '_>,
        header: &Header,
        (kind, code): (u8, u8),
        fields: &mut FieldReader<'_>,
    ) -> Result<(), ImportError> {
        match kind {
            b'B' => self.trade_break.append(target, header, fields.trade(code).0),
            b'S' => self.system_event.append(target, header, SystemEvent::new(SystemEventCode(code)).0),
            b'E' => {
                let body = SecurityEvent::new(&fields.symbol(), SecurityEventCode(code));
                self.security_event.append(target, header, body.0)
            }
            b'I' => {
                let body = RetailLiquidity::new(&fields.symbol(), RetailLiquidityCode(code));
                self.retail_liquidity.append(target, header, body.0)
            }
            b'D' => {
                let (symbol, lot, close) = (fields.symbol(), fields.read_u32(), fields.read_i64());
                let (flags, tier) = (SecurityFlags::from_bits_retain(code), PriceBandTier(fields.read_u8()));
                let body = SecurityDirectory::new(&symbol, close, lot, flags, tier);
                self.security_directory.append(target, header, body.0)
            }
            b'X' => {
                let body = OfficialPrice::new(&fields.symbol(), fields.read_i64(), OfficialPriceType(code));
                self.official_price.append(target, header, body.0)
            }
            _ => self.auction.append(target, header, fields.auction(code).0),
        }
    }
}

/// Returns the minimum length of a message of this type.
#[inline]
fn min_bytes(kind: u8) -> Option<usize> {
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

/// Records a message as raw bytes.
#[cold]
fn append_raw(
    target: &mut MessageTarget<'_, '_>,
    header: &Header,
    message: &[u8],
) -> Result<(), ImportError> {
    let mut builder = FlatBufferBuilder::new();
    let other = Some(builder.create_vector(message));
    let root =
        Message::create(&mut builder, &MessageArgs { header: Some(header), other, ..MessageArgs::default() });
    builder.finish_minimal(root);
    let payload = builder.finished_data();
    target
        .recording
        .append(target.source, target.wall_ns, payload.len(), |buffer| buffer.copy_from_slice(payload))
}

/// Reads the fields of a message that follow its time, in sequence. The caller has checked the
/// length, so missing bytes are simply read as 0.
struct FieldReader<'m>(&'m [u8]);

impl FieldReader<'_> {
    #[inline]
    fn take<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; BYTES] };
        self.0 = rest;
        *field
    }

    #[inline]
    fn read_u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    #[inline]
    fn read_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    #[inline]
    fn read_i64(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }

    /// Returns a string of eight bytes, with trailing spaces replaced by zeros.
    #[inline]
    fn symbol(&mut self) -> [u8; 8] {
        let text = u64::from_le_bytes(self.take());
        // The last byte of the string is the most significant byte of the number.
        let spaces = (text ^ u64::from_le_bytes(*b"        ")).leading_zeros() / 8 * 8;
        (text & u64::MAX.checked_shr(spaces).unwrap_or(0)).to_le_bytes()
    }

    /// Returns a string of four bytes, with trailing spaces replaced by zeros.
    #[inline]
    fn short_text(&mut self) -> [u8; 4] {
        let text = self.read_u32();
        let spaces = (text ^ u32::from_le_bytes(*b"    ")).leading_zeros() / 8 * 8;
        (text & u32::MAX.checked_shr(spaces).unwrap_or(0)).to_le_bytes()
    }

    #[inline]
    fn trade(&mut self, code: u8) -> Trade {
        let (symbol, size, price, id) = (self.symbol(), self.read_u32(), self.read_i64(), self.read_i64());
        Trade::new(&symbol, price, id, size, SaleConditions::from_bits_retain(code))
    }

    fn auction(&mut self, code: u8) -> Auction {
        let (symbol, paired_shares) = (self.symbol(), self.read_u32());
        let (reference_price, indicative) = (self.read_i64(), self.read_i64());
        let (imbalance_shares, side, extensions) = (self.read_u32(), self.read_u8(), self.read_u8());
        let scheduled_time = self.read_u32();
        let mut auction = Auction::default();
        auction.set_symbol(&symbol);
        auction.set_reference_price(reference_price);
        auction.set_indicative_clearing_price(indicative);
        auction.set_book_clearing_price(self.read_i64());
        auction.set_collar_reference_price(self.read_i64());
        auction.set_lower_collar(self.read_i64());
        auction.set_upper_collar(self.read_i64());
        auction.set_paired_shares(paired_shares);
        auction.set_imbalance_shares(imbalance_shares);
        auction.set_scheduled_time(scheduled_time);
        auction.set_type_(AuctionType(code));
        auction.set_imbalance_side(ImbalanceSide(side));
        auction.set_extensions(extensions);
        auction
    }
}
