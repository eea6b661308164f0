//! A custom checksum of three bytes, and a custom format with a marker between length and payload.
//!
//! A checksum type defines a width and a function. Framers, deframers and readers accept a custom
//! checksum in the same way as a built-in checksum. A format implements `Framer` for writing,
//! `Deframer` for reading from a source and `SliceDeframer` for reading from memory.
//!
//! How to run: `cargo run --example custom_checksum_and_framer`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use std::io::{ErrorKind, Read, Write};

use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, DefaultDeframer, DeframeStatus, Deframer, DeframerExt, Error,
    Frame, FrameLength, Framer, Result, SliceDeframer, SliceReader, StreamReader, StreamWriter,
};

/// CRC-24/OPENPGP, as in RFC 4880.
struct Crc24;

impl Checksum for Crc24 {
    const SIZE: usize = 3;

    fn calculate(&self, payload: &[u8]) -> u64 {
        payload.iter().fold(0xB7_04CE, |crc, &byte| {
            (0..8).fold(crc ^ (u64::from(byte) << 16), |crc, _| {
                let shifted = crc << 1;
                if shifted & 0x100_0000 == 0 { shifted } else { (shifted ^ 0x86_4CFB) & 0xFF_FFFF }
            })
        })
    }
}

/// `[u32 LE: length]["rec1"][payload]`. The length comes first, so that adapters that look only at
/// the length, such as `bounded`, need not know the format.
#[derive(Clone, Copy)]
struct MarkedFormat;

const LENGTH_BYTES: usize = 4;
const MARKER: &[u8; 4] = b"rec1";
const HEADER_BYTES: usize = LENGTH_BYTES + MARKER.len();
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

impl Framer for MarkedFormat {
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| Error::invalid_frame("4 GiB or more"))?;
        writer.write_all(&length.to_le_bytes())?;
        writer.write_all(MARKER)?;
        Ok(writer.write_all(payload)?)
    }
}

impl Deframer for MarkedFormat {
    // The length has been read, and the marker comes next. The rest is read by the default format,
    // which checks the limit and allocates memory no faster than bytes arrive.
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        let mut marker = [0; MARKER.len()];
        reader.read_exact(&mut marker).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::unexpected_eof(),
            _ => error.into(),
        })?;
        check_marker(&marker)?;
        let rest = DefaultDeframer::new().with_max_frame_len(PAYLOAD_BYTES_MAX);
        rest.read_after_length(reader, buffer, payload_len)
    }
}

impl SliceDeframer for MarkedFormat {
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        let needed = self.frame_length(bytes).checked()?.unwrap_or(HEADER_BYTES);
        if let Some(marker) = bytes.get(LENGTH_BYTES..HEADER_BYTES) {
            check_marker(marker)?;
        }
        let frame = bytes.get(..needed).and_then(|bytes| Frame::new(bytes, HEADER_BYTES));
        Ok(frame.map_or(DeframeStatus::Incomplete { needed }, DeframeStatus::Frame))
    }

    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        let Some(length) = bytes.first_chunk() else { return FrameLength::Unknown };
        match u32::from_le_bytes(*length) as usize {
            declared @ 0..=PAYLOAD_BYTES_MAX => FrameLength::Bytes(HEADER_BYTES + declared),
            declared => FrameLength::TooLong { declared, limit: PAYLOAD_BYTES_MAX },
        }
    }

    // A marker proves nothing about the payload.
    fn checksum_matches(&self, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    fn header_bytes(&self) -> usize {
        HEADER_BYTES
    }
}

fn check_marker(marker: &[u8]) -> Result<()> {
    if marker == MARKER { Ok(()) } else { Err(Error::invalid_frame("the marker is missing")) }
}

fn main() -> Result<()> {
    assert_eq!(Crc24.calculate(b"123456789"), 0x21_CF02, "the published check value");
    let mut writer = StreamWriter::new(Vec::new(), ChecksumFramer::new(Crc24));
    writer.write_payload(b"123456789")?;
    let mut bytes = writer.into_inner();
    assert_eq!(bytes, b"\x09\0\0\0\x02\xCF\x21123456789");
    assert_eq!(SliceReader::new(&bytes, ChecksumDeframer::new(Crc24)).count(), 1);
    bytes.pop();
    bytes.push(b'8');
    let mut reader = StreamReader::new(&bytes[..], ChecksumDeframer::new(Crc24));
    assert!(reader.read_message().is_err_and(|error| error.is_checksum_mismatch()));
    println!("CRC-24: three bytes per frame, a changed payload is detected");

    let mut writer = StreamWriter::new(Vec::new(), MarkedFormat);
    writer.write_payload(b"one")?;
    writer.write_payload(b"a longer one")?;
    let bytes = writer.into_inner();
    assert!(bytes.starts_with(b"\x03\0\0\0rec1one"));
    let payloads = SliceReader::new(&bytes, MarkedFormat).collect::<Result<Vec<_>>>()?;
    assert_eq!(payloads, [&b"one"[..], b"a longer one"]);
    let mut reader = StreamReader::new(&bytes[..], MarkedFormat.bounded(5));
    assert_eq!(reader.read_message()?, Some(&b"one"[..]));
    assert!(reader.read_message().is_err_and(|error| error.is_frame_too_large()));
    println!("the marked format: written, read from a slice and a source, bounded");

    let foreign = b"\x07\0\0\0a frame of the default format";
    assert!(SliceReader::new(foreign, MarkedFormat).next().is_some_and(|payload| payload.is_err()));
    assert!(StreamReader::new(&foreign[..], MarkedFormat).read_message().is_err());
    println!("a stream of another format is refused");
    Ok(())
}
