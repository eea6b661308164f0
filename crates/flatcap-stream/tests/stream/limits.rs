//! The longest FlatBuffer, which has 2 GiB, written and read by copy and by slice.

use std::io::{self, IoSlice, Read, Write};

use flatcap_stream::{
    DEFAULT_MAX_FRAME_LEN, DefaultDeframer, DefaultFramer, SliceReader, StreamReader, StreamWriter,
};

/// A sink that counts the bytes written and stores the first eight.
#[derive(Default)]
struct Counter {
    bytes: usize,
    front: Vec<u8>,
}

impl Counter {
    fn take(&mut self, bytes: &[u8]) {
        let missing = 8_usize.saturating_sub(self.front.len());
        self.front.extend(bytes.iter().take(missing));
        self.bytes += bytes.len();
    }
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        for slice in slices {
            self.take(slice);
        }
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Proves that a payload of 2 GiB is written and read whole, by copy and by slice, and that one byte
// more is refused on reading. The zeros of the payload take no memory until they are accessed, but
// the copy takes 2 GiB.
#[test]
fn two_gibibytes() {
    let length = DEFAULT_MAX_FRAME_LEN;
    let mut framed = vec![0_u8; 4 + length];
    framed[..4].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    let mut writer = StreamWriter::new(Counter::default(), DefaultFramer);
    writer.write_payload(&framed[4..]).unwrap();
    let sink = writer.into_inner();
    assert_eq!((sink.bytes, &sink.front[..]), (4 + length, &framed[..8]));

    let mut slices = SliceReader::new(&framed, DefaultDeframer::new());
    assert_eq!(slices.next().unwrap().unwrap().len(), length);
    assert!(slices.next().is_none());
    drop(framed);

    let header = u32::try_from(length).unwrap().to_le_bytes();
    let source = (&header[..]).chain(io::repeat(7).take(length as u64)).chain(&b"\x01\0\0\0x"[..]);
    let mut reader = StreamReader::new(source, DefaultDeframer::new());
    let payload = reader.read_message().unwrap().unwrap();
    assert_eq!((payload.len(), payload[0], payload[length - 1]), (length, 7, 7));
    assert_eq!(reader.read_message().unwrap().unwrap(), b"x");

    let header = u32::try_from(length + 1).unwrap().to_le_bytes();
    let mut reader = StreamReader::new((&header[..]).chain(io::repeat(7)), DefaultDeframer::new());
    assert!(reader.read_message().unwrap_err().is_frame_too_large());
    assert_eq!(reader.buffer_capacity(), 0);
}
