//! Parses segments of the transport protocol (IEX Transport Specification 1.25, "Outbound Transport
//! Protocol") in UDP datagrams.

/// The supported transport version.
const VERSION: u8 = 1;
/// Message protocol ids assigned by the exchange: TOPS 1.6, DEEP 1.0, DEEP+ 1.0.
const PROTOCOLS: std::ops::RangeInclusive<u16> = 0x8000..=0x80FF;
/// Length of the header, in bytes.
const HEADER_BYTES: usize = 40;

/// The content of a datagram.
#[derive(Debug)]
pub(super) enum DatagramContent<'p> {
    /// A datagram that does not belong to the IEX transport protocol.
    Other,
    /// A segment with a truncated header.
    Truncated,
    /// A segment.
    Segment(IexSegment<'p>),
}

/// A segment of the IEX transport protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct IexSegment<'p> {
    /// Message protocol id.
    pub(super) protocol: u16,
    pub(super) channel: u32,
    pub(super) session: u32,
    /// Claimed number of messages; 0 in a heartbeat.
    pub(super) count: u16,
    /// Sequence number of the first message.
    pub(super) first: u64,
    /// Send time in nanoseconds since 1970, UTC.
    pub(super) send_ns: i64,
    /// The captured part of the messages.
    payload: &'p [u8],
}

impl<'p> IexSegment<'p> {
    /// Parses the payload of a datagram.
    #[inline]
    pub(super) fn parse(payload: &'p [u8]) -> DatagramContent<'p> {
        let Some((header, tail)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return match *payload {
                [VERSION, _, low, high, ..] if PROTOCOLS.contains(&u16::from_le_bytes([low, high])) => {
                    DatagramContent::Truncated
                }
                _ => DatagramContent::Other,
            };
        };
        let protocol = u16::from_le_bytes([header[2], header[3]]);
        if header[0] != VERSION || !PROTOCOLS.contains(&protocol) {
            return DatagramContent::Other;
        }
        let length = usize::from(u16::from_le_bytes([header[12], header[13]]));
        DatagramContent::Segment(Self {
            protocol,
            channel: read_u32(header, 4),
            session: read_u32(header, 8),
            count: u16::from_le_bytes([header[14], header[15]]),
            first: read_u64(header, 24),
            send_ns: read_u64(header, 32).cast_signed(),
            payload: tail.get(..length).unwrap_or(tail),
        })
    }

    /// Returns whether a sequence number exceeds the specified range of signed 64-bit integers.
    #[inline]
    pub(super) fn exceeds_number_range(&self) -> bool {
        self.first.saturating_add(self.count.into()) > i64::MAX.cast_unsigned()
    }

    /// Returns the complete messages, but at most the claimed number. Each message starts with the
    /// type byte.
    #[inline]
    pub(super) fn messages(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        let mut rest = self.payload;
        let whole = std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk()?;
            let (message, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            rest = tail;
            Some(message)
        });
        whole.take(usize::from(self.count))
    }

    /// Returns the number of complete messages.
    #[inline]
    pub(super) fn complete_count(&self) -> u16 {
        u16::try_from(self.messages().count()).unwrap_or(self.count)
    }
}

#[inline]
fn read_u32(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
}

#[inline]
fn read_u64(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes)
}
