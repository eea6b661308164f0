//! What is in a capture of a network? Packets with their times, from pcap and pcapng, and the datagrams in them.
//!
//! Never: guesses a format from a file's name; passes over damage unsaid; knows what a datagram's payload means.

mod datagram;
mod pcap;
mod pcapng;
mod step;
mod window;

use std::path::Path;

pub use datagram::{Datagram, NoDatagram, datagram};

use self::pcap::Pcap;
use self::pcapng::Pcapng;
use self::step::{Place, Step};
use self::window::{WINDOW_BYTES, Window};
use super::{ImportError, Input, Report};

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture {
    window: Window,
    format: Format,
    is_ended: bool,
    is_damaged: bool, // since the last packet
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// A packet as it was captured.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'c> {
    /// Where its record begins in the file.
    pub offset: u64,
    /// When it was captured, in nanoseconds since 1970, UTC; 0 where the capture does not say.
    pub wall_ns: i64,
    /// Its `LINKTYPE_`, as tcpdump.org lists them.
    pub link: u32,
    /// What was captured of it.
    pub bytes: &'c [u8],
    /// It was longer.
    pub is_cut: bool,
    /// Something between it and the packet before could not be read.
    pub is_behind_damage: bool,
}

/// A packet without its bytes.
struct Found {
    offset: u64,
    place: Place,
}

impl Format {
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Step {
        match self {
            Self::Pcap(pcap) => pcap.step(bytes),
            Self::Pcapng(pcapng) => pcapng.step(bytes),
        }
    }

    fn is_likely(&self, bytes: &[u8], is_end: bool) -> bool {
        match self {
            Self::Pcap(pcap) => pcap.is_likely(bytes, is_end),
            Self::Pcapng(pcapng) => pcapng.is_likely(bytes),
        }
    }
}

impl Capture {
    /// Begins to read a file. Its first bytes tell what it is.
    ///
    /// # Errors
    /// It cannot be read, or is no capture.
    pub fn open(input: Input) -> Result<Self, ImportError> {
        let mut window = Window::new(input);
        window.want(24).map_err(ImportError::read(window.input().path()))?;
        let bytes = window.bytes();
        let format = if Pcapng::is_begin(bytes) {
            Format::Pcapng(Pcapng::default())
        } else if let Some((pcap, header_bytes)) = Pcap::begin(bytes) {
            window.pass(header_bytes);
            Format::Pcap(pcap)
        } else {
            let begin = bytes.get(..bytes.len().min(4)).unwrap_or_default();
            let what = format!(
                "not a capture: it begins with {begin:02x?}, neither as pcap nor as pcapng does; give the file as it was captured, plain or packed by gzip"
            );
            return Err(ImportError::Kind { path: window.input().path().to_owned(), what });
        };
        Ok(Self { window, format, is_ended: false, is_damaged: false })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.window.input().path()
    }

    /// How many bytes of what is in the file have been read.
    pub fn bytes(&self) -> u64 {
        self.window.offset()
    }

    /// The next packet. What cannot be read is noted in the report, and reading goes on where a packet can begin again.
    ///
    /// # Errors
    /// The file cannot be read.
    #[inline]
    pub fn next(&mut self, report: &mut Report) -> Result<Option<Packet<'_>>, ImportError> {
        let Some(Found { offset, place }) = self.find(report)? else { return Ok(None) };
        let is_behind_damage = std::mem::take(&mut self.is_damaged);
        let Place { wall_ns, link, at, is_cut, .. } = place;
        // The packet is in front of the window, where its bytes still are.
        let bytes = self.window.passed(at);
        Ok(Some(Packet { offset, wall_ns, link, bytes, is_cut, is_behind_damage }))
    }

    #[inline]
    fn find(&mut self, report: &mut Report) -> Result<Option<Found>, ImportError> {
        let mut wanted = 0;
        while !self.is_ended {
            let offset = self.window.offset();
            match self.format.step(self.window.bytes()) {
                Step::Packet(mut place) => {
                    place.at = self.window.pass_with(place.at, place.end);
                    return Ok(Some(Found { offset, place }));
                }
                Step::Need(bytes) if bytes <= wanted || self.window.is_end() => self.end(report),
                Step::Need(bytes) => {
                    wanted = bytes;
                    self.window.want(bytes).map_err(ImportError::read(self.window.input().path()))?;
                    continue;
                }
                Step::Pass(bytes) => {
                    let passed = self.window.pass_far(bytes);
                    if passed.map_err(ImportError::read(self.window.input().path()))? < bytes {
                        self.flaw(report, offset, "the capture ends inside a block");
                        self.is_ended = true;
                    }
                }
                Step::Unreadable { end, what } => {
                    self.flaw(report, offset, what);
                    self.window.pass(end);
                }
                Step::Damaged(what) => self.search(report, what)?,
            }
            wanted = 0;
        }
        Ok(None)
    }

    /// Nothing whole follows.
    #[cold]
    fn end(&mut self, report: &mut Report) {
        self.is_ended = true;
        let (offset, rest) = (self.window.offset(), self.window.bytes().len());
        if let Some(what) = self.window.take_damage() {
            self.flaw(report, offset + rest as u64, &what);
        }
        if rest > 0 {
            self.flaw(
                report,
                offset,
                &format!("the capture ends inside a packet, {rest} bytes behind its begin"),
            );
        }
        self.window.pass(rest);
    }

    /// Goes to the next place where a packet can begin.
    #[cold]
    fn search(&mut self, report: &mut Report, what: &str) -> Result<(), ImportError> {
        let offset = self.window.offset();
        self.window.pass(1);
        loop {
            // A packet can be judged where all of it and the head of the next are seen.
            self.window.want(WINDOW_BYTES).map_err(ImportError::read(self.window.input().path()))?;
            let (bytes, is_end) = (self.window.bytes(), self.window.is_end());
            let places = if is_end { bytes.len() } else { bytes.len().saturating_sub(WINDOW_BYTES / 4 * 3) };
            let found =
                (0..places).find(|at| self.format.is_likely(bytes.get(*at..).unwrap_or_default(), is_end));
            self.window.pass(found.unwrap_or(places));
            if found.is_some() || is_end {
                let passed = self.window.offset() - offset;
                self.flaw(report, offset, &format!("{what}; {passed} bytes passed over"));
                return Ok(());
            }
        }
    }

    fn flaw(&mut self, report: &mut Report, offset: u64, what: &str) {
        self.is_damaged = true;
        report.flaw(self.window.input().path(), offset, None, what);
    }
}

#[cfg(test)]
mod tests;
