//! Reads network captures in the formats pcap and pcapng, that is, packets with their capture
//! times. Also extracts the UDP datagrams from the packets.
//!
//! The module never guesses a format from a file's name, never skips damage without reporting it,
//! and does not interpret the datagrams' payloads.

mod datagram;
mod parse_step;
mod pcap;
mod pcapng;

use std::path::Path;

pub use datagram::{SkipReason, datagram};

use self::parse_step::{PacketLocation, ParseStep, SEARCH_BYTES};
use self::pcap::Pcap;
use self::pcapng::Pcapng;
use super::window::InputWindow;
use super::{ImportError, ImportReport, Input};

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture {
    window: InputWindow,
    format: CaptureFormat,
    is_ended: bool,
    is_damaged: bool, // since the last packet
}

#[derive(Debug)]
enum CaptureFormat {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// A captured packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'c> {
    /// Offset of the packet's record in the file.
    pub offset: u64,
    /// Capture time in nanoseconds since 1970, UTC, or 0 if it is unknown.
    pub wall_ns: i64,
    /// The packet's link type (`LINKTYPE_`), as listed at tcpdump.org.
    pub link: u32,
    /// The captured bytes.
    pub bytes: &'c [u8],
    /// Whether bytes between this packet and the previous one could not be read.
    pub follows_damage: bool,
}

/// The offset of a packet's record, and the location of the packet's bytes.
struct LocatedPacket {
    offset: u64,
    location: PacketLocation,
}

impl CaptureFormat {
    #[inline]
    fn parse(&mut self, bytes: &[u8]) -> ParseStep {
        match self {
            Self::Pcap(pcap) => pcap.parse_record(bytes),
            Self::Pcapng(pcapng) => pcapng.parse_block(bytes),
        }
    }

    fn is_plausible(&self, bytes: &[u8], is_end: bool) -> bool {
        match self {
            Self::Pcap(pcap) => pcap.is_plausible(bytes, is_end),
            Self::Pcapng(pcapng) => pcapng.is_plausible(bytes),
        }
    }
}

impl Capture {
    /// Opens a file. Detects its format from the first bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is not a capture.
    pub fn open(input: Input) -> Result<Self, ImportError> {
        let mut window = InputWindow::new(input);
        window.fill(24)?;
        let bytes = window.unconsumed();
        let format = if Pcapng::is_pcapng(bytes) {
            CaptureFormat::Pcapng(Pcapng::default())
        } else if let Some((pcap, header_bytes)) = Pcap::parse_header(bytes) {
            window.consume(header_bytes);
            CaptureFormat::Pcap(pcap)
        } else {
            let begin = bytes.get(..bytes.len().min(4)).unwrap_or_default();
            let what = format!(
                "not a capture: its first bytes are {begin:02x?}, neither those of pcap nor those of pcapng; give the file as it was captured, plain or gzip"
            );
            return Err(ImportError::Kind { path: window.input().path().to_owned(), what });
        };
        Ok(Self { window, format, is_ended: false, is_damaged: false })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.window.input().path()
    }

    /// Returns the number of decompressed bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.window.offset()
    }

    /// Returns the next packet. If bytes are damaged, reports the damage and continues at the next
    /// plausible packet.
    ///
    /// # Errors
    /// The file cannot be read.
    #[inline]
    pub fn next(&mut self, report: &mut ImportReport) -> Result<Option<Packet<'_>>, ImportError> {
        let Some(LocatedPacket { offset, location: place }) = self.next_location(report)? else {
            return Ok(None);
        };
        let is_behind_damage = std::mem::take(&mut self.is_damaged);
        let PacketLocation { wall_ns, link, range: at, .. } = place;
        // The packet is consumed, but the window still holds its bytes.
        let bytes = self.window.consumed(at);
        Ok(Some(Packet { offset, wall_ns, link, bytes, follows_damage: is_behind_damage }))
    }

    #[inline]
    fn next_location(&mut self, report: &mut ImportReport) -> Result<Option<LocatedPacket>, ImportError> {
        let mut requested_bytes = 0;
        while !self.is_ended {
            let offset = self.window.offset();
            match self.format.parse(self.window.unconsumed()) {
                ParseStep::Packet(mut place) => {
                    place.range = self.window.consume_over(place.range, place.end);
                    return Ok(Some(LocatedPacket { offset, location: place }));
                }
                ParseStep::Need(bytes) if bytes <= requested_bytes || self.window.has_ended() => {
                    self.finish(report);
                }
                ParseStep::Need(bytes) => {
                    requested_bytes = bytes;
                    self.window.fill(bytes)?;
                    continue;
                }
                ParseStep::Skip(bytes) => {
                    if self.window.skip(bytes)? < bytes {
                        self.report_flaw(report, offset, "the capture ends inside a block");
                        self.is_ended = true;
                    }
                }
                ParseStep::Unreadable { end, what } => {
                    self.report_flaw(report, offset, what);
                    self.window.consume(end);
                }
                ParseStep::Damaged(what) => self.resync(report, what)?,
            }
            requested_bytes = 0;
        }
        Ok(None)
    }

    /// Ends the capture, because no complete packet follows.
    #[cold]
    fn finish(&mut self, report: &mut ImportReport) {
        self.is_ended = true;
        let (offset, rest) = (self.window.offset(), self.window.unconsumed().len());
        if let Some(what) = self.window.take_damage() {
            self.report_flaw(report, offset + rest as u64, &what);
        }
        if rest > 0 {
            self.report_flaw(
                report,
                offset,
                &format!("the capture ends inside a packet, {rest} bytes after its start"),
            );
        }
        self.window.consume(rest);
    }

    /// Advances to the next offset at which a packet can begin.
    #[cold]
    fn resync(&mut self, report: &mut ImportReport, what: &str) -> Result<(), ImportError> {
        let offset = self.window.offset();
        self.window.consume(1);
        loop {
            // The parser can decide whether a packet starts here only if the whole packet and the
            // header of the next packet are in the window.
            self.window.fill(SEARCH_BYTES)?;
            let (bytes, is_end) = (self.window.unconsumed(), self.window.has_ended());
            let candidates =
                if is_end { bytes.len() } else { bytes.len().saturating_sub(SEARCH_BYTES / 4 * 3) };
            let found = (0..candidates)
                .find(|at| self.format.is_plausible(bytes.get(*at..).unwrap_or_default(), is_end));
            self.window.consume(found.unwrap_or(candidates));
            if found.is_some() || is_end {
                let skipped_bytes = self.window.offset() - offset;
                self.report_flaw(report, offset, &format!("{what}; {skipped_bytes} bytes skipped"));
                return Ok(());
            }
        }
    }

    fn report_flaw(&mut self, report: &mut ImportReport, offset: u64, what: &str) {
        self.is_damaged = true;
        report.add_flaw(self.window.input().path(), offset, None, what);
    }
}

#[cfg(test)]
mod tests;
