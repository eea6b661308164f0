//! Frames to any `Write`.

use std::io::{ErrorKind, IoSlice, Write};

use super::checksum::ChecksumKind;
use super::error::Result;
use super::framer::FrameHeader;

/// Writes frames to a sink, with one checksum.
#[derive(Debug)]
pub struct StreamWriter<W> {
    sink: W,
    kind: ChecksumKind,
}

impl<W: Write> StreamWriter<W> {
    /// A writer that appends to `sink`.
    pub fn new(sink: W, kind: ChecksumKind) -> Self {
        Self { sink, kind }
    }

    /// The checksum it writes.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Frames a payload and writes it, header and payload in one call where the sink takes both.
    ///
    /// # Errors
    /// `FrameTooLarge` before anything is written; `Io`.
    pub fn write_payload(&mut self, payload: &[u8]) -> Result<()> {
        let header = FrameHeader::new(self.kind, payload)?;
        self.write_framed(&mut [IoSlice::new(header.as_bytes()), IoSlice::new(payload)])
    }

    /// Writes bytes that are whole frames already, as a slab holds them, in as few calls as the sink allows. The
    /// slices are used up.
    ///
    /// # Errors
    /// `Io`. A part of the bytes may then have been written.
    pub fn write_framed(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.sink.write_vectored(slices) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
                Ok(count) => IoSlice::advance_slices(&mut slices, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Flushes the sink. Does not sync a file.
    ///
    /// # Errors
    /// `Io`.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.sink.flush()?)
    }

    /// The sink.
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    /// The sink, to be changed. Writing to it directly breaks the stream.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Gives the sink back.
    pub fn into_inner(self) -> W {
        self.sink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one byte at a time and is interrupted before each.
    #[derive(Default)]
    struct Reluctant {
        bytes: Vec<u8>,
        interrupted: bool,
    }

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            self.bytes.extend_from_slice(&bytes[..1]);
            Ok(1)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // Goal: short writes and interruptions lose and repeat nothing. Method: a sink of one byte a call.
    #[test]
    fn short_writes_are_continued() {
        let mut reluctant = StreamWriter::new(Reluctant::default(), ChecksumKind::None);
        let mut plain = StreamWriter::new(Vec::new(), ChecksumKind::None);
        for payload in [&b"abc"[..], b"", b"longer payload"] {
            reluctant.write_payload(payload).unwrap();
            plain.write_payload(payload).unwrap();
        }
        let framed: &[u8] = b"\x01\0\0\0x";
        reluctant.write_framed(&mut [IoSlice::new(&[]), IoSlice::new(framed), IoSlice::new(framed)]).unwrap();
        plain.write_framed(&mut [IoSlice::new(framed), IoSlice::new(framed)]).unwrap();
        assert_eq!(reluctant.into_inner().bytes, plain.into_inner());
    }
}
