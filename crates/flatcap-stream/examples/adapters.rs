//! Adapters around framers and deframers. The adapters in this example set limits, observe payloads
//! and validate payloads, and they are nested. A payload that is refused on writing never reaches
//! the sink.
//!
//! How to run: `cargo run --example adapters`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use std::cell::Cell;

use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, CompositeValidator, Crc32, DeframerExt, Error, FramerExt, Result,
    SizeValidator, SliceReader, StreamReader, StreamWriter, TypedValidator,
};

/// Maximum length of a payload in bytes, for writing and for reading.
const PAYLOAD_BYTES_MAX: usize = 64;

/// Accepts payloads whose root is a string, checked by the verifier of `flatbuffers`. For a
/// generated type use `root_as_..._with_opts`.
fn texts() -> TypedValidator {
    TypedValidator::from_verify_named("text", |options, payload| {
        flatbuffers::root_with_opts::<&str>(options, payload).map(|_| ())
    })
}

fn main() -> Result<()> {
    // The outermost adapter runs first, so the length is checked before the content. The observer
    // sees only payloads that pass both checks.
    let written = Cell::new(0);
    let framer = ChecksumFramer::new(Crc32)
        .observed(|payload| written.set(written.get() + payload.len()))
        .with_validator(texts())
        .bounded(PAYLOAD_BYTES_MAX);
    let mut writer = StreamWriter::new(Vec::new(), framer);

    writer.write(&"short enough")?;
    let accepted = (writer.get_ref().len(), written.get());
    let too_long = writer.write(&"x".repeat(PAYLOAD_BYTES_MAX));
    assert!(too_long.as_ref().is_err_and(Error::is_frame_too_large));
    let no_text = writer.write_payload(&[0xFF; 16]);
    assert!(no_text.as_ref().is_err_and(Error::is_invalid_payload));
    assert_eq!(
        (writer.get_ref().len(), written.get()),
        accepted,
        "neither sink nor observer saw a refused payload"
    );
    println!("refused without a trace: a payload that is too long, and one that is not text");
    writer.write(&"another")?;
    let bytes = writer.into_inner();

    // On reading, a validator sees only intact frames. A refused frame has been consumed, so
    // reading continues with the next frame.
    let rules = || CompositeValidator::new().add(SizeValidator::new(1, 20)).add(texts());
    let read = Cell::new(0);
    let deframer = ChecksumDeframer::new(Crc32)
        .observed(|_| read.set(read.get() + 1))
        .with_validator(rules())
        .bounded(PAYLOAD_BYTES_MAX);
    let mut reader = StreamReader::new(&bytes[..], deframer);
    assert!(reader.read_message().is_err_and(|error| error.is_invalid_payload()), "24 bytes, 20 are allowed");
    let payload = reader.read_message()?.unwrap_or_default();
    assert_eq!(flatbuffers::root::<&str>(payload)?, "another");
    assert!(reader.read_message()?.is_none());
    assert_eq!(read.get(), 2, "the observer is inside the validator: it saw both");
    println!("read: one message refused by its size, one accepted");

    // The same adapters work on a slice. A bound refuses a length before a byte of the payload is
    // read.
    let bounded = ChecksumDeframer::new(Crc32).with_validator(texts()).bounded(8);
    let first = SliceReader::new(&bytes, bounded).next();
    assert!(first.is_some_and(|payload| payload.is_err_and(|error| error.is_frame_too_large())));
    println!("a slice is read through the same adapters");
    Ok(())
}
