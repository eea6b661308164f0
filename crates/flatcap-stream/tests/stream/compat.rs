//! The API that programs written for flatstream 0.2.7 use, with its paths, types, signatures and
//! behaviour. See MIGRATION.md.
//!
//! Most of the API is proven by compiling, because each function is bound to the type on which
//! callers rely.
#![allow(clippy::type_complexity, reason = "signatures are what is tested")]

use std::cell::{Cell, RefCell};
use std::io::{self, Cursor, Read, Write};
use std::time::Duration;

use flatbuffers::{Allocator, DefaultAllocator, FlatBufferBuilder};
// Imports everything at the root of flatstream with one glob, as the README of flatstream shows.
use flatcap_stream::*;

type Bytes = Cursor<Vec<u8>>;

// Proves that every name is also found under the path of its module.
#[test]
fn paths() {
    use flatcap_stream as flatstream;
    use flatstream::checksum::{Checksum, Crc16, Crc32, NoChecksum, XxHash64};
    use flatstream::error::{Error, ErrorKind, Result};
    use flatstream::framing::{
        BoundedFramer, ChecksumDeframer, ChecksumFramer, DEFAULT_MAX_FRAME_LEN, DefaultDeframer,
        DefaultFramer, Deframer, DeframerExt, Framer, FramerExt, MAX_WIRE_FRAME_LEN, ObserverDeframer,
        ObserverFramer, ValidatingDeframer, ValidatingFramer,
    };
    use flatstream::policy::{
        AdaptiveWatermarkPolicy, Clock, DEFAULT_BASELINE_CAPACITY, MemoryPolicy, MonotonicClock, NoOpPolicy,
        ReclamationInfo, ReclamationReason, SizeThresholdPolicy,
    };
    use flatstream::reader::{Messages, StreamReader, TypedMessages};
    use flatstream::recover::{RecoveryEnd, RecoveryReport, recover, recover_file};
    use flatstream::traits::{StreamDeserialize, StreamSerialize};
    use flatstream::validation::{
        CompositeValidator, NoValidator, SizeValidator, TableRootValidator, TypedValidator, Validator,
    };
    use flatstream::writer::StreamWriter;

    fn checksum<C: Checksum + Default + Copy>() -> usize {
        C::SIZE
    }
    fn framer<F: Framer + FramerExt>(_: F) {}
    fn deframer<D: Deframer + DeframerExt>(_: D) {}
    fn validator<V: Validator + Send + Sync + 'static>(_: V) {}
    fn policy<P: MemoryPolicy + Send + 'static>(_: P) {}
    fn serialize<T: StreamSerialize>(_: &T) {}
    fn deserialize<'a, T: StreamDeserialize<'a>>() -> fn(&'a [u8]) -> Result<T::Root> {
        T::from_payload
    }

    let sizes = [checksum::<NoChecksum>(), checksum::<Crc16>(), checksum::<Crc32>(), checksum::<XxHash64>()];
    assert_eq!(sizes, [0, 2, 4, 8]);
    framer(BoundedFramer::new(DefaultFramer, 1));
    framer(ObserverFramer::new(ChecksumFramer::new(XxHash64::new()), |_: &[u8]| ()));
    framer(ValidatingFramer::new(DefaultFramer, NoValidator));
    deframer(ObserverDeframer::new(ChecksumDeframer::new(Crc32::new()), |_: &[u8]| ()));
    deframer(ValidatingDeframer::new(DefaultDeframer::new(), NoValidator));
    validator(CompositeValidator::new().add(SizeValidator::new(0, 1)).add(TableRootValidator::new()));
    validator(TypedValidator::from_verify(|_, _| Ok(())));
    policy(NoOpPolicy);
    policy(AdaptiveWatermarkPolicy::default());
    policy(SizeThresholdPolicy::default());
    serialize(&"text");
    serialize(&String::new());
    assert!(deserialize::<Text>()(b"").is_err());
    let clock: &dyn Clock = &MonotonicClock::new();
    assert!(clock.now() <= clock.now());
    assert_eq!(DEFAULT_MAX_FRAME_LEN, flatbuffers::FLATBUFFERS_MAX_BUFFER_SIZE);
    assert_eq!((MAX_WIRE_FRAME_LEN, DEFAULT_BASELINE_CAPACITY), (u32::MAX as usize, 16 << 10));
    let _: fn(Bytes, DefaultDeframer) -> Result<RecoveryReport> = recover;
    let _: fn(&mut Bytes, DefaultDeframer) -> Result<RecoveryReport> = recover_file;
    let _: Option<(Messages<'_, Bytes, DefaultDeframer>, TypedMessages<'_, Bytes, DefaultDeframer, Text>)> =
        None;
    let _: Option<(StreamReader<Bytes, DefaultDeframer>, StreamWriter<'_, Vec<u8>, DefaultFramer>)> = None;
    let _: fn(ErrorKind) -> Error = Error::from;
    let _ = (RecoveryEnd::CleanEof, RecoveryEnd::TornTail, ReclamationReason::TimeCooldown);
    let _ = ReclamationInfo {
        reason: ReclamationReason::MessageCount,
        last_message_size: 1,
        capacity_before: 2,
        capacity_after: 1,
    };
}

// Proves that constructors and methods keep their signatures.
#[test]
fn signatures() {
    type Reader = StreamReader<Bytes, DefaultDeframer>;
    type Writer<'a> = StreamWriter<'a, Vec<u8>, DefaultFramer>;
    let _: fn(Bytes, DefaultDeframer) -> Reader = Reader::new;
    let _: fn(Bytes, DefaultDeframer, usize) -> Reader = Reader::with_capacity;
    let _: fn(Reader, NoOpPolicy) -> Reader = Reader::with_memory_policy::<NoOpPolicy>;
    let _: fn(&mut Reader) -> Result<Option<&[u8]>> = Reader::read_message;
    let _: fn(&mut Reader) -> Messages<'_, Bytes, DefaultDeframer> = Reader::messages;
    let _: fn(&mut Reader) -> TypedMessages<'_, Bytes, DefaultDeframer, Text> =
        Reader::typed_messages::<Text>;
    let _: fn(&Reader) -> &Bytes = Reader::get_ref;
    let _: fn(&mut Reader) -> &mut Bytes = Reader::get_mut;
    let _: fn(&Reader) -> &DefaultDeframer = Reader::deframer;
    let _: fn(&Reader) -> usize = Reader::buffer_capacity;
    let _: fn(&mut Reader, usize) = Reader::reserve;
    let _: fn(Reader) -> Bytes = Reader::into_inner;
    let _: for<'m> fn(&'m mut Messages<'static, Bytes, DefaultDeframer>) -> Result<Option<&'m [u8]>> =
        Messages::next;
    let _: for<'m> fn(&'m mut Messages<'static, Bytes, DefaultDeframer>) -> Result<Option<&'m [u8]>> =
        Messages::next_message;

    let _: fn(Vec<u8>, DefaultFramer) -> Writer<'static> = StreamWriter::new;
    let _: fn(Vec<u8>, DefaultFramer, usize) -> Writer<'static> = StreamWriter::with_capacity;
    let _: fn(Vec<u8>, DefaultFramer, FlatBufferBuilder<'static>) -> Writer<'static> =
        StreamWriter::with_builder;
    let _: fn(Vec<u8>, DefaultFramer, FlatBufferBuilder<'static, DefaultAllocator>) -> Writer<'static> =
        StreamWriter::with_builder_alloc;
    let _: fn(Writer<'static>, NoOpPolicy) -> Writer<'static> = Writer::with_memory_policy::<NoOpPolicy>;
    let _: fn(Writer<'static>, NoOpPolicy, fn(usize) -> FlatBufferBuilder<'static>) -> Writer<'static> =
        Writer::with_memory_policy_and_factory;
    let _: fn(&mut Writer<'static>, &&'static str) -> Result<()> = Writer::write::<&'static str>;
    let _: fn(&mut Writer<'static>, &mut FlatBufferBuilder<'_>) -> Result<()> =
        Writer::write_finished::<DefaultAllocator>;
    let _: fn(&mut Writer<'static>) -> Result<()> = Writer::flush;
    let _: fn(Writer<'static>) -> Vec<u8> = Writer::into_inner;
    let _: for<'w> fn(&'w Writer<'static>) -> &'w Vec<u8> = Writer::get_ref;
    let _: for<'w> fn(&'w mut Writer<'static>) -> &'w mut Vec<u8> = Writer::get_mut;
    let _: for<'w> fn(&'w Writer<'static>) -> &'w DefaultFramer = Writer::framer;

    let _: fn(DefaultDeframer, usize) -> DefaultDeframer = DefaultDeframer::with_max_frame_len;
    let _: fn(ChecksumDeframer<Crc16>, usize) -> ChecksumDeframer<Crc16> =
        ChecksumDeframer::with_max_frame_len;
    let _: fn(&DefaultFramer, &mut Vec<u8>, &[u8]) -> Result<()> = DefaultFramer::frame_and_write;
    let _: fn(&DefaultDeframer, &mut Bytes, &mut Vec<u8>) -> Result<Option<usize>> =
        DefaultDeframer::read_and_deframe;
    let _: fn(&DefaultDeframer, &mut Bytes, &mut Vec<u8>, usize) -> Result<Option<usize>> =
        DefaultDeframer::read_after_length;
    let _: fn(DefaultFramer, usize) -> BoundedFramer<DefaultFramer> = DefaultFramer::bounded;

    let _: fn(&Crc32, &[u8]) -> u64 = Crc32::calculate;
    let _: fn(&Crc32, u64, &[u8]) -> Result<()> = Crc32::verify;
    let _: for<'o> fn(&Crc32, u64, &'o mut [u8; 8]) -> &'o [u8] = Crc32::write_bytes;
    let _: fn(&Crc32, &[u8]) -> u64 = Crc32::read_bytes;
    let _ = (NoChecksum::new(), Crc16::new(), Crc32::new(), XxHash64::new());

    let _: fn(usize, u32) -> AdaptiveWatermarkPolicy = AdaptiveWatermarkPolicy::new;
    let _: fn(usize, u32, FrozenClock) -> AdaptiveWatermarkPolicy<FrozenClock> =
        AdaptiveWatermarkPolicy::with_clock;
    let _: fn(AdaptiveWatermarkPolicy, Duration) -> AdaptiveWatermarkPolicy =
        AdaptiveWatermarkPolicy::with_cooldown;
    let _: fn(AdaptiveWatermarkPolicy, usize) -> AdaptiveWatermarkPolicy =
        AdaptiveWatermarkPolicy::with_baseline;
    let _: fn(usize, usize, u32) -> SizeThresholdPolicy = SizeThresholdPolicy::new;
    let _: fn(SizeThresholdPolicy, usize) -> SizeThresholdPolicy = SizeThresholdPolicy::with_baseline;
    let _: fn(usize, usize) -> SizeValidator = SizeValidator::new;
    let _: fn(usize, usize) -> TableRootValidator = TableRootValidator::with_limits;
    let _ = TypedValidator::from_verify_named("name", |_, _| Ok(()));
    let _ = TypedValidator::with_limits_from_verify(1, 2, |_, _| Ok(()));
    let _ = TypedValidator::with_limits_from_verify_named(1, 2, "name", |_, _| Ok(()));
}

// Proves that the defaults equal the defaults of flatstream 0.2.7.
#[test]
fn defaults() {
    let adaptive = AdaptiveWatermarkPolicy::default();
    assert_eq!(AdaptiveWatermarkPolicy::DEFAULT_SIZE_RATIO_THRESHOLD, adaptive.size_ratio_threshold);
    assert_eq!(AdaptiveWatermarkPolicy::DEFAULT_MESSAGES_TO_WAIT, adaptive.messages_to_wait);
    assert_eq!((adaptive.size_ratio_threshold, adaptive.messages_to_wait, adaptive.cooldown), (4, 5, None));
    assert_eq!(adaptive.baseline_capacity, 16 << 10);
    let sizes = SizeThresholdPolicy::default();
    assert_eq!(
        (sizes.grow_above_bytes, sizes.shrink_below_bytes, sizes.messages_to_wait, sizes.baseline_capacity),
        (1 << 20, 1 << 10, 8, 16 << 10)
    );
    assert_eq!(SizeThresholdPolicy::DEFAULT_GROW_ABOVE_BYTES, 1 << 20);
    assert_eq!(SizeThresholdPolicy::DEFAULT_SHRINK_BELOW_BYTES, 1 << 10);
    assert_eq!(SizeThresholdPolicy::DEFAULT_MESSAGES_TO_WAIT, 8);
}

/// A clock that never advances.
#[derive(Debug, Clone, Copy)]
struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// A user's type that is written and read as a string.
struct Text(&'static str);

impl StreamSerialize for Text {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        if self.0.is_empty() {
            return Err(Error::validation_failed("Text", "is empty"));
        }
        let root = builder.create_string(self.0);
        builder.finish(root, None);
        Ok(())
    }
}

impl<'a> StreamDeserialize<'a> for Text {
    type Root = &'a str;

    fn from_payload(payload: &'a [u8]) -> Result<&'a str> {
        Ok(flatbuffers::root::<&str>(payload)?)
    }
}

// Proves that simple and expert mode, typed reading and the loops behave as users of flatstream
// expect.
#[test]
fn writing_and_reading() {
    let mut writer = StreamWriter::new(Cursor::new(Vec::new()), ChecksumFramer::new(XxHash64::new()));
    writer.write(&Text("one")).unwrap();
    assert!(writer.write(&Text("")).unwrap_err().is_invalid_payload(), "nothing is written");
    let mut builder = FlatBufferBuilder::new();
    let root = builder.create_string("two");
    builder.finish(root, None);
    writer.write_finished(&mut builder).unwrap();
    writer.flush().unwrap();
    let bytes = writer.into_inner().into_inner();
    let reader = || StreamReader::new(Cursor::new(&bytes), ChecksumDeframer::new(XxHash64::new()));

    let mut texts = Vec::new();
    let mut keep = |text: &str| {
        texts.push(text.to_owned());
        Ok(())
    };
    reader().process_typed::<Text, _>(|text| keep(text)).unwrap();
    reader()
        .process_typed_with_payload::<Text, _>(|text, payload| {
            assert!(payload.len() >= text.len() + 8);
            keep(text)
        })
        .unwrap();
    let mut typed = reader();
    let mut typed = typed.typed_messages::<Text>();
    while let Some(text) = typed.next().unwrap() {
        texts.push(text.to_owned());
    }
    assert_eq!(typed.next_typed().unwrap(), None);
    let mut plain = reader();
    let mut messages = plain.messages();
    while let Some(payload) = messages.next().unwrap() {
        texts.push(Text::from_payload(payload).unwrap().to_owned());
    }
    assert_eq!(texts, ["one", "two"].repeat(4));

    let mut calls = 0;
    let stopped = reader().process_all(|_| {
        calls += 1;
        Err(Error::validation_failed("me", "enough"))
    });
    assert!(matches!(stopped.unwrap_err().into_kind(), ErrorKind::ValidationFailed { validator: "me", .. }));
    assert_eq!(calls, 1);
}

/// Converts an error as `?` does in a program that has other errors too.
fn boxed<E: std::error::Error + Send + Sync + 'static>(error: E) -> Box<dyn std::error::Error> {
    Box::new(error)
}

// Proves that a match over the kinds of errors compiles unchanged, with all fields.
#[test]
fn errors() {
    let name = |error: &Error| match error.kind() {
        ErrorKind::Io(_) => "io",
        ErrorKind::ChecksumMismatch { expected: _, calculated: _ } => "checksum",
        ErrorKind::InvalidFrame { message: _, declared_len: _, buffer_len: _, limit: _ } => "frame",
        ErrorKind::FlatbuffersError(_) => "flatbuffers",
        ErrorKind::ValidationFailed { validator: _, reason: _ } => "validation",
        ErrorKind::UnexpectedEof => "eof",
    };
    let invalid = flatbuffers::root::<&str>(b"").unwrap_err();
    let errors = [
        (Error::from(io::Error::other("x")), "io"),
        (Error::checksum_mismatch(1, 2), "checksum"),
        (Error::invalid_frame("x"), "frame"),
        (Error::invalid_frame_with(String::from("x"), Some(1), Some(2), Some(3)), "frame"),
        (Error::from(invalid), "flatbuffers"),
        (Error::validation_failed("v", "x"), "validation"),
        (Error::unexpected_eof(), "eof"),
    ];
    for (error, expected) in &errors {
        assert_eq!(name(error), *expected);
        assert!(!error.to_string().is_empty() && !format!("{error:?}").is_empty());
    }
    assert!(size_of::<Error>() == size_of::<usize>());
    assert!(boxed(Error::from(io::Error::other("cause"))).source().is_some());
}

/// A user's format, with one byte 0x7E before the default frame. It implements only the methods
/// that flatstream 0.2.7 requires.
struct MarkedFramer;

/// Reads the format of [`MarkedFramer`].
struct MarkedDeframer;

impl Framer for MarkedFramer {
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        writer.write_all(&[0x7E])?;
        DefaultFramer.frame_and_write(writer, payload)
    }
}

impl Deframer for MarkedDeframer {
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        let mut mark = [0];
        match reader.read_exact(&mut mark) {
            Ok(()) if mark == [0x7E] => DefaultDeframer::new().read_and_deframe(reader, buffer),
            Ok(()) => Err(Error::invalid_frame("no mark")),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        DefaultDeframer::new().read_after_length(reader, buffer, payload_len)
    }
}

/// A user's validator.
struct EvenLengthValidator;

impl Validator for EvenLengthValidator {
    fn validate(&self, payload: &[u8]) -> Result<()> {
        if payload.len().is_multiple_of(2) {
            Ok(())
        } else {
            Err(Error::validation_failed(self.name(), "odd"))
        }
    }

    fn name(&self) -> &'static str {
        "Even"
    }
}

// Proves that formats, validators and observers of users still work when nested.
#[test]
fn types_of_users() {
    let written = RefCell::new(Vec::new());
    let framer = MarkedFramer
        .with_validator(EvenLengthValidator)
        .bounded(4)
        .observed(|payload| written.borrow_mut().push(payload.len()));
    let mut bytes = Vec::new();
    framer.frame_and_write(&mut bytes, b"ab").unwrap();
    assert!(framer.frame_and_write(&mut bytes, b"abc").unwrap_err().is_invalid_payload());
    assert!(framer.frame_and_write(&mut bytes, b"abcdef").unwrap_err().is_frame_too_large());
    assert_eq!(bytes, b"\x7E\x02\0\0\0ab");
    assert_eq!(*written.borrow(), [2, 3, 6]);
    let seen = Cell::new(0);
    let deframer = MarkedDeframer
        .with_validator(EvenLengthValidator)
        .observed(|payload| seen.set(seen.get() + payload.len()));
    let mut reader = StreamReader::new(&bytes[..], deframer);
    assert_eq!(reader.read_message().unwrap(), Some(&b"ab"[..]));
    assert_eq!(reader.read_message().unwrap(), None);
    assert_eq!(seen.get(), 2);
    let report = recover(&bytes[..], MarkedDeframer).unwrap();
    assert_eq!(report, RecoveryReport { frames: 1, last_good_offset: 7, end: RecoveryEnd::CleanEof });
}

/// A user's policy that reports each reclamation.
struct ReportingPolicy(std::sync::mpsc::Sender<ReclamationInfo>);

impl MemoryPolicy for ReportingPolicy {
    fn should_reset(
        &mut self,
        last_message_size: usize,
        current_capacity: usize,
    ) -> Option<ReclamationReason> {
        (current_capacity > 8 * last_message_size).then_some(ReclamationReason::SizeThreshold)
    }

    fn on_reclaim(&mut self, info: &ReclamationInfo) {
        self.0.send(*info).unwrap();
    }

    fn baseline_capacity(&self) -> usize {
        64
    }
}

// Proves that a user's policy frees memory in readers and writers. Method: a long message, then
// short ones.
#[test]
fn policies_of_users() {
    let (told, info) = std::sync::mpsc::channel();
    let mut writer = StreamWriter::new(Vec::new(), DefaultFramer)
        .with_memory_policy_and_factory(ReportingPolicy(told.clone()), FlatBufferBuilder::with_capacity);
    writer.write(&"long ".repeat(1_000)).unwrap();
    for _ in 0..3 {
        writer.write(&"short").unwrap();
    }
    let bytes = writer.into_inner();
    assert_eq!(info.try_iter().map(|info| info.capacity_after).collect::<Vec<_>>(), [64]);
    let mut reader =
        StreamReader::new(&bytes[..], DefaultDeframer::new()).with_memory_policy(ReportingPolicy(told));
    reader.process_all(|_| Ok(())).unwrap();
    assert_eq!(info.try_iter().count(), 1);
    assert!(reader.buffer_capacity() < 5_000);
}

// Proves that a torn file can be continued as with flatstream. Method: cut, recover, seek, append.
#[test]
fn recovery() {
    let mut file = Cursor::new(Vec::new());
    let mut writer = StreamWriter::new(&mut file, DefaultFramer);
    writer.write(&"one").unwrap();
    writer.write(&"two").unwrap();
    let whole = file.get_ref().len();
    file.get_mut().truncate(whole - 3);
    let report = recover_file(&mut file, DefaultDeframer::new()).unwrap();
    assert_eq!((report.frames, report.last_good_offset), (1, whole as u64 / 2));
    assert_eq!((report.end, file.position()), (RecoveryEnd::TornTail, whole as u64 / 2));
}
