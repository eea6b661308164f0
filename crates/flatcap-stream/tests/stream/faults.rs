//! Sources and sinks that fail at each of their operations.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use flatbuffers::FlatBufferBuilder;
use flatcap_stream::{
    ChecksumKind, Error, ErrorKind as StreamErrorKind, FrameDecoder, FramerExt, KindDeframer, SizeValidator,
    StreamReader, StreamWriter, recover,
};

use crate::test_streams::{Stream, push_to};

const LENGTHS: [usize; 6] = [3, 0, 70, 1, 0, 33];
const FAILURES: [ErrorKind; 4] =
    [ErrorKind::WouldBlock, ErrorKind::BrokenPipe, ErrorKind::TimedOut, ErrorKind::Other];

/// The fault that is injected at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fails(ErrorKind),
    /// The operation moves one byte, regardless of the number requested.
    Short,
    /// A sink that accepts nothing.
    Nothing,
}

/// A source or sink that counts operations and fails at one of them. All others move at most `step`
/// bytes.
#[derive(Debug, Clone)]
struct Faulty<T> {
    inner: T,
    fault: Fault,
    operations_before: usize,
    step: usize,
    /// Whether a vectored call uses all of its slices.
    is_vectored: bool,
    operations: usize,
}

impl<T> Faulty<T> {
    fn new(inner: T, fault: Fault, operations_before: usize, step: usize) -> Self {
        Self { inner, fault, operations_before, step, is_vectored: true, operations: 0 }
    }

    /// Returns the number of bytes that this operation may move.
    fn operation(&mut self) -> io::Result<usize> {
        self.operations += 1;
        if self.operations != self.operations_before + 1 {
            return Ok(self.step);
        }
        match self.fault {
            Fault::Fails(kind) => Err(kind.into()),
            Fault::Short => Ok(1),
            Fault::Nothing => Ok(0),
        }
    }

    fn has_failed(&self) -> bool {
        self.operations > self.operations_before
    }
}

impl Read for Faulty<&[u8]> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.operation()?.min(buffer.len());
        self.inner.read(&mut buffer[..most])
    }
}

impl Faulty<Vec<u8>> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.operation()?.min(bytes.len());
        self.inner.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl Write for Faulty<Vec<u8>> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_vectored {
            let first = slices.iter().find(|slice| !slice.is_empty());
            return self.take(first.map_or(&[][..], |slice| slice));
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.take(&bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.operation().map(drop)
    }
}

fn io_kind(error: &Error) -> Option<ErrorKind> {
    match error.kind() {
        StreamErrorKind::Io(error) => Some(error.kind()),
        _ => None,
    }
}

fn stream(kind: ChecksumKind) -> Stream {
    Stream::of_lengths(kind, &LENGTHS, 31)
}

/// Runs `check` with a fault at each operation in turn, until `check` makes fewer operations.
fn at_every_operation(mut check: impl FnMut(usize) -> bool) {
    let count = (0..100_000).take_while(|&operation| check(operation)).count();
    assert!((1..100_000).contains(&count), "{count} operations");
}

// Proves that interruptions and short reads of a source do not change the result. Method: a fault
// at each read in turn, with several step sizes and all checksums.
#[test]
fn reading_continues_after_interruptions_and_short_reads() {
    for &kind in ChecksumKind::ALL {
        let stream = stream(kind);
        for fault in [Fault::Fails(ErrorKind::Interrupted), Fault::Short] {
            for step in [1, 5, usize::MAX] {
                at_every_operation(|operation| {
                    let source = Faulty::new(&stream.bytes[..], fault, operation, step);
                    let mut reader = StreamReader::new(source, KindDeframer::new(kind));
                    let mut payloads = Vec::new();
                    reader.process_all(push_to(&mut payloads)).unwrap();
                    assert_eq!(payloads, stream.payloads, "{fault:?} at {operation}");
                    reader.get_ref().has_failed()
                });
            }
        }
    }
}

// Proves that an error of a source is returned with its kind, after the payloads before the error.
// Recovery returns the same error.
#[test]
fn errors_of_a_source_are_returned() {
    for &kind in ChecksumKind::ALL {
        let stream = stream(kind);
        for failure in FAILURES {
            for step in [1, 5, usize::MAX] {
                at_every_operation(|operation| {
                    let source = Faulty::new(&stream.bytes[..], Fault::Fails(failure), operation, step);
                    let recovered = recover(source.clone(), KindDeframer::new(kind));
                    let mut reader = StreamReader::new(source, KindDeframer::new(kind));
                    let mut payloads = Vec::new();
                    let read = reader.process_all(push_to(&mut payloads));
                    assert_eq!(payloads, stream.payloads[..payloads.len()]);
                    if reader.get_ref().has_failed() {
                        assert_eq!(io_kind(&read.unwrap_err()), Some(failure), "at {operation}");
                        assert_eq!(io_kind(&recovered.unwrap_err()), Some(failure), "at {operation}");
                        return true;
                    }
                    assert_eq!(payloads, stream.payloads);
                    recovered.unwrap();
                    read.unwrap();
                    false
                });
            }
        }
    }
}

// Proves that an error between frames loses nothing, because reading continues with the next frame.
// Method: a source that fails at the first byte of each frame and is read again.
#[test]
fn reading_continues_after_an_error_between_frames() {
    for &kind in ChecksumKind::ALL {
        let stream = stream(kind);
        let source = Faulty::new(&stream.bytes[..], Fault::Short, usize::MAX - 1, usize::MAX);
        let mut reader = StreamReader::new(source, KindDeframer::new(kind));
        for payload in &stream.payloads {
            let source = reader.get_mut();
            (source.fault, source.operations_before) =
                (Fault::Fails(ErrorKind::WouldBlock), source.operations);
            assert_eq!(io_kind(&reader.read_message().unwrap_err()), Some(ErrorKind::WouldBlock));
            assert_eq!(reader.read_message().unwrap(), Some(&payload[..]));
        }
        assert!(reader.read_message().unwrap().is_none());
    }
}

// Proves that a loop that feeds a decoder can continue after an error. Method: a small read buffer,
// and a source that fails at each read in turn with every kind of error.
#[test]
fn decoding_continues_after_an_error() {
    for &kind in ChecksumKind::ALL {
        let stream = stream(kind);
        for failure in FAILURES {
            for step in [1, 3, 7] {
                at_every_operation(|operation| {
                    let mut source = Faulty::new(&stream.bytes[..], Fault::Fails(failure), operation, step);
                    let mut decoder = FrameDecoder::new(KindDeframer::new(kind));
                    let (mut payloads, mut errors) = (Vec::new(), 0);
                    let mut buffer = [0; 7];
                    loop {
                        let mut piece = match source.read(&mut buffer) {
                            Ok(0) => break,
                            Ok(count) => &buffer[..count],
                            Err(error) => {
                                assert_eq!(error.kind(), failure);
                                errors += 1;
                                continue;
                            }
                        };
                        while !piece.is_empty() {
                            let (taken, payload) = decoder.decode(piece).unwrap();
                            payloads.extend(payload.map(<[u8]>::to_vec));
                            piece = &piece[taken..];
                        }
                    }
                    assert_eq!(payloads, stream.payloads, "{failure:?} at {operation}");
                    assert!(decoder.is_between_frames());
                    errors > 0
                });
            }
        }
    }
}

/// The ways of writing the same stream.
const WRITE_METHODS: [&str; 4] = ["payload", "payloads", "finished", "framed"];

fn write(
    sink: Faulty<Vec<u8>>,
    kind: ChecksumKind,
    way: &str,
    stream: &Stream,
) -> (Faulty<Vec<u8>>, Option<Error>) {
    let mut writer = StreamWriter::new(sink, kind);
    let result = match way {
        "payload" => stream.payloads.iter().try_for_each(|payload| writer.write_payload(payload)),
        "payloads" => writer.write_payloads(stream.payloads.iter().map(Vec::as_slice)),
        "finished" => {
            let mut builder = FlatBufferBuilder::new();
            (0..6_usize).try_for_each(|length| {
                builder.reset();
                let root = builder.create_vector(&vec![1_u8; length * length]);
                builder.finish_minimal(root);
                writer.write_finished(&mut builder)
            })
        }
        _ => {
            let mut slices: Vec<IoSlice<'_>> =
                stream.frames.iter().map(|frame| IoSlice::new(&stream.bytes[frame.clone()])).collect();
            writer.write_framed(&mut slices)
        }
    };
    (writer.into_inner(), result.err())
}

// Proves that no byte is lost or repeated if writing to a faulty sink succeeds. An error is
// returned with its kind, and the sink then has a prefix of the stream. Method: each fault at each
// write, several step sizes, sinks with and without vectored writes.
#[test]
fn faulty_sinks_lose_nothing() {
    let faults = FAILURES.map(Fault::Fails).into_iter().chain([
        Fault::Fails(ErrorKind::Interrupted),
        Fault::Short,
        Fault::Nothing,
    ]);
    for (fault, way) in faults.flat_map(|fault| WRITE_METHODS.map(|way| (fault, way))) {
        for &kind in ChecksumKind::ALL {
            let stream = stream(kind);
            let sound = Faulty::new(Vec::new(), fault, usize::MAX - 1, usize::MAX);
            let expected = write(sound, kind, way, &stream).0.inner;
            for (step, is_vectored) in [(1, true), (9, true), (usize::MAX, false), (9, false)] {
                at_every_operation(|operation| {
                    let mut sink = Faulty::new(Vec::new(), fault, operation, step);
                    sink.is_vectored = is_vectored;
                    let (sink, error) = write(sink, kind, way, &stream);
                    let what = format!("{fault:?} at {operation}, {way}, {kind}, step {step}");
                    let failure = match fault {
                        Fault::Fails(ErrorKind::Interrupted) | Fault::Short => None,
                        Fault::Fails(failure) => Some(failure),
                        Fault::Nothing => Some(ErrorKind::WriteZero),
                    };
                    if sink.has_failed() && failure.is_some() {
                        assert_eq!(error.as_ref().and_then(io_kind), failure, "{what}");
                        assert!(expected.starts_with(&sink.inner), "{what}");
                        assert_eq!(sink.operations, operation + 1, "{what}: the sink is not called again");
                    } else {
                        assert!(error.is_none() && sink.inner == expected, "{what}");
                    }
                    sink.has_failed()
                });
            }
        }
    }
}

// Proves that flushing returns the error of the sink.
#[test]
fn errors_of_flushing_are_returned() {
    for failure in FAILURES {
        let sink = Faulty::new(Vec::new(), Fault::Fails(failure), 0, usize::MAX);
        let mut writer = StreamWriter::new(sink, ChecksumKind::None);
        assert_eq!(io_kind(&writer.flush().unwrap_err()), Some(failure));
        writer.flush().unwrap();
    }
}

// Proves that a refused payload causes no call of the sink, for every way of writing and all
// checksums.
#[test]
fn a_refused_payload_leaves_the_sink_untouched() {
    for &kind in ChecksumKind::ALL {
        let sink = || Faulty::new(Vec::new(), Fault::Fails(ErrorKind::Other), 0, usize::MAX);
        let mut bounded = StreamWriter::new(sink(), kind.bounded(4));
        assert!(bounded.write_payload(b"12345").unwrap_err().is_frame_too_large());
        assert!(bounded.write_payloads([&b"12345"[..], b"1"]).unwrap_err().is_frame_too_large());
        assert!(bounded.write(&"a string of some length").unwrap_err().is_frame_too_large());
        assert_eq!(bounded.into_inner().operations, 0);
        let mut validated = StreamWriter::new(sink(), kind.with_validator(SizeValidator::new(2, 4)));
        assert!(validated.write_payload(b"1").unwrap_err().is_invalid_payload());
        assert!(validated.write_payloads([&b"1"[..]]).unwrap_err().is_invalid_payload());
        let mut builder = FlatBufferBuilder::new();
        let root = builder.create_string("a string of some length");
        builder.finish_minimal(root);
        assert!(validated.write_finished(&mut builder).unwrap_err().is_invalid_payload());
        assert_eq!(validated.into_inner().operations, 0);
    }
}
