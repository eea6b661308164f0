//! Segments of the transport (IEX Transport Specification 1.25, "Outbound Transport Protocol"), as UDP carries them.

/// Version of the transport that is read.
const VERSION: u8 = 1;
/// Message protocol ids that the exchange has given out: TOPS 1.6, DEEP 1.0, DEEP+ 1.0.
const PROTOCOLS: std::ops::RangeInclusive<u16> = 0x8000..=0x80FF;
/// Bytes of the header.
const HEADER_BYTES: usize = 40;

/// What a datagram carries.
#[derive(Debug)]
pub(super) enum Carried<'p> {
    /// Nothing of this transport.
    Other,
    /// A segment whose header is cut.
    Cut,
    /// A segment.
    Segment(Segment<'p>),
}

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment<'p> {
    /// Message protocol id.
    pub(super) protocol: u16,
    pub(super) channel: u32,
    pub(super) session: u32,
    /// Messages that it is said to have; 0 in a heartbeat.
    pub(super) count: u16,
    /// Sequence number of the first one.
    pub(super) first: u64,
    /// When it was sent, since 1970, UTC.
    pub(super) send_ns: i64,
    /// The messages, as far as they are there.
    payload: &'p [u8],
}

impl<'p> Segment<'p> {
    /// What the payload of a datagram is.
    #[inline]
    pub(super) fn parse(payload: &'p [u8]) -> Carried<'p> {
        let Some((header, behind)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return match *payload {
                [VERSION, _, low, high, ..] if PROTOCOLS.contains(&u16::from_le_bytes([low, high])) => {
                    Carried::Cut
                }
                _ => Carried::Other,
            };
        };
        let protocol = u16::from_le_bytes([header[2], header[3]]);
        if header[0] != VERSION || !PROTOCOLS.contains(&protocol) {
            return Carried::Other;
        }
        let length = usize::from(u16::from_le_bytes([header[12], header[13]]));
        Carried::Segment(Self {
            protocol,
            channel: number(header, 4),
            session: number(header, 8),
            count: u16::from_le_bytes([header[14], header[15]]),
            first: wide(header, 24),
            send_ns: wide(header, 32).cast_signed(),
            payload: behind.get(..length).unwrap_or(behind),
        })
    }

    /// Whether a number in it is none: the specification has them as signed numbers of 64 bits.
    #[inline]
    pub(super) fn is_beyond_numbers(&self) -> bool {
        self.first.saturating_add(self.count.into()) > i64::MAX.cast_unsigned()
    }

    /// Its messages, type byte first, as many as are whole, at most as many as it is said to have.
    #[inline]
    pub(super) fn messages(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        let mut rest = self.payload;
        let whole = std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (message, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            rest = behind;
            Some(message)
        });
        whole.take(usize::from(self.count))
    }

    /// How many of its messages are whole.
    #[inline]
    pub(super) fn whole(&self) -> u16 {
        u16::try_from(self.messages().count()).unwrap_or(self.count)
    }
}

#[inline]
fn number(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
}

#[inline]
fn wide(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes)
}
